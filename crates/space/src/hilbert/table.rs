//! One step of the Hilbert state diagram, and tables of four steps at once.
//!
//! A state has two bits. Bit 0 says that x and y are swapped, bit 1 that both are complemented. The
//! curve of every order starts in state 0.

/// One level down: the digit of the quadrant (`x`, `y` are 0 or 1) and the state inside it.
pub(super) const fn step_encode(state: usize, x: u32, y: u32) -> (u32, usize) {
    let complement = (state >> 1) as u32;
    let (x, y) = (x ^ complement, y ^ complement);
    let (x, y) = if state & 1 == 1 { (y, x) } else { (x, y) };
    ((3 * x) ^ y, next_state(state, x, y))
}

/// One level down: the quadrant of `digit` as (x, y) and the state inside it.
pub(super) const fn step_decode(state: usize, digit: u32) -> (u32, u32, usize) {
    let (x, y) = (digit >> 1, (digit ^ (digit >> 1)) & 1);
    let next = next_state(state, x, y);
    let (x, y) = if state & 1 == 1 { (y, x) } else { (x, y) };
    let complement = (state >> 1) as u32;
    (x ^ complement, y ^ complement, next)
}

/// The first and the last quadrant (y = 0) are mirrored on a diagonal.
const fn next_state(state: usize, x: u32, y: u32) -> usize {
    if y == 1 {
        state
    } else if x == 0 {
        state ^ 1
    } else {
        state ^ 3
    }
}

/// The bits of a table entry that hold the next state, at their position in an index. The compiler
/// sees from them that an index stays within the table.
pub(super) const STATE: u16 = 0x300;

/// The bits of a table entry that hold the result.
pub(super) const DIGITS: u16 = 0xff;

/// `[state << 8 | x << 4 | y]` to `state << 8 | digits` for four bits of x and y.
pub(super) static ENCODE: [u16; 1024] = encode_table();

/// `[state << 8 | digits]` to `state << 8 | x << 4 | y`.
pub(super) static DECODE: [u16; 1024] = decode_table();

const fn encode_table() -> [u16; 1024] {
    let mut table = [0; 1024];
    let mut index = 0;
    while index < 1024 {
        let (x, y) = ((index >> 4 & 15) as u32, (index & 15) as u32);
        let (mut state, mut digits, mut bit) = (index >> 8, 0, 4);
        while bit > 0 {
            bit -= 1;
            let (digit, next) = step_encode(state, x >> bit & 1, y >> bit & 1);
            digits = digits << 2 | digit;
            state = next;
        }
        table[index] = (state << 8) as u16 | digits as u16;
        index += 1;
    }
    table
}

const fn decode_table() -> [u16; 1024] {
    let mut table = [0; 1024];
    let mut index = 0;
    while index < 1024 {
        let (mut state, mut x, mut y, mut pair) = (index >> 8, 0, 0, 4);
        while pair > 0 {
            pair -= 1;
            let (bit_x, bit_y, next) = step_decode(state, (index >> (2 * pair) & 3) as u32);
            x = x << 1 | bit_x;
            y = y << 1 | bit_y;
            state = next;
        }
        table[index] = (state << 8) as u16 | (x << 4 | y) as u16;
        index += 1;
    }
    table
}
