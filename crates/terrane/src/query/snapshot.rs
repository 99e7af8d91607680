//! Queries of a snapshot, and visits of its spatial index alone.

use std::ops::ControlFlow;

use terrane_lsm::disk::ReadGuard;
use terrane_lsm::search::{WindowScan, spatial_sources};
use terrane_space::windows;

use super::{Explanation, Filters, Nearest, Query, Rows, antimatter_of_fits, count, nearest};
use crate::record::stored_rect;
use crate::secondary::SPATIAL;
use crate::snapshot::{KeyRef, Snapshot};
use crate::{Error, Result};

/// Number of leaves searched before the page cache may free the pages that it has evicted
/// meanwhile.
const STEPS_ENTERED: u32 = 64;

impl Snapshot {
    /// Runs a query. The rows come in batches.
    ///
    /// # Errors
    /// An invalid query, or one at [`ReadCommitted`](crate::Isolation::ReadCommitted), which only
    /// [`Dataset::query`](crate::Dataset::query) accepts; damage; storage.
    pub fn query(&self, query: &Query) -> Result<Rows> {
        query.isolation.check_one_state("a snapshot")?;
        Rows::new(self.clone(), query)
    }

    /// Number of records that a query matches. Records are not read if the spatial index alone
    /// gives the answer.
    ///
    /// # Errors
    /// Those of [`Self::query`].
    pub fn count(&self, query: &Query) -> Result<u64> {
        query.isolation.check_one_state("a snapshot")?;
        count(self.clone(), query)
    }

    /// Calls `visit` with the key of every indexed record whose box meets the window, in no order.
    ///
    /// The keys come from the spatial index alone, or from the records if the deleted keys do not
    /// fit in memory. A point is its own box, so the answer is exact. The box of another geometry
    /// encloses it. In `lonlat`, a window with `x0 > x1` crosses the antimeridian. `visit` should
    /// not block: until it returns, no page that the cache evicts is freed.
    ///
    /// # Errors
    /// An invalid window; damage; storage.
    pub fn visit_window(
        &self,
        x0: f64,
        y0: f64,
        x1: f64,
        y1: f64,
        mut visit: impl FnMut(KeyRef<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        let schema = self.history.newest();
        let key_type = schema.key.key_type;
        let windows = windows(schema.system, x0, y0, x1, y1).map_err(|error| Error::usage(error.to_string()))?;
        let versions = self.spatial_versions()?;
        let sources = spatial_sources(&versions, SPATIAL as usize)?;
        if !antimatter_of_fits(self, &sources, &windows)? {
            // The records have their boxes too, and nothing is hidden there.
            return self.visit_records(&mut |key, stored| match stored_rect(stored, schema.system)? {
                Some(rect) if windows.iter().any(|window| window.intersects(&rect)) => {
                    Ok(visit(KeyRef::decode(key_type, key)?))
                }
                _ => Ok(ControlFlow::Continue(())),
            });
        }
        // Entered once for several leaves.
        let mut guard = ReadGuard::enter();
        let (mut failed, mut steps) = (None, 0);
        for (number, window) in windows.iter().enumerate() {
            let mut broken = false;
            let mut scan = WindowScan::new(sources.iter().copied(), *window, self.sequence());
            while scan.advance(&guard, &mut |hit| {
                // An entry in both halves of a window is visited in the first.
                if number > 0 && windows[..number].iter().any(|earlier| earlier.intersects(&hit.rect())) {
                    return ControlFlow::Continue(());
                }
                let flow = match KeyRef::read(key_type, &hit.key()) {
                    Some(key) => visit(key),
                    None => {
                        let error = KeyRef::decode(key_type, &hit.key()).err();
                        failed = error.map(|error| self.name_record(error, &hit.key()));
                        ControlFlow::Break(())
                    }
                };
                broken |= flow.is_break();
                flow
            })? {
                steps += 1;
                if steps % STEPS_ENTERED == 0 {
                    guard.renew();
                }
            }
            if let Some(error) = failed {
                return Err(error);
            }
            if broken {
                break;
            }
        }
        Ok(())
    }

    /// Calls `visit` with the keys and distances of the `k` nearest points, ordered by distance and
    /// then by key, from the spatial index alone. Distances are in the units of a planar dataset,
    /// and in metres in `lonlat`.
    ///
    /// # Errors
    /// The dataset has other geometries than points (use [`Self::query`]); an invalid place;
    /// damage; storage.
    pub fn visit_nearest(
        &self,
        x: f64,
        y: f64,
        k: usize,
        mut visit: impl FnMut(KeyRef<'_>, f64) -> ControlFlow<()>,
    ) -> Result<()> {
        let schema = self.history.newest();
        if !schema.holds_points() {
            return Err(Error::usage("visit_nearest needs a dataset of points; use a query with nearest for others"));
        }
        let key_type = schema.key.key_type;
        let filters = Filters::new(&Query::new(), schema)?;
        drop(self.spatial_versions()?);
        let (place, index) = (Nearest { x, y, k }, Some(SPATIAL as usize));
        let mut found = nearest::search_at(self, &filters, &place, index, &mut Explanation::default())?;
        while let Some((key, distance)) = found.take() {
            let decoded = KeyRef::decode(key_type, key).map_err(|error| self.name_record(error, key))?;
            if visit(decoded, distance).is_break() {
                break;
            }
        }
        Ok(())
    }
}
