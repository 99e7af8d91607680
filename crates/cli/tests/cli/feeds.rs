//! Feeds: what is started again goes on behind the last record that is stored, and stores none twice. The datasets
//! number their rows, so that a record that came twice would be there twice.

use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::ops::Range;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, ChildStdout, Stdio};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use terrane::{Options, Store};
use xxhash_rust::xxh3::xxh3_64;

use crate::support::{Answer, Sandbox, command, insert, is_clean, rows, terrane};

fn lines(numbers: impl IntoIterator<Item = u64>) -> String {
    let line = |number: u64| {
        let text = "t".repeat((number % 90) as usize);
        json!({"n": number, "lon": number % 180, "lat": 1, "text": text}).to_string() + "\n"
    };
    numbers.into_iter().map(line).collect()
}

fn append(path: &Path, text: &str) {
    let mut file = OpenOptions::new().append(true).create(true).open(path).expect("the file is there");
    file.write_all(text.as_bytes()).expect("it grows");
}

/// A running `terrane insert --follow`.
struct Follower {
    child: Child,
    keys: BufReader<ChildStdout>,
}

impl Follower {
    fn start(store: &Path, file: &Path, arguments: &[&str]) -> Self {
        let mut command =
            command(["insert".as_ref(), store.as_os_str(), "d".as_ref(), "--follow".as_ref(), file.as_os_str()]);
        let mut child = command.args(arguments).spawn().expect("the binary runs");
        let keys = BufReader::new(child.stdout.take().expect("a pipe"));
        Self { child, keys }
    }

    /// Reads so many keys; none is printed before its record is stored.
    fn keys(&mut self, count: u64) {
        for _ in 0..count {
            let mut key = String::new();
            self.keys.read_line(&mut key).expect("a key");
            assert!(key.ends_with('\n'), "it ended before {count} keys");
        }
    }

    /// Reads messages up to one with a part.
    fn hears(&mut self, part: &str) {
        let stderr = self.child.stderr.as_mut().expect("a pipe");
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
    }

    fn end(self, signal: Signal) -> Answer {
        let pid = Pid::from_raw(self.child.id().cast_signed()).expect("a process");
        kill_process(pid, signal).expect("it can be told");
        self.answer()
    }

    /// Demands that it ends by itself, without another record.
    fn refuses(mut self) -> Answer {
        let mut key = String::new();
        self.keys.read_line(&mut key).expect("it ends or reads on");
        if !key.is_empty() {
            self.child.kill().expect("it ends");
        }
        assert_eq!(key, "", "it has read on");
        self.answer()
    }

    fn answer(self) -> Answer {
        // So that it can print what keys there are.
        let Self { child, mut keys } = self;
        std::io::copy(&mut keys, &mut std::io::sink()).expect("it ends");
        Answer::of(child.wait_with_output().expect("it ends"))
    }
}

/// Runs `terrane insert --follow` on what it is to refuse.
#[track_caller]
fn follow(store: &Path, file: &Path, arguments: &[&str]) -> Answer {
    Follower::start(store, file, arguments).refuses()
}

#[track_caller]
fn holds(store: &Path, wanted: impl IntoIterator<Item = u64>) {
    let mut found: Vec<u64> = rows(store, "d", "key").iter().map(|row| row["n"].as_u64().expect("a number")).collect();
    found.sort_unstable();
    assert_eq!(found, wanted.into_iter().collect::<Vec<u64>>());
}

#[test]
fn a_file_is_followed_through_kills_without_loss_or_double() {
    let sandbox = Sandbox::new();
    let (store, file) = (sandbox.store(), sandbox.write("grows.ndjson", ""));
    const SEED: u64 = 5_117;
    eprintln!("seed {SEED}");
    let mut random = StdRng::seed_from_u64(SEED);
    let mut written = 0;
    for round in 0..20 {
        let flags: &[&str] = match round % 3 {
            0 => &["--memory-limit", "8MiB"],
            1 => &["--on-overload", "spill"],
            _ => &[],
        };
        let mut follower = Follower::start(&store, &file, flags);
        let more = random.random_range(1..400);
        let text = lines(written..written + more);
        // Half a line is waited for.
        let (begin, rest) = text.split_at(random.random_range(0..text.len()));
        append(&file, begin);
        follower.keys(random.random_range(0..=begin.lines().count().saturating_sub(1) as u64));
        if random.random_ratio(1, 2) {
            append(&file, rest);
            follower.end(Signal::KILL);
        } else {
            follower.end(Signal::KILL);
            append(&file, rest);
        }
        written += more;
    }
    // What is printed now is what no earlier one has stored.
    let mut follower = Follower::start(&store, &file, &[]);
    append(&file, &lines([written]));
    while terrane("query", &store, &["d", "--where", &format!("n = {written}"), "--count"]).number() == 0 {
        follower.keys(1);
    }
    follower.end(Signal::TERM).exits(143);
    holds(&store, 0..=written);
    is_clean(&store);
    let size = fs::metadata(&file).expect("it is there").len();
    let info = terrane("info", &store, &[]).exits(0).text();
    assert!(info.contains(&format!("grows.ndjson: read up to {size}")), "{info}");
}

#[test]
fn a_file_that_takes_the_name_is_read_after_the_rest_of_the_old_one() {
    let sandbox = Sandbox::new();
    let (store, file) = (sandbox.store(), sandbox.write("log", lines(0..10)));
    let mut follower = Follower::start(&store, &file, &[]);
    follower.keys(10);
    fs::rename(&file, sandbox.path("log.1")).expect("it is moved");
    append(&sandbox.path("log.1"), &lines(10..15));
    // The last line has no end, and gets none any more.
    append(&sandbox.path("log.1"), lines([15]).trim_end());
    let new = sandbox.write("log.new", lines(16..20));
    fs::rename(new, &file).expect("it takes the name");
    follower.keys(10);
    append(&file, &lines([20]));
    follower.keys(1);
    follower.end(Signal::INT).exits(130).says("was replaced; all that it held has been read");
    holds(&store, 0..21);
    // It is known again, and another one is not taken for it.
    append(&file, &lines([21]));
    let mut follower = Follower::start(&store, &file, &[]);
    follower.keys(1);
    follower.end(Signal::INT).exits(130);
    fs::write(&file, lines(30..60)).expect("it is written anew");
    follow(&store, &file, &[]).exits(1).says("is not the file that feed").says("--restart");
    let mut follower = Follower::start(&store, &file, &["--restart"]);
    follower.keys(30);
    follower.end(Signal::TERM).exits(143);
    holds(&store, (0..22).chain(30..60));
}

/// Files that have the name for a while and are moved on before the first one is read to its end.
#[test]
fn each_of_several_files_that_take_the_name_soon_after_each_other_is_read() {
    let sandbox = Sandbox::new();
    let (store, file) = (sandbox.store(), sandbox.write("log", lines(0..10)));
    let mut follower = Follower::start(&store, &file, &[]);
    follower.keys(10);
    let (descriptors, name) =
        (format!("/proc/{}/fd", follower.child.id()), fs::canonicalize(&file).expect("it is there"));
    let is_open = || {
        let entries = fs::read_dir(&descriptors).expect("it runs");
        entries.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok()).any(|link| link == name)
    };
    let moves = [10..20, 20..20, 20..30, 30..40];
    for (number, more) in moves.into_iter().enumerate() {
        fs::rename(&file, sandbox.path(&format!("log.{number}"))).expect("it is moved");
        fs::write(&file, lines(more)).expect("another one takes the name");
        while !is_open() {
            std::thread::yield_now();
        }
    }
    follower.keys(30);
    follower.end(Signal::INT).exits(130);
    holds(&store, 0..40);
    is_clean(&store);
}

/// While nobody follows it. The message says how to go on without a gap.
#[test]
fn a_file_that_is_moved_away_between_two_runs_is_read_to_its_end_under_its_new_name() {
    let sandbox = Sandbox::new();
    let (store, file) = (sandbox.store(), sandbox.write("log", lines(0..10)));
    let mut follower = Follower::start(&store, &file, &[]);
    follower.keys(10);
    follower.end(Signal::INT).exits(130);
    append(&file, &lines(10..25));
    let moved = sandbox.path("log.1");
    fs::rename(&file, &moved).expect("it is moved");
    fs::write(&file, lines(30..40)).expect("another one takes the name");
    let feed = file.to_str().expect("a name");
    follow(&store, &file, &[]).exits(1).says("read the rest of it first, with --feed").says(feed);
    for (path, more, keys) in [(&moved, ["--feed", feed].as_slice(), 15), (&file, ["--restart"].as_slice(), 10)] {
        let mut follower = Follower::start(&store, path, more);
        follower.keys(keys);
        follower.end(Signal::INT).exits(130);
    }
    holds(&store, (0..25).chain(30..40));
}

/// As programs do that are told of a rotation after it.
#[test]
fn who_goes_on_writing_to_a_file_that_was_moved_away_is_heard() {
    let sandbox = Sandbox::new();
    let (store, file) = (sandbox.store(), sandbox.write("log", lines(0..10)));
    let mut follower = Follower::start(&store, &file, &[]);
    follower.keys(10);
    let mut writer = OpenOptions::new().append(true).open(&file).expect("it is there");
    fs::rename(&file, sandbox.path("log.1")).expect("it is moved");
    fs::write(&file, "").expect("the new one is empty");
    // One by one, as each is read before the next is written.
    for number in 10..40 {
        writer.write_all(lines([number]).as_bytes()).expect("the old one grows");
        follower.keys(1);
    }
    append(&file, &lines(50..60));
    writer.write_all(lines([40]).as_bytes()).expect("the old one grows");
    follower.keys(11);
    follower.end(Signal::INT).exits(130);
    holds(&store, (0..41).chain(50..60));
}

#[test]
fn a_file_that_is_cut_and_grows_beyond_where_it_was_is_not_guessed_at() {
    let sandbox = Sandbox::new();
    let (store, file) = (sandbox.store(), sandbox.write("log", lines(0..100)));
    let mut follower = Follower::start(&store, &file, &[]);
    follower.keys(100);
    // Stopped, so that it does not look in between.
    let pid = Pid::from_raw(follower.child.id().cast_signed()).expect("a process");
    kill_process(pid, Signal::STOP).expect("it can be stopped");
    fs::write(&file, lines(1000..2000)).expect("it is written anew");
    kill_process(pid, Signal::CONT).expect("it goes on");
    follower.refuses().exits(1).says("it was truncated").says("--restart");
    holds(&store, 0..100);
}

#[test]
fn a_file_that_is_truncated_is_not_guessed_at() {
    let sandbox = Sandbox::new();
    let (store, file) = (sandbox.store(), sandbox.write("log", lines(0..100)));
    let mut follower = Follower::start(&store, &file, &[]);
    follower.keys(100);
    fs::write(&file, "").expect("it is truncated");
    follower.refuses().exits(1).says("it was truncated; with --restart it is read from its beginning");
    follow(&store, &file, &[]).exits(1).says("is not the file that feed");
    // As many bytes as before, and as it began, but not behind the end of a line.
    let text = lines(0..100);
    fs::write(&file, text.trim_end().to_owned() + " \n").expect("it is written anew");
    follow(&store, &file, &[]).exits(1).says("is not the file that feed");
    holds(&store, 0..100);
}

#[test]
fn lines_of_a_file_that_are_refused_are_passed_and_told_of_by_their_bytes() {
    let sandbox = Sandbox::new();
    let (store, good) = (sandbox.store(), lines([1]));
    let file = sandbox.write("log", format!("{good}no JSON\n{}{{\"n\":3,\"lon\":1,\"lat\":99}}\n", lines([2])));
    let mut follower = Follower::start(&store, &file, &[]);
    follower.keys(2);
    append(&file, &lines([4]));
    follower.keys(1);
    let said = follower.end(Signal::TERM).exits(143).says(&format!("byte {}: ", good.len())).stderr;
    assert!(!said.contains("line"), "{said}");
    let mut follower = Follower::start(&store, &file, &[]);
    append(&file, &lines([5]));
    follower.keys(1);
    let again = follower.end(Signal::TERM).exits(143);
    assert!(!again.stderr.contains("refused"), "what was refused is not read again: {}", again.stderr);
    holds(&store, [1, 2, 4, 5]);
}

#[test]
fn records_that_bring_their_positions_are_stored_once() {
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    let field = ["--offset-field", "n"];
    // Also of the input for which the dataset is made.
    let first = lines([0, 0, 7, 3, 8]);
    let answer = insert(&sandbox.path("first"), "d", first, &field).exits(5).says("line 2: column \"n\": position 0 ");
    answer.says("line 4: column \"n\": position 3 comes after 7").says("feed \"stdin\" goes on from position 9");
    holds(&sandbox.path("first"), [0, 7, 8]);
    insert(&store, "d", lines(0..50), &field).exits(0);
    insert(&store, "d", lines(20..70), &field).exits(0).says("passed 30 records that had been read before");
    let odd = [
        ("{\"n\":80,\"lon\":1,\"lat\":1}\n{\"n\":79,\"lon\":1,\"lat\":1}\n", "position 79 comes after 80"),
        ("{\"lon\":1,\"lat\":1}\n", "column \"n\": there is none"),
        ("{\"n\":-1,\"lon\":1,\"lat\":1}\n", "-1 is none"),
        ("{\"n\":90.5,\"lon\":1,\"lat\":1}\n", "90.5 is none"),
        ("{\"n\":18446744073709551615,\"lon\":1,\"lat\":1}\n", "is none"),
        // Refused for another reason: it is passed.
        ("{\"n\":91,\"lon\":1,\"lat\":91}\n", "91"),
    ];
    for (input, reason) in odd {
        insert(&store, "d", input, &field).exits(5).says(reason);
    }
    insert(&store, "d", lines([91]), &field).exits(0).says("passed 1 record that had been read before");
    insert(&store, "d", lines([1]), &["--offset-field", "lon"]).exits(1).says("\"lon\" are not those");
    // Another feed has a position of its own.
    insert(&store, "d", lines([100]), &["--offset-field", "n", "--feed", "other"]).exits(0);
    insert(&store, "d", lines([92]), &field).exits(0);
    holds(&store, (0..70).chain([80, 92, 100]));
    let info = terrane("info", &store, &["--format", "json"]).exits(0).json_lines();
    let feeds = &info[0]["datasets"][0]["feeds"];
    assert_eq!((&feeds[0]["name"], &feeds[0]["position"]), (&json!("stdin"), &json!(93)));
    assert_eq!((&feeds[1]["name"], &feeds[1]["position"]), (&json!("other"), &json!(101)));
}

#[test]
fn what_arrives_too_fast_is_kept_or_counted() {
    const RECORDS: u64 = 40_000;
    let sandbox = Sandbox::new();
    let spilled = sandbox.path("spilled");
    let flags = ["--memory-limit", "8MiB", "--on-overload"];
    insert(&spilled, "d", lines(0..RECORDS), &[&flags[..], &["spill"]].concat()).exits(0);
    holds(&spilled, 0..RECORDS);
    is_clean(&spilled);
    let discarded = sandbox.path("discarded");
    let answer = insert(&discarded, "d", lines(0..RECORDS), &[&flags[..], &["discard"]].concat()).exits(0);
    // What is said last; before, it is said now and then.
    let number = |before: &str, after: &str| -> Option<u64> {
        let (number, _) = answer.stderr.lines().rev().find_map(|line| line.strip_prefix(before)?.split_once(after))?;
        Some(number.replace(' ', "").parse().expect("a number"))
    };
    let inserted = number("inserted ", " record").expect("it is said");
    let lost = number("warning: ", " records were discarded, as they arrived").expect("it is said, as much was lost");
    assert_eq!(inserted + lost, RECORDS, "{}", answer.stderr);
    assert!(answer.stderr.contains(" so far, as they arrive"), "{}", answer.stderr);
    assert_eq!(rows(&discarded, "d", "key").len() as u64, inserted);
}

#[test]
fn what_cannot_be_a_source_is_refused() {
    let sandbox = Sandbox::new();
    let (store, file) = (sandbox.store(), sandbox.write("log", lines([1])));
    follow(&store, &sandbox.path("missing"), &[]).exits(2).says("missing");
    follow(&store, sandbox.path(".").as_path(), &[]).exits(2).says("no regular file");
    follow(&store, &file, &["--offset-field", "n"]).exits(2);
    insert(&store, "d", lines([1]), &["--feed", "f"]).exits(2);
    insert(&store, "d", lines([1]), &["--restart"]).exits(2);
    for name in ["", "a\nb", &"n".repeat(5000)] {
        insert(&store, "d", lines([1]), &["--offset-field", "n", "--feed", name]).exits(2).says("feed's name");
    }
    follow(&store, &sandbox.write("a\nb", lines([1])), &[]).exits(2).says("feed's name");
    assert!(!store.exists(), "no store is left behind");
}

#[test]
fn two_feeds_of_a_name_are_one_after_the_other() {
    let sandbox = Sandbox::new();
    let (store, file) = (sandbox.store(), sandbox.write("log", lines([1])));
    let mut command =
        command(["insert".as_ref(), store.as_os_str(), "d".as_ref(), "--follow".as_ref(), file.as_os_str()]);
    let mut child = command.stdout(Stdio::piped()).spawn().expect("the binary runs");
    let mut key = String::new();
    BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut key).expect("a key");
    // The store has one writer.
    follow(&store, &file, &[]).exits(4);
    child.kill().expect("it ends");
    child.wait().expect("it ends");
}

/// As a service that is started before anything is written to the file.
#[test]
fn a_file_of_which_all_lines_were_refused_is_known_again() {
    let sandbox = Sandbox::new();
    let (store, file) = (sandbox.store(), sandbox.write("log", ""));
    insert(&store, "d", lines([0]), &[]).exits(0);
    let mut follower = Follower::start(&store, &file, &[]);
    // The feed is open, and the file had nothing to be known by.
    follower.hears("from byte 0 on");
    append(&file, "no JSON\n");
    follower.hears("byte 0: ");
    follower.end(Signal::TERM).exits(143);
    append(&file, &lines([1]));
    let mut follower = Follower::start(&store, &file, &[]);
    follower.keys(1);
    follower.end(Signal::TERM).exits(143);
    holds(&store, 0..2);
}

/// What files of one program begin with, such as a line that says how it was started.
fn log(beginning: &str, numbers: Range<u64>) -> String {
    let line = |number| format!("{{\"n\":{number},\"lon\":1,\"lat\":2,\"text\":\"all lines have the same length\"}}\n");
    beginning.to_owned() + &numbers.map(line).collect::<String>()
}

/// Its lines are where those of the old one are, so that a line ends where that was left.
#[test]
fn a_file_that_begins_as_the_old_one_did_is_not_taken_for_it() {
    let short = lines([1]);
    for (beginning, signal) in [
        (short.clone(), Signal::TERM),
        (short.clone(), Signal::KILL),
        (short.repeat(60), Signal::TERM),
        (short.repeat(60), Signal::KILL),
    ] {
        let sandbox = Sandbox::new();
        let (store, file) = (sandbox.store(), sandbox.write("log", ""));
        let mut follower = Follower::start(&store, &file, &[]);
        follower.hears("from byte 0 on");
        append(&file, &beginning);
        follower.keys(beginning.lines().count() as u64);
        append(&file, &log("", 100..400));
        follower.keys(300);
        follower.end(signal);
        fs::rename(&file, sandbox.path("log.1")).expect("it is moved");
        fs::write(&file, log(&beginning, 500..900)).expect("another one takes the name");
        follow(&store, &file, &[]).exits(1).says("is not the file that feed").says("--restart");
        let mut follower = Follower::start(&store, &sandbox.path("log.1"), &["--feed", file.to_str().expect("a name")]);
        append(&sandbox.path("log.1"), &log("", 400..401));
        follower.keys(1);
        follower.end(Signal::TERM).exits(143);
    }
}

#[test]
fn a_file_that_is_cut_and_begins_again_as_it_did_is_not_guessed_at() {
    let sandbox = Sandbox::new();
    let beginning = lines([1]).repeat(60);
    let (store, file) = (sandbox.store(), sandbox.write("log", log(&beginning, 100..200)));
    let mut follower = Follower::start(&store, &file, &[]);
    follower.keys(160);
    // Stopped, so that it does not look in between.
    let pid = Pid::from_raw(follower.child.id().cast_signed()).expect("a process");
    kill_process(pid, Signal::STOP).expect("it can be stopped");
    fs::write(&file, log(&beginning, 500..900)).expect("it is written anew");
    kill_process(pid, Signal::CONT).expect("it goes on");
    follower.refuses().exits(1).says("it was truncated").says("--restart");
    follow(&store, &file, &[]).exits(1).says("is not the file that feed");
}

/// Of a file that was moved away, the last line is taken without its end; then the new file is gone on with.
#[test]
fn a_kill_between_the_last_line_of_a_file_and_the_next_file_leaves_the_feed_at_the_end() {
    let sandbox = Sandbox::new();
    let (store, file, moved) = (sandbox.store(), sandbox.write("log", lines(0..10)), sandbox.path("log.1"));
    let mut follower = Follower::start(&store, &file, &[]);
    follower.keys(10);
    follower.end(Signal::TERM).exits(143);
    append(&file, lines([10]).trim_end());
    let name = fs::canonicalize(&file).expect("it is there").to_str().expect("a name").to_owned();
    fs::rename(&file, &moved).expect("it is moved");
    fs::write(&file, lines(20..40)).expect("another one takes the name");
    // What the kill leaves.
    let opened = Store::open(&store, Options::default()).expect("it opens");
    let mut feed = opened.dataset("d").expect("it is there").feed(&name).expect("it is there");
    feed.pass(fs::metadata(&moved).expect("it is there").len()).expect("it is kept");
    drop(feed);
    opened.close().expect("it closes");
    follow(&store, &file, &[]).exits(1).says("read the rest of it first, with --feed");
    let mut follower = Follower::start(&store, &moved, &["--feed", &name]);
    follower.hears("reading ");
    follower.end(Signal::TERM).exits(143);
    let mut follower = Follower::start(&store, &file, &["--restart"]);
    follower.keys(20);
    follower.end(Signal::TERM).exits(143);
    holds(&store, (0..10).chain(20..40));
}

/// Of a store that knows its files by their first bytes alone.
#[test]
fn a_feed_of_an_earlier_store_is_gone_on_with() {
    let sandbox = Sandbox::new();
    let (store, file) = (sandbox.store(), sandbox.write("log", lines(0..10)));
    let name = fs::canonicalize(&file).expect("it is there").to_str().expect("a name").to_owned();
    insert(&store, "d", lines(0..10), &["--offset-field", "n", "--feed", "other"]).exits(0);
    let opened = Store::open(&store, Options::default()).expect("it opens");
    let mut feed = opened.dataset("d").expect("it is there").feed(&name).expect("it is made");
    let text = lines(0..10);
    let first = &text.as_bytes()[..20];
    feed.set_source(&format!("20 bytes with xxh3 {:016x}", xxh3_64(first))).expect("it is kept");
    feed.pass(text.len() as u64).expect("it is kept");
    drop(feed);
    opened.close().expect("it closes");
    append(&file, &lines(10..15));
    let mut follower = Follower::start(&store, &file, &[]);
    follower.keys(5);
    follower.end(Signal::TERM).exits(143);
    holds(&store, 0..15);
}

/// Sets a link anew in one step.
fn set_link(link: &Path, target: &Path) {
    let new = link.with_extension("new");
    symlink(target, &new).expect("a link");
    fs::rename(new, link).expect("it takes the name");
}

#[test]
fn a_link_that_is_set_to_another_file_is_a_file_that_takes_the_name() {
    let sandbox = Sandbox::new();
    let (store, link) = (sandbox.store(), sandbox.path("current"));
    let files = [0..10, 10..20, 20..30].map(|numbers| sandbox.write(&format!("{}.log", numbers.start), lines(numbers)));
    set_link(&link, &files[0]);
    let mut follower = Follower::start(&store, &link, &[]);
    follower.keys(10);
    set_link(&link, &files[1]);
    follower.keys(10);
    follower.end(Signal::TERM).exits(143).says("was replaced; all that it held has been read");
    let mut follower = Follower::start(&store, &link, &[]);
    append(&files[1], &lines([50]));
    follower.keys(1);
    follower.end(Signal::KILL);
    // While nobody follows it.
    append(&files[1], &lines([51]));
    set_link(&link, &files[2]);
    let name = fs::canonicalize(sandbox.path(".")).expect("it is there").join("current");
    let name = name.to_str().expect("a name");
    follow(&store, &link, &[]).exits(1).says("read the rest of it first, with --feed").says(name);
    let mut follower = Follower::start(&store, &files[1], &["--feed", name]);
    follower.keys(1);
    follower.end(Signal::TERM).exits(143);
    let mut follower = Follower::start(&store, &link, &["--restart"]);
    follower.keys(10);
    follower.end(Signal::TERM).exits(143);
    holds(&store, (0..30).chain(50..52));
}

#[test]
fn a_link_to_a_file_that_was_read_by_its_own_name_is_not_read_anew() {
    let sandbox = Sandbox::new();
    let (store, file, link) = (sandbox.store(), sandbox.write("log", lines(0..10)), sandbox.path("current"));
    set_link(&link, &file);
    let mut follower = Follower::start(&store, &file, &[]);
    follower.keys(10);
    follower.end(Signal::TERM).exits(143);
    let name = fs::canonicalize(&file).expect("it is there").to_str().expect("a name").to_owned();
    follow(&store, &link, &[]).exits(1).says(&format!("go on with --feed {name:?}")).says("--restart");
    let mut follower = Follower::start(&store, &link, &["--feed", &name]);
    append(&file, &lines([10]));
    follower.keys(1);
    set_link(&link, &sandbox.write("log.new", lines(20..30)));
    follower.keys(10);
    follower.end(Signal::TERM).exits(143);
    holds(&store, (0..11).chain(20..30));
}

#[test]
fn directories_that_are_links_are_followed_under_a_name_and_else_resolved() {
    let sandbox = Sandbox::new();
    let (store, link) = (sandbox.store(), sandbox.path("today"));
    let directories = ["monday", "tuesday"].map(|name| sandbox.path(name));
    for (directory, numbers) in directories.iter().zip([0..10, 10..20]) {
        fs::create_dir(directory).expect("a directory");
        fs::write(directory.join("log"), lines(numbers)).expect("a file");
    }
    set_link(&link, &directories[0]);
    let mut follower = Follower::start(&store, &link.join("log"), &["--feed", "days"]);
    follower.keys(10);
    set_link(&link, &directories[1]);
    follower.keys(10);
    follower.end(Signal::TERM).exits(143);
    holds(&store, 0..20);
    let mut follower = Follower::start(&store, &link.join("log"), &[]);
    follower.keys(10);
    follower.end(Signal::TERM).exits(143);
    let info = terrane("info", &store, &[]).exits(0).text();
    let name = fs::canonicalize(directories[1].join("log")).expect("it is there");
    assert!(info.contains(&format!("feed {}: read up to", name.display())), "{info}");
}
