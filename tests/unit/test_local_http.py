"""The tests' own kit: its server, and ends of services, which end nothing else."""

from __future__ import annotations

import os
import socket
import ssl
import subprocess
import sys
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from tests.kit.local_http import serving
from tests.kit.process import Process
from tests.kit.secure import Certificates


class Greeter(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"good day")

    def log_message(self, *_: object) -> None:
        return


def test_a_client_that_is_silent_keeps_no_other_waiting(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificates.issue("greeter"))
    trusting = ssl.create_default_context(cafile=str(certificates.ca_file))
    with serving(Greeter, tls=context) as address:
        port = int(address.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port)):
            answer = urllib.request.urlopen(address, timeout=10, context=trusting)  # noqa: S310 (https, of this machine)
            assert answer.read() == b"good day"


def test_a_client_that_does_not_trust_the_certificate_leaves_no_trace(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*Certificates(tmp_path).issue("greeter"))
    with serving(Greeter, tls=context) as address, pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
        urllib.request.urlopen(address, timeout=10)  # noqa: S310 (https, of this machine)
    assert capsys.readouterr().err == ""


def test_who_has_the_number_of_one_that_ended_is_left_alone() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""], stderr=subprocess.PIPE, text=True)
    ended.wait()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as of_another:
        ended.pid = os.getpid()  # as if it had been given to us
        process = Process(ended, [], threading.Thread())
        assert process.children() == []
        process.kill()
        of_another.communicate(b"\n")
    assert of_another.returncode == 0
