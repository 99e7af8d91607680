//! The log entry of a commit: the logical operations of all indexes.
//!
//! Layout of an entry, little-endian.
//!
//! - sequence u64 · transaction u64 · source offset u64 · dataset u32 · partition u32 · source u32
//!   · kind u32.
//! - each operation: index u32 · delete u32 · key length u32 · value length u32 · key · value.
//!
//! The transaction is reserved. Source and source offset are a feed's position, which commits with
//! its records; both are 0 without a feed. The framework does not interpret keys and values; the
//! index kind does.

use smallvec::SmallVec;

use crate::{Error, Result};

/// Bytes of an entry before its operations.
pub const ENTRY_HEADER_LEN: usize = 40;
/// Bytes of an operation before its key.
pub const OPERATION_HEADER_LEN: usize = 16;

/// The kind of an entry. A reader refuses unknown numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryKind(pub u32);

impl EntryKind {
    /// Operations of one committed transaction.
    pub const COMMIT: Self = Self(1);
}

/// The fixed fields of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryHeader {
    /// Position in the order of commits.
    pub sequence: u64,
    /// Transaction; 0 while every entry is a transaction of its own.
    pub transaction: u64,
    /// The position of the source with this entry; 0 without a source.
    pub source_offset: u64,
    /// Dataset.
    pub dataset: u32,
    /// Partition of the dataset.
    pub partition: u32,
    /// The source that the records came from; 0 for none.
    pub source: u32,
    /// The kind of the entry.
    pub kind: EntryKind,
}

/// A change of one index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation<'a> {
    /// Number of the index within its dataset.
    pub index: u32,
    /// Whether the entry is deleted (by anti-matter) or inserted.
    pub delete: bool,
    /// The index key, in the form of its kind.
    pub key: &'a [u8],
    /// The value stored with the key.
    pub value: &'a [u8],
}

/// Appends the header of an entry.
pub fn encode_header(header: &EntryHeader, out: &mut Vec<u8>) {
    for value in [header.sequence, header.transaction, header.source_offset] {
        out.extend_from_slice(&value.to_le_bytes());
    }
    for value in [header.dataset, header.partition, header.source, header.kind.0] {
        out.extend_from_slice(&value.to_le_bytes());
    }
}

/// Appends an operation.
pub fn encode_operation(operation: &Operation<'_>, out: &mut Vec<u8>) {
    for value in [operation.index, operation.delete.into(), operation.key.len() as u32, operation.value.len() as u32] {
        out.extend_from_slice(&value.to_le_bytes());
    }
    out.extend_from_slice(operation.key);
    out.extend_from_slice(operation.value);
}

/// An entry that is being encoded. It knows where its operations are, so nobody has to parse it.
#[derive(Clone, Debug)]
pub struct EncodedEntry {
    bytes: Vec<u8>,
    operations: SmallVec<[Encoded; 4]>,
}

/// The place of an operation's key in an entry; its value follows.
#[derive(Clone, Copy, Debug)]
struct Encoded {
    index: u32,
    delete: bool,
    key: usize,
    value: usize,
    end: usize,
}

impl EncodedEntry {
    /// An entry without operations.
    pub fn new(header: &EntryHeader) -> Self {
        let mut bytes = Vec::with_capacity(512);
        encode_header(header, &mut bytes);
        Self { bytes, operations: SmallVec::new() }
    }

    /// Appends an operation.
    pub fn push(&mut self, operation: &Operation<'_>) {
        encode_operation(operation, &mut self.bytes);
        let end = self.bytes.len();
        let value = end - operation.value.len();
        let key = value - operation.key.len();
        self.operations.push(Encoded { index: operation.index, delete: operation.delete, key, value, end });
    }

    /// Writes the fields that are known last.
    pub fn complete(&mut self, sequence: u64, partition: u32) {
        self.bytes[..8].copy_from_slice(&sequence.to_le_bytes());
        self.bytes[28..32].copy_from_slice(&partition.to_le_bytes());
    }

    /// The encoded form.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The operations, in their order.
    pub fn operations(&self) -> impl Iterator<Item = Operation<'_>> {
        self.operations.iter().map(|encoded| Operation {
            index: encoded.index,
            delete: encoded.delete,
            key: &self.bytes[encoded.key..encoded.value],
            value: &self.bytes[encoded.value..encoded.end],
        })
    }
}

/// Parses an entry of the log: its header, and its operations one by one.
pub fn decode(entry: &[u8]) -> Result<(EntryHeader, Operations<'_>)> {
    let (header, operations) = entry
        .split_at_checked(ENTRY_HEADER_LEN)
        .ok_or_else(|| Error::MalformedEntry { reason: format!("it has only {} bytes", entry.len()) })?;
    let long = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| header[at + byte]));
    let short = |at: usize| u32::from_le_bytes(std::array::from_fn(|byte| header[at + byte]));
    let header = EntryHeader {
        sequence: long(0),
        transaction: long(8),
        source_offset: long(16),
        dataset: short(24),
        partition: short(28),
        source: short(32),
        kind: EntryKind(short(36)),
    };
    Ok((header, Operations { rest: operations }))
}

/// The operations of an entry.
#[derive(Clone, Debug)]
pub struct Operations<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Operations<'a> {
    type Item = Result<Operation<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let operation = self.read();
        if operation.is_none() {
            self.rest = &[];
        }
        Some(operation.ok_or_else(|| Error::MalformedEntry { reason: "an operation in it is cut short".into() }))
    }
}

impl<'a> Operations<'a> {
    fn read(&mut self) -> Option<Operation<'a>> {
        let (header, rest) = self.rest.split_at_checked(OPERATION_HEADER_LEN)?;
        let field = |at: usize| u32::from_le_bytes(std::array::from_fn(|byte| header[at + byte]));
        let (key, rest) = rest.split_at_checked(field(8) as usize)?;
        let (value, rest) = rest.split_at_checked(field(12) as usize)?;
        self.rest = rest;
        Some(Operation { index: field(0), delete: field(4) != 0, key, value })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_read_as_written_and_cut_ones_are_refused() {
        let header = EntryHeader {
            sequence: 0,
            transaction: 3,
            source_offset: 4,
            dataset: 5,
            partition: 6,
            source: 7,
            kind: EntryKind::COMMIT,
        };
        let operations = [
            Operation { index: 0, delete: false, key: b"key", value: b"a value" },
            Operation { index: 1, delete: true, key: b"", value: b"key" },
        ];
        let mut encoded = EncodedEntry::new(&EntryHeader { partition: 0, ..header });
        operations.iter().for_each(|operation| encoded.push(operation));
        encoded.complete(9, 6);
        assert_eq!(encoded.operations().collect::<Vec<_>>(), operations);
        let entry = encoded.bytes();
        let (found, rest) = decode(entry).unwrap();
        assert_eq!(found, EntryHeader { sequence: 9, ..header });
        assert_eq!(rest.collect::<Result<Vec<_>>>().unwrap(), operations);
        for length in 0..entry.len() {
            let whole = length == ENTRY_HEADER_LEN || length == ENTRY_HEADER_LEN + OPERATION_HEADER_LEN + 10;
            let read = decode(&entry[..length]).and_then(|(_, rest)| rest.collect::<Result<Vec<_>>>());
            assert_eq!(read.is_ok(), whole, "cut at {length}");
        }
    }
}
