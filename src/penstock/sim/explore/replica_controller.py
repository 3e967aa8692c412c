"""The controller of the replica explorer: product code of `controller` over one image after the
other."""

from __future__ import annotations

from functools import cache
from uuid import UUID

from penstock.config.node import read_node_config
from penstock.config.topic_settings import MIN_INSYNC_REPLICAS
from penstock.controller.brokers.fencing import (
    begin_controlled_shutdown,
    fence_broker,
    unfence_broker,
)
from penstock.controller.brokers.registration import register_broker
from penstock.controller.decision import ControllerContext
from penstock.controller.features import ELR_LEVEL, ELR_VERSION
from penstock.controller.partitions.alter_partition import alter_partition
from penstock.controller.partitions.elections import rebalance_leaders
from penstock.controller.partitions.reassignment import alter_partition_reassignments
from penstock.errors import ErrorCode
from penstock.metadata.image import (
    METADATA_VERSION,
    TOPIC,
    BrokerImage,
    MetadataImage,
    PartitionState,
    TopicImage,
)
from penstock.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from penstock.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
)
from penstock.protocol.messages.broker_registration import BrokerRegistrationRequest
from penstock.sim.explore.replica_broker import ExploredBroker, Proposal
from penstock.sim.explore.replica_log import PARTITION, TOPIC_ID

_CONFIG = """\
process.roles=controller
node.id=100
listeners=CONTROLLER://controller:9093
controller.listener.names=CONTROLLER
controller.quorum.voters=100@controller:9093
log.dirs=/d
"""
CLUSTER_ID = "explored"
_METADATA_LEVEL = 25
_FEATURES = (
    BrokerRegistrationRequest.Feature(
        name=METADATA_VERSION, min_supported_version=1, max_supported_version=_METADATA_LEVEL
    ),
    BrokerRegistrationRequest.Feature(
        name=ELR_VERSION, min_supported_version=0, max_supported_version=ELR_LEVEL
    ),
)

_Topic = AlterPartitionRequest.Topic
_Member = _Topic.Partition.NewIsrWithEpoch
_Reassigned = AlterPartitionReassignmentsRequest.Topic
Result = AlterPartitionResponse.Topic.Partition


@cache
def _context() -> ControllerContext:
    """The settings never change; parsing them takes longer than a walk."""
    config = read_node_config(_CONFIG.encode(), "explorer")
    return ControllerContext.of(config, lambda: UUID(int=0))


def directory_of(broker_id: int) -> UUID:
    return UUID(int=5_000 + broker_id)


def first_image(
    replicas: tuple[int, ...], min_insync: int, *, elr: bool, more_brokers: tuple[int, ...] = ()
) -> MetadataImage:
    """Return an image in which all brokers are unfenced, and all replicas in sync with an empty
    log."""
    state = PartitionState(
        replicas, replicas, replicas[0], directories=tuple(map(directory_of, replicas))
    )
    topic = TopicImage(PARTITION.topic, TOPIC_ID, {PARTITION.partition: state})
    brokers = {
        broker_id: BrokerImage(
            broker_id,
            broker_id,
            UUID(int=broker_id),
            fenced=False,
            directories=(directory_of(broker_id),),
        )
        for broker_id in (*replicas, *more_brokers)
    }
    return MetadataImage(
        offset=100,
        topics={topic.name: topic},
        topic_names={topic.id: topic.name},
        brokers=brokers,
        configs={(TOPIC, topic.name): {MIN_INSYNC_REPLICAS.name: str(min_insync)}},
        features={METADATA_VERSION: _METADATA_LEVEL, ELR_VERSION: ELR_LEVEL if elr else 0},
    )


class ExploredController:
    """`images` has one image per decision that changed something."""

    def __init__(self, image: MetadataImage) -> None:
        self.images = [image]

    @property
    def image(self) -> MetadataImage:
        return self.images[-1]

    @property
    def state(self) -> PartitionState:
        return self.image.topics[PARTITION.topic].partitions[PARTITION.partition]

    def _commit(self, records: tuple[object, ...]) -> None:
        if records:
            image, _delta = self.image.replay(records, self.image.offset + len(records))
            self.images.append(image)

    def register(self, broker: ExploredBroker) -> None:
        """Register the broker's process; the session of the process before has expired."""
        request = BrokerRegistrationRequest(
            broker_id=broker.id,
            cluster_id=CLUSTER_ID,
            incarnation_id=broker.incarnation,
            features=_FEATURES,
            log_dirs=(directory_of(broker.id),),
            previous_broker_epoch=broker.clean_epoch,
        )
        result = register_broker(
            self.image, request, _context(), cluster_id=CLUSTER_ID, has_session=lambda _id: False
        )
        self._commit(result.records)
        broker.epoch = result.response.broker_epoch

    def fence(self, broker_id: int) -> None:
        self._commit(fence_broker(self.image, broker_id, _context()).records)

    def unfence(self, broker_id: int) -> None:
        self._commit(unfence_broker(self.image, broker_id, _context()).records)

    def begin_shutdown(self, broker_id: int) -> None:
        self._commit(begin_controlled_shutdown(self.image, broker_id, _context()).records)

    def elect_preferred(self) -> None:
        self._commit(rebalance_leaders(self.image, _context()).records)

    def reassign(self, target: tuple[int, ...] | None) -> ErrorCode:
        """Reassign the partition, or cancel its reassignment."""
        request = AlterPartitionReassignmentsRequest(
            topics=(
                _Reassigned(
                    name=PARTITION.topic,
                    partitions=(
                        _Reassigned.Partition(partition_index=PARTITION.partition, replicas=target),
                    ),
                ),
            )
        )
        result = alter_partition_reassignments(self.image, request, _context())
        self._commit(result.records)
        return ErrorCode(result.response.responses[0].partitions[0].error_code)

    def alter_partition(self, broker: ExploredBroker, sent: Proposal) -> Result | None:
        """Decide on an ISR change. None: the whole request is refused, and sent again."""
        proposal = sent.proposal
        members = tuple(
            _Member(
                broker_id=member.broker_id,
                broker_epoch=broker.epoch if member.broker_id == broker.id else member.broker_epoch,
            )
            for member in proposal.isr
        )
        request = AlterPartitionRequest(
            broker_id=broker.id,
            broker_epoch=broker.epoch,
            topics=(
                _Topic(
                    topic_id=TOPIC_ID,
                    partitions=(
                        _Topic.Partition(
                            partition_index=PARTITION.partition,
                            leader_epoch=proposal.leader_epoch,
                            new_isr_with_epochs=members,
                            partition_epoch=proposal.partition_epoch,
                        ),
                    ),
                ),
            ),
        )
        result = alter_partition(self.image, request, _context())
        self._commit(result.records)
        if result.response.error_code:
            return None
        return result.response.topics[0].partitions[0]
