//! A point on a geometry: in the widest part of an area, or else near the centre.

use geo::{BoundingRect, Centroid, Coord, CoordsIter, Geometry, LineString, Point, Polygon};

/// A point in the parts of the highest dimension; `None` if the geometry is empty.
pub(super) fn point_inside(geometry: &Geometry<f64>) -> Option<Point<f64>> {
    let (mut areas, mut lines) = (Vec::new(), Vec::new());
    gather(geometry, &mut areas, &mut lines);
    let sections = areas.iter().filter_map(|area| widest_section(area));
    if let Some((middle, _)) = sections.reduce(|best, other| if other.1 > best.1 { other } else { best }) {
        return Some(Point(middle));
    }
    let centre = geometry.centroid()?.0;
    let inner = lines.iter().flat_map(|line| line.0.get(1..line.0.len().saturating_sub(1)).into_iter().flatten());
    let nearest = |places: &mut dyn Iterator<Item = Coord<f64>>| {
        let away = |place: &Coord<f64>| (place.x - centre.x).hypot(place.y - centre.y);
        places.min_by(|a, b| away(a).total_cmp(&away(b))).map(Point)
    };
    nearest(&mut inner.copied())
        .or_else(|| nearest(&mut lines.iter().flat_map(|line| line.0.iter().copied())))
        .or_else(|| nearest(&mut geometry.coords_iter()))
}

fn gather<'g>(geometry: &'g Geometry<f64>, areas: &mut Vec<&'g Polygon<f64>>, lines: &mut Vec<&'g LineString<f64>>) {
    match geometry {
        Geometry::Polygon(polygon) => areas.push(polygon),
        Geometry::MultiPolygon(polygons) => areas.extend(&polygons.0),
        Geometry::LineString(line) => lines.push(line),
        Geometry::MultiLineString(all) => lines.extend(&all.0),
        Geometry::GeometryCollection(members) => members.iter().for_each(|member| gather(member, areas, lines)),
        _ => {}
    }
}

/// The middle and the length of the longest section through an area, at a height between vertices
/// near the centre.
fn widest_section(area: &Polygon<f64>) -> Option<(Coord<f64>, f64)> {
    let bounds = area.bounding_rect()?;
    let centre = bounds.min().y.midpoint(bounds.max().y);
    let heights = || area.coords_iter().map(|place| place.y);
    let below = heights().filter(|y| *y <= centre).fold(bounds.min().y, f64::max);
    let above = heights().filter(|y| *y > centre).fold(bounds.max().y, f64::min);
    let y = below.midpoint(above);
    let rings = std::iter::once(area.exterior()).chain(area.interiors());
    let mut crossings: Vec<f64> = Vec::new();
    for edge in rings.flat_map(LineString::lines) {
        let (a, b) = (edge.start, edge.end);
        if (a.y > y) != (b.y > y) {
            crossings.push(a.x + (b.x - a.x) * ((y - a.y) / (b.y - a.y)));
        }
    }
    crossings.sort_by(f64::total_cmp);
    let sections = crossings.chunks_exact(2).map(|ends| (Coord { x: ends[0].midpoint(ends[1]), y }, ends[1] - ends[0]));
    let widest = sections.reduce(|best, other| if other.1 > best.1 { other } else { best });
    // An area without a height.
    widest.or_else(|| area.exterior().0.first().map(|place| (*place, 0.0)))
}
