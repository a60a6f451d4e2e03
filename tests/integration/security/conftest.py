"""One broker with TLS and logins for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kit.secure import SecureBroker, secure_broker


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureBroker]:
    """The broker; nothing but the sections that it gives leads in."""
    with secure_broker(tmp_path_factory.mktemp("secured")) as running:
        yield running
