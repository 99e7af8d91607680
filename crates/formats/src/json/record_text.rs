//! Texts of records that are not parsed yet.

/// Most bytes of a record's text.
pub(super) const RECORD_BYTES_MAX: usize = 64 << 20;

/// Advice for a file that is no JSON although its name says so.
pub(super) const HINT_OF_NAME: &str =
    "if the file has another format, give it a name that says so, such as one in .csv";

/// The text of one record.
#[derive(Debug, Clone, Copy)]
pub(super) struct RecordText<'t> {
    /// The line on which it starts, counted from 1.
    pub line: u64,
    /// The byte at which it starts.
    pub offset: u64,
    /// Whether it stands in the `features` of a document.
    pub must_be_feature: bool,
    pub bytes: &'t [u8],
}

/// Texts of consecutive records.
#[derive(Debug, Default)]
pub(super) struct RecordTexts {
    bytes: Vec<u8>,
    places: Vec<Place>,
}

#[derive(Debug, Clone, Copy)]
struct Place {
    line: u64,
    offset: u64,
    must_be_feature: bool,
    end: usize,
}

impl RecordTexts {
    pub(super) fn push(&mut self, text: RecordText<'_>) {
        let RecordText { line, offset, must_be_feature, bytes } = text;
        self.bytes.extend_from_slice(bytes);
        self.places.push(Place { line, offset, must_be_feature, end: self.bytes.len() });
    }

    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// Memory that they take.
    pub(super) fn size_bytes(&self) -> usize {
        self.bytes.len() + size_of_val(&self.places[..])
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = RecordText<'_>> {
        let starts = std::iter::once(0).chain(self.places.iter().map(|place| place.end));
        starts.zip(&self.places).map(|(start, &Place { line, offset, must_be_feature, end })| RecordText {
            line,
            offset,
            must_be_feature,
            bytes: &self.bytes[start..end],
        })
    }
}
