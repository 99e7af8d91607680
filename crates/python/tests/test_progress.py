"""Imports show how far they are."""

import sys
import types

import pytest


class Bar:
    """What an import asks of a bar of tqdm."""

    bars = []

    def __init__(self, desc, **kwargs):
        self.desc, self.kwargs, self.n, self.total, self.is_closed = desc, kwargs, 0, None, False
        Bar.bars.append(self)

    def update(self, n):
        self.n += n

    def close(self):
        self.is_closed = True


@pytest.fixture
def bars(monkeypatch):
    Bar.bars = []
    monkeypatch.setitem(sys.modules, "tqdm.auto", types.SimpleNamespace(tqdm=Bar))
    return Bar.bars


@pytest.fixture
def file(tmp_path):
    lines = [f"{i},{i % 90},{i % 45}" for i in range(20_000)]
    (tmp_path / "rows.csv").write_text("id,lon,lat\n" + "\n".join(lines) + "\n")
    return tmp_path / "rows.csv"


def test_a_bar_counts_the_rows(db, file, bars):
    assert db.import_files("rows", file, progress=True) == 20_000
    (bar,) = bars
    assert (bar.desc, bar.n, bar.total, bar.is_closed) == ("rows", 20_000, 20_000, True)


def test_a_bar_is_closed_when_the_import_fails(db, file, bars):
    file.write_text(file.read_text() + "20000,500,0\n")
    with pytest.raises(Exception, match="500"):
        db.import_files("rows", file, progress=True)
    assert [bar.is_closed for bar in bars] == [True]


def test_bars_are_shown_where_somebody_looks(db, file, bars, monkeypatch):
    db.import_files("a", file)
    db.import_files("b", file, progress=False)
    assert bars == [], "the output is no terminal"
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    db.import_files("c", [file])
    assert [bar.desc for bar in bars] == ["c"]


def test_tqdm_is_needed_only_where_a_bar_is_asked_for(db, file, monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert db.import_files("a", file) == 20_000
    with pytest.raises(ImportError, match="pip install tqdm"):
        db.import_files("b", file, progress=True)
    assert "b" not in db
