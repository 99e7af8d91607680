use std::ffi::OsStr;

use serde_json::Value;

use crate::support::{Answer, Sandbox, import, sample, terrane, with_variable};

fn run(sandbox: &Sandbox, variable: &str, value: &str, name: &str, arguments: &[&str]) -> Answer {
    let store = sandbox.store();
    let mut all: Vec<&OsStr> = vec![name.as_ref(), store.as_os_str()];
    all.extend(arguments.iter().map(OsStr::new));
    with_variable(variable, value, &all)
}

#[test]
fn variables_give_formats_where_they_fit() {
    let sandbox = Sandbox::new();
    import(&sandbox.store(), "cities", &sample("cities200.csv"), &[]).exits(0);
    let csv = run(&sandbox, "TERRANE_FORMAT", "csv", "query", &["cities", "--limit", "1"]).exits(0).text();
    assert!(csv.starts_with("key,lon,lat"), "{csv}");
    let ndjson = run(&sandbox, "TERRANE_FORMAT", "csv", "query", &["cities", "--limit", "1", "--format", "ndjson"]);
    assert!(ndjson.exits(0).text().starts_with('{'));
    let info = run(&sandbox, "TERRANE_FORMAT", "csv", "info", &[]).exits(0).text();
    assert!(info.starts_with("store "), "{info}");
    let info = run(&sandbox, "TERRANE_FORMAT", "json", "info", &[]).exits(0).text();
    assert!(serde_json::from_str::<Value>(&info).is_ok(), "{info}");
    run(&sandbox, "TERRANE_FORMAT", "xml", "info", &[]).exits(2).says("TERRANE_FORMAT");
}

#[test]
fn variables_give_memory_limit_and_durability() {
    let sandbox = Sandbox::new();
    let file = sample("cities200.csv");
    let file = file.to_str().expect("UTF-8");
    run(&sandbox, "TERRANE_MEMORY_LIMIT", "1MiB", "import", &["d", file]).exits(2).says("too small");
    run(&sandbox, "TERRANE_MEMORY_LIMIT", "lots", "import", &["d", file])
        .exits(2)
        .says("TERRANE_MEMORY_LIMIT: \"lots\"");
    run(&sandbox, "TERRANE_DURABILITY", "strong", "import", &["d", file]).exits(2).says("TERRANE_DURABILITY");
    assert!(!sandbox.store().exists());
    run(&sandbox, "TERRANE_DURABILITY", "none", "import", &["d", file]).exits(0);
    let info = terrane("info", &sandbox.store(), &[]).exits(0).text();
    assert!(info.contains("durability none"), "{info}");
    // The variable applies to new stores; an existing one keeps its durability.
    run(&sandbox, "TERRANE_DURABILITY", "power", "import", &["e", file]).exits(0);
    run(&sandbox, "TERRANE_MEMORY_LIMIT", "1MiB", "info", &["--memory-limit", "8MiB"]).exits(0);
}

#[test]
fn flag_and_variable_give_the_reserve_of_disk_space() {
    let sandbox = Sandbox::new();
    let file = sample("cities200.csv");
    let reserved = || {
        let info = terrane("info", &sandbox.store(), &["--format", "json"]).exits(0).text();
        serde_json::from_str::<Value>(&info).expect("JSON")["disk_reserve_bytes"].as_u64()
    };
    import(&sandbox.store(), "d", &file, &[]).exits(0);
    terrane("compact", &sandbox.store(), &[]).exits(0);
    assert_eq!(reserved(), Some(2 << 20));
    run(&sandbox, "TERRANE_DISK_RESERVE", "1MiB", "compact", &[]).exits(0);
    assert_eq!(reserved(), Some(1 << 20));
    run(&sandbox, "TERRANE_DISK_RESERVE", "1MiB", "compact", &["--disk-reserve", "0"]).exits(0);
    assert_eq!(reserved(), None);
    run(&sandbox, "TERRANE_DISK_RESERVE", "half", "info", &[]).exits(2).says("TERRANE_DISK_RESERVE");
}

#[test]
fn levels_and_colours_change_what_is_told() {
    let sandbox = Sandbox::new();
    let file = sample("cities200.csv");
    let quiet = import(&sandbox.store(), "a", &file, &["--log", "error"]).exits(0);
    assert_eq!(quiet.stderr, "");
    run(&sandbox, "TERRANE_LOG", "error", "query", &["x"]).exits(2).says("error: there is no dataset");
    run(&sandbox, "TERRANE_LOG", "loud", "query", &["a"])
        .exits(2)
        .says("TERRANE_LOG: \"loud\" is not one of error, warn");
    run(&sandbox, "TERRANE_LOG", "loud", "query", &["a", "--log", "warn", "--count"]).exits(0);
    let colored = run(&sandbox, "TERRANE_COLOR", "always", "query", &["x"]).exits(2);
    assert!(colored.stderr.starts_with("\x1b["), "{}", colored.stderr);
    let plain = terrane("query", &sandbox.store(), &["x", "--color", "never"]).exits(2);
    assert!(!plain.stderr.contains('\x1b'), "{}", plain.stderr);
}

#[test]
fn an_empty_variable_is_as_none() {
    let sandbox = Sandbox::new();
    let file = sample("cities200.csv");
    let file = file.to_str().expect("UTF-8");
    let names = [
        "TERRANE_MEMORY_LIMIT",
        "TERRANE_DISK_RESERVE",
        "TERRANE_DURABILITY",
        "TERRANE_FORMAT",
        "TERRANE_COLOR",
        "TERRANE_LOG",
        "NO_COLOR",
    ];
    for name in names {
        run(&sandbox, name, "", "import", &[name, file]).exits(0).says("imported 200 records");
        assert_eq!(run(&sandbox, name, "", "query", &[name, "--count"]).exits(0).number(), 200, "{name}");
    }
}

#[test]
fn variables_do_not_change_answers() {
    let sandbox = Sandbox::new();
    import(&sandbox.store(), "cities", &sample("cities200.csv"), &[]).exits(0);
    for (variable, value) in [("TERRANE_LIMIT", "1"), ("TERRANE_K", "1"), ("TERRANE_PLANAR", "true")] {
        let answer = run(&sandbox, variable, value, "query", &["cities", "--nearest", "0,0", "--count"]);
        assert_eq!(answer.exits(0).number(), 10, "{variable}");
    }
}
