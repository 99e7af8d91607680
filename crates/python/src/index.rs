//! A persistent R-tree alone: boxes with numbers, in a file that survives kill -9.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use numpy::{IntoPyArray, PyArray1};
use pyo3::prelude::*;
use pyo3::types::PyType;
use terrane_pmtree::pear::{Options, PearTree};
use terrane_pmtree::terrane_pmem::Error as PoolError;
use terrane_pmtree::{Error, NearestSearch, PersistenceDomain, Rect};
use terrane_storage::RealStorage;

use crate::arguments;
use crate::arrays::{boxes, numbers, rect};
use crate::error::{ClosedError, CorruptionError, Failure, LockedError, Result, StorageError, usage};

/// All of it lies in the file.
type Tree = PearTree<2>;

/// A persistent R-tree of boxes with a number each, in one file. It is a multiset: the same number
/// may have several boxes. Each change survives the end of the process once its call returns; after
/// a power loss, a file that was not closed is refused. Any number of threads may share it. Its
/// pages have no checksums: damage by the disk may change answers.
///
/// ```python
/// >>> import tempfile, terrane
/// >>> index = terrane.Index(tempfile.mkdtemp() + "/boxes.index")
/// >>> index.insert(7, (0, 0, 1, 1))
/// >>> index.insert_bulk([8, 9], [(2, 2, 3, 3), (5, 5, 6, 6)])
/// >>> sorted(index.query((0.5, 0.5, 2, 2))), index.nearest((9, 9), k=1)
/// ([7, 8], [9])
/// >>> positions, numbers = index.query_bulk([(0, 0, 1, 1), (5, 5, 7, 7)])
/// >>> positions.tolist(), numbers.tolist()
/// ([0, 1], [7, 9])
/// >>> index.remove(7, (0, 0, 1, 1)), len(index)
/// (True, 2)
/// >>> index.close()
///
/// ```
#[pyclass(module = "terrane", name = "Index", frozen)]
pub struct PyIndex {
    tree: Mutex<Option<Arc<Tree>>>,
    path: PathBuf,
    pid: u32,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let message = error.to_string();
        Self::Python(match error {
            Error::NotFinite { .. } | Error::InvalidRect { .. } | Error::OtherShape { .. } => return usage(message),
            Error::Damaged { .. } | Error::Pool(PoolError::Damaged { .. }) => CorruptionError::new_err(message),
            Error::Pool(PoolError::Locked { .. }) => LockedError::new_err(message),
            _ => StorageError::new_err(message),
        })
    }
}

impl PyIndex {
    fn tree(&self) -> PyResult<Arc<Tree>> {
        if self.pid != std::process::id() {
            return Err(ClosedError::new_err(format!(
                "the index {} was opened in process {}, and this is a fork of it; one process at a time has it open",
                self.path.display(),
                self.pid
            )));
        }
        let tree = self.tree.lock().unwrap_or_else(PoisonError::into_inner).clone();
        tree.ok_or_else(|| ClosedError::new_err(format!("the index {} is closed", self.path.display())))
    }
}

/// Opens the file of a tree, or creates it.
fn open_or_create(path: &Path) -> Result<Tree> {
    let name = path.file_name().and_then(|name| name.to_str());
    let name = name.ok_or_else(|| usage(format!("{} names no file", path.display())))?;
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let storage = RealStorage::new(directory);
    let options = Options::new(PersistenceDomain::PageCache);
    match path.exists() {
        true => Ok(Tree::open(&storage, name, &options)?),
        false => Ok(Tree::create(&storage, name, &options)?),
    }
}

/// Positions of windows and the numbers that they find, by position. Windows are searched in the
/// order of their places, so that neighbours find the nodes in the processor's caches.
fn found_by_windows(tree: &Tree, windows: &[Option<Rect<2>>]) -> terrane_pmtree::Result<(Vec<i64>, Vec<u64>)> {
    let mut found = Vec::new();
    let mut ranges = vec![0..0; windows.len()];
    for position in by_place(windows) {
        let Some(window) = &windows[position] else { continue };
        let start = found.len();
        tree.window(window, |_, id| found.push(id))?;
        ranges[position] = start..found.len();
    }
    let (mut positions, mut ids) = (Vec::with_capacity(found.len()), Vec::with_capacity(found.len()));
    for (range, position) in ranges.into_iter().zip(0_i64..) {
        positions.resize(positions.len() + range.len(), position);
        ids.extend_from_slice(&found[range]);
    }
    Ok((positions, ids))
}

/// The positions of windows, those of near windows near each other: along a Z-order curve of their
/// lower corners.
fn by_place(windows: &[Option<Rect<2>>]) -> Vec<usize> {
    let corners = || windows.iter().map(|window| window.as_ref().map_or([0.0; 2], |window| *window.min()));
    let (mut low, mut high) = ([f64::INFINITY; 2], [f64::NEG_INFINITY; 2]);
    for corner in corners() {
        low = [low[0].min(corner[0]), low[1].min(corner[1])];
        high = [high[0].max(corner[0]), high[1].max(corner[1])];
    }
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number from 0 to 65535")]
    let cell = |value: f64, axis: usize| ((value - low[axis]) / (high[axis] - low[axis]) * 65_535.0) as u16;
    let mut order: Vec<(u32, usize)> =
        corners().map(|corner| spread(cell(corner[0], 0)) | spread(cell(corner[1], 1)) << 1).zip(0..).collect();
    order.sort_unstable();
    order.into_iter().map(|(_, position)| position).collect()
}

/// The bits of a number at the even places.
fn spread(number: u16) -> u32 {
    [(8, 0x00ff_00ff), (4, 0x0f0f_0f0f), (2, 0x3333_3333), (1, 0x5555_5555)]
        .into_iter()
        .fold(u32::from(number), |bits, (shift, mask)| (bits | bits << shift) & mask)
}

#[pymethods]
impl PyIndex {
    #[new]
    fn new(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        let tree = py.detach(|| open_or_create(&path))?;
        Ok(Self { tree: Mutex::new(Some(Arc::new(tree))), path, pid: std::process::id() })
    }

    /// Inserts a box (x0, y0, x1, y1) with a number.
    fn insert(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = arguments::id)] id: u64,
        #[pyo3(from_py_with = arguments::corners)] coordinates: [f64; 4],
    ) -> PyResult<()> {
        let (tree, rect) = (self.tree()?, rect(coordinates)?);
        Ok(py.detach(|| tree.insert(&rect, id)).map_err(Failure::from)?)
    }

    /// Inserts boxes, an array of shape (n, 4), with their numbers. A box that is NaN throughout,
    /// as an empty geometry has it, is left out.
    fn insert_bulk(&self, py: Python<'_>, ids: Bound<'_, PyAny>, coordinates: Bound<'_, PyAny>) -> PyResult<()> {
        let (tree, boxes, ids) = (self.tree()?, boxes(&coordinates)?, numbers(&ids)?);
        if boxes.len() != ids.len() {
            return Err(usage(format!("{} numbers for {} boxes", ids.len(), boxes.len())).into());
        }
        let inserted = py.detach(|| {
            let mut boxes = boxes.iter().zip(&ids).filter_map(|(rect, id)| Some((rect.as_ref()?, *id)));
            boxes.try_for_each(|(rect, id)| tree.insert(rect, id))
        });
        Ok(inserted.map_err(Failure::from)?)
    }

    /// Removes a number with exactly this box. Whether it was there.
    fn remove(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = arguments::id)] id: u64,
        #[pyo3(from_py_with = arguments::corners)] coordinates: [f64; 4],
    ) -> PyResult<bool> {
        let (tree, rect) = (self.tree()?, rect(coordinates)?);
        Ok(py.detach(|| tree.delete(&rect, id)).map_err(Failure::from)?)
    }

    /// The numbers of the boxes that meet a box, in no order.
    fn query(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = arguments::corners)] coordinates: [f64; 4],
    ) -> PyResult<Vec<u64>> {
        let (tree, window) = (self.tree()?, rect(coordinates)?);
        let found = py.detach(|| {
            let mut ids = Vec::new();
            tree.window(&window, |_, id| ids.push(id)).map(|()| ids)
        });
        Ok(found.map_err(Failure::from)?)
    }

    /// For each of the boxes, an array of shape (n, 4), the boxes of the index that meet it: two
    /// arrays, the positions of the boxes, ascending, and the numbers found. A box that is NaN
    /// throughout, as an empty geometry has it, meets none.
    #[allow(clippy::type_complexity, reason = "a pair of arrays")]
    fn query_bulk<'py>(
        &self,
        py: Python<'py>,
        coordinates: Bound<'py, PyAny>,
    ) -> PyResult<(Bound<'py, PyArray1<i64>>, Bound<'py, PyArray1<u64>>)> {
        let (tree, windows) = (self.tree()?, boxes(&coordinates)?);
        let found = py.detach(|| found_by_windows(&tree, &windows));
        let (positions, ids) = found.map_err(Failure::from)?;
        Ok((positions.into_pyarray(py), ids.into_pyarray(py)))
    }

    /// The numbers of the `k` boxes that are nearest to a point (x, y), nearest first. All boxes as
    /// far as the last of them are included.
    #[pyo3(signature = (point, k=1))]
    fn nearest(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = arguments::place)] point: [f64; 2],
        #[pyo3(from_py_with = arguments::k)] k: usize,
    ) -> PyResult<Vec<u64>> {
        let tree = self.tree()?;
        let found = py.detach(|| -> terrane_pmtree::Result<Vec<u64>> {
            let mut count = k;
            loop {
                // One more than asked for tells whether others are as far as the last.
                let found = NearestSearch::nearest(&*tree, &point, count.saturating_add(1), &|_, _| true)?;
                let last = k.checked_sub(1).and_then(|last| found.get(last)).map(|(distance, ..)| *distance);
                let Some(last) = last.filter(|_| k > 0) else {
                    return Ok(if k == 0 { Vec::new() } else { found.into_iter().map(|(.., id)| id).collect() });
                };
                let is_whole = found.len() <= count || found.last().is_some_and(|(distance, ..)| *distance > last);
                if is_whole {
                    let near = found.into_iter().take_while(|(distance, ..)| *distance <= last);
                    return Ok(near.map(|(.., id)| id).collect());
                }
                count = count.saturating_mul(2);
            }
        });
        Ok(found.map_err(Failure::from)?)
    }

    /// Number of boxes; reads all of them.
    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        let tree = self.tree()?;
        let counted = py.detach(|| -> terrane_pmtree::Result<usize> {
            let mut count = 0;
            let everything = Rect::new([f64::MIN; 2], [f64::MAX; 2])?;
            tree.window(&everything, |_, _| count += 1).map(|()| count)
        });
        Ok(counted.map_err(Failure::from)?)
    }

    /// Closes the file. It is durable then, also after a power loss.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if self.pid != std::process::id() {
            return Ok(());
        }
        let tree = self.tree.lock().unwrap_or_else(PoisonError::into_inner).take();
        match tree.map(Arc::try_unwrap) {
            Some(Ok(tree)) => Ok(py.detach(|| tree.close()).map_err(Failure::from)?),
            // Another thread is using it, and lets go of it.
            Some(Err(_)) | None => Ok(()),
        }
    }

    fn __enter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        _kind: Option<Bound<'_, PyType>>,
        _value: Option<Bound<'_, PyAny>>,
        _traceback: Option<Bound<'_, PyAny>>,
    ) -> PyResult<bool> {
        self.close(py).map(|()| false)
    }

    fn __repr__(&self) -> String {
        let state = if self.tree().is_ok() { "open" } else { "closed" };
        format!("<terrane.Index {}: {state}>", self.path.display())
    }
}

impl Drop for PyIndex {
    fn drop(&mut self) {
        if self.pid != std::process::id() {
            // A fork leaves the file to its parent.
            std::mem::forget(self.tree.get_mut().unwrap_or_else(PoisonError::into_inner).take());
        }
    }
}
