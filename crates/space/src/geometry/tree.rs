//! A geometry as a tree of positions with Z and M, to be inspected, changed and written again.

use super::error::GeometryError;
use super::kind::{Dimensions, GeometryKind, Position};
use super::walk::{Visitor, walk};
use super::write::Writer;

/// x, y, z and m. Those that are not among the dimensions are 0.
pub type Coordinates = [f64; 4];

/// A geometry of any kind.
#[derive(Clone, Debug, PartialEq)]
pub struct Tree {
    /// Its kind.
    pub kind: GeometryKind,
    /// Those of all its positions.
    pub dimensions: Dimensions,
    /// Its content.
    pub body: TreeBody,
}

/// The content of a geometry.
#[derive(Clone, Debug, PartialEq)]
pub enum TreeBody {
    /// Of a point, at most one; or of a line.
    Positions(Vec<Coordinates>),
    /// Of a polygon, the outer ring first.
    Rings(Vec<Vec<Coordinates>>),
    /// Of all other kinds.
    Members(Vec<Tree>),
}

impl Tree {
    /// Reads well-known binary.
    ///
    /// # Errors
    /// When the bytes are not a geometry.
    pub fn parse(bytes: &[u8]) -> Result<Self, GeometryError> {
        let mut builder = Builder::default();
        walk(bytes, &mut builder)?;
        Ok(builder.finished.unwrap_or_else(|| Self::empty(GeometryKind::GeometryCollection, Dimensions::XY)))
    }

    /// A geometry without positions.
    pub fn empty(kind: GeometryKind, dimensions: Dimensions) -> Self {
        let body = match kind {
            GeometryKind::Point | GeometryKind::LineString => TreeBody::Positions(Vec::new()),
            GeometryKind::Polygon => TreeBody::Rings(Vec::new()),
            _ => TreeBody::Members(Vec::new()),
        };
        Self { kind, dimensions, body }
    }

    /// A point, or a line.
    pub fn of_positions(kind: GeometryKind, dimensions: Dimensions, positions: Vec<Coordinates>) -> Self {
        Self { kind, dimensions, body: TreeBody::Positions(positions) }
    }

    /// A multi-geometry or a collection.
    pub fn of_members(kind: GeometryKind, dimensions: Dimensions, members: Vec<Self>) -> Self {
        Self { kind, dimensions, body: TreeBody::Members(members) }
    }

    /// Well-known binary.
    pub fn to_wkb(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        self.write(&mut writer);
        writer.bytes
    }

    fn write(&self, writer: &mut Writer) {
        let count = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
        match &self.body {
            TreeBody::Positions(positions) => {
                writer.begin(self.kind, self.dimensions, count(positions.len()));
                positions.iter().for_each(|position| self.write_position(writer, position));
            }
            TreeBody::Rings(rings) => {
                writer.begin(self.kind, self.dimensions, count(rings.len()));
                for ring in rings {
                    writer.ring(count(ring.len()));
                    ring.iter().for_each(|position| self.write_position(writer, position));
                }
            }
            TreeBody::Members(members) => {
                writer.begin(self.kind, self.dimensions, count(members.len()));
                members.iter().for_each(|member| member.write(writer));
            }
        }
    }

    fn write_position(&self, writer: &mut Writer, position: &Coordinates) {
        let [x, y, z, m] = *position;
        match (self.dimensions.has_z, self.dimensions.has_m) {
            (false, false) => writer.numbers(&[x, y]),
            (true, false) => writer.numbers(&[x, y, z]),
            (false, true) => writer.numbers(&[x, y, m]),
            (true, true) => writer.numbers(&[x, y, z, m]),
        }
    }

    /// Calls a function with each position, in order.
    pub fn visit(&self, visit: &mut dyn FnMut(&Coordinates)) {
        match &self.body {
            TreeBody::Positions(positions) => positions.iter().for_each(visit),
            TreeBody::Rings(rings) => rings.iter().flatten().for_each(visit),
            TreeBody::Members(members) => members.iter().for_each(|member| member.visit(visit)),
        }
    }

    /// Changes each position.
    pub fn change(&mut self, change: &dyn Fn(&mut Coordinates)) {
        match &mut self.body {
            TreeBody::Positions(positions) => positions.iter_mut().for_each(change),
            TreeBody::Rings(rings) => rings.iter_mut().flatten().for_each(change),
            TreeBody::Members(members) => members.iter_mut().for_each(|member| member.change(change)),
        }
    }

    /// Gives it and all its members other dimensions.
    pub fn set_dimensions(&mut self, dimensions: Dimensions) {
        self.dimensions = dimensions;
        if let TreeBody::Members(members) = &mut self.body {
            members.iter_mut().for_each(|member| member.set_dimensions(dimensions));
        }
    }

    /// Whether it has no position.
    pub fn is_empty(&self) -> bool {
        match &self.body {
            TreeBody::Positions(positions) => positions.is_empty(),
            TreeBody::Rings(rings) => rings.iter().all(Vec::is_empty),
            TreeBody::Members(members) => members.iter().all(Self::is_empty),
        }
    }

    /// The members of a multi-geometry or a collection, or the geometry itself.
    pub fn members(&self) -> &[Self] {
        match &self.body {
            TreeBody::Members(members) => members,
            _ => std::slice::from_ref(self),
        }
    }

    /// The positions of a point or a line, else none.
    pub fn positions(&self) -> &[Coordinates] {
        match &self.body {
            TreeBody::Positions(positions) => positions,
            _ => &[],
        }
    }

    /// The rings of a polygon, else none.
    pub fn rings(&self) -> &[Vec<Coordinates>] {
        match &self.body {
            TreeBody::Rings(rings) => rings,
            _ => &[],
        }
    }
}

#[derive(Default)]
struct Builder {
    frames: Vec<Tree>,
    finished: Option<Tree>,
}

impl Visitor for Builder {
    fn begin(&mut self, kind: GeometryKind, dimensions: Dimensions, _count: u32) {
        self.frames.push(Tree::empty(kind, dimensions));
    }

    fn ring(&mut self, _count: u32) {
        if let Some(Tree { body: TreeBody::Rings(rings), .. }) = self.frames.last_mut() {
            rings.push(Vec::new());
        }
    }

    fn position(&mut self, position: Position) -> Result<(), GeometryError> {
        let Dimensions { has_z, has_m } = position.dimensions;
        let [x, y, third, fourth] = position.values;
        let coordinates = match (has_z, has_m) {
            (false, false) => [x, y, 0.0, 0.0],
            (true, false) => [x, y, third, 0.0],
            (false, true) => [x, y, 0.0, third],
            (true, true) => [x, y, third, fourth],
        };
        match self.frames.last_mut().map(|frame| &mut frame.body) {
            Some(TreeBody::Positions(positions)) => positions.push(coordinates),
            Some(TreeBody::Rings(rings)) => {
                if let Some(ring) = rings.last_mut() {
                    ring.push(coordinates);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn end(&mut self) {
        let Some(tree) = self.frames.pop() else { return };
        match self.frames.last_mut().map(|frame| &mut frame.body) {
            Some(TreeBody::Members(members)) => members.push(tree),
            _ => self.finished = Some(tree),
        }
    }
}
