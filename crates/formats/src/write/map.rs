//! A web page with an interactive map of the rows. It is one file and needs no network.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;

use super::error::WriteError;
use super::geojson::GeoJsonWriter;
use super::output::Sink;
use super::{WriteOptions, Writer};

const STYLE: [&str; 2] = [include_str!("map/maplibre-gl.css"), include_str!("map/page.css")];
const LIBRARY: &str = include_str!("map/maplibre-gl.js");
const LICENCE: &str = include_str!("map/LICENSE-maplibre-gl.txt");
const COUNTRIES: &str = include_str!("map/countries.json");
const PAGE: &str = include_str!("map/page.js");

/// The output, which the page and the rows within it share.
#[derive(Clone)]
struct Shared<'a>(Arc<Mutex<Sink<'a>>>);

impl Shared<'_> {
    fn write_all(&self, text: &str) -> io::Result<()> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write_all(text.as_bytes())
    }
}

/// Writes JSON within a script element, which `<` could end.
struct Escaped<'a>(Shared<'a>);

impl Write for Escaped<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut sink = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut parts = bytes.split(|byte| *byte == b'<');
        sink.write_all(parts.next().unwrap_or_default())?;
        for part in parts {
            sink.write_all(b"\\u003c")?;
            sink.write_all(part)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner).flush()
    }
}

pub(crate) struct MapWriter<'a> {
    sink: Shared<'a>,
    rows: GeoJsonWriter<'a>,
    planar: bool,
}

impl<'a> MapWriter<'a> {
    pub(crate) fn new(sink: Sink<'a>, options: WriteOptions) -> Self {
        let sink = Shared(Arc::new(Mutex::new(sink)));
        let planar = options.planar;
        let rows = GeoJsonWriter::new(Box::new(Escaped(sink.clone())), options);
        MapWriter { sink, rows, planar }
    }
}

impl Writer for MapWriter<'_> {
    fn begin(&mut self, schema: &SchemaRef) -> Result<(), WriteError> {
        let [library, page] = STYLE;
        let planar = self.planar;
        self.sink.write_all(&format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>Map</title>\n\
             <!--\nMapLibre GL JS:\n{LICENCE}-->\n<style>\n{library}\n{page}</style>\n</head>\n\
             <body data-planar=\"{planar}\">\n<div id=\"map\"></div>\n<div id=\"legend\"></div>\n\
             <script id=\"countries\" type=\"application/json\">{COUNTRIES}</script>\n\
             <script id=\"rows\" type=\"application/json\">"
        ))?;
        self.rows.begin(schema)
    }

    fn write(&mut self, batch: &RecordBatch) -> Result<(), WriteError> {
        self.rows.write(batch)
    }

    fn finish(&mut self) -> Result<(), WriteError> {
        self.rows.finish()?;
        self.sink.write_all(&format!(
            "</script>\n<script>\n{LIBRARY}</script>\n<script>\n{PAGE}</script>\n</body>\n</html>\n"
        ))?;
        Ok(self.sink.0.lock().unwrap_or_else(PoisonError::into_inner).flush()?)
    }

    fn notice(&self) -> Option<&'static str> {
        self.rows.notice()
    }
}
