//! The origin of the rows of an import: from the row number over all files to a file and its row.

/// Rows that are consecutive both in the import and in a file.
#[derive(Clone, Copy, Debug)]
struct Span {
    /// Number of the first row in the import, from 0.
    start: u64,
    /// Number of the first row in its file, from 1.
    row: u64,
    file: usize,
}

/// The origin of each row that was passed to an importer.
#[derive(Debug)]
pub struct Positions {
    /// Spans that are kept. The origin of rows beyond is unknown, which affects only messages.
    spans_max: usize,
    spans: Vec<Span>,
    file: usize,
    next: u64,
    /// The next row's number in its file, if it belongs to the last span.
    expected: Option<u64>,
    is_full: bool,
}

impl Positions {
    /// Creates an empty one that takes up to `bytes_max` of memory.
    pub fn new(bytes_max: usize) -> Self {
        // A vector that grows doubles its capacity.
        let spans_max = (bytes_max / size_of::<Span>() / 2).max(1);
        Self { spans_max, spans: Vec::new(), file: 0, next: 0, expected: None, is_full: false }
    }

    /// The following rows come from another file.
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

    /// File and row of a row of the import; `None` if unknown.
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
