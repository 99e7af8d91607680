//! Areas within a distance.

use std::f64::consts::FRAC_PI_2;

use datafusion::common::{Result, exec_datafusion_err, exec_err};
use geo::algorithm::buffer::{BufferStyle, LineCap, LineJoin};
use geo::{Buffer, CoordsIter};
use terrane_space::geometry::{Dimensions, GeometryKind, Tree, from_geo};

use super::Kind::{Geometry as G, IntOrText, Number as N};
use super::access::dimension_of;
use super::tail::{Arg, Tail, Value, shape};

/// The functions.
pub(super) const FUNCTIONS: &[Tail] = &[shape(&["st_buffer"], &[G, N, IntOrText], 2, buffer)];

#[derive(Clone, Copy)]
enum Cap {
    Round,
    Flat,
    Square,
}

#[derive(Clone, Copy)]
enum Join {
    Round,
    Mitre,
    Bevel,
}

/// The form of a border.
struct Options {
    /// Edges of a quarter of a circle.
    segments: i64,
    cap: Cap,
    join: Join,
    mitre_max: f64,
}

impl Options {
    fn of(arg: Option<&Arg<'_>>) -> Result<Self> {
        let mut options = Self { segments: 8, cap: Cap::Round, join: Join::Round, mitre_max: 5.0 };
        match arg {
            None => {}
            Some(Arg::Text(text)) => text.split_whitespace().try_for_each(|word| options.set(word))?,
            Some(arg) => options.segments = arg.int()?,
        }
        options.segments = options.segments.clamp(1, 1_000);
        Ok(options)
    }

    fn set(&mut self, word: &str) -> Result<()> {
        let lower = word.to_ascii_lowercase();
        let (name, value) = lower.split_once('=').unwrap_or((&lower, ""));
        let wrong = || exec_datafusion_err!("'{word}' is not an option of st_buffer, such as quad_segs=8");
        match (name, value) {
            ("quad_segs", count) => self.segments = count.parse().map_err(|_| wrong())?,
            ("endcap", "round") => self.cap = Cap::Round,
            ("endcap", "flat" | "butt") => self.cap = Cap::Flat,
            ("endcap", "square") => self.cap = Cap::Square,
            ("join", "round") => self.join = Join::Round,
            ("join", "mitre" | "miter") => self.join = Join::Mitre,
            ("join", "bevel") => self.join = Join::Bevel,
            ("mitre_limit" | "miter_limit", limit) => {
                let limit: f64 = limit.parse().map_err(|_| wrong())?;
                self.mitre_max = if limit.is_finite() { limit.max(1.0) } else { return Err(wrong()) };
            }
            ("side", "both") => {}
            ("side", "left" | "right") => return exec_err!("a buffer on one side is not available"),
            _ => return Err(wrong()),
        }
        Ok(())
    }
}

fn buffer(args: &[Arg<'_>]) -> Result<Value> {
    let distance = args[1].number()?;
    let options = Options::of(args.get(2))?;
    if !distance.is_finite() {
        return exec_err!("{distance} is not a distance");
    }
    let angle = FRAC_PI_2 / options.segments as f64;
    let style = BufferStyle::new(distance)
        .line_cap(match options.cap {
            Cap::Round => LineCap::Round(angle),
            Cap::Flat => LineCap::Butt,
            Cap::Square => LineCap::Square,
        })
        .line_join(match options.join {
            Join::Round => LineJoin::Round(angle),
            // The length of a mitre over the width is 1 / sin(half of the angle).
            Join::Mitre => LineJoin::Miter(2.0 * (1.0 / options.mitre_max).asin()),
            Join::Bevel => LineJoin::Bevel,
        });
    let geometry = args[0].geo()?;
    let is_area = dimension_of(&args[0].tree()?) == 2;
    if distance <= 0.0 && !is_area || geometry.coords_count() == 0 {
        return Ok(Tree::empty(GeometryKind::Polygon, Dimensions::XY).into());
    }
    let mut areas = geometry.buffer_with_style(style);
    Ok(match areas.0.len() {
        0 => Tree::empty(GeometryKind::Polygon, Dimensions::XY).into(),
        1 => Value::Geometry(from_geo(&geo::Geometry::Polygon(areas.0.remove(0)))),
        _ => Value::Geometry(from_geo(&geo::Geometry::MultiPolygon(areas))),
    })
}
