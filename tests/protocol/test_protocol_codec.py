"""Round trips of every message and version, and values that cannot be encoded or decoded."""

from __future__ import annotations

import dataclasses
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given

from penstock.errors import ErrorCode, KafkaError, ProtocolError
from penstock.ids import NO_UUID
from penstock.protocol.codec import decode, decode_from, encode, encode_bytes
from penstock.protocol.messages.api_versions import ApiVersionsResponse
from penstock.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from penstock.protocol.messages.fetch import FetchRequest, FetchResponse
from penstock.protocol.messages.heartbeat import HeartbeatRequest
from penstock.protocol.messages.metadata import MetadataRequest
from penstock.protocol.messages.offset_commit import OffsetCommitRequest
from penstock.protocol.messages.produce import ProduceRequest
from penstock.protocol.messages.sasl_handshake import SaslHandshakeRequest
from tests.protocol.schema_strategies import all_versions, fewer_examples, messages_of, name_of

TOPIC_ID = UUID(int=0x0123456789ABCDEF0123456789ABCDEF)


@pytest.mark.parametrize(("cls", "version"), all_versions(), ids=name_of)
def test_round_trip(cls: type, version: int) -> None:
    @fewer_examples
    @given(messages_of(cls, version))
    def round_trip(message: Any) -> None:
        encoded = encode_bytes(message, version)
        assert decode(cls, version, encoded) == message
        assert decode(cls, version, bytearray(encoded)) == message
        padded = memoryview(b"before" + encoded + b"after")
        assert decode_from(cls, version, padded, 6) == (message, 6 + len(encoded))

    round_trip()


def test_decoded_messages_equal_built_ones_and_are_frozen() -> None:
    message = decode(
        HeartbeatRequest, 4, encode_bytes(HeartbeatRequest(group_id="g", generation_id=3), 4)
    )
    assert type(message) is HeartbeatRequest
    with pytest.raises(dataclasses.FrozenInstanceError):
        message.group_id = "other"  # type: ignore[misc]  # the point of the test
    with pytest.raises(dataclasses.FrozenInstanceError):
        del message.group_id
    assert (
        message
        == HeartbeatRequest(group_id="g", generation_id=3)
        != HeartbeatRequest(group_id="g", generation_id=4)
    )
    assert hash(message) == hash(HeartbeatRequest(group_id="g", generation_id=3))
    assert repr(message).startswith("HeartbeatRequest(group_id='g'")


class FileRange:
    """An object with a length that is not bytes, like a range of a segment file."""

    def __len__(self) -> int:
        return 1000


def test_messages_take_keyword_arguments_of_their_fields_only() -> None:
    for _first_and_later in range(2):
        with pytest.raises(TypeError, match="unexpected keyword"):
            HeartbeatRequest(group="g")  # type: ignore[call-arg]  # the point of the test
    assert HeartbeatRequest().group_id == ""


def test_records_are_passed_through_untouched() -> None:
    file_range = FileRange()
    partition = FetchResponse.Response.Partition
    partitions = (
        partition(partition_index=0, records=file_range),
        partition(partition_index=1, records=b""),
        partition(partition_index=2),
    )
    response = FetchResponse(
        responses=(FetchResponse.Response(topic_id=TOPIC_ID, partitions=partitions),)
    )
    before, between, after = encode(response, 13)
    assert between is file_range
    whole = b"".join([bytes(before), bytes(1000), bytes(after)])  # type: ignore[arg-type]  # parts are typed as anything with a length
    records = [part.records for part in decode(FetchResponse, 13, whole).responses[0].partitions]
    assert records == [bytes(1000), b"", None]


def test_decoded_records_are_views_of_the_buffer() -> None:
    data = ProduceRequest.TopicData
    request = ProduceRequest(
        topic_data=(data(name="t", partition_data=(data.PartitionData(records=b"batch"),)),)
    )
    buffer = bytearray(encode_bytes(request, 9))
    records = decode(ProduceRequest, 9, buffer).topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    buffer[buffer.index(b"batch")] = ord("p")
    assert bytes(records) == b"patch"


def test_a_field_not_in_the_version_must_have_its_default() -> None:
    with pytest.raises(
        KafkaError, match=r"HeartbeatRequest v2 cannot carry group_instance_id"
    ) as caught:
        encode(HeartbeatRequest(group_instance_id="i"), 2)
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION
    state = FetchRequest.ReplicaState(replica_id=1)
    with pytest.raises(KafkaError, match=r"FetchRequest v14 cannot carry replica_state"):
        encode(FetchRequest(replica_state=state), 14)
    assert (
        decode(
            FetchRequest,
            14,
            encode_bytes(FetchRequest(replica_state=FetchRequest.ReplicaState()), 14),
        )
        == FetchRequest()
    )


def test_errors_name_nested_fields() -> None:
    partition = FetchResponse.Response.Partition(preferred_read_replica=4)
    with pytest.raises(
        KafkaError, match=r"cannot carry responses\.partitions\.preferred_read_replica"
    ):
        encode(FetchResponse(responses=(FetchResponse.Response(partitions=(partition,)),)), 10)


def test_ignorable_fields_are_dropped() -> None:
    request = FetchRequest(rack_id="r1", topics=(FetchRequest.Topic(topic="t", topic_id=TOPIC_ID),))
    assert decode(FetchRequest, 10, encode_bytes(request, 10)) == FetchRequest(
        topics=(FetchRequest.Topic(topic="t"),)
    )
    assert decode(FetchRequest, 13, encode_bytes(request, 13)).topics == (
        FetchRequest.Topic(topic_id=TOPIC_ID),
    )


def test_null_is_refused_where_the_version_forbids_it() -> None:
    assert decode(MetadataRequest, 1, encode_bytes(MetadataRequest(topics=None), 1)).topics is None
    with pytest.raises(KafkaError, match=r"MetadataRequest v0: topics is null"):
        encode(MetadataRequest(topics=None), 0)
    with pytest.raises(ValueError, match="HeartbeatRequest v4 cannot be encoded"):
        encode(HeartbeatRequest(group_id=None), 4)  # type: ignore[arg-type]  # callers may have no type checker


def test_values_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match="HeartbeatRequest v0 cannot be encoded"):
        encode(HeartbeatRequest(generation_id=2**31), 0)
    for version in (0, 4):
        with pytest.raises(ValueError, match="HeartbeatRequest"):
            encode(HeartbeatRequest(group_id="g" * 32_768), version)
        longest = HeartbeatRequest(group_id="g" * 32_767)
        assert decode(HeartbeatRequest, version, encode_bytes(longest, version)) == longest
    with pytest.raises(ValueError, match="surrogates"):
        encode(HeartbeatRequest(group_id="\ud800"), 4)


def test_unknown_versions_are_refused() -> None:
    for call in (lambda: encode(HeartbeatRequest(), 5), lambda: decode(HeartbeatRequest, -1, b"")):
        with pytest.raises(KafkaError, match="HeartbeatRequest has versions 0-4"):
            call()


def test_nullable_structs() -> None:
    cursor = DescribeTopicPartitionsRequest.Cursor(topic_name="t", partition_index=7)
    with_cursor, without = (
        DescribeTopicPartitionsRequest(cursor=cursor),
        DescribeTopicPartitionsRequest(),
    )
    assert encode_bytes(without, 0) == bytes.fromhex("01 000007d0 ff 00")
    assert encode_bytes(with_cursor, 0) == bytes.fromhex("01 000007d0 01 0274 00000007 00 00")
    assert decode(DescribeTopicPartitionsRequest, 0, encode_bytes(with_cursor, 0)) == with_cursor
    with pytest.raises(ProtocolError, match="cursor: marker 2 is neither"):
        decode(DescribeTopicPartitionsRequest, 0, bytes.fromhex("01 000007d0 02 00"))


def test_tagged_fields_are_written_in_order_and_only_when_set() -> None:
    plain = ApiVersionsResponse(throttle_time_ms=1)
    assert encode_bytes(plain, 3) == bytes.fromhex("0000 01 00000001 00")
    feature = ApiVersionsResponse.FinalizedFeature(
        name="f", max_version_level=2, min_version_level=1
    )
    rich = ApiVersionsResponse(
        throttle_time_ms=1,
        zk_migration_ready=True,
        finalized_features=(feature,),
        finalized_features_epoch=5,
    )
    assert encode_bytes(rich, 3) == bytes.fromhex(
        "0000 01 00000001 03 01 08 0000000000000005 02 08 02 0266 0002 0001 00 03 01 01"
    )
    assert decode(ApiVersionsResponse, 3, encode_bytes(rich, 3)) == rich


def test_unknown_tagged_fields_are_skipped_and_any_order_is_accepted() -> None:
    expected = ApiVersionsResponse(finalized_features_epoch=5, zk_migration_ready=True)
    shuffled = bytes.fromhex("0000 01 00000000 03 03 01 01 e807 03 010203 01 08 0000000000000005")
    assert decode(ApiVersionsResponse, 3, shuffled) == expected


def test_a_tag_of_a_later_version_is_skipped() -> None:
    request = FetchRequest(replica_state=FetchRequest.ReplicaState(replica_id=3, replica_epoch=9))
    tagged = encode_bytes(request, 15)
    as_v14 = (-1).to_bytes(4, "big", signed=True) + tagged
    assert decode(FetchRequest, 14, as_v14) == FetchRequest()


def test_absent_uuids_are_zero() -> None:
    assert decode(
        OffsetCommitRequest,
        9,
        encode_bytes(OffsetCommitRequest(topics=(OffsetCommitRequest.Topic(name="t"),)), 9),
    ).topics == (OffsetCommitRequest.Topic(name="t", topic_id=NO_UUID),)


def test_leftover_bytes_are_refused() -> None:
    with pytest.raises(ProtocolError, match="SaslHandshakeRequest v1: 2 bytes are left over"):
        decode(SaslHandshakeRequest, 1, b"\0\x05PLAIN!!")


@pytest.mark.parametrize(
    ("version", "body", "error"),
    [
        (1, "ffff", "mechanism: null is not allowed"),
        (1, "fffe", "mechanism: negative length -2"),
        (1, "0005 41", "mechanism: length 5 exceeds the 1 bytes left"),
        (1, "00", "the message is truncated"),
        (1, "0001 ff", "a string is not valid UTF-8"),
    ],
)
def test_errors_name_message_version_and_field(version: int, body: str, error: str) -> None:
    with pytest.raises(ProtocolError, match=f"SaslHandshakeRequest v{version}: {error}"):
        decode(SaslHandshakeRequest, version, bytes.fromhex(body))
