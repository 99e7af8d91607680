"use strict";

// Calls visit with each position of a geometry.
function eachPosition(geometry, visit) {
  if (!geometry) return;
  if (geometry.type === "GeometryCollection") {
    geometry.geometries.forEach((part) => eachPosition(part, visit));
    return;
  }
  const walk = (value) => (typeof value[0] === "number" ? visit(value) : value.forEach(walk));
  if (geometry.coordinates.length > 0) walk(geometry.coordinates);
}

// West, south, east and north of all features; null if they have no position.
function boundsOf(features) {
  let bounds = null;
  for (const feature of features) {
    eachPosition(feature.geometry, ([x, y]) => {
      if (!bounds) bounds = [x, y, x, y];
      bounds = [Math.min(bounds[0], x), Math.min(bounds[1], y), Math.max(bounds[2], x), Math.max(bounds[3], y)];
    });
  }
  return bounds;
}

// Moves planar coordinates to a degree around 0, 0, where the map's projection keeps shapes.
function placePlanar(features) {
  const bounds = boundsOf(features);
  if (!bounds) return;
  const [x0, y0, x1, y1] = bounds;
  const extent = Math.max(x1 - x0, y1 - y0);
  const scale = extent > 0 ? 1 / extent : 1;
  for (const feature of features) {
    eachPosition(feature.geometry, (position) => {
      position[0] = (position[0] - (x0 + x1) / 2) * scale;
      position[1] = (position[1] - (y0 + y1) / 2) * scale;
    });
  }
}

function escapeHtml(value) {
  const entities = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" };
  return String(value).replace(/[&<>"']/g, (character) => entities[character]);
}

// The attributes of a feature as a table.
function describe(properties) {
  const rows = Object.entries(properties).map(([name, value]) => {
    const shown = value === null ? "" : typeof value === "object" ? JSON.stringify(value) : value;
    return `<tr><th>${escapeHtml(name)}</th><td>${escapeHtml(shown)}</td></tr>`;
  });
  return `<table>${rows.join("")}</table>`;
}

function show(document, maplibregl) {
  const read = (id) => JSON.parse(document.getElementById(id).textContent);
  const rows = read("rows");
  const planar = document.body.dataset.planar === "true";
  if (planar) placePlanar(rows.features);
  // MapLibre gives nested values of properties as text, so popups look them up by number.
  const shown = rows.features.map((feature, number) => ({ ...feature, properties: { number } }));
  const drawn = shown.filter((feature) => feature.geometry);
  document.getElementById("legend").textContent =
    `${rows.features.length} records` +
    (drawn.length < shown.length ? `, ${shown.length - drawn.length} of them without a geometry` : "");
  const style = {
    version: 8,
    sources: { rows: { type: "geojson", data: { type: "FeatureCollection", features: drawn } } },
    layers: [
      { id: "areas", type: "fill", source: "rows", filter: ["==", ["geometry-type"], "Polygon"],
        paint: { "fill-color": "#2b7bba", "fill-opacity": 0.35, "fill-outline-color": "#08519c" } },
      { id: "lines", type: "line", source: "rows", filter: ["==", ["geometry-type"], "LineString"],
        paint: { "line-color": "#08519c", "line-width": 2 } },
      { id: "points", type: "circle", source: "rows", filter: ["==", ["geometry-type"], "Point"],
        paint: { "circle-radius": ["interpolate", ["linear"], ["zoom"], 2, 2, 12, 5], "circle-color": "#d7301f",
          "circle-opacity": 0.75, "circle-stroke-color": "#fff", "circle-stroke-width": 0.5 } },
    ],
  };
  if (!planar) {
    style.sources.countries = { type: "geojson", data: read("countries") };
    style.layers.unshift(
      { id: "land", type: "fill", source: "countries", maxzoom: 8, paint: { "fill-color": "#f7f5f0" } },
      { id: "borders", type: "line", source: "countries", maxzoom: 8, paint: { "line-color": "#b8b0a0", "line-width": 0.6 } },
    );
  }
  const bounds = boundsOf(drawn);
  const map = new maplibregl.Map({ container: "map", style, attributionControl: false,
    ...(bounds ? { bounds, fitBoundsOptions: { padding: 40, maxZoom: 14 } } : { center: [0, 0], zoom: 1 }) });
  map.addControl(new maplibregl.NavigationControl());
  const layers = ["areas", "lines", "points"];
  map.on("click", layers, (event) => {
    const { number } = event.features[0].properties;
    new maplibregl.Popup({ maxWidth: "420px" }).setLngLat(event.lngLat)
      .setHTML(describe(rows.features[number].properties)).addTo(map);
  });
  map.on("mouseenter", layers, () => { map.getCanvas().style.cursor = "pointer"; });
  map.on("mouseleave", layers, () => { map.getCanvas().style.cursor = ""; });
}

if (typeof document !== "undefined") show(document, maplibregl);
else if (typeof module !== "undefined") module.exports = { boundsOf, placePlanar, escapeHtml, describe };
