use std::ffi::OsStr;

use crate::support::{Sandbox, command, import, insert, sample, terrane};

#[test]
fn wrong_command_lines_exit_with_2() {
    let sandbox = Sandbox::new();
    import(&sandbox.store(), "cities", &sample("cities200.csv"), &[]).exits(0);
    let cases: &[(&str, &[&str], &str)] = &[
        ("query", &["cities", "--bbox", "1,2,3"], "x0,y0,x1,y1"),
        ("query", &["cities", "--bbox", "1,2,3,nan"], "x0,y0,x1,y1"),
        ("query", &["cities", "--bbox", "0,10,1,5"], ""),
        ("query", &["cities", "--bbox", "0,0,200,5"], ""),
        ("query", &["cities", "--circle", "1,2"], "x,y,R"),
        ("query", &["cities", "--circle=0,0,nan"], "R of x,y,R is \"nan\", which is not a finite number"),
        ("query", &["cities", "--nearest=0,east"], "y of x,y is \"east\", which is not a finite number"),
        ("query", &["cities", "--circle", "1,2,-5"], "-5"),
        ("query", &["cities", "--nearest", "200,2"], "200"),
        ("query", &["cities", "--k", "3"], "--nearest"),
        ("query", &["cities", "--nearest", "1,2", "--k", "-3"], "'-3' for '--k <N>': write a whole number, 0 or more"),
        ("query", &["cities", "--limit", "-3"], "'-3' for '--limit <N>': write a whole number, 0 or more"),
        ("query", &["cities", "--nearest", "1,2", "--k", "99999999999999999999"], "'--k <N>': the number is too large"),
        ("query", &["cities", "--limit", "99999999999999999999"], "'--limit <N>': the number is too large"),
        ("query", &["cities", "--within", "@"], "--within: the name of a file is missing after @"),
        ("query", &["cities", "--intersects", "POLYGON ((0 0"], "--intersects"),
        ("query", &["cities", "--within", "@/nowhere/x.wkt"], "/nowhere/x.wkt"),
        ("query", &["cities", "--intersects", "@/tmp"], "--intersects: cannot read /tmp"),
        ("query", &["cities", "--within", "POLYGON ((0 0,2 2,2 0,0 2,0 0))"], "not valid"),
        ("query", &["cities", "--format", "xml"], "ndjson"),
        ("query", &["cities", "--limit", "many"], "--limit"),
        ("query", &["towns"], "the store has cities"),
        ("query", &[], "DATASET"),
        ("info", &["--format", "csv"], "json"),
        ("info", &["--memory-limit", "12 parsecs"], "64MiB"),
        ("info", &["--memory-limit", "4MiB"], "too small; at least 8 MiB"),
        ("info", &["--memory-limit", "-5"], "64MiB"),
        ("info", &["--disk-reserve", "half"], "neither auto nor a size"),
        ("delete", &["cities"], "--key"),
        ("import", &["cities"], "FILE"),
        ("import", &["d", "a.csv", "--index", "dhb"], "rtree"),
        ("import", &["d", "a.csv", "--on-invalid", "ignore"], "skip"),
        ("import", &["d", "a.csv", "--lon", "x"], "--lat"),
        ("import", &["d", "a.csv", "--type", "v"], "COLUMN=TYPE"),
        ("frobnicate", &[], "frobnicate"),
    ];
    for (name, arguments, part) in cases {
        let answer = terrane(name, &sandbox.store(), arguments);
        assert_eq!(answer.code, Some(2), "{name} {arguments:?}: {}", answer.stderr);
        assert_eq!(answer.text(), "", "{name} {arguments:?}");
        assert!(answer.stderr.contains(part), "{name} {arguments:?}: {part:?} is not in {}", answer.stderr);
        assert!(!answer.stderr.contains("'-- "), "{name} {arguments:?}: {}", answer.stderr);
    }
}

#[test]
fn a_name_for_a_dataset_is_refused_before_anything_is_told_of_it() {
    let sandbox = Sandbox::new();
    let record = "{\"id\":1,\"lon\":0,\"lat\":0}\n";
    let answer = insert(&sandbox.store(), "red\x1b[31m", record, &[]).exits(2);
    assert!(
        answer.stderr.starts_with("error: \"red\\u{1b}[31m\" is not a valid name for a dataset"),
        "{}",
        answer.stderr
    );
    assert!(!sandbox.store().exists());
    for name in ["", "a/b"] {
        insert(&sandbox.store(), name, "", &[]).exits(2).says("is not a valid name for a dataset");
    }
    assert!(!sandbox.store().exists());
}

#[test]
fn an_insert_of_nothing_makes_no_store() {
    let sandbox = Sandbox::new();
    insert(&sandbox.store(), "d", "", &[]).exits(0).says("inserted 0 records");
    insert(&sandbox.store(), "d", "{\"id\":1}\n", &[]).exits(5).says("1 record was refused");
    assert!(!sandbox.store().exists());
}

#[test]
fn nothing_that_is_repeated_commands_the_terminal() {
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    let file = sandbox.write("\x1b[31mred.csv", "id,lon,lat,\x1b[32mgreen\n1,0,0,1\n");
    let answers = [
        import(&store, "d", &file, &[]).exits(0).says("\\u{1b}[31mred.csv: CSV"),
        import(&store, "d", &sandbox.path("\x1b[34mblue.csv"), &[]).exits(2).says("\\u{1b}[34mblue.csv"),
        terrane("query", &store, &["d\x1b[33m"]).exits(2),
        terrane("query", &store, &["d", "--format", "\x1b[33m\x07"]).exits(2).says("invalid value"),
        terrane("query", &store, &["d", "--within", "@\x1b[33m"]).exits(2),
        terrane("info", &store, &[]).exits(0),
    ];
    assert!(answers[5].text().contains("\\u{1b}[32mgreen"), "{}", answers[5].text());
    for answer in answers {
        assert!(!answer.stderr.contains('\x1b') && !answer.text().contains('\x1b'), "{answer:?}");
    }
}

#[test]
fn of_many_datasets_the_nearest_names_are_listed() {
    let sandbox = Sandbox::new();
    let record = "{\"id\":1,\"lon\":0,\"lat\":0}\n";
    for name in ["rides", "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k"] {
        insert(&sandbox.store(), name, record, &[]).exits(0);
    }
    let answer = terrane("query", &sandbox.store(), &["ridse"]).exits(2).says("the store has rides, d, e, i, a, ");
    answer.says(" and 2 more\n");
}

#[test]
fn a_store_that_is_not_there_is_not_made_by_reading() {
    let sandbox = Sandbox::new();
    for (name, arguments) in
        [("query", &["d"][..]), ("info", &[]), ("check", &[]), ("check", &["--repair"]), ("compact", &[])]
    {
        terrane(name, &sandbox.store(), arguments).exits(2).says("there is no store");
        assert!(!sandbox.store().exists(), "{name}");
    }
}

#[test]
fn a_file_is_no_store() {
    let sandbox = Sandbox::new();
    let file = sandbox.write("file", "x");
    for (name, arguments) in
        [("query", &["d"][..]), ("info", &[]), ("check", &[]), ("check", &["--repair"]), ("compact", &[])]
    {
        terrane(name, &file, arguments).exits(2).says("is a file; a store is a directory");
    }
}

#[test]
fn what_is_no_directory_and_cannot_become_one_is_no_place() {
    let sandbox = Sandbox::new();
    import(&sandbox.store(), "d", &sample("cities200.csv"), &[]).exits(0);
    let backup = sandbox.path("backup");
    terrane("backup", &sandbox.store(), &[backup.to_str().expect("a path")]).exits(0);
    let (file, link) = (sandbox.write("file", "x"), sandbox.path("link"));
    std::os::unix::fs::symlink(sandbox.path("missing"), &link).expect("a link");
    for (place, reason) in [
        (file.clone(), "is a file; a WHAT is a directory"),
        (file.join(""), "is a file; a WHAT is a directory"),
        (link.join(""), "link is a link whose target does not exist"),
        (file.join("below"), "lies below a file"),
        (link.clone(), "link is a link whose target does not exist"),
        (link.join("below"), "link is a link whose target does not exist"),
    ] {
        let name = place.to_str().expect("a path");
        let (of_backup, of_store) = (reason.replace("WHAT", "backup"), reason.replace("WHAT", "store"));
        terrane("backup", &sandbox.store(), &[name]).exits(2).says(&of_backup);
        terrane("restore", &place, &[]).exits(2).says(&of_backup);
        terrane("restore", &place, &[sandbox.path("new").to_str().expect("a path")]).exits(2).says(&of_backup);
        terrane("restore", &backup, &[name]).exits(2).says(&of_store);
        terrane("info", &place, &[]).exits(2).says(&of_store);
        import(&place, "d", &sample("cities200.csv"), &[]).exits(2).says(&of_store);
    }
    assert!(!sandbox.path("missing").exists() && !sandbox.path("new").exists());
}

#[test]
fn a_directory_with_other_things_does_not_become_a_store() {
    let sandbox = Sandbox::new();
    std::fs::create_dir(sandbox.store()).expect("a directory");
    sandbox.write("store/letter.txt", "dear");
    import(&sandbox.store(), "d", &sample("cities200.csv"), &[]).exits(2).says("letter.txt");
    assert!(sandbox.path("store/letter.txt").exists());
    let file = sandbox.write("file", "x");
    import(&file, "d", &sample("cities200.csv"), &[]).exits(2).says("is a file");
}

#[test]
fn help_and_version_are_answers() {
    for arguments in [&["--help"][..], &["query", "--help"], &["help", "import"], &["--version"]] {
        let output = command(arguments).output().expect("the binary runs");
        assert_eq!(output.status.code(), Some(0), "{arguments:?}");
        assert!(!output.stdout.is_empty() && output.stderr.is_empty(), "{arguments:?}");
    }
    let output = command::<&OsStr>([]).output().expect("the binary runs");
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn the_laboratory_is_looked_for_beside_the_binary_and_on_the_path() {
    // A link beside the binary, not a copy: a child of another test might still have the written
    // copy open.
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let binary = directory.path().join("terrane");
    std::fs::hard_link(env!("CARGO_BIN_EXE_terrane"), &binary).expect("a link");
    let mut command = std::process::Command::new(&binary);
    let output = command.args(["lab", "list"]).env("PATH", "/nowhere").output().expect("the binary runs");
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("terrane-lab"));
    std::os::unix::fs::symlink("/bin/echo", directory.path().join("terrane-lab")).expect("a link");
    let output = std::process::Command::new(&binary).args(["lab", "run", "x", "--seed", "-1", "--help"]).output();
    let output = output.expect("the binary runs");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "run x --seed -1 --help\n");
}
