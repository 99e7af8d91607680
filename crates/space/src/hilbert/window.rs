//! Curve values in a window: the next one after a value, and ranges that hold all of them. Both
//! descend the curve.

use super::table::step_decode;
use super::{GridRect, ORDER_BITS};

/// The smallest curve value that is at least `value` and whose cell lies in `window`; `None` if
/// there is none.
///
/// Descends once along `value` and at most once more, with constant work per level.
pub fn next_in_window(value: u64, window: GridRect) -> Option<u64> {
    next_in_window_of_order(value, window, ORDER_BITS)
}

/// A square on the way down: its corner, the bits below it, and the orientation.
#[derive(Clone, Copy)]
struct Square {
    prefix: u64,
    x: u64,
    y: u64,
    level: u32,
    state: usize,
}

impl Square {
    fn child(&self, digit: u32) -> Square {
        let (bit_x, bit_y, state) = step_decode(self.state, digit);
        let level = self.level - 1;
        Square {
            prefix: self.prefix << 2 | u64::from(digit),
            x: self.x | u64::from(bit_x) << level,
            y: self.y | u64::from(bit_y) << level,
            level,
            state,
        }
    }

    fn intersects(&self, window: &GridRect) -> bool {
        let last = (1u64 << self.level) - 1;
        self.x <= u64::from(window.x1)
            && u64::from(window.x0) <= self.x + last
            && self.y <= u64::from(window.y1)
            && u64::from(window.y0) <= self.y + last
    }

    fn is_within(&self, window: &GridRect) -> bool {
        let last = (1u64 << self.level) - 1;
        u64::from(window.x0) <= self.x
            && self.x + last <= u64::from(window.x1)
            && u64::from(window.y0) <= self.y
            && self.y + last <= u64::from(window.y1)
    }

    /// The smallest value of the square, whose prefix has been walked to `level`.
    fn first_value(&self) -> u64 {
        // Only the root of the 32-bit curve would shift by 64, and its prefix is 0.
        self.prefix.checked_shl(2 * self.level).unwrap_or(0)
    }

    /// The largest value of the square.
    fn last_value(&self) -> u64 {
        self.first_value() | u64::MAX.checked_shr(u64::BITS - 2 * self.level).unwrap_or(0)
    }
}

pub(super) fn next_in_window_of_order(value: u64, window: GridRect, order: u32) -> Option<u64> {
    let mut square = Square { prefix: 0, x: 0, y: 0, level: order, state: 0 };
    if !square.intersects(&window) {
        return None;
    }
    // The nearest square after the path of `value` that meets the window.
    let mut later: Option<Square> = None;
    loop {
        if square.is_within(&window) {
            return Some(value);
        }
        if square.level == 0 {
            break;
        }
        let digit = (value >> (2 * (square.level - 1)) & 3) as u32;
        later =
            (digit + 1..4).map(|sibling| square.child(sibling)).find(|sibling| sibling.intersects(&window)).or(later);
        square = square.child(digit);
        if !square.intersects(&window) {
            break;
        }
    }
    later.map(|square| first_in_window(square, &window))
}

/// The smallest value in `window` of a square that intersects it.
fn first_in_window(mut square: Square, window: &GridRect) -> u64 {
    while square.level > 0 && !square.is_within(window) {
        // A square that intersects the window has a quadrant that does.
        let Some(child) = (0..4).map(|digit| square.child(digit)).find(|child| child.intersects(window)) else {
            break;
        };
        square = child;
    }
    square.first_value()
}

/// Ranges of values that hold every cell of `window` on the curve of `order` bits per coordinate.
/// Both ends are included; the ranges ascend, with gaps between them.
///
/// The ranges hold no other cells if `ranges_max` ranges suffice. Otherwise squares along the sides
/// of the window stay undivided once dividing would give more ranges.
pub fn ranges_in_window(window: GridRect, order: u32, ranges_max: usize) -> Vec<(u64, u64)> {
    let root = Square { prefix: 0, x: 0, y: 0, level: order.min(ORDER_BITS), state: 0 };
    if !root.intersects(&window) {
        return Vec::new();
    }
    let mut pieces = Pieces::default();
    pieces.push(root, &window);
    while pieces.list.iter().any(|piece| piece.partial.is_some()) {
        let Some(finer) = pieces.divided(&window, ranges_max) else { break };
        pieces = finer;
    }
    let mut ranges: Vec<(u64, u64)> = Vec::with_capacity(pieces.ranges);
    for piece in &pieces.list {
        match ranges.last_mut() {
            Some(last) if last.1.checked_add(1) == Some(piece.first) => last.1 = piece.last,
            _ => ranges.push((piece.first, piece.last)),
        }
    }
    ranges
}

/// Consecutive values on the curve: those of a square that is partly in the window, or of squares
/// inside it.
struct Piece {
    first: u64,
    last: u64,
    partial: Option<Square>,
}

/// Pieces in the order of the curve.
#[derive(Default)]
struct Pieces {
    list: Vec<Piece>,
    /// How many ranges they make.
    ranges: usize,
}

impl Pieces {
    fn push(&mut self, square: Square, window: &GridRect) {
        let partial = (square.level > 0 && !square.is_within(window)).then_some(square);
        self.append(Piece { first: square.first_value(), last: square.last_value(), partial });
    }

    fn append(&mut self, piece: Piece) {
        let follows = |last: &Piece| last.last.checked_add(1) == Some(piece.first);
        match self.list.last_mut() {
            Some(last) if follows(last) => {
                if last.partial.is_none() && piece.partial.is_none() {
                    last.last = piece.last;
                    return;
                }
            }
            _ => self.ranges += 1,
        }
        self.list.push(piece);
    }

    /// The same with partial squares divided; `None` if that gives more ranges than allowed.
    fn divided(&self, window: &GridRect, ranges_max: usize) -> Option<Self> {
        let mut finer = Self { list: Vec::with_capacity(2 * self.list.len() + 4), ranges: 0 };
        for piece in &self.list {
            match piece.partial {
                None => finer.append(Piece { partial: None, ..*piece }),
                Some(square) => {
                    for child in (0..4).map(|digit| square.child(digit)).filter(|child| child.intersects(window)) {
                        finer.push(child, window);
                    }
                }
            }
            if finer.ranges > ranges_max {
                return None;
            }
        }
        Some(finer)
    }
}
