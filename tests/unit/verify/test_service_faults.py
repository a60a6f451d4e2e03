"""Faults inside of the service's decoder and encoder are found: the checker shares neither with it."""

from __future__ import annotations

import pytest

from tests.kit.mutants.service import FAULTS, INSIDE, OUTPUTS, UPSTREAMS, judged


@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("upstream", UPSTREAMS)
def test_a_service_without_a_fault_is_clean(upstream: str, output: str) -> None:
    report = judged(upstream, output)
    assert report.clean, report.findings
    assert report.live_keys == report.output_records - 2 == 2


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("inside", INSIDE)
@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("upstream", UPSTREAMS)
def test_a_fault_in_it_is_found(
    upstream: str, output: str, inside: str, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    INSIDE[inside](monkeypatch, FAULTS[fault])
    report = judged(upstream, output)
    assert not report.clean
    assert any(name.startswith("output.") for name in report.counts), report.counts
