"""The whole way over a secured broker, with no more rights than the documents say and no secret left behind.

Each way goes: produce, a run whose lanes fail in its second batch, a run to the end, consume, verify; all of them real
processes, Spark at debug level with an event log. Then everything that was written or said is looked through for the
secrets that were planted.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from cryptography.hazmat.primitives import serialization

from schemas.table import declare
from streaming.kafka.clients import KafkaSettings
from streaming.verify.judge import verify_topics
from tests.kit.canary import Canary
from tests.kit.secure import (
    OPERATOR,
    OPERATOR_PASSWORD,
    PLAIN_PASSWORD,
    SCRAM_PASSWORD,
    USER,
    SecureBroker,
    private,
    secure_broker,
)

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]
RIGHTS = Path(__file__).parents[3] / "docs" / "security.md"
ROWS = 2_500
"""More than a short batch has, so that Spark keeps records in files, too."""
KEY_PASSWORD, OTHER_KEY_PASSWORD, WRONG = "canaryKeyByVariable", "canaryKeyByFile", "canaryWrong"
HASH_KEY = "canaryKeyOfHashes"
PLANTED = {
    "password of the service, by file": SCRAM_PASSWORD.split()[0],
    "password of the operator, by variable": OPERATOR_PASSWORD,
    "password for PLAIN, by file": PLAIN_PASSWORD.split()[0],
    "password that is refused": WRONG,
    "password of a key, by variable": KEY_PASSWORD,
    "password of a key, by file": OTHER_KEY_PASSWORD,
    "key of hashes": HASH_KEY,
}
LOG4J = """
appender.all.type = File
appender.all.name = all
appender.all.fileName = {file}
appender.all.layout.type = PatternLayout
appender.all.layout.pattern = %d %p %c %m%n%ex
rootLogger.level = debug
rootLogger.appenderRef.all.ref = all
"""


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A broker that allows nothing but what the documents say; only its plain listener may do all."""
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with secure_broker(tmp_path_factory.mktemp("guarded"), settings=settings) as running:
        yield running


ROW = re.compile(r"^\| (Topic|TransactionalId|Group) \| (.*?) \| (.*?) \|", re.MULTILINE)


def grant(bootstrap: str, names: dict[str, str], *, beside: bool = False) -> None:
    """The tables of the documents: the first to the service's user, the last to the operator.

    The one in the middle is in place of the first one's rows for the upstream.
    """
    service, instead, operator = (
        ROW.findall(table)
        for table in re.split(r"^(?:With \[barriers|To the user of `produce`)", _rights(), flags=re.MULTILINE)
    )
    if beside:
        service = [row for row in service if not row[1].startswith("`<upstream>")] + instead
    wanted = [
        binding
        for user, rows in ((USER, service), (OPERATOR, operator))
        for kind, listed, operations in rows
        for name in listed.split(", ")
        for binding in bindings(user, names, kind, name, operations)
    ]
    assert len(wanted) > 20
    admin = AdminClient(KafkaSettings(bootstrap).client())
    for answer in admin.create_acls(wanted).values():
        answer.result(30)


def _rights() -> str:
    return RIGHTS.read_text().split("## Rights to grant")[1]


def bindings(user: str, names: dict[str, str], kind: str, name: str, operations: str) -> list[Any]:
    prefixed, name = name.startswith("prefix "), name.removeprefix("prefix ").strip("`")
    for placeholder, real in names.items():
        name = name.replace(placeholder, real)
    kinds = {
        "Topic": ResourceType.TOPIC,
        "Group": ResourceType.GROUP,
        "TransactionalId": ResourceType.TRANSACTIONAL_ID,
    }
    pattern = ResourcePatternType.PREFIXED if prefixed else ResourcePatternType.LITERAL
    return [
        AclBinding(kinds[kind], name, pattern, f"User:{user}", "*", _operation(each), AclPermissionType.ALLOW)
        for each in operations.split(", ")
    ]


def _operation(name: str) -> Any:
    return AclOperation[re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).upper()]


@dataclass
class Course:
    """The commands of one way, each a process of its own, and what they said."""

    folder: Path
    canary: Canary
    environment: dict[str, str]
    columns: dict[str, Any] = field(default_factory=dict)

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "streaming.cli.app", *arguments],
            capture_output=True,
            text=True,
            timeout=400,
            env={**os.environ, **self.environment},
            check=False,
        )
        self.canary.look_at_output(f"{arguments[0]} says", done.stdout + done.stderr)
        return done

    def config(self, name: str, kafka: dict[str, Any], upstream: str, **more: Any) -> str:
        path = self.folder / f"{name}.json"
        declared = {
            "kafka": kafka,
            "upstream": upstream,
            "state": "state",
            "barrier_interval": "200ms",
            "table": {
                "name": "orders",
                "columns": {"id": "bigint", "note": "string"},
                "primary_key": ["id"],
                "vnode_count": 8,
            },
            "jobs": [
                {"name": "copy", "output": f"{upstream}-copy", "output_partitions": 2, **self.columns},
            ],
            "lanes": 2,
            "spark": {"driver_memory": "512m"},
            **more,
        }
        path.write_text(json.dumps(declared))
        return str(path)


def scram(broker: SecureBroker) -> tuple[dict[str, Any], dict[str, Any], list[Path]]:
    by_variable = {"username": OPERATOR, "password_file": None, "password_env": "OPERATOR_PASSWORD"}
    return broker.section("SCRAM"), broker.section("SCRAM", **by_variable), []


def mutual(broker: SecureBroker) -> tuple[dict[str, Any], dict[str, Any], list[Path]]:
    service = broker.mutual("service", password=KEY_PASSWORD)
    del service["key_password_file"]
    service["key_password_env"] = "KEY_PASSWORD"
    operator = broker.mutual("operator", user=OPERATOR, password=OTHER_KEY_PASSWORD)
    return service, operator, [Path(service["key_file"]), Path(operator["key_file"])]


def texts_of(keys: list[Path]) -> dict[str, str]:
    """The keys as they are in their files, and as they are without their passwords."""
    texts = {key.name: key.read_text() for key in keys}
    for key, password in zip(keys, (KEY_PASSWORD, OTHER_KEY_PASSWORD), strict=False):
        opened = serialization.load_pem_private_key(key.read_bytes(), password.encode())
        texts[f"{key.name}, opened"] = opened.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ).decode()
    return texts


def hashed(folder: Path) -> dict[str, Any]:
    """The keys of a job that hashes a column."""
    key = private(folder / "hash.key", HASH_KEY)
    return {"columns": ["id", {"note": "hash(note)"}], "hash_key_file": str(key)}


@pytest.mark.parametrize(
    "way", [pytest.param(scram, marks=pytest.mark.thorough), pytest.param(mutual, marks=pytest.mark.faults)]
)
def test_a_table_goes_the_whole_way_with_the_documented_rights_and_leaves_no_secret(
    guarded: SecureBroker, tmp_path: Path, way: Any
) -> None:
    upstream = f"orders-{way.__name__}"
    grant(guarded.broker.bootstrap, {"<upstream>": upstream, "<output>": f"{upstream}-copy"})
    service, operator, keys = way(guarded)
    planted = PLANTED | {f"text of {name}": text.splitlines()[2] for name, text in texts_of(keys).items()}
    scratch, logs, events = (tmp_path / name for name in ("scratch", "logs", "events"))
    for folder in (scratch, logs, events):
        folder.mkdir()
    (tmp_path / "log4j2.properties").write_text(LOG4J.format(file=logs / "jvm.log"))
    java = {
        "log4j2.configurationFile": (tmp_path / "log4j2.properties").as_uri(),
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": events.as_uri(),
    }
    environment = {
        "BACKFILL_LOGS": str(logs),
        "TMPDIR": str(scratch),
        "_JAVA_OPTIONS": " ".join(f"-D{key}={value}" for key, value in java.items()),
        "OPERATOR_PASSWORD": OPERATOR_PASSWORD,
        "KEY_PASSWORD": KEY_PASSWORD,
    }
    with Canary(planted, scratch) as canary:
        course = Course(tmp_path, canary, environment, hashed(tmp_path))
        # Spark exchanges records, whose blocks are files.
        run = course.config("service", service, upstream, limits={"short_records": 0})
        use = course.config("operator", operator, upstream)
        done = course.run("produce", use, "--rows", str(ROWS), "--partitions", "2")
        assert done.returncode == 0, done.stderr
        course.environment["BACKFILL_FAILPOINT"] = "lane-looked@2:raise"
        done = course.run("run", run, "--exit-when-complete", "--log-json")
        assert list(logs.glob("lane-*.log")), (done.returncode, done.stderr)
        del course.environment["BACKFILL_FAILPOINT"]
        done = course.run("run", run, "--exit-when-complete", "--log-json")
        assert done.returncode == 0, done.stderr
        done = course.run("consume", use, "--job", "copy", "--count", "--format", "json")
        assert json.loads(done.stdout)["inserts"] == ROWS, done.stderr
        done = course.run("verify", use, "--require-complete", "--json")
        assert done.returncode == 0, done.stdout + done.stderr
        wrong = {**guarded.section("SCRAM"), "password_file": str(private(tmp_path / "wrong", WRONG))}
        done = course.run("run", course.config("wrong", wrong, upstream))
        assert (done.returncode, done.stderr.splitlines()[-1].split()[0]) == (7, "AUTH_FAILED")
        plain = course.config("plain", guarded.section("PLAIN"), "not-granted")
        done = course.run("consume", plain)
        assert (done.returncode, done.stderr.split()[0]) == (7, "AUTH_FAILED")
        assert "docs/security.md" in done.stderr
        canary.look(logs, events, tmp_path / "state")
    assert canary.hits == set()
    for place in (
        "jvm.log",
        "lane-",
        "blockmgr",
        "stream-",
        "_delta_log",
        "command line",
        "run says",
    ):
        assert any(place in each for each in canary.looked_at), place
    assert any(path.stat().st_size for path in events.rglob("*") if path.is_file())


@pytest.mark.faults
def test_to_read_and_describe_the_upstream_is_enough_with_barriers_beside_it(
    guarded: SecureBroker, tmp_path: Path
) -> None:
    upstream = "of-another-team"
    topics = {"barrier_topic": "ours.barriers", "control_topic": "ours.control"}
    names = {"<upstream>": upstream, "<output>": f"{upstream}-copy"}
    names |= {"<barrier topic>": topics["barrier_topic"], "<control topic>": topics["control_topic"]}
    grant(guarded.broker.bootstrap, names, beside=True)
    service, operator, _ = scram(guarded)
    with Canary({}, tmp_path) as canary:
        course = Course(tmp_path, canary, {"OPERATOR_PASSWORD": OPERATOR_PASSWORD})
        run, use = (
            course.config(name, section, upstream, **topics)
            for name, section in (("service", service), ("operator", operator))
        )
        done = course.run("produce", use, "--rows", str(ROWS), "--partitions", "2")
        assert done.returncode == 0, done.stderr
        done = course.run("run", run, "--exit-when-complete", "--log-json")
        assert done.returncode == 0, done.stderr
        assert "topic_settings_unknown" in done.stdout + done.stderr
    settings = KafkaSettings(guarded.broker.bootstrap)
    table = declare(json.loads(Path(run).read_text())["table"])
    barriers = topics["barrier_topic"], None
    report = verify_topics(
        settings, upstream, f"{upstream}-copy", table, barriers=barriers, require_complete=True
    )
    assert report.clean
