//! Tells how accurately positions in a reference system can be converted to WGS 84. The source is
//! its definition, a PROJ string of an EPSG code.
//!
//! Every code of the table was compared with PROJ 9.5 (its best operation without grid files) over
//! the system's area of use. Systems that differ by more than 30 metres in the middle of their area
//! are refused by code, each class for its own reason. The other systems that need a shift are
//! approximate.

/// How well positions can be converted to WGS 84.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tie {
    /// The datum is WGS 84, or one taken as the same by convention, such as ETRS89 and NAD83.
    Same,
    /// One shift stands for the whole area of the datum.
    Approximate,
}

/// The relation of the datum of `code` to WGS 84, or why the system is refused: converting it
/// anyway would move positions by more than maps forgive.
pub(crate) fn tie(code: u32, definition: &str) -> Result<Tie, String> {
    let parameter = |name: &str| definition.split_whitespace().find_map(|word| word.strip_prefix(name));
    if let Some(reason) = misdefined(code) {
        return Err(format!("{reason}, but the built-in definition lacks that"));
    }
    if has_other_shift(code) {
        return Err("its built-in shift to WGS 84 has large errors".to_string());
    }
    let grid = parameter("+nadgrids=");
    if grid.is_some_and(|grid| grid != "@null") || parameter("+datum=") == Some("NAD27") {
        return Err("its datum needs a grid file to be converted".to_string());
    }
    if parameter("+proj=") == Some("geocent") {
        return Err("it is geocentric".to_string());
    }
    let has_same_ellipsoid = parameter("+ellps=").is_some_and(|ellipsoid| ["GRS80", "WGS84"].contains(&ellipsoid));
    let is_shifted = |shift: &str| shift.split(',').any(|value| value.parse() != Ok(0.0));
    match (parameter("+datum="), parameter("+towgs84=")) {
        (Some("WGS84" | "NAD83"), _) => Ok(Tie::Same),
        (Some(_), _) => Ok(Tie::Approximate),
        (None, Some(shift)) if is_shifted(shift) => Ok(Tie::Approximate),
        // Between different ellipsoids, a missing shift is unknown, not zero.
        _ if has_same_ellipsoid || grid.is_some() => Ok(Tie::Same),
        _ => Err("the shift of its datum to WGS 84 is not known".to_string()),
    }
}

/// Information missing in the definition of a system; without it positions would be off by
/// kilometres.
fn misdefined(code: u32) -> Option<&'static str> {
    match code {
        // EPSG methods 1024, 1027 and 9834, and a datum that is a sphere.
        3973..=3975 | 4055 | 6871 => Some("it takes the earth for a sphere"),
        4807 | 4810 | 4811 | 4816 | 4819 | 4821 | 4901 | 4902 | 7400 => Some("its unit is the grad"),
        2065 | 5513 => Some("its axes point to the south and the west"),
        26591 | 26592 => Some("the registry counts its central meridian from Rome"),
        6200 => Some("the registry gives it another origin"),
        _ => None,
    }
}

/// Whether the shift in the definition differs widely from the registry's, or is missing.
///
/// - Wrong rotations: Fatu Iva 72.
/// - The shift of another country: MGI counted from Ferro (that of Yugoslavia in Austria).
/// - Zones far from where the shift was measured: Pampa del Castillo, Indian 1975, Kalianpur 1937,
///   Nahrwan 1967 and PSAD56.
/// - Others: Pulkovo 1942(58) in Romania, IG05/12.
fn has_other_shift(code: u32) -> bool {
    matches!(
        code,
        3303 | 4688
            | 4805
            | 31281..=31283
            | 31288..=31293
            | 2082
            | 4161
            | 4240
            | 24047
            | 24048
            | 24305
            | 24306
            | 24375
            | 27038
            | 24882
            | 3844
            | 6989..=6991
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn systems_are_told_apart_by_what_ties_them_to_wgs84() {
        let tie_of = |code: u16| {
            let definition = crs_definitions::from_code(code).expect("in the table").proj4;
            tie(u32::from(code), definition)
        };
        for code in [3857, 32618, 4258, 4269, 25832, 2154, 2193, 3035, 5070, 3785] {
            assert_eq!(tie_of(code), Ok(Tie::Same), "EPSG:{code}");
        }
        for code in [3003, 5514, 27700, 31370, 28992, 21781, 23030, 31467, 4230, 4202] {
            assert_eq!(tie_of(code), Ok(Tie::Approximate), "EPSG:{code}");
        }
        for (code, reason) in [
            (4267, "grid file"),
            (26718, "grid file"),
            (4978, "geocentric"),
            (3973, "sphere"),
            (6871, "sphere"),
            (4807, "grad"),
            (5513, "south and the west"),
            (26591, "Rome"),
            (6200, "another origin"),
            (3844, "large errors"),
            (31281, "large errors"),
            (6991, "large errors"),
            (4814, "not known"),
            // RGNC 1991: no shift, on the International ellipsoid.
            (4645, "not known"),
            (2984, "not known"),
        ] {
            let found = tie_of(code);
            assert!(found.as_ref().is_err_and(|why| why.contains(reason)), "EPSG:{code}: {found:?}");
        }
    }
}
