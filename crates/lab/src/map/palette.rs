//! Colours of the map: a dark page, and ramps that rise evenly in perceived lightness.
//!
//! Ramps are interpolated in Oklab, where equal steps look equally large; see B. Ottosson, "A
//! perceptual color space for image processing", 2020, for the matrices.

/// The page behind everything.
pub const PAGE: &str = "#0b0e14";
/// The map's ground.
pub const GROUND: &str = "#10151f";
/// Frame and dividing lines.
pub const EDGE: &str = "#2b3444";
/// Titles and figures.
pub const TEXT: &str = "#eef2f8";
/// Less important text.
pub const TEXT_QUIET: &str = "#8d99ad";
/// The query's outline.
pub const OUTLINE: &str = "#7ff0d2";

/// Colours of increasing lightness.
#[derive(Clone, Copy, Debug)]
pub struct Ramp(&'static [u32]);

/// Points on their own.
pub const EMBER: Ramp = Ramp(&[0x4a1d6d, 0x8a2877, 0xc8405f, 0xf0743e, 0xfbb43e, 0xfcf4b8]);
/// Points behind an answer.
pub const SLATE: Ramp = Ramp(&[0x2c4063, 0x456a99, 0x6b97c4, 0xa9cdea]);
/// The answer.
pub const AMBER: Ramp = Ramp(&[0xd9661f, 0xf59a2e, 0xfdc95a, 0xfff3c9]);

impl Ramp {
    /// The colour at a level from 0 to 1, as `#rrggbb`.
    pub fn at(self, level: f64) -> String {
        let position = level.clamp(0.0, 1.0) * (self.0.len() - 1) as f64;
        let below = (position.floor() as usize).min(self.0.len() - 2);
        let (from, to) = (oklab(self.0[below]), oklab(self.0[below + 1]));
        let part = position - below as f64;
        let mixed: [f64; 3] = std::array::from_fn(|i| from[i] + (to[i] - from[i]) * part);
        hex(mixed)
    }
}

fn oklab(colour: u32) -> [f64; 3] {
    let [r, g, b] = [16, 8, 0].map(|shift| {
        let value = f64::from((colour >> shift) & 0xff) / 255.0;
        if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
    });
    let l = (0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b).cbrt();
    let m = (0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b).cbrt();
    let s = (0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b).cbrt();
    [
        0.2104542553 * l + 0.7936177850 * m - 0.0040720468 * s,
        1.9779984951 * l - 2.4285922050 * m + 0.4505937099 * s,
        0.0259040371 * l + 0.7827717662 * m - 0.8086757660 * s,
    ]
}

fn hex([lightness, a, b]: [f64; 3]) -> String {
    let l = (lightness + 0.3963377774 * a + 0.2158037573 * b).powi(3);
    let m = (lightness - 0.1055613458 * a - 0.0638541728 * b).powi(3);
    let s = (lightness - 0.0894841775 * a - 1.2914855480 * b).powi(3);
    let linear = [
        4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
        -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
        -0.0041960863 * l - 0.7034186147 * m + 1.7076147010 * s,
    ];
    let [r, g, b] = linear.map(|value| {
        let value = value.clamp(0.0, 1.0);
        let encoded = if value <= 0.0031308 { value * 12.92 } else { 1.055 * value.powf(1.0 / 2.4) - 0.055 };
        (encoded * 255.0).round() as u8
    });
    format!("#{r:02x}{g:02x}{b:02x}")
}
