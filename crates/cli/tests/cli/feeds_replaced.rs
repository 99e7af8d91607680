//! Feeds of files that are rotated or truncated.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::thread;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rustix::process::Signal;

use crate::follower::{Follower, append, follow, holds, lines};
use crate::support::{Sandbox, count, insert, is_clean};

#[test]
fn a_file_that_takes_the_name_is_read_after_the_rest_of_the_old_one() {
    let sandbox = Sandbox::new();
    let (store, file) = (sandbox.store(), sandbox.write("log", lines(0..10)));
    let mut follower = Follower::start(&store, &file, &[]);
    follower.keys(10);
    fs::rename(&file, sandbox.path("log.1")).expect("it is moved");
    append(&sandbox.path("log.1"), &lines(10..15));
    // The last line has no end, and will not get one.
    append(&sandbox.path("log.1"), lines([15]).trim_end());
    let new = sandbox.write("log.new", lines(16..20));
    fs::rename(new, &file).expect("it takes the name");
    follower.keys(10);
    append(&file, &lines([20]));
    follower.keys(1);
    follower.end(Signal::INT).exits(130).says("was replaced; its old content has been read");
    // The new file is the one that the feed has read.
    append(&file, &lines([21]));
    let mut follower = Follower::start(&store, &file, &[]);
    follower.keys(1);
    follower.end(Signal::INT).exits(130);
    holds(&store, 0..22);
}

/// Files that have the name for a while and are moved away before the first one is read to its end.
#[test]
fn each_of_several_files_that_take_the_name_soon_after_each_other_is_read() {
    let sandbox = Sandbox::new();
    let (store, file) = (sandbox.store(), sandbox.write("log", lines(0..10)));
    let mut follower = Follower::start(&store, &file, &[]);
    follower.keys(10);
    let moves = [10..20, 20..20, 20..30, 30..40];
    for (number, more) in moves.into_iter().enumerate() {
        fs::rename(&file, sandbox.path(&format!("log.{number}"))).expect("it is moved");
        fs::write(&file, lines(more)).expect("another one takes the name");
        follower.opens(&file);
    }
    follower.keys(30);
    follower.end(Signal::INT).exits(130);
    holds(&store, 0..40);
    is_clean(&store);
}

/// While no process follows it. The empty file is recognised by its inode.
#[test]
fn a_file_that_is_moved_away_between_two_runs_is_read_to_its_end() {
    for before in [0..0, 0..1, 0..100] {
        let sandbox = Sandbox::new();
        let (store, file) = (sandbox.store(), sandbox.write("log", lines(before.clone())));
        insert(&store, "d", lines([1000]), &[]).exits(0);
        let mut follower = Follower::start(&store, &file, &[]);
        follower.hears("from byte 0 on");
        follower.keys(before.end);
        follower.end(Signal::KILL);
        append(&file, &lines(before.end..before.end + 20));
        fs::rename(&file, sandbox.path("elsewhere.1")).expect("it is moved");
        fs::write(&file, lines(500..510)).expect("another one takes the name");
        let mut follower = Follower::start(&store, &file, &[]);
        follower.keys(30);
        follower.end(Signal::TERM).exits(143).says("was replaced");
        holds(&store, (0..before.end + 20).chain(500..510).chain([1000]));
    }
}

#[test]
fn files_that_may_have_had_the_name_in_between_are_named() {
    let sandbox = Sandbox::new();
    let (store, file) = (sandbox.store(), sandbox.write("log", lines(0..10)));
    let mut follower = Follower::start(&store, &file, &[]);
    follower.keys(10);
    follower.end(Signal::TERM).exits(143);
    fs::rename(&file, sandbox.path("log.2")).expect("it is moved");
    let later = fs::metadata(sandbox.path("log.2")).and_then(|old| old.modified()).expect("it has a time");
    let skipped = sandbox.write("log.1", lines(10..20));
    let opened = OpenOptions::new().append(true).open(&skipped).expect("it is there");
    opened.set_modified(later + Duration::from_secs(1)).expect("it can be set");
    fs::write(&file, lines(20..30)).expect("another one takes the name");
    let mut follower = Follower::start(&store, &file, &[]);
    follower.keys(10);
    follower.end(Signal::TERM).exits(143).says("log.1 is not read");
    holds(&store, (0..10).chain(20..30));
}

/// Appends records from a number on; returns how many.
fn grow(file: &Path, from: u64, random: &mut StdRng) -> u64 {
    let count = random.random_range(1..300);
    append(file, &lines(from..from + count));
    count
}

#[test]
fn a_file_that_is_followed_through_kills_and_rotations_is_stored_once() {
    const SEED: u64 = 5_118;
    eprintln!("seed {SEED}");
    let mut random = StdRng::seed_from_u64(SEED);
    let sandbox = Sandbox::new();
    let (store, file) = (sandbox.store(), sandbox.write("log", lines([0])));
    let (mut written, mut rotations) = (1, 0);
    let mut follower = Follower::start(&store, &file, &[]);
    follower.keys(1);
    follower.end(Signal::KILL);
    for _ in 0..12 {
        let mut follower = Follower::start(&store, &file, &[]);
        let keys = follower.drains_keys();
        written += grow(&file, written, &mut random);
        // Only one file at a time has been replaced and not been read to its end.
        while count(&store, "d") < written {
            thread::yield_now();
        }
        written += grow(&file, written, &mut random);
        let mut rotate = || {
            fs::rename(&file, sandbox.path(&format!("log.{rotations}"))).expect("it is moved");
            rotations += 1;
            fs::write(&file, lines(written..written + 5)).expect("another one takes the name");
            written += 5;
        };
        match random.random_range(0..3) {
            0 => {
                rotate();
                follower.end(Signal::KILL);
            }
            1 => {
                follower.end(Signal::KILL);
                rotate();
            }
            _ => _ = follower.end(Signal::KILL),
        }
        keys.join().expect("it ends");
    }
    let mut follower = Follower::start(&store, &file, &[]);
    let keys = follower.drains_keys();
    while count(&store, "d") < written {
        thread::yield_now();
    }
    follower.end(Signal::TERM).exits(143);
    keys.join().expect("it ends");
    assert!(rotations > 3);
    holds(&store, 0..written);
    is_clean(&store);
}

#[test]
fn a_rotation_that_is_taken_back_is_none() {
    let sandbox = Sandbox::new();
    let (store, file, moved) = (sandbox.store(), sandbox.write("log", lines(0..10)), sandbox.path("log.1"));
    let mut follower = Follower::start(&store, &file, &[]);
    follower.keys(10);
    for number in 10..13 {
        fs::rename(&file, &moved).expect("it is moved");
        fs::write(&file, "").expect("another one takes the name");
        follower.opens(&file);
        fs::rename(&moved, &file).expect("it gets its name back");
        append(&file, &lines([number]));
        follower.keys(1);
    }
    fs::rename(&file, &moved).expect("it is moved");
    fs::write(&file, lines(13..20)).expect("another one takes the name");
    follower.keys(7);
    let answer = follower.end(Signal::TERM).exits(143);
    assert_eq!(answer.stderr.matches("was replaced").count(), 1, "{}", answer.stderr);
    holds(&store, 0..20);
}

/// Like programs that are told of a rotation only after it.
#[test]
fn a_writer_that_continues_with_the_file_that_was_moved_away_is_heard() {
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
fn a_file_that_is_truncated_is_read_from_its_beginning() {
    let sandbox = Sandbox::new();
    let (store, file) = (sandbox.store(), sandbox.write("log", lines(0..100)));
    let mut follower = Follower::start(&store, &file, &[]);
    follower.keys(100);
    fs::write(&file, lines(100..110)).expect("it is truncated");
    follower.keys(10);
    append(&file, &lines(110..120));
    follower.keys(10);
    follower.end(Signal::KILL);
    // While no process follows it.
    fs::write(&file, lines(120..125)).expect("it is truncated");
    let mut follower = Follower::start(&store, &file, &[]);
    follower.keys(5);
    follower.end(Signal::TERM).exits(143).says("was truncated; it is read from the beginning");
    let mut follower = Follower::start(&store, &file, &[]);
    append(&file, &lines([125]));
    follower.keys(1);
    follower.end(Signal::TERM).exits(143);
    holds(&store, 0..126);
}

#[test]
fn a_file_that_is_truncated_and_grows_beyond_its_position_is_not_guessed_at() {
    let sandbox = Sandbox::new();
    let (store, file) = (sandbox.store(), sandbox.write("log", lines(0..100)));
    let mut follower = Follower::start(&store, &file, &[]);
    follower.keys(100);
    follower.sleeps_while(|| fs::write(&file, lines(1000..2000)).expect("it is written anew"));
    follower.refuses().exits(1).says("it was truncated and written anew").says("--restart");
    follow(&store, &file, &[]).exits(1).says("is not the file that feed").says("--restart");
    holds(&store, 0..100);
    let mut follower = Follower::start(&store, &file, &["--restart"]);
    follower.keys(1000);
    follower.end(Signal::TERM).exits(143);
    holds(&store, (0..100).chain(1000..2000));
}

/// The message tells how to continue with a copy, without a gap.
#[test]
fn a_file_that_is_gone_is_missed() {
    let sandbox = Sandbox::new();
    let (store, file) = (sandbox.store(), sandbox.write("log", lines(0..10)));
    let mut follower = Follower::start(&store, &file, &[]);
    follower.keys(10);
    follower.end(Signal::INT).exits(130);
    let position = fs::metadata(&file).expect("it is there").len();
    append(&file, &lines(10..25));
    let copy = fs::read_to_string(&file).expect("it is there");
    fs::create_dir(sandbox.path("old")).expect("a directory");
    fs::rename(&file, sandbox.path("old/log")).expect("it is moved");
    fs::write(&file, lines(30..40)).expect("another one takes the name");
    let advice = format!("tail -c +{} COPY", position + 1);
    follow(&store, &file, &[]).exits(1).says("no file in its directory is").says(&advice).says("--restart");
    insert(&store, "d", &copy[position as usize..], &[]).exits(0);
    let mut follower = Follower::start(&store, &file, &["--restart"]);
    follower.keys(10);
    follower.end(Signal::INT).exits(130);
    holds(&store, (0..25).chain(30..40));
}

/// Sets a link anew in one step.
fn set_link(link: &Path, target: &Path) {
    let new = link.with_extension("new");
    symlink(target, &new).expect("a link");
    fs::rename(new, link).expect("it takes the name");
}

#[test]
fn a_link_that_is_set_to_another_file_is_a_rotation() {
    let sandbox = Sandbox::new();
    let (store, link) = (sandbox.store(), sandbox.path("current"));
    let files = [0..10, 10..20, 20..30].map(|numbers| sandbox.write(&format!("{}.log", numbers.start), lines(numbers)));
    set_link(&link, &files[0]);
    let mut follower = Follower::start(&store, &link, &[]);
    follower.keys(10);
    set_link(&link, &files[1]);
    follower.keys(10);
    follower.end(Signal::TERM).exits(143).says("was replaced; its old content has been read");
    // While no process follows it.
    append(&files[1], &lines([50]));
    set_link(&link, &files[2]);
    let mut follower = Follower::start(&store, &link, &[]);
    follower.keys(11);
    follower.end(Signal::TERM).exits(143);
    holds(&store, (0..30).chain([50]));
}
