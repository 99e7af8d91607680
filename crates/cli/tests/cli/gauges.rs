//! `terrane info --format prometheus`.

use crate::support::{Sandbox, import, terrane};

#[test]
fn gauges_are_what_the_json_says() {
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    let file = sandbox.write("a.csv", "id,lon,lat\n1,2,3\n4,5,6\n");
    import(&store, "a \"b\"", &file, &[]).exits(0);
    let info = terrane("info", &store, &["--format", "json"]).exits(0).json_lines();
    let text = terrane("info", &store, &["--format", "prometheus"]).exits(0).text();
    let index = &info[0]["datasets"][0]["indexes"][0];
    let labels = r#"{dataset="a \"b\"",index="primary",kind="btree"}"#;
    for (gauge, labels, value) in [
        ("terrane_commit", "", &info[0]["sequence"]),
        ("terrane_manifest_generation", "", &info[0]["manifest_generation"]),
        ("terrane_index_entries", labels, &index["entries"]),
        ("terrane_index_bytes", labels, &index["bytes"]),
        ("terrane_partitions", r#"{dataset="a \"b\""}"#, &info[0]["datasets"][0]["partitions"]),
    ] {
        let line = format!("\n{gauge}{labels} {value}\n");
        assert!(text.contains(&line), "{line} is not in {text}");
    }
    assert!(text.ends_with("# EOF\n"), "{text}");
}
