//! A running `terrane insert --follow`, and its input.

use std::fs::{self, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::Child;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::support::{Answer, command, rows};

/// Records of different lengths.
pub fn lines(numbers: impl IntoIterator<Item = u64>) -> String {
    let line = |number: u64| {
        let text = "t".repeat((number % 90) as usize);
        json!({"n": number, "lon": number % 180, "lat": 1, "text": text}).to_string() + "\n"
    };
    numbers.into_iter().map(line).collect()
}

pub fn append(path: &Path, text: &str) {
    let mut file = OpenOptions::new().append(true).create(true).open(path).expect("the file is there");
    file.write_all(text.as_bytes()).expect("it grows");
}

/// A running `terrane insert --follow`. It ends with its test.
pub struct Follower {
    /// `None` once it has ended.
    child: Option<Child>,
    keys: BufReader<Box<dyn Read + Send>>,
}

impl Follower {
    pub fn start(store: &Path, file: &Path, arguments: &[&str]) -> Self {
        let mut command =
            command(["insert".as_ref(), store.as_os_str(), "d".as_ref(), "--follow".as_ref(), file.as_os_str()]);
        let mut child = command.args(arguments).spawn().expect("the binary runs");
        let keys = reader(child.stdout.take().expect("a pipe"));
        Self { child: Some(child), keys }
    }

    fn child(&mut self) -> &mut Child {
        self.child.as_mut().expect("it has not ended")
    }

    pub fn id(&mut self) -> u32 {
        self.child().id()
    }

    pub fn is_told(&mut self, signal: Signal) {
        let pid = Pid::from_raw(self.id().cast_signed()).expect("a process");
        kill_process(pid, signal).expect("it can be told");
    }

    /// Stops it during an operation, so that it does not look in between.
    pub fn sleeps_while(&mut self, something: impl FnOnce()) {
        self.is_told(Signal::STOP);
        something();
        self.is_told(Signal::CONT);
    }

    /// Waits until it has opened a file.
    pub fn opens(&mut self, file: &Path) {
        let name = fs::canonicalize(file).expect("it is there");
        let descriptors = format!("/proc/{}/fd", self.id());
        let is_open = || {
            let entries = fs::read_dir(&descriptors).expect("it runs");
            entries.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok()).any(|link| link == name)
        };
        while !is_open() {
            thread::yield_now();
        }
    }

    /// Reads this many keys; none is printed before its record is stored.
    pub fn keys(&mut self, count: u64) {
        for _ in 0..count {
            let mut key = String::new();
            self.keys.read_line(&mut key).expect("a key");
            assert!(key.ends_with('\n'), "it ended before {count} keys");
        }
    }

    /// Reads messages up to one that contains `part`; returns all of them.
    pub fn hears(&mut self, part: &str) -> String {
        let stderr = self.child().stderr.as_mut().expect("a pipe");
        let (mut said, mut byte) = (Vec::new(), [0]);
        while !(byte == *b"\n" && String::from_utf8_lossy(&said).contains(part)) {
            assert_eq!(
                stderr.read(&mut byte).expect("it speaks"),
                1,
                "it ended before: {}",
                String::from_utf8_lossy(&said)
            );
            said.push(byte[0]);
        }
        String::from_utf8_lossy(&said).into_owned()
    }

    /// Reads its keys in a thread, so that it does not wait for the test.
    pub fn drains_keys(&mut self) -> JoinHandle<()> {
        let mut keys = std::mem::replace(&mut self.keys, reader(io::empty()));
        thread::spawn(move || _ = io::copy(&mut keys, &mut io::sink()).expect("it ends"))
    }

    /// Reads its messages in a thread, into a shared text.
    pub fn drains_messages(&mut self) -> (Arc<Mutex<String>>, JoinHandle<()>) {
        let messages = BufReader::new(self.child().stderr.take().expect("a pipe"));
        let said = Arc::new(Mutex::new(String::new()));
        let text = said.clone();
        let reading = thread::spawn(move || {
            for line in messages.lines() {
                *text.lock().expect("no reader panics") += &(line.expect("text") + "\n");
            }
        });
        (said, reading)
    }

    pub fn end(mut self, signal: Signal) -> Answer {
        self.is_told(signal);
        self.answer()
    }

    /// Asserts that it ends by itself, without another record.
    pub fn refuses(mut self) -> Answer {
        let mut key = String::new();
        self.keys.read_line(&mut key).expect("it ends or reads on");
        assert_eq!(key, "", "it has read on");
        self.answer()
    }

    fn answer(mut self) -> Answer {
        // Lets it print the remaining keys.
        io::copy(&mut self.keys, &mut io::sink()).expect("it ends");
        let child = self.child.take().expect("it has not ended");
        Answer::of(child.wait_with_output().expect("it ends"))
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // After a test that failed.
            let _ = child.kill().and_then(|()| child.wait());
        }
    }
}

fn reader(keys: impl Read + Send + 'static) -> BufReader<Box<dyn Read + Send>> {
    BufReader::new(Box::new(keys))
}

/// Runs `terrane insert --follow` on a file that it refuses.
#[track_caller]
pub fn follow(store: &Path, file: &Path, arguments: &[&str]) -> Answer {
    Follower::start(store, file, arguments).refuses()
}

#[track_caller]
pub fn holds(store: &Path, wanted: impl IntoIterator<Item = u64>) {
    let mut found: Vec<u64> = rows(store, "d", "key").iter().map(|row| row["n"].as_u64().expect("a number")).collect();
    found.sort_unstable();
    assert_eq!(found, wanted.into_iter().collect::<Vec<u64>>());
}
