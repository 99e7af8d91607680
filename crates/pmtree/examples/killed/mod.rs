//! The common part of the examples: a place for a file, and a process that is killed.

use std::error::Error;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::TempDir;
use terrane_pmtree::terrane_pmem;

const SIGKILL: i32 = 9;

/// A folder in which `create` has created a file. It lies in /dev/shm if the usual file system
/// cannot keep such a file, as in many containers.
pub fn folder(create: impl Fn(&Path) -> terrane_pmtree::Result<()>) -> Result<TempDir, Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    match create(directory.path()) {
        Err(terrane_pmtree::Error::Pool(terrane_pmem::Error::Unsuitable { .. })) => {
            let directory = tempfile::tempdir_in("/dev/shm")?;
            create(directory.path())?;
            Ok(directory)
        }
        created => Ok(created.map(|()| directory)?),
    }
}

/// Starts this program with a folder, and kills it when it has printed that many numbers. Gives how
/// many it has printed in the end.
pub fn run_and_kill(directory: &Path, acknowledged_min: u64) -> Result<u64, Box<dyn Error>> {
    let mut child = Command::new(std::env::current_exe()?).arg(directory).stdout(Stdio::piped()).spawn()?;
    let mut acknowledged = 0;
    for line in BufReader::new(child.stdout.take().ok_or("the process has no output")?).lines() {
        acknowledged = line?.parse::<u64>()? + 1;
        if acknowledged == acknowledged_min {
            child.kill()?;
        }
    }
    let status = child.wait()?;
    match status.signal() == Some(SIGKILL) && acknowledged >= acknowledged_min {
        true => Ok(acknowledged),
        false => Err(format!("it ended by itself ({status}) after {acknowledged} acknowledged changes").into()),
    }
}
