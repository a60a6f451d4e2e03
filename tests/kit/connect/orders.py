"""A table of PostgreSQL with a column of every type that can be declared, and what it reads as."""

from __future__ import annotations

import datetime as dt
import math
import random
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

from schemas.position import Key
from schemas.records import Row
from tests.kit.connect.postgres import Postgres

KEY = ("region", "id")
# Name: what the database has it as, what it is declared as, and how a query writes it so; empty for "as it is".
_COLUMNS: dict[str, tuple[str, str, str]] = {
    "region": ("text NOT NULL", "string", ""),
    "id": ("bigint NOT NULL", "bigint", ""),
    "ok": ("boolean NOT NULL DEFAULT true", "boolean", ""),
    "small": ("smallint", "int", ""),
    "number": ("integer", "int", ""),
    "big": ("bigint", "bigint", ""),
    "ratio": ("real", "float", "ratio::float8"),
    "measure": ("double precision", "double", ""),
    "amount": ("numeric(18,2)", "decimal(18,2)", ""),
    "free": ("numeric", "decimal(38,10)", ""),
    "note": ("text", "string", ""),
    "body": ("text", "string", ""),
    "raw": ("bytea", "binary", ""),
    "day": ("date", "date", ""),
    "at": ("timestamp", "timestamp", "at AT TIME ZONE 'UTC'"),
    "zoned": ("timestamptz", "timestamp", ""),
    "clock": ("time", "bigint", "(extract(epoch FROM clock) * 1000000)::bigint"),
    "ref": ("uuid", "string", "ref::text"),
    "doc": ("jsonb", "string", "doc::text"),
    "mood": ("mood", "string", "mood::text"),
    "counts": ("integer[]", "string", "array_to_json(counts)::text"),
    "tags": ("text[]", "string", "array_to_json(tags)::text"),
}
NAMES = tuple(_COLUMNS)
_WRITTEN = {name: written for name, (_, _, written) in _COLUMNS.items() if written}
LARGE = ("body", "raw", "doc", "counts", "tags")


def declared(without: tuple[str, ...] = ()) -> dict[str, Any]:
    """The table of a configuration, which need not have every column."""
    return {
        "name": "orders",
        "columns": {name: kind for name, (_, kind, _) in _COLUMNS.items() if name not in without},
        "primary_key": list(KEY),
        "vnode_count": 16,
    }


MADE = (
    "CREATE TYPE mood AS ENUM ('calm', 'cross', 'größer')",
    f"CREATE TABLE orders ({', '.join(f'{name} {kind}' for name, (kind, _, _) in _COLUMNS.items())}, "
    f"PRIMARY KEY ({', '.join(KEY)}))",
    # Stored as it is, so that a few thousand bytes are enough to be left out of an update.
    *(f"ALTER TABLE orders ALTER {name} SET STORAGE EXTERNAL" for name in LARGE),
)
FILTER = "amount >= 0 AND region != 'EU' OR body LIKE 'a%' OR measure > 1000"
NARROW = ("note", "body", "amount", "zoned", "counts", "ratio")


def read(
    postgres: Postgres, database: str, columns: Iterable[str] = NAMES, where: str = "true"
) -> dict[Key, Row]:
    """The rows by their keys, as they are committed now, also of added columns. `where` is a filter of a job."""
    written = ", ".join(_WRITTEN.get(name, name) for name in (*KEY, *columns))
    with postgres.connect(database) as session:
        found = session.execute(f"SELECT {written} FROM orders WHERE {where}").fetchall()  # noqa: S608
    return {row[:2]: row[2:] for row in found}


def selected(
    postgres: Postgres, database: str, columns: Iterable[str] = NAMES, where: str = "true"
) -> dict[Key, Row]:
    """Rows of the database by key, to be compared."""
    return comparable(read(postgres, database, columns, where))


def comparable(rows: dict[Key, Row]) -> dict[Key, Row]:
    """With NaN equal to itself."""
    return {key: tuple("NaN" if value != value else value for value in row) for key, row in rows.items()}


def through_json(rows: dict[Key, Row]) -> dict[Key, Row]:
    """Values as Connect's JSON converter reads them: NaN and infinities are written as texts, which it takes for 0."""
    return {
        key: tuple(0.0 if isinstance(value, float) and not math.isfinite(value) else value for value in row)
        for key, row in rows.items()
    }


_TEXTS = ("", "x", "NULL", '"quoted" \\ back', "línea\nnext\ttab", "🙂 beyond", "\u2028", "a" * 50)
_DAYS = (dt.date(1969, 12, 31), dt.date(1, 1, 1), dt.date(9999, 12, 31), dt.date(2024, 2, 29))
_FLOATS = (0.0, -0.0, 0.1, 1e-30, 3.4e38, math.nan, math.inf, -math.inf, 16_777_217.0)


def random_value(name: str, chance: random.Random) -> Any:
    """One that the column may hold; null now and then."""
    kind = _COLUMNS[name][0]
    if "NOT NULL" not in kind and chance.random() < 0.15:
        return None
    match kind.split()[0]:
        case "boolean":
            return chance.random() < 0.5
        case "smallint" | "integer" | "bigint":
            limit = {"smallint": 2**15, "integer": 2**31, "bigint": 2**63}[kind.split()[0]]
            return chance.choice([0, -1, limit - 1, -limit, chance.randrange(-limit, limit)])
        case "real" | "double":
            return chance.choice([*_FLOATS, chance.uniform(-1e6, 1e6)])
        case "numeric":
            return Decimal(chance.randrange(-(10**18) + 1, 10**18)).scaleb(-chance.randrange(0, 11))
        case "numeric(18,2)":
            return (
                Decimal(chance.choice([0, 10**18 - 1, -(10**18) + 1, chance.randrange(-(10**6), 10**6)]))
                / 100
            )
        case _:
            return _other(kind, chance)


def _other(kind: str, chance: random.Random) -> Any:
    match kind.split()[0]:
        case "bytea":
            return chance.randbytes(chance.choice([0, 1, 40, 5_000]))
        case "date":
            return chance.choice([*_DAYS, dt.date(2000, 1, 1) + dt.timedelta(chance.randrange(20_000))])
        case "timestamp" | "timestamptz":
            day = dt.datetime(1900, 1, 1) + dt.timedelta(microseconds=chance.randrange(10**16))  # noqa: DTZ001
            found = chance.choice([dt.datetime(1969, 12, 31, 23, 59, 59, 999_999), day])  # noqa: DTZ001
            return found if kind == "timestamp" else found.replace(tzinfo=dt.UTC)
        case "time":
            return dt.time(chance.randrange(24), 59, 59, chance.randrange(1_000_000))
        case "uuid":
            return f"{chance.randrange(2**128):032x}"
        case "jsonb":
            return chance.choice(
                ['{"b": 1, "a": [null, "ü"]}', "7", '"text"', '{"wide": "%s"}' % ("w" * 3_000)]
            )
        case "mood":
            return chance.choice(["calm", "cross", "größer"])
        case "integer[]":
            return chance.choice([[], [1, None, -3], [chance.randrange(2**31) for _ in range(900)]])
        case "text[]":
            return chance.choice([[], ["a", None, 'b "c"'], ["word" * 5] * 200])
        case _:
            return chance.choice([*_TEXTS, chance.choice("abc") * 3_000])
