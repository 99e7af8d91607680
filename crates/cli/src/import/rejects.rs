//! The files that refused rows go to: one JSON object a line, with file, row, line, reason and
//! the row itself.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::refusal::Refusal;
use crate::args::{ImportArguments, OnInvalid};
use crate::failure::Failure;
use crate::messages::Messages;

/// Extension of the default file beside each input.
const SUFFIX: &str = ".rejects.ndjson";

/// The files of rejects of one import, created with the first row that goes to them.
#[derive(Debug)]
pub struct Rejects {
    /// The one file of all inputs, if it was named.
    named: Option<PathBuf>,
    first_input: PathBuf,
    open: Option<OpenFile>,
    /// What was written so far.
    written: Vec<(PathBuf, u64)>,
}

#[derive(Debug)]
struct OpenFile {
    path: PathBuf,
    output: BufWriter<File>,
}

impl Rejects {
    /// The files that the flags ask for.
    ///
    /// # Errors
    /// When an input would be overwritten, or rejects are not put aside at all.
    pub fn new(arguments: &ImportArguments) -> Result<Self, Failure> {
        if let Some(path) = &arguments.rejects {
            if arguments.on_invalid == OnInvalid::Error {
                return Err(Failure::usage("--rejects needs --on-invalid skip"));
            }
            if arguments.files.iter().any(|file| is_same_file(file, path)) {
                return Err(Failure::usage(format!("--rejects {} is a file to import; name another", path.display())));
            }
        }
        Ok(Self {
            named: arguments.rejects.clone(),
            first_input: arguments.files[0].clone(),
            open: None,
            written: Vec::new(),
        })
    }

    /// Writes a refused row of an input, or of one of them that is not known.
    pub fn write(&mut self, input: Option<&Path>, refusal: &Refusal) -> Result<(), Failure> {
        let path = match &self.named {
            Some(path) => path.clone(),
            None => {
                let mut name = input.unwrap_or(&self.first_input).as_os_str().to_owned();
                name.push(SUFFIX);
                PathBuf::from(name)
            }
        };
        if self.open.as_ref().is_none_or(|open| open.path != path) {
            self.change_to(path)?;
        }
        let Some(OpenFile { path, output }) = &mut self.open else {
            return Ok(());
        };
        let written = serde_json::to_writer(&mut *output, &line(input, refusal))
            .map_err(io::Error::from)
            .and_then(|()| output.write_all(b"\n"));
        written.map_err(|error| failed(path, &error))?;
        if let Some((_, count)) = self.written.iter_mut().find(|(known, _)| known == path) {
            *count += 1;
        }
        Ok(())
    }

    fn change_to(&mut self, path: PathBuf) -> Result<(), Failure> {
        self.flush()?;
        // A file of this import is continued, one of an earlier import is replaced.
        let is_known = self.written.iter().any(|(known, _)| *known == path);
        let file = match is_known {
            true => File::options().append(true).open(&path),
            false => File::create(&path),
        };
        let file = file.map_err(|error| failed(&path, &error))?;
        if !is_known {
            self.written.push((path.clone(), 0));
        }
        self.open = Some(OpenFile { path, output: BufWriter::new(file) });
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Failure> {
        match &mut self.open {
            Some(open) => open.output.flush().map_err(|error| failed(&open.path, &error)),
            None => Ok(()),
        }
    }

    /// Completes the files and says where they are.
    pub fn finish(&mut self, messages: &Messages) -> Result<(), Failure> {
        self.flush()?;
        for (path, count) in &self.written {
            messages.warn(format_args!("{count} refused rows are in {}", path.display()));
        }
        Ok(())
    }
}

fn line(input: Option<&Path>, refusal: &Refusal) -> Value {
    let mut line = Map::new();
    if let Some(input) = input {
        line.insert("file".into(), input.display().to_string().into());
    }
    let numbers = [("row", refusal.row), ("line", refusal.line)];
    for (name, number) in numbers.into_iter().filter_map(|(name, value)| Some((name, value?))) {
        line.insert(name.into(), number.into());
    }
    line.insert("reason".into(), refusal.reason.as_str().into());
    if let Some(raw) = &refusal.raw {
        line.insert("raw".into(), raw.as_str().into());
    }
    if let Some(values) = &refusal.values {
        line.insert("values".into(), values.clone());
    }
    Value::Object(line)
}

fn is_same_file(one: &Path, other: &Path) -> bool {
    match (fs::canonicalize(one), fs::canonicalize(other)) {
        (Ok(one), Ok(other)) => one == other,
        _ => one == other,
    }
}

fn failed(path: &Path, error: &io::Error) -> Failure {
    Failure::io(format_args!("write the rejects to {}", path.display()), error)
}
