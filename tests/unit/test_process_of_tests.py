"""Ends of services in tests, which end nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

from tests.kit.process import Process


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
