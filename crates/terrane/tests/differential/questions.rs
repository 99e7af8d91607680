//! Random queries of a dataset of real data, mostly where the data lies.

use std::fmt;

use geo::Geometry as Geo;
use rand::Rng;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use terrane::condition::{Condition, Literal};
use terrane::schema::{Column, ColumnType};
use terrane::{Filter, Query, Value};
use terrane_space::geometry::from_geo;

use super::brute::{Clause, Rows, matching, nearest, words};
use super::tables::{Row, Table};

/// A query of one dataset.
pub struct Question {
    dataset: &'static str,
    pub filters: Vec<Filter>,
    pub clauses: Vec<Clause>,
    columns: Vec<Column>,
    pub nearest: Option<(f64, f64, usize)>,
    /// The rows of the areas in the query.
    areas: Vec<String>,
}

/// The kind of a query.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    Everything,
    /// The whole world, through an index.
    World,
    Window,
    Antimeridian,
    Circle,
    Pole,
    Intersects,
    Within,
    Attribute,
    Words,
    Combined,
    Nearest,
    NearestOfSome,
}

/// All kinds.
pub const KINDS: [Kind; 13] = [
    Kind::Everything,
    Kind::World,
    Kind::Window,
    Kind::Antimeridian,
    Kind::Circle,
    Kind::Pole,
    Kind::Intersects,
    Kind::Within,
    Kind::Attribute,
    Kind::Words,
    Kind::Combined,
    Kind::Nearest,
    Kind::NearestOfSome,
];

impl Question {
    /// A random query of a kind about the rows of a table, with areas from another table.
    pub fn draw(rng: &mut SmallRng, kind: Kind, table: &Table, areas: &Table) -> Self {
        let mut question = Self {
            dataset: table.name,
            filters: Vec::new(),
            clauses: Vec::new(),
            columns: table.columns.clone(),
            nearest: None,
            areas: Vec::new(),
        };
        question.add(rng, kind, table, areas);
        question
    }

    fn add(&mut self, rng: &mut SmallRng, kind: Kind, table: &Table, areas: &Table) {
        let row = table.rows.choose(rng).unwrap();
        let (x, y) = (row.rect[0], row.rect[1]);
        match kind {
            Kind::Everything => {}
            Kind::World => self.filters.push(Filter::Window { x0: -180.0, y0: -90.0, x1: 180.0, y1: 90.0 }),
            Kind::Window => self.filters.push(window(rng, table)),
            Kind::Antimeridian => {
                let (west, east) = (rng.random_range(0.0..40.0), rng.random_range(0.0..40.0));
                let (south, north) = (rng.random_range(-90.0..0.0), rng.random_range(0.0..90.0));
                self.filters.push(Filter::Window { x0: 180.0 - west, y0: south, x1: east - 180.0, y1: north });
            }
            Kind::Circle => {
                let radius = match rng.random_range(0..4) {
                    0 => 0.0,
                    _ => 10_f64.powf(rng.random_range(2.0..6.3)),
                };
                self.filters.push(Filter::Circle { x, y, radius });
            }
            Kind::Pole => {
                let latitude = rng.random_range(60.0..90.0) * [-1.0, 1.0][rng.random_range(0..2)];
                let radius = (91.0 - f64::abs(latitude)) * 111_195.0 * rng.random_range(1.0..1.6);
                self.filters.push(Filter::Circle { x: rng.random_range(-180.0..180.0), y: latitude, radius });
            }
            Kind::Intersects | Kind::Within => {
                let (number, area) = area_near(rng, areas, row);
                let bytes = from_geo(&area.geo);
                self.areas.push(format!("@{} {number}", areas.name));
                self.filters.push(if kind == Kind::Within { Filter::Within(bytes) } else { Filter::Intersects(bytes) });
            }
            Kind::Attribute => self.clauses.extend(clause(rng, table)),
            Kind::Words => self.clauses.extend(word(rng, table)),
            Kind::Combined => {
                let places = [Kind::Window, Kind::Circle, Kind::Intersects, Kind::Within];
                let place = *places.choose(rng).unwrap();
                self.add(rng, place, table, areas);
                if rng.random_ratio(1, 3) {
                    let place = *places.choose(rng).unwrap();
                    self.add(rng, place, table, areas);
                }
                self.clauses.extend(if rng.random() { clause(rng, table) } else { word(rng, table) });
            }
            Kind::Nearest => {
                let k = [1, 2, 10, 70, 400][rng.random_range(0..5)];
                self.nearest = Some((x, y, k));
            }
            Kind::NearestOfSome => {
                self.add(rng, Kind::Nearest, table, areas);
                match rng.random_range(0..3) {
                    0 => self.add(rng, Kind::Window, table, areas),
                    1 => self.add(rng, Kind::Words, table, areas),
                    _ => self.add(rng, Kind::Attribute, table, areas),
                }
            }
        }
    }

    pub fn query(&self) -> Query {
        let query = self.filters.iter().cloned().fold(Query::new(), Query::filter);
        let query = self.clauses.iter().fold(query, |query, clause| query.condition(self.condition(clause)));
        match self.nearest {
            Some((x, y, k)) => query.nearest(x, y, k),
            None => query,
        }
    }

    fn condition(&self, clause: &Clause) -> Condition {
        let on = |column: usize| Condition::on(self.columns[column].name.as_str());
        match clause {
            Clause::Equals(column, value) => on(*column).equals(literal(value)),
            Clause::Between(column, low, high) => on(*column).between(literal(low), literal(high)),
            Clause::Word(column, word) => on(*column).matches(word.as_str()),
        }
    }

    /// The keys that brute force finds. For a nearest-neighbour query, in order.
    pub fn answer(&self, rows: &Rows<'_>) -> Vec<i64> {
        let keys = matching(rows, &self.filters, &self.clauses);
        match self.nearest {
            Some((x, y, k)) => nearest(rows, keys, (x, y), k),
            None => keys,
        }
    }

    /// Whether spatial indexes, with or without boxes, can find candidates.
    pub fn serves_places(&self, has_boxes: bool) -> bool {
        if self.nearest.is_some() { has_boxes } else { !self.filters.is_empty() }
    }

    pub fn serves_attribute(&self, column: usize) -> bool {
        let demands =
            |clause: &Clause| matches!(clause, Clause::Equals(of, _) | Clause::Between(of, ..) if *of == column);
        self.nearest.is_none() && self.clauses.iter().any(demands)
    }

    pub fn serves_words(&self, column: usize) -> bool {
        let demands = |clause: &Clause| matches!(clause, Clause::Word(of, _) if *of == column);
        self.nearest.is_none() && self.clauses.iter().any(demands)
    }
}

/// In the syntax of the command line, except that areas are named by file and row.
impl fmt::Display for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "terrane query STORE {}", self.dataset)?;
        let mut areas = self.areas.iter();
        for filter in &self.filters {
            match filter {
                Filter::Window { x0, y0, x1, y1 } => write!(f, " --bbox {x0:?},{y0:?},{x1:?},{y1:?}")?,
                Filter::Circle { x, y, radius } => write!(f, " --circle {x:?},{y:?},{radius:?}")?,
                Filter::Intersects(_) => write!(f, " --intersects '{}'", areas.next().map_or("", String::as_str))?,
                Filter::Within(_) => write!(f, " --within '{}'", areas.next().map_or("", String::as_str))?,
            }
        }
        let conditions: Vec<String> = self.clauses.iter().map(|clause| self.condition(clause).to_string()).collect();
        if !conditions.is_empty() {
            write!(f, " --where {:?}", conditions.join(" and "))?;
        }
        match self.nearest {
            Some((x, y, k)) => write!(f, " --nearest {x:?},{y:?} --k {k}"),
            None => Ok(()),
        }
    }
}

fn literal(value: &Value) -> Literal {
    match value {
        Value::Int(value) => (*value).into(),
        Value::Float32(value) => f64::from(*value).into(),
        Value::Float64(value) => (*value).into(),
        Value::Utf8(value) => value.as_str().into(),
        other => panic!("{other:?} is in no condition"),
    }
}

/// A window whose sides are coordinates of rows, so that it touches them. Sometimes it has no area.
fn window(rng: &mut SmallRng, table: &Table) -> Filter {
    let [x0, y0, x1, y1] = table.rows.choose(rng).unwrap().rect;
    let other = table.rows.choose(rng).unwrap().rect;
    let near = rng.random_range(0.01..8.0);
    match rng.random_range(0..5) {
        0 => Filter::Window { x0, y0, x1, y1 },
        1 => Filter::Window { x0: x0.min(other[0]), y0: y0.min(other[1]), x1: x0.max(other[0]), y1: y0.max(other[1]) },
        2 => Filter::Window { x0: x1, y0: (y0 - near).max(-90.0), x1: (x1 + near).min(180.0), y1: y0 },
        _ => {
            let (south, north) = ((y0 - near).max(-90.0), (y0 + near).min(90.0));
            Filter::Window { x0: (x0 - near).max(-180.0), y0: south, x1: (x0 + near).min(180.0), y1: north }
        }
    }
}

/// An area and its row number. The area has the row in its box, if one of those drawn has.
fn area_near<'t>(rng: &mut SmallRng, areas: &'t Table, row: &Row) -> (usize, &'t Row) {
    let is_area = |row: &Row| matches!(row.geo, Geo::Polygon(_) | Geo::MultiPolygon(_));
    let meets = |area: &Row| {
        area.rect[0] <= row.rect[0]
            && row.rect[0] <= area.rect[2]
            && area.rect[1] <= row.rect[1]
            && row.rect[1] <= area.rect[3]
    };
    let mut last = None;
    for _ in 0..200 {
        let number = rng.random_range(0..areas.rows.len());
        let area = &areas.rows[number];
        if is_area(area) {
            last = Some((number, area));
            if meets(area) {
                break;
            }
        }
    }
    last.expect("most rows are areas")
}

/// A condition on a random column with values of some rows; `None` for null.
fn clause(rng: &mut SmallRng, table: &Table) -> Option<Clause> {
    let column = rng.random_range(0..table.columns.len());
    let [first, second] = [(); 2].map(|()| table.rows.choose(rng).unwrap().values[column].clone());
    if first.is_null() || second.is_null() {
        return None;
    }
    if rng.random_ratio(1, 3) {
        return Some(Clause::Equals(column, first));
    }
    let is_ordered = match (&first, &second) {
        (Value::Int(first), Value::Int(second)) => first <= second,
        (Value::Float32(first), Value::Float32(second)) => first <= second,
        (Value::Float64(first), Value::Float64(second)) => first <= second,
        (Value::Utf8(first), Value::Utf8(second)) => first <= second,
        _ => return None,
    };
    Some(if is_ordered { Clause::Between(column, first, second) } else { Clause::Between(column, second, first) })
}

/// A condition on a word of some row.
fn word(rng: &mut SmallRng, table: &Table) -> Option<Clause> {
    let texts: Vec<usize> =
        (0..table.columns.len()).filter(|column| table.columns[*column].column_type == ColumnType::Utf8).collect();
    let column = *texts.choose(rng)?;
    let Value::Utf8(text) = &table.rows.choose(rng).unwrap().values[column] else { return None };
    let words: Vec<String> = words(text).collect();
    words.choose(rng).map(|word| Clause::Word(column, word.clone()))
}
