//! Pieces of a file that is made up: its pieces are numbers.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::error::Location;

/// Pieces of the same size, up to a number, and then an error if there is one.
struct Numbers {
    next: usize,
    end: usize,
    fails: bool,
    piece_bytes: usize,
    read: Arc<AtomicUsize>,
}

impl Numbers {
    fn up_to(end: usize) -> Self {
        Numbers { next: 0, end, fails: false, piece_bytes: 1, read: Arc::default() }
    }
}

struct Number {
    value: usize,
    bytes: usize,
}

impl PieceSource for Numbers {
    type Piece = Number;

    fn next_piece(&mut self, _: &PieceSize) -> Result<Option<Number>, FormatError> {
        if self.next == self.end {
            let error = FormatError::damaged(Path::new("numbers"), Location::File, "no more");
            return if self.fails { Err(error) } else { Ok(None) };
        }
        self.next += 1;
        self.read.fetch_add(1, Ordering::SeqCst);
        Ok(Some(Number { value: self.next - 1, bytes: self.piece_bytes }))
    }

    fn extent(piece: &Number) -> Extent {
        Extent { bytes: piece.bytes, rows: 0, tree_bytes: 0 }
    }
}

fn size(bytes_max: u64) -> PieceSize {
    PieceSize::new(1, bytes_max)
}

/// Takes longer for some numbers than for others, so that threads overtake each other.
fn slowly(number: Number) -> usize {
    (0..number.value % 7 * 20_000).fold(number.value, |sum, step| std::hint::black_box(sum ^ step ^ step))
}

#[test]
fn results_come_in_the_order_of_the_file() {
    let mut pieces = Pieces::new(Path::new("numbers"), Numbers::up_to(500), size(1 << 20), slowly);
    for expected in 0..500 {
        assert_eq!(pieces.next().expect("readable"), Some(expected));
    }
    assert_eq!(pieces.next().expect("readable"), None);
    assert_eq!(pieces.next().expect("ended"), None);
    assert_eq!(pieces.into_source().next, 500);
}

#[test]
fn an_error_comes_behind_the_pieces_before_it() {
    let source = Numbers { fails: true, ..Numbers::up_to(20) };
    let mut pieces = Pieces::new(Path::new("numbers"), source, size(1 << 20), slowly);
    for expected in 0..20 {
        assert_eq!(pieces.next().expect("readable"), Some(expected));
    }
    assert!(pieces.next().is_err());
    assert_eq!(pieces.next().expect("ended"), None);
}

#[test]
fn a_panic_of_the_work_is_passed_on() {
    let work = |number: Number| if number.value == 3 { panic!("planned") } else { number.value };
    let mut pieces = Pieces::new(Path::new("numbers"), Numbers::up_to(100), size(1 << 20), work);
    let all = AssertUnwindSafe(|| while let Ok(Some(_)) = pieces.next() {});
    let panic = catch_unwind(all).expect_err("the work panics");
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"planned"));
}

#[test]
fn nothing_is_read_before_the_first_request_and_no_more_than_fits_into_memory() {
    // Each piece takes a quarter of the memory.
    let bytes_max = 8_000;
    let source = Numbers { piece_bytes: 500, ..Numbers::up_to(100) };
    let read = Arc::clone(&source.read);
    let mut pieces = Pieces::new(Path::new("numbers"), source, size(bytes_max), slowly);
    assert_eq!(read.load(Ordering::SeqCst), 0);
    for taken in 1..=100 {
        assert!(pieces.next().expect("readable").is_some());
        // Four that are in memory, and one that was read and waits for memory.
        assert!(read.load(Ordering::SeqCst) <= taken + 5, "{taken}");
    }
}

#[test]
fn a_piece_larger_than_memory_is_alone() {
    let source = Numbers { piece_bytes: 10_000, ..Numbers::up_to(50) };
    let at_work = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&at_work);
    let work = move |number: Number| {
        assert_eq!(counted.fetch_add(1, Ordering::SeqCst), 0);
        let value = slowly(number);
        counted.fetch_sub(1, Ordering::SeqCst);
        value
    };
    let mut pieces = Pieces::new(Path::new("numbers"), source, size(8_000), work);
    for expected in 0..50 {
        assert_eq!(pieces.next().expect("readable"), Some(expected));
    }
}

#[test]
fn threads_end_when_nobody_asks_for_more() {
    let source = Numbers { piece_bytes: 500, ..Numbers::up_to(usize::MAX) };
    let read = Arc::clone(&source.read);
    let mut pieces = Pieces::new(Path::new("numbers"), source, size(8_000), slowly);
    assert_eq!(pieces.next().expect("readable"), Some(0));
    drop(pieces);
    // The source went with its thread.
    assert_eq!(Arc::strong_count(&read), 1);
}
