use serde_json::json;

use crate::insert_stream::Stream;
use crate::support::{Sandbox, count, import, insert, sample, terrane};

#[test]
fn a_second_writer_is_refused_with_the_holders_pid() {
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    let mut holder = Stream::start(&store, "d", &[]);
    holder.send(json!({"id": 1, "lon": 1, "lat": 1}));
    assert_eq!(holder.key(), "1");
    let pid = format!("process {}", holder.child.id());
    insert(&store, "d", "{\"id\":2,\"lon\":1,\"lat\":1}\n", &[]).exits(4).says(&pid);
    import(&store, "e", &sample("cities200.csv"), &[]).exits(4).says(&pid);
    terrane("delete", &store, &["d", "--key", "1"]).exits(4).says(&pid);
    terrane("compact", &store, &[]).exits(4).says(&pid);
    terrane("check", &store, &["--repair"]).exits(4).says(&pid);
    // Readers are not kept out.
    assert_eq!(count(&store, "d"), 1);
    terrane("info", &store, &[]).exits(0);
    terrane("check", &store, &[]).exits(0);
    holder.send(json!({"id": 3, "lon": 1, "lat": 1}));
    assert_eq!(holder.key(), "3");
    drop(holder.stdin);
    assert!(holder.child.wait().expect("it ends").success());
    insert(&store, "d", "{\"id\":2,\"lon\":1,\"lat\":1}\n", &[]).exits(0);
    assert_eq!(count(&store, "d"), 3);
}

/// A lock file is never stale: the lock goes with its process. Who removes it all the same lets nobody in.
#[test]
fn a_lock_file_that_is_removed_lets_no_second_writer_in() {
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    let mut holder = Stream::start(&store, "d", &[]);
    holder.send(json!({"id": 1, "lon": 1, "lat": 1}));
    assert_eq!(holder.key(), "1");
    for _ in 0..2 {
        std::fs::remove_file(store.join("LOCK")).expect("the file is there");
        insert(&store, "d", "{\"id\":2,\"lon\":1,\"lat\":1}\n", &[]).exits(4).says("another process");
    }
    holder.send(json!({"id": 3, "lon": 1, "lat": 1}));
    assert_eq!(holder.key(), "3");
    drop(holder.stdin);
    assert!(holder.child.wait().expect("it ends").success());
    insert(&store, "d", "{\"id\":2,\"lon\":1,\"lat\":1}\n", &[]).exits(0);
    assert_eq!(count(&store, "d"), 3);
}
