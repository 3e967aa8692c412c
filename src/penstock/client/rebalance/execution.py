"""Runs a plan: starts a bounded number of moves at a time, throttled, and waits for them.

The cluster has all state: ListPartitionReassignments lists the moves in progress, and a new plan
has the rest. So an interrupted rebalance continues with a new `Execution`.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from zlib import crc32

from penstock.client.admin.admin_client import ElectionType
from penstock.client.admin.reassignments import PartitionReassignment
from penstock.client.client import Client
from penstock.client.rebalance import throttles
from penstock.client.rebalance.model import ClusterView, Move, Plan
from penstock.client.rebalance.observe import read_log_dirs, target_of
from penstock.client.rebalance.throttles import Route
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import TopicPartition

# Partitions that move at the same time, unless the operator gives another number.
CONCURRENT_MOVES = 100
# How long to wait between two looks at the moves: while some complete, and otherwise.
_EAGER_POLL_S, _POLL_S = 0.1, 1.0
# Progress is read from the brokers that answer within this time.
_READ_TIMEOUT_S = 2.0
# How long brokers may take to learn of the last moves and elections.
_VISIBLE_S = 5.0
# Partitions of one ElectLeaders request.
_ELECTIONS_A_REQUEST = 1_000

Ongoing = Mapping[TopicPartition, PartitionReassignment]
# Errors after which a move is not needed any more, or an election was not.
_GONE = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
_NOT_ELECTED = frozenset({ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})


@dataclass(frozen=True, slots=True)
class Progress:
    """`unchanged_s` is the time since a move completed or copied bytes."""

    moves: int
    moves_done: int
    bytes: int
    bytes_done: int
    in_flight: tuple[Move, ...]
    unchanged_s: float = 0.0


@dataclass(slots=True)
class Result:
    """What a rebalance could not do, by partition."""

    failed: dict[TopicPartition, KafkaError] = field(default_factory=dict)
    not_elected: dict[TopicPartition, KafkaError] = field(default_factory=dict)


def moves_in_progress(view: ClusterView, ongoing: Ongoing) -> tuple[Move, ...]:
    """Return ongoing reassignments as moves, with the sizes of the view."""
    sizes = {TopicPartition(item.topic, item.partition): item.size for item in view.partitions}
    return tuple(
        Move(
            partition,
            tuple(
                replica for replica in reassignment.replicas if replica not in reassignment.adding
            ),
            target_of(reassignment),
            sizes.get(partition, 0),
        )
        for partition, reassignment in sorted(ongoing.items())
    )


class Execution:
    """Runs the moves of one plan, and those that are already in progress."""

    def __init__(
        self,
        client: Client,
        plan: Plan,
        in_progress: Collection[Move] = (),
        *,
        concurrent_moves: int = CONCURRENT_MOVES,
        throttle: int | None = None,
        report: Callable[[Progress], None] = lambda _progress: None,
    ) -> None:
        self._client = client
        self._plan = plan
        self._concurrent_moves = concurrent_moves
        self._throttle = throttle
        self._report = report
        planned = {move.partition for move in plan.moves}
        self._in_flight = {
            move.partition: move for move in in_progress if move.partition not in planned
        }
        copies = [move for move in plan.moves if move.adding or move.removing]
        # In the order of a hash of their names, so that all brokers take part at all times.
        self._pending = deque(sorted(copies, key=_order))
        self._reorders = [move for move in plan.moves if not move.adding and not move.removing]
        self._all = [*self._in_flight.values(), *copies]
        self._bytes = sum(move.bytes for move in self._all)
        self._by_topic: dict[str, list[Move]] = {}
        for move in self._all:
            self._by_topic.setdefault(move.partition.topic, []).append(move)
        # Moves that are not complete, by topic: the throttle of a topic ends with the last one.
        self._left = Counter(move.partition.topic for move in self._all)
        self._throttled: set[str] = set()
        # True once a move of this run may be in progress.
        self._is_submitted = False
        self._moves_done = 0
        self._bytes_done = 0
        self._copied: dict[TopicPartition, int] = {}
        self._changed_s = client.cluster.world.clock.monotonic()
        self.result = Result()

    async def run(self) -> Result:
        """Run all moves, elect preferred leaders, and remove the throttles.

        If it is cancelled or fails, the moves in progress go on, with their throttle. If it fails
        before there are any, the throttle is removed.
        """
        try:
            await self._run_moves()
        except Exception:
            if self._throttle is not None and not self._is_submitted and not self._in_flight:
                await self._clear_throttles()
            raise
        await self._alter(self._reorders)
        await self._elect_preferred()
        await self._clear_throttles()
        await self._check_replicas()
        self._report(self._progress())
        return self.result

    # Moves

    async def _run_moves(self) -> None:
        await self._set_rates()
        await self._throttle_topics(list(self._in_flight.values()))
        while self._pending or self._in_flight:
            await self._start_moves()
            is_done = await self._look()
            self._report(self._progress())
            if self._pending or self._in_flight:
                await asyncio.sleep(_EAGER_POLL_S if is_done else _POLL_S)

    async def _start_moves(self) -> None:
        room = self._concurrent_moves - len(self._in_flight)
        starting = [self._pending.popleft() for _ in range(min(room, len(self._pending)))]
        if not starting:
            return
        await self._throttle_topics(starting)
        for move in await self._alter(starting):
            self._in_flight[move.partition] = move

    async def _alter(self, moves: Collection[Move]) -> list[Move]:
        """Submit moves and return those that were accepted."""
        if not moves:
            return []
        self._is_submitted = True
        errors = await self._client.admin.alter_partition_reassignments(
            {move.partition: move.after for move in moves}
        )
        accepted = []
        for move in moves:
            error = errors.get(move.partition)
            if error is None:
                accepted.append(move)
                continue
            self._left[move.partition.topic] -= 1
            if error.code not in _GONE:
                self.result.failed[move.partition] = error
        return accepted

    async def _look(self) -> bool:
        """Find the moves that are complete. True if there are any."""
        ongoing = await self._client.admin.list_partition_reassignments(self._in_flight.keys())
        done = [move for name, move in self._in_flight.items() if name not in ongoing]
        for move in done:
            del self._in_flight[move.partition]
            self._copied.pop(move.partition, None)
            self._moves_done += 1
            self._bytes_done += move.bytes
            self._left[move.partition.topic] -= 1
        finished = {topic for topic in self._throttled if self._left[topic] <= 0}
        if finished:
            await throttles.clear_topics(self._client.cluster, sorted(finished))
            self._throttled -= finished
        copied = await self._read_copied()
        if done or copied != self._copied:
            self._changed_s = self._client.cluster.world.clock.monotonic()
        self._copied = copied
        return bool(done)

    async def _read_copied(self) -> dict[TopicPartition, int]:
        """Return how many bytes of each move in progress are on their destinations."""
        destinations: dict[int, list[TopicPartition]] = {}
        for name, move in self._in_flight.items():
            for broker in move.adding:
                destinations.setdefault(broker, []).append(name)
        if not destinations:
            return {}
        found = await read_log_dirs(
            self._client, sorted(destinations), list(self._in_flight), _READ_TIMEOUT_S
        )
        copied: Counter[TopicPartition] = Counter()
        for broker, directories in found.items():
            for directory in directories:
                for name in destinations[broker]:
                    replica = directory.replicas.get(name)
                    if replica is not None and not replica.is_future:
                        copied[name] += replica.size
        return {name: min(size, self._in_flight[name].bytes) for name, size in copied.items()}

    def _progress(self) -> Progress:
        return Progress(
            moves=len(self._all),
            moves_done=self._moves_done,
            bytes=self._bytes,
            bytes_done=self._bytes_done + sum(self._copied.values()),
            in_flight=tuple(self._in_flight.values()),
            unchanged_s=self._client.cluster.world.clock.monotonic() - self._changed_s,
        )

    async def _elect_preferred(self) -> None:
        partitions = dict.fromkeys([*self._plan.elections, *(move.partition for move in self._all)])
        for chunk in _chunks(partitions, _ELECTIONS_A_REQUEST):
            results = await self._client.admin.elect_leaders(ElectionType.PREFERRED, chunk)
            for partition, error in results.items():
                if error is not None and error.code not in _NOT_ELECTED:
                    self.result.not_elected[partition] = error

    async def _check_replicas(self) -> None:
        """Wait until the metadata shows the moves: a plan or a check that follows must not start
        from what was before them. Another client may have cancelled or replaced a move, which then
        failed."""
        unseen = {
            move.partition: move for move in self._all if move.partition not in self.result.failed
        }
        clock = self._client.cluster.world.clock
        deadline_s = clock.monotonic() + _VISIBLE_S
        while unseen:
            replicas = {
                TopicPartition(topic.name, info.index): info.replicas
                for topic in await self._client.admin.describe_topics()
                for info in topic.partitions
            }
            unseen = {
                name: move
                for name, move in unseen.items()
                # A topic may have been deleted.
                if name in replicas and set(replicas[name]) != set(move.after)
            }
            if not unseen or clock.monotonic() >= deadline_s:
                break
            await asyncio.sleep(_EAGER_POLL_S)
        for name, move in unseen.items():
            self._moves_done -= 1
            self._bytes_done -= move.bytes
            self.result.failed[name] = KafkaError(
                ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
                f"its replicas are {[*replicas[name]]} and not {[*move.after]}: another client "
                "cancelled or replaced its reassignment",
            )

    # Throttles

    async def _set_rates(self) -> None:
        if self._throttle is None:
            # An interrupted run may have left its own: without one the moves run at full speed.
            await clear_rates(self._client)
        else:
            brokers = throttles.route_brokers(_route(move) for move in self._all)
            await throttles.set_rate(self._client.cluster, brokers, self._throttle)

    async def _throttle_topics(self, starting: Collection[Move]) -> None:
        """Throttle all moves of the topics of which one starts."""
        if self._throttle is None:
            return
        topics = {move.partition.topic for move in starting} - self._throttled
        if not topics:
            return
        routes = {
            move.partition: _route(move) for topic in topics for move in self._by_topic[topic]
        }
        await throttles.throttle_topics(self._client.cluster, throttles.topic_throttles(routes))
        self._throttled |= topics

    async def _clear_throttles(self) -> None:
        """Remove the throttles of this run, and those that an interrupted one left."""
        await clear_rates(self._client)
        await clear_topic_throttles(self._client)


_RATES = (throttles.LEADER_RATE, throttles.FOLLOWER_RATE)


async def clear_rates(client: Client) -> None:
    """Remove the rates of all brokers: nothing says which ones an interrupted run has set."""
    brokers = (await client.admin.describe_cluster(with_fenced=True)).brokers
    await throttles.clear_brokers(client.cluster, [broker.id for broker in brokers], _RATES)


async def clear_topic_throttles(client: Client) -> None:
    cluster = client.cluster
    topics = await throttles.find_throttled(cluster, await client.admin.list_topics())
    await throttles.clear_topics(cluster, topics)


async def cancel(client: Client) -> dict[TopicPartition, KafkaError | None]:
    """Cancel all reassignments, remove the throttles, and return each partition's error or None."""
    ongoing = await client.admin.list_partition_reassignments()
    results = await client.admin.alter_partition_reassignments(dict.fromkeys(ongoing))
    await clear_rates(client)
    await clear_topic_throttles(client)
    return results


def _route(move: Move) -> Route:
    return Route(frozenset(move.before), frozenset(move.adding))


def _order(move: Move) -> tuple[int, TopicPartition]:
    return crc32(str(move.partition).encode()), move.partition


def _chunks(items: Iterable[TopicPartition], size: int) -> Iterator[list[TopicPartition]]:
    remaining = iter(items)
    while chunk := list(islice(remaining, size)):
        yield chunk
