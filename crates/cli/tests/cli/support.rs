//! Runs the binary and reads its output.

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// Variables that would change what the binary does.
const VARIABLES: [&str; 5] =
    ["TERRANE_MEMORY_LIMIT", "TERRANE_DURABILITY", "TERRANE_FORMAT", "TERRANE_COLOR", "TERRANE_LOG"];

/// The test's own directory.
pub struct Sandbox(TempDir);

impl Sandbox {
    pub fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary directory"))
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// The path of the test's store.
    pub fn store(&self) -> PathBuf {
        self.path("store")
    }

    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, content).expect("a file is written");
        path
    }
}

/// A file of the sample data.
pub fn sample(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data").join(name)
}

/// The result of a command.
#[derive(Debug)]
pub struct Answer {
    pub code: Option<i32>,
    pub stdout: Vec<u8>,
    pub stderr: String,
}

impl Answer {
    pub fn of(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: output.stdout,
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Asserts an exit code.
    #[track_caller]
    pub fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "stdout: {}\nstderr: {}", self.text(), self.stderr);
        assert!(!self.stderr.contains("panicked"), "{}", self.stderr);
        self
    }

    /// Asserts a part of standard error.
    #[track_caller]
    pub fn says(self, part: &str) -> Self {
        assert!(self.stderr.contains(part), "{part:?} is not in: {}", self.stderr);
        self
    }

    /// Standard output as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Standard output as JSON values, one per line.
    #[track_caller]
    pub fn json_lines(&self) -> Vec<Value> {
        json_lines(&self.text())
    }

    /// Standard output as one number.
    #[track_caller]
    pub fn number(&self) -> u64 {
        self.text().trim().parse().unwrap_or_else(|_| panic!("not a number: {self:?}"))
    }
}

#[track_caller]
pub fn json_lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
}

/// A command of the binary, without the caller's configuration.
pub fn command<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_terrane"));
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    for variable in VARIABLES {
        command.env_remove(variable);
    }
    command
}

/// Runs `terrane COMMAND STORE ARGUMENT…`.
pub fn terrane(name: &str, store: &Path, arguments: &[&str]) -> Answer {
    let mut command = command([OsStr::new(name), store.as_os_str()]);
    Answer::of(command.args(arguments).output().expect("the binary runs"))
}

/// Runs `terrane import STORE DATASET FILE ARGUMENT…`.
pub fn import(store: &Path, dataset: &str, file: &Path, arguments: &[&str]) -> Answer {
    let mut command = command([OsStr::new("import"), store.as_os_str(), dataset.as_ref(), file.as_os_str()]);
    Answer::of(command.args(arguments).output().expect("the binary runs"))
}

/// Runs `terrane insert STORE DATASET ARGUMENT…` with an input.
pub fn insert(store: &Path, dataset: &str, input: impl AsRef<[u8]>, arguments: &[&str]) -> Answer {
    let mut command = command([OsStr::new("insert"), store.as_os_str(), dataset.as_ref()]);
    command.args(arguments);
    answer_to(command, input)
}

/// Runs a command with an input.
pub fn answer_to(mut command: Command, input: impl AsRef<[u8]>) -> Answer {
    let mut child = command.stdin(Stdio::piped()).spawn().expect("the binary runs");
    let mut stdin = child.stdin.take().expect("a pipe");
    let input = input.as_ref().to_vec();
    // Written by a thread, so that neither side waits for the other's pipe.
    let feeder = std::thread::spawn(move || stdin.write_all(&input));
    let answer = Answer::of(child.wait_with_output().expect("the binary ends"));
    let _ = feeder.join();
    answer
}

/// Runs a command with one variable set.
pub fn with_variable(variable: &str, value: &str, arguments: &[&OsStr]) -> Answer {
    Answer::of(command(arguments).env(variable, value).output().expect("the binary runs"))
}

/// The number of records in a dataset.
#[track_caller]
pub fn count(store: &Path, dataset: &str) -> u64 {
    terrane("query", store, &[dataset, "--count"]).exits(0).number()
}

/// All rows of a dataset, ordered by key.
#[track_caller]
pub fn rows(store: &Path, dataset: &str, key: &str) -> Vec<Value> {
    let mut rows = terrane("query", store, &[dataset]).exits(0).json_lines();
    rows.sort_by(|a, b| match (a[key].as_i64(), b[key].as_i64()) {
        (Some(a), Some(b)) => a.cmp(&b),
        _ => a[key].to_string().cmp(&b[key].to_string()),
    });
    rows
}

/// Asserts that a store has no damage.
#[track_caller]
pub fn is_clean(store: &Path) {
    terrane("check", store, &[]).exits(0);
}
