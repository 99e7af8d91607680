//! Trees under several threads in orders of shuttle. They are in one program, since the searches
//! take similar times.
#![cfg(shuttle)]

mod btree_shuttle;
#[path = "support/entries.rs"]
mod entries;
mod fbr_shuttle;
mod fbr_stopped_shuttle;
mod pear_shuttle;
mod pmr_shuttle;
