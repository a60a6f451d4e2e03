"""The registry's client against a real HTTP server: what it fetches, what it says of trouble, and what is kept."""

from __future__ import annotations

import json
import ssl
from pathlib import Path
from typing import Any

import pytest

from schemas.avro.registered import KnownSchemas, WriterSchema
from schemas.errors import BackfillError, Code, ConfigError, EnvironmentProblem
from schemas.formats.upsert import UpsertFormat
from schemas.settings.registry import RegistryConfig
from schemas.table import declare
from state.small_files import SchemaFiles
from state.storage import Storage
from streaming.registry.client import AskedSchemas, Registry, SchemaBook, schema_faults
from tests.kit.registry import FakeRegistry, basic
from tests.kit.secure import Certificates, private

ROW = {"type": "record", "name": "Row", "fields": [{"name": "amount", "type": "long"}]}
KEY = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "long"}]}
SECRET = "canarySecret"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streaming.registry.client._PAUSE_MS", 1)


def client(fake: FakeRegistry, **keys: Any) -> Registry:
    return Registry(RegistryConfig.model_validate({"url": fake.url, **keys}))


def problem(registry: Registry, schema_id: int = 1) -> BackfillError:
    with pytest.raises(BackfillError) as caught:
        registry.schema(schema_id)
    assert SECRET not in str(caught.value)
    assert "secret details" not in str(caught.value)
    return caught.value


def book(fake: FakeRegistry, folder: Path) -> SchemaBook:
    return SchemaBook(client(fake), SchemaFiles(Storage(str(folder))), sleep=lambda seconds: None)


def test_a_schema_is_fetched_by_its_id_and_the_newest_by_its_subject(registry: FakeRegistry) -> None:
    first = registry.register("orders-value", ROW)
    newer = registry.register("orders-value", {**ROW, "doc": "newer"})
    assert client(registry).schema(first) == WriterSchema(first, json.dumps(ROW))
    assert client(registry).newest("orders-value") == WriterSchema(newer, json.dumps({**ROW, "doc": "newer"}))
    assert client(registry).schema(99) is None
    assert client(registry).newest("others-value") is None


def test_what_a_schema_refers_to_comes_with_it_each_after_its_own(registry: FakeRegistry) -> None:
    def reference(name: str) -> list[dict[str, object]]:
        return [{"name": name, "subject": name, "version": 1}]

    registry.register("money", {"type": "fixed", "name": "Money", "size": 8})
    price = {"type": "record", "name": "Price", "fields": [{"name": "net", "type": "Money"}]}
    registry.register("price", price, references=reference("money"))
    row = {"type": "record", "name": "Row", "fields": [{"name": "price", "type": "Price"}]}
    found = client(registry).schema(registry.register("orders-value", row, references=reference("price")))
    assert found is not None
    assert [json.loads(text)["name"] for text in found.references] == ["Money", "Price"]


@pytest.mark.parametrize("status", [408, 429, 500, 503])
def test_a_registry_in_trouble_is_one_that_is_away(registry: FakeRegistry, status: int) -> None:
    registry.status = status
    found = problem(client(registry))
    assert (type(found), found.code, found.where) == (
        EnvironmentProblem,
        Code.REGISTRY_UNREACHABLE,
        registry.url,
    )
    assert len(registry.asked) == 3
    assert not client(registry).is_reachable()


def test_nobody_there(registry: FakeRegistry) -> None:
    with FakeRegistry().serving() as gone:
        pass
    assert problem(client(gone)).code is Code.REGISTRY_UNREACHABLE
    assert not client(gone).is_reachable()
    both = Registry(RegistryConfig.model_validate({"url": f"{gone.url}, {registry.url}"}))
    assert both.schema(7) is None
    assert both.is_reachable()


@pytest.mark.parametrize("status", [400, 403, 404, 422])
def test_a_registry_that_refuses_is_not_waited_for(registry: FakeRegistry, status: int) -> None:
    registry.status = status
    assert problem(client(registry)).code is Code.REGISTRY_REFUSED
    assert len(registry.asked) == 1
    assert client(registry).is_reachable()


@pytest.mark.parametrize("body", [b"", b"<html>secret details</html>", b"[]", b'{"schema":7,"references":7}'])
def test_what_is_no_registry_is_refused(registry: FakeRegistry, body: bytes) -> None:
    registry.register("orders-value", ROW)
    registry.body = body
    assert problem(client(registry)).code is Code.REGISTRY_REFUSED


def test_a_login_by_name_or_by_token_is_asked_for_and_never_shown(
    registry: FakeRegistry, tmp_path: Path
) -> None:
    file = str(private(tmp_path / "secret", SECRET + "\n"))
    number = registry.register("orders-value", ROW)
    for header, keys in (
        (basic("backfill", SECRET), {"username": "backfill", "password_file": file}),
        (f"Bearer {SECRET}", {"token_file": file}),
    ):
        registry.authorization = header
        assert client(registry, **keys).schema(number) is not None
        registry.authorization = "another"
        assert problem(client(registry, **keys)).code is Code.REGISTRY_REFUSED
    (tmp_path / "secret").unlink()
    assert type(problem(client(registry, token_file=file))) is ConfigError


def test_tls_believes_the_named_authority_alone_and_shows_its_own_certificate(tmp_path: Path) -> None:
    certificates, others = Certificates(tmp_path), Certificates(tmp_path / "others")
    certificate, key = certificates.issue("server")
    mine, my_key = certificates.issue("client")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    tls.load_verify_locations(certificates.ca_file)
    tls.verify_mode = ssl.CERT_REQUIRED
    fake = FakeRegistry()
    number = fake.register("orders-value", ROW)
    pair = {"certificate_file": str(mine), "key_file": str(my_key)}
    with fake.serving(tls=tls):
        assert client(fake, ca_file=str(certificates.ca_file), **pair).schema(number) is not None
        for keys in ({"ca_file": str(certificates.ca_file)}, {"ca_file": str(others.ca_file), **pair}, pair):
            assert problem(client(fake, **keys)).code is Code.REGISTRY_UNREACHABLE


# What a service keeps ---------------------------------------------------------------------------------------


def test_what_was_learnt_is_in_the_state_and_needs_no_registry(
    registry: FakeRegistry, tmp_path: Path
) -> None:
    first, second = registry.register("orders-value", ROW), registry.register("orders-key", KEY)
    learnt = book(registry, tmp_path).learn([second, first])
    assert [schema.id for schema in learnt.schemas] == [first, second]
    assert sorted(path.name for path in (tmp_path / "schemas").iterdir()) == [
        f"{first}.json",
        f"{second}.json",
    ]
    registry.status = 503
    again = book(registry, tmp_path)
    assert again.known == learnt
    before = len(registry.asked)
    assert again.learn([first, second]) == learnt
    assert len(registry.asked) == before
    with pytest.raises(EnvironmentProblem):
        again.learn([first, 99])


def test_a_file_that_is_none_is_as_good_as_not_there(registry: FakeRegistry, tmp_path: Path) -> None:
    number = registry.register("orders-value", ROW)
    known = book(registry, tmp_path).learn([number])
    file = tmp_path / "schemas" / f"{number}.json"
    for data in ("", file.read_text()[:-9], "{}", "[7]"):
        file.write_text(data)
        (tmp_path / "schemas" / "x.json").write_text(
            json.dumps({"id": 8, "text": "", "kind": "", "references": []})
        )
        torn = book(registry, tmp_path)
        assert torn.known == KnownSchemas()
        assert torn.learn([number]) == known


def test_an_id_counts_as_unknown_once_it_was_asked_for_again(registry: FakeRegistry, tmp_path: Path) -> None:
    late = registry.register("orders-value", ROW)
    registry.unknown_for[late] = 2
    found = book(registry, tmp_path).learn([late, 99])
    assert [schema.id for schema in found.schemas] == [late]
    assert found.refused == {99}
    assert found.unanswered([late, 98, 99]) == {98}
    registry.register("orders-value", {**ROW, "doc": "x"}, schema_id=99)
    assert book(registry, tmp_path).learn([99]).refused == frozenset()


def test_the_newest_schemas_of_a_topic_are_learnt_ahead_and_trouble_is_none(
    registry: FakeRegistry, tmp_path: Path
) -> None:
    framed = UpsertFormat(encoding="avro-registry").framed
    number = registry.register("orders-value", ROW)
    ahead = book(registry, tmp_path)
    ahead.learn_newest("orders", framed)
    assert [schema.id for schema in ahead.known.schemas] == [number]
    registry.status = 503
    ahead.learn_newest("orders", framed)
    assert len(ahead.known.schemas) == 1


def test_commands_ask_once_for_each_id(registry: FakeRegistry) -> None:
    number = registry.register("orders-value", ROW)
    asked = AskedSchemas(client(registry))
    assert [asked.get(each) is None for each in (number, 99, number, 99)] == [False, True, False, True]
    assert len(registry.asked) == 2


def test_a_plan_says_what_is_wrong_with_the_newest_schemas(registry: FakeRegistry) -> None:
    table = declare({"name": "t", "columns": {"id": "bigint", "amount": "int"}, "primary_key": ["id"]})
    format_ = UpsertFormat(encoding="avro-registry")

    def lines() -> list[str]:
        return list(schema_faults(client(registry), "orders", format_, table))

    registry.register("orders-value", ROW)
    no_subject, incompatible = lines()
    assert "no subject orders-key" in no_subject
    assert "field amount is long, its column int" in incompatible
    registry.register("orders-key", KEY)
    registry.register("orders-value", {**ROW, "fields": [{"name": "amount", "type": "int"}]})
    assert lines() == []
    assert list(schema_faults(client(registry), "orders", UpsertFormat(), table)) == []
    registry.status = 503
    [line] = lines()
    assert line.startswith("REGISTRY_UNREACHABLE")


class WithoutVersions(FakeRegistry):
    """One that tells neither versions nor subjects, as a small or a foreign one may."""

    def response(self, method: str, path: str, body: Any, authorization: str | None) -> tuple[int, bytes]:
        if method == "GET" and (path.endswith("/subjects") or "/versions" in path):
            return 404, b"not here"
        return super().response(method, path, body, authorization)


def test_a_registry_that_tells_no_versions_has_none() -> None:
    with WithoutVersions().serving() as fake:
        number = fake.register("orders-value", ROW)
        assert list(client(fake).versions(number, "orders-value")) == []
        assert client(fake).schema(number) is not None
