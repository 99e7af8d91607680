//! Page counts in the explanations of joins.

use terrane_space::CoordinateSystem;

use super::{Join, JoinOn};
use crate::query::Query;
use crate::schema::KeyType;
use crate::testing::{delete, points, put};
use crate::{Dataset, Key, Store};

const RECORDS: u64 = 60_000;

/// Points in one component, and deletes of nine tenths of them in another. The deleted keys do not
/// fit in memory beside a search.
fn fill(dataset: &Dataset) {
    put(dataset, (0..RECORDS).map(|key| (Key::UInt(key), (key % 100) as f64, (key / 100) as f64)));
    dataset.flush().unwrap();
    delete(dataset, (0..RECORDS).filter(|key| key % 10 > 0).map(Key::UInt));
    dataset.flush().unwrap();
}

/// The counts of both sides together equal the pages read: for the plan, before the first batch,
/// and after it.
#[test]
fn all_pages_read_by_a_join_are_counted() {
    let (store, outer) = points(CoordinateSystem::Planar, KeyType::UInt64);
    let inner = store.create_dataset("inner", (*outer.schema()).clone()).unwrap();
    fill(&outer);
    fill(&inner);
    let (storage, options) = (outer.engine.storage.clone(), outer.engine.options.clone());
    drop((outer, inner));
    store.close().unwrap();
    let few = Query::new().window(9.5, 0.0, 20.5, 30.0);
    for (query, plan, is_read_before_rows) in [
        (few.clone(), "spatial index only", false),
        // The index turns out to be useless, and finding out reads pages.
        (Query::new().window(-1.0, -1.0, 90.0, 1e9), "primary scan", true),
        (few.nearest(10.0, 10.0, 300), "nearest", true),
    ] {
        // Nothing is in memory.
        let store = Store::open_on(storage.clone(), options.clone()).unwrap();
        let (outer, inner) = store.dataset("d").unwrap().snapshot_with(&store.dataset("inner").unwrap()).unwrap();
        let ids = |query: Query| query.columns(["id"]);
        let join = Join::new(JoinOn::WithinDistance(0.5)).outer(ids(query)).inner(ids(Query::new())).limit(200);
        let before = outer.pages_read();
        let mut pairs = outer.join(&inner, &join).unwrap();
        let planned = pairs.explanation();
        assert_eq!(planned.outer.pages_read > 0, is_read_before_rows, "{planned}");
        assert!(planned.inner.pages_read > 0, "{planned}");
        assert_eq!(planned.outer.pages_read + planned.inner.pages_read, outer.pages_read() - before, "{planned}");
        while pairs.next_batch().unwrap().is_some() {}
        let told = pairs.explanation();
        assert_eq!(told.outer.pages_read + told.inner.pages_read, outer.pages_read() - before, "{told}");
        assert!(told.outer.plan.starts_with(plan) && told.outer.pages_read > 0 && told.pairs > 0, "{told}");
        drop((outer, inner, pairs));
        store.close().unwrap();
    }
}
