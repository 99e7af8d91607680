"""The examples of the documents run, each page on its own, and print what they say."""

import doctest
import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGES = ["python-for-geopandas.md", "python-for-duckdb.md", "python-for-rtree.md"]


@pytest.fixture
def here(tmp_path, monkeypatch):
    (tmp_path / "data").symlink_to(ROOT / "data")
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("page", PAGES)
def test_the_examples_of_a_page_print_what_it_says(page, here):
    blocks = re.findall(r"^```python\n(.*?)^```$", (ROOT / "docs" / page).read_text(encoding="utf-8"), re.M | re.S)
    examples = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, page, page, 0)
    assert len(examples.examples) > 5
    said = []
    doctest.DocTestRunner(verbose=False).run(examples, out=said.append)
    assert said == [], "".join(said)


def test_the_first_example_of_the_manual_runs(here):
    (first, *_) = re.findall(r"^```python\n(.*?)^```$", (ROOT / "docs/python.md").read_text(encoding="utf-8"), re.M | re.S)
    names = {}
    exec(first, names)
    assert len(names["near"]) == 10
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
