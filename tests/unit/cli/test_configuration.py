"""Every command finds its configuration in the same way."""

from __future__ import annotations

from pathlib import Path

import pytest

from schemas.errors import ConfigError
from streaming.cli.app import COMMANDS, load, main
from streaming.cli.configuration import job_or_config, optional_config, required_config
from streaming.runtime.paths import CONFIG_VARIABLE

WITHOUT = {"demo", "kafka", "prepare", "failpoints", "inspect", "completion"}
POSITIONAL = ["run", "rebuild", "list", "produce", "consume", "barriers", "verify", "status"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv(CONFIG_VARIABLE, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", sorted(COMMANDS.keys() - WITHOUT))
def test_every_command_that_needs_a_configuration_takes_it_by_the_same_option(name: str) -> None:
    [option] = [each for each in load(name).params if each.name == "config"]
    assert {"--config", "-c"} <= set(option.opts)
    assert "config.yaml" in str(option.help)
    assert CONFIG_VARIABLE in str(option.help)


def test_the_option_wins_over_the_variable_and_that_over_the_file_of_the_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "config.yaml").touch()
    assert required_config(None) == optional_config(None) == Path("config.yaml")
    (named := folder / "variable.yaml").touch()
    monkeypatch.setenv(CONFIG_VARIABLE, str(named))
    assert required_config(None) == optional_config(None) == named
    assert required_config(Path("own.yaml")) == optional_config(Path("own.yaml")) == Path("own.yaml")
    assert optional_config(None, "here.yaml") == Path("here.yaml")


def test_without_any_configuration_it_says_how_to_name_one() -> None:
    assert optional_config(None) is None
    with pytest.raises(ConfigError) as missing:
        required_config(None)
    assert missing.value.code == "CONFIG_INVALID"
    assert "no file config.yaml" in str(missing.value)
    assert CONFIG_VARIABLE in str(missing.value)


def test_the_images_variable_is_no_configuration_where_no_file_is_mounted(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commands that are given all they need by options have no use for one."""
    monkeypatch.setenv(CONFIG_VARIABLE, str(folder / "unmounted.yaml"))
    assert optional_config(None) is None
    with pytest.raises(ConfigError, match="unmounted"):
        required_config(None)


def test_two_configurations_are_refused() -> None:
    with pytest.raises(ConfigError, match="USAGE"):
        required_config(Path("a.yaml"), "b.yaml")


@pytest.mark.parametrize("word", ["both", "orders-2"])
def test_a_word_that_can_be_a_jobs_name_is_one(word: str) -> None:
    assert job_or_config(word) == (word, None)


@pytest.mark.parametrize("word", ["config.yaml", "./both", "some/folder/orders", "x.json", "Orders"])
def test_a_word_that_no_job_can_be_called_is_a_file(word: str) -> None:
    assert job_or_config(word) == (None, word)


@pytest.mark.parametrize("name", POSITIONAL)
def test_the_file_may_be_given_without_the_option(
    name: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "mine.yaml").write_text("upstrem: orders")
    assert main([name, "mine.yaml"]) == 2
    by_position = capsys.readouterr().err
    assert by_position.startswith("CONFIG_INVALID at mine.yaml: ")
    assert main([name, "-c", "mine.yaml"]) == 2
    assert capsys.readouterr().err == by_position


@pytest.mark.parametrize("name", ["verify", "consume", "status"])
def test_a_job_is_named_by_position_and_the_configuration_is_that_of_the_folder(
    name: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "config.yaml").write_text(
        "{kafka: {bootstrap: '127.0.0.1:1'}, upstream: orders, state: ./state,"
        " table: {name: t, columns: {id: bigint}, primary_key: [id]}, jobs: [{name: both, output: both}]}"
    )
    expected = "STATE_PATH_INVALID" if name == "status" else "JOB_UNKNOWN"
    assert main([name, "bth"]) != 0
    assert capsys.readouterr().err.startswith(expected)


@pytest.mark.parametrize(
    ("upstream", "option", "complaint"),
    [
        (
            "{topic: orders, format: upsert}",
            "--format=change",
            "--format change for an upstream that is upsert-json",
        ),
        (
            "{topic: orders, format: upsert, encoding: avro-registry, key: text}",
            "--rows=1",
            "keys as 'text' with encoding 'avro-registry'",
        ),
    ],
)
def test_produce_writes_no_events_of_another_form_than_the_upstream_has(
    folder: Path, capsys: pytest.CaptureFixture[str], upstream: str, option: str, complaint: str
) -> None:
    (folder / "config.yaml").write_text(
        f"kafka: {{bootstrap: 127.0.0.1:1}}\nupstream: {upstream}\nstate: state\n"
        "registry: {url: http://127.0.0.1:1}\n"
        "table: {name: orders, columns: {id: bigint}, primary_key: [id]}\n"
    )
    assert main(["produce", option]) == 2
    assert complaint in capsys.readouterr().err
