"""Round trips of every message and version, and what the codec does with values that do not fit."""

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
    def there_and_back(message: Any) -> None:
        encoded = encode_bytes(message, version)
        assert decode(cls, version, encoded) == message
        assert decode(cls, version, bytearray(encoded)) == message
        padded = memoryview(b"before" + encoded + b"after")
        assert decode_from(cls, version, padded, 6) == (message, 6 + len(encoded))

    there_and_back()


def test_decoded_messages_are_equal_to_built_ones_and_frozen() -> None:
    message = decode(
        HeartbeatRequest, 4, encode_bytes(HeartbeatRequest(group_id="g", generation_id=3), 4)
    )
    assert type(message) is HeartbeatRequest
    with pytest.raises(dataclasses.FrozenInstanceError):
        message.group_id = "other"  # type: ignore[misc]  # that it is refused is the point
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
    """Something with a length that is not bytes, as a range of a segment file is."""

    def __len__(self) -> int:
        return 1000


def test_a_message_is_built_by_the_names_of_its_fields_alone() -> None:
    for _first_and_later in range(2):
        with pytest.raises(TypeError, match="unexpected keyword"):
            HeartbeatRequest(group="g")  # type: ignore[call-arg]  # that it is refused is the point
    assert HeartbeatRequest().group_id == ""


def test_records_are_passed_through_untouched() -> None:
    stretch = FileRange()
    partition = FetchResponse.Response.Partition
    partitions = (
        partition(partition_index=0, records=stretch),
        partition(partition_index=1, records=b""),
        partition(partition_index=2),
    )
    response = FetchResponse(
        responses=(FetchResponse.Response(topic_id=TOPIC_ID, partitions=partitions),)
    )
    before, between, after = encode(response, 13)
    assert between is stretch
    whole = b"".join([bytes(before), bytes(1000), bytes(after)])  # type: ignore[arg-type]  # parts are typed as anything with a length
    records = [part.records for part in decode(FetchResponse, 13, whole).responses[0].partitions]
    assert records == [bytes(1000), b"", None]


def test_decoded_records_are_windows_into_the_buffer() -> None:
    data = ProduceRequest.TopicData
    request = ProduceRequest(
        topic_data=(data(name="t", partition_data=(data.PartitionData(records=b"batch"),)),)
    )
    buffer = bytearray(encode_bytes(request, 9))
    records = decode(ProduceRequest, 9, buffer).topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    buffer[buffer.index(b"batch")] = ord("p")
    assert bytes(records) == b"patch"


def test_a_field_that_the_version_lacks_must_have_its_default() -> None:
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


def test_nested_fields_that_the_version_lacks_are_named() -> None:
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


def test_null_only_where_the_version_allows_it() -> None:
    assert decode(MetadataRequest, 1, encode_bytes(MetadataRequest(topics=None), 1)).topics is None
    with pytest.raises(KafkaError, match=r"MetadataRequest v0: topics is null"):
        encode(MetadataRequest(topics=None), 0)
    with pytest.raises(ValueError, match="HeartbeatRequest v4 cannot be encoded"):
        encode(HeartbeatRequest(group_id=None), 4)  # type: ignore[arg-type]  # what a caller without a type checker may do


def test_values_that_do_not_fit_raise() -> None:
    with pytest.raises(ValueError, match="HeartbeatRequest v0 cannot be encoded"):
        encode(HeartbeatRequest(generation_id=2**31), 0)
    for version in (0, 4):
        with pytest.raises(ValueError, match="HeartbeatRequest"):
            encode(HeartbeatRequest(group_id="g" * 32_768), version)
        longest = HeartbeatRequest(group_id="g" * 32_767)
        assert decode(HeartbeatRequest, version, encode_bytes(longest, version)) == longest
    with pytest.raises(ValueError, match="surrogates"):
        encode(HeartbeatRequest(group_id="\ud800"), 4)


def test_versions_that_do_not_exist() -> None:
    for act in (lambda: encode(HeartbeatRequest(), 5), lambda: decode(HeartbeatRequest, -1, b"")):
        with pytest.raises(KafkaError, match="HeartbeatRequest has versions 0-4"):
            act()


def test_nullable_structs() -> None:
    cursor = DescribeTopicPartitionsRequest.Cursor(topic_name="t", partition_index=7)
    with_cursor, without = (
        DescribeTopicPartitionsRequest(cursor=cursor),
        DescribeTopicPartitionsRequest(),
    )
    assert encode_bytes(without, 0) == bytes.fromhex("01 000007d0 ff 00")
    assert encode_bytes(with_cursor, 0) == bytes.fromhex("01 000007d0 01 0274 00000007 00 00")
    assert decode(DescribeTopicPartitionsRequest, 0, encode_bytes(with_cursor, 0)) == with_cursor
    with pytest.raises(ProtocolError, match="cursor: begins with 2"):
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


def test_unknown_tagged_fields_are_skipped_and_any_order_is_read() -> None:
    expected = ApiVersionsResponse(finalized_features_epoch=5, zk_migration_ready=True)
    shuffled = bytes.fromhex("0000 01 00000000 03 03 01 01 e807 03 010203 01 08 0000000000000005")
    assert decode(ApiVersionsResponse, 3, shuffled) == expected


def test_a_tag_of_a_later_version_is_unknown_to_an_earlier_one() -> None:
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
    ("version", "body", "complaint"),
    [
        (1, "ffff", "mechanism: is null"),
        (1, "fffe", "mechanism: has the negative length -2"),
        (1, "0005 41", "mechanism: claims a length of 5 bytes, and 1 are left"),
        (1, "00", "the bytes end before the message does"),
        (1, "0001 ff", "a string is not valid UTF-8"),
    ],
)
def test_complaints_name_message_version_and_field(version: int, body: str, complaint: str) -> None:
    with pytest.raises(ProtocolError, match=f"SaslHandshakeRequest v{version}: {complaint}"):
        decode(SaslHandshakeRequest, version, bytes.fromhex(body))
