//! Damage in one dataset, found by the merges that follow every command that writes.

use std::fs;

use crate::support::{Sandbox, count, import, insert, terrane};

/// Number of components of an index that triggers a merge.
const COMPONENTS_MAX: usize = 5;

#[test]
fn a_merge_that_meets_damage_fails_no_command_whose_records_are_kept() {
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    insert(&store, "sound", "{\"id\":1,\"lon\":0,\"lat\":0}\n", &[]).exits(0);
    let file = |id: usize| sandbox.write("b.csv", format!("id,lon,lat\n{id},1,2\n"));
    for id in 1..COMPONENTS_MAX {
        import(&store, "damaged", &file(id), &[]).exits(0);
    }
    let mut components: Vec<_> = fs::read_dir(store.join("components"))
        .expect("components")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    components.sort();
    // In the first import the primary comes first, the spatial index second.
    let mut bytes = fs::read(&components[1]).expect("a component");
    bytes[40] ^= 1;
    fs::write(&components[1], bytes).expect("a component");

    let is_told = |answer: crate::support::Answer| {
        let answer = answer.exits(0).says("warning: all records are stored");
        answer.says("dataset \"damaged\" could not be merged").says("run `terrane check`")
    };
    is_told(import(&store, "damaged", &file(COMPONENTS_MAX), &[])).says("imported 1 record");
    is_told(import(&store, "other", &file(1), &[]));
    let inserted = is_told(insert(&store, "sound", "{\"id\":2,\"lon\":0,\"lat\":0}\n", &[]));
    assert_eq!(inserted.text(), "2\n");
    is_told(terrane("delete", &store, &["sound", "--key", "1"]));
    // The damage does not hide the refusal of the rows.
    let refused = insert(&store, "sound", "{\"id\":2,\"lon\":0,\"lat\":0}\n", &[]).exits(5);
    refused.says("warning: all records are stored");
    assert_eq!((count(&store, "sound"), count(&store, "damaged")), (1, COMPONENTS_MAX as u64));
    terrane("compact", &store, &[]).exits(3);
    terrane("check", &store, &[]).exits(3);
}
