"""The script of a map's page, run without a browser."""

import json
import re

import pytest
import quickjs
import shapely

# What the script asks of the browser and of MapLibre. `seen` keeps what it did.
BROWSER = """
const seen = { controls: 0, handlers: {}, popup: null };
const elements = {};
const document = {
  body: { dataset: { planar: PLANAR } },
  getElementById: (id) => (elements[id] ??= { textContent: TEXTS[id] }),
};
const canvas = { style: {} };
const maplibregl = {
  Map: class {
    constructor(options) { seen.options = options; }
    addControl() { seen.controls += 1; }
    on(event, layers, handler) { seen.handlers[event] = handler; }
    getCanvas() { return canvas; }
  },
  NavigationControl: class {},
  Popup: class {
    setLngLat(place) { seen.place = place; return this; }
    setHTML(html) { seen.popup = html; return this; }
    addTo() { return this; }
  },
};
"""


class Page:
    """A page whose script has run."""

    def __init__(self, text):
        texts = re.findall(r'<script id="(\w+)" type="application/json">(.*?)</script>', text, re.S)
        self.texts = dict(texts)
        (planar,) = re.findall(r'<body data-planar="(\w+)">', text)
        script = re.findall(r"<script>\n(.*?)</script>", text, re.S)[-1]
        self.context = quickjs.Context()
        browser = BROWSER.replace("PLANAR", json.dumps(planar)).replace("TEXTS", json.dumps(self.texts))
        self.context.eval(browser + script)

    def get(self, expression):
        return json.loads(self.context.eval(f"JSON.stringify({expression} ?? null)"))


@pytest.fixture
def shapes(db):
    rows = [
        {"id": 1, "shape": shapely.Point(10, 20), "name": "<b>'a' & \"b\"</b>"},
        {"id": 2, "shape": shapely.box(-5, 0, 0, 40), "name": None},
        {"id": 3, "shape": shapely.LineString([(0, 0), (30, -10)]), "name": "</script>"},
        {"id": 4, "shape": None, "name": "nowhere"},
    ]
    return db.create("shapes", rows, key="id", geometry="shape")


def test_all_geometries_are_drawn_and_in_view(shapes):
    page = Page(shapes.query(order_by="id").explore().page)
    assert page.get("seen.options.bounds") == [-5, -10, 30, 40]
    assert page.get("elements.legend.textContent") == "4 records, 1 of them without a geometry"
    drawn = page.get("seen.options.style.sources.rows.data.features")
    assert [feature["geometry"]["type"] for feature in drawn] == ["Point", "Polygon", "LineString"]
    layers = page.get("seen.options.style.layers")
    assert [layer["id"] for layer in layers] == ["land", "borders", "areas", "lines", "points"]
    assert page.get("seen.options.style.sources.countries.data.coordinates.length") > 100
    assert page.get("seen.controls") == 1


def test_a_click_shows_the_attributes_as_text(shapes):
    page = Page(shapes.query(order_by="id").explore().page)
    page.context.eval("seen.handlers.click({ features: [{ properties: { number: 0 } }], lngLat: [10, 20] })")
    popup = page.get("seen.popup")
    assert page.get("seen.place") == [10, 20]
    assert "<th>name</th><td>&lt;b&gt;&#39;a&#39; &amp; &quot;b&quot;&lt;/b&gt;</td>" in popup
    page.context.eval("seen.handlers.click({ features: [{ properties: { number: 3 } }], lngLat: [0, 0] })")
    assert "<td>nowhere</td>" in page.get("seen.popup")
    page.context.eval("seen.handlers.mouseenter()")
    assert page.get("canvas.style.cursor") == "pointer"
    page.context.eval("seen.handlers.mouseleave()")
    assert page.get("canvas.style.cursor") == ""


def test_planar_coordinates_keep_their_shape(db):
    rows = [{"id": 1, "x": 400_000.0, "y": 5_000_000.0}, {"id": 2, "x": 402_000.0, "y": 5_001_000.0}]
    plane = db.create("plane", rows, key="id", planar=True)
    page = Page(plane.query(order_by="id").explore().page)
    drawn = page.get("seen.options.style.sources.rows.data.features")
    assert [feature["geometry"]["coordinates"] for feature in drawn] == [[-0.5, -0.25], [0.5, 0.25]]
    assert page.get("seen.options.style.sources.countries") is None


def test_a_map_of_nothing_shows_the_world(shapes):
    page = Page(shapes.query(where="id > 9").explore().page)
    assert page.get("seen.options.zoom") == 1 and page.get("elements.legend.textContent") == "0 records"


def test_a_page_needs_no_network(shapes, tmp_path):
    shapes.query().explore().save(tmp_path / "map.html")
    page = (tmp_path / "map.html").read_text(encoding="utf-8")
    assert not re.search(r"<(script|link|img|iframe)[^>]*(src|href)=", page)
    assert page.endswith("</html>\n")
