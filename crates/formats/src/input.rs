//! Opening the bytes of a file, decompressed where need be.
//!
//! Text files are read twice (once to learn their types), so only regular
//! files are taken. Compressed streams decode as they are read.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use crate::error::{FormatError, Location};

const BUFFER_BYTES: usize = 1 << 16;

/// How the bytes of a file are packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// Not at all.
    None,
    /// gzip, also of several members.
    Gzip,
    /// Zstandard, also of several frames.
    Zstd,
}

impl Compression {
    fn of(head: &[u8]) -> Compression {
        if head.starts_with(&[0x1f, 0x8b]) {
            Compression::Gzip
        } else if head.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
            Compression::Zstd
        } else {
            Compression::None
        }
    }
}

/// A file that text is read from, as often as needed.
#[derive(Debug, Clone)]
pub(crate) struct Input {
    pub path: PathBuf,
    pub compression: Compression,
    /// The name without the extension of its compression.
    pub inner_name: String,
}

/// The bytes of an [`Input`], from the start.
pub(crate) type Content = Box<dyn BufRead + Send>;

impl Input {
    /// Opens `path` far enough to know its compression.
    pub(crate) fn new(path: &Path) -> Result<Input, FormatError> {
        let mut file = open_file(path)?;
        let mut head = [0; 4];
        let length = read_up_to(&mut file, &mut head).map_err(|e| FormatError::reading(path, e))?;
        let compression = Compression::of(&head[..length]);
        let name = path.file_name().map(|name| name.to_string_lossy().to_lowercase()).unwrap_or_default();
        let inner_name =
            [".gz", ".zst", ".zstd"].iter().find_map(|suffix| name.strip_suffix(suffix)).unwrap_or(&name).to_string();
        Ok(Input { path: path.to_path_buf(), compression, inner_name })
    }

    /// The content from its start.
    pub(crate) fn content(&self) -> Result<Content, FormatError> {
        let file = open_file(&self.path)?;
        Ok(match self.compression {
            Compression::None => Box::new(BufReader::with_capacity(BUFFER_BYTES, file)),
            Compression::Gzip => {
                Box::new(BufReader::with_capacity(BUFFER_BYTES, flate2::read::MultiGzDecoder::new(file)))
            }
            Compression::Zstd => {
                let decoder = zstd::Decoder::new(file).map_err(|e| FormatError::reading(&self.path, e))?;
                Box::new(BufReader::with_capacity(BUFFER_BYTES, decoder))
            }
        })
    }

    /// Up to `length` bytes from the start.
    pub(crate) fn head(&self, length: usize) -> Result<Vec<u8>, FormatError> {
        let mut head = Vec::new();
        self.content()?.take(length as u64).read_to_end(&mut head).map_err(|e| FormatError::reading(&self.path, e))?;
        Ok(head)
    }
}

/// Opens a regular file.
pub(crate) fn open_file(path: &Path) -> Result<File, FormatError> {
    let failed = |source| FormatError::Io { path: path.to_path_buf(), action: "open the file", source };
    let metadata = std::fs::metadata(path).map_err(failed)?;
    if !metadata.is_file() {
        return Err(FormatError::refused(
            path,
            Location::File,
            if metadata.is_dir() {
                "this is a directory"
            } else {
                "this is not a regular file, and files are read twice"
            },
            "name a regular file (write the content of a pipe to a file first)",
        ));
    }
    File::open(path).map_err(failed)
}

/// Fills as much of `buffer` as there is.
fn read_up_to(file: &mut File, buffer: &mut [u8]) -> io::Result<usize> {
    let mut length = 0;
    while length < buffer.len() {
        match file.read(&mut buffer[length..]) {
            Ok(0) => break,
            Ok(count) => length += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(length)
}
