use std::fmt::Write as _;
use std::io::Write as _;
use std::process::Child;
use std::thread;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::insert_stream::Stream;
use crate::support::{Sandbox, count, insert, is_clean};

fn send(child: &Child, signal: Signal) {
    let pid = Pid::from_raw(child.id().cast_signed()).expect("a process");
    kill_process(pid, signal).expect("it can be told");
}

/// Waits until a sent signal has reached the process, so that the next one is not merged with it.
fn wait_until_taken(child: &Child, signal: Signal) {
    let path = format!("/proc/{}/status", child.id());
    let is_pending = || {
        let status = std::fs::read_to_string(&path).expect("the process is not waited for yet");
        let pending = status.lines().find_map(|line| line.strip_prefix("ShdPnd:")).expect("the pending signals");
        let pending = u64::from_str_radix(pending.trim(), 16).expect("a set of signals");
        pending >> (signal.as_raw() - 1) & 1 == 1
    };
    while is_pending() {
        thread::yield_now();
    }
}

#[test]
fn a_signal_closes_the_store_with_all_that_was_acknowledged() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let sandbox = Sandbox::new();
        // Without a log only a close keeps what was inserted.
        let mut stream = Stream::start(&sandbox.store(), "d", &["--durability", "none"]);
        for id in 0..50 {
            stream.send(json!({"id": id, "lon": 1, "lat": 1}));
            assert_eq!(stream.key(), id.to_string());
        }
        // Half a record is no record.
        write!(stream.stdin, "{{\"id\":99,\"lon\":1,\"lat\":1}}").and_then(|()| stream.stdin.flush()).expect("taken");
        // Like `timeout`, which signals the process and its group.
        send(&stream.child, signal);
        wait_until_taken(&stream.child, signal);
        send(&stream.child, signal);
        assert_eq!(stream.child.wait().expect("it ends").code(), Some(code));
        assert_eq!(stream.key(), "");
        assert_eq!(count(&sandbox.store(), "d"), 50);
        is_clean(&sandbox.store());
        // The next writer can open the store.
        insert(&sandbox.store(), "d", "{\"id\":99,\"lon\":1,\"lat\":1}\n", &[]).exits(0);
    }
}

#[test]
fn a_second_signal_ends_a_process_that_cannot_go_on() {
    let sandbox = Sandbox::new();
    let Stream { mut child, mut stdin, mut stdout } = Stream::start(&sandbox.store(), "d", &[]);
    // More keys than a pipe holds, and no reader: the writer waits for ever.
    let feeder = thread::spawn(move || {
        let mut lines = String::new();
        for key in 0..200_000 {
            let _ = writeln!(lines, "{}", json!({"id": key, "lon": 1, "lat": 1}));
        }
        stdin.write_all(lines.as_bytes())
    });
    let mut first = [0; 2];
    std::io::Read::read_exact(&mut stdout, &mut first).expect("the first key");
    let status = loop {
        send(&child, Signal::TERM);
        if let Some(status) = child.try_wait().expect("its state") {
            break status;
        }
        thread::yield_now();
    };
    assert_eq!(status.code(), Some(143));
    assert!(feeder.join().expect("the feeder ends").is_err(), "not all was read");
}
