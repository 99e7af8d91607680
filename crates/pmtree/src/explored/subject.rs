//! The FBR-tree, and the tree with which it is compared, as the crash explorer runs them.

mod places;
mod small;
mod tree;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use terrane_pmem::explorer::{Checked, Dropped, Place, Subject};
use terrane_storage::{File, OpenMode, Storage};

use crate::{LeafForm, Options, PersistenceDomain, Rebalancing, Rect, Split};
pub use small::{Recoveries, SmallTrees, small_trees};
pub use tree::Kind;
use tree::Tree;

/// Steps of a history that is drawn, for small nodes, for others, and for the tree that logs: so many that a path has more nodes than the
/// first line of its log names.
const STEPS: usize = 60;
const STEPS_LARGE: usize = 230;
const STEPS_LOGGED: usize = 80;

/// Entries of a tree of two or three leaves of small nodes.
const FEW: usize = 7;

/// Borders of the boxes that are drawn.
const GRID: u32 = 12;

const MEDIA: [(&str, PersistenceDomain); 3] =
    [("adr", PersistenceDomain::Adr), ("eadr", PersistenceDomain::Eadr), ("page-cache", PersistenceDomain::PageCache)];

/// A tree with some options.
#[derive(Clone, Debug)]
pub struct Explored {
    configuration: String,
    kind: Kind,
    options: Options,
}

impl Explored {
    /// Every configuration that is explored: of the FBR-tree small nodes first, then ones with bitmaps of two words; then
    /// the tree that logs whole nodes, small ones, since large ones differ in nothing; at last, where most can be lost, self-validating
    /// leaves that are copied and entries of two lines.
    pub fn configurations() -> Vec<Self> {
        // Each of the splits with one of the ways to rebalance, and one of these with the other form of leaves.
        let forms = [
            ("in-place", LeafForm::Bitmap, Rebalancing::InPlace, Split::RStar),
            ("copy-on-write", LeafForm::Bitmap, Rebalancing::CopyOnWrite, Split::Quadratic),
            ("self-validating", LeafForm::SelfValidating, Rebalancing::InPlace, Split::RStar),
        ];
        let fbr = [4, 60].into_iter().flat_map(|fan_out| forms.map(|form| (Kind::Fbr, fan_out, form)));
        let logged = ("logged", LeafForm::Bitmap, Rebalancing::InPlace, Split::RStar);
        let everywhere = fbr.chain([(Kind::Logged, 4, logged)]);
        let copied = ("self-validating-copied", LeafForm::SelfValidating, Rebalancing::CopyOnWrite, Split::Quadratic);
        let in_4 = ("four-dimensions", LeafForm::Bitmap, Rebalancing::InPlace, Split::RStar);
        let mut all: Vec<Self> = everywhere
            .flat_map(|(kind, fan_out, form)| MEDIA.map(|medium| Self::new(kind, fan_out, form, medium)))
            .collect();
        all.extend([(Kind::Fbr, copied), (Kind::FbrIn4, in_4)].map(|(kind, form)| Self::new(kind, 4, form, MEDIA[0])));
        all
    }

    fn new(
        kind: Kind,
        fan_out: usize,
        (name, leaves, rebalancing, split): (&str, LeafForm, Rebalancing, Split),
        (medium, domain): (&str, PersistenceDomain),
    ) -> Self {
        let mut options = Options { fan_out, leaves, rebalancing, split, ..Options::new(domain) };
        // Small chunks, so that pools grow and are soon looked through.
        options.pool.chunk_length = 1 << 16;
        options.pool.address_space = 1 << 28;
        Self { configuration: format!("{name}-{fan_out}-{medium}"), kind, options }
    }

    /// Which tree it is.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The options.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// A history with this many steps: more insertions than deletions at first, then fewer. Some boxes lie beyond all
    /// others, so that each node above them changes.
    pub fn steps_drawn(&self, seed: u64, count: usize) -> Vec<Step> {
        self.steps_with(seed, count, |step| if step < count / 2 { 0.9 } else { 0.15 })
    }

    /// A history with this many steps: insertions at first, then as many deletions as insertions, so that boxes shrink and grow.
    pub fn steps_in_turn(&self, seed: u64, count: usize) -> Vec<Step> {
        self.steps_with(seed, count, |step| if step < count / 2 { 1.0 } else { 0.5 })
    }

    /// A history with this many steps: a few insertions at first, then as many deletions as insertions, so that the same nodes are met
    /// over and over again; and the number of the first ones.
    pub fn steps_of_few(&self, seed: u64, count: usize) -> (Vec<Step>, usize) {
        (self.steps_with(seed, count, |step| if step < FEW { 1.0 } else { 0.5 }), FEW)
    }

    fn steps_with(&self, seed: u64, count: usize, share_of_insertions: impl Fn(usize) -> f64) -> Vec<Step> {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut model: Vec<(Rect<2>, u64)> = Vec::new();
        let mut steps = Vec::new();
        for step in 0..count {
            if model.len() < 2 || random.random_bool(share_of_insertions(step)) {
                let far = f64::from(GRID) + step as f64;
                let rect = if step % 8 == 7 { Rect::raw([far; 2], [far; 2]) } else { rect_drawn(&mut random) };
                let entry = (rect, step as u64);
                model.push(entry);
                steps.push(Step::Insert(entry.0, entry.1));
            } else {
                let (rect, payload) = model.swap_remove(random.random_range(0..model.len()));
                steps.push(Step::Delete(rect, payload));
            }
        }
        steps
    }
}

/// A box with corners on a grid, so that borders meet often.
fn rect_drawn(random: &mut SmallRng) -> Rect<2> {
    let min: [f64; 2] = std::array::from_fn(|_| f64::from(random.random_range(0..GRID)));
    let max = std::array::from_fn(|axis| min[axis] + f64::from(random.random_range(0..3u32)));
    Rect::raw(min, max)
}

/// What is done to the tree.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    /// An insertion; prints as `+0,0,1,2:7`.
    Insert(Rect<2>, u64),
    /// A deletion, in vain if there is no such entry; prints as `-0,0,1,2:7`.
    Delete(Rect<2>, u64),
    /// An exact look-up; prints as `?0,0,1,2:7`.
    LookUp(Rect<2>, u64),
    /// Makes all durable that is stored, as after a rest; prints as `sync`.
    Sync,
}

impl fmt::Display for Step {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sign, rect, payload) = match self {
            Self::Insert(rect, payload) => ('+', rect, payload),
            Self::Delete(rect, payload) => ('-', rect, payload),
            Self::LookUp(rect, payload) => ('?', rect, payload),
            Self::Sync => return formatter.write_str("sync"),
        };
        let ([x0, y0], [x1, y1]) = (rect.min(), rect.max());
        write!(formatter, "{sign}{x0},{y0},{x1},{y1}:{payload}")
    }
}

impl FromStr for Step {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        if text == "sync" {
            return Ok(Self::Sync);
        }
        let parse = || {
            let (corners, payload) = text.get(1..)?.split_once(':')?;
            let payload = payload.parse().ok()?;
            let corners: Vec<f64> = corners.split(',').map(|number| number.parse().ok()).collect::<Option<_>>()?;
            let &[x0, y0, x1, y1] = corners.as_slice() else { return None };
            let rect = Rect::new([x0, y0], [x1, y1]).ok()?;
            match text.get(..1)? {
                "+" => Some(Self::Insert(rect, payload)),
                "-" => Some(Self::Delete(rect, payload)),
                "?" => Some(Self::LookUp(rect, payload)),
                _ => None,
            }
        };
        parse().ok_or(())
    }
}

/// The entries, in an order that depends on them alone.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Model(Vec<(Rect<2>, u64)>);

impl Model {
    fn insert(&mut self, rect: Rect<2>, payload: u64) {
        let key =
            |(rect, payload): &(Rect<2>, u64)| (*payload, rect.min().map(f64::to_bits), rect.max().map(f64::to_bits));
        let place = self.0.partition_point(|entry| key(entry) <= key(&(rect, payload)));
        self.0.insert(place, (rect, payload));
    }

    fn delete(&mut self, rect: &Rect<2>, payload: u64) -> bool {
        let place = self.0.iter().position(|entry| *entry == (*rect, payload));
        place.map(|place| self.0.remove(place)).is_some()
    }
}

/// A tree in use, and its file.
#[derive(Debug)]
pub struct Run {
    tree: Box<dyn Tree>,
    file: Arc<dyn File>,
}

const NAME: &str = "tree";

impl Run {
    fn new(tree: Checked<Box<dyn Tree>>, storage: &dyn Storage) -> Checked<Self> {
        let tree = tree?;
        let file = storage.open(NAME, OpenMode::Write).map_err(|error| error.to_string())?;
        Ok(Self { tree, file })
    }
}

fn text(error: crate::Error) -> String {
    error.to_string()
}

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Checked<()> {
    if holds { Ok(()) } else { Err(what()) }
}

impl Subject for Explored {
    type Structure = Run;
    type Step = Step;
    type Model = Model;

    fn structure(&self) -> &'static str {
        "fbr"
    }

    fn configuration(&self) -> &str {
        &self.configuration
    }

    fn domain(&self) -> PersistenceDomain {
        self.options.pool.domain
    }

    fn create(&self, storage: &dyn Storage) -> Checked<Run> {
        Run::new(self.kind.create(storage, NAME, &self.options), storage)
    }

    fn open(&self, storage: &dyn Storage) -> Checked<Run> {
        Run::new(self.kind.open(storage, NAME, &self.options), storage)
    }

    fn steps(&self, seed: u64) -> Vec<Step> {
        let count = match self.kind {
            Kind::Fbr if self.options.fan_out > 10 => STEPS_LARGE,
            Kind::Fbr | Kind::FbrIn4 => STEPS,
            Kind::Logged => STEPS_LOGGED,
        };
        self.steps_drawn(seed, count)
    }

    fn apply(&self, Run { tree, file }: &Run, model: &mut Model, step: &Step) -> Checked<()> {
        match step {
            Step::Insert(rect, payload) => {
                model.insert(*rect, *payload);
                tree.insert(rect, *payload)
            }
            Step::Delete(rect, payload) => {
                let (was_there, is_deleted) = (model.delete(rect, *payload), tree.delete(rect, *payload)?);
                ensure(was_there == is_deleted, || format!("{step}: deleted {is_deleted}, was there {was_there}"))
            }
            Step::LookUp(rect, payload) => {
                let (is_there, is_found) = (model.0.contains(&(*rect, *payload)), tree.contains(rect, *payload)?);
                ensure(is_there == is_found, || format!("{step}: found {is_found}, is there {is_there}"))
            }
            Step::Sync => file.sync_data().map_err(|error| error.to_string()),
        }
    }

    fn observe(&self, Run { tree, .. }: &mut Run) -> Checked<Model> {
        let model = tree.entries()?;
        for (rect, payload) in &model.0 {
            let is_found = tree.contains(rect, *payload)?;
            ensure(is_found, || format!("{payload} is not where it should be"))?;
        }
        Ok(model)
    }

    fn work_on(&self, run: &mut Run, mut model: Model) -> Checked<()> {
        let mut random = SmallRng::seed_from_u64(9);
        for payload in 1000..1006 {
            self.apply(run, &mut model, &Step::Insert(rect_drawn(&mut random), payload))?;
        }
        while let Some(&(rect, payload)) = model.0.last() {
            self.apply(run, &mut model, &Step::Delete(rect, payload))?;
        }
        let left = self.observe(run)?;
        ensure(left == model, || format!("{left:?} is left of what was deleted"))
    }

    fn places(&self) -> Vec<Place> {
        places::PLACES.to_vec()
    }

    fn shown_by(&self, dropped: &Dropped) -> Option<&'static str> {
        places::shown_by(dropped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_read_what_they_print() {
        let rect = Rect::new([-0.5, 1e300], [3.25, f64::MAX]).unwrap();
        for step in [Step::Insert(rect, 3), Step::Delete(rect, u64::MAX), Step::LookUp(rect, 0), Step::Sync] {
            assert_eq!(step.to_string().parse(), Ok(step), "{step}");
        }
        let wrong = ["", "+", "+1,2,3:4", "1,2,3,4:5", "+1,2,0,4:5", "+1,2,3,4:x", "é1,2,3,4:5"];
        assert!(wrong.iter().all(|text| text.parse::<Step>().is_err()));
    }
}
