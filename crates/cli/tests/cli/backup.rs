//! `terrane backup` and `terrane restore`.

use std::fs;
use std::path::Path;

use serde_json::json;

use crate::insert_stream::Stream;
use crate::support::{Answer, Sandbox, command, count, import, insert, is_clean, rows, sample, terrane};

fn backup(store: &Path, backup: &Path, arguments: &[&str]) -> Answer {
    let mut command = command(["backup".as_ref(), store.as_os_str(), backup.as_os_str()]);
    Answer::of(command.args(arguments).output().expect("the binary runs"))
}

fn restore(backup: &Path, arguments: &[&Path]) -> Answer {
    let mut command = command(["restore".as_ref(), backup.as_os_str()]);
    Answer::of(command.args(arguments).output().expect("the binary runs"))
}

#[test]
fn a_backup_is_taken_beside_a_writer_and_restored() {
    let sandbox = Sandbox::new();
    let (store, copies) = (sandbox.store(), sandbox.path("copies"));
    import(&store, "rides", &sample("sf_cab_rides.parquet"), &["--key", "ride_id"]).exits(0);
    let mut stream = Stream::start(&store, "d", &[]);
    for id in 0..20 {
        stream.send(json!({"id": id, "lon": 1, "lat": 1}));
        assert_eq!(stream.key(), id.to_string());
    }
    let first = backup(&store, &copies, &["--format", "json"]).exits(0).json_lines();
    stream.send(json!({"id": 20, "lon": 1, "lat": 1}));
    assert_eq!(stream.key(), "20");
    let second = backup(&store, &copies, &["--format", "json"]).exits(0).json_lines();
    assert_eq!(second[0]["components_copied"], 0, "the rides were copied before");
    assert!(second[0]["bytes_written"].as_u64() < Some(100_000), "{second:?}");
    drop(stream.stdin);
    assert!(stream.child.wait().expect("it ends").success());
    // Without STORE, the points are listed.
    let points = restore(&copies, &["--format".as_ref(), "json".as_ref()]).exits(0).json_lines();
    assert_eq!(
        points.iter().map(|point| &point["point"]).collect::<Vec<_>>(),
        [&first[0]["point"], &second[0]["point"]]
    );
    // Not into the backup itself.
    for place in [copies.clone(), copies.join("inside"), copies.join("deep/inside")] {
        restore(&copies, &[&place]).exits(2).says("restore to another directory");
        assert!(!copies.join("inside").exists() && !copies.join("deep").exists());
    }
    let newest = sandbox.path("newest");
    let said = restore(&copies, &[&newest]).exits(0).text();
    assert!(said.contains("2 datasets") && said.contains("verified"), "{said}");
    let earlier = sandbox.path("earlier");
    let point = first[0]["point"].as_str().expect("a name");
    restore(&copies, &[&earlier, "--at".as_ref(), point.as_ref()]).exits(0);
    for (place, records) in [(&newest, 21), (&earlier, 20)] {
        assert_eq!((count(place, "d"), count(place, "rides")), (records, 100_000));
        is_clean(place);
        // It is an ordinary store.
        insert(place, "d", "{\"id\":99,\"lon\":1,\"lat\":1}\n", &[]).exits(0);
        assert_eq!(rows(place, "d", "id").len() as u64, records + 1);
    }
    // A store with a history of its own is no later state of the backup's.
    backup(&earlier, &copies, &[]).exits(2).says("take the backup to another directory");
    backup(&store, &copies, &["--keep", "1"]).exits(0);
    assert_eq!(restore(&copies, &[]).exits(0).text().lines().count(), 1);
}

#[test]
fn what_cannot_be_is_refused_and_leaves_nothing() {
    let sandbox = Sandbox::new();
    let (store, copies) = (sandbox.store(), sandbox.path("copies"));
    backup(&store, &copies, &[]).exits(2).says("there is no store");
    assert!(!copies.exists());
    restore(&copies, &[]).exits(2).says("there is no backup");
    restore(&copies, &[&store]).exits(2).says("there is no backup");
    assert!(!store.exists());
    insert(&store, "d", "{\"id\":1,\"lon\":1,\"lat\":1}\n", &[]).exits(0);
    backup(&store, &store, &[]).exits(2).says("lies in the store");
    backup(&store, &store.join("copies"), &[]).exits(2).says("lies in the store");
    // The meaning of `..` shows only once the directory exists.
    let detour = store.join("missing/../copies");
    backup(&store, &detour, &[]).exits(2).says("`..` follows a directory that does not exist");
    assert!(!store.join("copies").exists());
    backup(&store, &copies, &["--keep", "0"]).exits(2);
    backup(&store, &copies, &[]).exits(0);
    restore(&copies, &[&store]).exits(2).says("is not empty");
    restore(&copies, &["--at".as_ref(), "x".as_ref()]).exits(2);
    restore(&copies, &[&sandbox.path("p"), "--at".as_ref(), "x".as_ref()]).exits(2).says("has no point \"x\"");
    restore(&copies, &[&copies.join("p")]).exits(2).says("lies in the backup");
    // A point that is lost except for its log is reported.
    fs::write(copies.join("points/00000000000000000009-000000000009.log"), "").expect("it is written");
    restore(&copies, &[]).exits(0).says("points/00000000000000000009-000000000009.log has no manifest");
    // And so is a component that no point has.
    let left = copies.join("components/000000000099.tc");
    fs::write(&left, "").expect("it is written");
    restore(&copies, &[]).exits(0).says("no point has components/000000000099.tc: the backup was interrupted");
    fs::remove_file(left).expect("it goes");
    fs::create_dir_all(sandbox.path("ended/components")).expect("it is made");
    fs::write(sandbox.path("ended/components/000000000001.tc"), "").expect("it is written");
    restore(&copies, &[&sandbox.path("ended")]).exits(2).says("left from an interrupted restoration, remove it");
    fs::remove_file(copies.join("points/00000000000000000009-000000000009.log")).expect("it goes");
    // Damage is reported with its file, and no store is created from it.
    let log = fs::read_dir(copies.join("points")).expect("points").map(|entry| entry.expect("one").path());
    let log = log.into_iter().find(|path| path.extension().is_some_and(|kind| kind == "log")).expect("a log");
    let mut bytes = fs::read(&log).expect("it is there");
    let last = bytes.len() - 20;
    bytes[last] ^= 1;
    fs::write(&log, bytes).expect("it is damaged");
    let place = sandbox.path("p");
    restore(&copies, &[&place]).exits(3);
    terrane("query", &place, &["d"]).exits(2).says("there is no store");
}
