//! The names that a power loss may leave.

use std::collections::BTreeSet;
use std::sync::Arc;

use terrane_storage::{OpenMode, Storage};
use terrane_testkit::crash::{Budget, Controller, Image, NameOrder};

/// Every file with its contents, as one line.
fn listing(image: &Image) -> String {
    let line = |name: &str| {
        let bytes = image.read(name).expect("a listed file can be read");
        format!("{name}={}", String::from_utf8_lossy(&bytes))
    };
    image.files().map(line).collect::<Vec<_>>().join(" ")
}

fn listings_in_order(controller: &Controller, name_order: NameOrder) -> BTreeSet<String> {
    let budget = Budget { name_order, ..Budget::default() };
    let images = controller.images(controller.events(), &budget, 1);
    assert!(images.is_exhaustive());
    images.map(|image| listing(&image)).collect()
}

fn listings(controller: &Controller) -> BTreeSet<String> {
    listings_in_order(controller, NameOrder::AnySubset)
}

fn set<const N: usize>(lines: [&str; N]) -> BTreeSet<String> {
    lines.into_iter().map(str::to_owned).collect()
}

fn write_synced(storage: &Arc<dyn Storage>, name: &str, text: &str) {
    let file = storage.open(name, OpenMode::CreateNew).unwrap();
    file.write_all_at(text.as_bytes(), 0).unwrap();
    file.sync_data().unwrap();
}

#[test]
fn a_synced_file_is_gone_if_its_name_was_not_synced() {
    let controller = Controller::new();
    let storage = controller.storage();
    write_synced(&storage, "a", "1");
    assert_eq!(listings(&controller), set(["", "a=1"]));
    storage.sync_directory("").unwrap();
    assert_eq!(listings(&controller), set(["a=1"]));
}

#[test]
fn a_synced_name_says_nothing_of_the_contents() {
    let controller = Controller::new();
    let storage = controller.storage();
    storage.open("a", OpenMode::CreateNew).unwrap().write_all_at(b"1", 0).unwrap();
    storage.sync_directory("").unwrap();
    assert_eq!(listings(&controller), set(["a=", "a=\0", "a=1"]));
}

#[test]
fn a_rename_over_another_file_shows_the_old_or_the_new() {
    let controller = Controller::new();
    let storage = controller.storage();
    write_synced(&storage, "a", "old");
    write_synced(&storage, "b", "new");
    storage.sync_directory("").unwrap();
    storage.rename("b", "a").unwrap();
    assert_eq!(listings(&controller), set(["a=old b=new", "a=new"]));
    storage.sync_directory("").unwrap();
    assert_eq!(listings(&controller), set(["a=new"]));
}

#[test]
fn a_removed_name_may_come_back_until_the_directory_is_synced() {
    let controller = Controller::new();
    let storage = controller.storage();
    write_synced(&storage, "a", "1");
    storage.sync_directory("").unwrap();
    storage.remove("a").unwrap();
    assert_eq!(listings(&controller), set(["", "a=1"]));
    storage.sync_directory("").unwrap();
    assert_eq!(listings(&controller), set([""]));
}

#[test]
fn later_changes_may_be_kept_without_earlier_ones_unless_a_journal_orders_them() {
    let controller = Controller::new();
    let storage = controller.storage();
    write_synced(&storage, "a", "1");
    write_synced(&storage, "b", "2");
    assert_eq!(listings(&controller), set(["", "a=1", "b=2", "a=1 b=2"]));
    assert_eq!(listings_in_order(&controller, NameOrder::Prefix), set(["", "a=1", "a=1 b=2"]));
}

#[test]
fn a_file_that_was_renamed_twice_never_has_two_names() {
    let controller = Controller::new();
    let storage = controller.storage();
    write_synced(&storage, "a", "1");
    storage.sync_directory("").unwrap();
    storage.rename("a", "b").unwrap();
    storage.rename("b", "c").unwrap();
    assert_eq!(listings(&controller), set(["a=1", "b=1", "c=1"]));
}

#[test]
fn a_file_is_gone_with_the_name_of_its_directory() {
    let controller = Controller::new();
    let storage = controller.storage();
    storage.create_directory("d/e").unwrap();
    write_synced(&storage, "d/e/a", "1");
    storage.sync_directory("d/e").unwrap();
    assert_eq!(listings(&controller), set(["", "d/e/a=1"]));
    storage.sync_directory("d").unwrap();
    assert_eq!(listings(&controller), set(["", "d/e/a=1"]));
    storage.sync_directory("").unwrap();
    assert_eq!(listings(&controller), set(["d/e/a=1"]));
}

#[test]
fn a_move_between_directories_is_durable_after_both_are_synced() {
    for directories in [["d", "e"], ["e", "d"]] {
        let controller = Controller::new();
        let storage = controller.storage();
        for directory in directories {
            storage.create_directory(directory).unwrap();
        }
        write_synced(&storage, "d/a", "1");
        storage.sync_directory("d").unwrap();
        storage.sync_directory("").unwrap();
        storage.rename("d/a", "e/b").unwrap();
        storage.sync_directory(directories[0]).unwrap();
        assert_eq!(listings(&controller), set(["d/a=1", "e/b=1"]));
        storage.sync_directory(directories[1]).unwrap();
        assert_eq!(listings(&controller), set(["e/b=1"]));
    }
}

#[test]
fn a_half_synced_move_does_not_replace_what_came_after_it() {
    let controller = Controller::new();
    let storage = controller.storage();
    storage.create_directory("d").unwrap();
    write_synced(&storage, "d/a", "1");
    storage.sync_directory("d").unwrap();
    storage.sync_directory("").unwrap();
    storage.rename("d/a", "b").unwrap();
    write_synced(&storage, "c", "2");
    storage.rename("c", "b").unwrap();
    storage.sync_directory("").unwrap();
    assert_eq!(listings(&controller), set(["b=2", "b=2 d/a=1"]));
}

#[test]
fn a_sync_of_another_directory_does_not_help() {
    let controller = Controller::new();
    let storage = controller.storage();
    storage.create_directory("d").unwrap();
    storage.sync_directory("").unwrap();
    write_synced(&storage, "a", "1");
    storage.sync_directory("d").unwrap();
    assert_eq!(listings(&controller), set(["", "a=1"]));
}

#[test]
fn a_removed_file_that_is_still_written_to_leaves_no_trace() {
    let controller = Controller::new();
    let storage = controller.storage();
    let file = storage.open("a", OpenMode::CreateNew).unwrap();
    storage.remove("a").unwrap();
    storage.sync_directory("").unwrap();
    file.write_all_at(b"x", 0).unwrap();
    file.sync_data().unwrap();
    assert_eq!(listings(&controller), set([""]));
}
