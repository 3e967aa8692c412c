"""The group coordinator of this broker: one method per API of groups, over the shards of
__consumer_offsets.

A method returns the response, or a future of it. Errors are responses too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from pkgutil import walk_packages
from typing import TYPE_CHECKING, Never, assert_never

from penstock import coordinator
from penstock.config import group_settings as settings
from penstock.config.authorizer_settings import AUTHORIZER_CLASS_NAME
from penstock.config.node import NodeConfig
from penstock.controller.configs.effective import DynamicBrokerConfig
from penstock.errors import ErrorCode, KafkaError
from penstock.metadata.image import MetadataDelta, MetadataImage
from penstock.node.partition.partition import Partition
from penstock.node.shards.internal_topics import OFFSETS_TOPIC
from penstock.node.shards.shard_set import ShardEnv, ShardSet
from penstock.node.shards.txn_offsets import TxnOffsets
from penstock.records.compression import Codec

if TYPE_CHECKING:
    from penstock.coordinator.groups.machine import GroupMachine
    from penstock.coordinator.groups.table import Caller, GroupSettings
    from penstock.node.shards.verification import TxnVerifier
    from penstock.protocol.messages.consumer_group_describe import ConsumerGroupDescribeResponse
    from penstock.protocol.messages.consumer_group_heartbeat import (
        ConsumerGroupHeartbeatRequest,
        ConsumerGroupHeartbeatResponse,
    )
    from penstock.protocol.messages.delete_groups import DeleteGroupsResponse
    from penstock.protocol.messages.describe_groups import DescribeGroupsResponse
    from penstock.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
    from penstock.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
    from penstock.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
    from penstock.protocol.messages.list_groups import ListGroupsResponse
    from penstock.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
    from penstock.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
    from penstock.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
    from penstock.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
    from penstock.protocol.messages.txn_offset_commit import (
        TxnOffsetCommitRequest,
        TxnOffsetCommitResponse,
    )

    Listed = list[ListGroupsResponse.Group] | KafkaError

_MINUTE_MS = 60_000
# Requests up to this size are not compared with the topic's max.message.bytes.
_SMALL_BYTES = 64 * 1024


class Groups:
    """`open` it first; from then on it follows the metadata through `apply`. `verifier` asks
    transaction coordinators."""

    def __init__(self, env: ShardEnv, config: NodeConfig, verifier: TxnVerifier) -> None:
        self._env = env
        self._codec = Codec(config[settings.OFFSETS_TOPIC_COMPRESSION_CODEC])
        self._shards: ShardSet[GroupMachine, Never] = ShardSet(
            env,
            OFFSETS_TOPIC,
            self._new_machine,
            commit_timeout_s=config[settings.OFFSETS_COMMIT_TIMEOUT_MS] / 1000,
            codec=self._codec,
            # The machine has no effects.
            perform=assert_never,
            before_creation=_import_coordinator,
        )
        self._txn_offsets = TxnOffsets(env, self._shards, verifier)
        # The settings of groups, and the configs that they were made from.
        self._settings: tuple[DynamicBrokerConfig, GroupSettings] | None = None

    def open(self) -> None:
        self._shards.open()

    def close(self) -> None:
        self._shards.close()

    def apply(self, image: MetadataImage, delta: MetadataDelta) -> None:
        self._shards.apply(image, delta)

    @property
    def machines(self) -> list[GroupMachine]:
        """The machines of the loaded shards, for metrics."""
        return self._shards.machines

    def _new_machine(self, partition: Partition) -> GroupMachine:
        # Imported on first use, as handlers are: a node must start quickly.
        from penstock.coordinator.groups.machine import GroupMachine

        return GroupMachine(
            lambda: self._read_settings(partition.config.max_message_bytes),
            self._env.metadata.image,
            self._env.world.rng.uuid,
        )

    def _read_settings(self, max_batch_bytes: int) -> GroupSettings:
        """Return the settings as they are now. All shards read them with every new image, so they
        are made again only if the broker's configs have changed."""
        values = self._env.metadata.broker_config
        if self._settings is None or self._settings[0] is not values:
            found = replace(
                group_settings(values, max_batch_bytes), compresses=self._codec is not Codec.NONE
            )
            self._settings = values, found
        found = self._settings[1]
        if found.max_batch_bytes == max_batch_bytes:
            return found
        return replace(found, max_batch_bytes=max_batch_bytes)

    async def find_coordinators(self, group_ids: Sequence[str]) -> list[int | None]:
        """Return the broker that coordinates each group, None if there is none now. Create
        __consumer_offsets on first use."""
        return await self._shards.find_coordinators(group_ids)

    # The classic protocol

    def join_group(
        self, request: JoinGroupRequest, caller: Caller
    ) -> JoinGroupResponse | Awaitable[JoinGroupResponse]:
        from penstock.coordinator.groups import errors

        refused = partial(errors.join_group, request, caller.version)
        size = max((len(protocol.metadata) for protocol in request.protocols), default=0)
        too_large = self._too_large(size)
        if too_large is not None:
            return refused(too_large)
        return self._shards.decide(
            request.group_id,
            lambda machine, ticket, now: machine.join_group(request, caller, ticket, now),
            refused,
        )

    def sync_group(
        self, request: SyncGroupRequest, caller: Caller
    ) -> SyncGroupResponse | Awaitable[SyncGroupResponse]:
        from penstock.coordinator.groups import errors

        size = sum(len(assigned.assignment) for assigned in request.assignments)
        too_large = self._too_large(size)
        if too_large is not None:
            return errors.sync_group(too_large)
        return self._shards.decide(
            request.group_id,
            lambda machine, ticket, now: machine.sync_group(request, caller, ticket, now),
            errors.sync_group,
        )

    def _too_large(self, size: int) -> KafkaError | None:
        """Refuse member metadata and assignments early that no record of the topic can hold: the
        group would keep them in memory and never complete a generation."""
        if size <= _SMALL_BYTES:
            return None
        if size <= self._env.metadata.topic_config(OFFSETS_TOPIC).max_message_bytes:
            return None
        return KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"{size} bytes exceed max.message.bytes of {OFFSETS_TOPIC}",
        )

    def heartbeat(
        self, request: HeartbeatRequest
    ) -> HeartbeatResponse | Awaitable[HeartbeatResponse]:
        from penstock.coordinator.groups import errors

        return self._shards.decide(
            request.group_id,
            lambda machine, ticket, now: machine.heartbeat(request, ticket, now),
            errors.heartbeat,
            needs_writes=False,
        )

    def leave_group(
        self, request: LeaveGroupRequest, caller: Caller
    ) -> LeaveGroupResponse | Awaitable[LeaveGroupResponse]:
        from penstock.coordinator.groups import errors

        return self._shards.decide(
            request.group_id,
            lambda machine, ticket, now: machine.leave_group(request, caller, ticket, now),
            errors.leave_group,
        )

    # The consumer protocol

    def consumer_group_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, caller: Caller
    ) -> ConsumerGroupHeartbeatResponse | Awaitable[ConsumerGroupHeartbeatResponse]:
        from penstock.coordinator.groups import errors

        return self._shards.decide(
            request.group_id,
            lambda machine, ticket, now: machine.consumer_group_heartbeat(
                request, caller, ticket, now
            ),
            errors.consumer_group_heartbeat,
            needs_writes=False,
        )

    # Offsets

    def offset_commit(
        self, request: OffsetCommitRequest, caller: Caller
    ) -> OffsetCommitResponse | Awaitable[OffsetCommitResponse]:
        from penstock.coordinator.groups import errors

        return self._shards.decide(
            request.group_id,
            lambda machine, ticket, now: machine.offset_commit(request, caller, ticket, now),
            partial(errors.offset_commit, request),
        )

    def txn_offset_commit(
        self, request: TxnOffsetCommitRequest, caller: Caller
    ) -> TxnOffsetCommitResponse | Awaitable[TxnOffsetCommitResponse]:
        return self._txn_offsets.commit(request, caller)

    def write_marker(
        self,
        partition_index: int,
        producer_id: int,
        producer_epoch: int,
        commit: bool,
        coordinator_epoch: int,
        transaction_version: int,
    ) -> Awaitable[None] | None:
        """End a producer's transaction in a partition of __consumer_offsets. KafkaError, raised or
        through the awaitable: the marker was refused, or it is not known to be committed."""
        return self._txn_offsets.write_marker(
            partition_index,
            producer_id,
            producer_epoch,
            commit,
            coordinator_epoch,
            transaction_version,
        )

    def offset_fetch(
        self, group: OffsetFetchRequest.Group, require_stable: bool, version: int
    ) -> OffsetFetchResponse.Group | Awaitable[OffsetFetchResponse.Group]:
        from penstock.coordinator.groups import errors

        return self._shards.read(
            group.group_id,
            lambda machine: machine.offset_fetch(group, require_stable, version),
            partial(errors.offset_fetch, group.group_id),
        )

    def offset_delete(
        self, request: OffsetDeleteRequest
    ) -> OffsetDeleteResponse | Awaitable[OffsetDeleteResponse]:
        from penstock.coordinator.groups import errors

        return self._shards.decide(
            request.group_id,
            lambda machine, ticket, now: machine.offset_delete(request, ticket, now),
            errors.offset_delete,
        )

    # Administration

    def delete_group(
        self, group_id: str
    ) -> DeleteGroupsResponse.Result | Awaitable[DeleteGroupsResponse.Result]:
        from penstock.coordinator.groups import errors

        return self._shards.decide(
            group_id,
            lambda machine, ticket, now: machine.delete_group(group_id, ticket, now),
            partial(errors.delete_group, group_id),
        )

    async def list_groups(self, states: Collection[str], types: Collection[str]) -> list[Listed]:
        """Return one result per shard: its groups, or the error that prevents listing them."""

        def listed(machine: GroupMachine) -> Listed:
            return machine.list_groups(states, types)

        def refused(error: KafkaError) -> Listed:
            return error

        return await self._shards.read_all(listed, refused)

    def describe_group(
        self, group_id: str, version: int
    ) -> DescribeGroupsResponse.Group | Awaitable[DescribeGroupsResponse.Group]:
        from penstock.coordinator.groups import errors

        return self._shards.read(
            group_id,
            lambda machine: machine.describe_group(group_id, version),
            partial(errors.describe_group, group_id),
        )

    def describe_consumer_group(
        self, group_id: str
    ) -> ConsumerGroupDescribeResponse.Group | Awaitable[ConsumerGroupDescribeResponse.Group]:
        from penstock.coordinator.groups import errors

        return self._shards.read(
            group_id,
            lambda machine: machine.describe_consumer_group(group_id),
            partial(errors.describe_consumer_group, group_id),
        )


async def _import_coordinator() -> None:
    """Import the coordinator's modules one at a time when the first group appears. All of them in
    one run would block the event loop for 50 ms and more."""
    for module in walk_packages(coordinator.__path__, f"{coordinator.__name__}."):
        import_module(module.name)
        await asyncio.sleep(0)


def group_settings(values: DynamicBrokerConfig, max_batch_bytes: int) -> GroupSettings:
    """Return the machine's settings as the broker's configs are now."""
    from penstock.coordinator.groups.table import GroupSettings

    return GroupSettings(
        min_session_timeout_ms=values[settings.GROUP_MIN_SESSION_TIMEOUT_MS],
        max_session_timeout_ms=values[settings.GROUP_MAX_SESSION_TIMEOUT_MS],
        max_size=values[settings.GROUP_MAX_SIZE],
        initial_rebalance_delay_ms=values[settings.GROUP_INITIAL_REBALANCE_DELAY_MS],
        consumer_session_timeout_ms=values[settings.CONSUMER_SESSION_TIMEOUT_MS],
        consumer_min_session_timeout_ms=values[settings.CONSUMER_MIN_SESSION_TIMEOUT_MS],
        consumer_max_session_timeout_ms=values[settings.CONSUMER_MAX_SESSION_TIMEOUT_MS],
        consumer_heartbeat_interval_ms=values[settings.CONSUMER_HEARTBEAT_INTERVAL_MS],
        consumer_min_heartbeat_interval_ms=values[settings.CONSUMER_MIN_HEARTBEAT_INTERVAL_MS],
        consumer_max_heartbeat_interval_ms=values[settings.CONSUMER_MAX_HEARTBEAT_INTERVAL_MS],
        consumer_assignment_interval_ms=values[settings.CONSUMER_ASSIGNMENT_INTERVAL_MS],
        consumer_min_assignment_interval_ms=values[settings.CONSUMER_MIN_ASSIGNMENT_INTERVAL_MS],
        consumer_max_assignment_interval_ms=values[settings.CONSUMER_MAX_ASSIGNMENT_INTERVAL_MS],
        consumer_max_size=values[settings.CONSUMER_MAX_SIZE],
        consumer_assignors=values[settings.CONSUMER_ASSIGNORS],
        consumer_migration_policy=values[settings.CONSUMER_MIGRATION_POLICY].lower(),
        max_batch_bytes=max_batch_bytes,
        has_authorizer=bool(values[AUTHORIZER_CLASS_NAME]),
        offset_metadata_max_bytes=values[settings.OFFSET_METADATA_MAX_BYTES],
        offsets_retention_ms=values[settings.OFFSETS_RETENTION_MINUTES] * _MINUTE_MS,
        offsets_retention_check_interval_ms=values[settings.OFFSETS_RETENTION_CHECK_INTERVAL_MS],
    )
