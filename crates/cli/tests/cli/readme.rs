//! The demo's output in the documents is what the program prints.

use std::path::Path;
use std::process::Command;

use crate::support::Sandbox;

/// Lines that differ from run to run.
fn is_timed(line: &str) -> bool {
    line.starts_with("time ") || line.starts_with("imported ")
}

/// Every command before the stream of inserts, each with the lines behind it.
#[test]
fn the_demo_prints_what_its_page_shows() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the workspace");
    let page = std::fs::read_to_string(root.join("docs/demo.md")).expect("the page");
    let (_, demo) = page.split_once("It prints:\n\n```\n").expect("the demo's output");
    let (queries, _) = demo.split_once("\n== Insert a stream").expect("the stream of inserts");
    let sandbox = Sandbox::new();
    let mut count = 0;
    for block in queries.split("\n$ ").filter_map(|block| block.strip_prefix("terrane ")) {
        let (command, printed) = block.split_once('\n').expect("output");
        let (printed, _) = printed.split_once("\n\n== ").unwrap_or((printed, ""));
        let command = command.replace("rides.terrane", sandbox.store().to_str().expect("UTF-8"));
        let script = format!("\"$0\" {command} 2>&1");
        let mut shell = Command::new("sh");
        shell.args(["-c", &script, env!("CARGO_BIN_EXE_terrane")]).current_dir(root);
        let output = String::from_utf8(shell.output().expect("the shell runs").stdout).expect("UTF-8");
        let lines = |text: &str| text.trim_end().lines().filter(|line| !is_timed(line)).map(str::to_owned).collect();
        let (shown, found): (Vec<_>, Vec<_>) = (lines(printed), lines(&output));
        assert_eq!(shown, found, "{command}");
        count += 1;
    }
    assert_eq!(count, 7);
}
