"""An authority, a server's settings, and a client that trusts it, on both event loops."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from tests.tls.certificates import Authority
from tests.tls.tls_serving import LOOPS, context_of


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture(params=list(LOOPS))
def loop(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def settings(authority: Authority, tmp_path: Path) -> dict[str, str]:
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": authority.sign("node", ["localhost"]).write_pem(
            tmp_path / "node.pem"
        ),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": authority.write_pem(tmp_path / "ca.pem"),
    }


@pytest.fixture
def trusting(authority: Authority) -> ssl.SSLContext:
    return context_of(authority)
