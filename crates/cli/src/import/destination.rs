//! The destination of refused rows: never in the store, an input, or a file with anything but
//! rejects.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use serde_json::Value;

use super::rejects::MEMBERS;
use super::spool::is_stream;
use crate::args::ImportArguments;
use crate::failure::Failure;

/// Extension of the default file beside each input.
const SUFFIX: &str = ".rejects.ndjson";
/// Longest first line that is read to recognise a file of rejects.
const LINE_BYTES_MAX: u64 = 1 << 20;

/// A destination for refused rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    /// As the user named it.
    pub name: PathBuf,
    /// The file itself, without symbolic links.
    pub path: PathBuf,
    /// Whether it is a device or a pipe, which is written to and not replaced.
    pub is_stream: bool,
}

/// The default file for an input's rejects.
fn default_name(input: &Path) -> PathBuf {
    let mut name = input.as_os_str().to_owned();
    name.push(SUFFIX);
    PathBuf::from(name)
}

/// The destinations for the rejects of the inputs, in their order.
///
/// # Errors
/// When writing to one of them would destroy data.
pub fn of_inputs(arguments: &ImportArguments) -> Result<Vec<Destination>, Failure> {
    let store = resolve(&arguments.store).map_err(|error| cannot_look_at(&arguments.store, &error))?;
    let inputs: Vec<(u64, u64)> =
        arguments.files.iter().filter_map(|file| fs::metadata(file).ok()).map(|input| identity(&input)).collect();
    let examine = |name: PathBuf| Destination::examine(name, &store, &inputs);
    match &arguments.rejects {
        Some(name) => Ok(vec![examine(name.clone())?; arguments.files.len()]),
        None => match arguments.files.iter().find(|input| is_stream(input)) {
            Some(stream) => Err(Failure::usage(format!(
                "the refused rows of {} need a file: name one with --rejects",
                stream.display()
            ))),
            None => arguments.files.iter().map(|input| examine(default_name(input))).collect(),
        },
    }
}

impl Destination {
    fn examine(name: PathBuf, store: &Path, inputs: &[(u64, u64)]) -> Result<Self, Failure> {
        let refused = |reason: &str| {
            let shown = name.display();
            Err(Failure::usage(format!(
                "the refused rows would go to {shown}, but {reason}; name another file with --rejects"
            )))
        };
        let existing = match fs::metadata(&name) {
            Ok(metadata) => Some(metadata),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(cannot_look_at(&name, &error)),
        };
        if existing.is_none() && name.is_symlink() {
            return refused("this is a symbolic link without a target");
        }
        let path = resolve(&name).map_err(|error| cannot_look_at(&name, &error))?;
        if path.starts_with(store) {
            return refused("this is inside of the store");
        }
        let Some(metadata) = existing else {
            return Ok(Self { name, path, is_stream: false });
        };
        if inputs.contains(&identity(&metadata)) {
            return refused("this is a file to import");
        }
        if metadata.is_dir() {
            return refused("this is a directory");
        }
        let is_stream = !metadata.is_file();
        if !is_stream && !is_rejects(&path).map_err(|error| cannot_look_at(&name, &error))? {
            return refused("a file of this name exists, and it is no file of rejects");
        }
        Ok(Self { name, path, is_stream })
    }
}

/// Device and inode, the same for all names of a file.
fn identity(metadata: &fs::Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

fn cannot_look_at(path: &Path, error: &io::Error) -> Failure {
    Failure::io(format_args!("examine {}", path.display()), error)
}

/// The path without symbolic links and dots, as far as it exists.
fn resolve(path: &Path) -> io::Result<PathBuf> {
    let path = std::path::absolute(path)?;
    let mut resolved = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => {
                resolved.pop();
            }
            other => resolved.push(other),
        }
        match fs::canonicalize(&resolved) {
            Ok(canonical) => resolved = canonical,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(resolved)
}

/// Whether a file is empty or begins with a refused row.
fn is_rejects(path: &Path) -> io::Result<bool> {
    let mut line = Vec::new();
    BufReader::new(File::open(path)?).take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
    if line.is_empty() {
        return Ok(true);
    }
    let is_row = |value: Value| {
        value.as_object().is_some_and(|members| {
            members.get("reason").is_some_and(Value::is_string)
                && members.keys().all(|name| MEMBERS.contains(&name.as_str()))
        })
    };
    Ok(serde_json::from_slice(&line).is_ok_and(is_row))
}
