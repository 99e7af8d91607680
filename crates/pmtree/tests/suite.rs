//! The tests of the trees, by behaviour, in one program.
//!
//! Each program is linked with the whole crate and its dependencies. So there is one, and the files
//! are its modules. Tests that end their process, or that other builds run, are programs of their
//! own.

mod beside_writers;
mod btree;
mod btree_crash;
mod btree_damage;
mod btree_damage_numbers;
mod btree_full_disk;
mod costs;
mod crash;
mod damage;
mod damaged_words;
mod earlier_sessions;
mod empty_leaves;
mod every_capacity;
mod full_disk;
mod hostile;
mod interleavings;
mod logged;
mod look_ups;
mod map;
mod marks;
mod model;
mod pear;
mod pear_fences;
mod pear_repairs;
mod pear_states;
mod pear_threads;
mod pmr;
mod pmr_gaps;
mod pmr_threads;
mod relied_on;
mod scenario;
mod seen;
mod support;
mod threads;
mod unnoticed;
mod wide_nodes;
mod writers;
