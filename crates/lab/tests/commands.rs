//! The built program: commands, output and exit codes.

use std::fs;
use std::process::{Command, Output};

fn lab(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_terrane-lab")).args(arguments).output().expect("the built program starts")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn list_names_what_run_accepts() {
    let output = lab(&["list"]);
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8(output.stdout).unwrap();
    for name in ["windows", "nearest", "inserts", "reopen", "memory"] {
        assert!(text.contains(&format!("  {name} ")), "{name} in {text}");
    }
}

#[test]
fn an_unknown_experiment_is_a_usage_error_that_names_those_there_are() {
    let output = lab(&["run", "windoes"]);
    assert_eq!(output.status.code(), Some(2));
    let text = stderr(&output);
    assert!(text.contains("windoes") && text.contains("windows, nearest"), "{text}");
    assert!(output.stdout.is_empty());
}

#[test]
fn senseless_options_are_usage_errors() {
    for arguments in [
        &["compare", "--points", "5"][..],
        &["compare", "--rounds", "0"],
        &["compare", "--clients", "1,0"],
        &["compare", "--only", "everything"],
        &["compare", "--systems", "oracle"],
        &["run", "windows", "--only", "nearest"],
        &["map", "--points", "a", "--x", "lon", "--out", "b"],
        &["map", "--points", "a", "--out", "b.png"],
        &[],
    ] {
        let output = lab(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", stderr(&output));
    }
}

#[test]
fn a_folder_that_does_not_exist_is_a_failure() {
    let output = lab(&["run", "windows", "--points", "1000", "--dir", "/no/such/folder"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("/no/such/folder"));
}

#[test]
fn a_map_is_an_svg_file_with_its_texts_escaped() {
    let dir = tempfile::tempdir().unwrap();
    let points = dir.path().join("points.ndjson");
    let answer = dir.path().join("answer.ndjson");
    let map = dir.path().join("map.svg");
    fs::write(&points, "{\"lon\":-122.41,\"lat\":37.77}\n{\"lon\":-122.42,\"lat\":37.78}\n").unwrap();
    fs::write(&answer, "{\"lon\":-122.41,\"lat\":37.77}\n").unwrap();
    let output = lab(&[
        "map",
        "--points",
        points.to_str().unwrap(),
        "--highlight",
        answer.to_str().unwrap(),
        "--outline",
        "POLYGON ((-122.415 37.765, -122.405 37.765, -122.405 37.775, -122.415 37.765))",
        "--title",
        "Cabs <& riders>",
        "--attribution",
        "somebody's data",
        "--out",
        map.to_str().unwrap(),
    ]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let drawn = fs::read_to_string(&map).unwrap();
    assert!(drawn.contains("Cabs &lt;&amp; riders&gt;"), "{drawn}");
    assert!(!drawn.contains("Cabs <&"));
    let opened = drawn.matches("<g").count();
    assert_eq!(opened, drawn.matches("</g>").count());
    assert!(drawn.contains("one point") && drawn.contains("ANSWER"));
}

#[test]
fn swapped_and_foreign_coordinates_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let points = dir.path().join("points.ndjson");
    let map = dir.path().join("map.svg");
    fs::write(&points, "{\"x\":551000.0,\"y\":4180000.0}\n").unwrap();
    let arguments = ["map", "--points", points.to_str().unwrap(), "--out", map.to_str().unwrap()];
    let output = lab(&arguments);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("--planar"));
    assert!(!map.exists());
    let mut planar = arguments.to_vec();
    planar.push("--planar");
    assert_eq!(lab(&planar).status.code(), Some(0));
    assert!(map.exists());
}

#[cfg(feature = "peers")]
mod with_peers {
    use super::{lab, stderr};
    use serde_json::Value;

    #[test]
    fn a_small_comparison_runs_every_section_and_prints_a_figure_a_line() {
        let dir = tempfile::tempdir().unwrap();
        let output = lab(&[
            "compare",
            "--points",
            "1000",
            "--rounds",
            "1",
            "--clients",
            "1,2",
            "--format",
            "json",
            "--dir",
            dir.path().to_str().unwrap(),
        ]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let figures: Vec<Value> =
            String::from_utf8(output.stdout).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        for figure in &figures {
            for field in ["experiment", "system", "params", "metric", "value", "unit"] {
                assert!(!figure[field].is_null(), "{field} in {figure}");
            }
        }
        for experiment in [
            "build",
            "windows",
            "nearest",
            "inserts",
            "unsynced-inserts",
            "deletes",
            "reopen",
            "size",
            "memory",
            "maps",
        ] {
            assert!(figures.iter().any(|figure| figure["experiment"] == experiment), "no figure of {experiment}");
        }
        let left = std::fs::read_dir(dir.path()).unwrap().count();
        assert_eq!(left, 0, "files are left behind");
    }

    #[test]
    fn sections_that_measure_none_of_the_systems_are_a_usage_error() {
        let output = lab(&["run", "grown", "--points", "1000", "--rounds", "1", "--systems", "sqlite-full"]);
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        assert!(
            stderr(&output).contains("none of the chosen systems") && output.stdout.is_empty(),
            "{}",
            stderr(&output)
        );
    }

    #[test]
    fn chosen_sections_and_systems_run_alone() {
        let dir = tempfile::tempdir().unwrap();
        let output = lab(&[
            "run",
            "nearest",
            "--points",
            "1000",
            "--rounds",
            "1",
            "--systems",
            "rstar,geo-index",
            "--dir",
            dir.path().to_str().unwrap(),
        ]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains("Nearest 10, in one piece"), "{text}");
        assert!(text.contains("rstar") && !text.contains("sqlite"), "{text}");
        assert!(!text.contains("Windows"), "{text}");
    }
}
