//! The built program as a search for crashes: its findings, its output, and replaying.

use std::process::{Command, Output};

fn crash(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_terrane-lab"));
    command.arg("crash").args(arguments).output().expect("the built program starts")
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The arguments after `terrane-lab crash` in the command that a failure prints.
fn replay_arguments(text: &str) -> Vec<String> {
    let command = text.lines().find_map(|line| line.strip_prefix("replay: terrane-lab crash "));
    let (flags, case) = command.and_then(|command| command.split_once(" --replay '")).expect(text);
    let case = case.strip_suffix('\'').expect(text).to_owned();
    flags.split(' ').map(str::to_owned).chain(["--replay".to_owned(), case]).collect()
}

#[test]
fn structures_that_are_right_pass() {
    for structure in ["fbr", "pmr", "pear", "logged", "btree", "pmwcas"] {
        let output = crash(&[structure, "--seed", "7", "--budget", "3000"]);
        let text = stdout(&output);
        assert_eq!(output.status.code(), Some(0), "{text}{}", stderr(&output));
        assert!(text.contains("images a minute") && text.contains("distinct"), "{text}");
    }
}

#[test]
fn what_is_left_out_is_found_shrunk_and_found_again_by_the_command_that_is_printed() {
    for (structure, site) in
        [("fbr", "fence:fbr.insert.entry"), ("fbr", "fbr.log.commit"), ("pmwcas", "flush:pmwcas.decide")]
    {
        let output = crash(&[structure, "--budget", "200000", "--drop", site]);
        let text = stdout(&output);
        if site == "fbr.log.commit" {
            assert_eq!(output.status.code(), Some(2), "a flush and a fence have the name");
            assert!(stderr(&output).contains("flush:fbr.log.commit, fence:fbr.log.commit"), "{}", stderr(&output));
            continue;
        }
        assert_eq!(output.status.code(), Some(1), "{text}{}", stderr(&output));
        let arguments = replay_arguments(&text);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        assert!(arguments.contains(&site), "{arguments:?}");
        let again = crash(&arguments);
        assert_eq!(again.status.code(), Some(1), "{}{}", stdout(&again), stderr(&again));
        let failure = |text: &str| text.lines().skip_while(|line| !line.contains(" (")).collect::<Vec<_>>().join("\n");
        let found = text.split("images a minute\n").nth(1).expect(&text);
        assert!(!found.contains(".new at byte"), "a store is told with the name that the pool had before: {found}");
        assert_eq!(failure(&stdout(&again)), failure(found));
        // The same history with nothing left out survives, or has other stores to lose.
        let whole: Vec<&str> = [structure, "--replay", arguments[arguments.len() - 1]].to_vec();
        assert_ne!(crash(&whole).status.code(), Some(1));
    }
}

/// A second crash shows it, in a recovery.
#[test]
fn a_loss_that_random_crashes_do_not_show_is_searched_near_the_omitted_instruction() {
    const SITE: &str = "fence:fbr.complete.root";
    let output = crash(&["fbr", "--only", "in-place-4-adr", "--budget", "2000", "--drop", SITE]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let text = stdout(&output);
    let rows: Vec<&str> = text.lines().filter(|line| line.starts_with("| `")).collect();
    assert!(rows.len() == 1 && rows[0].contains(SITE) && rows[0].contains(", then "), "{text}");
    let arguments = replay_arguments(&text);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    assert!(arguments.contains(&SITE), "{arguments:?}");
    let again = crash(&arguments);
    assert_eq!(again.status.code(), Some(1), "{}{}", stdout(&again), stderr(&again));
}

#[test]
fn json_has_a_figure_a_line() {
    let output = crash(&["pmwcas", "--budget", "500", "--format", "json"]);
    let lines: Vec<serde_json::Value> =
        stdout(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for metric in ["histories", "cuts", "images", "distinct images", "images a minute"] {
        assert!(lines.iter().any(|line| line["metric"] == metric && line["value"].is_number()), "{metric}");
    }
    assert!(lines.iter().all(|line| line["experiment"] == "crash" && line["system"] == "pmwcas"), "{lines:?}");
}

#[test]
fn a_case_that_shows_nothing_says_so_in_both_formats() {
    const CASE: [&str; 3] = ["pmwcas", "--replay", "adr; count"];
    let output = crash(&CASE);
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(0), "nothing goes wrong\n"));
    let output = crash(&[&CASE[..], &["--format", "json"]].concat());
    let line: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!((output.status.code(), &line["metric"], &line["value"]), (Some(0), &"violations".into(), &0.into()));
    assert_eq!(line["params"]["configuration"], "adr");
}

#[test]
fn configurations_are_searched_that_are_named() {
    let output = crash(&["fbr", "--budget", "500", "--only", "self-validating-4-adr,in-place-4-eadr"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stdout(&output).starts_with("fbr: in-place-4-eadr, self-validating-4-adr\n"), "{}", stdout(&output));
}

#[test]
fn an_unknown_name_is_a_usage_error_that_lists_the_known_ones() {
    for (arguments, expected) in [
        (&["quadtree"][..], "no structure quadtree; there are: fbr, pmr, pear, logged, btree, pmwcas"),
        (&["pmwcas", "--drop", "fence:fbr.insert.entry"], "fence:pmwcas.prepare"),
        (&["pmwcas", "--replay", "nonsense"], "is not a case"),
        (&["pmwcas", "--replay", "adr; count; 99999999 kill"], "there is no cut 99999999: cuts are from"),
        (&["pmwcas", "--replay", "adr; count; 3 kill"], "there is no cut 3: cuts are from"),
        (&["pmwcas", "--replay", "adr; count; 3 kill"], "name that with --drop"),
        (&["pmwcas", "--gate", "--only", "eadr"], "matters only on adr"),
        (&["pmwcas", "--seed", "18446744073709551615"], "18446744073709551615"),
        (&["pmwcas", "--replay", "dax; count"], "there are: adr, eadr, page-cache"),
        (&["fbr", "--gate", "--exhaustive"], "cannot be used with"),
        (&["fbr", "--only", "in-place-4-adr,logged"], "no configuration logged; there are: in-place-4-adr,"),
        (&["fbr", "--exhaustive", "--only", "in-place-60-adr"], "of in-place-60-adr, but of in-place-4-adr,"),
        (&["pmwcas", "--exhaustive", "--part", "3/2"], "a part is written K/N"),
        (&["pmwcas", "--exhaustive", "--part", "11/11"], "part 11/11 has no case of adr"),
        (&["pmwcas", "--part", "1/2"], "--exhaustive"),
        (&["pmwcas", "--exhaustive", "--seed", "2"], "cannot be used with"),
        (&["pmwcas", "--exhaustive", "--budget", "2"], "cannot be used with"),
        (&["pmwcas", "--gate", "--budget", "2"], "cannot be used with"),
        (&["pmwcas", "--replay", "adr; count", "--budget", "2"], "cannot be used with"),
        (&["pmwcas", "--gate", "--part", "1/2"], "cannot be used with"),
        (&["pmwcas", "--gate", "--in-recoveries"], "cannot be used with"),
        (&["pmwcas", "--drop", "flush:pmwcas.decide", "--part", "1/2"], "cannot be used with"),
        (&["pmwcas", "--replay", "adr; count", "--in-recoveries"], "cannot be used with"),
        (&["pmwcas", "--budget", "0"], "0 is not in 1.."),
        (&["fbr", "--drop", "fbr.search.persist"], "interleavings.rs: what_a_search_has_seen"),
        (&["fbr", "--drop", "flush:fbr.shorten"], "marks.rs: an_older_tree_is_one"),
        (&["fbr", "--drop", "nonsense"], "flush:fbr.shorten"),
        (
            &["fbr", "--only", "self-validating-4-adr", "--drop", "fence:fbr.insert.entry"],
            "none of the chosen configurations",
        ),
        (&["pmwcas", "--only", "eadr", "--drop", "fence:pmwcas.prepare"], "matters only on adr"),
    ] {
        let output = crash(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(stderr(&output).contains(expected), "{}", stderr(&output));
    }
}

#[test]
fn small_cases_are_searched_in_parts() {
    let output = crash(&["pmwcas", "--only", "adr", "--exhaustive", "--part", "10/10", "--in-recoveries"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let found = stdout(&output);
    assert!(found.starts_with("pmwcas: adr: every cut of 1 histories") && found.contains("  1 histories, "), "{found}");
}
