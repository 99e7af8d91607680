//! Lines of an input in batches: all that have arrived, without waiting for more, up to a limit.

use std::io::{self, Read};

use terrane::QueuedRecord;

/// Longest line; the JSON of the largest record fits.
const LINE_BYTES_MAX: usize = 64 << 20;
/// Bytes of lines after which a batch ends, so that large records come alone.
const BATCH_BYTES_SOFT: usize = 1 << 20;
/// Bytes requested from the input at a time.
const READ_BYTES: usize = 64 << 10;

/// A line that is not blank.
#[derive(Debug, PartialEq, Eq)]
pub struct Line {
    /// Its number for messages: the line number, from 1, or the offset in the file at which it
    /// begins.
    pub number: u64,
    /// The position in the input behind it, in bytes.
    pub end: u64,
    /// Its text without the line end, or why there is none.
    pub text: Result<String, String>,
}

impl QueuedRecord for Line {
    fn memory_bytes(&self) -> usize {
        let (Ok(text) | Err(text)) = &self.text;
        size_of::<Self>() + text.len()
    }

    fn encode(&self, bytes: &mut Vec<u8>) {
        let (Ok(text) | Err(text)) = &self.text;
        for number in [self.number, self.end, u64::from(self.text.is_ok())] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.extend_from_slice(text.as_bytes());
    }

    fn decode(mut bytes: &[u8]) -> Option<Self> {
        let mut number = || {
            let (number, rest) = bytes.split_first_chunk()?;
            bytes = rest;
            Some(u64::from_le_bytes(*number))
        };
        let (number, end, is_text) = (number()?, number()?, number()? == 1);
        let text = String::from_utf8(bytes.to_vec()).ok()?;
        Some(Self { number, end, text: if is_text { Ok(text) } else { Err(text) } })
    }
}

/// Reads lines. Memory is bounded by the longest line, one batch and one read.
#[derive(Debug)]
pub struct Lines<R> {
    input: R,
    buffer: Vec<u8>,
    /// Where the lines not returned yet begin in the buffer.
    start: usize,
    /// Bytes from `start` that are known to have no line end.
    searched: usize,
    /// Bytes of the input before `start`.
    offset: u64,
    /// Number of the last line that was begun; `None` if lines are numbered by offset.
    number: Option<u64>,
    line_bytes_max: usize,
    /// Whether the current line was refused for its length and is being skipped.
    is_passing_over: bool,
    has_ended: bool,
}

impl<R: Read> Lines<R> {
    /// Lines of an input, by number.
    pub fn new(input: R) -> Self {
        Self::of(input, 0, Some(1))
    }

    /// Lines of a file from a position on, by offset.
    pub fn from_byte(input: R, offset: u64) -> Self {
        Self::of(input, offset, None)
    }

    fn of(input: R, offset: u64, number: Option<u64>) -> Self {
        Self {
            input,
            offset,
            number,
            buffer: Vec::new(),
            start: 0,
            searched: 0,
            line_bytes_max: LINE_BYTES_MAX,
            is_passing_over: false,
            has_ended: false,
        }
    }

    /// The lines that have arrived, up to `count_max` or a limit of bytes. Waits only if there is
    /// none. Returns no line at the end of the input.
    ///
    /// # Errors
    /// When the input cannot be read.
    pub fn next(&mut self, count_max: usize) -> io::Result<Vec<Line>> {
        let mut lines = Vec::new();
        loop {
            self.take_complete(count_max, &mut lines);
            if !lines.is_empty() {
                return Ok(lines);
            }
            if self.has_ended {
                self.take_rest(&mut lines);
                return Ok(lines);
            }
            if self.buffer.len() - self.start > self.line_bytes_max {
                self.pass_over(&mut lines);
                return Ok(lines);
            }
            self.read()?;
        }
    }

    fn read(&mut self) -> io::Result<()> {
        self.buffer.drain(..self.start);
        self.start = 0;
        let length = self.buffer.len();
        self.buffer.resize(length + READ_BYTES, 0);
        let outcome = self.input.read(&mut self.buffer[length..]);
        self.buffer.truncate(length + *outcome.as_ref().unwrap_or(&0));
        match outcome {
            Ok(count) => self.has_ended = count == 0,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn take_complete(&mut self, count_max: usize, lines: &mut Vec<Line>) {
        let mut bytes = 0;
        while lines.len() < count_max && bytes < BATCH_BYTES_SOFT {
            let from = self.start + self.searched;
            let Some(length) = self.buffer[from..].iter().position(|&byte| byte == b'\n') else {
                self.searched = self.buffer.len() - self.start;
                if self.is_passing_over {
                    self.forget();
                }
                return;
            };
            let end = from + length;
            bytes += end - self.start;
            self.take(end, lines);
            self.number = self.number.map(|number| number + 1);
        }
    }

    /// The last line, which has no line end.
    fn take_rest(&mut self, lines: &mut Vec<Line>) {
        self.take(self.buffer.len(), lines);
    }

    /// Returns the line that ends before `end`, and continues behind it.
    fn take(&mut self, end: usize, lines: &mut Vec<Line>) {
        let start = self.offset;
        let bytes = self.cut(end);
        if std::mem::take(&mut self.is_passing_over) || bytes.trim_ascii().is_empty() {
            return;
        }
        let text = String::from_utf8(bytes).map_err(|error| {
            let position = error.utf8_error().valid_up_to();
            format!("byte {position} is not UTF-8; convert the input to UTF-8")
        });
        lines.push(Line { number: self.number.unwrap_or(start), end: self.offset, text });
    }

    /// Takes the bytes before `end` out of the buffer, with the line end. Many bytes are moved
    /// without a copy.
    fn cut(&mut self, end: usize) -> Vec<u8> {
        let next = (end + 1).min(self.buffer.len());
        self.searched = 0;
        self.offset += (next - self.start) as u64;
        if end - self.start < READ_BYTES {
            let bytes = self.buffer[self.start..end].to_vec();
            self.start = next;
            return bytes;
        }
        let rest = self.buffer.split_off(next);
        let mut bytes = std::mem::replace(&mut self.buffer, rest);
        bytes.truncate(end);
        bytes.drain(..self.start);
        bytes.shrink_to_fit();
        self.start = 0;
        bytes
    }

    /// Refuses a line for its length and drops the part that was read.
    fn pass_over(&mut self, lines: &mut Vec<Line>) {
        let reason = format!("the line has more than {} bytes", self.line_bytes_max);
        // Its end is not known yet, so a later run begins with this line again.
        lines.push(Line { number: self.number.unwrap_or(self.offset), end: self.offset, text: Err(reason) });
        self.is_passing_over = true;
        self.forget();
    }

    /// Drops all that has been read.
    fn forget(&mut self) {
        self.offset += (self.buffer.len() - self.start) as u64;
        self.buffer.clear();
        (self.start, self.searched) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An input that returns its pieces one by one.
    struct Pieces(Vec<&'static [u8]>);

    impl Read for Pieces {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            if self.0.is_empty() {
                return Ok(0);
            }
            let piece = self.0.remove(0);
            buffer[..piece.len()].copy_from_slice(piece);
            Ok(piece.len())
        }
    }

    fn numbered(lines: Vec<Line>) -> Vec<(u64, String)> {
        lines.into_iter().map(|line| (line.number, line.text.unwrap_or_else(|_| "refused".into()))).collect()
    }

    fn batches(mut lines: Lines<Pieces>, count_max: usize) -> Vec<Vec<(u64, String)>> {
        let mut batches = Vec::new();
        loop {
            match lines.next(count_max) {
                Ok(batch) if batch.is_empty() => return batches,
                Ok(batch) => batches.push(numbered(batch)),
                Err(error) => panic!("{error}"),
            }
        }
    }

    #[test]
    fn complete_lines_are_handed_out_without_waiting_for_more() {
        let pieces = Pieces(vec![b"a\nb\nc", b"d\n", b"\n  \r\ne"]);
        let wanted = vec![
            vec![(1, "a".to_string()), (2, "b".to_string())],
            vec![(3, "cd".to_string())],
            vec![(6, "e".to_string())],
        ];
        assert_eq!(batches(Lines::new(pieces), 10), wanted);
    }

    #[test]
    fn a_batch_has_its_size_at_most() {
        let pieces = Pieces(vec![b"1\n2\n3\n4\n5\n"]);
        let sizes: Vec<usize> = batches(Lines::new(pieces), 2).iter().map(Vec::len).collect();
        assert_eq!(sizes, [2, 2, 1]);
    }

    #[test]
    fn long_lines_come_one_by_one() {
        let long: &'static [u8] = vec![b'x'; BATCH_BYTES_SOFT].leak();
        let pieces = Pieces(vec![b"1\n", &long[..READ_BYTES], b"\n2\n"]);
        assert_eq!(batches(Lines::new(pieces), 10).len(), 2, "short of the bound, what arrived together stays so");
        let line = [long, b"\n"].concat();
        let mut lines = Lines::new(io::Cursor::new([&line[..], &line, b"short\n"].concat()));
        // As if all had arrived at once.
        lines.buffer = line.repeat(2);
        let sizes: Vec<usize> = std::iter::from_fn(|| lines.next(10).ok().filter(|batch| !batch.is_empty()))
            .map(|batch| batch.len())
            .collect();
        assert_eq!(sizes, [1, 1, 1, 1, 1]);
        assert!(lines.buffer.capacity() <= BATCH_BYTES_SOFT, "the room of long lines is given back");
    }

    #[test]
    fn a_line_that_is_too_long_is_refused_and_the_next_is_taken() {
        let pieces = Pieces(vec![b"short\n", b"a line that", b" goes on and on", b" for ever\nnext\n"]);
        let mut lines = Lines::new(pieces);
        lines.line_bytes_max = 12;
        let wanted =
            vec![vec![(1, "short".to_string())], vec![(2, "refused".to_string())], vec![(3, "next".to_string())]];
        assert_eq!(batches(lines, 10), wanted);
    }

    #[test]
    fn lines_tell_where_they_begin_and_end() {
        let long = [&b"0123456789"[..]; 20].concat();
        let pieces = [&b"a\n\nbc\n"[..], &long, b"\nd\ne"].concat();
        for piece_len in [1, 3, 1000] {
            let pieces: Vec<&'static [u8]> = pieces.chunks(piece_len).map(|piece| &*piece.to_vec().leak()).collect();
            let mut lines = Lines::from_byte(Pieces(pieces), 100);
            lines.line_bytes_max = 100;
            let mut places = Vec::new();
            loop {
                let batch = lines.next(10).expect("no piece fails");
                if batch.is_empty() {
                    break;
                }
                places.extend(batch.into_iter().map(|line| (line.number, line.end, line.text.is_ok())));
            }
            // The end of a line that is too long is not known when it is refused.
            let wanted = [(100, 102, true), (103, 106, true), (106, 106, false), (307, 309, true), (309, 310, true)];
            match piece_len {
                // It has arrived as a whole, and is no longer than one read.
                1000 => assert_eq!(places.iter().filter(|place| place.2).count(), 5),
                _ => assert_eq!(places, wanted),
            }
        }
    }

    #[test]
    fn lines_come_back_from_files_as_they_were() {
        for text in [Ok("a text".to_string()), Ok(String::new()), Err("a reason".to_string())] {
            let (line, mut bytes) = (Line { number: 7, end: u64::MAX, text }, Vec::new());
            line.encode(&mut bytes);
            assert_eq!(Line::decode(&bytes), Some(line));
        }
        assert_eq!(Line::decode(&[0; 23]), None);
    }

    #[test]
    fn bytes_that_are_not_utf8_are_refused_alone() {
        let pieces = Pieces(vec![b"a\n\xfc\nb\n"]);
        let wanted = vec![vec![(1, "a".to_string()), (2, "refused".to_string()), (3, "b".to_string())]];
        assert_eq!(batches(Lines::new(pieces), 10), wanted);
    }
}
