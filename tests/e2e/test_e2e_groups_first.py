"""The first groups of a broker: the first FindCoordinator creates the offsets topic."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import penstock
from penstock.errors import ErrorCode
from penstock.node.shards.internal_topics import OFFSETS_TOPIC
from penstock.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from penstock.protocol.messages.metadata import MetadataRequest, MetadataResponse
from penstock.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from tests.e2e.raw_connection import TIMEOUT_S, RawConnection


def test_a_client_that_arrives_while_the_topic_is_created_finds_a_coordinator() -> None:
    """librdkafka passes NOT_COORDINATOR to an application that fetches offsets, and does not
    retry."""
    with penstock.Cluster() as cluster, ThreadPoolExecutor() as others:
        first, second = (
            RawConnection(cluster.bootstrap_servers),
            RawConnection(cluster.bootstrap_servers),
        )
        found = others.submit(find_coordinator, first, "first")
        while not found.done() and OFFSETS_TOPIC not in known_topics(second):
            pass
        assert find_coordinator(second, "second") is ErrorCode.NONE
        fetch = OffsetFetchRequest(
            groups=(OffsetFetchRequest.Group(group_id="second", topics=None),)
        )
        assert (
            ErrorCode(second.request(fetch, 9, OffsetFetchResponse).groups[0].error_code)
            is ErrorCode.NONE
        )
        assert found.result() is ErrorCode.NONE


def known_topics(connection: RawConnection) -> set[str | None]:
    return {
        topic.name
        for topic in connection.request(MetadataRequest(topics=None), 9, MetadataResponse).topics
    }


def find_coordinator(connection: RawConnection, group: str) -> ErrorCode:
    """Retry while the topic is being created, which may take a while on a busy machine."""
    find = FindCoordinatorRequest(coordinator_keys=(group,))
    deadline = time.monotonic() + TIMEOUT_S
    code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    while code is ErrorCode.COORDINATOR_NOT_AVAILABLE and time.monotonic() < deadline:
        code = ErrorCode(
            connection.request(find, 4, FindCoordinatorResponse).coordinators[0].error_code
        )
    return code
