//! The tests of geometries, by behaviour, in one program.
//!
//! Each test program is linked with the whole crate and its dependencies. There is therefore one
//! program, and the files are its modules.

mod antimeridian;
mod apart;
mod distances;
mod geojson;
mod hostile;
mod plane;
mod predicate_vectors;
mod predicates;
mod relate;
mod validity;
mod within;
mod wkb;
mod wkt;
