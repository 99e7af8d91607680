//! Other processes of this program, to be measured alone or to be killed.

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};

use anyhow::{Context, Result};

/// A process of this program at work, killed when dropped.
pub struct Running {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Running {
    /// Starts this program with other arguments.
    pub fn start(arguments: Vec<OsString>) -> Result<Self> {
        let program = std::env::current_exe().context("cannot find this program's file")?;
        let mut child = Command::new(program)
            .args(&arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start a process with the arguments {arguments:?}"))?;
        let output = child.stdout.take().context("the child has no output")?;
        Ok(Self { child, output: BufReader::new(output) })
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> Result<ExitStatus> {
        self.child.wait().context("cannot wait for the child")
    }

    /// The next line it prints; `None` after its last.
    pub fn line(&mut self) -> Result<Option<String>> {
        let mut line = String::new();
        let length = self.output.read_line(&mut line)?;
        // A line cut off by a kill was not printed whole and promises nothing.
        Ok((length > 0 && line.ends_with('\n')).then(|| line.trim_end().to_owned()))
    }

    /// Kills it with SIGKILL and waits for its end; what it printed before can still be read.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill().context("cannot kill the child")?;
        self.wait().map(drop)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail only when the child has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
