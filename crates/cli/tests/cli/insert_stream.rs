use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use serde_json::json;

use crate::support::{Sandbox, command, count, insert};

/// A running `terrane insert`.
pub struct Stream {
    pub child: Child,
    pub stdin: ChildStdin,
    pub stdout: BufReader<ChildStdout>,
}

impl Stream {
    pub fn start(store: &std::path::Path, dataset: &str, arguments: &[&str]) -> Self {
        let mut command = command(["insert".as_ref(), store.as_os_str(), dataset.as_ref()]);
        let mut child =
            command.args(arguments).stdin(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the binary runs");
        let stdin = child.stdin.take().expect("a pipe");
        let stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        Self { child, stdin, stdout }
    }

    pub fn send(&mut self, line: impl std::fmt::Display) {
        writeln!(self.stdin, "{line}").and_then(|()| self.stdin.flush()).expect("the record is taken");
    }

    pub fn key(&mut self) -> String {
        let mut key = String::new();
        self.stdout.read_line(&mut key).expect("a key");
        key.trim_end().to_string()
    }
}

#[test]
fn each_record_is_acknowledged_without_waiting_for_the_next() {
    let sandbox = Sandbox::new();
    let mut stream = Stream::start(&sandbox.store(), "d", &[]);
    for id in 0..20 {
        stream.send(json!({"id": id, "lon": 1, "lat": 1}));
        assert_eq!(stream.key(), id.to_string());
        // Another process sees acknowledged records at once.
        assert_eq!(count(&sandbox.store(), "d"), id + 1);
    }
    drop(stream.stdin);
    assert!(stream.child.wait().expect("it ends").success());
}

#[test]
fn half_a_line_is_waited_for() {
    let sandbox = Sandbox::new();
    let mut stream = Stream::start(&sandbox.store(), "d", &[]);
    stream.send(json!({"id": 1, "lon": 1, "lat": 1}));
    write!(stream.stdin, "{{\"id\":2,").and_then(|()| stream.stdin.flush()).expect("taken");
    assert_eq!(stream.key(), "1");
    stream.send("\"lon\":1,\"lat\":1}");
    assert_eq!(stream.key(), "2");
    drop(stream.stdin);
    assert!(stream.child.wait().expect("it ends").success());
}

#[test]
fn many_records_at_once_are_all_acknowledged() {
    let sandbox = Sandbox::new();
    let input: String = (0..5000).map(|id| format!("{}\n", json!({"id": id, "lon": id % 180, "lat": 1}))).collect();
    let answer = insert(&sandbox.store(), "d", input, &["--memory-limit", "8MiB"]).exits(0);
    let keys: Vec<u64> = answer.text().lines().filter_map(|line| line.parse().ok()).collect();
    assert_eq!(keys, (0..5000).collect::<Vec<_>>());
    assert_eq!(count(&sandbox.store(), "d"), 5000);
}
