//! Merge policies of datasets: printed, set, refused.

use serde_json::{Value as Json, json};

use crate::support::{Sandbox, insert, is_clean, terrane};

fn policy_in_info(store: &std::path::Path) -> Json {
    let info = terrane("info", store, &["--format", "json"]).exits(0).json_lines().remove(0);
    info["datasets"][0].get("merge_policy").cloned().unwrap_or(Json::Null)
}

#[test]
fn a_policy_is_kept_and_taken_away_again() {
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    insert(&store, "d", "{\"id\":1,\"lon\":1,\"lat\":1}\n", &[]).exits(0);
    let policy = |arguments: &[&str]| terrane("policy", &store, &[&["d"], arguments].concat());
    let general = "merge policy of d: prefix, 5 components or 1073741824 bytes\n";
    assert_eq!(policy(&[]).exits(0).text(), general);
    assert_eq!(policy_in_info(&store), Json::Null);
    for (arguments, said, kept) in [
        (&["constant"][..], "constant, 5 components", json!({"constant": {"components_max": 5}})),
        (&["constant", "--components", "2"], "constant, 2 components", json!({"constant": {"components_max": 2}})),
        (
            &["prefix", "--components", "9", "--max-bytes", "64MiB"],
            "prefix, 9 components or 67108864 bytes",
            json!({"prefix": {"mergeable_bytes_max": 64 << 20, "components_max": 9}}),
        ),
        (
            &["size-tiered", "--components", "6", "--ratio", "2", "--min-bytes", "4k"],
            "size-tiered, 6 components of sizes within a factor of 2",
            json!({"size-tiered": {"components_min": 6, "size_ratio": 2, "bytes_min": 4000}}),
        ),
    ] {
        let text = policy(arguments).exits(0).text();
        assert!(text.starts_with(&format!("merge policy of d: {said}")), "{text}");
        assert_eq!(policy(&[]).exits(0).text(), text, "in the next session");
        assert_eq!(policy_in_info(&store), kept);
        let info = terrane("info", &store, &["--format", "text"]).exits(0).text();
        assert!(info.contains(&format!("merge policy {said}")), "{info}");
    }
    assert_eq!(policy(&["default"]).exits(0).text(), general);
    assert_eq!(policy_in_info(&store), Json::Null);
    is_clean(&store);
}

#[test]
fn a_policy_that_cannot_be_changes_nothing() {
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    insert(&store, "d", "{\"id\":1,\"lon\":1,\"lat\":1}\n", &[]).exits(0);
    let policy = |arguments: &[&str]| terrane("policy", &store, &[&["d"], arguments].concat());
    policy(&["leveled"]).exits(2).says("size-tiered");
    policy(&["constant", "--components", "1"]).exits(2).says("at least 2 components");
    policy(&["prefix", "--components", "0"]).exits(2).says("at least 2 components");
    policy(&["size-tiered", "--ratio", "0"]).exits(2).says("the ratio is at least 1");
    policy(&["constant", "--ratio", "3"]).exits(2).says("the policy constant has no parameter --ratio");
    policy(&["prefix", "--min-bytes", "3"]).exits(2).says("the policy prefix has no parameter --min-bytes");
    policy(&["default", "--components", "3"]).exits(2).says("the policy default has no parameter --components");
    policy(&["--components", "3"]).exits(2).says("--components is of a policy; name one");
    policy(&["constant", "--components", "-3"]).exits(2);
    terrane("policy", &store, &["e", "constant"]).exits(2).says("the store has d");
    terrane("policy", &sandbox.path("none"), &["d", "constant"]).exits(2).says("no store");
    assert_eq!(policy_in_info(&store), Json::Null);
}
