//! The flushes and fences that a structure has, whether a run comes to them or not.

use std::collections::BTreeSet;

use super::Dropped;
use crate::Instruction;

/// A name, and which instructions there are of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    name: &'static str,
    instructions: &'static [Instruction],
}

impl Place {
    /// Of a flush alone.
    pub const fn flush(name: &'static str) -> Self {
        Self { name, instructions: &[Instruction::Flush] }
    }

    /// Of a fence alone.
    pub const fn fence(name: &'static str) -> Self {
        Self { name, instructions: &[Instruction::Fence] }
    }

    /// Of a flush and of a fence.
    pub const fn both(name: &'static str) -> Self {
        Self { name, instructions: &[Instruction::Flush, Instruction::Fence] }
    }

    /// The name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// What can be left out here.
    pub fn dropped(&self) -> impl Iterator<Item = Dropped> {
        let (instructions, name) = (self.instructions, self.name);
        instructions.iter().map(move |&instruction| Dropped { instruction, site: name.to_owned() })
    }
}

/// All that can be left out of a structure.
pub(super) fn all(places: &[Place]) -> BTreeSet<Dropped> {
    places.iter().flat_map(Place::dropped).collect()
}
