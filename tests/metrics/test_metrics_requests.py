"""Requests are counted by API, with their times and the error codes of their responses."""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ErrorCode
from penstock.metrics.histogram import Histogram
from penstock.protocol.messages.heartbeat import HeartbeatResponse
from penstock.protocol.messages.metadata import MetadataResponse
from penstock.protocol.messages.offset_commit import OffsetCommitResponse
from penstock.protocol.schema import EncodedArray
from penstock.server.request_measures import MAX_TIMES, RequestMeasures

PRODUCE, FETCH, METADATA, OFFSET_COMMIT, HEARTBEAT = 0, 1, 3, 8, 12


class Clock:
    now = 0.0

    def monotonic(self) -> float:
        return self.now

    def now_ms(self) -> int:
        return 0


def test_times_are_divided_into_queue_local_and_remote() -> None:
    clock = Clock()
    measures = RequestMeasures(clock)
    clock.now = 3.75
    measures.answered_later(HEARTBEAT, HeartbeatResponse(), 1.0, 1.5, 1.75)
    measures.apis[HEARTBEAT].times += (3.5, 3.625, 3.75)
    found = measures.of(HEARTBEAT)
    assert (found.queue_s, found.local_s, found.remote_s) == (0.625, 0.375, 2.0)
    total = found.total()
    assert (total.count, total.sum) == (2, 3.0)
    assert total.counts[bisect_left(total.bounds, 2.75)] == 1
    assert total.counts[bisect_left(total.bounds, 0.25)] == 1
    assert measures.of(FETCH).total().count == 0


@given(st.lists(st.sampled_from([0.0, 0.0001, 0.0002, 0.001, 0.5, 1.0, 29.0, 30.0, 31.0, 1e6])))
def test_requests_that_are_added_up_together_are_in_the_buckets_of_single_ones(
    totals: list[float],
) -> None:
    measures, expected = RequestMeasures(Clock()), Histogram()
    for total in totals:
        measures.apis[PRODUCE].times += (0.0, 0.0, total)
        expected.observe(total)
        if len(measures.apis[PRODUCE].times) > 9:
            measures.apis[PRODUCE].add_up()
    found = measures.of(PRODUCE).total()
    assert found.counts == expected.counts
    assert found.sum == pytest.approx(expected.sum)


def test_times_do_not_pile_up() -> None:
    measures = RequestMeasures(Clock())
    times = measures.apis[PRODUCE].times
    for _ in range(1_000):
        times += (1.0, 1.0, 1.0)
        if len(times) >= MAX_TIMES:
            measures.settle(PRODUCE, None)
    assert len(times) < MAX_TIMES
    assert measures.of(PRODUCE).total().count == 1_000


ENCODED: Any = EncodedArray(1, b"")
Topic = OffsetCommitResponse.Topic
Partition = Topic.Partition


@pytest.mark.parametrize(
    ("key", "response", "errors"),
    [
        (HEARTBEAT, None, {}),
        (HEARTBEAT, HeartbeatResponse(), {}),
        (HEARTBEAT, HeartbeatResponse(error_code=ErrorCode.ILLEGAL_GENERATION), {22: 1}),
        (
            OFFSET_COMMIT,
            OffsetCommitResponse(
                topics=(
                    Topic(partitions=(Partition(error_code=16), Partition())),
                    Topic(partitions=(Partition(error_code=16), Partition(error_code=3))),
                )
            ),
            {16: 2, 3: 1},
        ),
        (METADATA, MetadataResponse(topics=(MetadataResponse.Topic(error_code=3),)), {3: 1}),
        # Encoded already: they are not looked at.
        (METADATA, MetadataResponse(topics=ENCODED), {}),
    ],
)
def test_errors_are_those_of_the_response_and_its_structs(
    key: int, response: object, errors: dict[int, int]
) -> None:
    measures = RequestMeasures(Clock())
    measures.settle(key, response)
    assert measures.of(key).errors == errors
