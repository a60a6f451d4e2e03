"""Options that commands share, the configuration that a command is about, and records to leave out.

A configuration is named by `-c FILE`, or by the file alone where a command has no other use for a word; else by the
variable `BACKFILL_CONFIG`; else it is `config.yaml` in the working folder.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from schemas.errors import Code, ConfigError, InputError
from schemas.records import RecordId, record_at, record_from_text
from schemas.settings.job_keys import is_job_name
from streaming.runtime.paths import CONFIG_VARIABLE

_DEFAULT = Path("config.yaml")
_WHERE_FROM = f"[env: {CONFIG_VARIABLE}; default: {_DEFAULT}]"

ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        help=f"The service's configuration, YAML or JSON. {_WHERE_FROM}",
        dir_okay=False,
        show_default=False,
    ),
]
ConfigArgument = Annotated[
    str | None, typer.Argument(metavar="[CONFIG]", help="The configuration, in place of --config.")
]
JobOrConfigArgument = Annotated[
    str | None,
    typer.Argument(metavar="[JOB]", help="Name of a job; or the configuration, in place of --config."),
]


JsonOption = Annotated[bool, typer.Option("--json", help="JSON, in one object.")]


def usage(found: str, expected: str, where: str | None = None) -> ConfigError:
    """The error for a command line that can't work as written."""
    return ConfigError(Code.USAGE, where=where, found=found, expected=expected)


def optional_config(option: Path | None, word: str | None = None) -> Path | None:
    """The configuration to use; None where none is named and the one that the variable or the folder has is not there.

    The image sets the variable, whether a file is mounted or not. `word` is the file where it was given without the
    option. Raises: ConfigError(USAGE) for both.
    """
    if option is not None and word is not None:
        raise usage(f"{word!r} and --config", "one configuration")
    if option is not None or word is not None:
        return option or Path(str(word))
    usual = _usual()
    return usual if usual.exists() else None


def _usual() -> Path:
    return Path(os.environ.get(CONFIG_VARIABLE) or _DEFAULT)


def required_config(option: Path | None, word: str | None = None) -> Path:
    """The configuration of `optional_config`. Raises: ConfigError, USAGE for two of them, CONFIG_INVALID for none."""
    found = optional_config(option, word)
    if found is None:
        raise ConfigError(
            Code.CONFIG_INVALID,
            found=f"no file {_usual()}",
            expected="a configuration",
            next_step=f"name the file with --config, or in the variable {CONFIG_VARIABLE}",
        )
    return found


def job_or_config(word: str | None) -> tuple[str | None, str | None]:
    """A word as a job's name or a file's: files have a `.` or a `/`, which no name of a job may hold."""
    return (word, None) if word is None or is_job_name(word) else (None, word)


def one_job(word: str | None, option: str | None) -> str | None:
    """A job, named by position or by `--job`. Raises: ConfigError(USAGE) for two of them."""
    if word is not None and option is not None and word != option:
        raise usage(f"the jobs {word!r} and {option!r}", "one job")
    return word or option


def places(texts: Iterable[str] | None) -> frozenset[RecordId]:
    """(partition, offset) of each `PARTITION@OFFSET`. Raises: ConfigError(USAGE)."""
    return frozenset(_place(text) for text in texts or ())


def with_option(error: InputError, topic: str) -> InputError:
    """The error of a reader that meets an invalid record of `topic`, with the option that leaves it out here, too."""
    record = record_at(error.where)
    if record is None or error.where not in (record, f"{topic}-{record}"):
        return error
    option = f"if the service has left it out: --skip-record {record}"
    return type(error)(error.code, **error.texts | {"next_step": f"{error.next_step}; {option}"})


def _place(text: str) -> RecordId:
    try:
        return record_from_text(text)
    except ValueError:
        raise ConfigError(
            Code.USAGE,
            where="--skip-record",
            found=repr(text),
            expected="PARTITION@OFFSET, as in 2@1047",
            next_step="take both numbers from the error's `topic-partition@offset`",
        ) from None
