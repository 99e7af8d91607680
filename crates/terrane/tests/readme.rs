//! What the documents show of the crate.

#[test]
fn the_program_in_the_documents_is_the_example_that_is_compiled() {
    let page = include_str!("../../../docs/rust.md");
    let program = include_str!("../examples/places.rs");
    assert!(page.contains(&format!("```rust\n{program}```")), "put examples/places.rs into docs/rust.md");
}
