//! `terrane join`: pairs against loops over the imported files, formats, messages, and refusals.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::support::{Sandbox, import, insert, sample, terrane};

const EARTH_RADIUS_M: f64 = 6_371_008.8;

fn distance_m(a: (f64, f64), b: (f64, f64)) -> f64 {
    let (dx, dy) = ((b.0 - a.0).to_radians(), (b.1 - a.1).to_radians());
    let h = (dy / 2.0).sin().powi(2) + a.1.to_radians().cos() * b.1.to_radians().cos() * (dx / 2.0).sin().powi(2);
    2.0 * EARTH_RADIUS_M * h.sqrt().min(1.0).asin()
}

/// Cities, and zones that hold some of them.
fn store() -> Sandbox {
    let sandbox = Sandbox::new();
    import(&sandbox.store(), "cities", &sample("cities200.csv"), &[]).exits(0);
    let zones = r#"{"id":"north","geometry":{"type":"Polygon","coordinates":[[[-180,30],[180,30],[180,80],[-180,80],[-180,30]]]},"rank":1}
{"id":"east","geometry":{"type":"Polygon","coordinates":[[[60,-20],[170,-20],[170,60],[60,60],[60,-20]]]},"rank":2}
"#;
    insert(&sandbox.store(), "zones", zones, &[]).exits(0);
    sandbox
}

fn cities(sandbox: &Sandbox) -> Vec<(u64, (f64, f64))> {
    let rows = terrane("query", &sandbox.store(), &["cities"]).exits(0).json_lines();
    let place = |row: &Value| (row["lon"].as_f64().unwrap_or(f64::NAN), row["lat"].as_f64().unwrap_or(f64::NAN));
    rows.iter().filter_map(|row| Some((row["key"].as_u64()?, place(row)))).collect()
}

#[test]
fn pairs_of_a_dataset_with_itself_and_their_number() {
    let sandbox = store();
    let cities = cities(&sandbox);
    let mut wanted = BTreeSet::new();
    for (a, from) in &cities {
        for (b, to) in cities.iter().filter(|(b, _)| a < b) {
            if distance_m(*from, *to) <= 500_000.0 {
                wanted.insert((*a, *b));
            }
        }
    }
    assert!(wanted.len() > 20, "{}", wanted.len());
    let flags = ["cities", "cities", "--within-distance", "500000", "--pairs", "ordered"];
    let rows = terrane("join", &sandbox.store(), &flags).exits(0).json_lines();
    let pair = |row: &Value| (row["outer_key"].as_u64().unwrap_or(0), row["inner_key"].as_u64().unwrap_or(0));
    let found: BTreeSet<(u64, u64)> = rows.iter().map(pair).collect();
    assert_eq!((rows.len(), &found), (wanted.len(), &wanted));
    for row in &rows {
        let place = |side: &str| {
            let part = |axis: &str| row[format!("{side}_{axis}")].as_f64().unwrap_or(f64::NAN);
            (part("lon"), part("lat"))
        };
        let distance = row["distance"].as_f64().unwrap_or(f64::NAN);
        assert!((distance - distance_m(place("outer"), place("inner"))).abs() < 1e-3, "{row}");
    }
    let counted = |flags: &[&str]| terrane("join", &sandbox.store(), flags).exits(0).number() as usize;
    assert_eq!(counted(&[&flags[..], &["--count"]].concat()), wanted.len());
    assert_eq!(counted(&[&flags[..], &["--count", "--index", "primary"]].concat()), wanted.len());
    let all = [&flags[..4], &["--count"]].concat();
    assert_eq!(counted(&all), 2 * wanted.len() + cities.len());
    assert_eq!(counted(&[&all[..], &["--pairs", "distinct"]].concat()), 2 * wanted.len());
    assert_eq!(counted(&[&all[..], &["--limit", "7"]].concat()), 7);
}

#[test]
fn zones_with_the_cities_in_them_with_conditions_on_both_sides() {
    let sandbox = store();
    let cities = cities(&sandbox);
    let counted = |flags: &[&str]| terrane("join", &sandbox.store(), flags).exits(0).number() as usize;
    let north = cities.iter().filter(|(_, (_, y))| (30.0..80.0).contains(y)).count();
    let in_north = ["zones", "cities", "--within", "--outer-where", "rank = 1", "--count"];
    assert_eq!(counted(&in_north), north);
    assert_eq!(counted(&["cities", "zones", "--contains", "--inner-where", "rank = 1", "--count"]), north);
    assert_eq!(counted(&["zones", "zones", "--intersects", "--pairs", "distinct", "--count"]), 2);
    let western = cities.iter().filter(|(_, (x, y))| (30.0..80.0).contains(y) && (-180.0..=0.0).contains(x)).count();
    assert_eq!(counted(&[&in_north[..], &["--inner-bbox", "-180,-90,0,90"]].concat()), western);
    let within_circle = [&in_north[..], &["--inner-circle", "0,51,400000"]].concat();
    let near = cities.iter().filter(|(_, place)| place.1 >= 30.0 && distance_m((0.0, 51.0), *place) <= 400_000.0);
    assert_eq!(counted(&within_circle), near.count());
    assert_eq!(counted(&["zones", "cities", "--within", "--outer-limit", "0", "--count"]), 0);
    assert_eq!(
        counted(&[
            "zones",
            "cities",
            "--within",
            "--outer-bbox",
            "60,-20,61,-19",
            "--count",
            "--outer-circle",
            "60,-20,5"
        ]),
        cities.iter().filter(|(_, (x, y))| (60.0..170.0).contains(x) && (-20.0..60.0).contains(y)).count()
    );
}

#[test]
fn pairs_come_in_every_format_with_the_geometries_of_both_sides() {
    let sandbox = store();
    let text = |flags: &[&str]| terrane("join", &sandbox.store(), flags).exits(0).text();
    let zones = ["zones", "zones", "--intersects", "--pairs", "ordered"];
    let row = &terrane("join", &sandbox.store(), &zones).exits(0).json_lines()[0];
    assert_eq!((&row["outer_id"], &row["inner_id"]), (&Value::from("east"), &Value::from("north")));
    for side in ["geometry", "inner_geometry"] {
        assert_eq!(row[side]["type"], "Polygon", "{row}");
    }
    let csv = text(&[&zones[..], &["--format", "csv"]].concat());
    assert!(csv.starts_with("outer_id,outer_geometry,outer_rank,inner_id,inner_geometry,inner_rank\n"), "{csv}");
    assert_eq!(csv.matches("POLYGON").count(), 2, "{csv}");
    let features: Value = serde_json::from_str(&text(&[&zones[..], &["--format", "geojson"]].concat())).unwrap();
    assert_eq!(features["features"][0]["geometry"]["coordinates"][0][0][0], 60.0);
    assert_eq!(features["features"][0]["properties"]["inner_geometry"]["type"], "Polygon");
    let table = text(&["cities", "zones", "--contains", "--limit", "2", "--format", "table"]);
    assert_eq!(table.lines().count(), 4, "{table}");
    let named = [&zones[..], &["--outer-prefix", "a.", "--inner-prefix", "b.", "--format", "csv"]].concat();
    assert!(text(&named).starts_with("a.id,a.geometry,a.rank,b.id,b.geometry,b.rank\n"));
    for format in ["arrow", "parquet"] {
        let answer = terrane("join", &sandbox.store(), &[&zones[..], &["--format", format]].concat()).exits(0);
        assert!(answer.stdout.len() > 500, "{format}");
    }
}

/// As `docs/joins.md` documents them: names of columns, of members in NDJSON, and of properties in
/// GeoJSON.
#[test]
fn columns_of_pairs_have_the_names_that_are_told() {
    let sandbox = store();
    let outlines = sandbox.write("outlines.csv", "id,wkt,rank\nwhole,\"POLYGON((60 40,69 40,69 49,60 49,60 40))\",7\n");
    import(&sandbox.store(), "outlines", &outlines, &["--key", "id"]).exits(0);
    insert(&sandbox.store(), "stations", "{\"id\":1,\"x\":62.5,\"y\":43.5}\n", &[]).exits(0);
    for (outer, inner, columns, members, properties) in [
        (
            "outlines",
            "outlines",
            "outer_id,outer_wkt,outer_rank,inner_id,inner_wkt,inner_rank",
            "outer_id,geometry,outer_rank,inner_id,inner_wkt,inner_rank",
            "outer_id,outer_rank,inner_id,inner_wkt,inner_rank",
        ),
        (
            "outlines",
            "zones",
            "outer_id,wkt,outer_rank,inner_id,geometry,inner_rank",
            "outer_id,wkt,outer_rank,inner_id,geometry,inner_rank",
            "outer_id,outer_rank,inner_id,geometry,inner_rank",
        ),
        (
            "stations",
            "stations",
            "outer_id,outer_x,outer_y,inner_id,inner_x,inner_y",
            "outer_id,outer_x,outer_y,inner_id,inner_x,inner_y",
            "outer_id,inner_id,inner_x,inner_y",
        ),
        (
            "stations",
            "outlines",
            "outer_id,x,y,inner_id,wkt,rank",
            "outer_id,x,y,inner_id,wkt,rank",
            "outer_id,inner_id,wkt,rank",
        ),
    ] {
        let text = |format: &str| {
            let flags = [outer, inner, "--intersects", "--limit", "1", "--format", format];
            terrane("join", &sandbox.store(), &flags).exits(0).text()
        };
        let names =
            |object: &Value| object.as_object().map(|members| members.keys().cloned().collect::<Vec<_>>().join(","));
        assert_eq!(text("csv").lines().next(), Some(columns), "{outer}, {inner}");
        assert_eq!(
            names(&serde_json::from_str(&text("ndjson")).unwrap()).as_deref(),
            Some(members),
            "{outer}, {inner}"
        );
        let feature = &serde_json::from_str::<Value>(&text("geojson")).unwrap()["features"][0];
        assert_eq!(names(&feature["properties"]).as_deref(), Some(properties), "{outer}, {inner}");
        assert_eq!(names(feature).as_deref(), Some("type,properties,geometry"), "{outer}, {inner}");
    }
}

#[test]
fn an_explanation_tells_of_both_sides() {
    let sandbox = store();
    let flags = ["cities", "cities", "--within-distance", "500000", "--count", "--explain"];
    let answer =
        terrane("join", &sandbox.store(), &flags).exits(0).says("join        within distance 500000, all pairs");
    let answer = answer.says("probes      200").says("outer plan        spatial index only");
    let _ = answer.says("inner plan        spatial index only").says("inner index       geometry: used");
    let answer = terrane("join", &sandbox.store(), &[&flags[..], &["--format", "json"]].concat()).exits(0);
    let explanation: Value = serde_json::from_str(&answer.stderr).unwrap();
    assert_eq!((&explanation["probes"], &explanation["inner"]["lookups"]), (&Value::from(200), &Value::from(0)));
    assert_eq!(explanation["pairs"], answer.number());
}

#[test]
fn what_is_wrong_with_a_join_is_told_with_its_side() {
    let sandbox = store();
    let planar = "{\"id\":1,\"x\":500,\"y\":5}\n";
    insert(&sandbox.store(), "plan", planar, &["--planar"]).exits(0);
    for (flags, part) in [
        (&["cities", "zones"][..], "--within-distance"),
        (&["cities"], "INNER"),
        (&["cities", "zones", "--within", "--contains"], "cannot be used with"),
        (&["cities", "zones", "--within-distance", "-5"], "-5 is not a distance for a join"),
        (&["cities", "zones", "--within-distance", "inf"], "inf is not a distance for a join; use a finite number"),
        (&["cities", "zones", "--within-distance", "nan"], "not a distance for a join"),
        (&["cities", "zones", "--within-distance", "far"], "'far'"),
        (&["cities", "towns", "--within"], "there is no dataset \"towns\"; the store has"),
        (&["cities", "plan", "--within"], "is lonlat and dataset \"plan\" is planar"),
        (&["cities", "zones", "--within", "--pairs", "ordered"], "are two datasets"),
        (&["cities", "zones", "--within", "--index", "cells"], "the inner side of the join, dataset \"zones\""),
        (&["cities", "zones", "--within", "--inner-where", "colour = 1"], "the inner side of the join"),
        (
            &["cities", "zones", "--within", "--outer-where", "rank = 1"],
            "the outer side of the join, dataset \"cities\"",
        ),
        (&["cities", "zones", "--within", "--outer-where", "rank ="], "--outer-where: "),
        (&["cities", "zones", "--within", "--outer-bbox", "0,10,1,5"], "the outer side of the join"),
        (&["cities", "cities", "--within", "--outer-prefix", "", "--inner-prefix", ""], "choose other prefixes"),
        (&["cities", "zones", "--within", "--limit", "-1"], "--limit"),
        (&["cities", "zones", "--within", "--format", "xml"], "ndjson"),
    ] {
        let answer = terrane("join", &sandbox.store(), flags);
        assert_eq!((answer.code, answer.text().as_str()), (Some(2), ""), "{flags:?}: {}", answer.stderr);
        assert!(answer.stderr.contains(part), "{flags:?}: {part:?} is not in {}", answer.stderr);
    }
}
