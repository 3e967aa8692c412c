"""The transaction coordinator of this broker: one method per API of transactions, over the shards
of __transaction_state.

A method returns the response, or a future of it. Errors are responses too.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from functools import partial
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.config import transaction_settings as settings
from penstock.config.cluster_settings import REQUEST_TIMEOUT_MS
from penstock.config.node import NodeConfig
from penstock.controller.features import TRANSACTION_VERSION
from penstock.coordinator.runtime.step import Now, Step, Ticket
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import TopicPartition
from penstock.metadata.image import MetadataDelta, MetadataImage
from penstock.node.broker.controllers import ProducerIds
from penstock.node.partition.partition import Partition
from penstock.node.shards.held_requests import HeldRequests, IsConcurrent
from penstock.node.shards.internal_topics import TRANSACTION_TOPIC
from penstock.node.shards.replies import Refused
from penstock.node.shards.shard import Decide
from penstock.node.shards.shard_set import ShardEnv, ShardSet
from penstock.node.shards.txn_markers import TxnMarkers

if TYPE_CHECKING:
    from penstock.coordinator.transactions.machine import TransactionMachine
    from penstock.coordinator.transactions.table import TransactionSettings, WriteMarkers
    from penstock.node.shards.txn_markers import WriteLocal
    from penstock.protocol.messages.add_partitions_to_txn import (
        AddPartitionsToTxnRequest,
        AddPartitionsToTxnResponse,
    )
    from penstock.protocol.messages.describe_transactions import DescribeTransactionsResponse
    from penstock.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
    from penstock.protocol.messages.init_producer_id import (
        InitProducerIdRequest,
        InitProducerIdResponse,
    )
    from penstock.protocol.messages.list_transactions import (
        ListTransactionsRequest,
        ListTransactionsResponse,
    )

    PartitionErrors = dict[TopicPartition, ErrorCode]
    Listed = Iterator[ListTransactionsResponse.TransactionState | None] | KafkaError

R = TypeVar("R")

_COORDINATOR = "penstock.coordinator.transactions"


class Transactions:
    """`open` it first; from then on it follows the metadata through `apply`. `write_local` appends
    markers to partitions that this broker leads."""

    def __init__(
        self,
        env: ShardEnv,
        config: NodeConfig,
        producer_ids: ProducerIds,
        write_local: WriteLocal,
    ) -> None:
        self._env = env
        request_timeout_s = config[REQUEST_TIMEOUT_MS] / 1000
        self._producer_ids = producer_ids
        self._max_hold_s = config[settings.ADD_PARTITIONS_TO_TXN_RETRY_BACKOFF_MAX_MS] / 1000
        self._held = HeldRequests()
        self._markers = TxnMarkers(
            env.world,
            env.node_id,
            env.metadata,
            env.spawn,
            request_timeout_s=request_timeout_s,
            write_local=write_local,
            is_current=self._is_current,
            written=self._markers_written,
        )
        self._shards: ShardSet[TransactionMachine, WriteMarkers] = ShardSet(
            env,
            TRANSACTION_TOPIC,
            self._new_machine,
            commit_timeout_s=request_timeout_s,
            perform=self._markers.perform,
            before_creation=_import_coordinator,
        )

    def open(self) -> None:
        self._shards.open()

    def close(self) -> None:
        self._shards.close()
        self._markers.close()
        self._held.close()

    def apply(self, image: MetadataImage, delta: MetadataDelta) -> None:
        self._shards.apply(image, delta)
        self._markers.apply(image, delta)

    @property
    def machines(self) -> list[TransactionMachine]:
        """The machines of the loaded shards, for metrics."""
        return self._shards.machines

    def _new_machine(self, partition: Partition) -> TransactionMachine:
        # Imported on first use, as handlers are: a node must start quickly.
        from penstock.coordinator.transactions.machine import TransactionMachine

        metadata = self._env.metadata

        def read_settings() -> TransactionSettings:
            from penstock.coordinator.transactions.table import TransactionSettings

            values = metadata.broker_config
            return TransactionSettings(
                max_timeout_ms=values[settings.TRANSACTION_MAX_TIMEOUT_MS],
                id_expiration_ms=values[settings.TRANSACTIONAL_ID_EXPIRATION_MS],
                id_expiration_interval_ms=values[settings.REMOVE_EXPIRED_INTERVAL_MS],
                two_phase_commit=values[settings.TWO_PHASE_COMMIT_ENABLE],
                transaction_version=metadata.image.features.get(TRANSACTION_VERSION, 0),
                max_batch_bytes=min(
                    partition.config.max_message_bytes, partition.config.segment_bytes
                ),
            )

        return TransactionMachine(read_settings, partition.leader_epoch)

    # Coordinators

    async def find_coordinators(self, transactional_ids: Sequence[str]) -> list[int | None]:
        """Return the broker that coordinates each transactional id, None if there is none now.
        Create __transaction_state on first use."""
        return await self._shards.find_coordinators(transactional_ids)

    def partition_of(self, transactional_id: str) -> int | None:
        """Return the partition of __transaction_state, None if the topic does not exist yet."""
        return self._shards.partition_of(transactional_id)

    # Requests of producers

    def init_producer_id(self, request: InitProducerIdRequest) -> Awaitable[InitProducerIdResponse]:
        from penstock.coordinator.transactions.responses import init_producer_id_error

        def refused(error: KafkaError) -> InitProducerIdResponse:
            return init_producer_id_error(error.code)

        def decide(
            new_id: int | None, machine: TransactionMachine, ticket: Ticket, now: Now
        ) -> Step[WriteMarkers]:
            return machine.init_producer_id(request, new_id, ticket, now)

        transactional_id = request.transactional_id or ""
        response = self._decide(
            transactional_id, partial(decide, None), refused, _has_concurrent_code
        )
        return self._with_producer_id(
            transactional_id, decide, refused, _has_concurrent_code, response
        )

    def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        *,
        verify_only: bool,
        transaction_version: int,
    ) -> PartitionErrors | Awaitable[PartitionErrors]:
        """Add partitions to the producer's transaction, or verify that they are part of it."""
        from penstock.coordinator.transactions.responses import partition_errors

        return self._decide(
            transactional_id,
            lambda machine, ticket, now: machine.add_partitions(
                transactional_id,
                producer_id,
                producer_epoch,
                partitions,
                verify_only,
                transaction_version,
                ticket,
                now,
            ),
            lambda error: partition_errors(partitions, error.code),
            _is_concurrent_for_all,
        )

    def add_partitions_to_txn(
        self, request: AddPartitionsToTxnRequest, version: int
    ) -> AddPartitionsToTxnResponse | Awaitable[AddPartitionsToTxnResponse]:
        from penstock.node.shards.txn_partitions import add_partitions_to_txn

        return add_partitions_to_txn(self, self._env.metadata.image, request, version)

    def end_txn(
        self, request: EndTxnRequest, version: int
    ) -> EndTxnResponse | Awaitable[EndTxnResponse]:
        from penstock.coordinator.transactions.responses import end_txn_error

        def refused(error: KafkaError) -> EndTxnResponse:
            return end_txn_error(error.code)

        def decide(
            new_id: int | None, machine: TransactionMachine, ticket: Ticket, now: Now
        ) -> Step[WriteMarkers]:
            return machine.end_txn(request, version, new_id, ticket, now)

        transactional_id = request.transactional_id
        response = self._decide(
            transactional_id, partial(decide, None), refused, _has_concurrent_code
        )
        # The usual response is a future of the shard, which costs less than a task.
        if transactional_id not in self._held and response is not _needs_producer_id():
            return response
        return self._with_producer_id(
            transactional_id, decide, refused, _has_concurrent_code, response
        )

    # Administration

    def describe(
        self, transactional_id: str
    ) -> (
        DescribeTransactionsResponse.TransactionState
        | Awaitable[DescribeTransactionsResponse.TransactionState]
    ):
        from penstock.coordinator.transactions.responses import describe_error

        return self._shards.read(
            transactional_id,
            lambda machine: machine.describe(transactional_id),
            lambda error: describe_error(transactional_id, error.code),
        )

    async def list_transactions(self, request: ListTransactionsRequest) -> list[Listed]:
        """Return one result per shard: its transactions, None for each that does not pass the
        filters, or the error that prevents listing them."""
        wall_ms = self._env.world.clock.now_ms()

        def listed(machine: TransactionMachine) -> Listed:
            return machine.list_transactions(
                request.state_filters,
                request.producer_id_filters,
                request.duration_filter,
                request.transactional_id_pattern,
                wall_ms,
            )

        def refused(error: KafkaError) -> Listed:
            return error

        return await self._shards.read_all(listed, refused)

    # Steps

    def _decide(
        self,
        transactional_id: str,
        decide: Decide[TransactionMachine, WriteMarkers],
        refused: Refused[R],
        is_concurrent: IsConcurrent[R],
    ) -> R | Awaitable[R]:
        """Run a step. Hold the request while the producer's previous transaction is being
        completed, unless that takes long."""
        attempt = partial(self._shards.decide, transactional_id, decide, refused)
        is_behind = transactional_id in self._held
        if not is_behind:
            response = attempt()
            # CONCURRENT_TRANSACTIONS needs no commit.
            if inspect.isawaitable(response) or not is_concurrent(response):
                return response
        seconds = self._hold_s(transactional_id)
        if seconds <= 0:
            return attempt() if is_behind else response
        return self._held.add(transactional_id, attempt, is_concurrent, seconds)

    def _hold_s(self, transactional_id: str) -> float:
        """Return how long a request may be held. The time since the completion began counts: one
        that is stuck does not delay every request of its producer, and those of others that a
        broker has sent with it."""
        began = self._markers.began(transactional_id)
        if began is None:
            return self._max_hold_s
        return began + self._max_hold_s - self._env.world.clock.monotonic()

    async def _with_producer_id(
        self,
        transactional_id: str,
        decide: Callable[[int | None, TransactionMachine, Ticket, Now], Step[WriteMarkers]],
        refused: Refused[R],
        is_concurrent: IsConcurrent[R],
        response: R | Awaitable[R],
    ) -> R:
        """Return the final response of a request whose first step had this one. The machine may
        need a new producer id, or have aborted an open transaction first."""
        was_repeated = False
        new_id: int | None = None
        while True:
            was_awaited = inspect.isawaitable(response)
            reply = await response if inspect.isawaitable(response) else response
            if reply is _needs_producer_id():
                try:
                    new_id = await self._producer_ids.next()
                except KafkaError as error:
                    return refused(error)
            elif was_awaited and not was_repeated and is_concurrent(reply):
                was_repeated = True
            else:
                return reply
            response = self._decide(
                transactional_id, partial(decide, new_id), refused, is_concurrent
            )

    # Markers

    def _is_current(self, effect: WriteMarkers) -> bool:
        return self._shards.epoch_of(effect.transactional_id) == effect.coordinator_epoch

    def _markers_written(self, effects: Collection[WriteMarkers]) -> None:
        by_shard: dict[int | None, list[WriteMarkers]] = {}
        for effect in effects:
            by_shard.setdefault(self.partition_of(effect.transactional_id), []).append(effect)
        for of_shard in by_shard.values():
            self._complete(of_shard)
        for effect in effects:
            self._held.release(effect.transactional_id)

    def _complete(self, effects: list[WriteMarkers]) -> None:
        """Complete transactions of one shard. If that shard was unloaded meanwhile, its successor
        writes the markers again."""
        try:
            self._shards.act(
                effects[0].transactional_id,
                lambda machine, now: machine.markers_written(effects, now),
            )
        except KafkaError:
            return


def _has_concurrent_code(response: Any) -> bool:
    return getattr(response, "error_code", None) == ErrorCode.CONCURRENT_TRANSACTIONS


def _is_concurrent_for_all(errors: PartitionErrors) -> bool:
    return ErrorCode.CONCURRENT_TRANSACTIONS in errors.values()


def _needs_producer_id() -> object:
    from penstock.coordinator.transactions.machine import NEEDS_PRODUCER_ID

    return NEEDS_PRODUCER_ID


async def _import_coordinator() -> None:
    """Import the coordinator's modules one at a time when the first transactional id appears: all
    of them in one run would block the event loop."""
    package = import_module(_COORDINATOR)
    for module in iter_modules(package.__path__, f"{_COORDINATOR}."):
        import_module(module.name)
        await asyncio.sleep(0)
