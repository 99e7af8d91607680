//! The page: title, map, legend and sources, as SVG that needs no fonts but the viewer's own.

use std::fmt::Write;

use svg::Document;
use svg::node::element::{Circle, ClipPath, Definitions, Group, Line, Path, Rectangle, Text};

use super::density::{Dots, diameter, level};
use super::frame::Frame;
use super::palette::{self, Ramp};
use super::{Options, Position, input};

const LEFT: f64 = 84.0;
const TOP: f64 = 104.0;
const BOTTOM: f64 = 92.0;
const PANEL: f64 = 246.0;
const GAP: f64 = 36.0;
/// Colour steps of a ramp: dots of one step share a path.
const STEPS: usize = 24;
const RAMP_WIDTH: f64 = 192.0;
const FONT: &str = "Inter, 'Segoe UI', 'Helvetica Neue', Helvetica, Arial, sans-serif";

/// Everything that is drawn.
pub struct Content<'a> {
    /// The part of the world shown.
    pub frame: &'a Frame,
    /// All points.
    pub points: &'a [Position],
    /// The answer, if there is one.
    pub highlight: Option<&'a [Position]>,
    /// Lines of the query.
    pub outline: &'a [input::Line],
    /// Titles and labels.
    pub options: &'a Options,
}

/// Draws the page.
pub fn draw(content: &Content<'_>) -> Document {
    let frame = content.frame;
    let width = LEFT + frame.width + GAP + PANEL;
    let height = TOP + frame.height + BOTTOM;
    let ramp = if content.highlight.is_some() { palette::SLATE } else { palette::EMBER };
    let dots = Dots::gather(content.points, frame, diameter(content.points.len()));
    // A large answer keeps the dot size of the points behind it. A small one is drawn large enough
    // to be found.
    let answer = content.highlight.map(|points| {
        let wanted = match points.len() {
            0..1_000 => diameter(points.len()),
            _ => dots.diameter * 1.15,
        };
        Dots::gather(points, frame, wanted.max(dots.diameter))
    });

    let mut map = Group::new().set("transform", format!("translate({LEFT} {TOP})"));
    map = map.add(Rectangle::new().set("width", frame.width).set("height", frame.height).set("fill", palette::GROUND));
    map = map.add(graticule(frame));
    let mut inside = Group::new().set("clip-path", "url(#frame)");
    inside = inside.add(paint(&dots, ramp, 0.95));
    if !content.outline.is_empty() {
        inside = inside.add(outline_path(content, "0.14", 7.0));
    }
    if let Some(answer) = &answer {
        inside = inside.add(paint(answer, palette::AMBER, 1.0));
    }
    if !content.outline.is_empty() {
        inside = inside.add(outline_path(content, "1", 1.6));
    }
    map = map.add(inside).add(scale_bar(frame)).add(
        Rectangle::new()
            .set("width", frame.width)
            .set("height", frame.height)
            .set("fill", "none")
            .set("stroke", palette::EDGE),
    );

    let clip =
        ClipPath::new().set("id", "frame").add(Rectangle::new().set("width", frame.width).set("height", frame.height));
    Document::new()
        .set("viewBox", (0, 0, width, height))
        .set("width", width)
        .set("height", height)
        .set("font-family", FONT)
        .set("role", "img")
        .add(svg::node::element::Title::new(&*content.options.title))
        .add(Definitions::new().add(clip))
        .add(Rectangle::new().set("width", width).set("height", height).set("fill", palette::PAGE))
        .add(heading(content.options))
        .add(map)
        .add(legend(content, &dots, answer.as_ref(), ramp))
        .add(sources(content.options, height))
}

fn text(content: &str, x: f64, y: f64, size: f64, fill: &str) -> Text {
    Text::new(content).set("x", decimal(x)).set("y", decimal(y)).set("font-size", size).set("fill", fill)
}

fn decimal(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").unwrap_or(&text).to_owned()
}

fn heading(options: &Options) -> Group {
    let mut group = Group::new();
    let baseline = if options.subtitle.is_some() { 50.0 } else { 66.0 };
    group = group.add(
        text(&options.title, LEFT, baseline, 28.0, palette::TEXT).set("font-weight", 600).set("letter-spacing", "-0.3"),
    );
    if let Some(subtitle) = &options.subtitle {
        group = group.add(text(subtitle, LEFT, 78.0, 15.0, palette::TEXT_QUIET));
    }
    group
}

/// Dots as round-capped strokes of no length, one path for each colour.
fn paint(dots: &Dots, ramp: Ramp, opacity: f64) -> Group {
    let mut group = Group::new()
        .set("fill", "none")
        .set("stroke-linecap", "round")
        .set("stroke-width", dots.diameter)
        .set("opacity", opacity);
    let count_max = dots.count_max();
    let step_of = |count| (level(count, count_max) * (STEPS - 1) as f64).round() as usize;
    for same in dots.dots.chunk_by(|a, b| step_of(a.count) == step_of(b.count)) {
        let mut path = String::new();
        for dot in same {
            // Writing to a string cannot fail.
            let _ = write!(path, "M{} {}h0", decimal(dot.place[0]), decimal(dot.place[1]));
        }
        let step = same.first().map_or(0, |dot| step_of(dot.count));
        let colour = ramp.at(step as f64 / (STEPS - 1) as f64);
        group = group.add(Path::new().set("d", path).set("stroke", colour));
    }
    group
}

fn outline_path(content: &Content<'_>, opacity: &str, width: f64) -> Path {
    let mut path = String::new();
    for line in content.outline {
        for (index, &position) in line.positions.iter().enumerate() {
            let [x, y] = content.frame.place_unclipped(position);
            let command = if index == 0 { 'M' } else { 'L' };
            let _ = write!(path, "{command}{} {}", decimal(x), decimal(y));
        }
        if line.closed {
            path.push('Z');
        }
    }
    Path::new()
        .set("d", path)
        .set("fill", "none")
        .set("stroke", palette::OUTLINE)
        .set("stroke-opacity", opacity)
        .set("stroke-width", width)
        .set("stroke-linejoin", "round")
}

fn graticule(frame: &Frame) -> Group {
    let mut group = Group::new();
    let line = |x1: f64, y1: f64, x2: f64, y2: f64| {
        Line::new()
            .set("x1", decimal(x1))
            .set("y1", decimal(y1))
            .set("x2", decimal(x2))
            .set("y2", decimal(y2))
            .set("stroke", "#ffffff")
            .set("stroke-opacity", 0.06)
    };
    for value in frame.grid(0) {
        let [x, _] = frame.place_unclipped([value, frame.extent.low[1]]);
        let label = text(&frame.label(0, value), x, frame.height + 20.0, 11.5, palette::TEXT_QUIET);
        group = group.add(line(x, 0.0, x, frame.height)).add(label.set("text-anchor", "middle"));
    }
    for value in frame.grid(1) {
        let [_, y] = frame.place_unclipped([frame.extent.low[0], value]);
        let label = text(&frame.label(1, value), -10.0, y + 4.0, 11.5, palette::TEXT_QUIET);
        group = group.add(line(0.0, y, frame.width, y)).add(label.set("text-anchor", "end"));
    }
    group
}

fn scale_bar(frame: &Frame) -> Group {
    let (label, length) = frame.scale_bar();
    let (x, y) = (18.0, frame.height - 20.0);
    let bar = format!("M{x} {}v6h{}v-6", y - 6.0, decimal(length));
    Group::new()
        .add(
            Rectangle::new()
                .set("x", x - 10.0)
                .set("y", y - 30.0)
                .set("width", decimal(length + 20.0))
                .set("height", 42)
                .set("rx", 5)
                .set("fill", palette::PAGE)
                .set("fill-opacity", 0.72),
        )
        .add(Path::new().set("d", bar).set("fill", "none").set("stroke", palette::TEXT).set("stroke-width", 1.4))
        .add(text(&label, x + length / 2.0, y - 11.0, 12.0, palette::TEXT).set("text-anchor", "middle"))
}

fn legend(content: &Content<'_>, dots: &Dots, answer: Option<&Dots>, ramp: Ramp) -> Group {
    let x = LEFT + content.frame.width + GAP;
    let mut group = Group::new().set("transform", format!("translate({x} {TOP})"));
    let mut y = 12.0;
    group = group.add(caption("POINTS", y)).add(figure(content.points.len(), y + 32.0)).add(ramp_scale(
        dots,
        ramp,
        y + 52.0,
    ));
    y += 150.0;
    if let (Some(answer), Some(points)) = (answer, content.highlight) {
        let label = content.options.highlight_label.to_uppercase();
        group = group
            .add(divider(y - 30.0))
            .add(caption(&label, y))
            .add(figure(points.len(), y + 32.0))
            .add(ramp_scale(answer, palette::AMBER, y + 52.0));
        y += 150.0;
    }
    if !content.outline.is_empty() {
        group = group
            .add(divider(y - 30.0))
            .add(
                Line::new()
                    .set("x1", 0)
                    .set("x2", 30)
                    .set("y1", y)
                    .set("y2", y)
                    .set("stroke", palette::OUTLINE)
                    .set("stroke-width", 2),
            )
            .add(text(&content.options.outline_label, 42.0, y + 4.5, 13.0, palette::TEXT));
        y += 48.0;
    }
    if dots.outside > 0 {
        let note = format!("{} points lie outside the map", thousands(dots.outside));
        group = group.add(text(&note, 0.0, y, 12.0, palette::TEXT_QUIET));
    }
    group
}

fn caption(label: &str, y: f64) -> Text {
    text(label, 0.0, y, 11.5, palette::TEXT_QUIET).set("letter-spacing", "1.4").set("font-weight", 600)
}

fn figure(count: usize, y: f64) -> Text {
    text(&thousands(count as u64), 0.0, y, 26.0, palette::TEXT).set("font-weight", 600)
}

fn divider(y: f64) -> Line {
    Line::new().set("x1", 0).set("x2", RAMP_WIDTH).set("y1", y).set("y2", y).set("stroke", palette::EDGE)
}

/// The ramp with the counts its colours stand for, or one dot when every dot is a single point.
fn ramp_scale(dots: &Dots, ramp: Ramp, y: f64) -> Group {
    let mut group = Group::new();
    let count_max = dots.count_max();
    if count_max <= 1 {
        return group
            .add(Circle::new().set("cx", 5).set("cy", y + 5.0).set("r", 5).set("fill", ramp.at(1.0)))
            .add(text("one point", 18.0, y + 9.0, 12.0, palette::TEXT_QUIET));
    }
    let step = RAMP_WIDTH / STEPS as f64;
    group = group.set("shape-rendering", "crispEdges");
    for index in 0..STEPS {
        group = group.add(
            Rectangle::new()
                .set("x", decimal(index as f64 * step))
                .set("y", y)
                .set("width", decimal(step))
                .set("height", 10)
                .set("fill", ramp.at(index as f64 / (STEPS - 1) as f64)),
        );
    }
    let mut ticks: Vec<u64> =
        (0..6).map(|power| 10_u64.pow(power)).take_while(|&tick| level(tick, count_max) < 0.82).collect();
    ticks.push(count_max);
    for tick in ticks {
        let at = level(tick, count_max);
        let anchor = match at {
            at if at <= 0.0 => "start",
            at if at >= 1.0 => "end",
            _ => "middle",
        };
        group = group.add(
            text(&thousands(tick), at * RAMP_WIDTH, y + 25.0, 11.5, palette::TEXT_QUIET).set("text-anchor", anchor),
        );
    }
    group.add(text("points per dot", 0.0, y + 42.0, 11.5, palette::TEXT_QUIET))
}

fn sources(options: &Options, height: f64) -> Group {
    let projection = if options.planar { "planar coordinates" } else { "equirectangular, WGS 84" };
    let drawn = format!("terrane-lab map · {projection}");
    let mut group = Group::new();
    let mut y = height - 22.0;
    group = group.add(text(&drawn, LEFT, y, 11.5, palette::TEXT_QUIET));
    if let Some(attribution) = &options.attribution {
        y -= 18.0;
        group = group.add(text(attribution, LEFT, y, 11.5, palette::TEXT_QUIET));
    }
    group
}

/// The number with a comma between groups of three digits.
pub fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}
