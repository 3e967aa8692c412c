"""The parts of a node that its handlers get.

A handler declares the parts that it uses as a Protocol named `Parts`; `BrokerParts` satisfies those
of all APIs in `SERVED`, `ControllerParts` those in `CONTROLLER_SERVED`. Both are plain values that
`start.py` builds once. They are not frozen, because mypy would then require every Protocol to
declare its parts as properties.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.config.node import NodeConfig
    from penstock.handlers.encoded_topics import EncodedTopics
    from penstock.node.broker.controllers import Controllers, ProducerIds
    from penstock.node.controller.controller import NodeController
    from penstock.node.fetch.fetches import Fetches
    from penstock.node.metadata import MetadataView
    from penstock.node.partition.replica_moves import ReplicaMoves
    from penstock.node.quorum.quorum import Quorum
    from penstock.node.replication.replicas import Replicas
    from penstock.node.shards.groups import Groups
    from penstock.node.shards.marker_writer import MarkerWriter
    from penstock.node.shards.transactions import Transactions
    from penstock.node.shards.verification import TxnVerifier
    from penstock.node.supervisor import Supervisor
    from penstock.security.authorizer import Authorizer
    from penstock.security.quotas.client_quotas import ClientQuotas
    from penstock.world import Clock, Disk, Offload


@dataclass(slots=True)
class BrokerParts:
    """For requests on the listeners of brokers."""

    clock: Clock
    disk: Disk
    offload: Offload
    config: NodeConfig
    node_id: int
    cluster_id: str
    supervisor: Supervisor
    metadata: MetadataView
    quorum: Quorum
    controllers: Controllers
    replicas: Replicas
    replica_moves: ReplicaMoves
    fetches: Fetches
    groups: Groups
    transactions: Transactions
    marker_writer: MarkerWriter
    verifier: TxnVerifier
    producer_ids: ProducerIds
    encoded_topics: EncodedTopics
    quotas: ClientQuotas
    # None if every client may do everything.
    authorizer: Authorizer | None = None


@dataclass(slots=True)
class ControllerParts:
    """For requests on the listeners of controllers. `controller` is this node's, active or not."""

    config: NodeConfig
    node_id: int
    cluster_id: str
    metadata: MetadataView
    quorum: Quorum
    controllers: Controllers
    controller: NodeController
    authorizer: Authorizer | None = None
