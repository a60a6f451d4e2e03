"""Object stores that speak S3, as processes of their own.

One is moto, one request at a time, so its conditional puts are exact. The other one, versitygw, is a server for real
use, which answers many requests at once; its program is written in Go.

    python -m tests.kit.object_store PORT [--blind]       moto

`--blind` takes the condition of a put and ignores it, as some stores do.
"""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import pytest
from pyarrow import fs

from streaming.broker.embedded import free_port
from tests.kit.real import await_condition

_USER = {"AWS_ACCESS_KEY_ID": "tester", "AWS_SECRET_ACCESS_KEY": "not-a-secret", "AWS_REGION": "us-east-1"}
_VERSITYGW = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"


@contextmanager
def object_store(*options: str) -> Iterator[dict[str, str]]:
    """The variables that lead to it."""
    port = free_port()
    process = subprocess.Popen([sys.executable, "-m", __name__, str(port), *options])
    with _answering(process, port) as variables:
        yield variables


@contextmanager
def versitygw(folder: Path) -> Iterator[dict[str, str]]:
    """The variables that lead to one with its objects in a folder. Skips the test where there is no such program."""
    program = shutil.which("versitygw") or shutil.which("versitygw", path=Path.home() / "go" / "bin")
    if program is None:
        pytest.skip(f"no versitygw; go install {_VERSITYGW}")
    port = free_port()
    keys = {"ROOT_ACCESS_KEY": _USER["AWS_ACCESS_KEY_ID"], "ROOT_SECRET_KEY": _USER["AWS_SECRET_ACCESS_KEY"]}
    process = subprocess.Popen(
        [program, "--port", f"127.0.0.1:{port}", "posix", str(folder)],
        env=os.environ | keys,
        stdout=subprocess.DEVNULL,
    )
    with _answering(process, port) as variables:
        yield variables


@contextmanager
def _answering(process: subprocess.Popen[bytes], port: int) -> Iterator[dict[str, str]]:
    """The variables, once it answers; it is killed at the end."""
    endpoint = f"http://127.0.0.1:{port}"
    try:
        await_condition(lambda: _answers(endpoint) or process.poll() is not None, "an object store")
        yield {**_USER, "AWS_ENDPOINT_URL": endpoint}
    finally:
        process.kill()
        process.wait()


@contextmanager
def new_bucket(variables: dict[str, str]) -> Iterator[str]:
    """A root for a state in a bucket of its own, for this process and those that it starts in the block."""
    bucket = f"bucket-{uuid.uuid4().hex[:8]}"
    with mock.patch.dict(os.environ, variables):
        endpoint = variables["AWS_ENDPOINT_URL"].removeprefix("http://")
        fs.S3FileSystem(endpoint_override=endpoint, scheme="http", allow_bucket_creation=True).create_dir(
            bucket
        )
        yield f"s3://{bucket}/state"


def _answers(endpoint: str) -> bool:
    try:
        with urlopen(endpoint, timeout=5):  # noqa: S310 (http, of our own)
            return True
    except HTTPError:
        return True  # it wants to know who asks
    except (URLError, OSError):
        return False


def _blind(application: Callable[..., Iterable[bytes]]) -> Callable[..., Iterable[bytes]]:
    def answer(environment: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        environment.pop("HTTP_IF_NONE_MATCH", None)
        return application(environment, start)

    return answer


def main() -> None:
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import run_simple

    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("--blind", action="store_true")
    arguments = parser.parse_args()
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    application = DomainDispatcherApplication(create_backend_app)
    run_simple("127.0.0.1", arguments.port, _blind(application) if arguments.blind else application)


if __name__ == "__main__":
    main()
