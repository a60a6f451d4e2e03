"""Jobs of a scenario, as a configuration would declare them."""

from __future__ import annotations

from schemas.kinds.projection import columns_of_text
from schemas.table import TableSchema
from tests.kit.masks import hash_key_file
from tests.scenarios.script import Command

JOB_OPTIONS = (
    "output",
    "filter",
    "columns",
    "partitions",
    "rate",
    "read",
    "paused",
    "format",
    "from",
    "until",
    "hash_key",
    "key",
    "new_columns",
)


def declaration(command: Command, table: TableSchema) -> dict[str, object]:
    """The declaration of a `job` or `create` command."""
    command.expect(2, *JOB_OPTIONS)
    name, given = command.words[1], command.options
    declared: dict[str, object] = {"name": name, "output": given.get("output", name)}
    is_counted = given.get("read") == "topic" or table.by_partition
    if not is_counted or "partitions" in given:
        declared["output_partitions"] = command.number("partitions", 1)
    declared |= {
        key: given[key] for key in ("read", "format", "from", "until", "new_columns") if key in given
    }
    declared |= {"filter": given["filter"]} if "filter" in given else {}
    declared |= {"columns": columns_of_text(given["columns"])} if "columns" in given else {}
    declared |= {"key": columns_of_text(given["key"])} if "key" in given else {}
    if "hash(" in given.get("columns", ""):
        declared["hash_key_file"] = given.get("hash_key") or hash_key_file()
    declared |= {"rate_limit": command.number("rate", 0)} if "rate" in given else {}
    declared["paused"] = given.get("paused") == "yes"
    if not table.has_key:
        declared |= {"format": "append", "barrier_topic": declared["output"]}
    return declared
