use std::process::Command;

use crate::support::{Answer, Sandbox, import, insert};

/// Runs a command on the sandbox's store under a limit on open files, set in the shell.
fn run_under(sandbox: &Sandbox, limit: &str, command: &str, arguments: &[&str]) -> Answer {
    let script = format!("{limit} && exec \"$0\" {command} \"$@\"");
    let mut shell = Command::new("sh");
    shell.args(["-c", &script, env!("CARGO_BIN_EXE_terrane")]).arg(sandbox.store()).args(arguments);
    Answer::of(shell.output().expect("the shell runs"))
}

/// Counts the records of dataset `d0` of the sandbox's store under a limit on open files, set in
/// the shell.
fn count_under(sandbox: &Sandbox, limit: &str) -> Answer {
    run_under(sandbox, limit, "query", &["d0", "--count"])
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

/// 16 partitions of 4 indexes: each import adds 64 files, and a flush opens as many in addition.
#[test]
fn flushes_merge_first_where_too_many_files_are_open() {
    const LIMIT: &str = "ulimit -n 240";
    let sandbox = Sandbox::new();
    let rows = |round: usize| {
        let row = |number: usize| format!("{},1,2,{number}\n", round * 1000 + number);
        let rows: String = (0..200).map(row).collect();
        sandbox.write(&format!("{round}.csv"), format!("id,lon,lat,v\n{rows}"))
    };
    import(&sandbox.store(), "d0", &rows(0), &["--key", "id", "--partitions", "16"]).exits(0);
    for (name, options) in [("v", ["btree", "--on", "v"].as_slice()), ("s", &["shb"])] {
        let arguments = [&["d0", "create", name, "--using"], options].concat();
        run_under(&sandbox, LIMIT, "index", &arguments).exits(0);
    }
    for round in 1..3 {
        import(&sandbox.store(), "d0", &rows(round), &["--key", "id"]).exits(0);
    }
    let more: String = (5000..5200).map(|id| format!("{{\"id\":{id},\"lon\":1,\"lat\":2,\"v\":3}}\n")).collect();
    insert(&sandbox.store(), "d0", &more, &[]).exits(0);
    run_under(&sandbox, LIMIT, "compact", &[]).exits(0);
    assert_eq!(count_under(&sandbox, LIMIT).exits(0).number(), 800);
    run_under(&sandbox, LIMIT, "check", &[]).exits(0);
}

/// If the log does not fit a reader's memory, the reader writes files of its own. Without any
/// allowed, the store's files stay.
#[test]
fn readers_leave_the_store_as_it_is_where_too_many_files_are_open() {
    let sandbox = Sandbox::new();
    let file = sandbox.write("a.csv", "id,lon,lat,ballast\n1,2,3,b\n2,3,4,b\n");
    for number in 0..8 {
        import(&sandbox.store(), &format!("d{number}"), &file, &["--key", "id"]).exits(0);
    }
    let ballast = "b".repeat(2000);
    let more: String =
        (10..3010).map(|id| format!("{{\"id\":{id},\"lon\":1,\"lat\":2,\"ballast\":\"{ballast}\"}}\n")).collect();
    insert(&sandbox.store(), "d0", &more, &[]).exits(0);
    let components = || {
        let listed = std::fs::read_dir(sandbox.store().join("components")).expect("the store has components");
        let mut names: Vec<_> = listed.map(|entry| entry.expect("a readable directory").file_name()).collect();
        names.sort();
        names
    };
    let before = components();
    let temporary = sandbox.path("temporary");
    std::fs::create_dir(&temporary).expect("a directory");
    let mut answered = 0;
    let limits = 12..60;
    for limit in limits.clone() {
        for command in ["query", "info", "check"] {
            let arguments: &[&str] = if command == "query" { &["d0", "--count"] } else { &[] };
            let arguments = [arguments, &["--memory-limit", "8MiB"]].concat();
            let place = format!("export TMPDIR='{}' && ulimit -n {limit}", temporary.display());
            let answer = run_under(&sandbox, &place, command, &arguments);
            let left = std::fs::read_dir(&temporary).expect("a readable directory").count();
            assert_eq!(left, 0, "after {command} with {limit} files");
            assert_eq!(components(), before, "after {command} with {limit} files");
            match (answer.code, command) {
                (Some(0), "query") => answered += usize::from(answer.number() == 3002),
                (Some(0), _) => {}
                _ => drop(answer.exits(1).says("ulimit -n")),
            }
        }
    }
    assert!(answered > 0 && answered < limits.len(), "{answered} limits were enough");
    assert_eq!(count_under(&sandbox, "true").exits(0).number(), 3002);
}
