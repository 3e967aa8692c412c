"""The table of APIs. Message modules are imported on first use only."""

from __future__ import annotations

import subprocess
import sys

import pytest

from penstock.errors import ProtocolError
from penstock.protocol.apis import (
    APIS,
    BOTH,
    CONTROLLER,
    api_of,
    find_api,
    request_class,
    response_class,
)
from penstock.protocol.messages.fetch import FetchRequest, FetchResponse
from penstock.protocol.schema import parse_versions


def test_the_table_of_apis() -> None:
    assert len(APIS) == 89
    assert len({api.key for api in APIS}) == len({api.name for api in APIS}) == len(APIS)
    fetch = find_api(1)
    assert (fetch.name, fetch.versions, fetch.flexible_from, fetch.listeners) == (
        "Fetch",
        (4, 18),
        12,
        BOTH,
    )
    assert find_api(52).listeners == CONTROLLER
    assert [api.name for api in APIS if api.newest_unstable] == ["InitProducerId"]
    assert [api.name for api in APIS if api.flexible_from is None] == [
        "SaslHandshake",
        "OffsetDelete",
    ]


def test_flexible_works_for_unknown_versions() -> None:
    assert [find_api(0).flexible(version) for version in (0, 8, 9, 99)] == [
        False,
        False,
        True,
        True,
    ]
    assert not find_api(17).flexible(99)


def test_classes_are_found_by_key_and_keys_by_class() -> None:
    assert (request_class(1), response_class(1)) == (FetchRequest, FetchResponse)
    assert api_of(FetchRequest) is api_of(FetchResponse) is find_api(1)
    for api in APIS:
        assert request_class(api.key).__name__ == f"{api.name}Request"
        assert response_class(api.key).__name__ == f"{api.name}Response"


def test_unknown_keys_are_refused() -> None:
    for find in (find_api, request_class, response_class):
        with pytest.raises(ProtocolError, match="unknown API key 4"):
            find(4)


def test_messages_are_imported_on_first_use() -> None:
    program = """
import sys
from penstock.protocol import apis, codec, framing, headers
from penstock.protocol.internal import coordinator_logs
prefix = "penstock.protocol.messages."
early = [name for name in sys.modules if name.startswith(prefix) or name.endswith("_group_records")]
apis.request_class(12)
late = [name for name in sys.modules if name.startswith(prefix)]
sys.stdout.write(f"{early} {late}")
"""
    output = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout
    assert output == "[] ['penstock.protocol.messages.heartbeat']"


def test_version_ranges_are_parsed() -> None:
    for text in ("none", "3+", "0-4", "7"):
        assert str(parse_versions(text)) == text
    assert 3 in parse_versions("3+")
    assert 2 not in parse_versions("3+")
    assert 5 not in parse_versions("0-4")
    assert 0 not in parse_versions("none")
