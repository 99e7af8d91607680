//! The column of bounding boxes that GeoParquet metadata may name beside a geometry.

use std::sync::Arc;

use crate::columnar::{parquet_bytes, point_wkb, shown, table};
use crate::support::{TestFile, columns, read, read_text};
use arrow_array::{ArrayRef, BinaryArray, Float32Array, Int32Array, StringArray, StructArray};
use arrow_schema::{DataType, Field};
use terrane_formats::ReadOptions;

/// A struct of numbers with these names.
fn numbers(names: &[&str]) -> ArrayRef {
    let field = |name: &&str| {
        (Arc::new(Field::new(*name, DataType::Float32, true)), Arc::new(Float32Array::from(vec![1.0])) as ArrayRef)
    };
    Arc::new(StructArray::from(names.iter().map(field).collect::<Vec<_>>()))
}

/// The bounding box is derived from the geometry; a column with anything else is data.
#[test]
fn only_a_column_that_is_exactly_a_covering_is_left_out() {
    let paths = |column: &str, bounds: &[&str]| {
        let paths: Vec<String> = bounds.iter().map(|bound| format!(r#""{bound}":["{column}","{bound}"]"#)).collect();
        format!("{{{}}}", paths.join(","))
    };
    let flat = ["xmin", "ymin", "xmax", "ymax"];
    let high = ["xmin", "ymin", "zmin", "xmax", "ymax", "zmax"];
    let wider = ["xmin", "ymin", "xmax", "ymax", "area"];
    let name: ArrayRef = Arc::new(StringArray::from(vec!["here"]));
    for (case, column, bbox, is_left_out) in [
        ("flat", numbers(&flat), paths("more", &flat), true),
        ("with heights", numbers(&high), paths("more", &high), true),
        ("another member", numbers(&wider), paths("more", &flat), false),
        ("another member that is named too", numbers(&wider), paths("more", &wider), false),
        ("heights that are not named", numbers(&high), paths("more", &flat), false),
        ("heights that are not there", numbers(&flat), paths("more", &high), false),
        ("a bound less", numbers(&flat[..3]), paths("more", &flat[..3]), false),
        ("another name", numbers(&flat), paths("more", &flat).replace(r#""more","ymax""#, r#""more","ymin""#), false),
        ("another column", numbers(&flat), paths("more", &flat).replace(r#""more","ymax""#, r#""id","ymax""#), false),
        ("no struct", name, paths("more", &flat), false),
        ("the geometry", numbers(&flat), paths("geometry", &flat), false),
    ] {
        let wkb = BinaryArray::from(vec![Some(&point_wkb(1.0, 2.0)[..])]);
        let batch =
            table(vec![("id", Arc::new(Int32Array::from(vec![1]))), ("geometry", Arc::new(wkb)), ("more", column)]);
        let geo = format!(
            r#"{{"version":"1.1.0","primary_column":"geometry","columns":{{"geometry":{{"encoding":"WKB","covering":{{"bbox":{bbox}}}}}}}}}"#
        );
        let whole = read_text("a.parquet", parquet_bytes(&batch, Some(&geo))).expect(case);
        assert_eq!(whole.batch.schema_ref().index_of("more").is_err(), is_left_out, "{case}: {:?}", columns(&whole));
        assert_eq!(shown(&whole), ["POINT(12)"], "{case}");
    }
}

/// It adds nothing to its own geometry column, whichever one is used.
#[test]
fn the_covering_of_the_column_that_is_used_is_left_out() {
    let wkb = || Arc::new(BinaryArray::from(vec![Some(&point_wkb(1.0, 2.0)[..])])) as ArrayRef;
    let bounds = || numbers(&["xmin", "ymin", "xmax", "ymax"]);
    let batch = table(vec![("a", wkb()), ("a_box", bounds()), ("b", wkb()), ("b_box", bounds())]);
    let column = |name: &str| {
        let path = |bound: &str| format!(r#""{bound}":["{name}_box","{bound}"]"#);
        let paths = ["xmin", "ymin", "xmax", "ymax"].map(path).join(",");
        format!(r#""{name}":{{"encoding":"WKB","covering":{{"bbox":{{{paths}}}}}}}"#)
    };
    let geo = format!(r#"{{"version":"1.1.0","primary_column":"a","columns":{{{},{}}}}}"#, column("a"), column("b"));
    let file = TestFile::new("a.parquet", parquet_bytes(&batch, Some(&geo)));
    let names = |geometry: Option<&str>| -> Vec<String> {
        let options = ReadOptions { geometry: geometry.map(str::to_string), ..ReadOptions::default() };
        let whole = read(&file.path, &options).expect("valid");
        whole.batch.schema_ref().fields().iter().map(|field| field.name().clone()).collect()
    };
    assert_eq!(names(None), ["a", "b", "b_box"]);
    assert_eq!(names(Some("b")), ["a", "b"]);
}
