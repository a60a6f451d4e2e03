from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pytest

from schemas.errors import Code, ConfigError
from schemas.filter.ast import (
    And,
    Between,
    Comparison,
    Filter,
    InList,
    IsNull,
    Like,
    Not,
    Operator,
    Or,
    columns_of,
)
from schemas.filter.parse import MAX_DEPTH, MAX_NODES, MAX_TEXT_BYTES, parse_filter
from schemas.table import declare

TABLE = declare(
    {
        "name": "orders",
        "columns": {
            "id": "bigint",
            "region": "string",
            "amount": "decimal(18,2)",
            "rate": "double",
            "paid": "boolean",
            "photo": "binary",
            "date": "date",
            "at": "timestamp",
            "in": "int",
        },
        "primary_key": ["id"],
    }
)


def refusal_of(text: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        parse_filter(text, TABLE)
    return caught.value


def equals(column: str, number: int) -> Comparison:
    return Comparison(column, Operator.EQUAL, Decimal(number))


NOON = dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("amount >= 10.50", Comparison("amount", Operator.GREATER_OR_EQUAL, Decimal("10.5"))),
        ("id != 1", Comparison("id", Operator.NOT_EQUAL, Decimal(1))),
        ("id <> 1", Comparison("id", Operator.NOT_EQUAL, Decimal(1))),
        ("id<-1", Comparison("id", Operator.LESS, Decimal(-1))),
        ("rate = 1.5e300", Comparison("rate", Operator.EQUAL, Decimal("1.5e300"))),
        ("region = 'it''s'", Comparison("region", Operator.EQUAL, "it's")),
        ("region = 'a\\n'", Comparison("region", Operator.EQUAL, "a\\n")),
        ("paid = tRuE", Comparison("paid", Operator.EQUAL, True)),
        ("date = DATE '2026-01-31'", Comparison("date", Operator.EQUAL, dt.date(2026, 1, 31))),
        ("at < timestamp'2026-01-31 12:00:00'", Comparison("at", Operator.LESS, NOON)),
        (
            "at < TIMESTAMP '2026-01-31T12:00:00.5Z'",
            Comparison("at", Operator.LESS, NOON.replace(microsecond=500_000)),
        ),
        ("region IN ('EU', 'US')", InList("region", ("EU", "US"))),
        ("region not in ('EU')", Not(InList("region", ("EU",)))),
        ("id BETWEEN 1 AND 2 AND id = 3", And((Between("id", Decimal(1), Decimal(2)), equals("id", 3)))),
        ("id NOT BETWEEN 2 AND 1", Not(Between("id", Decimal(2), Decimal(1)))),
        (r"region LIKE '\%a_%'", Like("region", r"\%a_%")),
        ("region NOT LIKE '%'", Not(Like("region", "%"))),
        ("photo IS NULL", IsNull("photo")),
        ("photo IS NOT NULL", Not(IsNull("photo"))),
        ("id=1 OR id=2 AND id=3", Or((equals("id", 1), And((equals("id", 2), equals("id", 3)))))),
        ("(id=1 OR id=2) AND id=3", And((Or((equals("id", 1), equals("id", 2))), equals("id", 3)))),
        ("NOT id=1 AND id=2", And((Not(equals("id", 1)), equals("id", 2)))),
        ("NOT (id=1 AND id=2)", Not(And((equals("id", 1), equals("id", 2))))),
        ("((((id=1))))", equals("id", 1)),
        ("in IN (1)", InList("in", (Decimal(1),))),
        ("id\n=\t1", equals("id", 1)),
    ],
)
def test_the_grammar_is_read_as_sql_reads_it(text: str, expected: Filter) -> None:
    assert parse_filter(text, TABLE) == expected


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("amount>=10.50 and(region in('EU','US'))", "amount >= 10.5 AND region IN ('EU', 'US')"),
        ("not(not(id!=+1.0))", "NOT NOT id <> 1"),
        ("(id=1 or id=2)and not(id=3 and id=4)", "(id = 1 OR id = 2) AND NOT (id = 3 AND id = 4)"),
        ("not id in (1)", "id NOT IN (1)"),
        ("rate = -0.0", "rate = 0"),
        ("rate = 1E+300", "rate = 1E+300"),
        ("id = 1e3", "id = 1000"),
        ("at = timestamp '2026-01-31T12:00:00.50Z'", "at = TIMESTAMP '2026-01-31 12:00:00.500000'"),
        ("date = date '0001-01-01'", "date = DATE '0001-01-01'"),
    ],
)
def test_the_canonical_text_tells_what_was_understood(text: str, canonical: str) -> None:
    assert str(parse_filter(text, TABLE)) == canonical


def test_a_filter_names_the_columns_it_reads_once_each() -> None:
    condition = parse_filter("region = 'a' AND NOT (id = 1 OR region IS NULL) AND amount IN (1)", TABLE)
    assert columns_of(condition) == ("region", "id", "amount")


NOT_ALLOWED = [
    # functions: some read the clock, a die, the class path or a file
    ("reflect('java.lang.Runtime', 'getRuntime') = 'x'", 1),
    ("region = reflect('a', 'b')", 10),
    ("rand() < 0.5", 1),
    ("id = rand()", 6),
    ("at < current_timestamp()", 6),
    ("at < current_timestamp", 6),
    ("at < NOW  ()", 6),
    ("lower(region) = 'eu'", 1),
    ("region LIKE concat('%', 'a')", 13),
    ("region IN (lower('EU'))", 12),
    ("count(*) > 1", 1),
    # subqueries and statements
    ("id IN (SELECT id FROM orders)", 8),
    ("id = (SELECT 1)", 6),
    ("EXISTS (SELECT 1)", 8),
    ("id > ALL (SELECT 1)", 6),
    ("id = 1 UNION SELECT 1", 8),
    ("id = 1; DROP TABLE orders", 7),
    ("SELECT 1", 1),
    # arithmetic, casts, other operators
    ("id + 1 = 2", 4),
    ("id = 1 + 1", 8),
    ("id % 2 = 0", 4),
    ("id DIV 2 = 1", 4),
    ("id = ~1", 6),
    ("id = (1)", 6),
    ("region = 'a' || 'b'", 14),
    ("CAST(id AS string) = '1'", 1),
    ("id = CAST('1' AS int)", 6),
    ("id::string = '1'", 3),
    ("CASE WHEN id = 1 THEN 1 END = 1", 6),
    ("region RLIKE '(a+)+$'", 8),
    ("region ILIKE 'a'", 8),
    ("region LIKE 'a!%' ESCAPE '!'", 19),
    ("region LIKE ANY ('a', 'b')", 13),
    ("id IS DISTINCT FROM 1", 7),
    ("at < INTERVAL '1' DAY", 6),
    ("photo = X'00'", 9),
    ("region = 'a' COLLATE UNICODE", 14),
    # columns against columns, nested fields, NULL as a literal
    ("id = amount", 6),
    ("id BETWEEN 1 AND amount", 18),
    ("id IN (1, amount)", 11),
    ("in = in", 6),
    ("id = elsewhere", 6),
    ("orders.id = 1", 7),
    ("region[0] = 'a'", 7),
    ("id = NULL", 6),
    ("id IN (1, NULL)", 11),
    # quoting, comments, parameters, look-alikes
    ("`id` = 1", 1),
    ('"id" = 1', 1),
    ('region = "EU"', 10),
    ("id = 1 -- AND region = 'EU'", 8),
    ("id = 1 /* x */", 8),
    ("/**/ id = 1", 1),
    ("id = :p", 6),
    ("id = ?", 6),
    ("id = ${env:SECRET}", 6),
    ("id = @@x", 6),
    ("id = {{x}}", 6),
    ("\u0456d = 1", 1),  # Cyrillic i
    ("id \uff1d 1", 4),  # fullwidth =
    ("id\u00a0= 1", 3),  # no-break space
    ("id = \u0661", 6),  # Arabic digit
    ("id = 1\u200b", 7),  # zero-width space
    ("region = \u2018EU\u2019", 10),  # curly quotes
    ("id = 1\x00", 7),
    ("\ufeffid = 1", 1),
    ("id = 1 \\", 8),
]


@pytest.mark.parametrize(("text", "position"), NOT_ALLOWED, ids=[ascii(text) for text, _ in NOT_ALLOWED])
def test_sql_beyond_the_grammar_is_refused_at_its_token(text: str, position: int) -> None:
    refused = refusal_of(text)
    assert refused.code is Code.EXPRESSION_NOT_ALLOWED, refused
    assert refused.where == f"filter:{position}", refused


INVALID = [
    ("", 1, "a column"),
    ("   ", 4, "a column"),
    ("id", 3, "BETWEEN"),
    ("id =", 5, "a number"),
    ("id = 1 AND", 11, "a column"),
    ("AND id = 1", 5, "BETWEEN"),  # `and` would do as a column
    ("id = 1 id = 2", 8, "AND or OR or the end"),
    ("id = 1 ANDid = 2", 8, "AND or OR or the end"),
    ("(id = 1", 8, "')'"),
    ("id = 1)", 7, "the end"),
    ("()", 2, "a column"),
    ("1 = 1", 1, "a column"),
    ("TRUE", 5, "BETWEEN"),
    ("id == 1", 5, "a number"),
    ("id IN ()", 8, "a number"),
    ("id IN (1,)", 10, "a number"),
    ("id IN 1", 7, "'('"),
    ("id BETWEEN 1 OR 2", 14, "AND"),
    ("id IS TRUE", 7, "NULL"),
    ("region LIKE 5", 13, "'text'"),
    ("region = 'EU", 10, "a closing quote"),
    ("id = 0x10", 6, "a number"),
    ("id = 1.", 6, "a number"),
    ("id = Infinity", 6, None),
    ("id I\u017f NULL", 4, "IS"),  # the long s is an S to Unicode's case compacting
    ("region LI\u212aE 'a'", 8, "LIKE"),  # so is the Kelvin sign a K
    # columns
    ("elsewhere = 1", 1, "as declared"),
    ("ID = 1", 1, "as declared"),
    # literals that don't belong to their column
    ("id = '1'", 6, "a number"),
    ("id = TRUE", 6, "a number"),
    ("region = 1", 10, "text in single quotes"),
    ("paid = 1", 8, "TRUE or FALSE"),
    ("photo = 'a'", 9, "IS NULL"),
    ("date = '2026-01-31'", 8, "DATE '"),
    ("date = TIMESTAMP '2026-01-31 00:00:00'", 8, "DATE '"),
    ("at = DATE '2026-01-31'", 6, "TIMESTAMP '"),
    ("date = DATE '2026-02-30'", 8, "a day of the calendar"),
    ("date = DATE '2026-1-1'", 8, "YYYY-MM-DD"),
    ("at = TIMESTAMP '2026-01-31'", 6, "YYYY-MM-DD HH:MM:SS"),
    ("at = TIMESTAMP '2026-01-31 24:00:00'", 6, "an instant of the calendar"),
    ("at = TIMESTAMP '2026-01-31 12:00:00+02:00'", 6, "in UTC"),
    ("at = TIMESTAMP '2026-01-31 12:00:00.1234567'", 6, "in UTC"),
    ("id = 1e500", 6, "exponent"),
    ("id = " + "9" * 39, 6, "38 digits"),
    ("rate = 1e309", 8, "within the range of a double"),
    ("region LIKE 'a\\b'", 13, "backslashes"),
    ("region LIKE 'a\\'", 13, "backslashes"),
    ("id LIKE '1'", 1, "a string column"),
    ("region LIKE '" + "%" * 1001 + "'", 13, "1000 characters"),
    ("region = '\ud800'", 11, "UTF-8"),
]


@pytest.mark.parametrize(
    ("text", "position", "expected"), INVALID, ids=[ascii(text)[:60] for text, _, _ in INVALID]
)
def test_a_slip_is_named_with_its_place_and_what_was_expected(
    text: str, position: int, expected: str | None
) -> None:
    refused = refusal_of(text)
    assert refused.where == f"filter:{position}", refused
    if expected is not None:
        assert refused.code is Code.EXPRESSION_INVALID, refused
        assert expected in refused.expected


@pytest.mark.parametrize(
    ("text", "column"), [("regoin = 'EU'", "region"), ("AMOUNT = 1", "amount"), ("Region = 'EU'", "region")]
)
def test_a_mistyped_column_comes_with_the_nearest_one(text: str, column: str) -> None:
    assert f"did you mean {column!r}?" in refusal_of(text).found


@pytest.mark.parametrize(
    "text",
    [
        "(" * 10_000 + "id = 1" + ")" * 10_000,
        "(" * 4_000,
        "(" * (MAX_DEPTH - 1) + "id = 1" + ")" * (MAX_DEPTH - 1),
        "NOT " * 2_000 + "id = 1",
        "NOT (" * MAX_DEPTH + "id = 1" + ")" * MAX_DEPTH,
        f"id IN ({','.join(['1'] * MAX_NODES)})",
        " OR ".join(["id=1"] * (MAX_NODES // 2 + 1)),
        f"region = '{'a' * MAX_TEXT_BYTES}'",
        f"region = '{'é' * (MAX_TEXT_BYTES // 2)}'",
        "id = 1" + " " * MAX_TEXT_BYTES,
        "\u00e9" * 8_000,
        "a" * 8_000,
        "a " * 4_000,
        "'" * 8_000,
        "id=" + "1" * 8_000,
        "id=1e" + "9" * 8_000,
    ],
    ids=lambda text: f"{text[:12]!a}...{len(text)}",
)
@pytest.mark.timeout(20)  # milliseconds each; only time that explodes gets there
def test_oversized_text_is_refused(text: str) -> None:
    assert refusal_of(text).code is Code.EXPRESSION_INVALID


def test_a_filter_at_the_limits_is_read() -> None:
    deep = MAX_DEPTH - 2  # the comparison and its literal are levels too
    assert parse_filter("(" * deep + "id = 1" + ")" * deep, TABLE) == equals("id", 1)
    many = ",".join(["1"] * (MAX_NODES - 1))
    assert str(parse_filter(f"id IN ({many})", TABLE)).count("1") == MAX_NODES - 1


def test_a_refusal_is_one_short_printable_line() -> None:
    for text in ("id = \x1b[31m", "x" * 5_000 + " = 1", "id = 1\r\nfoo", "region LIKE '\n\\'"):
        line = str(refusal_of(text))
        assert line.isprintable()
        assert len(line) < 500
