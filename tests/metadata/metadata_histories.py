"""Hypothesis strategies: histories of records that a controller could write."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from uuid import UUID

from hypothesis import strategies as st

from penstock.protocol.internal.metadata_nodes import (
    BrokerRegistrationChangeRecord,
    FenceBrokerRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
)
from penstock.protocol.internal.metadata_security import (
    AccessControlEntryRecord,
    RemoveAccessControlEntryRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from penstock.protocol.internal.metadata_settings import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ClientQuotaRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    NoOpRecord,
)
from penstock.protocol.internal.metadata_topics import (
    ClearElrRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)

_names = st.sampled_from(["a", "b", "c"])
_uuids = st.integers(100, 2**128 - 1).map(lambda number: UUID(int=number))
_ids = st.integers(0, 5)


@dataclass
class _World:
    """The topics and brokers that exist after the records drawn so far."""

    draw: st.DrawFn
    topics: dict[str, UUID] = field(default_factory=dict)
    partitions: dict[UUID, int] = field(default_factory=dict)
    brokers: dict[int, int] = field(default_factory=dict)
    entries: list[UUID] = field(default_factory=list)
    users: set[str] = field(default_factory=set)
    next_producer_id: int = 0
    next_uuid: int = 1_000

    def uuid(self) -> UUID:
        self.next_uuid += 1
        return UUID(int=self.next_uuid)

    def topic(self) -> Iterator[object]:
        name = self.draw(_names)
        if name in self.topics:
            removed = self.topics.pop(name)
            del self.partitions[removed]
            yield RemoveTopicRecord(topic_id=removed)
            return
        self.topics[name] = self.uuid()
        self.partitions[self.topics[name]] = 0
        yield TopicRecord(name=name, topic_id=self.topics[name])

    def partition(self) -> Iterator[object]:
        if self.topics:
            topic_id = self.topics[self.draw(st.sampled_from(sorted(self.topics)))]
            replicas = self.draw(st.lists(_ids, min_size=1, max_size=3, unique=True).map(tuple))
            yield PartitionRecord(
                partition_id=self.partitions[topic_id],
                topic_id=topic_id,
                replicas=replicas,
                isr=replicas,
                leader=replicas[0],
                leader_epoch=self.draw(_ids),
                partition_epoch=self.draw(_ids),
                directories=self.draw(
                    st.sampled_from([(), tuple(UUID(int=700 + replica) for replica in replicas)])
                ),
                eligible_leader_replicas=self.draw(st.sampled_from([None, replicas])),
            )
            self.partitions[topic_id] += 1

    def change(self) -> Iterator[object]:
        with_partitions = sorted(topic_id for topic_id, count in self.partitions.items() if count)
        if with_partitions:
            topic_id = self.draw(st.sampled_from(with_partitions))
            ids = st.none() | st.lists(_ids, min_size=1, max_size=3, unique=True).map(tuple)
            yield PartitionChangeRecord(
                topic_id=topic_id,
                partition_id=self.draw(st.integers(0, self.partitions[topic_id] - 1)),
                isr=self.draw(ids),
                leader=self.draw(st.integers(-2, 5)),
                replicas=self.draw(ids),
                adding_replicas=self.draw(ids),
                leader_recovery_state=self.draw(st.integers(-1, 1)),
                last_known_elr=self.draw(ids),
            )

    def clear(self) -> Iterator[object]:
        yield ClearElrRecord(topic_name=self.draw(st.sampled_from(["", *sorted(self.topics)])))

    def register(self) -> Iterator[object]:
        broker_id = self.draw(_ids)
        self.brokers[broker_id] = self.next_uuid = self.next_uuid + 1
        yield RegisterBrokerRecord(
            broker_id=broker_id,
            broker_epoch=self.brokers[broker_id],
            incarnation_id=self.draw(_uuids),
            end_points=(RegisterBrokerRecord.EndPoint(name="PLAINTEXT", host="h", port=9092),),
            features=(
                RegisterBrokerRecord.Feature(
                    name="metadata.version", min_supported_version=1, max_supported_version=30
                ),
            ),
            rack=self.draw(st.none() | _names),
            fenced=self.draw(st.booleans()),
            log_dirs=self.draw(st.lists(_uuids, max_size=2).map(tuple)),
        )

    def broker(self) -> Iterator[object]:
        if self.brokers:
            broker_id = self.draw(st.sampled_from(sorted(self.brokers)))
            epoch = self.brokers[broker_id]
            records: list[object] = [
                FenceBrokerRecord(id=broker_id, epoch=epoch),
                UnfenceBrokerRecord(id=broker_id, epoch=epoch),
                BrokerRegistrationChangeRecord(
                    broker_id=broker_id, broker_epoch=epoch, fenced=-1, in_controlled_shutdown=1
                ),
                BrokerRegistrationChangeRecord(
                    broker_id=broker_id, broker_epoch=epoch, log_dirs=(UUID(int=900),)
                ),
                UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=epoch),
            ]
            record = self.draw(st.sampled_from(records))
            if isinstance(record, UnregisterBrokerRecord):
                del self.brokers[broker_id]
            yield record

    def settings(self) -> Iterator[object]:
        value = self.draw(st.none() | _names)
        yield ConfigRecord(
            resource_type=self.draw(st.sampled_from([2, 4])),
            resource_name=self.draw(_names),
            name="n",
            value=value,
        )
        yield FeatureLevelRecord(name=self.draw(_names), feature_level=self.draw(_ids))
        entity = (ClientQuotaRecord.Entity(entity_type="user", entity_name=self.draw(_names)),)
        yield ClientQuotaRecord(entity=entity, key="k", value=1.5, remove=self.draw(st.booleans()))

    def security(self) -> Iterator[object]:
        remove: bool = self.draw(st.booleans())
        if self.entries and remove:
            yield RemoveAccessControlEntryRecord(id=self.entries.pop())
        else:
            self.entries.append(self.uuid())
            yield AccessControlEntryRecord(id=self.entries[-1], resource_name=self.draw(_names))
        name = self.draw(_names)
        if name in self.users:
            self.users.remove(name)
            yield RemoveUserScramCredentialRecord(name=name, mechanism=1)
        else:
            self.users.add(name)
            yield UserScramCredentialRecord(name=name, mechanism=1, salt=b"s")

    def numbers(self) -> Iterator[object]:
        self.next_producer_id += 1_000
        yield ProducerIdsRecord(broker_id=1, broker_epoch=1, next_producer_id=self.next_producer_id)
        yield RegisterControllerRecord(
            controller_id=self.draw(_ids), incarnation_id=self.draw(_uuids)
        )
        yield NoOpRecord()

    def steps(self) -> list[Callable[[], Iterator[object]]]:
        frequent = [self.topic, self.partition, self.partition, self.change, self.change]
        return [
            *frequent,
            self.clear,
            self.register,
            self.broker,
            self.settings,
            self.security,
            self.numbers,
        ]


@st.composite
def histories(draw: st.DrawFn) -> list[object]:
    """Draw records in a valid order, without transactions."""
    world = _World(draw)
    steps = world.steps()
    chosen = draw(st.lists(st.integers(0, len(steps) - 1), max_size=30))
    return [record for index in chosen for record in steps[index]()]


def committed(records: list[object]) -> list[object]:
    return [BeginTransactionRecord(name="t"), *records, EndTransactionRecord()]


def aborted(records: list[object]) -> list[object]:
    return [BeginTransactionRecord(), *records, AbortTransactionRecord(reason="r")]
