//! An embeddable, crash-consistent spatial database for fast-arriving geotagged data.
//!
//! A [`Store`] is a directory of datasets. A dataset holds records, each with a key, one geometry
//! and typed attributes. When an insert returns, the record is durable, and every index has it.
//! After an error it is in none. Queries read from a [`Snapshot`] and never wait for writers,
//! unless they ask for another [`Isolation`].
//!
//! ```
//! use terrane::schema::{Column, ColumnType, GeometryColumn, KeyColumn, KeyType, Schema};
//! use terrane::{CoordinateSystem, Options, Query, Record, Store, Value};
//!
//! # fn main() -> terrane::Result<()> {
//! # let directory = std::env::temp_dir().join(format!("terrane-doc-{}", std::process::id()));
//! let store = Store::open(&directory, Options::default())?;
//! let schema = Schema::new(
//!     KeyColumn { name: "id".into(), key_type: KeyType::Int64, generated: false },
//!     GeometryColumn::Point { x: "lon".into(), y: "lat".into() },
//!     CoordinateSystem::LonLat,
//!     vec![Column::new("name", ColumnType::Utf8)],
//! )?;
//! let places = store.create_dataset("places", schema)?;
//! places.insert(&Record::at(1, -122.4194, 37.7749, vec![Value::Utf8("San Francisco".into())]))?;
//!
//! // Everything within 5 km of the ferry building.
//! let near = Query::new().circle(-122.3937, 37.7955, 5_000.0);
//! assert_eq!(places.snapshot().count(&near)?, 1);
//! store.close()?;
//! # std::fs::remove_dir_all(&directory).ok();
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

// Some unit tests share files with those in `tests`, which name the crate.
#[cfg(test)]
extern crate self as terrane;

pub mod arrow;
mod backup;
pub mod batch;
mod check;
pub mod condition;
mod dataset;
mod engine;
mod error;
mod feed;
mod info;
mod join;
pub mod key;
mod load;
pub mod locks;
mod metrics;
mod name;
mod options;
mod place;
mod query;
pub mod record;
mod runs;
pub mod schema;
mod secondary;
mod snapshot;
mod store;
#[cfg(test)]
mod testing;
pub mod value;
mod words;

pub use backup::{BackupPoint, BackupReport, RestoreReport};
pub use check::{CheckReport, Finding};
pub use condition::{Condition, ConditionError};
pub use dataset::{
    AmendOutcome, AtomicBatch, BatchOutcome, Dataset, ImportMode, ImportReport, Importer, OnConflict, RefusedRow,
};
pub use engine::MaintenanceCounters;
pub use error::{Error, Result};
pub use feed::{Feed, FeedInfo, FeedReceiver, FeedSender, OnOverload, QueuedRecord, check_feed_name};
pub use info::{DatasetInfo, IndexInfo, StoreInfo, TimesInfo, TornTailInfo};
pub use join::{Join, JoinExplanation, JoinOn, JoinPairs, JoinRows};
pub use key::Key;
pub use metrics::Metrics;
pub use name::check_dataset_name;
pub use options::{DatasetOptions, DiskReserve, Durability, MEMORY_LIMIT_DEFAULT, MEMORY_LIMIT_MIN, Options};
pub use query::{
    ConditionPlan, Considered, Explanation, Filter, Isolation, Nearest, Query, Rows, Scan, ScanCancellation, ScanRows,
    Stage, interrupt_interval, interruptible, is_interrupted,
};
pub use record::{Geometry, Record};
pub use secondary::{IndexKind, IndexOptions, StopWords};
pub use snapshot::{KeyRef, Snapshot};
pub use store::Store;
pub use terrane_lsm::curve::{Density, Levels};
pub use terrane_lsm::log::LogOptions;
pub use terrane_lsm::policy::MergePolicy;
pub use terrane_space::CoordinateSystem;
pub use value::Value;
#[doc(hidden)]
pub use {place::check_place, words::counted};
