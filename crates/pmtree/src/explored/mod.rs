//! The trees as subjects of the crash explorer.
//!
//! Each tree is a subject of its own. It lists its flushes and fences, draws its histories, and
//! says which configurations have small cases. R-trees share the steps.

mod btree;
mod fbr;
#[cfg(feature = "baselines")]
mod logged;
mod map;
mod pear;
mod pmr;
mod small;
mod spread;
mod steps;
mod subject;

pub use btree::{ExploredMap, MapModel, MapRun, MapStep, NarrowMap, apply_to_model, random_map_steps};
pub use fbr::Fbr;
#[cfg(feature = "baselines")]
pub use logged::Logged;
pub use pear::Pear;
pub use pmr::Pmr;
pub use small::{Recoveries, SmallTrees, small_trees};
pub use steps::{Model, Step, random_steps, steps_in_turn, steps_of_few};
pub use subject::{Explored, ExploredTree};
