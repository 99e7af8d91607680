//! Values in readable units.

/// The value with three significant digits and a fitting unit.
pub fn human(value: f64, unit: &str) -> String {
    match unit {
        "ns" => scaled(value, &[(1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns")]),
        "s" => scaled(value, &[(1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")]),
        "bytes" => scaled(value, &[(1_073_741_824.0, "GiB"), (1_048_576.0, "MiB"), (1024.0, "KiB"), (1.0, "B")]),
        "1/s" => scaled(value, &[(1e6, "M/s"), (1e3, "k/s"), (1.0, "/s")]),
        "x" => format!("{value:.2} x"),
        "bytes/point" => format!("{value:.1} B"),
        _ => format!("{} {unit}", digits(value)).trim_end().to_owned(),
    }
}

fn scaled(value: f64, units: &[(f64, &str)]) -> String {
    let fitting = units.iter().find(|(size, _)| value.abs() >= *size).or(units.last());
    match fitting {
        Some((size, name)) => format!("{} {name}", digits(value / size)),
        None => digits(value),
    }
}

fn digits(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 || v == v.trunc() => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}
