//! The operations of a tree, under its lock.

use terrane_pmem::Backend;

use super::tree::LoggedTree;
use crate::rtree::nearest::Nearest;
use crate::rtree::search::Window;
use crate::{NearestSearch, PersistentRTree, Rect, Result};

impl<const D: usize, B: Backend> PersistentRTree<D> for LoggedTree<D, B> {
    fn insert(&self, rect: &Rect<D>, payload: u64) -> Result<()> {
        self.insert_logged(rect, payload)
    }

    fn delete(&self, rect: &Rect<D>, payload: u64) -> Result<bool> {
        self.delete_logged(rect, payload)
    }

    fn contains(&self, rect: &Rect<D>, payload: u64) -> Result<bool> {
        let _lock = self.lock.read();
        Ok(self.find(rect, payload)?.is_some())
    }

    fn window(&self, window: &Rect<D>, visit: &mut dyn FnMut(&Rect<D>, u64)) -> Result<()> {
        let mut target = Window::new(window);
        {
            let _lock = self.lock.read();
            self.search(&mut target)?;
        }
        target.into_hits().iter().for_each(|(rect, payload)| visit(rect, *payload));
        Ok(())
    }
}

impl<const D: usize, B: Backend> NearestSearch<D> for LoggedTree<D, B> {
    fn nearest(
        &self,
        point: &[f64; D],
        count: usize,
        accepts: &dyn Fn(&Rect<D>, u64) -> bool,
    ) -> Result<Vec<(f64, Rect<D>, u64)>> {
        Rect::point(*point)?;
        let mut nearest = Nearest::new(point, count, accepts);
        let _lock = self.lock.read();
        self.search_nearest(&mut nearest)?;
        Ok(nearest.into_sorted())
    }
}
