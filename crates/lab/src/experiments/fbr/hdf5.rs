//! Range queries over an HDF5 or HDF-EOS file (section 5.4, Figure 12(a)): by an index of its
//! coordinates, and by reading the file, like the functions of the format.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use crate::experiments::{Setup, Unavailable};
use crate::report::Emit;

/// The folder of sample data, and its file that is large enough.
const DATA: &str = "TERRANE_DATA";
const SAMPLE: &str = "hdf/SYNTHETIC_sage_like_1500_events.he5";

/// Asks the index and the file the same queries.
pub fn run(setup: &Setup, emit: &mut Emit<'_>) -> Result<()> {
    if !cfg!(feature = "hdf5") {
        bail!(Unavailable(
            "this build reads no HDF5: install the HDF5 library with its headers (Debian: libhdf5-dev) and build with \
             `cargo build --release -p terrane-lab --features hdf5`"
        ));
    }
    let sample = || std::env::var_os(DATA).map(|folder| PathBuf::from(folder).join(SAMPLE));
    let Some(path) = setup.options.file.clone().or_else(sample) else {
        bail!(Unavailable("no file: give one with --file, or name the folder of sample data in TERRANE_DATA"));
    };
    measure_file(setup, &path, emit).with_context(|| format!("{}", path.display()))
}

#[cfg(not(feature = "hdf5"))]
fn measure_file(_: &Setup, _: &std::path::Path, _: &mut Emit<'_>) -> Result<()> {
    Ok(())
}

#[cfg(feature = "hdf5")]
use with_library::measure_file;

#[cfg(feature = "hdf5")]
mod with_library {
    use std::path::Path;

    use anyhow::{Context, Result, ensure};
    use hdf5::{Dataset, File, Group};
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};
    use serde_json::json;
    use terrane_pmem::Native;
    use terrane_pmtree::{PersistenceDomain, Rect};
    use terrane_storage::RealStorage;

    use super::super::{FASTEST_FAN_OUT, Kind, Tree, count_in_window, create};
    use crate::experiments::{Setup, medians};
    use crate::measure::{self, Pin};
    use crate::progress::progress;
    use crate::report::{Emit, Table};

    /// Half the edges of a query: degrees of longitude and latitude, and kilometres.
    const REACH: [f64; 3] = [10.0, 5.0, 2.0];
    /// Paper: 1.3 to 12.2 s by the format's functions, 4.9 to 48.7 ms by the index.
    const PAPER_GAIN: f64 = 250.0;

    /// The points of a file: one for each place and altitude, or for each place alone.
    struct Points {
        longitude: Dataset,
        latitude: Dataset,
        altitude: Option<Dataset>,
        /// A value of each point.
        field: Option<Dataset>,
    }

    impl Points {
        fn find(file: &File) -> Result<Self> {
            let mut groups = vec![file.as_group()?];
            let mut all = Vec::new();
            while let Some(group) = groups.pop() {
                groups.extend(group.groups()?);
                all.extend(datasets(&group)?);
            }
            let named = |name: &str| {
                let found = all.iter().find(|(own, _)| own.eq_ignore_ascii_case(name));
                found.map(|(_, dataset)| dataset.clone())
            };
            let needed = |name: &str| named(name).with_context(|| format!("it has no data set with the name {name}"));
            let (longitude, latitude) = (needed("Longitude")?, needed("Latitude")?);
            ensure!(longitude.size() == latitude.size(), "longitudes and latitudes are not equally many");
            let altitude = named("Altitude").filter(|altitude| altitude.ndim() == 1 && longitude.ndim() == 1);
            let count = longitude.size() * altitude.as_ref().map_or(1, |altitude| altitude.size());
            let coordinates = ["Longitude", "Latitude", "Altitude", "Time"];
            let is_field = |(name, dataset): &&(String, Dataset)| {
                dataset.size() == count && !coordinates.iter().any(|other| name.eq_ignore_ascii_case(other))
            };
            let field = all.iter().find(is_field).map(|(_, dataset)| dataset.clone());
            Ok(Self { longitude, latitude, altitude, field })
        }

        /// Reads all of it, and calls `visit` with position and value of each point.
        fn scan(&self, mut visit: impl FnMut([f64; 3], u64)) -> Result<u64> {
            let (longitudes, latitudes) = (self.longitude.read_raw::<f32>()?, self.latitude.read_raw::<f32>()?);
            let altitudes = match &self.altitude {
                Some(altitude) => altitude.read_raw::<f32>()?,
                None => vec![0.0],
            };
            let values = self.field.as_ref().map(|field| field.read_raw::<f32>()).transpose()?;
            let mut number = 0_u64;
            for (longitude, latitude) in longitudes.iter().zip(&latitudes) {
                for altitude in &altitudes {
                    let value = values.as_ref().map_or(0.0, |values| values[number as usize]);
                    let at = [longitude, latitude, altitude].map(|&coordinate| f64::from(coordinate));
                    visit(at, number << 32 | u64::from(value.to_bits()));
                    number += 1;
                }
            }
            Ok(number)
        }
    }

    fn datasets(group: &Group) -> Result<Vec<(String, Dataset)>> {
        let of_group = group.datasets()?.into_iter();
        Ok(of_group
            .map(|dataset| (dataset.name().rsplit('/').next().unwrap_or_default().to_owned(), dataset))
            .collect())
    }

    pub(super) fn measure_file(setup: &Setup, path: &Path, emit: &mut Emit<'_>) -> Result<()> {
        let file = File::open(path)?;
        let points = Points::find(&file)?;
        for &fan_out in setup.fan_outs(&[FASTEST_FAN_OUT]) {
            let folder = setup.pool_folder()?;
            let shape = setup.shape(Kind::InPlace, fan_out);
            let storage = RealStorage::new(folder.path());
            let tree: Tree<Native> = create(&storage, &shape, PersistenceDomain::PageCache)?;
            progress("indexing the file's coordinates");
            let (mut places, mut outcome) = (Vec::new(), Ok(()));
            let count = points.scan(|at, payload| {
                // A missing point has an invalid coordinate.
                if let (Ok(rect), Ok(())) = (Rect::point(at), &outcome) {
                    outcome = tree.insert(&rect, payload);
                    places.push(at);
                }
            })?;
            outcome?;
            ensure!(!places.is_empty(), "it has no points");
            let mut random = StdRng::seed_from_u64(setup.options.seed);
            let queries: Vec<Rect<3>> = (0..setup.options.queries.unwrap_or(20))
                .map(|_| {
                    let centre = places[random.random_range(0..places.len())];
                    let corner = |sign: f64| std::array::from_fn(|axis| centre[axis] + sign * REACH[axis]);
                    Rect::new(corner(-1.0), corner(1.0))
                })
                .collect::<std::result::Result<_, _>>()?;
            let mut hits = 0;
            for query in &queries {
                let (by_index, by_scan) = (count_in_window(&tree, query)?, scan(&points, query)?);
                ensure!(by_index == by_scan, "the index finds {by_index:?}, and the file holds {by_scan:?}");
                hits += by_index.0;
            }
            let mut ways = [true, false];
            let pin = Pin::to_one_core()?;
            let cpu = medians(measure::alternate(setup.rounds, &mut ways, |is_index| {
                let start = measure::thread_cpu();
                for query in &queries {
                    match is_index {
                        true => count_in_window(&tree, query)?,
                        false => scan(&points, query)?,
                    };
                }
                Ok((measure::thread_cpu() - start).as_nanos() as f64 / queries.len() as f64)
            })?)?;
            drop(pin);
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let mut table = Table::new("fbr/hdf5", format!("Range queries over {name}, {count} points"));
            table.note(format!(
                "{} queries with their values, {:.0} hits on average; median of {} alternating runs, the file stays open and cached",
                queries.len(),
                hits as f64 / queries.len() as f64,
                setup.rounds
            ));
            table.note("paper: 3.2 M profiles of 6 GB in a file for each event; 4.9 to 48.7 ms against 1.3 to 12.2 s");
            let params = json!({"file": name, "points": count, "queries": queries.len(), "fan_out": fan_out,
                                "split": shape.split_name(), "seed": setup.options.seed});
            table.figure("fbr-tree", &params, "hits", hits as f64 / queries.len() as f64, "");
            table.figure("fbr-tree", &params, "cpu", cpu[0], "ns");
            table.figure("fbr-tree", &params, "scan to index", cpu[1] / cpu[0], "x").paper(PAPER_GAIN);
            table.figure("linear scan", &params, "hits", hits as f64 / queries.len() as f64, "");
            table.figure("linear scan", &params, "cpu", cpu[1], "ns");
            emit(table)?;
        }
        Ok(())
    }

    /// Number and sum of what a query finds in the file.
    fn scan(points: &Points, query: &Rect<3>) -> Result<(u64, u64)> {
        let (mut count, mut sum) = (0, 0_u64);
        points.scan(|at, payload| {
            if (0..3).all(|axis| (query.min()[axis]..=query.max()[axis]).contains(&at[axis])) {
                count += 1;
                sum = sum.wrapping_add(payload);
            }
        })?;
        Ok((count, sum))
    }
}
