use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, pipe};
use std::process::Stdio;

use crate::support::{Answer, Sandbox, command, import, sample};

#[test]
fn a_reader_that_goes_away_ends_a_query_quietly() {
    let sandbox = Sandbox::new();
    import(&sandbox.store(), "rides", &sample("sf_cab_rides.parquet"), &[]).exits(0);
    for format in ["ndjson", "csv", "geojson", "table", "arrow", "parquet"] {
        let store = sandbox.store();
        let mut child =
            command(["query".as_ref(), store.as_os_str(), "rides".as_ref(), "--format".as_ref(), format.as_ref()])
                .spawn()
                .expect("the binary runs");
        let mut stdout = BufReader::with_capacity(64, child.stdout.take().expect("a pipe"));
        assert!(!stdout.fill_buf().expect("a start").is_empty());
        drop(stdout);
        let status = child.wait().expect("it ends");
        let mut stderr = String::new();
        child.stderr.take().expect("a pipe").read_to_string(&mut stderr).expect("text");
        assert_eq!((status.code(), stderr.as_str()), (Some(0), ""), "{format}");
    }
}

#[test]
fn what_a_check_found_decides_its_exit_code_whoever_reads_it() {
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    import(&store, "cities", &sample("cities200.csv"), &[]).exits(0);
    let check = |format: &str, stdout: Stdio| {
        let arguments = ["check".as_ref(), store.as_os_str(), "--format".as_ref(), format.as_ref()];
        Answer::of(command(arguments).stdout(stdout).output().expect("the binary runs"))
    };
    let nobody = || Stdio::from(pipe().expect("a pipe").1);
    let full = || Stdio::from(File::options().write(true).open("/dev/full").expect("a device"));
    for (is_damaged, unread, unwritten) in [(false, 0, 1), (true, 3, 3)] {
        if is_damaged {
            for component in fs::read_dir(store.join("components")).expect("components") {
                fs::write(component.expect("an entry").path(), "damage").expect("a component");
            }
        }
        for format in ["text", "json"] {
            let answer = check(format, nobody()).exits(unread);
            assert_eq!(answer.stderr, "", "{format}");
            check(format, full()).exits(unwritten).says("standard output");
        }
    }
}
