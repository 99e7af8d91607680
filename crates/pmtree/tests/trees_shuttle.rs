//! Trees under several threads in orders of shuttle, in one program, as the searches take as long
//! as each other.
#![cfg(shuttle)]

#[path = "support/entries.rs"]
mod entries;
mod fbr_shuttle;
mod fbr_stopped_shuttle;
