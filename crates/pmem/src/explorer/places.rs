//! The flushes and fences that a structure has, whether or not a run reaches them.

use std::collections::BTreeSet;
use std::fmt::{self, Display};

use crate::Instruction;

/// A flush or fence that is left out wherever it has this name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Dropped {
    /// Flush or fence.
    pub instruction: Instruction,
    /// Its name.
    pub site: String,
}

impl Display for Dropped {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let instruction = match self.instruction {
            Instruction::Flush => "flush",
            Instruction::Fence => "fence",
        };
        write!(formatter, "{instruction}:{}", self.site)
    }
}

/// A name and its instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    name: &'static str,
    instructions: &'static [Instruction],
}

impl Place {
    /// Of a flush only.
    pub const fn flush(name: &'static str) -> Self {
        Self { name, instructions: &[Instruction::Flush] }
    }

    /// Of a fence only.
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

    /// The instructions that can be left out here.
    pub fn dropped(&self) -> impl Iterator<Item = Dropped> {
        let (instructions, name) = (self.instructions, self.name);
        instructions.iter().map(move |&instruction| Dropped { instruction, site: name.to_owned() })
    }
}

/// All instructions that can be left out of a structure.
pub(super) fn all(places: &[Place]) -> BTreeSet<Dropped> {
    places.iter().flat_map(Place::dropped).collect()
}
