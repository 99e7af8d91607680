//! A test that runs itself as another process, and kills it.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const PLACE: &str = "TERRANE_TEST_DIRECTORY";

/// The folder of the process that is to be killed; `None` in the process that kills. A panic of any
/// of its threads ends the process, so that it is noticed.
pub fn place() -> Option<PathBuf> {
    let directory = PathBuf::from(std::env::var_os(PLACE)?);
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        std::process::abort();
    }));
    Some(directory)
}

/// Called by a thread of the process that is to be killed, after each of its changes.
pub fn acknowledge(thread: u64, number: u64) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{thread} {number}").and_then(|()| out.flush()).unwrap();
}

/// Runs this test in another process, which finds the directory by [`place`], and kills it after
/// `changes` changes of its threads. Gives the last number that each thread acknowledged, if it
/// did.
pub fn run_and_kill(test: &str, directory: &Path, threads: u64, changes: usize) -> Vec<Option<u64>> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture"])
        .env(PLACE, directory)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut acknowledged = vec![None; threads as usize];
    let mut seen = 0;
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        let Some((thread, number)) = line.split_once(' ') else { continue };
        let (Ok(thread), Ok(number)) = (thread.parse::<usize>(), number.parse()) else { continue };
        acknowledged[thread] = Some(number);
        seen += 1;
        if seen == changes {
            child.kill().unwrap();
        }
    }
    assert!(!child.wait().unwrap().success() && seen >= changes, "it ended by itself after {seen} changes");
    acknowledged
}
