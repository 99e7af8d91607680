//! Programs in the documents.

#[test]
fn the_program_in_the_documents_equals_the_compiled_example() {
    let page = include_str!("../../../docs/rust.md");
    let program = include_str!("../examples/places.rs");
    assert!(page.contains(&format!("```rust\n{program}```")), "put examples/places.rs into docs/rust.md");
}
