//! Feeds: a restarted insert continues behind the last stored record, and stores none twice. The
//! datasets number their rows, so a record that came twice would be stored twice.

use std::fs;
use std::thread;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rustix::process::Signal;
use serde_json::json;

use crate::follower::{Follower, append, follow, holds, lines};
use crate::support::{Sandbox, count, insert, is_clean, rows, terrane};

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
        // The command waits for the rest of half a line.
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
    // Exactly the records are printed now that no earlier run stored.
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
    // Also for the input from which the dataset is created.
    let first = lines([0, 0, 7, 3, 8]);
    let answer = insert(&sandbox.path("first"), "d", first, &field).exits(5).says("line 2: column \"n\": position 0 ");
    answer.says("line 4: column \"n\": position 3 comes after 7").says("feed \"stdin\" continues at position 9");
    holds(&sandbox.path("first"), [0, 7, 8]);
    insert(&store, "d", lines(0..50), &field).exits(0);
    insert(&store, "d", lines(20..70), &field).exits(0).says("skipped 30 records that had been read before");
    let odd = [
        ("{\"n\":80,\"lon\":1,\"lat\":1}\n{\"n\":79,\"lon\":1,\"lat\":1}\n", "position 79 comes after 80"),
        ("{\"lon\":1,\"lat\":1}\n", "column \"n\": there is none"),
        ("{\"n\":-1,\"lon\":1,\"lat\":1}\n", "-1 is none"),
        ("{\"n\":90.5,\"lon\":1,\"lat\":1}\n", "90.5 is none"),
        ("{\"n\":18446744073709551615,\"lon\":1,\"lat\":1}\n", "is none"),
        // Refused for another reason, so it is skipped.
        ("{\"n\":91,\"lon\":1,\"lat\":91}\n", "91"),
    ];
    for (input, reason) in odd {
        insert(&store, "d", input, &field).exits(5).says(reason);
    }
    insert(&store, "d", lines([91]), &field).exits(0).says("skipped 1 record that had been read before");
    insert(&store, "d", lines([1]), &["--offset-field", "lon"])
        .exits(1)
        .says("has read another source up to 92: positions in \"n\"");
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
    let number = |before: &str, after: &str| -> Option<u64> {
        let (number, _) = answer.stderr.lines().rev().find_map(|line| line.strip_prefix(before)?.split_once(after))?;
        Some(number.replace(' ', "").parse().expect("a number"))
    };
    let inserted = number("inserted ", " record").expect("it is said");
    let lost = number("warning: ", " records were discarded, as they arrived").expect("it is said, as much was lost");
    assert_eq!(inserted + lost, RECORDS, "{}", answer.stderr);
    assert_eq!(rows(&discarded, "d", "key").len() as u64, inserted);
}

/// A process killed then has printed everything.
#[test]
fn discards_are_told_while_nothing_arrives() {
    const RECORDS: u64 = 100_000;
    let sandbox = Sandbox::new();
    let (store, file) = (sandbox.store(), sandbox.write("log", lines(0..RECORDS)));
    let mut follower = Follower::start(&store, &file, &["--memory-limit", "8MiB", "--on-overload", "discard"]);
    let (keys, (said, messages)) = (follower.drains_keys(), follower.drains_messages());
    let lost = || -> Option<u64> {
        let said = said.lock().expect("no reader panics");
        let last = said.lines().rev().find(|line| line.contains(" so far, as they arrive"))?;
        let (lost, _) = last.strip_prefix("warning: ")?.split_once(" records were")?;
        Some(lost.replace(' ', "").parse().expect("a number"))
    };
    while lost().is_none_or(|lost| lost + count(&store, "d") < RECORDS) {
        thread::yield_now();
    }
    assert_eq!(lost().map(|lost| lost + count(&store, "d")), Some(RECORDS));
    follower.end(Signal::KILL);
    keys.join().expect("it ends");
    messages.join().expect("it ends");
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
    let mut follower = Follower::start(&store, &file, &[]);
    follower.keys(1);
    // The store has one writer.
    follow(&store, &file, &[]).exits(4);
}

/// As a service that starts before anything is written to the file.
#[test]
fn a_file_of_which_all_lines_were_refused_is_known_again() {
    let sandbox = Sandbox::new();
    let (store, file) = (sandbox.store(), sandbox.write("log", ""));
    insert(&store, "d", lines([0]), &[]).exits(0);
    let mut follower = Follower::start(&store, &file, &[]);
    // The feed is open, and the file had no content to be recognised by.
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
