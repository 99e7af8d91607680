"""Answers in an order."""

import pytest

import terrane


@pytest.fixture
def towns(db):
    names = ["b", "a", None, "c", "a"]
    rows = [{"id": i, "lon": float(i), "lat": 0.0, "name": name, "my, n": -i} for i, name in enumerate(names)]
    return db.create("towns", rows, key="id")


@pytest.mark.parametrize(
    "order_by, ids",
    [
        ("id desc", [4, 3, 2, 1, 0]),
        ("name, id desc", [4, 1, 0, 3, 2]),
        (["name desc", "id"], [2, 3, 0, 1, 4]),
        (["my, n"], [4, 3, 2, 1, 0]),
        ("my, n", [4, 3, 2, 1, 0]),
        (['"my, n" DESC'], [0, 1, 2, 3, 4]),
        ('name, "my, n" desc', [1, 4, 0, 3, 2]),
        ("lon asc", [0, 1, 2, 3, 4]),
    ],
)
def test_rows_are_sorted_by_columns(towns, order_by, ids):
    answer = towns.query(order_by=order_by)
    assert [row[0] for row in answer.fetchall()] == ids == answer.df()["id"].tolist()
    assert answer.columns == towns.query().columns


def test_the_first_rows_of_an_order(towns):
    answer = towns.query(where="id > 0", order_by="id desc", columns=["name"], limit=2)
    assert answer.fetchall() == [("a",), ("c",)] and answer.columns == ["name"] and len(answer) == 2
    assert len(towns.query(order_by="id", limit=99)) == 5
    assert towns.query(order_by="lon desc", limit=1).gdf().geometry.x.tolist() == [4.0]
    assert towns.query(order_by="id").explain().startswith("plan")


def test_sorted_answers_are_of_one_snapshot(towns):
    answer = towns.query(order_by="id")
    towns.delete(where="id >= 0")
    assert len(answer.fetchall()) == len(answer) == 5


def test_more_rows_than_memory_holds_are_sorted(path):
    with terrane.open(path, memory_limit="32MiB") as db:
        rows = ({"id": i, "lon": 0.0, "lat": 0.0, "text": f"{i * 7919 % 60_000:0200}"} for i in range(60_000))
        texts = db.create("texts", list(rows), key="id")
        count, last = 0, ""
        for batch in texts.query(order_by="text", columns=["text"]):
            for (text,) in batch.fetchall():
                assert last <= text
                count, last = count + 1, text
        assert count == 60_000


@pytest.mark.parametrize("wrong", ["nme", "name down", "", ["name", "nme desc"], 3, "geometry"])
def test_wrong_orders_are_usage_errors(towns, wrong):
    with pytest.raises(terrane.UsageError, match="order_by"):
        towns.query(order_by=wrong)


def test_geometries_have_no_order(db):
    shapes = db.create("shapes", [{"id": 1, "shape": "POINT (1 2)"}], key="id", geometry="shape")
    with pytest.raises(terrane.UsageError, match="no order"):
        shapes.query(order_by="shape")
