"""Datasets are tables of DataFusion in Python."""

import random

import datafusion
import pytest

import terrane


@pytest.fixture
def ctx(places):
    context = datafusion.SessionContext()
    context.register_table("places", places)
    return context


def rows(frame):
    return [tuple(row.values()) for row in frame.to_pylist()]


def test_conditions_and_columns_are_pushed_down(ctx, places):
    statement = "SELECT name FROM places WHERE id >= 2 AND lat < 37.5"
    assert rows(ctx.sql(statement)) == [("San José",)]
    plan = "\n".join(str(row) for row in rows(ctx.sql("EXPLAIN " + statement)))
    assert "projection=[lat, name]" in plan, plan
    assert "full_filters=[places.id >= Int64(2)], partial_filters=[places.lat < Float64(37.5)]" in plan, plan


def test_a_table_is_the_state_when_it_was_registered(ctx, places):
    places.insert({"id": 4, "lon": 2.35, "lat": 48.86, "name": "Paris"})
    count = "SELECT count(*) FROM places"
    assert rows(ctx.sql(count)) == [(3,)]
    ctx.deregister_table("places")
    ctx.register_table("places", places)
    assert rows(ctx.sql(count)) == [(4,)]


def test_answers_are_those_of_a_table_of_arrow(db):
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    values = [None, -1.5, -0.0, 0.0, 2.5, 1e300]
    records = [
        {
            "id": id,
            "lon": rng.uniform(-10, 10),
            "lat": rng.uniform(-10, 10),
            "value": rng.choice(values),
            "name": rng.choice(["a", "B", "ä", "", None]),
            "count": rng.choice([None, -3, 0, 7, 2**53 + 1]),
        }
        for id in range(500)
    ]
    dataset = db.create("points", records, key="id")
    context = datafusion.SessionContext()
    context.register_table("points", dataset)
    context.register_record_batches("plain", [dataset.query().arrow().to_batches()])
    for _ in range(200):
        conditions = rng.sample(
            [
                f"value {rng.choice(['<', '<=', '=', '<>', '>', '>='])} {rng.choice(values[1:])}",
                f"count {rng.choice(['<', '<=', '=', '<>', '>', '>='])} {rng.choice([-3, 0, 7, 2**53])}",
                f"lon BETWEEN {rng.uniform(-10, 0)} AND {rng.uniform(0, 10)}",
                f"name {rng.choice(['=', '<>', '<', 'LIKE'])} '{rng.choice(['a', 'B', 'ä', '', 'a%'])}'",
                "name IS NULL",
                "value IS NOT NULL",
                f"id IN ({rng.randrange(500)}, {rng.randrange(500)})",
                f"NOT (count > {rng.randrange(-5, 9)} OR lat < {rng.uniform(-10, 10)})",
            ],
            rng.randrange(1, 4),
        )
        condition = rng.choice([" AND ", " OR "]).join(conditions)
        select = "SELECT id, name, value FROM {} WHERE " + condition + " ORDER BY id"
        assert rows(context.sql(select.format("points"))) == rows(context.sql(select.format("plain"))), condition


def test_another_version_is_refused(places, monkeypatch):
    monkeypatch.setattr(datafusion, "__version__", "54.0.0")
    with pytest.raises(terrane.Error, match="a table for version 55 of datafusion, and 54.0.0 is installed"):
        datafusion.SessionContext().register_table("places", places)
