//! Covers and ranges against membership computed point by point.

use proptest::prelude::*;

use super::*;

const DOMAIN: Rect = Rect::new(-180.0, -90.0, 180.0, 90.0);

fn holds(ranges: &[CellRange], number: u64) -> bool {
    ranges.iter().any(|range| range.first <= number && number <= range.last)
}

fn rect_strategy() -> impl Strategy<Value = Rect> {
    (-185.0..185.0f64, -95.0..95.0f64, 0.0..60.0f64, 0.0..30.0f64)
        .prop_map(|(x, y, width, height)| Rect::new(x, y, x + width, y + height))
}

#[test]
fn the_papers_example_is_one_range() {
    // Figure 4.3: three levels of 2 by 2; a whole top-level cell is one cell and one range.
    let grid = Grid::new(Rect::new(0.0, 0.0, 8.0, 8.0), &[1, 1, 1]).unwrap();
    let cover = grid.cover(Rect::new(4.0, 0.0, 7.9, 3.9), 100);
    assert_eq!(cover.len(), 1);
    assert_eq!(cover[0].level(), 0);
    assert_eq!(grid.ranges(Rect::new(4.0, 0.0, 7.9, 3.9), 100).len(), 1);
    let cells: Vec<_> = grid.cells_of(Point::new(5.0, 1.0)).collect();
    assert_eq!(cells.len(), 3);
    assert_eq!(cells[0], cover[0]);
    assert_eq!(cells[2], grid.cell_of(Point::new(5.0, 1.0)));
}

#[test]
fn impossible_grids_are_refused() {
    let shapes: [&[u32]; 6] = [&[0; 3], &[], &[1; 29], &[15; 2], &[9], &[u32::MAX; 2]];
    for bits in shapes.into_iter().chain([&[2, 0, 2][..], &[8, 8, 8, 5]]) {
        assert!(matches!(Grid::new(DOMAIN, bits), Err(GridError::Shape { .. })), "{bits:?}");
    }
    for bits in [&[1; 28][..], &[8, 8, 8, 4], &[1]] {
        Grid::new(DOMAIN, bits).unwrap();
    }
    for domain in [Rect::EMPTY, Rect::new(0.0, 0.0, 0.0, 1.0), Rect::new(0.0, 0.0, f64::NAN, 1.0)] {
        let refused = Grid::new(domain, &[2; 2]).unwrap_err();
        assert!(matches!(refused, GridError::Domain { .. }));
        assert!(refused.to_string().ends_with("must be finite and have a width and a height"), "{refused}");
    }
    let refused = Grid::new(Rect::new(-1e308, 0.0, 1e308, 1.5), &[2; 2]).unwrap_err().to_string();
    assert_eq!(
        refused,
        "the domain -1e308,0.0,1e308,1.5 of a grid is wider or higher than float64 can hold; give a smaller one"
    );
}

#[test]
fn a_cover_stays_near_its_limit() {
    let grid = Grid::new(DOMAIN, &[4; 7]).unwrap();
    let cover = grid.cover(Rect::new(-170.3, -80.1, 171.7, 83.3), 1000);
    assert!(!cover.is_empty() && cover.len() <= 1000, "{} cells", cover.len());
}

proptest! {
    #[test]
    fn descendants_are_one_range_without_ancestors(x in -180.0..180.0f64, y in -90.0..90.0f64) {
        let grid = Grid::new(DOMAIN, &[2; 5]).unwrap();
        let chain: Vec<Cell> = grid.cells_of(Point::new(x, y)).collect();
        prop_assert_eq!(chain.len(), 5);
        for (level, above) in chain.iter().enumerate() {
            prop_assert_eq!(above.level() as usize, level);
            let range = grid.descendants(*above);
            for (other_level, other) in chain.iter().enumerate() {
                let inside = range.first <= other.number() && other.number() <= range.last;
                prop_assert_eq!(inside, other_level >= level);
            }
        }
    }

    #[test]
    fn tokens_number_the_cells_of_a_level_along_the_curve(
        points in prop::collection::vec((-180.0..180.0f64, -90.0..90.0f64), 2..40),
    ) {
        let grid = Grid::new(DOMAIN, &[1, 4, 2]).unwrap();
        for (level, order) in [2, 10, 14].into_iter().enumerate() {
            let cell = |&(x, y): &(f64, f64)| grid.cells_of(Point::new(x, y)).nth(level).unwrap();
            let mut cells: Vec<Cell> = points.iter().map(cell).collect();
            cells.sort_unstable();
            let first = grid.first_token(level as u32);
            for pair in cells.windows(2) {
                let (a, b) = (grid.token(pair[0]), grid.token(pair[1]));
                prop_assert!(first <= a && b < first + (1 << order));
                prop_assert_eq!(a == b, pair[0] == pair[1]);
                prop_assert!(a <= b);
            }
        }
    }

    #[test]
    fn a_cell_holds_the_points_whose_cell_it_is(
        a in (-181.0..181.0f64, -91.0..91.0f64), step in (-1.0..1.0f64, -1.0..1.0f64), scale in 0i32..20,
    ) {
        let grid = Grid::new(DOMAIN, &[1, 4, 2, 3, 2]).unwrap();
        let (a, scale) = (Point::new(a.0, a.1), 0.5f64.powi(scale));
        let b = Point::new(a.x + step.0 * 90.0 * scale, a.y + step.1 * 90.0 * scale);
        for (cell, other) in grid.cells_of(a).zip(grid.cells_of(b)) {
            prop_assert!(grid.holds(cell, a));
            prop_assert_eq!(grid.holds(cell, b), cell == other);
        }
    }

    #[test]
    fn ranges_hold_every_point_of_the_window(
        rect in rect_strategy(), u in 0.0..=1.0f64, v in 0.0..=1.0f64, cells_max in 1usize..200,
    ) {
        let grid = Grid::new(DOMAIN, &[1, 4, 2, 3, 2]).unwrap();
        let point = Point::new(rect.x0 + u * (rect.x1 - rect.x0), rect.y0 + v * (rect.y1 - rect.y0));
        prop_assume!(rect.contains_point(point));
        let number = grid.cell_of(point).number();
        prop_assert!(holds(&grid.ranges(rect, cells_max), number));
    }

    #[test]
    fn objects_are_found_under_the_cells_of_their_cover(
        a in rect_strategy(), b in rect_strategy(), u in 0.0..=1.0f64, v in 0.0..=1.0f64,
    ) {
        let grid = Grid::new(DOMAIN, &[1, 4, 2, 3, 2]).unwrap();
        // Moves b until its lower left corner lies in a.
        let (x, y) = (a.x0 + u * (a.x1 - a.x0), a.y0 + v * (a.y1 - a.y0));
        let b = Rect::new(x, y, x + b.x1 - b.x0, y + b.y1 - b.y0);
        let ranges = grid.ranges_with_ancestors(b, 64);
        prop_assert!(grid.cover(a, 50).iter().any(|cell| holds(&ranges, cell.number())));
    }

    #[test]
    fn a_cover_without_limit_has_no_false_cells(rect in rect_strategy(), x in -180.0..180.0f64, y in -90.0..90.0f64) {
        let grid = Grid::new(DOMAIN, &[1; 6]).unwrap();
        let cell = grid.cell_of(Point::new(x, y));
        let (column, row) = grid.column_and_row(Point::new(x, y));
        let span = grid.span(rect);
        let meets = (span.x0..=span.x1).contains(&column) && (span.y0..=span.y1).contains(&row);
        prop_assert_eq!(holds(&grid.ranges(rect, usize::MAX), cell.number()), meets);
    }
}
