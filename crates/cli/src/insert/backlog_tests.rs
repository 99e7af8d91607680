use std::thread;

use super::super::spill::{FILE_BYTES, Room, room_left};
use super::*;

/// An input of numbered lines, several at a time.
struct Numbered {
    next: u64,
    end: u64,
    at_once: u64,
    failure: Option<&'static str>,
}

fn line(number: u64) -> Line {
    let text = match number % 7 {
        0 => Err(format!("line {number} is refused")),
        rest => Ok("x".repeat(rest as usize * 40)),
    };
    Line { number, end: number * 100, text }
}

impl Arrivals for Numbered {
    fn next(&mut self, _: usize) -> io::Result<Vec<Line>> {
        let first = self.next;
        self.next = self.end.min(first + self.at_once);
        match self.failure.filter(|_| first == self.end) {
            Some(failure) => Err(io::Error::other(failure)),
            None => Ok((first..self.next).map(line).collect()),
        }
    }
}

fn numbered(end: u64) -> Numbered {
    Numbered { next: 0, end, at_once: 13, failure: None }
}

fn all(mut backlog: &Backlog, count_max: usize) -> Vec<Line> {
    let mut all = Vec::new();
    loop {
        let lines = backlog.next(count_max).expect("the input ends well");
        assert!(lines.len() <= count_max);
        if lines.is_empty() {
            return all;
        }
        all.extend(lines);
    }
}

/// Files with this limit, independent of the free space of this machine's disk.
fn spill(file_bytes: u64, bytes_max: u64) -> Overflow {
    Overflow::Spill(SpillFiles::with_room(&std::env::temp_dir(), file_bytes, Room::Bytes(bytes_max)))
}

#[test]
fn what_does_not_fit_is_spilled_and_comes_in_its_turn() {
    let backlog = Backlog::new(2000, spill(FILE_BYTES, u64::MAX));
    backlog.fill(&mut numbered(5000), 100);
    assert!(backlog.lock().bytes <= 2000 + LINE_BYTES + 240);
    assert_eq!(all(&backlog, 20), (0..5000).map(line).collect::<Vec<_>>());
    // The space of read lines is released.
    let Overflow::Spill(files) = &backlog.lock().overflow else { panic!("it spills") };
    assert!(files.is_empty());
}

#[test]
fn the_room_of_what_was_read_is_given_back_before_all_was() {
    // If files can have holes, this holds for a single file as well.
    for file_bytes in [4 << 20, u64::MAX] {
        let backlog = Backlog::new(2000, spill(file_bytes, u64::MAX));
        backlog.fill(&mut numbered(100_000), 1000);
        let bytes = || match &backlog.lock().overflow {
            Overflow::Spill(files) => (files.len(), files.bytes_taken()),
            Overflow::Discard => (0, 0),
        };
        let before = bytes();
        assert!(before.0 > 12 << 20 && before.1 >= before.0, "{before:?}");
        let mut arrivals = &backlog;
        let mut received = 0;
        while received < 50_000 {
            received += arrivals.next(1000).expect("lines").len();
        }
        let after = bytes();
        assert!(after.0 < before.0 * 2 / 3 && after.1 < before.1 * 2 / 3, "{after:?} of {before:?}");
    }
}

#[test]
fn as_much_room_is_left_as_the_store_and_the_lines_take() {
    const MIB: u64 = 1 << 20;
    for (file_system, store, waiting, left) in [
        (100 * MIB, 0, 0, 100 * MIB / 16),
        (100 * MIB, 9 * MIB, 6 * MIB, 15 * MIB),
        (100 * MIB, 60 * MIB, 10 * MIB, 25 * MIB),
        (1 << 40, 0, MIB, 1 << 30),
        (1 << 40, 3 << 30, 2 << 30, 5 << 30),
        (1 << 40, u64::MAX, 1, 1 << 38),
    ] {
        assert_eq!(room_left(file_system, store, waiting), left, "{store} and {waiting}");
    }
}

#[test]
fn lines_wait_where_the_disk_has_no_room() {
    let backlog = Backlog::new(3000, spill(20_000, 50_000));
    let lines = thread::scope(|scope| {
        scope.spawn(|| backlog.fill(&mut numbered(20_000), 100));
        all(&backlog, 17)
    });
    assert_eq!(lines, (0..20_000).map(line).collect::<Vec<_>>());
}

#[test]
fn nothing_waits_for_room_once_nobody_wants_more() {
    let backlog = Backlog::new(3000, spill(20_000, 0));
    thread::scope(|scope| {
        scope.spawn(|| backlog.fill(&mut numbered(u64::MAX), 100));
        assert!(!(&backlog).next(10).expect("lines").is_empty());
        backlog.close();
    });
}

#[test]
fn lines_keep_their_order_while_they_arrive() {
    let backlog = Backlog::new(3000, spill(FILE_BYTES, u64::MAX));
    let lines = thread::scope(|scope| {
        scope.spawn(|| backlog.fill(&mut numbered(50_000), 100));
        all(&backlog, 17)
    });
    assert_eq!(lines, (0..50_000).map(line).collect::<Vec<_>>());
}

#[test]
fn what_does_not_fit_is_discarded_and_counted() {
    let backlog = Backlog::new(2000, Overflow::Discard);
    backlog.fill(&mut numbered(5000), 100);
    let lines = all(&backlog, 1000);
    assert_eq!(lines, (0..lines.len() as u64).map(line).collect::<Vec<_>>());
    assert!(!lines.is_empty());
    assert_eq!(lines.len() as u64 + backlog.discarded(), 5000);
    // There is space again.
    backlog.lock().ended = None;
    backlog.fill(&mut numbered(3), 100);
    assert_eq!(all(&backlog, 10).len(), 3);
}

#[test]
fn a_failure_of_the_input_comes_after_the_lines_before_it() {
    let backlog = Backlog::new(2000, spill(FILE_BYTES, u64::MAX));
    backlog.fill(&mut Numbered { failure: Some("cut off"), ..numbered(100) }, 100);
    let mut received = 0;
    let mut arrivals = &backlog;
    let error = loop {
        match arrivals.next(10) {
            Ok(lines) => received += lines.len(),
            Err(error) => break error,
        }
    };
    assert_eq!((received, error.to_string().as_str()), (100, "cut off"));
}

#[test]
fn nothing_is_read_once_nobody_wants_more() {
    let backlog = Backlog::new(2000, Overflow::Discard);
    backlog.close();
    let mut input = numbered(u64::MAX);
    backlog.fill(&mut input, 100);
    assert_eq!(input.next, 13);
}
