use super::density::{Dots, level};
use super::draw::thousands;
use super::frame::{Extent, Frame, choose_extent, round_down};
use super::input::{Line, parse_points, read_outline};
use super::palette::{AMBER, EMBER, SLATE};

fn frame(x0: f64, y0: f64, x1: f64, y1: f64) -> Frame {
    Frame::new(Extent::from_corners(&[x0, y0, x1, y1]).unwrap(), false)
}

#[test]
fn rows_are_read_and_those_without_a_position_counted() {
    let rows = "{\"id\":1,\"lon\":-122.5,\"lat\":37.5}\n\n{\"id\":2,\"lon\":null,\"lat\":1}\n{\"lat\":3}\n";
    let points = parse_points(rows.as_bytes(), None).unwrap();
    assert_eq!(points.positions, [[-122.5, 37.5]]);
    assert_eq!(points.skipped, 2);
}

#[test]
fn named_columns_win_over_guessed_ones() {
    let rows = "{\"lon\":1,\"lat\":2,\"a\":3,\"b\":4}";
    let columns = ("a".to_owned(), "b".to_owned());
    let points = parse_points(rows.as_bytes(), Some(&columns)).unwrap();
    assert_eq!(points.positions, [[3.0, 4.0]]);
}

#[test]
fn defects_are_errors_that_name_the_line() {
    for (rows, says) in [
        ("{\"lon\":1,\"lat\":2}\n[1,2]", "line 2"),
        ("{\"lon\":1,\"lat\":2}\n{\"lon\":\"east\",\"lat\":2}", "line 2: lon"),
        ("{\"a\":1}", "no coordinate columns among a"),
        ("{\"lon\":1,", "line 1"),
    ] {
        let error = format!("{:#}", parse_points(rows.as_bytes(), None).unwrap_err());
        assert!(error.contains(says), "{error}");
    }
}

#[test]
fn outlines_are_the_lines_of_lines_and_polygons() {
    let lines =
        read_outline("MULTIPOLYGON (((0 0, 4 0, 4 4, 0 0), (1 1, 2 1, 2 2, 1 1)), ((9 9, 8 9, 8 8, 9 9)))").unwrap();
    assert_eq!(lines.len(), 3);
    assert!(lines.iter().all(|line| line.closed));
    assert_eq!(lines[2].positions[1], [8.0, 9.0]);
    let open = read_outline("LINESTRING (0 0, 1 1)").unwrap();
    assert!(!open[0].closed);
    for refused in ["POINT (1 1)", "POLYGON ((0 0, 1", "", "@/no/such/file"] {
        assert!(read_outline(refused).is_err(), "{refused}");
    }
}

#[test]
fn a_few_stray_points_do_not_shrink_the_map_but_the_answer_is_always_on_it() {
    let mut points: Vec<_> = (0..1_000).map(|i| [f64::from(i % 40) / 40.0, f64::from(i / 40) / 25.0]).collect();
    points.push([170.0, 80.0]);
    let bulk = choose_extent(&points, &[], &[]).unwrap();
    assert!(bulk.high[0] < 2.0 && bulk.high[1] < 2.0, "{bulk:?}");
    let whole = choose_extent(&points, &[[170.0, 80.0]], &[]).unwrap();
    assert_eq!(whole.high, [170.0, 80.0]);
    let outline = [Line { positions: vec![[-7.0, 0.5]], closed: false }];
    assert_eq!(choose_extent(&points, &[], &outline).unwrap().low[0], -7.0);
    assert!(choose_extent(&[], &[], &[]).is_none());
}

#[test]
fn margins_stay_on_earth_and_give_a_single_place_room() {
    let world = Extent::from_corners(&[-179.9, -89.0, 179.9, 85.0]).unwrap();
    assert!(world.padded(false).is_on_earth());
    assert!(!world.padded(true).is_on_earth());
    let place = choose_extent(&[[5.0, 6.0]], &[], &[]).unwrap().padded(false);
    assert_eq!((place.low, place.high), ([4.5, 5.5], [5.5, 6.5]));
}

#[test]
fn a_degree_of_longitude_shrinks_with_latitude() {
    let frame = frame(-1.0, 59.5, 1.0, 60.5);
    let [x0, y0] = frame.place([0.0, 60.0]).unwrap();
    let [x1, _] = frame.place([0.1, 60.0]).unwrap();
    let [_, y1] = frame.place([0.0, 60.1]).unwrap();
    let ratio = (x1 - x0) / (y0 - y1);
    assert!((ratio - 0.5).abs() < 0.01, "{ratio}");
}

#[test]
fn the_frame_keeps_the_extent_and_bounds_its_shape() {
    for corners in [[0.0, 0.0, 10.0, 0.1], [0.0, 0.0, 0.1, 10.0], [3.0, 4.0, 5.0, 6.0]] {
        let [x0, y0, x1, y1] = corners;
        let frame = frame(x0, y0, x1, y1);
        for corner in [[x0, y0], [x1, y1]] {
            assert!(frame.place(corner).is_some(), "{corners:?}");
        }
        let aspect = frame.width / frame.height;
        assert!((0.7..2.05).contains(&aspect), "{corners:?}: {aspect}");
    }
    assert!(frame(0.0, 0.0, 1.0, 1.0).place([5.0, 0.5]).is_none());
}

#[test]
fn grid_lines_are_round_labelled_alike_and_on_earth() {
    let city = frame(-122.52, 37.60, -122.35, 37.82);
    let labels: Vec<String> = city.grid(1).iter().map(|&y| city.label(1, y)).collect();
    assert_eq!(labels, ["37.60° N", "37.65° N", "37.70° N", "37.75° N", "37.80° N"]);
    let world = frame(-180.0, -90.0, 180.0, 90.0);
    assert!(world.grid(0).iter().all(|x| x.abs() <= 180.0));
    assert!(world.grid(1).iter().all(|y| y.abs() <= 90.0));
    assert!(world.grid(1).len() >= 3);
    assert_eq!(world.label(0, -50.0), "50° W");
    assert_eq!(world.label(1, 0.0), "0°");
}

#[test]
fn the_scale_bar_is_a_round_length_of_the_right_size() {
    let frame = frame(-0.5, -0.25, 0.5, 0.25);
    let (label, pixels) = frame.scale_bar();
    assert_eq!(label, "20 km");
    // A degree of longitude at the equator is 111.2 km.
    let expected = frame.width * 20.0 / 111.195;
    assert!((pixels - expected).abs() < 0.5, "{pixels} {expected}");
    for (value, round) in [(0.07, 0.05), (999.0, 500.0), (1.0, 1.0), (0.0023, 0.002)] {
        assert_eq!(round_down(value), round);
    }
}

#[test]
fn dots_stand_for_every_point_inside_the_frame() {
    let frame = frame(0.0, 0.0, 1.0, 1.0);
    let mut points = vec![[0.5, 0.5]; 7];
    points.extend([[0.1, 0.1], [0.9, 0.9], [50.0, 50.0]]);
    let dots = Dots::gather(&points, &frame, 3.0);
    assert_eq!(dots.outside, 1);
    assert_eq!(dots.dots.iter().map(|dot| dot.count).sum::<u64>(), 9);
    assert_eq!((dots.dots.len(), dots.count_max()), (3, 7));
    let middle = frame.place([0.5, 0.5]).unwrap();
    let densest = dots.dots.last().unwrap().place;
    assert!((densest[0] - middle[0]).abs() < 1e-9 && (densest[1] - middle[1]).abs() < 1e-9);
    assert_eq!((level(1, 100), level(10, 100), level(100, 100)), (0.0, 0.5, 1.0));
}

#[test]
fn ramps_grow_lighter_from_end_to_end_and_keep_their_stops() {
    let luminance = |colour: String| {
        let part = |range| f64::from(u8::from_str_radix(&colour[range], 16).unwrap());
        0.2126 * part(1..3) + 0.7152 * part(3..5) + 0.0722 * part(5..7)
    };
    for ramp in [EMBER, SLATE, AMBER] {
        let steps: Vec<f64> = (0..=20).map(|step| luminance(ramp.at(f64::from(step) / 20.0))).collect();
        assert!(steps.windows(2).all(|pair| pair[0] < pair[1]), "{ramp:?} {steps:?}");
    }
    assert_eq!(AMBER.at(0.0), "#d9661f");
    assert_eq!(AMBER.at(1.0), "#fff3c9");
    assert_eq!(AMBER.at(7.0), "#fff3c9");
}

#[test]
fn thousands_are_grouped() {
    for (number, shown) in [(0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")] {
        assert_eq!(thousands(number), shown);
    }
}
