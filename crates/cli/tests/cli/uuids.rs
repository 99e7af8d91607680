//! UUIDs as keys and attributes: text in and out, conditions and indexes, and refusals.

use serde_json::json;

use crate::support::{Sandbox, import, insert, is_clean, rows, terrane};

const FIRST: &str = "00000000-0000-0000-0000-000000000002";
const MIDDLE: &str = "550e8400-e29b-41d4-a716-446655440000";
const LAST: &str = "ffffffff-ffff-ffff-ffff-ffffffffffff";

/// Three keys and two attributes, in different spellings.
const CSV: &str = "id,lon,lat,owner,note\n\
    550E8400-E29B-41D4-A716-446655440000,1,1,{00000000-0000-0000-0000-00000000000A},00000000-0000-0000-0000-000000000001\n\
    00000000000000000000000000000002,2,2,,b\n\
    ffffffff-ffff-ffff-ffff-ffffffffffff,3,3,00000000-0000-0000-0000-00000000000b,c\n";

#[test]
fn uuids_go_through_every_format_and_are_compared_and_ordered_as_uuids() {
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    let types = ["--type", "id=uuid", "--type", "owner=uuid"];
    let csv = sandbox.write("u.csv", CSV);
    import(&store, "csv", &csv, &[&["--key", "id"], &types[..]].concat()).exits(0);
    for format in ["parquet", "arrow", "csv", "ndjson", "geojson"] {
        let copy = sandbox.path(&format!("copy.{format}"));
        std::fs::write(&copy, terrane("query", &store, &["csv", "--format", format]).exits(0).stdout).expect("a file");
        // Parquet and Arrow have the type themselves.
        let types = if ["parquet", "arrow"].contains(&format) { &[][..] } else { &types[..] };
        import(&store, &format!("of_{format}"), &copy, types).exits(0);
    }
    let line = |key: &str, owner: &str| format!("{{\"id\":\"{key}\",\"lon\":1,\"lat\":1,\"owner\":{owner}}}\n");
    let owner = |digit| format!("\"00000000-0000-0000-0000-00000000000{digit}\"");
    let lines = line(&LAST.to_uppercase(), &owner('b')) + &line(FIRST, "null") + &line(MIDDLE, &owner('A'));
    let printed = insert(&store, "inserted", &lines, &types).exits(0);
    assert_eq!(printed.text().lines().next(), Some(&*format!("\"{LAST}\"")));
    let datasets = ["csv", "of_parquet", "of_arrow", "of_csv", "of_ndjson", "of_geojson", "inserted"];
    for is_indexed in [false, true] {
        for dataset in datasets {
            if is_indexed {
                terrane("index", &store, &[dataset, "create", "owners", "--using", "btree", "--on", "owner"]).exits(0);
            }
            let found = rows(&store, dataset, "id");
            let keys: Vec<_> = found.iter().map(|row| row["id"].clone()).collect();
            assert_eq!(keys, [FIRST, MIDDLE, LAST], "{dataset}");
            assert_eq!(
                (&found[0]["owner"], &found[1]["owner"]),
                (&json!(null), &json!("00000000-0000-0000-0000-00000000000a"))
            );
            for (condition, count) in [
                ("id = '550E8400E29B41D4A716446655440000'", 1),
                ("id > '550e8400-e29b-41d4-a716-446655440000'", 1),
                ("id in ('ffffffffffffffffffffffffffffffff', '00000000-0000-0000-0000-000000000002')", 2),
                ("owner = '0000000000000000000000000000000A'", 1),
                (
                    "owner between '00000000-0000-0000-0000-00000000000a' and '{00000000-0000-0000-0000-00000000000B}'",
                    2,
                ),
                ("owner != '00000000-0000-0000-0000-00000000000a'", 1),
                ("owner is null", 1),
            ] {
                let answer = terrane("query", &store, &[dataset, "--where", condition, "--count"]);
                assert_eq!(answer.exits(0).number(), count, "{dataset}, index {is_indexed}: {condition}");
            }
        }
    }
    let index = ["csv", "--index", "owners", "--where", "owner >= '0000000000000000000000000000000B'", "--explain"];
    terrane("query", &store, &index).exits(0).says("attribute index");
    // Text stays text.
    assert_eq!(rows(&store, "csv", "id")[1]["note"], json!("00000000-0000-0000-0000-000000000001"));
    assert!(terrane("info", &store, &[]).exits(0).text().contains("key id (uuid)"));
    is_clean(&store);
}

#[test]
fn records_keyed_by_uuids_are_replaced_deleted_and_restored() {
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    let csv = sandbox.write("u.csv", CSV);
    import(&store, "d", &csv, &["--type", "id=uuid"]).exits(0);
    // The type of an existing column need not be given again.
    let other = format!("id,lon,lat,owner,note\n{},9,9,,new\n", MIDDLE.replace('-', ""));
    let other = sandbox.write("other.csv", &other);
    import(&store, "d", &other, &[]).exits(5).says(MIDDLE);
    import(&store, "d", &other, &["--mode", "upsert"]).exits(0);
    let record = format!("{{\"id\":\"{}\",\"lon\":8,\"lat\":8}}\n", LAST.to_uppercase());
    insert(&store, "d", &record, &[]).exits(5).says(LAST);
    insert(&store, "d", &record, &["--upsert"]).exits(0);
    let found = rows(&store, "d", "id");
    assert_eq!([&found[1]["lon"], &found[2]["lon"]], [&json!(9.0), &json!(8.0)]);
    terrane("delete", &store, &["d", "--key", "00000000000000000000000000000002"]).exits(0);
    terrane("delete", &store, &["d", "--where", &format!("id >= '{LAST}'")]).exits(0);
    let [copies, restored] = ["copies", "restored"].map(|name| sandbox.path(name));
    terrane("backup", &store, &[copies.to_str().expect("UTF-8")]).exits(0);
    terrane("restore", &copies, &[restored.to_str().expect("UTF-8")]).exits(0);
    for store in [&store, &restored] {
        let found = rows(store, "d", "id");
        assert_eq!((found.len(), &found[0]["id"]), (1, &json!(MIDDLE)), "{}", store.display());
        is_clean(store);
    }
}

#[test]
fn what_is_no_uuid_is_refused_with_its_place_and_what_to_write() {
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    let digits = "32 hexadecimal digits";
    let bad = sandbox.write("bad.csv", "id,lon,lat\n550e8400-e29b-41d4-a716-44665544,1,1\n");
    import(&store, "bad", &bad, &["--type", "id=uuid"]).exits(5).says("row 1").says("\"id\"").says(digits);
    let csv = sandbox.write("u.csv", CSV);
    import(&store, "d", &csv, &["--type", "id=uuid", "--type", "owner=uuid"]).exits(0);
    let record = "{\"id\":\"550e8400e29b41d4a716446655440001\",\"lon\":1,\"lat\":1,\"owner\":\"me\"}\n";
    insert(&store, "d", record, &[]).exits(5).says("line 1").says("\"owner\"").says(digits);
    insert(&store, "d", "{\"id\":\"me\",\"lon\":1,\"lat\":1}\n", &[]).exits(5).says("\"id\"").says(digits);
    insert(&store, "d", "{\"id\":7,\"lon\":1,\"lat\":1}\n", &[]).exits(5).says("uuid").says("the number 7");
    terrane("delete", &store, &["d", "--key", "me"]).exits(2).says("--key").says(digits);
    terrane("query", &store, &["d", "--where", "owner = 'me'"]).exits(2).says("\"owner\"").says(digits);
    terrane("query", &store, &["d", "--where", "id = 7"]).exits(2).says("single quotes");
    terrane("query", &store, &["d", "--match", "550e8400"]).exits(0);
    terrane("query", &store, &["d", "--where", "id match '550e8400'"]).exits(2).says("uuid");
    // A dataset of texts does not become one of UUIDs.
    import(&store, "text", &csv, &[]).exits(0);
    import(&store, "text", &csv, &["--type", "id=uuid"]).exits(2).says("keeps its type");
    let copy = sandbox.path("copy.parquet");
    std::fs::write(&copy, terrane("query", &store, &["d", "--format", "parquet"]).exits(0).stdout).expect("a file");
    import(&store, "text", &copy, &["--mode", "upsert"]).exits(5).says("--type id=utf8");
}
