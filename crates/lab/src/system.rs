//! The interface of a system under comparison.
//!
//! A [`System`] makes, opens and fills instances. A [`Reader`] answers queries over an instance. A
//! [`Writer`] takes records one by one. A system lists its [`Role`]s, and each section of the
//! comparison runs the systems with its role.

use std::path::Path;

use anyhow::{Result, bail};

use crate::workload::{Location, Points, Record, Window};

/// A part in the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Builds from a file of points, measured in a process of its own.
    Build,
    /// Answers windows and nearest neighbours over all points in one piece.
    Queries,
    /// Answers them over five pieces that overlap everywhere.
    FiveComponents,
    /// Is only an index, grown by one thread entry by entry, and answers windows and nearest
    /// neighbours.
    Grown,
    /// Is built from all points at once, and answers beside the grown indexes.
    Packed,
    /// Inserts and deletes single records, each on stable storage when its call returns.
    DurableWrites,
    /// Inserts single records that may be lost in a crash.
    UnsyncedWrites,
    /// Survives a killed process and can be opened again.
    Reopen,
    /// Merges its data into its most compact form.
    Compact,
}

/// Name of the part of the footprint that finds points by position.
pub const SPATIAL_INDEX: &str = "spatial index";

/// Visits the id of each answer, in any order.
pub type Visitor<'a> = dyn FnMut(i64) + 'a;

/// A system under comparison, with one fixed setting.
pub trait System: Sync {
    /// Name in tables and on the command line.
    fn name(&self) -> &'static str;

    /// Settings a reader of the figures must know, such as what makes a write durable.
    fn settings(&self) -> &'static str;

    /// The parts it plays.
    fn roles(&self) -> &'static [Role];

    /// Builds an instance in the empty folder `dir` (systems in memory ignore it): one component
    /// for each part.
    fn build(&self, parts: &[Points], dir: &Path) -> Result<Box<dyn Reader>>;

    /// Builds an instance from a Parquet file, as its users would.
    fn import(&self, file: &Path, dir: &Path) -> Result<Box<dyn Reader>> {
        self.build(&[crate::parquet_file::read_points(file)?], dir)
    }

    /// Opens for queries what an earlier process left in `dir`.
    fn open_reader(&self, _dir: &Path) -> Result<Box<dyn Reader>> {
        bail!("{} stores nothing that could be opened", self.name())
    }

    /// Opens `dir` for writing; an empty folder becomes an empty instance.
    fn open_writer(&self, _dir: &Path) -> Result<Box<dyn Writer>> {
        bail!("{} takes no single writes", self.name())
    }
}

/// Answers queries.
pub trait Reader {
    /// Visits every point inside the closed window once.
    fn window(&self, window: &Window, visit: &mut Visitor<'_>) -> Result<()>;

    /// Visits the `k` nearest points by straight-line distance.
    fn nearest(&self, from: Location, k: usize, visit: &mut Visitor<'_>) -> Result<()>;

    /// Reads every record whole, in any order.
    fn records(&self, _visit: &mut dyn FnMut(&Record)) -> Result<()> {
        bail!("this system keeps no records")
    }

    /// Bytes of each part of the instance, including [`SPATIAL_INDEX`]; empty if unknown.
    fn footprint(&self) -> Result<Vec<(String, u64)>>;

    /// What opening had to replay from a log; `None` if the system does not report it.
    fn replay(&self) -> Option<Replay> {
        None
    }
}

/// Work that opening after a crash did.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Replay {
    /// Records applied again.
    pub records: u64,
    /// Wall time of the replay.
    pub wall_s: f64,
}

/// Takes single records from any number of threads.
pub trait Writer: Send + Sync {
    /// Inserts one record. The system's setting states what its return promises.
    fn insert(&self, record: &Record) -> Result<()>;

    /// Inserts records that need not be durable one by one. All are durable when this returns.
    fn insert_all(&self, points: &Points) -> Result<()> {
        points.records().try_for_each(|record| self.insert(&record))
    }

    /// Deletes one existing record.
    fn delete(&self, record: &Record) -> Result<()>;

    /// Merges everything into the most compact form.
    fn compact(&self) -> Result<()> {
        Ok(())
    }

    /// Answers queries over what has been written so far.
    fn reader(&self) -> Result<Box<dyn Reader + '_>>;

    /// Bytes that one durable insert writes before its sync, if the system reports it.
    fn bytes_per_insert(&self) -> Option<u64> {
        None
    }
}

/// Number and id-sum of all records, read whole.
pub fn count_and_sum_of_records(reader: &dyn Reader) -> Result<(u64, u64)> {
    let (mut count, mut sum) = (0_u64, 0_u64);
    reader.records(&mut |record| {
        count += 1;
        sum = sum.wrapping_add(record.id as u64);
    })?;
    Ok((count, sum))
}

/// Number and id-sum of the points in a window.
pub fn count_and_sum(reader: &dyn Reader, window: &Window) -> Result<(u64, u64)> {
    let (mut count, mut sum) = (0_u64, 0_u64);
    reader.window(window, &mut |id| {
        count += 1;
        sum = sum.wrapping_add(id as u64);
    })?;
    Ok((count, sum))
}
