//! Opens the bytes of a file and decompresses them if needed.
//!
//! Text files are read twice, first to learn their types. Only regular files are therefore
//! accepted. Compressed streams are decompressed while they are read.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use crate::error::{FormatError, Location};

const BUFFER_BYTES: usize = 1 << 16;

/// Window sizes of a Zstandard decoder as binary logarithms. A frame asks for a window, and the
/// decoder allocates it. Up to the first (8 MiB, ordinary compression levels) is always allowed.
/// More than the second (128 MiB, the default limit of every decoder) never is.
const WINDOW_LOG_MIN: u32 = 23;
const WINDOW_LOG_MAX: u32 = 27;

/// Extensions of compressed files and the compression of each.
const SUFFIXES: [(&str, &str); 3] = [(".gz", "gzip"), (".zst", "Zstandard"), (".zstd", "Zstandard")];

/// The error about a file whose content does not match the format in its name.
pub(crate) fn said_by_name(format: &str) -> String {
    format!("the name says {format}, but the content does not start as such a file does")
}

/// How the bytes of a file are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// Not at all.
    None,
    /// gzip, also with several members.
    Gzip,
    /// Zstandard, also with several frames.
    Zstd,
}

impl Compression {
    fn of(head: &[u8]) -> Compression {
        if head.starts_with(&[0x1f, 0x8b]) {
            Compression::Gzip
        } else if head.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) || is_skippable_frame(head) {
            Compression::Zstd
        } else {
            Compression::None
        }
    }
}

/// Whether a Zstandard file begins with a frame of no content (RFC 8878, section 3.1.2).
fn is_skippable_frame(head: &[u8]) -> bool {
    matches!(head, [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..])
}

/// A file that text is read from, as often as needed.
#[derive(Debug, Clone)]
pub(crate) struct Input {
    pub path: PathBuf,
    /// The path of its content, if that is elsewhere.
    content: Option<PathBuf>,
    pub compression: Compression,
    /// Logarithm of the largest window of a Zstandard frame.
    window_log_max: u32,
    /// The name without the extension of its compression.
    pub inner_name: String,
}

/// The bytes of an [`Input`], from the start.
pub(crate) type Content = Box<dyn BufRead + Send>;

impl Input {
    /// Opens `path` and detects its compression. The decoder may take about `bytes_max` bytes.
    pub(crate) fn new(path: &Path, content: Option<&Path>, bytes_max: u64) -> Result<Input, FormatError> {
        let mut file = open_file(path, content)?;
        let mut head = [0; 4];
        let length = read_up_to(&mut file, &mut head).map_err(|e| FormatError::reading(path, e))?;
        let compression = Compression::of(&head[..length]);
        let name = path.file_name().map(|name| name.to_string_lossy().to_lowercase()).unwrap_or_default();
        let inner_name = SUFFIXES.iter().find_map(|(suffix, _)| name.strip_suffix(suffix)).unwrap_or(&name).to_string();
        if compression == Compression::None
            && let Some((_, said)) = SUFFIXES.iter().find(|(suffix, _)| name.ends_with(suffix))
        {
            return Err(FormatError::damaged(path, Location::Byte(0), said_by_name(said)));
        }
        let window_log_max = bytes_max.max(1).ilog2().clamp(WINDOW_LOG_MIN, WINDOW_LOG_MAX);
        Ok(Input {
            path: path.to_path_buf(),
            content: content.map(Path::to_path_buf),
            compression,
            window_log_max,
            inner_name,
        })
    }

    /// The file itself.
    pub(crate) fn open(&self) -> Result<File, FormatError> {
        open_file(&self.path, self.content.as_deref())
    }

    /// The content from its start.
    pub(crate) fn content(&self) -> Result<Content, FormatError> {
        let file = self.open()?;
        Ok(match self.compression {
            Compression::None => Box::new(BufReader::with_capacity(BUFFER_BYTES, file)),
            Compression::Gzip => {
                Box::new(BufReader::with_capacity(BUFFER_BYTES, flate2::read::MultiGzDecoder::new(file)))
            }
            Compression::Zstd => {
                let mut decoder = zstd::Decoder::new(file).map_err(|e| FormatError::reading(&self.path, e))?;
                decoder.window_log_max(self.window_log_max).map_err(|e| FormatError::reading(&self.path, e))?;
                let decoder = Windowed { decoder, window_log_max: self.window_log_max };
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

/// A Zstandard decoder whose error for a too large window tells the remedy.
struct Windowed<D> {
    decoder: D,
    window_log_max: u32,
}

impl<D: Read> Read for Windowed<D> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.decoder.read(buffer).map_err(|error| {
            if !error.to_string().contains("too much memory") {
                return error;
            }
            let window = (1_u64 << self.window_log_max) >> 20;
            io::Error::other(format!(
                "to decode it takes a window of more than {window} MiB: compress it again without --long and --ultra, \
                 or allow more memory"
            ))
        })
    }
}

/// Opens a regular file. Its content may be at another path.
fn open_file(path: &Path, content: Option<&Path>) -> Result<File, FormatError> {
    let failed = |source| FormatError::Io { path: path.to_path_buf(), action: "open the file", source };
    let metadata = std::fs::metadata(content.unwrap_or(path)).map_err(failed)?;
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
    File::open(content.unwrap_or(path)).map_err(failed)
}

/// Reads until `buffer` is full or the content ends.
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
