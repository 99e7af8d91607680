//! Feeds of files that are truncated, or replaced under their names.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::ops::Range;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path;

use rustix::process::Signal;
use terrane::{Options, Store};

use crate::follower::{Follower, append, follow, holds, lines};
use crate::support::{Sandbox, insert, is_clean, terrane};

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
    holds(&store, 0..21);
    // It is recognised again, and no other file is taken for it.
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

/// While no process follows it. The message tells how to continue without a gap.
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
    // Nor is the empty one begun, in which a kill would leave the feed.
    assert_eq!(answer.stderr.matches("was replaced").count(), 1, "{}", answer.stderr);
    holds(&store, 0..20);
}

#[test]
fn what_takes_the_name_and_is_no_file_is_told_of() {
    let sandbox = Sandbox::new();
    let (store, file) = (sandbox.store(), sandbox.write("log", lines(0..10)));
    let mut follower = Follower::start(&store, &file, &[]);
    follower.keys(10);
    fs::remove_file(&file).expect("it is there");
    let _socket = UnixListener::bind(&file).expect("a socket takes the name");
    follower.refuses().exits(2).says("is no regular file");
    holds(&store, 0..10);
}

/// It had no content to recognise it by.
#[test]
fn a_file_that_was_empty_is_known_again_by_its_inode() {
    let sandbox = Sandbox::new();
    let (store, file, moved) = (sandbox.store(), sandbox.write("log", ""), sandbox.path("log.1"));
    insert(&store, "d", lines([0]), &[]).exits(0);
    let mut follower = Follower::start(&store, &file, &[]);
    follower.hears("from byte 0 on");
    follower.end(Signal::KILL);
    let name = fs::canonicalize(&file).expect("it is there").to_str().expect("a name").to_owned();
    append(&file, &lines(1..5));
    fs::rename(&file, &moved).expect("it is moved");
    fs::write(&file, lines(5..9)).expect("another one takes the name");
    follow(&store, &file, &[])
        .exits(1)
        .says("is not the file that feed")
        .says("read the rest of it first, with --feed");
    for (path, flags) in [(&moved, ["--feed", &name].as_slice()), (&file, ["--restart"].as_slice())] {
        let mut follower = Follower::start(&store, path, flags);
        follower.keys(4);
        follower.end(Signal::TERM).exits(143);
    }
    holds(&store, 0..9);
}

/// Like programs that are told of a rotation only after it.
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
    follower.sleeps_while(|| fs::write(&file, lines(1000..2000)).expect("it is written anew"));
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
    follower.refuses().exits(1).says("it was truncated: it has 0 bytes");
    follow(&store, &file, &[]).exits(1).says("is not the file that feed");
    // Of the same length and beginning, but not cut behind the end of a line.
    let text = lines(0..100);
    fs::write(&file, text.trim_end().to_owned() + " \n").expect("it is written anew");
    follow(&store, &file, &[]).exits(1).says("is not the file that feed");
    holds(&store, 0..100);
}

/// The common beginning of files of one program, such as a line on how it was started.
fn log(beginning: &str, numbers: Range<u64>) -> String {
    let line = |number| format!("{{\"n\":{number},\"lon\":1,\"lat\":2,\"text\":\"all lines have the same length\"}}\n");
    beginning.to_owned() + &numbers.map(line).collect::<String>()
}

/// Its lines are at the offsets of the old file's, so a line ends where that one was left.
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
    follower.sleeps_while(|| fs::write(&file, log(&beginning, 500..900)).expect("it is written anew"));
    follower.refuses().exits(1).says("it was truncated").says("--restart");
    follow(&store, &file, &[]).exits(1).says("is not the file that feed");
}

/// Like programs that copy a file away and truncate it, before another one takes its name.
#[test]
fn a_file_that_is_cut_and_grows_to_where_it_was_is_not_taken_for_read() {
    let sandbox = Sandbox::new();
    let (store, file) = (sandbox.store(), sandbox.write("log", log("", 100..200)));
    let mut follower = Follower::start(&store, &file, &[]);
    follower.keys(100);
    follower.sleeps_while(|| {
        fs::write(&file, log("", 200..300)).expect("it is written anew");
        fs::rename(&file, sandbox.path("log.1")).expect("it is moved");
        fs::write(&file, log("", 300..400)).expect("another one takes the name");
    });
    follower.refuses().exits(1).says("its content has changed since it was read").says("--restart");
    holds(&store, 100..200);
}

/// Also if only its end tells that it was written anew, and this run has read nothing of it.
#[test]
fn a_file_that_was_followed_before_is_known_by_what_was_read_of_it_then() {
    let sandbox = Sandbox::new();
    let beginning = lines([1]).repeat(60);
    let (store, file) = (sandbox.store(), sandbox.write("log", log(&beginning, 100..200)));
    let mut follower = Follower::start(&store, &file, &[]);
    follower.keys(160);
    follower.end(Signal::TERM).exits(143);
    let mut follower = Follower::start(&store, &file, &[]);
    follower.hears("reading ");
    follower.sleeps_while(|| fs::write(&file, log(&beginning, 500..900)).expect("it is written anew"));
    follower.refuses().exits(1).says("it was truncated").says("--restart");
}

/// The last line of a file that was moved away is taken without its end; then the new file is read.
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
    // The state after the kill.
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
    follower.end(Signal::TERM).exits(143).says("was replaced; its old content has been read");
    let mut follower = Follower::start(&store, &link, &[]);
    append(&files[1], &lines([50]));
    follower.keys(1);
    follower.end(Signal::KILL);
    // While no process follows it.
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
fn a_link_that_is_set_back_is_gone_on_with_where_the_file_was_left() {
    let sandbox = Sandbox::new();
    let (store, link) = (sandbox.store(), sandbox.path("current"));
    let files = [sandbox.write("a", lines(0..10)), sandbox.write("b", lines(10..20))];
    set_link(&link, &files[0]);
    let mut follower = Follower::start(&store, &link, &[]);
    follower.keys(10);
    set_link(&link, &files[1]);
    follower.keys(10);
    for number in 20..26 {
        let file = &files[number as usize % 2];
        // While the link leads to the other one.
        append(file, &lines([number]));
        set_link(&link, file);
        follower.keys(1);
    }
    // A new file in the place of a left one is not that file, even with the same inode.
    fs::write(&files[0], lines(30..40)).expect("it is written anew");
    set_link(&link, &files[0]);
    follower.keys(10);
    append(&files[1], &lines([26]));
    set_link(&link, &files[1]);
    follower.keys(1);
    // A kill leaves the feed in the middle of the second one.
    follower.end(Signal::KILL);
    append(&files[1], &lines([27]));
    let mut follower = Follower::start(&store, &link, &[]);
    follower.keys(1);
    follower.end(Signal::TERM).exits(143);
    holds(&store, (0..28).chain(30..40));
    is_clean(&store);
}

/// The feed knows the files that it left after a restart as well.
#[test]
fn a_file_that_gets_its_name_back_after_a_restart_is_gone_on_with() {
    for signal in [Signal::TERM, Signal::KILL] {
        let sandbox = Sandbox::new();
        let (store, file) = (sandbox.store(), sandbox.write("log", lines(0..10)));
        let (first, second) = (sandbox.path("log.1"), sandbox.path("log.2"));
        let mut follower = Follower::start(&store, &file, &[]);
        follower.keys(10);
        fs::rename(&file, &first).expect("it is moved");
        fs::write(&file, lines(10..20)).expect("another one takes the name");
        follower.keys(10);
        follower.end(signal);
        append(&first, &lines([20]));
        append(&file, &lines([21]));
        let mut follower = Follower::start(&store, &file, &[]);
        follower.keys(1);
        fs::rename(&file, &second).expect("it is moved");
        fs::rename(&first, &file).expect("it gets its name back");
        follower.keys(1);
        append(&file, &lines([22]));
        follower.keys(1);
        follower.end(Signal::TERM).exits(143);
        holds(&store, 0..23);
    }
}

/// Its inode is reused, and it begins like the other one.
#[test]
fn a_new_file_in_the_place_of_one_that_was_removed_is_read_from_its_beginning() {
    let sandbox = Sandbox::new();
    let (store, file, moved) = (sandbox.store(), sandbox.write("log", lines([1])), sandbox.path("log.1"));
    let mut follower = Follower::start(&store, &file, &[]);
    follower.keys(1);
    for _ in 0..2 {
        fs::rename(&file, &moved).expect("it is moved");
        fs::write(&file, lines([2])).expect("another one takes the name");
        follower.keys(1);
        fs::remove_file(&moved).expect("it is there");
        fs::rename(&file, &moved).expect("it is moved");
        fs::write(&file, lines([1, 3])).expect("another one takes the name");
        follower.keys(2);
    }
    follower.end(Signal::TERM).exits(143);
    holds(&store, [1, 1, 1, 2, 2, 3, 3]);
}

/// It may never pause for a second.
#[test]
fn a_file_that_grows_all_the_time_does_not_keep_one_from_being_read_that_had_its_name_meanwhile() {
    let sandbox = Sandbox::new();
    let (store, link) = (sandbox.store(), sandbox.path("current"));
    let files = [sandbox.write("a", lines(0..10)), sandbox.write("b", lines([1_000_000]))];
    set_link(&link, &files[0]);
    let mut follower = Follower::start(&store, &link, &[]);
    follower.keys(10);
    set_link(&link, &files[1]);
    follower.opens(&files[1]);
    set_link(&link, &files[0]);
    let mut written = 10;
    while terrane("query", &store, &["d", "--where", "n = 1000000", "--count"]).number() == 0 {
        append(&files[0], &lines([written]));
        written += 1;
        assert!(written < 1000, "it waits for a pause");
        follower.keys(1);
    }
    append(&files[0], &lines([written]));
    follower.keys(2);
    follower.end(Signal::TERM).exits(143);
    holds(&store, (0..=written).chain([1_000_000]));
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
    follow(&store, &link, &[]).exits(1).says(&format!("continue with --feed {name:?}")).says("--restart");
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
