//! Enumeration accepts protocols that survive every crash and catches those that do not.

use std::sync::Arc;

use terrane_storage::{OpenMode, Result, Storage};
use terrane_testkit::crash::{Budget, Controller, Image};

const VERSION_LENGTH: usize = 1300;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    SyncFile,
    SyncDirectory,
}

/// Replaces `current` by a file that holds `version`; may omit a step.
fn replace(storage: &Arc<dyn Storage>, version: u8, dropped: Option<Step>) -> Result<()> {
    if storage.exists("new")? {
        storage.remove("new")?;
    }
    let file = storage.open("new", OpenMode::CreateNew)?;
    file.write_all_at(&[version; VERSION_LENGTH], 0)?;
    if dropped != Some(Step::SyncFile) {
        file.sync_data()?;
    }
    storage.rename("new", "current")?;
    if dropped != Some(Step::SyncDirectory) {
        storage.sync_directory("")?;
    }
    Ok(())
}

/// A history of replacements, each acknowledged by a mark.
fn history(versions: u8, dropped: Option<Step>) -> Arc<Controller> {
    let controller = Controller::new();
    let storage = controller.storage();
    for version in 1..=versions {
        replace(&storage, version, dropped).unwrap();
        controller.mark(u64::from(version));
    }
    controller
}

/// What is wrong with an image. The file must be one whole version, and not older than
/// acknowledged.
fn violation(image: &Image, acknowledged: u8, attempted: u8) -> Option<String> {
    match image.read("current") {
        None if acknowledged == 0 => None,
        None => Some("the file is missing".to_owned()),
        Some(bytes) => {
            let version = bytes.first().copied().unwrap_or(0);
            if bytes != [version; VERSION_LENGTH] || version == 0 {
                Some("the file is torn".to_owned())
            } else if version < acknowledged || version > attempted {
                Some(format!("version {version} after acknowledgement {acknowledged}"))
            } else {
                None
            }
        }
    }
}

fn acknowledged(controller: &Controller, cut: usize) -> u8 {
    controller.marks(cut).last().map_or(0, |&version| version as u8)
}

/// The first image of any cut that breaks the rule, shrunk.
fn first_violation(controller: &Controller, versions: u8) -> Option<(String, Image)> {
    for cut in 0..=controller.events() {
        let acknowledged = acknowledged(controller, cut);
        for image in controller.images(cut, &Budget::default(), 1) {
            if let Some(found) = violation(&image, acknowledged, versions) {
                let shrunk = image.shrink(|image| violation(image, acknowledged, versions).is_some());
                return Some((found, shrunk));
            }
        }
    }
    None
}

#[test]
fn write_sync_rename_sync_directory_survives_every_crash() {
    let controller = history(4, None);
    let found = first_violation(&controller, 4);
    assert!(found.is_none(), "{found:?}");
}

#[test]
fn recovery_from_every_crash_can_be_cut_again() {
    let controller = history(2, None);
    for cut in 0..=controller.events() {
        let before = acknowledged(&controller, cut);
        let mut images: Vec<Image> = controller.images(cut, &Budget::default(), 1).collect();
        images.push(controller.process_kill(cut));
        for image in images {
            let again = image.restart();
            replace(&again.storage(), 3, None).unwrap();
            again.mark(3);
            for second_cut in 0..=again.events() {
                let acknowledged = before.max(acknowledged(&again, second_cut));
                for second in again.images(second_cut, &Budget::default(), 1) {
                    let found = violation(&second, acknowledged, 3);
                    assert!(found.is_none(), "{found:?}: {}, then {}", image.describe(), second.describe());
                }
            }
        }
    }
}

#[test]
fn a_rename_of_a_file_that_was_not_synced_is_caught() {
    let controller = history(2, Some(Step::SyncFile));
    let (found, image) = first_violation(&controller, 2).expect("the canary must be caught");
    assert_eq!(found, "the file is torn");
    let text = image.describe();
    assert!(text.contains("write of 1300 bytes to new at byte 0"), "{text}");
}

#[test]
fn an_acknowledged_rename_without_a_sync_of_the_directory_is_caught() {
    let controller = history(2, Some(Step::SyncDirectory));
    let (found, image) = first_violation(&controller, 2).expect("the canary must be caught");
    assert_eq!(found, "the file is missing");
    let text = image.describe();
    assert!(text.contains("rename new to current"), "{text}");
}

#[test]
fn a_process_kill_spares_both_canaries() {
    for dropped in [Step::SyncFile, Step::SyncDirectory] {
        let controller = history(3, Some(dropped));
        for cut in 0..=controller.events() {
            let image = controller.process_kill(cut);
            let found = violation(&image, acknowledged(&controller, cut), 3);
            assert!(found.is_none(), "{found:?}: {}", image.describe());
        }
    }
}
