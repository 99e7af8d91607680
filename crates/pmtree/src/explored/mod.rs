//! The trees as the crash explorer runs them. Each is a subject of its own, with the flushes and fences that it has, the histories that
//! are drawn for it, and its small cases; R-trees share what is done to them.

mod fbr;
#[cfg(feature = "baselines")]
mod logged;
mod small;
mod spread;
mod steps;
mod subject;

pub use fbr::Fbr;
#[cfg(feature = "baselines")]
pub use logged::Logged;
pub use small::{Recoveries, SmallTrees, small_trees};
pub use steps::{Model, Step, steps_drawn, steps_in_turn, steps_of_few};
pub use subject::{Explored, ExploredTree};
