"""Framing of the records of internal logs and files."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ProtocolError
from penstock.protocol.internal.classic_group_records import OffsetCommitKey, OffsetCommitValue
from penstock.protocol.internal.consumer_group_records import (
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
)
from penstock.protocol.internal.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    decode_consumer_protocol,
    encode_consumer_protocol,
)
from penstock.protocol.internal.control_records import (
    ControlType,
    EndTxnMarker,
    KRaftVersionRecord,
    LeaderChangeMessage,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
    decode_control_key,
    decode_control_value,
    encode_control_key,
    encode_control_value,
)
from penstock.protocol.internal.coordinator_logs import (
    GROUP_LOG,
    SHARE_STATE_LOG,
    TRANSACTION_LOG,
    CoordinatorLog,
)
from penstock.protocol.internal.metadata_records import RECORDS, decode_record, encode_record
from penstock.protocol.internal.metadata_settings import FeatureLevelRecord, NoOpRecord
from penstock.protocol.internal.metadata_topics import PartitionRecord
from penstock.protocol.internal.principal import DefaultPrincipalData
from penstock.protocol.internal.quorum_state import (
    QuorumStateData,
    decode_quorum_state,
    encode_quorum_state,
)
from penstock.protocol.internal.share_state_records import ShareUpdateKey
from penstock.protocol.internal.transaction_records import TransactionLogKey, TransactionLogValue
from penstock.protocol.internal.versioned import UnknownRecord, decode_versioned, encode_versioned
from penstock.protocol.schema import schema_of
from tests.protocol.schema_strategies import few_examples, messages_of, name_of


def test_a_metadata_record_has_kafkas_bytes() -> None:
    """The first record that Kafka 4.3 writes to a new metadata log."""
    written = bytes.fromhex("01 0c 00 11 6d657461646174612e76657273696f6e 001e 00")
    record = FeatureLevelRecord(name="metadata.version", feature_level=30)
    assert encode_record(record) == written
    assert decode_record(written) == record


@pytest.mark.parametrize("cls", RECORDS, ids=name_of)
def test_metadata_records_round_trip(cls: type) -> None:
    newest = schema_of(cls).versions.last

    @few_examples
    @given(
        st.integers(0, newest).flatmap(
            lambda version: st.tuples(st.just(version), messages_of(cls, version))
        )
    )
    def round_trip(case: tuple[int, Any]) -> None:
        version, record = case
        assert decode_record(encode_record(record, version)) == record
        assert encode_record(record) == encode_record(record, newest)

    round_trip()


def test_metadata_records_have_distinct_keys() -> None:
    assert len({schema_of(record).api_key for record in RECORDS}) == len(RECORDS) == 26


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        ("", ProtocolError, "too short for its frame"),
        ("01 14", ProtocolError, "too short for its frame"),
        ("02 14 00 00", UnknownRecord, "frame version 2, key 20, version 0"),
        ("01 7f 00 00", UnknownRecord, "key 127"),
        ("01 14 01 00", UnknownRecord, "version 1"),
        ("01 14 00", ProtocolError, "NoOpRecord v0: the message is truncated"),
        ("01 14 00 00 00", ProtocolError, "NoOpRecord v0: 1 bytes are left over"),
    ],
)
def test_invalid_metadata_records_are_refused(
    value: str, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        decode_record(bytes.fromhex(value))
    assert decode_record(bytes.fromhex("01 14 00 00")) == NoOpRecord()


def test_a_metadata_record_of_another_log_is_refused() -> None:
    with pytest.raises(ValueError, match="TransactionLogKey is not a metadata record"):
        encode_record(TransactionLogKey())


def test_metadata_records_are_decoded_from_a_memoryview() -> None:
    record = PartitionRecord(
        partition_id=1,
        topic_id=UUID(int=77),
        replicas=(1, 2),
        isr=(1,),
        leader=1,
        directories=(UUID(int=5), UUID(int=6)),
    )
    assert decode_record(memoryview(encode_record(record))) == record


def test_an_offset_commit_has_kafkas_bytes() -> None:
    key = OffsetCommitKey(group="g", topic="t", partition=3)
    assert GROUP_LOG.encode_key(key).hex(" ") == "00 01 00 01 67 00 01 74 00 00 00 03"
    value = OffsetCommitValue(offset=9, leader_epoch=2, metadata="", commit_timestamp=5)
    assert (
        GROUP_LOG.encode_value(value, 3).hex(" ")
        == "00 03 00 00 00 00 00 00 00 09 00 00 00 02 00 00 00 00 00 00 00 00 00 05"
    )
    assert GROUP_LOG.decode_key(GROUP_LOG.encode_key(key)) == key
    assert GROUP_LOG.decode_value(key, GROUP_LOG.encode_value(value)) == value


@pytest.mark.parametrize(
    ("log", "type_"),
    [(log, type_) for log in (GROUP_LOG, TRANSACTION_LOG, SHARE_STATE_LOG) for type_ in log.types],
    ids=str,
)
def test_coordinator_records_round_trip(log: CoordinatorLog, type_: int) -> None:
    key_cls, value_cls = log.class_of(type_, "Key"), log.class_of(type_, "Value")
    assert schema_of(key_cls).api_key == schema_of(value_cls).api_key == type_

    @few_examples
    @given(messages_of(key_cls, 0), messages_of(value_cls, schema_of(value_cls).versions.last))
    def round_trip(key: object, value: object) -> None:
        encoded = log.encode_key(key)
        assert encoded[:2] == type_.to_bytes(2, "big")
        assert log.decode_key(encoded) == key
        assert log.decode_value(key, log.encode_value(value)) == value

    round_trip()


def test_invalid_coordinator_records_are_refused() -> None:
    key = ConsumerGroupMetadataKey(group_id="g")
    with pytest.raises(UnknownRecord, match="unknown record type 9 in __consumer_offsets"):
        GROUP_LOG.decode_key(b"\0\x09\0\0")
    with pytest.raises(UnknownRecord, match="unknown version 1 of ConsumerGroupMetadataValue"):
        GROUP_LOG.decode_value(key, b"\0\x01" + bytes(5))
    with pytest.raises(ProtocolError, match="too short for the leading int16"):
        GROUP_LOG.decode_key(b"\0")
    with pytest.raises(ProtocolError, match="left over"):
        GROUP_LOG.decode_value(key, GROUP_LOG.encode_value(ConsumerGroupMetadataValue()) + b"\0")
    with pytest.raises(ValueError, match="ShareUpdateKey does not belong to __consumer_offsets"):
        GROUP_LOG.encode_key(ShareUpdateKey())
    with pytest.raises(ValueError, match="does not belong to __transaction_state"):
        TRANSACTION_LOG.encode_value(OffsetCommitValue())


def test_transaction_values_of_both_versions() -> None:
    value = TransactionLogValue(producer_id=4, producer_epoch=1, transaction_partitions=None)
    assert TRANSACTION_LOG.encode_value(value, 0)[:2] == b"\0\0"
    late = TransactionLogValue(
        producer_id=4, producer_epoch=1, transaction_partitions=None, next_producer_id=8
    )
    assert (
        TRANSACTION_LOG.decode_value(TransactionLogKey(), TRANSACTION_LOG.encode_value(late, 1))
        == late
    )


def test_control_records_round_trip() -> None:
    assert encode_control_key(ControlType.COMMIT) == b"\0\0\0\x01"
    assert encode_control_value(EndTxnMarker(coordinator_epoch=7)) == b"\0\0\0\0\0\x07"
    voter = LeaderChangeMessage.Voter(voter_id=1)
    values: dict[ControlType, object] = {
        ControlType.ABORT: EndTxnMarker(coordinator_epoch=1),
        ControlType.COMMIT: EndTxnMarker(coordinator_epoch=2),
        ControlType.LEADER_CHANGE: LeaderChangeMessage(
            leader_id=1, voters=(voter,), granting_voters=(voter,)
        ),
        ControlType.SNAPSHOT_HEADER: SnapshotHeaderRecord(last_contained_log_timestamp=5),
        ControlType.SNAPSHOT_FOOTER: SnapshotFooterRecord(),
        ControlType.KRAFT_VERSION: KRaftVersionRecord(k_raft_version=1),
        ControlType.KRAFT_VOTERS: VotersRecord(voters=(VotersRecord.Voter(voter_id=1),)),
    }
    assert set(values) == set(ControlType)
    for control_type, value in values.items():
        assert decode_control_key(encode_control_key(control_type)) is control_type
        assert decode_control_value(control_type, encode_control_value(value)) == value


def test_invalid_control_records_are_refused() -> None:
    with pytest.raises(UnknownRecord, match="unknown control record type 7"):
        decode_control_key(b"\0\0\0\x07")
    with pytest.raises(ProtocolError, match="negative version"):
        decode_control_key(b"\xff\xff\0\0")
    with pytest.raises(ProtocolError, match="ControlRecordTypeSchema v0: the message is truncated"):
        decode_control_key(b"\0\0\0")
    with pytest.raises(ProtocolError, match="SnapshotFooterRecord v0"):
        decode_control_value(ControlType.SNAPSHOT_FOOTER, b"\0")


def test_the_consumer_protocol_ignores_fields_of_later_versions() -> None:
    subscription = ConsumerProtocolSubscription(
        topics=("a", "b"), user_data=b"u", generation_id=4, rack_id="r"
    )
    encoded = encode_consumer_protocol(subscription)
    assert encoded[:2] == b"\0\x03"
    assert decode_consumer_protocol(ConsumerProtocolSubscription, encoded) == subscription
    oldest = encode_consumer_protocol(subscription, 0)
    assert decode_consumer_protocol(
        ConsumerProtocolSubscription, oldest
    ) == ConsumerProtocolSubscription(topics=("a", "b"), user_data=b"u")
    from_later = b"\0\x09" + encoded[2:] + b"later fields"
    assert decode_consumer_protocol(ConsumerProtocolSubscription, from_later) == subscription
    with pytest.raises(ProtocolError, match="version -1"):
        decode_consumer_protocol(ConsumerProtocolAssignment, b"\xff\xff")
    with pytest.raises(ProtocolError, match="too short"):
        decode_consumer_protocol(ConsumerProtocolAssignment, b"")


def test_principals_round_trip() -> None:
    principal = DefaultPrincipalData(type="User", name="alice", token_authenticated=True)
    assert decode_versioned(DefaultPrincipalData, encode_versioned(principal)) == principal


def test_the_quorum_state_has_kafkas_format() -> None:
    dynamic = (
        b'{"leaderId":1,"leaderEpoch":7,"votedId":-1,'
        b'"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}'
    )
    state = QuorumStateData(leader_id=1, leader_epoch=7)
    assert encode_quorum_state(state, 1) == dynamic
    assert decode_quorum_state(dynamic) == (state, 1)
    static = (
        b'{"clusterId":"","leaderId":-1,"leaderEpoch":3,"votedId":2,"appliedOffset":0,'
        b'"currentVoters":[{"voterId":1},{"voterId":2}],"data_version":0}'
    )
    voters = tuple(QuorumStateData.CurrentVoter(voter_id=voter_id) for voter_id in (1, 2))
    state = QuorumStateData(leader_epoch=3, voted_id=2, current_voters=voters)
    assert encode_quorum_state(state, 0) == static
    assert decode_quorum_state(static) == (state, 0)


@few_examples
@given(messages_of(QuorumStateData, 1))
def test_quorum_states_round_trip(state: QuorumStateData) -> None:
    assert decode_quorum_state(encode_quorum_state(state, 1)) == (state, 1)


@pytest.mark.parametrize(
    "change",
    [
        {"data_version": 2},
        {"data_version": "1"},
        {"leaderId": None},
        {"leaderEpoch": 2**31},
        {"votedDirectoryId": "short"},
        {"votedDirectoryId": 4},
    ],
    ids=str,
)
def test_damaged_quorum_states_are_refused(change: dict[str, object]) -> None:
    content = json.loads(encode_quorum_state(QuorumStateData(), 1))
    with pytest.raises(ProtocolError, match="the quorum-state file is damaged"):
        decode_quorum_state(json.dumps({**content, **change}).encode())


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{}", b"null", b"\xff", b'{"data_version":1}', b"[" * 100_000]
)
def test_other_files_are_refused_as_quorum_state(content: bytes) -> None:
    with pytest.raises(ProtocolError, match="the quorum-state file is damaged"):
        decode_quorum_state(content)
