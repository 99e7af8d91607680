use std::io::Write;
use std::path::Path;

use serde_json::json;

use crate::insert_stream::Stream;
use crate::support::{Sandbox, count, import, insert, sample, terrane};

/// A writer with one record.
fn holder(store: &Path, flags: &[&str]) -> Stream {
    let mut holder = Stream::start(store, "d", flags);
    holder.send(json!({"id": 1, "lon": 1, "lat": 1}));
    assert_eq!(holder.key(), "1");
    holder
}

/// The writer takes another record and ends; then the next one can write.
fn goes_on_and_ends(mut holder: Stream, store: &Path) {
    holder.send(json!({"id": 3, "lon": 1, "lat": 1}));
    assert_eq!(holder.key(), "3");
    drop(holder.stdin);
    assert!(holder.child.wait().expect("it ends").success());
    insert(store, "d", "{\"id\":2,\"lon\":1,\"lat\":1}\n", &[]).exits(0);
    assert_eq!(count(store, "d"), 3);
}

#[test]
fn a_second_writer_is_refused_with_the_holders_pid() {
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    let holder = holder(&store, &[]);
    let pid = format!("process {}", holder.child.id());
    insert(&store, "d", "{\"id\":2,\"lon\":1,\"lat\":1}\n", &[]).exits(4).says(&pid);
    import(&store, "e", &sample("cities200.csv"), &[]).exits(4).says(&pid);
    terrane("delete", &store, &["d", "--key", "1"]).exits(4).says(&pid);
    terrane("drop", &store, &["d"]).exits(4).says(&pid);
    terrane("compact", &store, &[]).exits(4).says(&pid);
    terrane("check", &store, &["--repair"]).exits(4).says(&pid);
    // Readers are not kept out.
    assert_eq!(count(&store, "d"), 1);
    terrane("info", &store, &[]).exits(0);
    terrane("check", &store, &[]).exits(0);
    goes_on_and_ends(holder, &store);
}

/// A lock file is never stale: the lock ends with its process. Removing the file lets nobody in.
#[test]
fn a_lock_file_that_is_removed_lets_no_second_writer_in() {
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    let holder = holder(&store, &[]);
    for _ in 0..2 {
        std::fs::remove_file(store.join("LOCK")).expect("the file is there");
        insert(&store, "d", "{\"id\":2,\"lon\":1,\"lat\":1}\n", &[]).exits(4).says("another process");
    }
    goes_on_and_ends(holder, &store);
}

/// The files of two stores have the same names.
#[test]
fn a_writer_changes_nothing_in_a_store_that_has_taken_the_place_of_its_own() {
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    let mut holder = holder(&store, &["--memory-limit", "8MiB"]);
    let moved = sandbox.path("moved");
    std::fs::rename(&store, &moved).expect("it is moved");
    import(&store, "cities", &sample("cities200.csv"), &[]).exits(0);
    let files = |folder: &str| {
        let entries = std::fs::read_dir(store.join(folder)).expect("a directory");
        entries.map(|entry| entry.expect("an entry").file_name()).collect::<std::collections::BTreeSet<_>>()
    };
    let before = [files(""), files("components"), files("log")];
    let manifest = std::fs::read(store.join("MANIFEST")).expect("a manifest");
    // Enough for several flushes and segments. At one of them the writer notices that its directory
    // was moved.
    let ballast = "b".repeat(20_000);
    let sent = (2..2_000)
        .take_while(|id| writeln!(holder.stdin, "{}", json!({"id": id, "lon": 1, "lat": 1, "text": ballast})).is_ok());
    assert!(sent.count() < 1_998, "it goes on writing");
    let output = holder.child.wait().expect("it ends");
    assert_eq!(output.code(), Some(1));
    assert_eq!([files(""), files("components"), files("log")], before);
    assert_eq!(std::fs::read(store.join("MANIFEST")).expect("a manifest"), manifest);
    assert_eq!(count(&store, "cities"), 200);
    terrane("check", &store, &[]).exits(0);
    terrane("check", &moved, &[]).exits(0);
    assert!(count(&moved, "d") >= 1);
}
