//! Reading separated values.

use std::io::Write;

use crate::support::{TestFile, columns, floats, read, read_text, texts, wkt};
use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, TimestampMicrosecondType};
use terrane_formats::{ColumnType, CoordinateOptions, Format, GeometryColumns, Header, ReadOptions, open};

fn some(values: &[&str]) -> Vec<Option<String>> {
    values.iter().map(|value| Some(value.to_string())).collect()
}

#[test]
fn types_are_told_from_all_values() {
    let whole = read_text(
        "a.csv",
        "id,price,open,day,at,utc,zip,note\n\
         1,2,true,2024-02-29,2024-02-29T10:00:00,2024-02-29T10:00:00Z,07001,a\n\
         2,2.5,False,2024-03-01,2024-03-01 11:30:00.5,2024-03-01T11:30:00+02:00,94112,\n",
    )
    .expect("valid");
    assert_eq!(whole.source.format, Format::Csv);
    assert_eq!(
        columns(&whole),
        [
            "id: Int64",
            "price: Float64",
            "open: Boolean",
            "day: Date32",
            "at: Timestamp(µs)",
            "utc: Timestamp(µs, \"UTC\")",
            "zip: Utf8",
            "note: Utf8",
        ]
    );
    assert_eq!(texts(&whole, "zip"), some(&["07001", "94112"]));
    assert_eq!(floats(&whole, "price"), [Some(2.0), Some(2.5)]);
    let utc = whole.batch.column(5).as_primitive::<TimestampMicrosecondType>();
    assert_eq!(utc.value(1) - utc.value(0), (23 * 3600 + 1800) * 1_000_000);
    assert_eq!(whole.rows, [1, 2]);
}

#[test]
fn a_fraction_after_many_integers_widens_the_column_without_losing_rows() {
    let mut text = String::from("n\n");
    for number in 0..30_000 {
        text.push_str(&format!("{number}\n"));
    }
    text.push_str("0.5\n");
    let whole = read_text("a.csv", text).expect("valid");
    assert_eq!(columns(&whole), ["n: Float64"]);
    assert_eq!(whole.batch.num_rows(), 30_001);
    assert!(whole.rejected.is_empty());
}

#[test]
fn one_text_among_numbers_makes_a_text_column_and_a_warning() {
    let whole = read_text("a.csv", "n\n1\n2\n3\nn/a\n").expect("valid");
    assert_eq!(texts(&whole, "n"), some(&["1", "2", "3", "n/a"]));
    assert!(whole.source.warnings[0].contains("\"n/a\" (row 4)"), "{:?}", whole.source.warnings);
}

#[test]
fn required_types_turn_values_that_do_not_fit_into_refused_rows() {
    let file = TestFile::new("a.csv", "n,code\n1,5\nn/a,6\n3,7\n");
    let options = ReadOptions {
        column_types: vec![("n".to_string(), ColumnType::Int64), ("code".to_string(), ColumnType::Utf8)],
        ..ReadOptions::default()
    };
    let whole = read(&file.path, &options).expect("valid");
    assert_eq!(columns(&whole), ["n: Int64", "code: Utf8"]);
    assert_eq!(whole.rows, [1, 3]);
    let bad = &whole.rejected[0];
    assert_eq!((bad.row, bad.line, bad.raw.as_deref()), (2, Some(3), Some("n/a,6")));
    assert_eq!(bad.reason, "column \"n\": \"n/a\" is not a valid int64");
}

#[test]
fn nycs_timestamps_and_capital_coordinates_are_recognised() {
    let whole = read_text(
        "uber.csv",
        "\"Date/Time\",\"Lat\",\"Lon\",\"Base\"\n\"4/1/2014 0:11:00\",40.769,-73.9549,\"B02512\"\n",
    )
    .expect("valid");
    assert_eq!(columns(&whole)[0], "Date/Time: Timestamp(µs)");
    assert_eq!(whole.source.geometry, GeometryColumns::Coordinates { x: "Lon".to_string(), y: "Lat".to_string() });
    assert_eq!(whole.source.guess().to_string(), "key: row number, geometry: points from columns \"Lon\" and \"Lat\"");
}

#[test]
fn separators_and_decimal_commas_are_detected() {
    for (separator, text) in [
        ("comma", "name,lon,lat\na,1.5,2\n"),
        ("semicolon", "name;lon;lat\na;1,5;2\n"),
        ("tab", "name\tlon\tlat\na\t1.5\t2\n"),
        ("pipe", "name|lon|lat\na|1.5|2\n"),
        ("semicolon and points", "name;lon;lat\na,b;1.5;2\n"),
    ] {
        let whole = read_text("a.csv", text).expect(separator);
        assert_eq!(floats(&whole, "lon"), [Some(1.5)], "{separator}");
        assert_eq!(floats(&whole, "lat"), [Some(2.0)], "{separator}");
    }
}

#[test]
fn decimal_commas_are_told_by_most_columns_or_given() {
    let versions = "lon;lat;version\n1,5;2,5;12.5\n2,5;3,5;12.6\n";
    let whole = read_text("a.csv", versions).expect("valid");
    assert_eq!(columns(&whole), ["lon: Float64", "lat: Float64", "version: Utf8"]);
    assert_eq!(floats(&whole, "lon"), [Some(1.5), Some(2.5)]);
    // As many columns of each kind, and another separator, are too weak a sign.
    for text in ["a;b\n1,5;2.5\n", "a|b\n1,5|2\n"] {
        let file = TestFile::new("a.csv", text);
        let floats_of_a = |decimal_comma| {
            let whole = read(&file.path, &ReadOptions { decimal_comma, ..ReadOptions::default() }).expect("valid");
            columns(&whole)[0] == "a: Float64"
        };
        assert!(!floats_of_a(None) && !floats_of_a(Some(false)) && floats_of_a(Some(true)), "{text}");
    }
}

#[test]
fn empty_is_null_and_quoted_empty_is_empty_text() {
    let whole = read_text("a.csv", "a,b,n\nx,,\n\"\",\"\",\"\"\n,y,1\n").expect("valid");
    assert_eq!(texts(&whole, "a"), [Some("x".into()), Some(String::new()), None]);
    assert_eq!(texts(&whole, "b"), [None, Some(String::new()), Some("y".into())]);
    let numbers: Vec<_> = whole.batch.column(2).as_primitive::<Int64Type>().iter().collect();
    assert_eq!(numbers, [None, None, Some(1)]);
}

#[test]
fn quoted_empty_is_empty_in_a_column_of_bytes() {
    let file = TestFile::new("a.csv", "id,b\n1,\n2,\"\"\n3,AA==\n");
    let options = ReadOptions { column_types: vec![("b".into(), ColumnType::Binary)], ..ReadOptions::default() };
    let whole = read(&file.path, &options).expect("valid");
    let values: Vec<_> = whole.batch.column(1).as_binary::<i32>().iter().collect();
    assert_eq!(values, [None, Some(&[][..]), Some(&[0][..])]);
}

#[test]
fn ragged_rows_are_refused_one_by_one() {
    let whole = read_text("a.csv", "a,b\n1,2\n3\n4,5,6\n7,8\n").expect("valid");
    assert_eq!(whole.rows, [1, 4]);
    let refused: Vec<_> = whole.rejected.iter().map(|bad| (bad.row, bad.line)).collect();
    assert_eq!(refused, [(2, Some(3)), (3, Some(4))]);
    assert_eq!(whole.rejected[0].reason, "the row has 1 fields, the header 2");
}

#[test]
fn bad_coordinates_are_refused_rows_not_a_text_column() {
    let whole =
        read_text("a.csv", "lon,lat,name\n1,2,a\nabc,2,b\n,2,c\n12.5E,2,d\nNaN,2,e\n1e999,2,f\n,,g\n").expect("valid");
    assert_eq!(columns(&whole)[0], "lon: Float64");
    assert_eq!(texts(&whole, "name"), some(&["a", "g"]));
    let refused: Vec<u64> = whole.rejected.iter().map(|bad| bad.row).collect();
    assert_eq!(refused, [2, 3, 4, 5, 6]);
    assert_eq!(whole.rejected[1].reason, "column \"lon\": the coordinate is missing");
}

#[test]
fn numbers_with_signs_and_zeros_are_taken_where_numbers_are_meant() {
    let text = "code,north,east,lon,lat\n007,+59.250,-008.667,+001.5,-00\n+08,-09,100000000000000000000,08,+5\n";
    let file = TestFile::new("a.csv", text);
    let guessed = read(&file.path, &ReadOptions::default()).expect("valid");
    assert_eq!(columns(&guessed), ["code: Utf8", "north: Utf8", "east: Utf8", "lon: Float64", "lat: Float64"]);
    assert_eq!(floats(&guessed, "lon"), [Some(1.5), Some(8.0)]);
    assert_eq!(floats(&guessed, "lat"), [Some(0.0), Some(5.0)]);
    let flags = ReadOptions {
        x: Some("east".into()),
        y: Some("north".into()),
        coordinates: CoordinateOptions::planar(),
        ..ReadOptions::default()
    };
    let named = read(&file.path, &flags).expect("valid");
    assert_eq!(
        (floats(&named, "east"), floats(&named, "north")),
        (vec![Some(-8.667), Some(1e20)], vec![Some(59.25), Some(-9.0)])
    );
    // The types of a dataset, of integers as of floats.
    let types = [("code", ColumnType::Int64), ("north", ColumnType::Float64), ("east", ColumnType::Float64)];
    let options = ReadOptions {
        column_types: types.map(|(name, kind)| (name.to_string(), kind)).to_vec(),
        ..ReadOptions::default()
    };
    let typed = read(&file.path, &options).expect("valid");
    assert_eq!(typed.rejected, []);
    let commas = read_text("a.csv", "lon;lat\n+59,250;-008,667\n").expect("valid");
    assert_eq!((floats(&commas, "lon"), floats(&commas, "lat")), (vec![Some(59.25)], vec![Some(-8.667)]));
    let codes = typed.batch.column_by_name("code").expect("the column").as_primitive::<Int64Type>();
    assert_eq!(codes.values(), &[7, 8]);
    assert_eq!(floats(&typed, "east"), [Some(-8.667), Some(1e20)]);
}

#[test]
fn wkt_and_hexadecimal_wkb_columns_become_geometry() {
    let whole = read_text(
        "a.csv",
        "id,wkt\n1,POINT (1 2)\n2,\n3,\"POLYGON ((0 0, 1 0, 1 1, 0 0)\"\n4,0101000000000000000000F03F0000000000000040\n5,SRID=4326;POINT (3 4)\n6,SRID=3857;POINT (3 4)\n",
    )
    .expect("valid");
    let points = ["POINT(1 2)", "POINT(1 2)", "POINT(3 4)", "POINT(0.000026949458523585636 0.0000359326113647785)"];
    let shown: Vec<String> = wkt(&whole).into_iter().flatten().map(|text| text.replace("POINT (", "POINT(")).collect();
    assert_eq!(shown, points);
    assert_eq!(whole.rows, [1, 2, 4, 5, 6]);
    assert_eq!(whole.rejected.iter().map(|bad| bad.row).collect::<Vec<_>>(), [3]);
    assert!(whole.source.notices()[0].contains("EPSG:3857"), "{:?}", whole.source.notices());
}

#[test]
fn headers_that_are_not_names_are_refused_with_a_hint() {
    for (text, words) in [
        ("1,2\n3,4\n", "header"),
        ("139.7,35.6,Tokyo\n1,2,x\n", "header"),
        ("a,a\n1,2\n", "two columns are called \"a\""),
    ] {
        let error = read_text("a.csv", text).expect_err(text).to_string();
        assert!(error.contains(words), "{error}");
    }
    let file = TestFile::new("a.csv", "1.5,2\n3,4\n");
    let options = ReadOptions { header: Header::Absent, ..ReadOptions::default() };
    let whole = read(&file.path, &options).expect("valid without a header");
    assert_eq!(columns(&whole), ["column_1: Float64", "column_2: Int64"]);
    assert_eq!(whole.batch.num_rows(), 2);
}

#[test]
fn text_that_is_not_csv_is_refused_with_its_place() {
    for (content, words) in [
        (&b"a,b\n1,\"x\n2,y\n"[..], "line 2: a quote is opened and never closed"),
        (b"a,b\n1,\0\n", "line 2: there is a NUL byte"),
        (b"\xff\xfea\0,\0b\0", "UTF-16"),
        (b"", "the file is empty"),
        (b"\n\n", "nothing but blanks"),
    ] {
        let error = read_text("a.csv", content).expect_err(words).to_string();
        assert!(error.contains(words), "{error}");
    }
    let whole = read_text("a.csv", b"a,b\n1,\xfc\n2,x\n").expect("one row is bad");
    assert_eq!(whole.rows, [2]);
    assert!(whole.rejected[0].reason.contains("not UTF-8 (byte value 0xFC)"));
}

#[test]
fn a_byte_order_mark_is_not_part_of_the_first_name() {
    let whole = read_text("a.csv", "\u{feff}lon,lat\n1,2\n").expect("valid");
    assert_eq!(columns(&whole), ["lon: Float64", "lat: Float64"]);
}

#[test]
fn compressed_files_read_the_same_and_cut_ones_fail() {
    let text = "id,name\n1,a\n2,b\n";
    let zstd = zstd::encode_all(text.as_bytes(), 3).expect("zstd");
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(text.as_bytes()).expect("a vector takes everything");
    let gzip = encoder.finish().expect("a vector takes everything");
    for (name, bytes) in [("a.csv.zst", zstd), ("a.tsv.gz", gzip)] {
        let whole = read_text(name, &bytes).expect(name);
        assert_eq!(texts(&whole, "name"), some(&["a", "b"]), "{name}");
        let error = read_text(name, &bytes[..bytes.len() - 6]).expect_err(name).to_string();
        assert!(error.contains("cut short") || error.contains("decoded"), "{error}");
    }
}

#[test]
fn files_that_are_named_as_compressed_and_are_not_are_refused() {
    for (name, said) in
        [("a.csv.gz", "gzip"), ("a.csv.zst", "Zstandard"), ("A.CSV.GZ", "gzip"), ("a.zstd", "Zstandard")]
    {
        for content in ["id,name\n1,a\n", ""] {
            let error = read_text(name, content).expect_err(name).to_string();
            assert!(error.contains(&format!("the name says {said}")), "{error}");
        }
    }
}

/// Such frames hold data of other programs, and no content.
#[test]
fn zstandard_files_may_begin_with_a_frame_that_is_skipped() {
    let content = zstd::encode_all("id,name\n1,a\n".as_bytes(), 3).expect("a vector takes everything");
    for magic in [0x184d_2a50_u32, 0x184d_2a5f] {
        let skipped = [&magic.to_le_bytes()[..], &5_u32.to_le_bytes(), b"later"].concat();
        for (name, bytes) in
            [("a.csv.zst", [&skipped[..], &content].concat()), ("a.csv", [&skipped[..], &skipped, &content].concat())]
        {
            assert_eq!(texts(&read_text(name, bytes).expect(name), "name"), some(&["a"]), "{name}");
        }
    }
    assert!(read_text("a.csv", [&0x184d_2a60_u32.to_le_bytes()[..], b"\0\0\0\0", &content].concat()).is_err());
}

/// The decoder allocates the window that the file asks for.
#[test]
fn a_large_window_of_compressed_text_is_refused_where_memory_is_small() {
    let text = format!("id,name\n1,{}\n", "a".repeat(9 << 20));
    let compressed = |window_log| {
        let mut encoder = zstd::Encoder::new(Vec::new(), 1).expect("an encoder");
        encoder.window_log(window_log).expect("a window");
        encoder.write_all(text.as_bytes()).expect("a vector takes everything");
        TestFile::new("a.csv.zst", encoder.finish().expect("a vector takes everything"))
    };
    let read = |file: &TestFile, decoded_bytes_max| {
        open(&file.path, &ReadOptions { decoded_bytes_max: Some(decoded_bytes_max), ..ReadOptions::default() })
    };
    let (ordinary, long) = (compressed(23), compressed(24));
    assert!(read(&ordinary, 1 << 20).is_ok());
    assert!(read(&long, 1 << 24).is_ok());
    let error = read(&long, 1 << 20).map(drop).expect_err("a window of 16 MiB").to_string();
    assert!(error.contains("window of more than 8 MiB") && error.contains("--long"), "{error}");
    assert!(terrane_formats::detect(&long.path).is_ok());
}

#[test]
fn integers_beyond_int64_keep_their_digits() {
    let text = "id,s,t,cell\n18446744073709551615,-1,123456789012345678901234,9223372036854775808\n\
                1,18446744073709551615,1,7\n2,0,0,18446744073709551615\n";
    let file = TestFile::new("a.csv", text);
    let with_key = |key: Option<&str>| ReadOptions { key: key.map(str::to_string), ..ReadOptions::default() };
    for (key, id, cell) in [(None, "UInt64", "Utf8"), (Some("cell"), "Utf8", "UInt64"), (Some(""), "Utf8", "Utf8")] {
        let whole = read(&file.path, &with_key(key)).expect("valid");
        let wanted = [format!("id: {id}"), "s: Utf8".into(), "t: Utf8".into(), format!("cell: {cell}")];
        assert_eq!(columns(&whole), wanted);
        let told = |name: &str| {
            whole.source.warnings.iter().any(|warning| warning.contains(name) && warning.contains("beyond int64"))
        };
        assert_eq!((told("\"id\""), told("\"cell\"")), (id == "Utf8", cell == "Utf8"), "{:?}", whole.source.warnings);
        if cell == "Utf8" {
            assert_eq!(texts(&whole, "cell"), some(&["9223372036854775808", "7", "18446744073709551615"]));
        }
    }
}

#[test]
fn named_columns_that_are_missing_are_a_usage_error() {
    let file = TestFile::new("a.csv", "a,b\n1,2\n");
    for (geometry, x, y) in [
        (Some("c"), None, None),
        (None, Some("a"), Some("c")),
        (None, Some("a"), None),
        (Some("a"), Some("a"), Some("b")),
    ] {
        let options = ReadOptions {
            geometry: geometry.map(str::to_string),
            x: x.map(str::to_string),
            y: y.map(str::to_string),
            ..ReadOptions::default()
        };
        let error = read(&file.path, &options).expect_err("no such columns");
        assert!(matches!(error, terrane_formats::FormatError::Usage { .. }), "{error}");
    }
}

#[test]
fn integers_that_a_float_cannot_hold_stay_exact_or_are_refused() {
    let text = "n,m,k\n9007199254740993,9007199254740992,1.5\n0.5,0.5,9007199254740993\n";
    let whole = read_text("a.csv", text).expect("valid");
    assert_eq!(columns(&whole), ["n: Utf8", "m: Float64", "k: Utf8"]);
    assert_eq!(texts(&whole, "n"), some(&["9007199254740993", "0.5"]));
    assert!(whole.source.warnings.iter().any(|warning| warning.contains("\"n\" is text")), "{:?}", whole.source);
    // In a column that is a float already.
    let options = ReadOptions { column_types: vec![("n".into(), ColumnType::Float64)], ..ReadOptions::default() };
    let file = TestFile::new(
        "a.csv",
        "n\n9007199254740993\n9007199254740992\n-9223372036854775807\n9007199254740993.0\n18446744073709551615\n",
    );
    let whole = read(&file.path, &options).expect("valid");
    assert_eq!(floats(&whole, "n"), [Some(9007199254740992.0); 2]);
    assert_eq!(whole.rejected.iter().map(|bad| bad.row).collect::<Vec<_>>(), [1, 3, 5]);
    assert!(whole.rejected[0].reason.contains("9007199254740993.0"), "{:?}", whole.rejected[0]);
}

#[test]
fn a_missing_header_is_told_with_the_flag_for_it() {
    let error = read_text("a.csv", "1.5,2,a\n3,4,b\n").expect_err("numbers").to_string();
    assert!(error.contains("--no-header"), "{error}");
}

#[test]
fn a_column_with_the_name_of_a_geometry_that_holds_none_is_told_with_a_value() {
    let bad = "1,0101zz\n2,0101\n3,\n4,0101zz\n".repeat(2);
    let whole = read_text("a.csv", format!("id,geometry\n{bad}9,POINT(1 2)\n")).expect("valid");
    assert_eq!(whole.source.geometry, GeometryColumns::None);
    let warning = "column \"geometry\" is not used as geometry because 6 value(s) like \"0101zz\" (row 1) are \
                   neither WKT nor hexadecimal WKB nor GeoJSON";
    assert!(whole.source.warnings.iter().any(|found| found == warning), "{:?}", whole.source.warnings);
    // Beside coordinates it is an ordinary column.
    let whole = read_text("a.csv", "lon,lat,shape\n1,2,round\n").expect("valid");
    assert_eq!(whole.source.warnings, [""; 0]);
}

#[test]
fn a_column_that_what_was_meant_as_a_number_or_date_makes_text_is_told_of() {
    for (good, bad) in [
        ("1", "99999999999999999999"),
        ("1", "-9223372036854775809"),
        ("2020-02-28", "2020-02-30"),
        ("2020-02-28", "2020-13-01"),
        ("2020-02-28T10:00:00Z", "2020-02-28T25:00:00Z"),
    ] {
        let whole = read_text("a.csv", format!("v\n{good}\n{bad}\n")).expect("valid");
        assert_eq!(columns(&whole), ["v: Utf8"]);
        let wanted = format!(
            "column \"v\" is text because of 1 value(s) like {bad:?} (row 2); 1 other(s) are numbers, dates or booleans"
        );
        assert_eq!(whole.source.warnings, [wanted]);
    }
    // Codes and words are text, and so are columns of nothing but overlong integers.
    for text in ["1\na\n", "1\n007\n", "1\n2020-02-30x\n", "99999999999999999999\n99999999999999999998\n"] {
        let whole = read_text("a.csv", format!("v\n{text}")).expect("valid");
        assert_eq!((columns(&whole), whole.source.warnings), (vec!["v: Utf8".to_string()], vec![]), "{text}");
    }
}

/// Names of columns that begin like binary formats.
#[test]
fn letters_at_the_beginning_make_no_binary_format() {
    for name in ["PARENT_ID", "ORCID", "BZh9", "fgb"] {
        let whole = read_text("a.csv", format!("{name},lon,lat\n1,2,3\n")).expect(name);
        assert_eq!(columns(&whole)[0], format!("{name}: Int64"));
    }
    for magic in ["PARE", "ORC", "BZh91AY&SY", "fgb\u{3}fgb"] {
        let error = read_text("a", format!("{magic}\0\u{1}\u{2}")).expect_err(magic).to_string();
        assert!(error.contains("not supported"), "{error}");
    }
}

#[test]
fn as_many_columns_as_no_dataset_has_are_refused() {
    let names: Vec<String> = (0..10_001).map(|number| format!("c{number}")).collect();
    let error = read_text("a.csv", format!("{}\n1\n", names.join(","))).expect_err("too many").to_string();
    assert!(error.contains("too many fields"), "{error}");
    let whole = read_text("a.csv", format!("lon,lat{}\n1,2{}\n", ",".repeat(5000), ",".repeat(5000))).expect("valid");
    assert_eq!(columns(&whole).len(), 5002);
}
