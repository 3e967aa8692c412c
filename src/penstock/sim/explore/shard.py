"""Walks over a shard of the group coordinator: the machine and its runner, on a log that the walk
commits, refuses to write to, and loses the tail of. `shard_laws` has the laws."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import count
from types import SimpleNamespace
from typing import Any, Never
from uuid import UUID

from penstock.coordinator.consumer.group import ConsumerGroup
from penstock.coordinator.groups.machine import GroupMachine
from penstock.coordinator.groups.table import GroupSettings
from penstock.coordinator.runtime.step import Now, Step, Ticket
from penstock.errors import ErrorCode, KafkaError
from penstock.metadata.image import MetadataImage, PartitionState, TopicImage
from penstock.node.shards.internal_topics import OFFSETS_TOPIC
from penstock.protocol.messages.offset_fetch import OffsetFetchRequest
from penstock.records.compression import Codec
from penstock.sim.explore.shard_clients import (
    ClassicClient,
    Client,
    ConsumerClient,
    caller,
    commit_request,
    is_committed,
)
from penstock.sim.explore.shard_laws import ONE_OWNER, STUCK, ShardLaws
from penstock.sim.explore.shard_loop import TurnLoop
from penstock.sim.explore.shard_partition import MemoryLoader, MemoryShardPartition
from penstock.sim.explore.shard_runner import ExploredShard
from penstock.sim.explore.walk import Choices, Explorer, LawBroken

TURNS = 400
WALL_MS = 1_700_000_000_000
# After so long without faults every request has a reply.
RECOVERY_S = 300
# (group, is static) of the classic members and of the consumer protocol's members. Group "mixed"
# migrates between the protocols.
CLASSIC = (("classic", False), ("classic", True), ("classic", False), ("mixed", False))
CONSUMERS = (("consumer", False), ("consumer", True), ("consumer", False), ("mixed", False))

_REFUSALS = (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.MESSAGE_TOO_LARGE)

Reply = Callable[[object], None]


def _image(counts: dict[str, int]) -> MetadataImage:
    state = PartitionState(replicas=(1,), isr=(1,), leader=1)
    topics = {
        name: TopicImage(name, UUID(int=1_000 + ord(name)), dict.fromkeys(range(partitions), state))
        for name, partitions in counts.items()
    }
    return MetadataImage(
        topics=topics, topic_names={topic.id: name for name, topic in topics.items()}
    )


class ShardWalk:
    def __init__(self, choices: Choices) -> None:
        self.choices = choices
        self.lines: list[str] | None = None
        self._loop = TurnLoop()
        self._partition = MemoryShardPartition(OFFSETS_TOPIC)
        self._settings = GroupSettings(
            consumer_assignment_interval_ms=(0, 1_000)[choices.below(2)],
            initial_rebalance_delay_ms=(0, 3_000)[choices.below(2)],
        )
        # Percentages of turns.
        self._commits = (10, 30)[choices.below(2)]
        self._faults = (2, 6)[choices.below(2)]
        self._counts = {"t": 4, "u": 2}
        self._image = _image(self._counts)
        self._uuids, self._offsets = count(1), count(1)
        self._waiting: list[tuple[asyncio.Future[Any], Reply]] = []
        self._replies = self._moves = 0
        self._laws = ShardLaws(self._partition, self._new_machine())
        self._clients: list[Client] = [
            kind(self, f"{kind.__name__}{number}", group, f"i{number}" if is_static else None)
            for kind, members in ((ClassicClient, CLASSIC), (ConsumerClient, CONSUMERS))
            for number, (group, is_static) in enumerate(members)
        ]
        with self._loop.running():
            self._shard = self._load()

    def note(self, *parts: object) -> None:
        if self.lines is not None:
            self.lines.append(" ".join(map(str, parts)))

    def counts(self) -> dict[str, int]:
        return {
            "elections": self._moves,
            "committed": self._partition.committed,
            "replies": self._replies,
        }

    def close(self) -> None: ...

    # The shard

    def _new_machine(self) -> GroupMachine:
        return GroupMachine(
            lambda: self._settings, self._image, lambda: UUID(int=next(self._uuids))
        )

    def _load(self) -> ExploredShard[GroupMachine, Never]:
        clock = SimpleNamespace(
            monotonic=self._loop.time, now_ms=lambda: WALL_MS + int(self._loop.time() * 1000)
        )
        world: Any = SimpleNamespace(clock=clock)
        partition: Any = self._partition
        shard: ExploredShard[GroupMachine, Never] = ExploredShard(
            world,
            partition,
            self._new_machine(),
            commit_timeout_s=5.0,
            codec=Codec.NONE,
            on_failed=self._on_failed,
            perform=lambda _effect: None,
        )
        shard.observe(self._laws)
        if not shard.load_empty():
            loader: Any = MemoryLoader()
            self._loop.create_task(shard.load(loader))
        return shard

    def _on_failed(self) -> None:
        raise LawBroken("the machine does not fail", "the shard is loaded again")

    def _fail_over(self) -> None:
        """Move the coordinator away and back; a part of what is not committed is lost."""
        ends = self._partition.uncommitted_ends()
        kept = ends[self.choices.below(len(ends))]
        self.note("failover: keeps", kept, "of", self._partition.log_end_offset)
        self._moves += 1
        self._partition.fail_over(kept)
        self._shard.unload(KafkaError(ErrorCode.NOT_COORDINATOR, "moved"))
        self._laws.restart(self._new_machine())
        self._shard = self._load()
        self._partition.commit(kept)
        self._loop.pass_time(0)
        self._laws.loaded(self._shard.machine)

    def ask(
        self,
        text: str,
        decide: Callable[[GroupMachine, Ticket, Now], Step[Never]],
        on_reply: Reply,
        *,
        needs_writes: bool = True,
    ) -> None:
        """Send a request to the shard. An error is a reply too."""
        self.note(text)
        try:
            reply: Any = self._shard.decide(decide, lambda error: error, needs_writes=needs_writes)
        except KafkaError as error:
            reply = error
        if isinstance(reply, asyncio.Future):
            self._waiting.append((reply, on_reply))
        else:
            on_reply(reply)

    def commit_offset(self, group: str, member_id: str, epoch: int, instance: str | None) -> None:
        offset = next(self._offsets)
        request = commit_request(group, member_id, epoch, instance, offset)
        acknowledged = self._laws.acknowledged

        def on_reply(reply: object) -> None:
            if is_committed(reply):
                acknowledged[group] = max(acknowledged.get(group, -1), offset)

        self.ask(
            f"commit of {offset} by {member_id} in {epoch}",
            lambda machine, ticket, now: machine.offset_commit(request, caller(9), ticket, now),
            on_reply,
        )

    # Turns

    def turn(self) -> None:
        with self._loop.running():
            self._laws.is_checking_traces = self.choices.below(4) == 0
            self._act()
        self._learn()

    def _act(self) -> None:
        choices, dice = self.choices, self.choices.below(100)
        if dice < self._faults:
            self._fault()
        elif dice < 10:
            seconds = (0.1, 1.0, 4.0, 21.0, 46.0)[choices.below(5)]
            self.note(seconds, "s pass")
            self._loop.pass_time(seconds)
        elif dice < 10 + self._commits:
            ends = self._partition.uncommitted_ends()
            self._partition.commit(ends[-1 if choices.below(2) else choices.below(len(ends))])
        elif dice < 44:
            self._read(("classic", "consumer", "mixed")[choices.below(3)])
        else:
            self._clients[choices.below(len(self._clients))].act()

    def _fault(self) -> None:
        dice = self.choices.below(10)
        if dice < 3:
            self._fail_over()
        elif dice < 6:
            self._partition.refusal = _REFUSALS[self.choices.below(2)]
            self.note("the next append is refused:", self._partition.refusal)
        elif dice < 8:
            leader = self._partition.leader
            leader.enough_in_sync = not leader.enough_in_sync
            self.note("enough in sync:", leader.enough_in_sync)
            self._partition.notify()
        else:
            topic = ("t", "u")[self.choices.below(2)]
            self._counts[topic] += 1
            self._image = _image(self._counts)
            self.note("topics:", self._counts)
            self._shard.image_changed(self._image)

    def _read(self, group: str) -> None:
        request = OffsetFetchRequest.Group(group_id=group, topics=None)
        try:
            reply: Any = self._shard.read(
                lambda machine: machine.offset_fetch(request, version=9), lambda error: error
            )
        except KafkaError:
            return
        if isinstance(reply, asyncio.Future):
            self._waiting.append((reply, lambda _reply: None))

    def _learn(self) -> None:
        """Give the replies that have arrived to the clients, and check what they own."""
        done = [waiting for waiting in self._waiting if waiting[0].done()]
        if done:
            self._waiting = [waiting for waiting in self._waiting if not waiting[0].done()]
            self._replies += len(done)
            for future, on_reply in done:
                on_reply(future.result())
            self._check_owners()

    def _check_owners(self) -> None:
        group = self._shard.machine.groups.by_id.get("consumer")
        if not isinstance(group, ConsumerGroup):
            return
        owners: dict[tuple[UUID, int], str] = {}
        for client in self._clients:
            if not isinstance(client, ConsumerClient) or client.group != group.id:
                continue
            member = group.members.get(client.member_id)
            if member is None or client.epoch not in (member.epoch, member.previous_epoch):
                continue
            for partition in client.owned if client.epoch > 0 else ():
                owner = owners.setdefault(partition, client.member_id)
                if owner != client.member_id:
                    raise LawBroken(
                        ONE_OWNER, f"{owner} and {client.member_id} own partition {partition[1]}"
                    )

    # Recovery

    def end(self) -> None:
        """Everything is committed and no one sends: every request gets a reply."""
        self._partition.refusal = None
        self._partition.leader.enough_in_sync = True
        for _second in range(RECOVERY_S):
            with self._loop.running():
                self._partition.commit(self._partition.log_end_offset)
                self._loop.pass_time(1.0)
            self._learn()
            if not self._waiting:
                break
        else:
            raise LawBroken(STUCK, f"{len(self._waiting)} requests still wait")
        with self._loop.running():
            self._fail_over()
            self._shard.unload(KafkaError(ErrorCode.NOT_COORDINATOR, "the walk ends"))


SHARD = Explorer("shard", TURNS, ShardWalk)
