use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::support::{Sandbox, count, import, is_clean, json_lines, rows};

/// Two rows; the second is refused.
const ONE_OF_TWO: &str = "id,lon,lat\n1,1,1\n2,1,95\n";

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// The files of a directory, by name.
fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).expect("a directory");
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn rejects_that_cannot_be_written_end_the_import_before_it_counts() {
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    let full = ["--on-invalid", "skip", "--rejects", "/dev/full"];
    let bad = sandbox.write("bad.csv", ONE_OF_TWO);
    import(&store, "d", &bad, &full).exits(1).says("/dev/full");
    assert!(!store.exists());

    let one = sandbox.write("one.csv", "id,lon,lat\n2,1,1\n4,1,1\n");
    let two = sandbox.write("two.csv", "id,lon,lat\n1,2,2\n4,2,2\n5,2,2\n");
    import(&store, "d", &one, &[]).exits(0);
    // A row that is refused only when the keys are merged.
    import(&store, "d", &two, &full).exits(1).says("/dev/full");
    assert_eq!(count(&store, "d"), 2);
    is_clean(&store);
}

#[test]
fn an_import_of_which_nothing_is_left_changes_nothing() {
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    let file = sandbox.write("a.csv", "id,lon,lat\n2,1,1\n4,1,1\n");
    import(&store, "d", &file, &[]).exits(0);
    let components = names(&store.join("components"));
    import(&store, "d", &file, &["--on-invalid", "skip"]).exits(5).says("all 2 rows were refused");
    assert_eq!(names(&store.join("components")), components);
    assert_eq!(json_lines(&fs::read_to_string(sandbox.path("a.csv.rejects.ndjson")).expect("rejects")).len(), 2);
}

#[test]
fn rejects_never_go_into_the_store() {
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    let file = sandbox.write("a.csv", ONE_OF_TWO);
    let good = sandbox.write("good.csv", "id,lon,lat\n1,1,1\n");
    import(&store, "d", &good, &[]).exits(0);
    let before = names(&store);
    let primary = store.join("components").join(&names(&store.join("components"))[0]);
    symlink(store.join("components"), sandbox.path("folder")).expect("a link");
    symlink(&primary, sandbox.path("file")).expect("a link");
    symlink(store.join("components/new"), sandbox.path("dangling")).expect("a link");
    let places: Vec<PathBuf> = vec![
        primary.clone(),
        store.join("r.ndjson"),
        store.join("log/../r.ndjson"),
        sandbox.path("folder/r.ndjson"),
        sandbox.path("file"),
        sandbox.path("dangling"),
    ];
    for place in places {
        let answer = import(&store, "e", &file, &["--on-invalid", "skip", "--rejects", text(&place)]);
        assert_eq!(answer.code, Some(2), "{}: {}", place.display(), answer.stderr);
        assert!(answer.stderr.contains("--rejects"), "{}: {}", place.display(), answer.stderr);
        assert_eq!(names(&store), before, "{}", place.display());
    }
    // If the input is inside of the store, so is a file beside it.
    fs::copy(&file, store.join("components/a.csv")).expect("a copy");
    import(&store, "e", &store.join("components/a.csv"), &["--on-invalid", "skip"]).exits(2).says("--rejects");
    fs::remove_file(store.join("components/a.csv")).expect("the copy is removed");
    // A store that does not exist yet.
    let new = sandbox.path("new/store");
    import(&new, "d", &file, &["--on-invalid", "skip", "--rejects", text(&new.join("r.ndjson"))]).exits(2);
    assert!(!sandbox.path("new").exists());
    assert_eq!(count(&store, "d"), 1);
    is_clean(&store);
}

#[test]
fn rejects_never_go_into_an_input() {
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    let one = sandbox.write("r.csv", ONE_OF_TWO);
    let content = "{\"id\":3,\"lon\":1,\"lat\":1}\n";
    let two = sandbox.write("r.csv.rejects.ndjson", content);
    import(&store, "d", &one, &[text(&two), "--on-invalid", "skip"]).exits(2).says("--rejects");
    // Another name of an input.
    fs::hard_link(&one, sandbox.path("same.ndjson")).expect("a link");
    let same = sandbox.path("same.ndjson");
    import(&store, "d", &one, &["--on-invalid", "skip", "--rejects", text(&same)]).exits(2).says("same.ndjson");
    assert_eq!(fs::read_to_string(&one).expect("the input"), ONE_OF_TWO);
    assert_eq!(fs::read_to_string(&two).expect("the input"), content);
    assert!(!store.exists());
}

#[test]
fn only_earlier_rejects_are_overwritten() {
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    let file = sandbox.write("a.csv", ONE_OF_TWO);
    for content in ["dear diary\n", "{\"reason\":\"mine\",\"own\":1}\n", "[]\n"] {
        let kept = sandbox.write("a.csv.rejects.ndjson", content);
        let answer = import(&store, "d", &file, &["--on-invalid", "skip"]).exits(2);
        answer.says("a.csv.rejects.ndjson").says("--rejects");
        assert_eq!(fs::read_to_string(kept).expect("as it was"), content);
        assert!(!store.exists());
    }
    // An empty file, a file of rejects, and a link to one are replaced.
    let rejects = sandbox.write("a.csv.rejects.ndjson", "");
    symlink(&rejects, sandbox.path("link")).expect("a link");
    for (dataset, named) in [("d", vec![]), ("e", vec![]), ("f", vec!["--rejects".into(), sandbox.path("link")])] {
        fs::write(&file, format!("id,lon,lat\n1,1,1\n2,1,95\n3,{dataset},1\n")).expect("the input");
        let named: Vec<&str> = named.iter().map(|path| text(path)).collect();
        import(&store, dataset, &file, &[&["--on-invalid", "skip"], &named[..]].concat()).exits(0);
        let content = fs::read_to_string(&rejects).expect("rejects");
        assert_eq!(json_lines(&content).len(), 2, "{content}");
        assert!(content.contains(&format!("3,{dataset},1")), "{content}");
    }
    assert!(sandbox.path("link").is_symlink());
}

#[test]
fn a_failed_import_leaves_earlier_rejects_and_nothing_else() {
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    let file = sandbox.write("a.csv", ONE_OF_TWO);
    import(&store, "d", &file, &["--on-invalid", "skip"]).exits(0);
    let rejects = fs::read(sandbox.path("a.csv.rejects.ndjson")).expect("rejects");
    fs::write(&file, "id,lon,lat\n7,1,1\n8,1,96\n").expect("the input");
    let before = names(&sandbox.path(""));
    import(&store, "d", &file, &["/nowhere/b.csv", "--on-invalid", "skip"]).exits(2);
    assert_eq!(fs::read(sandbox.path("a.csv.rejects.ndjson")).expect("rejects"), rejects);
    assert_eq!(names(&sandbox.path("")), before);
    assert_eq!(rows(&store, "d", "id").len(), 1);
}
