//! Text that is read in pieces gives the same rows, refusals, types and warnings as in one piece.

use std::fmt::Write;

use arrow_array::RecordBatch;
use terrane_formats::{FormatError, ReadOptions};

use crate::support::{TestFile, Whole, read};

/// The rows of a file, and everything else that reading it tells, as text.
fn told(name: &str, content: &str, decoded_bytes_max: u64) -> Result<(RecordBatch, String), FormatError> {
    let file = TestFile::new(name, content);
    let options = ReadOptions { decoded_bytes_max: Some(decoded_bytes_max), ..ReadOptions::default() };
    let Whole { batch, rows, rejected, source } = read(&file.path, &options)?;
    let (schema, warnings, notices) = (batch.schema(), &source.warnings, source.notices());
    let text = format!("{schema:?}\n{warnings:?}\n{notices:?}\n{rejected:?}\n{rows:?}");
    Ok((batch, text))
}

/// Reads a file in pieces of about a kilobyte, and in one. Returns what is told of it.
fn same(name: &str, content: &str) -> String {
    assert!((20_000..500_000).contains(&content.len()), "many small pieces, and one large: {}", content.len());
    let [small, large] = [32 << 10, 256 << 20].map(|bytes| told(name, content, bytes).expect("readable"));
    assert_eq!(small.1, large.1, "{name}");
    assert_eq!(small.0, large.0, "{name}");
    large.1
}

#[test]
fn csv_is_the_same_in_pieces() {
    let mut text = "id,lon,lat,day,code,note\n".to_string();
    for row in 1..=2000 {
        let day = if row > 1500 { "25/01/2020" } else { "02/01/2020" };
        let code = if row == 1900 { "A7".to_string() } else { row.to_string() };
        let note = match row % 9 {
            0 => format!("\"two\nlines, and \"\"{row}\"\"\""),
            1 => "ä".to_string(),
            2 => String::new(),
            _ => format!("plain {row}"),
        };
        let lat = if row == 1950 { "200" } else { "2.5" };
        let end = if row % 5 == 0 { "\r\n" } else { "\n" };
        let surplus = if row % 400 == 0 { ",surplus" } else { "" };
        write!(text, "{row},1.5,{lat},{day},{code},{note}{surplus}{end}").expect("a string");
    }
    let told = same("a.csv", &text);
    assert!(told.contains("(row 1900)"), "{}", &told[..2000]);
    assert!(told.contains("day=date:%d/%m/%Y"), "{}", &told[..2000]);
    assert!(told.contains("row: 2000, line: Some(2223)"), "{told}");
}

#[test]
fn lines_of_json_are_the_same_in_pieces() {
    let mut text = String::new();
    for row in 1..=1500 {
        match row {
            700 => text.push_str("{\"id\":700,\n"),
            900 => text.push_str("{\"id\":900,\"lon\":1,\"lat\":2,\"late\":{\"nested\":[1,2]}}\n\n"),
            1100 => text.push_str("{\"id\":1100,\"lon\":1,\"lat\":2,\"at\":\"2020-01-01T00:00:00\"}\n"),
            1200 => text.push_str("no JSON\n"),
            _ => writeln!(text, "{{\"id\":{row},\"lon\":1,\"lat\":2,\"at\":\"2020-01-01T00:00:00Z\"}}")
                .expect("a string"),
        }
    }
    text.push_str("{\"id\":1501");
    let told = same("a.ndjson", &text);
    assert!(told.contains("continues on the next line"), "{told}");
    assert!(told.contains("name: \"late\""), "{told}");
}

#[test]
fn features_are_the_same_in_pieces() {
    let mut text = "{\"type\":\"FeatureCollection\",\"features\":[".to_string();
    for row in 1..=800 {
        let comma = if row > 1 { "," } else { "" };
        let kind = if row == 500 { "Other" } else { "Feature" };
        let geometry = format!("{{\"type\":\"Point\",\"coordinates\":[{},2]}}", row % 180);
        write!(
            text,
            "{comma}\n{{\"type\":\"{kind}\",\"id\":{row},\"geometry\":{geometry},\"properties\":{{\"n\":{row}}}}}"
        )
        .expect("a string");
    }
    text.push_str("]}");
    let told = same("a.geojson", &text);
    assert!(told.contains("row: 500, line: Some(501)"), "{told}");
    let damaged = text.replace("\"n\":700", "\"n\":07");
    let errors = [32 << 10, 256 << 20].map(|bytes| told_error("b.geojson", &damaged, bytes));
    assert_eq!(errors[0], errors[1]);
    assert!(errors[0].contains("byte"), "{}", errors[0]);
}

fn told_error(name: &str, content: &str, bytes: u64) -> String {
    let error = told(name, content, bytes).map(|_| ()).expect_err("damaged").to_string();
    error.rsplit(name).next().unwrap_or_default().to_owned()
}
