"""The examples of the documents run, each page on its own, and print what they say."""

import doctest
import json
import re
from pathlib import Path

import pandas
import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGES = ["python-for-geopandas.md", "python-for-duckdb.md", "python-for-rtree.md"]


def blocks_of(page):
    return re.findall(r"^```python\n(.*?)^```$", (ROOT / page).read_text(encoding="utf-8"), re.M | re.S)


@pytest.fixture
def here(tmp_path, monkeypatch):
    (tmp_path / "data").symlink_to(ROOT / "data")
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("page", PAGES)
def test_the_examples_of_a_page_print_what_it_says(page, here):
    examples = doctest.DocTestParser().get_doctest("\n".join(blocks_of(f"docs/{page}")), {}, page, page, 0)
    assert len(examples.examples) > 5
    said = []
    doctest.DocTestRunner(verbose=False).run(examples, out=said.append)
    assert said == [], "".join(said)


def test_the_examples_of_the_manual_run(here):
    rides, frames, index = blocks_of("docs/python.md")
    names = {"pandas": pandas}
    exec(rides, names)
    assert len(names["near"]) == 10
    names["db"].create("cafes", [{"id": 7, "lon": -122.42, "lat": 37.77, "name": "cafe"}], key="id")
    exec(frames.replace("db.sql", "found = db.sql"), names)
    assert names["found"].fetchall() == [("cafe", 1)]
    exec(index, names)
    assert names["index"].query((0.5, 0.5, 2, 2)) == [7]
    names["index"].close()
    names["db"].close()


def test_the_examples_of_the_readme_run(here):
    names = {}
    blocks = blocks_of("README.md")
    for block in blocks:
        exec(block, names)
    assert len(blocks) > 1 and names["cafes"].count() == 2
    names["db"].close()


def test_the_notebook_runs(here):
    cells = json.loads((ROOT / "examples/tour.ipynb").read_text(encoding="utf-8"))["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert len(code) > 7
    names = {}
    for number, source in enumerate(code):
        exec(compile(source, f"cell {number}", "exec"), names)
    assert names["mapped"].stat().st_size > 1_000_000
    assert names["near"].columns == ["name", "pop_max", "distance"]
    assert names["by_area"]["rides"].sum() == 11_667
    assert (names["fast"][0], names["fast"][-1]) == (0, 14)
