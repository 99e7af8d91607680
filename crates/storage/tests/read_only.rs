//! Storage of which nothing is changed.

use std::sync::Arc;

use terrane_storage::{OpenMode, ReadOnlyStorage, Storage};
use terrane_testkit::MemoryStorage;

#[test]
fn files_are_read_and_nothing_else() {
    let inner: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    inner.create_directory("d").unwrap();
    inner.open("d/a", OpenMode::CreateNew).unwrap().write_all_at(b"abc", 0).unwrap();
    let storage = ReadOnlyStorage::new(inner.clone());
    let mut bytes = [0; 3];
    storage.open("d/a", OpenMode::Read).unwrap().read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"abc");
    assert!(storage.exists("d/a").unwrap() && storage.list("d").unwrap() == ["a"]);
    storage.sync_directory("d").unwrap();
    let refused = [
        storage.open("d/a", OpenMode::Write).map(drop),
        storage.open("d/b", OpenMode::CreateNew).map(drop),
        storage.rename("d/a", "d/b"),
        storage.remove("d/a"),
        storage.create_directory("e"),
        storage.lock_root().map(drop),
    ];
    for refused in refused {
        assert!(refused.unwrap_err().to_string().contains("open for reading only"));
    }
    assert_eq!((inner.list("d").unwrap(), inner.list_directories("").unwrap()), (vec!["a".into()], vec!["d".into()]));
}
