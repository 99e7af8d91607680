use std::process::Command;

use crate::support::{Answer, Sandbox, import};

/// Counts the records of dataset `d0` of the sandbox's store under a limit on open files, set in the shell.
fn count_under(sandbox: &Sandbox, limit: &str) -> Answer {
    let script = format!("{limit} && exec \"$0\" query \"$1\" d0 --count");
    let program = env!("CARGO_BIN_EXE_terrane");
    let output = Command::new("sh").args(["-c", &script, program]).arg(sandbox.store()).output();
    Answer::of(output.expect("the shell runs"))
}

#[test]
fn stores_of_more_components_than_the_usual_limit_of_open_files_are_opened() {
    let sandbox = Sandbox::new();
    let file = sandbox.write("a.csv", "id,lon,lat\n1,2,3\n2,3,4\n");
    for number in 0..16 {
        import(&sandbox.store(), &format!("d{number}"), &file, &["--key", "id"]).exits(0);
    }
    assert_eq!(count_under(&sandbox, "ulimit -S -n 24").exits(0).number(), 2);
    count_under(&sandbox, "ulimit -n 24").exits(1).says("ulimit -n");
}
