//! Readers in their own processes, beside a writer that flushes, merges and recycles log segments.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use crate::support::{Sandbox, command, is_clean, terrane};

/// Bytes of each record beside its key and position.
const BALLAST: usize = 4000;

/// Observed changes in the store's directory.
#[derive(Default)]
struct Watched {
    components: BTreeSet<String>,
    /// Components that appeared and disappeared.
    merged: usize,
    segments: BTreeMap<u64, String>,
    /// Files of the log that were renamed.
    recycled: usize,
}

impl Watched {
    fn look(&mut self, store: &Path) {
        let names = |folder: &str| fs::read_dir(store.join(folder)).into_iter().flatten().flatten();
        let now: BTreeSet<String> =
            names("components").map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        self.merged += self.components.difference(&now).count();
        self.components = now;
        for entry in names("log") {
            let name = entry.file_name().to_string_lossy().into_owned();
            let Ok(metadata) = entry.metadata() else { continue };
            if name.ends_with(".log")
                && let Some(before) = self.segments.insert(metadata.ino(), name.clone())
            {
                self.recycled += usize::from(before != name);
            }
        }
    }
}

#[test]
fn readers_see_what_was_acknowledged_while_the_writer_flushes_merges_and_recycles() {
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    let mut writer = command(["insert".as_ref(), store.as_os_str(), "d".as_ref()])
        .args(["--memory-limit", "8MiB"])
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the binary runs");
    let (sent, acknowledged) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let mut stdin = writer.stdin.take().expect("a pipe");
    let (counted, stop) = (sent.clone(), Arc::new(AtomicU64::new(u64::MAX)));
    let last = stop.clone();
    let feeder = thread::spawn(move || {
        let ballast = "b".repeat(BALLAST);
        for key in 0u64.. {
            if key >= last.load(Ordering::SeqCst) {
                return;
            }
            counted.store(key + 1, Ordering::SeqCst);
            let (lon, lat) = (key as f64 % 360.0 - 180.0, key as f64 % 180.0 - 90.0);
            writeln!(stdin, r#"{{"id":{key},"lon":{lon},"lat":{lat},"ballast":"{ballast}"}}"#).expect("it reads");
        }
    });
    let output = BufReader::new(writer.stdout.take().expect("a pipe"));
    let counted = acknowledged.clone();
    let listener = thread::spawn(move || {
        for line in output.lines() {
            line.expect("a line");
            counted.fetch_add(1, Ordering::SeqCst);
        }
    });
    let mut watched = Watched::default();
    let mut readers = 0;
    while readers < 12 || watched.merged < 4 || watched.recycled < 2 {
        watched.look(&store);
        let before = acknowledged.load(Ordering::SeqCst);
        if before == 0 {
            thread::yield_now();
            continue;
        }
        let mut flags = vec!["d", "--count"];
        if readers % 2 == 1 {
            flags.extend(["--bbox", "-180,-90,180,90", "--memory-limit", "8MiB"]);
        }
        let answer = terrane("query", &store, &flags).exits(0);
        let sent = sent.load(Ordering::SeqCst);
        assert_eq!(answer.stderr, "", "reader {readers} {flags:?}");
        let found = answer.number();
        assert!((before..=sent).contains(&found), "reader {readers} {flags:?} saw {found} of {before} to {sent}");
        readers += 1;
    }
    stop.store(0, Ordering::SeqCst);
    feeder.join().expect("the feeder ends");
    assert!(writer.wait().expect("the writer ends").success());
    listener.join().expect("the listener ends");
    assert_eq!(terrane("query", &store, &["d", "--count"]).exits(0).number(), acknowledged.load(Ordering::SeqCst));
    is_clean(&store);
}
