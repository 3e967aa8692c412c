"""Rules 12 to 14 over random histories of a classic group: members join, leave, crash and stall,
the log's tail is lost, the coordinator moves.

As in the runner, replies leave when the log is committed; records that are not committed are lost
with the broker.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple, Never

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from penstock.coordinator.classic.group import ClassicGroup
from penstock.coordinator.groups.machine import GroupMachine
from penstock.coordinator.runtime.step import Reply, Step
from penstock.errors import ErrorCode
from penstock.protocol.messages.join_group import JoinGroupResponse
from penstock.protocol.messages.offset_commit import OffsetCommitResponse
from penstock.protocol.messages.sync_group import SyncGroupResponse
from tests.coordinator.group_world import GROUP, World, subscription

CLIENTS = 4
STATIC = (2, 3)
clients = st.integers(0, CLIENTS - 1)


class CommittedWorld(World):
    """Holds replies until the log is committed; `reload` loses records that are not."""

    def __init__(self) -> None:
        self.held: list[Reply] = []
        self.committed_length = 0
        super().__init__()

    def take(self, step: Step[Never]) -> Step[Never]:
        super().take(replace(step, replies=step.replies if step.immediate else ()))
        if not step.immediate:
            self.held.extend(step.replies)
        if self.committed_length == len(self.log):
            self.release()
        return step

    def release(self) -> None:
        self.committed_length = len(self.log)
        super().take(Step(replies=tuple(self.held)))
        self.held.clear()

    def reload(self) -> None:
        del self.log[self.committed_length :]
        del self.batches[self.committed_length :]
        self.replies.update(dict.fromkeys((ticket for ticket, _ in self.held), None))
        self.held.clear()
        super().reload()


class Client:
    """What a consumer knows of its membership."""

    def __init__(self, index: int) -> None:
        self.instance = f"i{index}" if index in STATIC else None
        self.restart()

    def restart(self) -> None:
        """Restart the process: it forgets its requests and its membership."""
        self.member_id = ""
        self.generation = -1
        self.led: tuple[str, ...] = ()
        self.joining: int | None = None
        self.syncing: int | None = None

    def joined(self, answer: JoinGroupResponse | None) -> None:
        self.joining = None
        if answer is None or answer.error_code in (
            ErrorCode.NOT_COORDINATOR,
            ErrorCode.REBALANCE_IN_PROGRESS,
        ):
            return
        self.member_id = answer.member_id
        if answer.error_code == ErrorCode.NONE:
            self.generation = answer.generation_id
            self.led = () if answer.skip_assignment else tuple(m.member_id for m in answer.members)
        elif answer.error_code != ErrorCode.MEMBER_ID_REQUIRED:
            self.restart()


class Durable(NamedTuple):
    """What the log holds of a group."""

    state: str
    since_ms: int
    generation: int
    protocol: str | None
    protocol_type: str | None
    leader: str | None
    subscribed: frozenset[str] | None
    members: tuple[tuple[str, str | None, int, int, bytes, bytes], ...]


def durable(shard: GroupMachine) -> Durable | None:
    group = shard.groups.by_id.get(GROUP)
    if not isinstance(group, ClassicGroup):
        return None
    return Durable(
        group.state_name,
        group.state_since_ms,
        group.generation,
        group.protocol,
        group.protocol_type,
        group.leader_id,
        group.subscribed_topics,
        tuple(
            (
                m.id,
                m.instance_id,
                m.session_timeout_ms,
                m.rebalance_timeout_ms,
                m.metadata(group.protocol),
                m.assignment,
            )
            for m in group.members.values()
        ),
    )


class ClassicGroupHistories(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.world = CommittedWorld()
        self.clients = [Client(index) for index in range(CLIENTS)]
        self.syncs: dict[int, tuple[int, str]] = {}
        self.sources_used = 0
        # The leader's request that assigned a generation, and the owner of each assignment.
        self.sources: dict[int, bytes] = {}
        self.owners: dict[bytes, str] = {}
        self.commits: dict[int, int] = {}
        self.next_offset = 0
        self.acknowledged = -1
        self.fence = 0

    @rule(client=clients, changed=st.booleans())
    def join(self, client: int, changed: bool) -> None:
        """Join, also while an earlier request waits: the client timed out."""
        me = self.clients[client]
        protocols = {
            "range": subscription("t", "u") if changed else subscription("t"),
            "sticky": subscription("t"),
        }
        me.joining = self.world.join(
            me.member_id,
            instance=me.instance,
            protocols=protocols,
            session_ms=15_000,
            rebalance_ms=20_000,
        )

    @rule(client=clients)
    def sync(self, client: int) -> None:
        me = self.clients[client]
        if me.generation >= 0 and me.joining is None:
            self.sources_used += 1
            source = str(self.sources_used).encode()
            assignments = {member: source + b"/" + member.encode() for member in me.led}
            me.syncing = self.world.sync(
                me.member_id, me.generation, assignments, instance=me.instance
            )
            self.syncs[me.syncing] = me.generation, me.member_id

    @rule(first=clients, changed=st.booleans())
    def settle(self, first: int, changed: bool) -> None:
        """Let all clients behave well: random steps alone seldom make a generation stable."""
        for index in (first, *range(CLIENTS), *range(CLIENTS)):
            if self.clients[index].joining is None:
                self.join(index, changed and index == first)
                self.learn()
        self.wait(6_000)
        self.commit_the_log()
        for index in range(CLIENTS):
            self.sync(index)

    @rule(client=clients)
    def settle_and_commit(self, client: int) -> None:
        self.settle(client, False)
        self.commit_the_log()
        self.commit(client, 0)
        self.commit(client, 1)

    @rule(client=clients)
    def beat(self, client: int) -> None:
        me = self.clients[client]
        code = self.world.beat(me.member_id, me.generation, instance=me.instance)
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            me.restart()

    @rule(client=clients, stale_by=st.sampled_from([0, 0, 1, 2]))
    def commit(self, client: int, stale_by: int) -> None:
        me = next((me for me in self.clients[client:] + self.clients if me.generation >= 0), None)
        if me is None:
            return
        generation = max(me.generation - stale_by, 0)
        before = self.world.offsets()
        ticket = self.world.send_commit(
            self.next_offset, me.member_id, generation, instance=me.instance
        )
        if self.world.offsets() != before:
            assert generation >= self.fence, "a stale generation committed"
            self.commits[ticket] = self.next_offset
        self.next_offset += 1

    @rule(client=clients)
    def leave(self, client: int) -> None:
        me = self.clients[client]
        if me.member_id:
            self.world.send_leave(me.member_id, instance=me.instance)
            me.restart()

    @rule(client=clients, comes_back=st.booleans())
    def crash(self, client: int, comes_back: bool) -> None:
        self.clients[client].restart()
        if comes_back:
            self.join(client, False)

    @rule(ms=st.sampled_from([1, 2_000, 15_000, 60_000]))
    def wait(self, ms: int) -> None:
        self.world.wait(ms)

    @rule()
    def commit_the_log(self) -> None:
        self.world.release()
        self.learn()

    @rule()
    def move_the_coordinator(self) -> None:
        self.world.reload()

    @invariant()
    def learn(self) -> None:
        """Deliver the replies to the clients and check them against the rules."""
        for me in self.clients:
            if me.joining in self.world.replies:
                answer = self.world.replies[me.joining]
                me.joined(answer if isinstance(answer, JoinGroupResponse) else None)
        for ticket in [ticket for ticket in self.syncs if ticket in self.world.replies]:
            self._check_assignment(ticket)
        for ticket in [ticket for ticket in self.commits if ticket in self.world.replies]:
            if isinstance(self.world.replies[ticket], OffsetCommitResponse):
                self.acknowledged = max(self.acknowledged, self.commits[ticket])
            del self.commits[ticket]

    def _check_assignment(self, ticket: int) -> None:
        generation, member_id = self.syncs.pop(ticket)
        answer = self.world.replies[ticket]
        if (
            not isinstance(answer, SyncGroupResponse)
            or answer.error_code != ErrorCode.NONE
            or not answer.assignment
        ):
            return
        source, owner = answer.assignment.split(b"/")
        assert self.sources.setdefault(generation, source) == source, (
            "one generation has two assignments"
        )
        assert self.owners.setdefault(
            answer.assignment, member_id
        ) == member_id or owner.startswith(b"i"), "two dynamic owners"
        self.fence = max(self.fence, generation)

    @invariant()
    def no_acknowledged_offset_is_lost(self) -> None:
        assert self.world.committed() >= self.acknowledged

    @invariant()
    def the_log_replays_to_the_machines_state(self) -> None:
        live, read = self.world.machine, self.world.replayed()
        for shard in (live, read):
            assert list(shard.groups.offsets) == list(live.groups.offsets)
        assert read.groups.offsets.of_group(GROUP) == live.groups.offsets.of_group(GROUP)
        held, written = durable(live), durable(read)
        if held is None or held.state in ("Empty", "Stable"):
            assert held == written

    @invariant()
    def the_group_is_consistent(self) -> None:
        group = self.world.machine.groups.by_id.get(GROUP)
        if isinstance(group, ClassicGroup):
            assert group.is_empty == (
                not group.members and group.state_name != "PreparingRebalance"
            )
            assert set(group.static_ids.values()) == {
                m.id for m in group.members.values() if m.instance_id is not None
            }
            assert not group.members or group.leader_id in group.members
            assert all(member.id == key for key, member in group.members.items())

    def _all_clients_settle(self) -> None:
        """After a few rounds of good behaviour all clients are in one stable generation."""
        for _ in range(10):
            self.settle(0, False)
            self.commit_the_log()
            group = self.world.group
            if group.state_name == "Stable" and set(group.members) == {
                me.member_id for me in self.clients
            }:
                assert all(member.assignment for member in group.members.values())
                return
            for client in range(CLIENTS):
                self.beat(client)
        raise AssertionError(f"the group does not settle: it is {self.world.group.state_name}")

    def teardown(self) -> None:
        """After that, without requests, all sessions time out, and every request has a reply."""
        if not hasattr(self, "world"):
            return
        self._all_clients_settle()
        self.world.wait(3_600_000)
        self.world.release()
        assert self.world.replies.keys() == self.world.tickets.keys()
        group = self.world.machine.groups.by_id.get(GROUP)
        assert group is None or group.is_empty


TestClassicGroupHistories = ClassicGroupHistories.TestCase
TestClassicGroupHistories.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None
)
