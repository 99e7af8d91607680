//! Records and index entries in memory, to be sorted into a run.

use crate::Result;

/// Records to be sorted into a run.
#[derive(Debug, Default)]
pub(crate) struct RunBuffer {
    bytes: Vec<u8>,
    entries: Vec<BufferedRecord>,
}

#[derive(Clone, Copy, Debug)]
struct BufferedRecord {
    /// The first eight bytes of the key, as a number that sorts like them.
    prefix: u64,
    start: usize,
    key_len: u32,
    value_len: u32,
    row: u64,
}

impl RunBuffer {
    pub fn memory_used(&self) -> usize {
        self.bytes.len() + self.entries.len() * size_of::<BufferedRecord>()
    }

    pub fn push(&mut self, key: &[u8], value: &[u8], row: u64) {
        let mut prefix = [0; 8];
        let length = key.len().min(8);
        prefix[..length].copy_from_slice(&key[..length]);
        let record = BufferedRecord {
            prefix: u64::from_be_bytes(prefix),
            start: self.bytes.len(),
            key_len: key.len() as u32,
            value_len: value.len() as u32,
            row,
        };
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        self.entries.push(record);
    }

    fn key(&self, record: &BufferedRecord) -> &[u8] {
        &self.bytes[record.start..record.start + record.key_len as usize]
    }

    fn value(&self, record: &BufferedRecord) -> &[u8] {
        let start = record.start + record.key_len as usize;
        &self.bytes[start..start + record.value_len as usize]
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Calls `visit` with the key, the value and the row of each record, ordered by key and row.
    /// Then empties the buffer.
    pub fn drain_sorted(&mut self, mut visit: impl FnMut(&[u8], &[u8], u64) -> Result<()>) -> Result<()> {
        let mut entries = std::mem::take(&mut self.entries);
        entries.sort_unstable_by(|a, b| {
            a.prefix.cmp(&b.prefix).then_with(|| self.key(a).cmp(self.key(b))).then(a.row.cmp(&b.row))
        });
        for record in &entries {
            visit(self.key(record), self.value(record), record.row)?;
        }
        entries.clear();
        self.entries = entries;
        self.bytes.clear();
        Ok(())
    }
}
