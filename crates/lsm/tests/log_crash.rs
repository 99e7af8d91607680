//! After any power loss or kill, acknowledged entries are replayed, in order, and nothing is
//! invented.

use std::sync::Arc;

use crate::log_support::*;
use terrane_lsm::log::{Log, LogPosition};
use terrane_storage::{OpenMode, Storage};
use terrane_testkit::crash::{Budget, Controller, Image};
use terrane_testkit::{Fault, FaultPlan, FaultyStorage};

const MANIFEST: &str = "manifest";

/// The part of a manifest that the log depends on: where replay begins and which entry is the first
/// there.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Manifest {
    from: LogPosition,
    first_number: u64,
}

impl Manifest {
    fn read(storage: &dyn Storage) -> Self {
        if !storage.exists(MANIFEST).unwrap() {
            return Self { from: LogPosition::START, first_number: 0 };
        }
        let bytes = read(storage, MANIFEST);
        let word = |index: usize| u64::from_le_bytes(bytes[index * 8..][..8].try_into().unwrap());
        Self { from: LogPosition { segment: word(0), lsn: word(1), session: word(2) }, first_number: word(3) }
    }

    fn install(&self, storage: &dyn Storage) {
        let words = [self.from.segment, self.from.lsn, self.from.session, self.first_number];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        if storage.exists("manifest.new").unwrap() {
            storage.remove("manifest.new").unwrap();
        }
        let file = storage.open("manifest.new", OpenMode::CreateNew).unwrap();
        file.write_all_at(&bytes, 0).unwrap();
        file.sync_data().unwrap();
        storage.rename("manifest.new", MANIFEST).unwrap();
        storage.sync_directory("").unwrap();
    }
}

/// A run on a controlled disk. Mark `2 n` means that entries below `n` were passed to the log, mark
/// `2 n + 1` that entries below `n` were acknowledged.
struct Run {
    controller: Arc<Controller>,
    storage: Arc<dyn Storage>,
    next_number: u64,
}

impl Run {
    fn new() -> Self {
        let controller = Controller::new();
        Self { storage: controller.storage(), controller, next_number: 0 }
    }

    fn open(&self) -> Log {
        let manifest = Manifest::read(self.storage.as_ref());
        let opened = open(&self.storage, manifest.from).unwrap();
        let expected: Vec<_> = (manifest.first_number..self.next_number).collect();
        assert_eq!(numbers(&opened.entries), expected);
        opened.log
    }

    /// Commits groups of 1 to 3 entries; afterwards the log may forget all except the last group.
    fn commit_groups(&mut self, log: &Log, groups: u64, length: usize) {
        let mut from = (log.position(), self.next_number);
        for group in 0..groups {
            from = (log.position(), self.next_number);
            for _ in 0..=group % 3 {
                self.controller.mark(2 * (self.next_number + 1));
                append(log, &entry(self.next_number, length)).unwrap();
                self.next_number += 1;
            }
            log.sync_to(log.end_lsn()).unwrap();
            self.controller.mark(2 * self.next_number + 1);
        }
        let manifest = Manifest { from: from.0, first_number: from.1 };
        manifest.install(self.storage.as_ref());
        log.set_low_water(manifest.from).unwrap();
    }

    /// Recovers from every image of the cuts and returns the failures.
    fn check(&self, cuts: impl Iterator<Item = usize>, budget: &Budget) -> usize {
        let mut images = 0;
        for cut in cuts {
            let marks = self.controller.marks(cut);
            let appended = marks.iter().filter(|&mark| mark % 2 == 0).max().map_or(0, |mark| mark / 2);
            let acknowledged = marks.iter().filter(|&mark| mark % 2 == 1).max().map_or(0, |mark| mark / 2);
            let killed = std::iter::once(self.controller.process_kill(cut));
            for image in self.controller.images(cut, budget, 11).chain(killed) {
                images += 1;
                if let Err(message) = recover(&image, acknowledged, appended) {
                    let image = image.shrink(|image| recover(image, acknowledged, appended).is_err());
                    panic!("{message}; {}", image.describe());
                }
            }
        }
        images
    }
}

/// Opens the log after a crash, continues, and opens it again.
fn recover(image: &Image, acknowledged: u64, appended: u64) -> Result<(), String> {
    let storage = image.storage();
    let manifest = Manifest::read(storage.as_ref());
    let (_, seen) = read_only(&storage, manifest.from).map_err(|error| format!("read only: {error}"))?;
    let opened = open(&storage, manifest.from).map_err(|error| error.to_string())?;
    let replayed = numbers(&opened.entries);
    let end = manifest.first_number + replayed.len() as u64;
    if replayed != (manifest.first_number..end).collect::<Vec<_>>() {
        return Err(format!("replayed {replayed:?} from {}", manifest.first_number));
    }
    if !(acknowledged..=appended).contains(&end) {
        return Err(format!("replayed up to {end}, {acknowledged} were acknowledged, {appended} appended"));
    }
    if seen != opened.entries {
        return Err(format!("a reader saw {:?}, the writer {replayed:?}", numbers(&seen)));
    }
    let length = opened.entries.last().map_or(100, |(_, bytes)| bytes.len());
    for number in end..end + 2 {
        commit(&opened.log, &entry(number, length)).map_err(|error| error.to_string())?;
    }
    let again = open(&storage, manifest.from).map_err(|error| format!("second opening: {error}"))?;
    let expected: Vec<_> = (manifest.first_number..end + 2).collect();
    if numbers(&again.entries) != expected || again.report.torn_tail.is_some() {
        return Err(format!("second opening: {:?}, {:?}", numbers(&again.entries), again.report));
    }
    Ok(())
}

fn budget() -> Budget {
    Budget { exhaustive_pending: 5, samples: 32, ..Budget::default() }
}

/// Several openings with rotation, recycling, an oversized entry, an unclean and a clean close.
fn long_run() -> Run {
    let mut run = Run::new();
    let log = run.open();
    run.commit_groups(&log, 6, 900);
    run.commit_groups(&log, 20, 900);
    run.commit_groups(&log, 20, 900);
    append(&log, &entry(u64::MAX, 300)).unwrap();
    drop(log);
    let log = run.open();
    log.prepare_next(&mut |_| true).unwrap();
    run.commit_groups(&log, 2, 2 * SEGMENT_SIZE as usize);
    run.commit_groups(&log, 15, 700);
    log.close().unwrap();
    let log = run.open();
    run.commit_groups(&log, 15, 700);
    log.close().unwrap();
    drop(log);
    run.open();
    run
}

#[test]
fn every_power_loss_keeps_what_was_acknowledged() {
    let run = long_run();
    let images = run.check(0..=run.controller.events(), &budget());
    println!("{images} images of {} events", run.controller.events());
    assert!(images > 2 * run.controller.events());
}

#[test]
fn every_power_loss_during_recovery_keeps_what_was_acknowledged() {
    let mut first = Run::new();
    let log = first.open();
    first.commit_groups(&log, 8, 900);
    first.commit_groups(&log, 14, 900);
    drop(log);
    let events = first.controller.events();
    let small = Budget { exhaustive_pending: 3, samples: 4, ..Budget::default() };
    for cut in (events - 60..=events).step_by(3) {
        let acknowledged =
            first.controller.marks(cut).iter().filter(|&mark| mark % 2 == 1).max().map_or(0, |mark| mark / 2);
        let killed = std::iter::once(first.controller.process_kill(cut));
        for image in first.controller.images(cut, &small, 5).chain(killed) {
            let controller = image.restart();
            let storage = controller.storage();
            let manifest = Manifest::read(storage.as_ref());
            let opened = open(&storage, manifest.from).unwrap_or_else(|error| panic!("{error}; {}", image.describe()));
            let replayed = manifest.first_number + opened.entries.len() as u64;
            // Entries that a recovery has returned stay for good.
            let shown = controller.events();
            for recovery_cut in 0..=shown {
                let lower = if recovery_cut == shown { replayed } else { acknowledged };
                for second in controller.images(recovery_cut, &small, 6) {
                    if let Err(message) = recover(&second, lower, replayed) {
                        panic!("{message}; first {}, then {}", image.describe(), second.describe());
                    }
                }
            }
        }
    }
}

#[test]
fn what_is_replayed_after_a_failed_sync_survives_a_power_loss() {
    // The kernel forgets what a failed sync should have written: a later sync proves nothing about
    // it.
    for commits in [1, 5, 40] {
        let controller = Controller::new();
        let faulty = FaultyStorage::new(controller.storage());
        let storage: Arc<dyn Storage> = Arc::new(faulty.clone());
        let log = open(&storage, LogPosition::START).unwrap().log;
        for number in 0..commits {
            commit(&log, &entry(number, 800)).unwrap();
        }
        faulty.arm(FaultPlan { at: 1, fault: Fault::SyncFailure, persistent: false });
        commit(&log, &entry(commits, 800)).unwrap_err();
        drop(log);
        let opened = open(&storage, LogPosition::START).unwrap();
        let replayed = opened.entries.len() as u64;
        assert!(replayed == commits || replayed == commits + 1);
        commit(&opened.log, &entry(replayed, 800)).unwrap();
        for image in controller.images(controller.events(), &budget(), 3) {
            recover(&image, replayed + 1, replayed + 1)
                .unwrap_or_else(|message| panic!("{message}; {}", image.describe()));
        }
    }
}

#[test]
fn the_check_finds_an_acknowledgement_that_comes_too_early() {
    let controller = Controller::new();
    let run = Run { storage: controller.storage(), controller, next_number: 0 };
    let log = run.open();
    commit(&log, &entry(0, 100)).unwrap();
    append(&log, &entry(1, 100)).unwrap();
    let before = run.controller.events();
    log.sync_to(log.end_lsn()).unwrap();
    // Acknowledged after the write, before the sync: some image has to contradict.
    let failures =
        run.controller.images(before + 1, &budget(), 1).filter(|image| recover(image, 2, 2).is_err()).count();
    assert!(failures > 0);
    assert!(run.controller.images(before + 2, &budget(), 1).all(|image| recover(&image, 2, 2).is_ok()));
}
