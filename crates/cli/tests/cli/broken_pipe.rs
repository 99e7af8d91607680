use std::io::{BufRead, BufReader, Read};

use crate::support::{Sandbox, command, import, sample};

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
