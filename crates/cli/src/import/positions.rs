//! Where the rows of an import come from: its numbering over all files back to files and rows.

/// Rows that follow each other in the import and in a file.
#[derive(Clone, Copy, Debug)]
struct Span {
    /// Number of the first in the import, from 0.
    start: u64,
    /// Number of the first in its file, from 1.
    row: u64,
    file: usize,
}

/// The origin of every row handed to an importer.
#[derive(Debug)]
pub struct Positions {
    /// Spans that are kept. Rows beyond are not told apart, which only messages suffer from.
    spans_max: usize,
    spans: Vec<Span>,
    file: usize,
    next: u64,
    /// What the next row's number in the file is if it belongs to the last span.
    expected: Option<u64>,
    is_full: bool,
}

impl Positions {
    /// None so far; they take up to so many bytes.
    pub fn new(bytes_max: usize) -> Self {
        // A vector that grows has room for twice as many.
        let spans_max = (bytes_max / size_of::<Span>() / 2).max(1);
        Self { spans_max, spans: Vec::new(), file: 0, next: 0, expected: None, is_full: false }
    }

    /// From here on rows come from another file.
    pub fn begin_file(&mut self, file: usize) {
        self.file = file;
        self.expected = None;
    }

    /// Adds rows by their numbers in the file.
    pub fn push(&mut self, rows: &[u64]) {
        for &row in rows {
            if self.expected != Some(row) && !self.is_full {
                self.is_full = self.spans.len() == self.spans_max;
                self.spans.push(Span { start: self.next, row, file: self.file });
            }
            self.expected = Some(row + 1);
            self.next += 1;
        }
    }

    /// File and row of a row of the import; `None` where it is not known.
    pub fn find(&self, number: u64) -> Option<(usize, u64)> {
        if number >= self.next {
            return None;
        }
        let after = self.spans.partition_point(|span| span.start <= number);
        let span = self.spans[..after].last()?;
        let is_last = after == self.spans.len();
        (!(is_last && self.is_full)).then_some((span.file, span.row + (number - span.start)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_found_over_gaps_and_files() {
        let mut positions = Positions::new(1 << 10);
        positions.begin_file(0);
        positions.push(&[1, 2, 4]);
        positions.push(&[5]);
        positions.begin_file(1);
        positions.push(&[1, 3]);
        let found: Vec<_> = (0..7).map(|number| positions.find(number)).collect();
        let wanted = [(0, 1), (0, 2), (0, 4), (0, 5), (1, 1), (1, 3)];
        assert_eq!(found[..6], wanted.map(Some));
        assert_eq!(found[6], None);
        assert_eq!(positions.spans.len(), 4);
    }

    #[test]
    fn spans_beyond_those_that_fit_are_not_told_apart() {
        let mut positions = Positions::new(3 * 2 * size_of::<Span>());
        positions.push(&[1, 3, 5, 7, 9, 10]);
        let found: Vec<_> = (0..6).map(|number| positions.find(number)).collect();
        assert_eq!(found, [Some((0, 1)), Some((0, 3)), Some((0, 5)), None, None, None]);
        assert_eq!(positions.spans.len(), 4, "the last one says where they end");
    }
}
