"""Invalid requests to a group on a real broker get Kafka's error codes, and the group and its
offsets stay as they were.

PENSTOCK_COMPAT_BOOTSTRAP=host:port sends them to another broker.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest

from penstock.errors import ErrorCode
from penstock.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from penstock.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from penstock.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from penstock.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from penstock.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from penstock.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from penstock.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from tests.e2e.raw_connection import TIMEOUT_S, RawConnection, create_topic

PARTITIONS = 3
COMMITTED = 5
MALICIOUS = [
    "(a+)+b",
    "(a|aa)+b",
    "(.*a){20}b",
    "(a|b|c|d|e)*" * 40 + "z",
    "(a?){300}a{300}",
    "[ab]*a[ab]{240}",
]
# The time limit of an expression, on a busy machine.
EXPRESSION_S = 5.0


class Member:
    """A member that is alone in its stable group, with a committed offset. Sends the requests of a
    client, with some fields invalid."""

    def __init__(self, bootstrap: str) -> None:
        self.connection = RawConnection(bootstrap)
        self.group = f"group-{uuid4().hex[:8]}"
        self.topic = f"topic-{self.group}"
        self.id = ""
        self.generation = -1
        assert create_topic(self.connection, self.topic, PARTITIONS) == ErrorCode.NONE
        find = FindCoordinatorRequest(coordinator_keys=(self.group,))
        self._wait(
            lambda: (
                self.connection.request(find, 4, FindCoordinatorResponse).coordinators[0].error_code
            )
        )

    def _wait(self, ask: Callable[[], int], expected: ErrorCode = ErrorCode.NONE) -> None:
        """Retry while the broker creates and loads the offsets topic."""
        deadline = time.monotonic() + TIMEOUT_S
        while (code := ask()) != expected:
            assert time.monotonic() < deadline, ErrorCode(code).name
            time.sleep(0.05)

    def commit(self, offset: int, *, metadata: str = "", partition: int = 0, **fields: Any) -> int:
        part = OffsetCommitRequest.Topic.Partition(
            partition_index=partition, committed_offset=offset, committed_metadata=metadata
        )
        given = {
            "group_id": self.group,
            "generation_id_or_member_epoch": self.generation,
            "member_id": self.id,
        }
        topic = OffsetCommitRequest.Topic(name=fields.pop("topic", self.topic), partitions=(part,))
        request = OffsetCommitRequest(**{**given, "topics": (topic,), **fields})
        return (
            self.connection.request(request, 9, OffsetCommitResponse)
            .topics[0]
            .partitions[0]
            .error_code
        )

    def committed(self) -> int:
        topic = OffsetFetchRequest.Group.Topic(name=self.topic, partition_indexes=(0,))
        request = OffsetFetchRequest(
            groups=(OffsetFetchRequest.Group(group_id=self.group, topics=(topic,)),)
        )
        return (
            self.connection.request(request, 9, OffsetFetchResponse)
            .groups[0]
            .topics[0]
            .partitions[0]
            .committed_offset
        )


class ClassicMember(Member):
    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self._wait(self._ask_for_id, ErrorCode.MEMBER_ID_REQUIRED)
        joined = self.join(member_id=self.id)
        assert (joined.error_code, joined.leader) == (ErrorCode.NONE, self.id)
        self.generation = joined.generation_id
        assert self.sync() == ErrorCode.NONE
        self._wait(lambda: self.commit(COMMITTED))

    def _ask_for_id(self) -> int:
        answer = self.join()
        self.id = answer.member_id
        return answer.error_code

    def join(self, **fields: Any) -> JoinGroupResponse:
        given = {
            "group_id": self.group,
            "session_timeout_ms": 300_000,
            "rebalance_timeout_ms": 300_000,
            "protocol_type": "consumer",
        }
        protocols = (JoinGroupRequest.Protocol(name="range", metadata=b""),)
        return self.connection.request(
            JoinGroupRequest(**{**given, "protocols": protocols, **fields}), 9, JoinGroupResponse
        )

    def sync(self, **fields: Any) -> int:
        given = {"group_id": self.group, "generation_id": self.generation, "member_id": self.id}
        named = {"protocol_type": "consumer", "protocol_name": "range"}
        assigned = (SyncGroupRequest.Assignment(member_id=self.id, assignment=b"mine"),)
        request = SyncGroupRequest(**{**given, **named, "assignments": assigned, **fields})
        return self.connection.request(request, 5, SyncGroupResponse).error_code

    def beat(self, **fields: Any) -> int:
        given = {"group_id": self.group, "generation_id": self.generation, "member_id": self.id}
        return self.connection.request(
            HeartbeatRequest(**{**given, **fields}), 4, HeartbeatResponse
        ).error_code

    def leave(self, **fields: Any) -> int:
        request = LeaveGroupRequest(
            group_id=self.group, members=(LeaveGroupRequest.Member(**fields),)
        )
        return self.connection.request(request, 5, LeaveGroupResponse).members[0].error_code


class NewMember(Member):
    """A member of the consumer protocol (KIP-848)."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self.id = "me"
        self._wait(lambda: self.beat(**self.joining()).error_code)
        deadline = time.monotonic() + TIMEOUT_S
        while self.commit(COMMITTED) != ErrorCode.NONE:
            assert time.monotonic() < deadline
            self.generation = self.beat(member_epoch=self.generation).member_epoch

    def joining(self) -> dict[str, Any]:
        return {
            "member_epoch": 0,
            "rebalance_timeout_ms": 10_000,
            "subscribed_topic_names": (self.topic,),
            "topic_partitions": (),
        }

    def beat(self, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        request = ConsumerGroupHeartbeatRequest(
            **{"group_id": self.group, "member_id": self.id, **fields}
        )
        answer = self.connection.request(request, 1, ConsumerGroupHeartbeatResponse)
        if answer.error_code == ErrorCode.NONE and request.member_id == self.id:
            self.generation = answer.member_epoch
        return answer


Members = tuple[ClassicMember, NewMember]


@pytest.fixture(scope="module")
def members(bootstrap: str) -> Iterator[Members]:
    """Created once for all tests, since the first rebalance of a group waits."""
    both = ClassicMember(bootstrap), NewMember(bootstrap)
    yield both
    for member in both:
        member.connection.socket.close()


@pytest.fixture
def classic(members: Members) -> Iterator[ClassicMember]:
    member = members[0]
    yield member
    assert member.beat() == ErrorCode.NONE
    assert member.committed() == COMMITTED


@pytest.fixture
def new(members: Members) -> Iterator[NewMember]:
    member = members[1]
    epoch = member.generation
    yield member
    assert member.beat(member_epoch=epoch).error_code == ErrorCode.NONE
    assert (member.generation, member.committed()) == (epoch, COMMITTED)


STRANGERS: list[tuple[dict[str, Any], ErrorCode]] = [
    ({"member_id": "unknown"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ({"member_id": ""}, ErrorCode.UNKNOWN_MEMBER_ID),
    ({"group_id": "no-such-group"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
    ({"group_instance_id": "unknown"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ({"generation_id": 0}, ErrorCode.ILLEGAL_GENERATION),
    ({"generation_id": 1_000}, ErrorCode.ILLEGAL_GENERATION),
    ({"generation_id": -1}, ErrorCode.ILLEGAL_GENERATION),
    ({"generation_id": -(2**31)}, ErrorCode.ILLEGAL_GENERATION),
]


@pytest.mark.parametrize(("fields", "code"), STRANGERS)
def test_unknown_members_and_stale_generations_are_refused(
    classic: ClassicMember, fields: dict[str, Any], code: ErrorCode
) -> None:
    assert classic.beat(**fields) == code
    assert classic.sync(**fields) == code


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"member_id": "unknown"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"session_timeout_ms": 5_999}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": 1_800_001}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": -1}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": -(2**31)}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": ""}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": ()}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (
            {"protocols": (JoinGroupRequest.Protocol(name="other", metadata=b""),)},
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ),
    ],
)
def test_an_invalid_join_is_refused(
    classic: ClassicMember, fields: dict[str, Any], code: ErrorCode
) -> None:
    assert classic.join(**fields).error_code == code


@pytest.mark.parametrize("fields", [{"protocol_name": "other"}, {"protocol_type": "connect"}])
def test_a_sync_with_another_protocol_is_refused(
    classic: ClassicMember, fields: dict[str, Any]
) -> None:
    assert classic.sync(**fields) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_an_unknown_member_cannot_leave(classic: ClassicMember) -> None:
    assert classic.leave(member_id="unknown") == ErrorCode.UNKNOWN_MEMBER_ID
    assert classic.leave(member_id="", group_instance_id="unknown") == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"member_id": "unknown"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"generation_id_or_member_epoch": 0}, ErrorCode.ILLEGAL_GENERATION),
        ({"generation_id_or_member_epoch": 1_000}, ErrorCode.ILLEGAL_GENERATION),
        ({"generation_id_or_member_epoch": -1, "member_id": ""}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"metadata": "m" * 4097}, ErrorCode.OFFSET_METADATA_TOO_LARGE),
        ({"metadata": "ü" * 16_000}, ErrorCode.OFFSET_METADATA_TOO_LARGE),
        ({"topic": "nowhere"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"partition": PARTITIONS}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"partition": -1}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_an_invalid_commit_is_refused(
    classic: ClassicMember, fields: dict[str, Any], code: ErrorCode
) -> None:
    assert classic.commit(99, **fields) == code


def test_a_group_of_another_protocol_type_is_not_upgraded(
    members: Members, classic: ClassicMember
) -> None:
    answer = members[1].beat(
        **members[1].joining() | {"group_id": classic.group, "member_id": "other"}
    )
    assert answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"member_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"member_id": "unknown", "member_epoch": 1}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "me", "member_epoch": 1_000}, ErrorCode.FENCED_MEMBER_EPOCH),
        ({"member_epoch": -3}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -(2**31)}, ErrorCode.INVALID_REQUEST),
        ({"server_assignor": "magic"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
        ({"rebalance_timeout_ms": -1}, ErrorCode.INVALID_REQUEST),
        ({"subscribed_topic_names": None}, ErrorCode.INVALID_REQUEST),
        ({"topic_partitions": None}, ErrorCode.INVALID_REQUEST),
        ({"subscribed_topic_regex": "("}, ErrorCode.INVALID_REGULAR_EXPRESSION),
        ({"instance_id": ""}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_an_invalid_heartbeat_is_refused(
    new: NewMember, fields: dict[str, Any], code: ErrorCode
) -> None:
    assert new.beat(**{**new.joining(), "member_id": "other", **fields}).error_code == code


@pytest.mark.parametrize("epoch", [0, 1_000])
def test_a_commit_of_another_epoch_is_refused(new: NewMember, epoch: int) -> None:
    assert new.commit(99, generation_id_or_member_epoch=epoch) == ErrorCode.STALE_MEMBER_EPOCH


def test_a_classic_member_of_another_protocol_type_is_refused(
    members: Members, new: NewMember
) -> None:
    assert (
        members[0].join(group_id=new.group, protocol_type="connect").error_code
        == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    )


@pytest.mark.parametrize("expression", MALICIOUS, ids=range(len(MALICIOUS)))
def test_a_malicious_expression_does_not_block_others(
    new: NewMember, bystander: RawConnection, expression: str
) -> None:
    create_topic(bystander, "ab" * 120)
    fields = {
        "group_id": f"{new.group}-regex",
        "subscribed_topic_names": None,
        "subscribed_topic_regex": expression,
    }
    began = time.monotonic()
    code = new.beat(**{**new.joining(), "member_id": "other", **fields}).error_code
    assert time.monotonic() - began < EXPRESSION_S
    assert code in (ErrorCode.NONE, ErrorCode.INVALID_REGULAR_EXPRESSION)
