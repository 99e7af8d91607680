use anyhow::Result;

use super::inserts::check_content;
use super::queries::check_answers;
use super::*;
use crate::neighbours::NeighbourTree;
use crate::system::{Reader, Visitor};
use crate::workload::{Location, Window};

/// Answers like another system, but omits one id.
struct Forgetful {
    inner: Box<dyn Reader>,
    forgotten: i64,
}

impl Reader for Forgetful {
    fn window(&self, window: &Window, visit: &mut Visitor<'_>) -> Result<()> {
        self.inner.window(window, &mut |id| {
            if id != self.forgotten {
                visit(id);
            }
        })
    }

    fn nearest(&self, from: Location, k: usize, visit: &mut Visitor<'_>) -> Result<()> {
        self.inner.nearest(from, k, visit)
    }

    fn footprint(&self) -> Result<Vec<(String, u64)>> {
        self.inner.footprint()
    }
}

#[test]
fn one_missing_row_in_one_answer_ends_the_comparison() {
    let points = Points::generate(2_000).unwrap();
    let tree = NeighbourTree::new(&points);
    let queries = workload::windows(&points, &tree, 10, 50).unwrap();
    let victim = tree.window(&queries.queries[31])[0];
    let ask = |reader: &dyn Reader, window: &Window, visit: &mut Visitor<'_>| reader.window(window, visit);
    for forgotten in [-1, points.id[victim as usize]] {
        let dir = tempfile::tempdir().unwrap();
        let inner = crate::systems::by_name("rstar").unwrap().build(std::slice::from_ref(&points), dir.path()).unwrap();
        let reader = Forgetful { inner, forgotten };
        let outcome = check_answers("forgetful", &reader, &queries, &ask);
        match forgotten {
            -1 => outcome.unwrap(),
            _ => assert!(outcome.unwrap_err().to_string().contains("forgetful answers Window")),
        }
    }
}

#[test]
fn a_store_that_lost_a_record_is_found_out() {
    let points = Points::generate_uniform(20, 0);
    let dir = tempfile::tempdir().unwrap();
    let system = crate::systems::by_name("sqlite-off").unwrap();
    let writer = system.open_writer(dir.path()).unwrap();
    writer.insert_all(&points).unwrap();
    check_content("sqlite-off", writer.as_ref(), &points).unwrap();
    writer.delete(&points.record(3)).unwrap();
    assert!(check_content("sqlite-off", writer.as_ref(), &points).is_err());
}

#[test]
fn every_section_has_its_own_name_and_the_name_clap_knows() {
    use clap::ValueEnum;
    let names: Vec<String> = Section::value_variants()
        .iter()
        .filter_map(|section| Some(section.to_possible_value()?.get_name().to_owned()))
        .collect();
    assert_eq!(names, Section::ALL.map(Section::name));
}
