//! The common interfaces of a tree, by its own methods of the same names.

/// Implements [`PersistentTree`](crate::PersistentTree),
/// [`PersistentRTree`](crate::PersistentRTree) and [`NearestSearch`](crate::NearestSearch) for a
/// type of trees with these options. If searches take a mode, it is given too.
macro_rules! implement_interfaces {
    ($Tree:ident, $Options:ty $(, $mode:expr)?) => {
        impl<const D: usize, B: terrane_pmem::Backend> crate::PersistentTree for $Tree<D, B> {
            type Backend = B;
            type Options = $Options;
            type Census = crate::Census;

            fn create(
                storage: &dyn terrane_storage::Storage,
                name: &str,
                options: &Self::Options,
            ) -> crate::Result<Self> {
                Self::create(storage, name, options)
            }

            fn open(storage: &dyn terrane_storage::Storage, name: &str, options: &Self::Options) -> crate::Result<Self> {
                Self::open(storage, name, options)
            }

            fn durability(&self) -> crate::Durability {
                crate::Durability::of_medium(self.pool().backend().domain())
            }

            fn pool(&self) -> &terrane_pmem::Pool<B> {
                self.pool()
            }

            fn check(&mut self) -> crate::Result<crate::Census> {
                self.check()
            }

            fn close(self: Box<Self>) -> crate::Result<()> {
                Self::close(*self)
            }
        }

        impl<const D: usize, B: terrane_pmem::Backend> crate::PersistentRTree<D> for $Tree<D, B> {
            fn insert(&self, rect: &crate::Rect<D>, payload: u64) -> crate::Result<()> {
                self.insert(rect, payload)
            }

            fn delete(&self, rect: &crate::Rect<D>, payload: u64) -> crate::Result<bool> {
                self.delete(rect, payload)
            }

            fn contains(&self, rect: &crate::Rect<D>, payload: u64) -> crate::Result<bool> {
                self.contains(rect, payload)
            }

            fn window(
                &self,
                window: &crate::Rect<D>,
                visit: &mut dyn FnMut(&crate::Rect<D>, u64),
            ) -> crate::Result<()> {
                self.window(window, $($mode,)? visit)
            }
        }

        impl<const D: usize, B: terrane_pmem::Backend> crate::NearestSearch<D> for $Tree<D, B> {
            fn nearest(
                &self,
                point: &[f64; D],
                count: usize,
                accepts: &dyn Fn(&crate::Rect<D>, u64) -> bool,
            ) -> crate::Result<Vec<(f64, crate::Rect<D>, u64)>> {
                self.nearest(point, count, $($mode,)? accepts)
            }
        }
    };
}

pub(super) use implement_interfaces;
