//! The minimum cost of a durable write: overwriting zeroed, preallocated space and syncing the
//! file's data.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result};

const SPACE_BYTES: u64 = 16 << 20;

/// A preallocated file. Blocks are written to it one after the other, from the start again at its
/// end.
pub struct Floor {
    file: File,
    next: AtomicU64,
    block: Vec<u8>,
    blocks: u64,
}

impl Floor {
    /// Allocates and zeroes the space, and makes it durable. `block_bytes` must be from 1 byte to 1
    /// MiB.
    pub fn new(dir: &Path, block_bytes: u64) -> Result<Self> {
        let block_bytes = block_bytes.clamp(1, 1 << 20);
        let path = dir.join("floor");
        let mut file = OpenOptions::new()
            .create_new(true)
            .read(true)
            .write(true)
            .open(&path)
            .with_context(|| format!("cannot create {}", path.display()))?;
        let zeroes = vec![0_u8; 1 << 20];
        for _ in 0..SPACE_BYTES / zeroes.len() as u64 {
            file.write_all(&zeroes)?;
        }
        file.sync_all()?;
        Ok(Self {
            file,
            next: AtomicU64::new(0),
            block: vec![0x5a; usize::try_from(block_bytes)?],
            blocks: SPACE_BYTES / block_bytes,
        })
    }

    /// Overwrites the next block and waits until the disk has it.
    pub fn overwrite(&self) -> Result<()> {
        let block = self.next.fetch_add(1, Ordering::Relaxed) % self.blocks;
        self.file.write_all_at(&self.block, block * self.block.len() as u64)?;
        self.file.sync_data()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_overwritten_in_order_and_the_file_keeps_its_size() {
        let dir = tempfile::tempdir().unwrap();
        let floor = Floor::new(dir.path(), 100).unwrap();
        floor.overwrite().unwrap();
        floor.overwrite().unwrap();
        let content = std::fs::read(dir.path().join("floor")).unwrap();
        assert_eq!(content.len() as u64, SPACE_BYTES);
        assert!(content[..200].iter().all(|&byte| byte == 0x5a));
        assert!(content[200..].iter().all(|&byte| byte == 0));
    }
}
