//! Checks that the mutation gate covers all flushes and fences of a crate.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::{Place, Subject};

/// Prefixes of names that no crash concerns: those of subjects for the explorer, of unit tests, and
/// of a tree that is only measured.
const OTHERS: [&str; 4] = ["canary", "explored", "test", "unpartitioned"];

/// The text that makes a name. It is in two parts, since this file is searched too.
const NEW: &str = concat!("Site", "::new(");

/// A constant that is a name, and how often its file uses it.
struct Definition {
    file: PathBuf,
    uses: usize,
}

/// Checks that the places of a subject are those in the sources of a crate, each with a unique
/// name.
///
/// A name is a constant of one file. A flush or a fence uses it once. If it has both, they use it
/// twice, or one persist uses it once.
pub fn check_sources(crate_directory: &str, places: &[Place]) {
    let mut found: BTreeMap<String, Definition> = BTreeMap::new();
    for file in sources(&Path::new(crate_directory).join("src")) {
        let text = std::fs::read_to_string(&file).unwrap();
        let definitions: Vec<(&str, &str)> = text.lines().filter_map(definition).collect();
        assert_eq!(definitions.len(), text.matches(NEW).count(), "{file:?} has names that are no constants");
        for (constant, name) in definitions {
            let is_other = OTHERS.contains(&name.split('.').next().unwrap_or_default());
            if !is_other {
                let uses = words(&text).filter(|word| *word == constant).count() - 1;
                let before = found.insert(name.to_owned(), Definition { file: file.clone(), uses });
                assert!(before.is_none(), "{name} is the name of two places, the second one in {file:?}");
            }
        }
    }
    let listed: BTreeMap<String, &Place> = places.iter().map(|place| (place.name().to_owned(), place)).collect();
    assert_eq!(listed.len(), places.len(), "a place is listed twice");
    assert_eq!(found.keys().collect::<Vec<_>>(), listed.keys().collect::<Vec<_>>(), "the sources, and the list");
    for (name, Definition { file, uses }) in found {
        let instructions = listed[&name].dropped().count();
        assert!(
            (1..=instructions).contains(&uses),
            "{name} is used {uses} times in {file:?}, where it has {instructions}"
        );
    }
}

/// Checks that the tests exist which subjects name for losses that their histories do not show.
/// `crates` is the directory of all crates.
pub fn check_tests<S: Subject>(crates: &Path, subjects: &[S]) {
    for subject in subjects {
        for dropped in subject.places().iter().flat_map(Place::dropped) {
            let Some(shown_by) = subject.shown_by(&dropped) else { continue };
            let (file, test) = shown_by.split_once(": ").expect(shown_by);
            let text = std::fs::read_to_string(crates.join(file)).expect(shown_by);
            assert!(text.contains(&format!("#[test]\nfn {test}()")), "{dropped}: {shown_by}");
        }
    }
}

/// Checks that every name in the sources and tests of a crate is that of a place. A test that waits
/// for a name that no longer exists would wait in vain, and pass.
pub fn check_mentions(crate_directory: &str, places: &[Place]) {
    let structures: BTreeSet<&str> = places.iter().filter_map(|place| place.name().split('.').next()).collect();
    let names: BTreeSet<&str> = places.iter().map(Place::name).collect();
    let directory = Path::new(crate_directory);
    for file in ["src", "tests"].iter().flat_map(|part| sources(&directory.join(part))) {
        let text = std::fs::read_to_string(&file).unwrap();
        let is_name = |word: &&str| {
            let is_plain = word.bytes().all(|byte| byte.is_ascii_lowercase() || b".-".contains(&byte));
            is_plain && word.split_once('.').is_some_and(|(structure, _)| structures.contains(structure))
        };
        for name in text.split('"').filter(is_name) {
            assert!(names.contains(name), "{file:?} mentions {name}, and there is no such place");
        }
    }
}

/// The names in the laboratory's table.
pub fn names_in_table(table: &Path) -> BTreeSet<String> {
    let text = std::fs::read_to_string(table).unwrap();
    let names = text.lines().filter_map(|line| Some(line.strip_prefix("| `")?.split_once('`')?.0.to_owned()));
    let all: Vec<String> = names.collect();
    let different = BTreeSet::from_iter(all.iter().cloned());
    assert_eq!(all.len(), different.len(), "a name has two lines");
    different
}

fn sources(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let (directories, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
    let below = directories.iter().flat_map(|directory| sources(directory));
    files.into_iter().filter(|file| file.extension().is_some_and(|end| end == "rs")).chain(below).collect()
}

/// Constant and name, if a line defines one.
fn definition(line: &str) -> Option<(&str, &str)> {
    let (constant, rest) = line.strip_prefix("const ")?.split_once(": Site = ")?;
    Some((constant, rest.strip_prefix(NEW)?.strip_prefix('"')?.strip_suffix("\");")?))
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|letter: char| !letter.is_alphanumeric() && letter != '_')
}
