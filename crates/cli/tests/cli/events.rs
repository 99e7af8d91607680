//! Events of the engine on standard error.

use crate::support::{Sandbox, import, terrane};

#[test]
fn the_level_debug_prints_what_the_engine_does() {
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    let file = sandbox.write("a.csv", "id,lon,lat\n1,2,3\n4,5,6\n");
    import(&store, "a", &file, &[]).exits(0);
    import(&store, "a", &file, &["--mode", "upsert"]).exits(0);
    terrane("compact", &store, &["--log", "debug"])
        .exits(0)
        .says("debug: opened to write location=")
        .says("debug: merged dataset=\"a\" partition=0 components=2");
    let quiet = terrane("compact", &store, &[]).exits(0);
    assert!(!quiet.stderr.contains("debug: "), "{}", quiet.stderr);
}
