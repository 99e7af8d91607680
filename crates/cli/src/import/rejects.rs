//! The files for refused rows: one JSON object per line, with file, row, line, reason and the row
//! itself.
//!
//! Rows are collected in a temporary file beside each destination. It replaces the destination once
//! it is complete and durable. An import publishes its rejects before it commits. If they cannot be
//! written, nothing is imported; if it fails earlier, existing files stay.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};
use terrane::counted;

use super::destination::{self, Destination};
use super::refusal::Refusal;
use crate::args::{ImportArguments, OnInvalid};
use crate::failure::Failure;
use crate::messages::Messages;

/// Members of a line.
pub const MEMBERS: [&str; 6] = [FILE, ROW, LINE, REASON, RAW, VALUES];
const FILE: &str = "file";
const ROW: &str = "row";
const LINE: &str = "line";
const REASON: &str = "reason";
const RAW: &str = "raw";
const VALUES: &str = "values";

/// The files of rejects of one import, created with the first refused row.
#[derive(Debug)]
pub struct Rejects {
    /// The destination of each input's rows; empty if the first refused row ends the import.
    destinations: Vec<Destination>,
    /// The files so far.
    outputs: Vec<Output>,
    /// The open file.
    current: usize,
}

/// An unfinished file of rejects.
#[derive(Debug)]
struct Output {
    destination: Destination,
    /// The path of the rows until they are complete; the destination itself if it is a stream.
    path: PathBuf,
    /// `None` while rows go to another file, as there may be more outputs than open files are
    /// allowed.
    file: Option<BufWriter<File>>,
    rows: u64,
    is_published: bool,
}

impl Rejects {
    /// The files according to the flags.
    ///
    /// # Errors
    /// When a file would be overwritten, or rows are not to be skipped at all.
    pub fn new(arguments: &ImportArguments) -> Result<Self, Failure> {
        let destinations = match (arguments.on_invalid, &arguments.rejects) {
            (OnInvalid::Error, Some(_)) => return Err(Failure::usage("--rejects needs --on-invalid skip")),
            (OnInvalid::Error, None) => Vec::new(),
            (OnInvalid::Skip, _) => destination::of_inputs(arguments)?,
        };
        Ok(Self { destinations, outputs: Vec::new(), current: 0 })
    }

    /// Writes a refused row of an input, given by its number, or of an unknown one.
    pub fn write(&mut self, input: Option<(usize, &Path)>, refusal: &Refusal) -> Result<(), Failure> {
        let number = input.map_or(0, |(number, _)| number);
        let Some(destination) = self.destinations.get(number).or(self.destinations.first()) else {
            return Ok(());
        };
        let known = self.outputs.iter().position(|output| output.destination.path == destination.path);
        let place = match known {
            Some(place) => place,
            None => {
                self.outputs.push(Output::create(destination.clone())?);
                self.outputs.len() - 1
            }
        };
        if place != self.current {
            self.outputs[self.current].close()?;
            self.current = place;
        }
        self.outputs[place].write(&line(input.map(|(_, path)| path), refusal))
    }

    /// Completes the files, makes them durable, and moves them to their destinations.
    pub fn publish(&mut self) -> Result<(), Failure> {
        self.outputs.iter_mut().try_for_each(Output::publish)
    }

    /// Prints where the rows are.
    pub fn describe(&self, messages: &Messages) {
        for output in &self.outputs {
            let rows = counted(output.rows, "refused row is", "refused rows are");
            messages.warn(format_args!("{rows} in {}", output.destination.name.display()));
        }
    }
}

impl Output {
    fn create(destination: Destination) -> Result<Self, Failure> {
        let opened = match destination.is_stream {
            true => File::options().append(true).open(&destination.path).map(|file| (destination.path.clone(), file)),
            false => create_beside(&destination.path),
        };
        let (path, file) = opened.map_err(|error| failed(&destination, &error))?;
        Ok(Self { destination, path, file: Some(BufWriter::new(file)), rows: 0, is_published: false })
    }

    fn write(&mut self, line: &Value) -> Result<(), Failure> {
        self.append(line).map_err(|error| failed(&self.destination, &error))
    }

    fn append(&mut self, line: &Value) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            None => self.file.insert(BufWriter::new(File::options().append(true).open(&self.path)?)),
        };
        serde_json::to_writer(&mut *file, line)?;
        file.write_all(b"\n")?;
        self.rows += 1;
        Ok(())
    }

    fn close(&mut self) -> Result<(), Failure> {
        let flushed = self.file.take().map_or(Ok(()), |mut file| file.flush());
        flushed.map_err(|error| failed(&self.destination, &error))
    }

    fn publish(&mut self) -> Result<(), Failure> {
        self.close()?;
        if !self.destination.is_stream && !self.is_published {
            self.replace().map_err(|error| failed(&self.destination, &error))?;
            self.is_published = true;
        }
        Ok(())
    }

    fn replace(&self) -> io::Result<()> {
        File::open(&self.path)?.sync_all()?;
        fs::rename(&self.path, &self.destination.path)?;
        match self.destination.path.parent() {
            Some(directory) => File::open(directory)?.sync_all(),
            None => Ok(()),
        }
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if !self.is_published && !self.destination.is_stream {
            // A leftover is useless, and its name tells what it is.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// A new file in the folder of `path`.
fn create_beside(path: &Path) -> io::Result<(PathBuf, File)> {
    let process = std::process::id();
    let mut number = 0_u64;
    loop {
        let temporary = path.with_file_name(format!(".terrane-rejects-{process}-{number}"));
        match File::options().write(true).create_new(true).open(&temporary) {
            Ok(file) => return Ok((temporary, file)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
            Err(error) => return Err(error),
        }
    }
}

fn line(input: Option<&Path>, refusal: &Refusal) -> Value {
    let mut line = Map::new();
    if let Some(input) = input {
        line.insert(FILE.into(), input.display().to_string().into());
    }
    let numbers = [(ROW, refusal.row), (LINE, refusal.line)];
    for (name, number) in numbers.into_iter().filter_map(|(name, value)| Some((name, value?))) {
        line.insert(name.into(), number.into());
    }
    line.insert(REASON.into(), refusal.reason.as_str().into());
    if let Some(raw) = &refusal.raw {
        line.insert(RAW.into(), raw.as_str().into());
    }
    if let Some(values) = &refusal.values {
        line.insert(VALUES.into(), values.clone());
    }
    Value::Object(line)
}

fn failed(destination: &Destination, error: &io::Error) -> Failure {
    let action = format_args!("write the rejects to {}", destination.name.display());
    Failure::io(action, error).within("nothing was imported")
}
