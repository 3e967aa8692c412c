"""AssignReplicasToDirs."""

from __future__ import annotations

from uuid import UUID

from penstock.controller.brokers.directories import (
    assign_replicas_to_dirs,
    offline_directories,
    offline_memberships,
)
from penstock.controller.brokers.fencing import leave_isrs
from penstock.controller.decision import ControllerResult
from penstock.errors import ErrorCode
from penstock.metadata.image import UNASSIGNED_DIRECTORY, MetadataImage
from penstock.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)
from tests.controller.clusters import (
    TOPIC_ID,
    after,
    broker,
    context,
    directory,
    partition,
    running,
    state_of,
    with_topic,
)

Directory = AssignReplicasToDirsRequest.Directory


def two() -> MetadataImage:
    image = running(broker(1, directories=2), broker(2))
    return with_topic(
        image, partition(1, 2, directories=(UNASSIGNED_DIRECTORY, directory(2))), partition(2)
    )


def assign(
    image: MetadataImage, where: UUID, *partitions: int, epoch: int = 101, topic_id: UUID = TOPIC_ID
) -> ControllerResult[AssignReplicasToDirsResponse]:
    topic = Directory.Topic(
        topic_id=topic_id,
        partitions=tuple(Directory.Topic.Partition(partition_index=index) for index in partitions),
    )
    request = AssignReplicasToDirsRequest(
        broker_id=1, broker_epoch=epoch, directories=(Directory(id=where, topics=(topic,)),)
    )
    return assign_replicas_to_dirs(image, request, context())


def errors(decision: ControllerResult[AssignReplicasToDirsResponse]) -> list[int]:
    return [
        partition.error_code for partition in decision.response.directories[0].topics[0].partitions
    ]


def test_assignment_is_recorded() -> None:
    decision = assign(two(), directory(1, 1), 0)
    now = state_of(after(two(), decision))
    assert (now.directories, now.leader, now.isr) == ((directory(1, 1), directory(2)), 1, (1, 2))
    assert errors(decision) == [ErrorCode.NONE]
    assert assign(after(two(), decision), directory(1, 1), 0).records == ()


def test_replica_in_an_offline_directory_loses_its_leadership() -> None:
    lost = directory(1, 9)
    now = state_of(after(two(), assign(two(), lost, 0)))
    assert (now.directories, now.leader, now.isr) == ((lost, directory(2)), 2, (2,))


def test_replicas_in_sync_and_in_an_offline_directory_are_found() -> None:
    image = with_topic(
        running(broker(1, directories=2), broker(2)),
        partition(1, 2, directories=(directory(1, 0), directory(2))),
        partition(1, 2, directories=(directory(1, 1), directory(2))),
        partition(1, 2, directories=(directory(1, 1), directory(2)), isr=(2,)),
    )
    lost = directory(1, 1)
    assert offline_memberships(image, image.brokers[1], [lost]) == [(TOPIC_ID, [1])]
    assert offline_memberships(image, image.brokers[1], [directory(1, 9)]) == []
    changed = after(image, leave_isrs(image, 1, [(TOPIC_ID, 1)], context()))
    expected = after(image, offline_directories(image, 1, (lost,), context()))
    assert changed.topics == expected.topics


def test_invalid_assignments() -> None:
    assert errors(assign(two(), directory(1), 1, 7)) == [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert errors(assign(two(), directory(1), 0, topic_id=UUID(int=77))) == [
        ErrorCode.UNKNOWN_TOPIC_ID
    ]
    stale = assign(two(), directory(1), 0, epoch=99)
    assert (stale.records, stale.response.error_code) == ((), ErrorCode.STALE_BROKER_EPOCH)


def test_first_of_two_assignments_in_one_request_counts() -> None:
    decision = assign(two(), directory(1, 1), 0, 0)
    assert (len(decision.records), errors(decision)) == (1, [ErrorCode.NONE, ErrorCode.NONE])
