//! What the README shows of the crate.

#[test]
fn the_program_in_the_readme_is_the_example_that_is_compiled() {
    let readme = include_str!("../../../README.md");
    let program = include_str!("../examples/places.rs");
    assert!(readme.contains(&format!("```rust\n{program}```")), "put examples/places.rs into the README");
}
