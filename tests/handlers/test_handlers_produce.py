"""Produce: acks, one result per partition, and what is refused before an append."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock.errors import ErrorCode, KafkaError
from penstock.ids import NO_UUID, Buffer, TopicPartition
from penstock.protocol.messages.produce import ProduceRequest, ProduceResponse
from penstock.records.compression import Codec
from tests.handlers.fake_node import FakeNode, answer, call, records, run

TopicData = ProduceRequest.TopicData
PartitionResponse = ProduceResponse.Response.PartitionResponse


def request(
    batch: Buffer | None, *, acks: int = -1, index: int = 0, name: str = "t", **fields: Any
) -> ProduceRequest:
    data = TopicData(
        name=name, partition_data=(TopicData.PartitionData(index=index, records=batch),)
    )
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=(data,), **fields)


def only(response: ProduceResponse) -> PartitionResponse:
    ((partition,),) = (topic.partition_responses for topic in response.responses)
    return partition


async def outcome(node: FakeNode, requested: ProduceRequest, version: int = 9) -> PartitionResponse:
    return only(await answer(node, 0, version, requested))


@pytest.mark.parametrize("acks", [1, -1])
def test_an_append_that_is_committed_is_answered_immediately(acks: int) -> None:
    async def main(node: FakeNode) -> None:
        (partition,) = node.create("t")
        partition.append(records(4))
        response = call(node, 0, 9, request(records(3), acks=acks))
        assert only(response) == PartitionResponse(index=0, base_offset=4, log_start_offset=0)
        assert partition.log_end_offset == 7

    run(main)


def test_acks_all_waits_for_the_commit_and_acks_one_does_not() -> None:
    async def main(node: FakeNode) -> None:
        (partition,) = node.create("t")
        partition.hold = True
        assert only(call(node, 0, 9, request(records(), acks=1))).base_offset == 0
        waiting = asyncio.ensure_future(call(node, 0, 9, request(records(), acks=-1)))
        await asyncio.sleep(0.5)
        assert not waiting.done()
        partition.commit()
        assert only(await waiting).base_offset == 1

    run(main)


def test_the_append_is_complete_when_the_handler_returns() -> None:
    """Pipelined requests keep their order, and the request's buffer may be reused."""

    async def main(node: FakeNode) -> None:
        (partition,) = node.create("t")
        partition.hold = True
        first = call(node, 0, 9, request(records(2)))
        second = call(node, 0, 9, request(records(3)))
        assert partition.log_end_offset == 5
        partition.commit()
        assert only(await second).base_offset == 2
        assert only(await first).base_offset == 0

    run(main)


def test_a_commit_times_out() -> None:
    async def main(node: FakeNode) -> None:
        (partition,) = node.create("t")
        partition.hold = True
        answered = await outcome(node, request(records()))
        assert (answered.error_code, answered.base_offset) == (ErrorCode.REQUEST_TIMED_OUT, -1)
        assert node.elapsed() == pytest.approx(1)

    run(main)


def test_acks_zero_has_no_response_and_raises_the_first_error_after_all_appends() -> None:
    async def main(node: FakeNode) -> None:
        broken, sound = node.create("t", 2)
        assert call(node, 0, 9, request(records(), acks=0)) is None
        broken.refusal = KafkaError(ErrorCode.CORRUPT_MESSAGE, "bad CRC")
        both = TopicData(
            name="t",
            partition_data=tuple(
                TopicData.PartitionData(index=index, records=records()) for index in (0, 1)
            ),
        )
        with pytest.raises(KafkaError, match="t-0 failed: bad CRC") as raised:
            call(node, 0, 9, ProduceRequest(acks=0, topic_data=(both,)))
        assert raised.value.code is ErrorCode.CORRUPT_MESSAGE
        assert sound.log_end_offset == 1

    run(main)


@pytest.mark.parametrize("acks", [2, -2, 100])
def test_other_acks_are_refused_and_nothing_is_appended(acks: int) -> None:
    async def main(node: FakeNode) -> None:
        (partition,) = node.create("t")
        assert (
            await outcome(node, request(records(), acks=acks))
        ).error_code == ErrorCode.INVALID_REQUIRED_ACKS
        assert partition.log_end_offset == 0

    run(main)


@pytest.mark.parametrize("batch", [None, b""])
def test_a_partition_without_records_is_refused(batch: bytes | None) -> None:
    async def main(node: FakeNode) -> None:
        node.create("t")
        assert (await outcome(node, request(batch))).error_code == ErrorCode.INVALID_RECORD

    run(main)


def test_zstd_is_accepted_from_version_7_on() -> None:
    async def main(node: FakeNode) -> None:
        node.create("t")
        zstd = records(codec=Codec.ZSTD)
        assert (
            await outcome(node, request(zstd), 6)
        ).error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        assert (await outcome(node, request(zstd), 7)).error_code == ErrorCode.NONE
        assert (
            await outcome(node, request(records(codec=Codec.LZ4)), 6)
        ).error_code == ErrorCode.NONE

    run(main)


def test_a_transactional_batch_needs_a_transactional_id() -> None:
    """tests/node/test_node_transactional_produce.py has the other rules of transactions."""

    async def main(node: FakeNode) -> None:
        (partition,) = node.create("t")
        marked = records(producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
        refused = await outcome(node, request(marked))
        assert refused.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert partition.log_end_offset == 0
        plain = await outcome(node, request(records(), transactional_id="x"))
        assert plain.error_code == ErrorCode.NONE

    run(main)


def test_each_partition_has_its_own_result_and_error_message() -> None:
    async def main(node: FakeNode) -> None:
        node.create("t")
        partitions = tuple(
            TopicData.PartitionData(index=index, records=records()) for index in (0, 1)
        )
        unknown = TopicData(name="nowhere", partition_data=partitions[:1])
        requested = ProduceRequest(
            acks=1, topic_data=(TopicData(name="t", partition_data=partitions), unknown)
        )
        response = await answer(node, 0, 9, requested)
        outcomes = [
            [partition.error_code for partition in topic.partition_responses]
            for topic in response.responses
        ]
        assert outcomes == [
            [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION],
            [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION],
        ]
        assert response.responses[0].partition_responses[1].error_message == "no such partition"

    run(main)


@pytest.mark.parametrize("version", range(3, 14))
def test_every_version_has_offsets_and_errors(version: int) -> None:
    async def main(node: FakeNode) -> None:
        node.create("t", 2)
        node.elsewhere.add(TopicPartition("t", 1))
        batches = tuple(TopicData.PartitionData(index=index, records=records()) for index in (0, 1))
        named = {"topic_id": node.image.topics["t"].id} if version >= 13 else {"name": "t"}
        response = await answer(
            node,
            0,
            version,
            ProduceRequest(acks=1, topic_data=(TopicData(**named, partition_data=batches),)),
        )
        outcomes = [
            (result.error_code, result.base_offset)
            for result in response.responses[0].partition_responses
        ]
        assert outcomes == [(0, 0), (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)]

    run(main)


def test_version_13_names_topics_by_id() -> None:
    async def main(node: FakeNode) -> None:
        node.create("t")
        topic_id = node.image.topics["t"].id
        batch = (TopicData.PartitionData(index=0, records=records()),)
        requested = ProduceRequest(
            acks=1, topic_data=(TopicData(topic_id=topic_id, partition_data=batch),)
        )
        response = await answer(node, 0, 13, requested)
        assert response.responses[0].topic_id == topic_id
        assert only(response).error_code == ErrorCode.NONE
        requested = ProduceRequest(
            acks=1, topic_data=(TopicData(topic_id=NO_UUID, partition_data=batch),)
        )
        assert (await outcome(node, requested, 13)).error_code == ErrorCode.UNKNOWN_TOPIC_ID

    run(main)


def test_the_response_names_the_current_leader_and_its_endpoint() -> None:
    async def main(node: FakeNode) -> None:
        node.create("t")
        node.elsewhere.add(TopicPartition("t", 0))
        assert only(await answer(node, 0, 9, request(records()))).current_leader.leader_id == -1
        response = await answer(node, 0, 12, request(records()))
        assert only(response).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert only(response).current_leader.leader_id == 1
        assert [
            (endpoint.node_id, endpoint.host, endpoint.port) for endpoint in response.node_endpoints
        ] == [(1, "10.0.0.1", 9092)]

    run(main)


@pytest.mark.parametrize("name", ["__consumer_offsets", "__transaction_state"])
def test_clients_do_not_write_to_internal_topics(name: str) -> None:
    async def main(node: FakeNode) -> None:
        (internal,), (ordinary,) = node.create(name), node.create("t")
        both = ProduceRequest(
            acks=-1,
            timeout_ms=1000,
            topic_data=request(records(), name=name).topic_data + request(records()).topic_data,
        )
        refused, appended = (
            result.partition_responses[0] for result in (await answer(node, 0, 9, both)).responses
        )
        assert (refused.error_code, refused.base_offset) == (ErrorCode.INVALID_TOPIC_EXCEPTION, -1)
        assert (appended.error_code, internal.log_end_offset, ordinary.log_end_offset) == (
            ErrorCode.NONE,
            0,
            1,
        )
        assert (
            only(
                call(node, 0, 9, request(records(), name=name), client_id="__admin_client")
            ).error_code
            == ErrorCode.NONE
        )
        assert internal.log_end_offset == 1

    run(main)
