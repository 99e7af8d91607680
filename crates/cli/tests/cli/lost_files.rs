//! Parts of a store that are missing after a crash or a removal: every command reports the same.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::insert_stream::Stream;
use crate::support::{Sandbox, count, import, insert, rows, sample, terrane};

const RECORD: &str = "{\"id\":9,\"lon\":1,\"lat\":1}\n";

/// Flips a bit of the last group of the only segment that was written to.
fn flip_end_of_log(store: &Path) {
    let mut segments: Vec<_> =
        fs::read_dir(store.join("log")).expect("a log").map(|entry| entry.expect("an entry").path()).collect();
    segments.sort();
    let mut bytes = fs::read(&segments[0]).expect("a segment");
    let last = bytes.iter().rposition(|&byte| byte != 0).expect("groups");
    bytes[last] ^= 1;
    fs::write(&segments[0], bytes).expect("a segment");
}

fn torn_tail(name: &str, store: &Path) -> Value {
    terrane(name, store, &["--format", "json"]).exits(0).json_lines()[0]["torn_tail"].clone()
}

#[test]
fn a_torn_tail_is_told_of_by_readers_and_cut_with_a_warning_by_writers() {
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    let mut stream = Stream::start(&store, "d", &[]);
    for id in 0..3 {
        stream.send(json!({"id": id, "lon": 1, "lat": 1}));
        assert_eq!(stream.key(), id.to_string());
    }
    assert_eq!(torn_tail("info", &store), json!(null));
    stream.child.kill().expect("SIGKILL");
    stream.child.wait().expect("it is dead");
    flip_end_of_log(&store);

    for name in ["info", "check"] {
        let tail = torn_tail(name, &store);
        assert_eq!(tail["file"], json!("log/000000000001.log"), "{name}: {tail}");
        assert!(tail["bytes"].as_u64() > Some(0) && tail["offset"].as_u64() > Some(0), "{name}: {tail}");
        assert_eq!(tail["cut"], json!(false), "{name}");
        let text = terrane(name, &store, &[]).exits(0).text();
        let place = format!("at byte {} of log/000000000001.log", tail["offset"]);
        assert!(text.contains(&place) && text.contains("interrupted write"), "{name}: {text}");
    }
    let place = format!("at byte {} of log/", torn_tail("info", &store)["offset"]);
    let answer = insert(&store, "d", RECORD, &[]).exits(0).says(&place);
    assert_eq!(answer.stderr.matches("they were removed").count(), 1, "{}", answer.stderr);
    assert_eq!(torn_tail("info", &store), json!(null));
    let ids: Vec<Value> = rows(&store, "d", "id").iter().map(|row| row["id"].clone()).collect();
    assert_eq!(ids, [json!(0), json!(1), json!(9)]);
    assert!(!insert(&store, "d", RECORD, &["--upsert"]).exits(0).stderr.contains("they were removed"));
}

#[test]
fn a_manifest_that_is_missing_is_corruption_for_every_command() {
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    import(&store, "cities", &sample("cities200.csv"), &[]).exits(0);
    let manifest = fs::read(store.join("MANIFEST")).expect("a manifest");
    fs::remove_file(store.join("MANIFEST")).expect("it is removed");
    for (name, arguments) in [
        ("query", &["cities"][..]),
        ("info", &[]),
        ("check", &[]),
        ("check", &["--repair"]),
        ("compact", &[]),
        ("delete", &["cities", "--key", "1"]),
    ] {
        terrane(name, &store, arguments).exits(3).says("MANIFEST is damaged at byte 0: the file is missing");
    }
    insert(&store, "cities", RECORD, &[]).exits(3).says("MANIFEST is damaged at byte 0: the file is missing");
    import(&store, "cities", &sample("cities200.csv"), &[]).exits(3).says("the file is missing");
    fs::write(store.join("MANIFEST"), manifest).expect("it is put back");
    assert_eq!(count(&store, "cities"), 200);
}

/// Every store has a file of its log, so a log without files was damaged, not never written.
#[test]
fn a_log_without_any_file_is_corruption_for_every_command() {
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    insert(&store, "d", RECORD, &[]).exits(0);
    let log: Vec<_> =
        fs::read_dir(store.join("log")).expect("a log").map(|entry| entry.expect("an entry").path()).collect();
    let files: Vec<_> = log.iter().map(|path| (path, fs::read(path).expect("a segment"))).collect();
    for directory in [true, false] {
        files.iter().for_each(|(path, _)| fs::remove_file(path).expect("it is removed"));
        if directory {
            fs::remove_dir(store.join("log")).expect("it is empty");
        }
        for (name, arguments) in
            [("query", &["d"][..]), ("info", &[]), ("check", &[]), ("check", &["--repair"]), ("compact", &[])]
        {
            terrane(name, &store, arguments).exits(3).says("its files are missing, all of them");
        }
        insert(&store, "d", RECORD, &[]).exits(3).says("its files are missing, all of them");
        fs::create_dir_all(store.join("log")).expect("the directory");
        files.iter().for_each(|(path, bytes)| fs::write(path, bytes).expect("it is put back"));
        assert_eq!(count(&store, "d"), 1);
    }
    // Such a store has none.
    let unlogged = sandbox.path("unlogged");
    insert(&unlogged, "d", RECORD, &["--durability", "none"]).exits(0);
    assert_eq!(count(&unlogged, "d"), 1);
}

#[test]
fn a_directory_of_components_that_held_nothing_may_be_lost() {
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    insert(&store, "d", RECORD, &[]).exits(0);
    fs::remove_dir(store.join("components")).expect("it is empty");
    assert_eq!(count(&store, "d"), 1);
    terrane("check", &store, &[]).exits(0);
    // One that held components is missed.
    terrane("compact", &store, &[]).exits(0);
    fs::remove_dir_all(store.join("components")).expect("it is there");
    for command in ["check", "compact"] {
        terrane(command, &store, &[]).exits(3);
    }
    terrane("query", &store, &["d", "--count"]).exits(3);
}

#[test]
fn a_directory_that_only_resembles_a_store_is_none() {
    let sandbox = Sandbox::new();
    fs::create_dir_all(sandbox.path("store/log")).expect("directories");
    sandbox.write("store/log/syslog", "started\n");
    for name in ["info", "check"] {
        terrane(name, &sandbox.store(), &[]).exits(2).says("there is no store");
    }
}

#[test]
fn datasets_are_read_and_checked_beside_one_that_lost_its_records() {
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    for name in ["torn", "sound"] {
        import(&store, name, &sample("cities200.csv"), &[]).exits(0);
    }
    // The first file that the store wrote: the records of the first dataset.
    let mut components: Vec<_> = fs::read_dir(store.join("components"))
        .expect("components")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    components.sort();
    fs::remove_file(&components[0]).expect("it is removed");

    let lost = "index \"primary\" of dataset \"torn\": components/000000000001.tc";
    let answer = terrane("query", &store, &["sound", "--count"]).exits(0).says(lost).says("terrane check");
    assert_eq!(answer.number(), 200);
    terrane("query", &store, &["torn", "--count"]).exits(3).says("components/000000000001.tc is damaged");
    for arguments in [&[][..], &["--repair"]] {
        let report = terrane("check", &store, &[arguments, &["--format", "json"]].concat()).exits(3).json_lines();
        assert_eq!(report[0]["datasets"], json!(2));
        assert_eq!(report[0]["records"], json!(200));
        let findings = report[0]["findings"].as_array().expect("findings");
        assert_eq!(
            (findings.len(), &findings[0]["dataset"], &findings[0]["repaired"]),
            (1, &json!("torn"), &json!(false))
        );
    }
    insert(&store, "sound", RECORD, &[]).exits(3).says("terrane check");
}

#[test]
fn a_directory_or_a_device_in_the_place_of_a_component_is_corruption() {
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    import(&store, "cities", &sample("cities200.csv"), &[]).exits(0);
    let folder = fs::read_dir(store.join("components")).expect("components");
    let files: Vec<_> = folder.map(|entry| entry.expect("an entry").path()).collect();
    assert_eq!(files.len(), 2, "a primary and a spatial index");
    for file in files {
        let kept = sandbox.path("kept");
        fs::rename(&file, &kept).expect("it is moved");
        fs::create_dir(&file).expect("a directory");
        let found = terrane("check", &store, &[]).exits(3).text();
        assert!(found.contains("something else is where the manifest has a file"), "{found}");
        fs::remove_dir(&file).expect("it goes");
        std::os::unix::fs::symlink("/dev/null", &file).expect("a link");
        let found = terrane("check", &store, &[]).exits(3).text();
        assert!(found.contains("something else is where the manifest has a file"), "{found}");
        fs::remove_file(&file).expect("it goes");
        fs::rename(&kept, &file).expect("it is back");
        terrane("check", &store, &[]).exits(0);
    }
}
