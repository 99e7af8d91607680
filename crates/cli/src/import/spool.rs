//! Unnamed temporary files for inputs that can be read only once, such as pipes, since text is read
//! twice.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// The name of standard input.
const STANDARD_INPUT: &str = "-";

/// The inputs of an import. Each can be read from its start as often as needed.
#[derive(Debug)]
pub struct Inputs {
    /// The copies of inputs that are no regular files.
    copies: Vec<Option<File>>,
}

impl Inputs {
    /// Copies such inputs to files beside the store, up to their ends.
    ///
    /// # Errors
    /// When an input cannot be read, or the disk has no space.
    pub fn new(files: &[PathBuf], store: &Path) -> Result<Self, Failure> {
        let directory = match store.is_dir() {
            true => store,
            false => store.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new(".")),
        };
        let copies = files.iter().map(|file| copy(file, directory)).collect::<Result<_, _>>()?;
        Ok(Self { copies })
    }

    /// The path of an input's content, if it differs from its name.
    pub fn content(&self, number: usize) -> Option<PathBuf> {
        let copy = self.copies.get(number)?.as_ref()?;
        Some(PathBuf::from(format!("/proc/self/fd/{}", copy.as_raw_fd())))
    }
}

/// Whether an input can be read only once.
pub fn is_stream(path: &Path) -> bool {
    let is_special = |metadata: fs::Metadata| !metadata.is_file() && !metadata.is_dir();
    path == Path::new(STANDARD_INPUT) || fs::metadata(path).is_ok_and(is_special)
}

fn copy(path: &Path, directory: &Path) -> Result<Option<File>, Failure> {
    if !is_stream(path) {
        return Ok(None);
    }
    let mut source: Box<dyn io::Read> = match path == Path::new(STANDARD_INPUT) {
        true => Box::new(io::stdin().lock()),
        false => {
            let cannot_read = |error| Failure::io(format_args!("read {}", path.display()), &error);
            Box::new(File::open(path).map_err(cannot_read)?)
        }
    };
    let cannot_copy = |error: io::Error| {
        Failure::io(format_args!("copy {} to a file in {}", path.display(), directory.display()), &error)
    };
    let mut copy = tempfile::tempfile_in(directory).map_err(cannot_copy)?;
    io::copy(&mut source, &mut copy).map_err(cannot_copy)?;
    Ok(Some(copy))
}
