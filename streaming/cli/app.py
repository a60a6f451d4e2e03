"""`backfill`: its sub-commands, and the form of an error.

A sub-command is a function that is written for typer: its annotations are the arguments, or groups of them; its
docstring is the help. It has the command's name, or else is the one called `command`, in the module of that name or the
one in `_MODULES`. Modules are imported when their command is run, so `backfill --help` never waits for Spark.

Every error is one line on standard error: a code, what was found, what was expected, what to do next.
Exit statuses: 0 success, those of `schemas.errors` for errors foreseen there, 70 for one that was not
foreseen (its trace goes to a file), 128 + n for a signal n.
"""

from __future__ import annotations

import gc
import inspect
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from functools import wraps
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.metadata import version
from types import ModuleType
from typing import Annotated, Any, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

from schemas.errors import BackfillError, Code, ConfigError
from streaming.runtime.paths import log_folder

_UNFORESEEN = 70  # EX_SOFTWARE of sysexits.h
_ASKING = frozenset({"list", "status"})
_OBJECTS_BEFORE_A_LOOK = 200_000
_WITH_SPARK = frozenset({"run", "rebuild", "demo", "prepare"})

COMMANDS = {
    "demo": "Run everything on this machine: a broker, an upstream, a backfill, and the check of its output.",
    "run": "Run the service with a configuration file.",
    "rebuild": "Run the service, and make its lost state anew first.",
    "plan": "Estimate what a job will cost before it is created.",
    "create": "Start a backfill in a running service: a new job with an output topic of its own.",
    "list": "List the jobs.",
    "status": "Show how the service and its jobs are doing.",
    "pause": "Halt the backfill of a job; live changes go on.",
    "resume": "Go on with a paused backfill, or with a suspended table.",
    "throttle": "Bound the snapshot rows per second of a job.",
    "lanes": "Change the number of lanes while jobs go on.",
    "alter": "Add a column to the table, rename one in records, or ignore a field.",
    "drop": "End a job; its output topic stays, unless --delete-topics.",
    "stop": "End the service behind its open batch.",
    "table": "Print the replica's versions at a barrier, and SQL that reads them.",
    "reset": "List what belongs to a state, with the commands that delete it.",
    "doctor": "Look at everything that a service needs, and say what to do.",
    "inspect": "Look at a topic, and write what a configuration would say of it.",
    "barriers": "Inject barriers into an upstream topic, without the service.",
    "produce": "Write test events to an upstream topic.",
    "consume": "Read an output topic: print, count, or fold it into a table.",
    "verify": "Check an output topic against its upstream, record by record.",
    "kafka": "Run the embedded broker alone.",
    "prepare": "Fetch the jars, and rehearse a start so that later ones are faster.",
    "completion": "Print a script that completes commands in a shell.",
    "failpoints": "List the places where a test can have the service killed.",
}
FOR_TESTS = {"failpoints"}
"""Commands that `--help` does not list."""
_MODULES = {
    "alter": "jobs.alter",
    "plan": "jobs.plan",
    "status": "jobs.status",
    **dict.fromkeys(("list", "table"), "jobs.listing"),
    **dict.fromkeys(("create", "pause", "resume", "throttle", "lanes", "drop", "stop"), "jobs.commands"),
    **{name: f"topics.{name}" for name in ("inspect", "produce", "consume", "verify")},
    "barriers": "topics.produce",
    **dict.fromkeys(("kafka", "prepare", "failpoints"), "local"),
    "rebuild": "run",
}
"""Modules below `streaming.cli` of commands, where that is not the one of their name."""


class LazyGroup(TyperGroup):
    """Knows the sub-commands by name and one line; imports one when it is about to run."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: D102
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> TyperCommand | None:
        """A stand-in that is enough for the list in `--help` and for "did you mean"."""
        if cmd_name not in COMMANDS:
            return None
        return TyperCommand(cmd_name, short_help=COMMANDS[cmd_name], hidden=cmd_name in FOR_TESTS)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: D102
        name, stand_in, rest = super().resolve_command(ctx, args)
        return (name, load(name), rest) if name and stand_in else (name, stand_in, rest)


def load(name: str) -> Any:
    """Import a sub-command, as typer's command.

    Its help is plain: frames and columns of their own left a third of 80 columns to the text, and cut long options off.
    """
    single = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    module = import_module(f"streaming.cli.{_MODULES.get(name, name)}")
    single.command(name)(with_groups(getattr(module, name, None) or module.command))
    return typer.main.get_command(single)


def with_groups(command: Callable[..., None]) -> Callable[..., None]:
    """The command as typer takes it: a parameter that is a group of options becomes an option for each of its fields.

    A group is a dataclass whose fields are annotated as a command's parameters are, and have defaults.
    """
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: kind for name, kind in hints.items() if is_dataclass(kind)}
    parameters = list[inspect.Parameter]()
    for name, parameter in inspect.signature(command).parameters.items():
        group = groups.get(name)
        kinds = {name: hints[name]} if group is None else get_type_hints(group, include_extras=True)
        parameters.extend(
            inspect.Parameter(
                each.name, parameter.KEYWORD_ONLY, default=each.default, annotation=kinds[each.name]
            )
            for each in ((parameter,) if group is None else fields(group))
        )

    @wraps(command)
    def called(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{each.name: given.pop(each.name) for each in fields(group)})
        command(**given)

    called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return called


app = typer.Typer(
    cls=LazyGroup,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"backfill {version('arrangement-backfill')}")
        raise typer.Exit


@app.callback()
def _backfill(
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    """Send a whole table, and every later change, to a new Kafka topic.

    Without a pause, a loss or a duplicate.
    """


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status.

    `arguments` come without the program's name; by default they are those of the process.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    if arguments is None and given:
        _leave_out(given[0])
    try:
        status = typer.main.get_command(app)(given, prog_name="backfill", standalone_mode=False)
    except BackfillError as error:
        return _complain(str(error), error.exit_status)
    except typer.Exit as left:
        return left.exit_code
    except (typer.Abort, KeyboardInterrupt):
        return 128 + signal.SIGINT
    except BrokenPipeError:
        # The reader of our output left (`backfill consume ... | head`); nothing is wrong, and there
        # is nothing to print to any more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except SystemExit:
        # Rich ends a process so whose reader has left, with a status of its own; typer raises none here.
        return 128 + signal.SIGPIPE
    except Exception as error:  # noqa: BLE001
        return _usage(error, given) if _is_usage(error) else _unforeseen(error)
    return status if isinstance(status, int) else 0


class _Absent(MetaPathFinder):
    def __init__(self, packages: frozenset[str]) -> None:
        self._packages = packages

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname in self._packages:
            raise ModuleNotFoundError(f"{fullname} is left out", name=fullname)
        return None


def _leave_out(command: str) -> None:
    """Hide packages that the command does not use, as if they were not installed. Only for a process of its own.

    pyarrow imports pandas and numpy wherever they are, for arrays of theirs that are never passed here. That alone
    takes longer than all the rest of `backfill list`: 0.9 s and 0.3 s of CPU, of 1.9 s.
    """
    if command in _WITH_SPARK:
        return
    absent = {"pandas", "numpy"} if command in _ASKING else {"pandas"}
    sys.meta_path.insert(0, _Absent(frozenset(absent - sys.modules.keys())))
    if command in _ASKING:
        # What is imported stays, and looking through it again and again takes a fifth of the time.
        gc.set_threshold(_OBJECTS_BEFORE_A_LOOK)


def _is_usage(error: Exception) -> bool:
    # typer.BadParameter is the one public name of a family whose base typer keeps to itself.
    family = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")
    return isinstance(error, family)


def _usage(error: Any, given: Sequence[str]) -> int:
    command = f"backfill {given[0]}" if given and given[0] in COMMANDS else "backfill"
    if not error.format_message():  # no arguments at all: typer has printed the help already
        return ConfigError.exit_status
    message = error.format_message().rstrip(".").replace("\n", " ")
    foreseen = ConfigError(
        Code.USAGE,
        found=message[0].lower() + message[1:],
        expected=f"the usage of {command}",
        next_step=f"{command} --help",
    )
    return _complain(str(foreseen), foreseen.exit_status)


def _unforeseen(error: Exception) -> int:
    log = log_folder() / f"crash-{time.strftime('%Y%m%dT%H%M%S')}-{os.getpid()}.log"
    log.write_text("".join(traceback.format_exception(error)), encoding="utf-8")
    # Its message may hold data, so only its class is shown.
    kind = type(error).__name__
    return _complain(
        f"INTERNAL: found {kind}; expected no such failure; next: report it with {log}", _UNFORESEEN
    )


def _complain(line: str, status: int) -> int:
    sys.stderr.write(line + "\n")
    return status


if __name__ == "__main__":
    sys.exit(main())
