use serde_json::{Value, json};

use super::*;

fn sample() -> Table {
    let mut table = Table::new("windows", "Windows of 10 hits");
    table.note("one pinned core");
    table.ratios = Some(("geo-index".into(), vec!["cpu"]));
    let params = json!({"hits": 10});
    table.figure("terrane", &params, "cpu", 1_500.0, "ns");
    table.figure("geo-index", &params, "cpu", 1_000.0, "ns");
    table.figure("geo-index", &params, "size", 4096.0, "bytes");
    table
}

fn text(table: &Table, format: Format) -> String {
    let mut out = Vec::new();
    write(table, format, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn a_table_shows_values_ratios_and_gaps() {
    let shown = text(&sample(), Format::Table);
    let lines: Vec<Vec<&str>> = shown.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[2], ["cpu", "to", "geo-index", "size"]);
    assert_eq!(lines[3], ["terrane", "1.50", "µs", "1.50", "x", "-"]);
    assert_eq!(lines[4], ["geo-index", "1", "µs", "1.00", "x", "4", "KiB"]);
}

#[test]
fn targets_are_met_missed_or_not_measured() {
    let mut table = sample();
    table.ratio_target("terrane", "cpu", "geo-index", Bound::AtMost(1.0));
    table.ratio_target("terrane", "cpu", "geo-index", Bound::AtMost(2.5));
    table.target("terrane", "cpu", Bound::AtLeast(1_500.0), "ns");
    table.ratio_target("terrane", "size", "geo-index", Bound::AtMost(1.0));
    let shown = text(&table, Format::Table);
    let verdicts: Vec<&str> = shown.lines().filter_map(|line| line.trim().strip_prefix("target: terrane ")).collect();
    assert_eq!(
        verdicts,
        [
            "cpu at most 1.00 x geo-index: 1.50 x, MISSED",
            "cpu at most 2.50 x geo-index: 1.50 x, met",
            "cpu at least 1.50 µs: 1.50 µs, met",
            "size at most 1.00 x geo-index: not measured",
        ]
    );
}

#[test]
fn json_lines_carry_the_fields_of_every_experiment() {
    let mut table = sample();
    table.ratio_target("terrane", "cpu", "geo-index", Bound::AtMost(1.0));
    table.target("terrane", "cpu", Bound::AtMost(2_000.0), "ns");
    table.ratio_target("terrane", "size", "geo-index", Bound::AtMost(1.0));
    table.figures[0].paper = Some(2.0);
    let lines: Vec<Value> =
        text(&table, Format::Json).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(
        lines[0],
        json!({"experiment": "windows", "system": "terrane", "params": {"hits": 10},
               "metric": "cpu", "value": 1500.0, "unit": "ns", "paper": 2.0})
    );
    assert!(lines[1].get("paper").is_none());
    let ratio = &lines[3];
    assert_eq!(ratio["metric"], "ratio of cpu");
    assert_eq!(ratio["value"], 1.5);
    assert_eq!(ratio["params"]["met"], false);
    assert_eq!(
        lines[4..],
        [json!({"experiment": "windows", "system": "terrane",
                "params": {"row": "terrane", "target": 2_000.0, "met": true},
                "metric": "target of cpu", "value": 1500.0, "unit": "ns"})]
    );
}

#[test]
fn units_follow_the_size_of_the_value() {
    for (value, unit, shown) in [
        (950.0, "ns", "950 ns"),
        (1_234_567.0, "ns", "1.23 ms"),
        (0.25, "s", "250 ms"),
        (0.0, "s", "0 ns"),
        (100_663_296.0, "bytes", "96 MiB"),
        (12_345.0, "1/s", "12.3 k/s"),
        (16.04, "bytes/point", "16.0 B"),
        (42.0, "", "42"),
    ] {
        assert_eq!(units::human(value, unit), shown);
    }
}

#[test]
fn what_a_paper_reports_stands_beside() {
    let mut table = sample();
    table.figure("terrane", &json!({}), "size", 8192.0, "bytes").paper(2048.0);
    let shown = text(&table, Format::Table);
    let lines: Vec<Vec<&str>> = shown.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[2], ["cpu", "to", "geo-index", "size", "paper"]);
    assert_eq!(lines[3], ["terrane", "1.50", "µs", "1.50", "x", "8", "KiB", "2", "KiB"]);
    assert_eq!(lines[4], ["geo-index", "1", "µs", "1.00", "x", "4", "KiB", "-"]);
}
