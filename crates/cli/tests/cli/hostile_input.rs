use std::path::PathBuf;
use std::process::Command;

use crate::support::{Answer, Sandbox, count, import, is_clean, sample};

/// The shared files of broken inputs, if available.
fn malformed() -> Option<PathBuf> {
    let directory = PathBuf::from(std::env::var_os("TERRANE_DATA")?).join("formats/malformed");
    directory.join("EXPECT.csv").exists().then_some(directory)
}

/// A few kinds of broken files that are always available.
fn own() -> Vec<(&'static str, Vec<u8>)> {
    let parquet = std::fs::read(sample("sf_cab_rides.parquet")).expect("sample");
    let geojson = std::fs::read(sample("zcta42.geojson")).expect("sample");
    let mut flipped = parquet.clone();
    flipped[4..40].iter_mut().for_each(|byte| *byte ^= 0xff);
    vec![
        ("empty.csv", Vec::new()),
        ("binary.csv", (0..=255).cycle().take(5000).collect()),
        ("nan.csv", b"id,lon,lat\n1,NaN,1\n2,inf,1\n3,1e999,1\n".to_vec()),
        ("duplicate_header.csv", b"id,lon,lon,lat\n1,1,1,1\n".to_vec()),
        ("quote.csv", b"id,lon,lat\n1,1,\"1\n".to_vec()),
        ("cut.parquet", parquet[..parquet.len() / 2].to_vec()),
        ("flipped.parquet", flipped),
        ("magic.parquet", b"PAR1PAR1".to_vec()),
        ("cut.geojson", geojson[..geojson.len() / 2].to_vec()),
        ("deep.geojson", vec![b'['; 100_000]),
        ("text.geojson", b"<html>not found</html>".to_vec()),
        ("cut.csv.zst", vec![0x28, 0xb5, 0x2f, 0xfd, 0x24, 0x50]),
        ("latin1.geojson", b"{\"type\":\"FeatureCollection\",\"features\":[{\"type\":\"Feature\",\"properties\":{\"n\":\"\xfc\"},\"geometry\":null}]}".to_vec()),
    ]
}

#[test]
fn broken_files_are_refused_and_leave_no_trace() {
    let sandbox = Sandbox::new();
    for (name, content) in own() {
        let file = sandbox.write(name, content);
        let answer = import(&sandbox.store(), "d", &file, &[]);
        assert_eq!(answer.code, Some(5), "{name}: {}", answer.stderr);
        assert!(answer.stderr.contains(name) && !answer.stderr.contains("panicked"), "{name}: {}", answer.stderr);
        assert!(!sandbox.store().exists(), "{name}");
    }
}

/// The bound on values is one for the record, not one for each of its members, which would take
/// gigabytes.
#[test]
fn a_document_of_too_many_values_is_refused_in_the_memory_of_one_record() {
    const ADDRESS_SPACE_KIB: u32 = 1 << 20;
    let sandbox = Sandbox::new();
    let values = format!("[{}0]", "0,".repeat((4 << 20) - 10));
    let members: Vec<String> = ["crs", "geometry", "properties", "id", "coordinates", "geometries"]
        .into_iter()
        .map(|name| format!("\"{name}\":{values}"))
        .collect();
    for (kind, reason) in
        [("Feature", "more than 4194304 values in one record"), ("FeatureCollection", "no member \"features\"")]
    {
        let file = sandbox.write("wide.geojson", format!("{{\"type\":\"{kind}\",{}}}", members.join(",")));
        let script = format!("ulimit -v {ADDRESS_SPACE_KIB} && exec \"$0\" \"$@\"");
        let mut command = Command::new("sh");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_terrane"), "import"]);
        command.args([sandbox.store().as_os_str(), "d".as_ref(), file.as_os_str(), "--planar".as_ref()]);
        Answer::of(command.output().expect("a shell")).exits(5).says(reason);
    }
}

#[test]
fn broken_files_leave_a_store_as_it_was() {
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    import(&store, "cities", &sample("cities200.csv"), &[]).exits(0);
    for (name, content) in own() {
        let file = sandbox.write(name, content);
        import(&store, "d", &file, &[]).exits(5);
        let answer = import(&store, "d", &file, &["--on-invalid", "skip"]);
        assert_eq!(answer.code, Some(5), "{name}: {}", answer.stderr);
    }
    assert_eq!(count(&store, "cities"), 200);
    is_clean(&store);
}

#[test]
fn every_malformed_file_gets_the_expected_answer() {
    let Some(directory) = malformed() else {
        println!("SKIPPED: TERRANE_DATA is not set, or has no formats/malformed");
        return;
    };
    let expect = std::fs::read_to_string(directory.join("EXPECT.csv")).expect("EXPECT.csv");
    let (mut refused, mut taken) = (0, 0);
    for line in expect.lines().skip(1) {
        let (file, rest) = line.split_once(',').expect("a file, and what is valid of it");
        let valid = match rest.strip_prefix('"') {
            Some(quoted) => quoted.split('"').next(),
            None => rest.split(',').next(),
        };
        let valid = valid.unwrap_or_default();
        let bad_rows = valid.ends_with(" bad").then(|| valid.matches(|c: char| c.is_ascii_digit()).count());
        let is_read = ["csv/", "geojson/", "parquet/"].iter().any(|kind| file.starts_with(kind));
        let sandbox = Sandbox::new();
        let answer = import(&sandbox.store(), "d", &directory.join(file), &[]);
        assert!(!answer.stderr.contains("panicked"), "{file}: {}", answer.stderr);
        match valid {
            // Unsupported formats are refused as a whole.
            _ if !is_read => assert_eq!(answer.code, Some(5), "{file}: {}", answer.stderr),
            "no" | "out of range" => assert_eq!(answer.code, Some(5), "{file}: {}", answer.stderr),
            "yes" => {
                assert!(answer.code == Some(0) || answer.stderr.contains("--geometry"), "{file}: {}", answer.stderr)
            }
            _ if bad_rows.is_some() => assert_eq!(answer.code, Some(5), "{file}: {}", answer.stderr),
            _ => assert!(matches!(answer.code, Some(0 | 5)), "{file}: {}", answer.stderr),
        }
        if answer.code == Some(0) {
            taken += 1;
            is_clean(&sandbox.store());
        } else {
            refused += 1;
            assert!(!sandbox.store().exists(), "{file}");
        }
        if let Some(bad_rows) = bad_rows.filter(|_| is_read) {
            let rejects = sandbox.path("rejects");
            let flags = ["--on-invalid", "skip", "--rejects", rejects.to_str().expect("a path")];
            let skip = import(&sandbox.store(), "e", &directory.join(file), &flags).exits(0);
            let told = std::fs::read_to_string(&rejects).expect("the refused rows");
            assert_eq!(told.lines().count(), bad_rows, "{file}: {}{told}", skip.stderr);
        }
    }
    assert!(refused > 50 && taken > 10, "{refused} refused, {taken} taken");
}
