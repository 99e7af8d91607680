//! Images are enumerated, replayed and shrunk as documented.

use std::collections::HashSet;
use std::sync::Arc;

use terrane_storage::event::{DiskEvent, Event, FileId};
use terrane_storage::{File, OpenMode};
use terrane_testkit::crash::{Budget, Choice, Controller, ForeignChoice, Image};

const LETTERS: [&str; 10] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];

/// Ten files of two sectors, none of them synced: too many for a full enumeration.
fn many_pending() -> Arc<Controller> {
    let controller = Controller::new();
    let storage = controller.storage();
    for (index, name) in LETTERS.iter().enumerate() {
        let file = storage.open(name, OpenMode::CreateNew).unwrap();
        file.write_all_at(&[index as u8 + 1; 1024], 0).unwrap();
    }
    controller
}

fn whole(image: &Image) -> Vec<(String, Option<Vec<u8>>)> {
    image.files().map(|name| (name.to_owned(), image.read(name))).collect()
}

fn last(controller: &Controller, budget: &Budget, seed: u64) -> Vec<Image> {
    controller.images(controller.events(), budget, seed).collect()
}

#[test]
fn events_and_marks_are_in_one_order() {
    let controller = Controller::new();
    let storage = controller.storage();
    let file = storage.open("a", OpenMode::CreateNew).unwrap();
    controller.mark(7);
    file.write_all_at(b"xy", 3).unwrap();
    file.write_all_at(b"", 3).unwrap();
    file.sync_data().unwrap();
    controller.mark(8);
    let file = FileId(0);
    let expected = [
        Event::Disk(DiskEvent::Create { file, name: "a".into() }),
        Event::Mark(7),
        Event::Disk(DiskEvent::Write { file, offset: 3, bytes: (*b"xy").into() }),
        Event::Disk(DiskEvent::Sync { file }),
        Event::Mark(8),
    ];
    assert_eq!(controller.log(), expected);
    assert_eq!(controller.events(), 5);
    assert_eq!(controller.marks(1), []);
    assert_eq!(controller.marks(4), [7]);
    assert_eq!(controller.marks(usize::MAX), [7, 8]);
}

#[test]
fn images_differ_from_each_other_and_include_nothing_and_everything() {
    let controller = many_pending();
    let budget = Budget { samples: 200, ..Budget::default() };
    let images = last(&controller, &budget, 3);
    let distinct: HashSet<_> = images.iter().map(whole).collect();
    assert_eq!(distinct.len(), images.len());
    // The sample, and three of the four extremes: bytes alone are the same as nothing, as no name
    // is there.
    assert_eq!(images.len(), 3 + budget.samples);
    assert!(images.iter().any(|image| image.files().next().is_none()), "nothing kept");
    let everything = whole(&controller.process_kill(controller.events()));
    assert!(images.iter().any(|image| whole(image) == everything), "everything kept");
    for lost in LETTERS {
        let only = |image: &&Image| image.read(lost).is_none() && image.files().count() == LETTERS.len() - 1;
        assert!(images.iter().any(|image| only(&image)), "the name {lost} alone is lost");
    }
    let torn = |bytes: Vec<u8>| bytes.len() == 1024 && bytes[0] != bytes[1023];
    let is_torn = |image: &&Image| LETTERS.iter().filter_map(|name| image.read(name)).any(torn);
    assert!(images.iter().any(|image| is_torn(&image)), "torn between sectors");
}

#[test]
fn a_seed_gives_the_same_images_whatever_was_asked_before() {
    let budget = Budget::default();
    let controller = many_pending();
    let first: Vec<String> = last(&controller, &budget, 5).iter().map(Image::describe).collect();
    controller.images(3, &budget, 99).for_each(drop);
    let second: Vec<String> = last(&controller, &budget, 5).iter().map(Image::describe).collect();
    assert_eq!(first, second);
    let other: Vec<String> = last(&controller, &budget, 6).iter().map(Image::describe).collect();
    assert_ne!(first, other);
}

#[test]
fn a_printed_choice_replays_its_image_in_another_run() {
    let controller = many_pending();
    for image in last(&controller, &Budget::default(), 1) {
        let choice: Choice = image.choice().to_string().parse().unwrap();
        let replayed = many_pending().image_with(image.cut(), &choice).unwrap();
        assert_eq!(whole(&replayed), whole(&image), "{}", image.describe());
        assert!(image.describe().contains(&image.choice().to_string()));
    }
}

#[test]
fn a_choice_of_another_history_is_refused() {
    let controller = many_pending();
    let choice: Choice = "3:5".parse().unwrap();
    let error = controller.image_with(1, &choice).unwrap_err();
    assert_eq!(error, ForeignChoice { cut: 1, found: 3, expected: 1 });
}

#[test]
fn shrinking_leaves_only_what_is_needed_to_fail() {
    let controller = many_pending();
    // Fails if the last sector of "c" is lost although "h" is there.
    let fails = |image: &Image| {
        image.read("h").is_some() && image.read("c").is_some_and(|bytes| bytes.last().is_none_or(|&byte| byte == 0))
    };
    let nothing_but_names = last(&controller, &Budget::default(), 1).into_iter().find(fails).expect("an image fails");
    let shrunk = nothing_but_names.shrink(fails);
    assert!(fails(&shrunk));
    let lost: Vec<usize> = (0..shrunk.choice().len()).filter(|&bit| !shrunk.choice().keeps(bit)).collect();
    assert_eq!(lost.len(), 1, "{}", shrunk.describe());
    let text = shrunk.describe();
    assert!(text.contains("write of 1024 bytes to c at byte 0"), "{text}");

    let never = nothing_but_names.shrink(|_| false);
    assert_eq!(never.choice(), nothing_but_names.choice());
}

#[test]
fn a_restart_after_power_loss_has_nothing_left_to_lose() {
    let controller = many_pending();
    for image in last(&controller, &Budget::default(), 1) {
        let again = image.restart();
        let images = last(&again, &Budget::default(), 1);
        assert_eq!(images.len(), 1);
        assert_eq!(whole(&images[0]), whole(&image));
    }
}

#[test]
fn what_was_not_synced_before_a_process_kill_can_be_lost_after_it() {
    let controller = Controller::new();
    let storage = controller.storage();
    let file = storage.open("a", OpenMode::CreateNew).unwrap();
    storage.sync_directory("").unwrap();
    file.write_all_at(b"1", 0).unwrap();

    let again = controller.process_kill(controller.events()).restart();
    let file = again.storage().open("a", OpenMode::Write).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, 0).unwrap();
    assert_eq!(byte, *b"1");
    let images = last(&again, &Budget::default(), 1);
    let lost = images.iter().find(|image| image.read("a").is_some_and(|bytes| bytes.is_empty()));
    let text = lost.expect("the write can be lost").describe();
    assert!(text.contains("before the restart"), "{text}");

    file.sync_data().unwrap();
    let images = last(&again, &Budget::default(), 1);
    assert_eq!(images.iter().map(|image| image.read("a")).collect::<Vec<_>>(), [Some(b"1".to_vec())]);
}

#[test]
fn a_name_that_was_not_synced_before_a_process_kill_can_be_lost_after_it() {
    let controller = Controller::new();
    controller.storage().open("a", OpenMode::CreateNew).unwrap();
    let again = controller.process_kill(controller.events()).restart();
    again.storage().open("b", OpenMode::CreateNew).unwrap();
    let images = last(&again, &Budget::default(), 1);
    let only_b = images.iter().find(|image| image.files().eq(["b"]));
    let text = only_b.expect("the older name alone can be lost").describe();
    assert!(text.contains("lost: before the restart: create a (replay"), "{text}");
    let only_a = images.iter().find(|image| image.files().eq(["a"]));
    let text = only_a.expect("the newer name alone can be lost").describe();
    assert!(text.contains("lost: event 0: create b (replay"), "{text}");
    again.storage().sync_directory("").unwrap();
    assert_eq!(last(&again, &Budget::default(), 1).len(), 1);
}

#[test]
fn storage_of_an_image_does_not_change_the_image() {
    let controller = many_pending();
    let image = controller.process_kill(controller.events());
    let before = whole(&image);
    let storage = image.storage();
    storage.open("a", OpenMode::Write).unwrap().write_all_at(b"changed", 0).unwrap();
    storage.remove("b").unwrap();
    assert_eq!(whole(&image), before);
    assert_eq!(whole(&controller.process_kill(controller.events())), before);
}

/// A log of 64 KiB segments with a sync per write, and a file that grows unsynced beside it. Every
/// cut of a long history is tried.
#[test]
fn a_long_history_is_cut_after_every_event() {
    let controller = Controller::new();
    let storage = controller.storage();
    let mut segment: Option<Arc<dyn File>> = None;
    for number in 0..1000u64 {
        let offset = number * 700 % 64_400;
        if offset < 700 {
            let new = storage.open(&format!("log-{number}"), OpenMode::CreateNew).unwrap();
            new.allocate(0..64 * 1024).unwrap();
            storage.sync_directory("").unwrap();
            segment = Some(new);
        }
        let file = segment.as_ref().expect("the first number starts a segment");
        file.write_all_at(&[number as u8 % 250 + 1; 700], offset).unwrap();
        file.sync_data().unwrap();
        controller.mark(number);
    }
    let mut images = 0;
    for cut in 0..=controller.events() {
        let acknowledged = controller.marks(cut).len() as u64;
        for image in controller.images(cut, &Budget::default(), 1) {
            images += 1;
            let Some(last) = acknowledged.checked_sub(1) else {
                continue;
            };
            let start = last - last % 92;
            let bytes = image.read(&format!("log-{start}")).expect("the segment's name is durable");
            let offset = (last * 700 % 64_400) as usize;
            assert_eq!(bytes[offset..offset + 700], [last as u8 % 250 + 1; 700], "{}", image.describe());
        }
    }
    assert!(images > controller.events());
}
