"""The controller of a node: decides on requests while it is the active one.

The pure decisions are in `penstock.controller`; this class commits them and keeps time.
`BrokerSessions` watches the brokers.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from penstock.config import cluster_settings
from penstock.config.node import NodeConfig
from penstock.controller.brokers.directories import assign_replicas_to_dirs
from penstock.controller.brokers.fencing import unregister_broker
from penstock.controller.brokers.heartbeat import broker_heartbeat
from penstock.controller.brokers.registration import check_registration, register_broker
from penstock.controller.decision import ControllerContext, ControllerResult
from penstock.controller.features import bootstrap_records, split_kraft_version, update_features
from penstock.controller.partitions.alter_partition import alter_partition
from penstock.controller.partitions.elections import (
    elect_leaders,
    elect_unclean_leaders,
    election_slices,
    joined_elections,
    rebalance_leaders,
)
from penstock.controller.partitions.leader_and_isr import ByTopic
from penstock.errors import ErrorCode, KafkaError
from penstock.limits import DECIDED_PARTITIONS_A_TURN
from penstock.log.directory import TooManyFiles
from penstock.metadata.image import BrokerImage, MetadataImage
from penstock.node.controller.broker_sessions import BrokerSessions
from penstock.node.controller.delegation_tokens import TokenController
from penstock.node.controller.departure_log import DepartureLog
from penstock.node.controller.election_counts import ElectionCounts
from penstock.node.controller.partition_slices import PartitionSlices
from penstock.node.quorum.quorum import Quorum
from penstock.node.supervisor import Spawn
from penstock.protocol.internal.metadata_settings import NoOpRecord
from penstock.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from penstock.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)
from penstock.protocol.messages.broker_heartbeat import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
)
from penstock.protocol.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from penstock.protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from penstock.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from penstock.protocol.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from penstock.protocol.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from penstock.security.quotas.client_quotas import ClientQuotas, MutationQuota
from penstock.world import World

if TYPE_CHECKING:
    from penstock.protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
    from penstock.protocol.messages.allocate_producer_ids import (
        AllocateProducerIdsRequest,
        AllocateProducerIdsResponse,
    )
    from penstock.protocol.messages.remove_raft_voter import (
        RemoveRaftVoterRequest,
        RemoveRaftVoterResponse,
    )

Q = TypeVar("Q")
R = TypeVar("R")

logger = logging.getLogger(__name__)

# Between two checks for expired sessions: a small part of broker.session.timeout.ms.
_SESSION_CHECK_S = 0.5


class NodeController:
    """Every node with the controller role has one. It is idle unless the node leads the quorum.

    Its methods raise KafkaError NOT_CONTROLLER if it is not active, or loses the leadership before
    the records are committed.
    """

    def __init__(
        self,
        world: World,
        config: NodeConfig,
        cluster_id: str,
        quorum: Quorum,
        context: ControllerContext,
        spawn: Spawn,
        first_records: Sequence[object] = (),
        quotas: ClientQuotas | None = None,
    ) -> None:
        """`first_records` are those of bootstrap.checkpoint, which a new cluster begins with."""
        self._first_records = first_records
        self._context = context
        self._quotas = ClientQuotas() if quotas is None else quotas
        self._world = world
        self._config = config
        self._cluster_id = cluster_id
        self._quorum = quorum
        self._spawn = spawn
        self._slices = PartitionSlices(quorum, context)
        self._departures = DepartureLog(config.node_id, world.clock, context)
        self._sessions = BrokerSessions(
            world, config, quorum, context, self._slices, self._departures, self._commit, spawn
        )
        self.tokens = TokenController(world.clock, config, quorum, context, self._commit)
        self.elections = ElectionCounts()
        quorum.on_append = self.elections.count
        # Counts changes of leadership, so that the task of an earlier term ends.
        self._term = 0

    @property
    def is_active(self) -> bool:
        return self._quorum.is_leader

    # Requests of clients

    async def decide(
        self,
        decide: Callable[[MetadataImage, Q, ControllerContext], ControllerResult[R]],
        request: Q,
        mutations: MutationQuota | None = None,
    ) -> R:
        """Decide on a request and return the response when its records are committed."""
        context = (
            self._context if mutations is None else replace(self._context, mutations=mutations)
        )
        return await self._commit(lambda image: decide(image, request, context))

    def mutation_quota(self, user: str, client_id: str, *, is_strict: bool) -> MutationQuota | None:
        """Return the quota of partitions that a request of a client may change; None if it has
        none."""
        quotas = self._quotas.mutations
        if not quotas.is_set:
            return None
        return quotas.of_request(user, client_id, self._now_ms(), is_strict=is_strict)

    def throttle_ms(self, mutations: MutationQuota) -> int:
        """Return for how long the client of a request is throttled from now on."""
        return mutations.throttle_ms(self._now_ms())

    def _now_ms(self) -> int:
        return int(self._world.clock.monotonic() * 1000)

    async def alter_configs(
        self,
        decide: Callable[[MetadataImage, Q, ControllerContext], ControllerResult[R]],
        request: Q,
    ) -> R:
        """Decide on a request that alters configs. If they now allow unclean leaders, elect them
        for partitions without a leader."""
        response = await self.decide(decide, request)
        await self._elect_unclean()
        return response

    async def decide_in_slices(
        self,
        decide: Callable[[MetadataImage, Q, ControllerContext], ControllerResult[R]],
        requests: Sequence[Q],
    ) -> list[R]:
        """Decide on the slices of a request, one per turn of the event loop. Return the responses
        when the records of all are committed."""
        responses: list[R] = []
        await self._bootstrap()
        for request in requests[:-1]:
            decision = decide(self._quorum.pending, request, self._context)
            for warning in decision.warnings:
                logger.warning("%s", warning)
            if decision.records:
                self._quorum.append_only(decision.records)
            responses.append(decision.response)
            await asyncio.sleep(0)
        responses.append(await self.decide(decide, requests[-1]))
        return responses

    async def current_image(self) -> MetadataImage:
        """Return the committed metadata, with everything decided before the call."""
        await self._commit(lambda _image: ControllerResult((), None))
        return self._quorum.image

    async def elect_leaders(self, request: ElectLeadersRequest) -> ElectLeadersResponse:
        image = self._quorum.pending
        slices = election_slices(image, request, DECIDED_PARTITIONS_A_TURN)
        responses = await self.decide_in_slices(elect_leaders, slices)
        return joined_elections(image, request, responses)

    async def unregister_broker(self, request: UnregisterBrokerRequest) -> UnregisterBrokerResponse:
        broker = self._quorum.pending.brokers.get(request.broker_id)
        left: ByTopic = []
        if self.is_active and broker is not None and not broker.fenced:
            left = await self._slices.leave_isrs(broker)
        response = await self.decide(unregister_broker, request)
        if left and not response.error_code:
            image = self._quorum.pending
            self._spawn(self._departures.unregistered(image, request.broker_id, left))
        return response

    def describe_quorum(self, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
        return self._quorum.describe_quorum(request)

    async def update_features(self, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
        """Update feature levels. The level of kraft.version is the quorum's, and changes first: if
        that fails, nothing does."""
        level, others = split_kraft_version(request, validate_only=True)
        if level is None:
            return await self.decide(update_features, request)
        response = await self.decide(update_features, others)
        if response.error_code:
            return response
        await self._quorum.upgrade_kraft_version(level, validate_only=request.validate_only)
        if not request.validate_only and others.feature_updates:
            _level, others = split_kraft_version(request, validate_only=False)
            response = await self.decide(update_features, others)
            if response.error_code:
                return response
        results = tuple(
            UpdateFeaturesResponse.Result(feature=update.feature)
            for update in request.feature_updates
        )
        return UpdateFeaturesResponse(results=results)

    # Changes of the voters

    async def add_raft_voter(self, request: AddRaftVoterRequest) -> AddRaftVoterResponse:
        return await self._quorum.add_raft_voter(request)

    async def remove_raft_voter(self, request: RemoveRaftVoterRequest) -> RemoveRaftVoterResponse:
        return await self._quorum.remove_raft_voter(request)

    async def _commit(self, decide: Callable[[MetadataImage], ControllerResult[R]]) -> R:
        """Decide on the pending image, so that of two conflicting requests one fails. Return the
        response when the records are committed."""
        await self._bootstrap()
        if not self.is_active:
            raise KafkaError(
                ErrorCode.NOT_CONTROLLER, f"the active controller is {self._quorum.leader_id}"
            )
        decision = decide(self._quorum.pending)
        for warning in decision.warnings:
            logger.warning("%s", warning)
        if decision.records or self._quorum.pending.offset > self._quorum.image.offset:
            # A response without records, such as an error, may depend on uncommitted records. It
            # must wait until they are committed, and fail if they never are.
            await self._quorum.append(
                decision.records or (NoOpRecord(),), is_atomic=decision.is_atomic
            )
        return decision.response

    # Leadership

    def leadership_changed(self, leads: bool) -> None:
        """The node has become the active controller, or has ceased to be it."""
        self._term += 1
        self._sessions.begin_term()
        if leads:
            self._spawn(self._lead(self._term))

    async def _bootstrap(self) -> None:
        """Write the feature levels that a new cluster's metadata begins with, as in Kafka. A
        request may arrive before `_lead` has written them."""
        if not self._quorum.pending.features:
            records = (*bootstrap_records(self._context), *self._first_records)
            await self._quorum.append(records)

    async def _lead(self, term: int) -> None:
        try:
            # What is refused because of too many open files is tried again.
            with contextlib.suppress(TooManyFiles):
                await self._bootstrap()
                await self._slices.elect_leaderless()
            self._sessions.suspect_all()
            interval_s = self._config[cluster_settings.LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS]
            elect_at = self._world.clock.monotonic() + interval_s
            while self._term == term:
                await asyncio.sleep(_SESSION_CHECK_S)
                if self._term == term:
                    await self._sessions.fence_expired()
                if self._term == term:
                    with contextlib.suppress(TooManyFiles):
                        await self.tokens.remove_expired()
                if self._term == term and self._world.clock.monotonic() >= elect_at:
                    with contextlib.suppress(TooManyFiles):
                        await self._elect()
                        elect_at += interval_s
        except KafkaError as error:
            if error.code is not ErrorCode.NOT_CONTROLLER:
                raise

    async def _elect(self) -> None:
        """Run the elections that no request or event triggers."""
        await self._slices.elect_leaderless()
        await self._elect_unclean()
        if self._config[cluster_settings.AUTO_LEADER_REBALANCE_ENABLE]:
            limit = DECIDED_PARTITIONS_A_TURN
            while await self._commit(lambda image: rebalance_leaders(image, self._context, limit)):
                continue

    async def _elect_unclean(self) -> None:
        limit = DECIDED_PARTITIONS_A_TURN
        while await self._commit(lambda image: elect_unclean_leaders(image, self._context, limit)):
            continue

    # Requests of brokers

    async def register(self, request: BrokerRegistrationRequest) -> BrokerRegistrationResponse:
        if self.is_active:
            check_registration(
                self._quorum.pending,
                request,
                cluster_id=self._cluster_id,
                has_session=self._sessions.may_be_alive,
            )
            await self._slices.end_incarnation(request)
        response = await self._commit(
            lambda image: register_broker(
                image,
                request,
                self._context,
                cluster_id=self._cluster_id,
                has_session=self._sessions.may_be_alive,
            )
        )
        self._sessions.heard(request.broker_id, response.broker_epoch)
        return response

    async def heartbeat(self, request: BrokerHeartbeatRequest) -> BrokerHeartbeatResponse:
        before = self._quorum.pending.brokers.get(request.broker_id)
        failed: ByTopic = []
        leaving: ByTopic = []
        if self.is_active and before is not None and before.epoch == request.broker_epoch:
            failed, leaving = await self._leave_first(before, request)
        response = await self._commit(
            lambda image: broker_heartbeat(image, request, self._context, self._sessions.heartbeats)
        )
        self._sessions.heard(request.broker_id, request.broker_epoch)
        if failed:
            image = self._quorum.pending
            self._spawn(self._departures.directories_failed(image, request.broker_id, failed))
        if leaving:
            image = self._quorum.pending
            self._spawn(self._departures.shut_down(image, request.broker_id, leaving))
        if before is not None and before.fenced and not response.is_fenced:
            await self._slices.elect_leaderless()
        return response

    async def _leave_first(
        self, broker: BrokerImage, request: BrokerHeartbeatRequest
    ) -> tuple[ByTopic, ByTopic]:
        """Let a broker leave ISRs, if they are many, before the decision on its heartbeat. Return
        the partitions that it leaves because their log directories failed, and those that it leaves
        because it shuts down."""
        heartbeats = self._sessions.heartbeats
        failed: ByTopic = []
        if request.offline_log_dirs:
            failed = await self._slices.leave_offline(broker, request.offline_log_dirs)
        is_leaving = request.want_shut_down or request.want_fence
        if (
            broker.fenced
            or not is_leaving
            or heartbeats.controlled_shutdown_offset(broker.id, broker.epoch) is not None
        ):
            return failed, []
        if request.want_fence:
            await self._slices.leave_isrs(broker)
            return failed, []
        offset, leaving = await self._slices.begin_controlled_shutdown(broker)
        if offset is not None:
            heartbeats.note_controlled_shutdown(broker.id, broker.epoch, offset)
        return failed, leaving

    async def alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        return await self.decide(alter_partition, request)

    async def assign_replicas_to_dirs(
        self, request: AssignReplicasToDirsRequest
    ) -> AssignReplicasToDirsResponse:
        return await self.decide(assign_replicas_to_dirs, request)

    async def allocate_producer_ids(
        self, request: AllocateProducerIdsRequest
    ) -> AllocateProducerIdsResponse:
        # Imported on first use so that a node starts quickly.
        from penstock.controller.producer_ids import allocate_producer_ids

        return await self._commit(lambda image: allocate_producer_ids(image, request))

    def connection_lost(self, broker_id: int, broker_epoch: int) -> None:
        """The connection of a broker's heartbeats has closed."""
        self._sessions.connection_lost(broker_id, broker_epoch)
