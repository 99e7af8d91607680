use std::ffi::OsStr;
use std::process::Command;

use crate::support::{Answer, Sandbox, count, import, is_clean, sample};

/// Runs `terrane ARGUMENT…` under a limit on the size of files, in blocks of 512 or 1024 bytes, set
/// in the shell.
fn terrane_under(limit_blocks: u32, arguments: &[&OsStr], stdout: Option<&OsStr>) -> Answer {
    let redirected = if stdout.is_some() { "out=$1; shift; exec > \"$out\";" } else { "" };
    let script = format!("{redirected} ulimit -f {limit_blocks} && exec \"$0\" \"$@\"");
    let mut command = Command::new("sh");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_terrane")]).args(stdout).args(arguments);
    Answer::of(command.output().expect("the shell runs"))
}

/// The limit is not mistaken for a full disk: there is space, but it does not help.
#[test]
fn inserts_under_such_a_limit_say_so_and_keep_what_they_acknowledged() {
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    let records: String = (0..20_000)
        .map(|key| format!("{{\"key\":{key},\"lon\":1,\"lat\":2,\"text\":\"{}\"}}\n", "a".repeat(60)))
        .collect();
    let file = sandbox.path("records.ndjson");
    std::fs::write(&file, records).expect("the sandbox has space");
    let mut command = Command::new("sh");
    let script = "ulimit -f 4000 && exec \"$0\" insert \"$1\" d < \"$2\"";
    command.args(["-c", script, env!("CARGO_BIN_EXE_terrane")]).args([store.as_os_str(), file.as_os_str()]);
    let answer =
        Answer::of(command.output().expect("the shell runs")).exits(1).says("File too large").says("ulimit -f");
    let acknowledged = answer.stdout.iter().filter(|byte| **byte == b'\n').count() as u64;
    assert!((1..20_000).contains(&acknowledged), "{acknowledged}");
    is_clean(&store);
    assert_eq!(count(&store, "d"), acknowledged);
}

#[test]
fn a_file_that_reaches_the_limit_of_the_process_is_an_error_and_changes_nothing() {
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    import(&store, "cities", &sample("cities200.csv"), &[]).exits(0);
    let rides = sample("sf_cab_rides.parquet");
    let arguments = ["import".as_ref(), store.as_os_str(), "rides".as_ref(), rides.as_os_str()];
    terrane_under(64, &arguments, None).exits(1).says("File too large").says("ulimit -f");
    is_clean(&store);
    assert_eq!(count(&store, "cities"), 200);
    // The same holds for the output.
    let out = sandbox.path("cities.ndjson");
    let arguments = ["query".as_ref(), store.as_os_str(), "cities".as_ref()];
    terrane_under(4, &arguments, Some(out.as_os_str())).exits(1).says("File too large");
}

/// The printed keys were in memory only. Without a log, the flush at the end makes them durable or
/// fails.
#[test]
fn what_a_store_without_a_log_cannot_flush_is_told_to_be_lost() {
    for (records, limit, is_at_the_end) in [(2000, "", true), (60_000, "--memory-limit 8MiB", false)] {
        let sandbox = Sandbox::new();
        let (store, file) = (sandbox.store(), sandbox.path("records.ndjson"));
        let record = |key| format!("{{\"key\":{key},\"lon\":1,\"lat\":2,\"text\":\"{}\"}}\n", "a".repeat(60));
        std::fs::write(&file, (0..records).map(record).collect::<String>()).expect("the sandbox has space");
        let script = format!("ulimit -f 64 && exec \"$0\" insert \"$1\" d --durability none {limit} < \"$2\"");
        let mut command = Command::new("sh");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_terrane")]).args([store.as_os_str(), file.as_os_str()]);
        let answer = Answer::of(command.output().expect("the shell runs"))
            .exits(1)
            .says("records that were not flushed before are lost, even acknowledged ones");
        let acknowledged = answer.stdout.iter().filter(|byte| **byte == b'\n').count();
        assert_eq!(acknowledged == records, is_at_the_end, "{acknowledged}");
    }
}
