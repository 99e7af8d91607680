use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::support::{Sandbox, count, import, is_clean, rows, sample, terrane};

fn components(store: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = fs::read_dir(store.join("components"))
        .expect("components")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    files.sort();
    files
}

fn flip(path: &Path, offset: usize) {
    let mut bytes = fs::read(path).expect("a component");
    bytes[offset] ^= 0x55;
    fs::write(path, bytes).expect("a component");
}

#[test]
fn damage_is_found_and_secondary_indexes_are_rebuilt() {
    let sandbox = Sandbox::new();
    import(&sandbox.path("origin"), "cities", &sample("cities200.csv"), &[]).exits(0);
    let wanted = rows(&sandbox.path("origin"), "cities", "key");
    let names: Vec<PathBuf> = components(&sandbox.path("origin"));
    assert_eq!(names.len(), 2);
    let mut repaired = 0;
    for index in 0..names.len() {
        let store = sandbox.store();
        import(&store, "cities", &sample("cities200.csv"), &[]).exits(0);
        let file = &components(&store)[index];
        let length = fs::metadata(file).expect("a component").len() as usize;
        // The first page is data in every component.
        flip(file, 100.min(length / 2));
        let name = file.file_name().and_then(|name| name.to_str()).expect("a name");
        let report = terrane("check", &store, &["--format", "json"]).exits(3).json_lines();
        assert!(report[0]["findings"].to_string().contains(name), "{report:?}");
        terrane("check", &store, &[]).exits(3);
        let repair = terrane("check", &store, &["--repair"]);
        match repair.code {
            Some(0) => {
                repaired += 1;
                is_clean(&store);
                assert_eq!(rows(&store, "cities", "key"), wanted);
                let everywhere = terrane("query", &store, &["cities", "--bbox", "-180,-90,180,90", "--count"]);
                assert_eq!(everywhere.exits(0).number(), 200);
            }
            _ => {
                // A primary cannot be rebuilt, and no row of it is invented.
                repair.exits(3);
                terrane("query", &store, &["cities"]).exits(3).says(name).says("damaged at byte");
            }
        }
        fs::remove_dir_all(&store).expect("the store is removed");
    }
    assert_eq!(repaired, 1, "one of the two is the spatial index");
}

#[test]
fn a_clean_store_has_nothing_to_repair() {
    let sandbox = Sandbox::new();
    import(&sandbox.store(), "zcta", &sample("zcta42.geojson"), &[]).exits(0);
    let answer = terrane("check", &sandbox.store(), &["--repair", "--format", "json"]).exits(0).json_lines();
    assert_eq!((&answer[0]["records"], &answer[0]["findings"]), (&json!(42), &json!([])));
    assert_eq!(count(&sandbox.store(), "zcta"), 42);
}

#[test]
fn files_that_are_not_the_stores_are_left_alone_and_told_of() {
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    import(&store, "cities", &sample("cities200.csv"), &[]).exits(0);
    // Copies that people make, beside one that a crash would have left.
    let kept = ["components/000000000001.tc.bak", "components/1.tc", "components/notes.txt", "log/notes.txt", "README"];
    for name in kept.iter().chain(&["components/000000000099.tc"]) {
        sandbox.write(&format!("store/{name}"), "dear");
    }
    import(&store, "again", &sample("cities200.csv"), &[]).exits(0);
    assert!(kept.iter().all(|name| store.join(name).exists()));
    assert!(!store.join("components/000000000099.tc").exists());
    let text = terrane("check", &store, &[]).exits(0).text();
    assert!(
        text.contains("everything is as it should be\n  note: left alone, as they are not the store's: README, "),
        "{text}"
    );
    let report = terrane("check", &store, &["--format", "json"]).exits(0).json_lines();
    let mut told: Vec<_> = report[0]["foreign_files"].as_array().expect("names").to_vec();
    told.sort_by_key(ToString::to_string);
    let mut kept = kept.map(|name| json!(name));
    kept.sort_by_key(ToString::to_string);
    assert_eq!(told, kept);
}

#[test]
fn a_damaged_manifest_is_corruption_for_every_command() {
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    import(&store, "cities", &sample("cities200.csv"), &[]).exits(0);
    let manifest = store.join("MANIFEST");
    let length = fs::metadata(&manifest).expect("a manifest").len() as usize;
    flip(&manifest, length / 2);
    for (name, arguments) in [
        ("query", &["cities"][..]),
        ("info", &[]),
        ("check", &[]),
        ("compact", &[]),
        ("delete", &["cities", "--key", "1"]),
    ] {
        terrane(name, &store, arguments).exits(3).says("MANIFEST");
    }
    import(&store, "cities", &sample("cities200.csv"), &[]).exits(3);
    assert!(manifest.exists());
}
