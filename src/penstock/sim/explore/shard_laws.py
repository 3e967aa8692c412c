"""The laws of the shard explorer.

The log replays to the state that the machine holds; a reply leaves when everything before it is
committed; a refused step leaves no trace; an acknowledged offset is never lost (rules 12, 13 and
14, and the laws of `coordinator.runtime.step`).
"""

from __future__ import annotations

from penstock.coordinator.classic.group import ClassicGroup
from penstock.coordinator.consumer.group import ConsumerGroup
from penstock.coordinator.groups.machine import GroupMachine
from penstock.coordinator.groups.step import decode
from penstock.coordinator.groups.table import GroupTable
from penstock.coordinator.runtime.step import PLAIN
from penstock.sim.explore.shard_partition import MemoryShardPartition
from penstock.sim.explore.shard_runner import REPLAY
from penstock.sim.explore.walk import LawBroken

OFFSET_LOST = "acknowledged offsets are never lost"
ONE_OWNER = "no partition has two owners"
STUCK = "every request gets a reply"


def durable_state(groups: GroupTable, group_id: str) -> object:
    """Return what the log holds of a group. Of a classic group only the last complete generation is
    durable: between generations there is nothing to compare."""
    group, offsets = groups.by_id.get(group_id), dict(groups.offsets.of_group(group_id))
    if isinstance(group, ConsumerGroup):
        return (
            offsets,
            (group.epoch, group.metadata_hash, group.target_epoch, group.target_at_ms),
            group.members,
            group.targets,
            group.regexes,
            group.static_ids,
            group.owners,
        )
    if isinstance(group, ClassicGroup):
        members = [
            (member.id, member.instance_id, member.metadata(group.protocol), member.assignment)
            for member in group.members.values()
        ]
        return (
            offsets,
            group.state_name,
            group.generation,
            group.protocol,
            group.leader_id,
            members,
        )
    return offsets, group


def is_settled(groups: GroupTable, group_id: str) -> bool:
    group = groups.by_id.get(group_id)
    return not isinstance(group, ClassicGroup) or group.state_name in ("Empty", "Stable")


def _whole_state(machine: GroupMachine, *, with_deadlines: bool) -> object:
    """Return everything that a step may change, for comparison."""
    groups = machine.groups
    return (
        {
            group.id: (group.kind, list(getattr(group, "members", ())), _copied(vars(group)))
            for group in groups.by_id.values()
        },
        {group_id: dict(groups.offsets.of_group(group_id)) for group_id, _ in groups.offsets},
        dict(groups.deadlines._due) if with_deadlines else None,
    )


def _copied(value: object) -> object:
    """Copy nested dictionaries. What they hold are values."""
    return {key: _copied(each) for key, each in value.items()} if isinstance(value, dict) else value


class ShardLaws:
    """`shadow` replays every record that the shard appends."""

    def __init__(self, partition: MemoryShardPartition, shadow: GroupMachine) -> None:
        self._partition = partition
        self.shadow = shadow
        self._replayed = 0
        # Group -> the highest offset that was acknowledged.
        self.acknowledged: dict[str, int] = {}
        self.is_checking_traces = False

    def whole_state(self, machine: GroupMachine, *, with_deadlines: bool) -> object:
        return _whole_state(machine, with_deadlines=with_deadlines)

    def restart(self, shadow: GroupMachine) -> None:
        """The shard is loaded again from what is left of the log."""
        self.shadow, self._replayed = shadow, 0
        self._replay()

    def _replay(self) -> set[str]:
        """Replay the records that are new. Return the groups that they belong to."""
        touched: set[str] = set()
        for record in self._partition.records[self._replayed :]:
            self.shadow.replay(record, PLAIN)
            key, _value = decode(record.key, record.value)
            touched.add(str(getattr(key, "group", None) or getattr(key, "group_id", None)))
        self._replayed = self._partition.log_end_offset
        return touched

    def stepped(self, machine: GroupMachine) -> None:
        for group_id in sorted(self._replay()):
            self._compare(machine, group_id)

    def loaded(self, machine: GroupMachine) -> None:
        for group_id in sorted({*machine.groups.by_id, *self.shadow.groups.by_id}):
            self._compare(machine, group_id)
        for group_id, acknowledged in self.acknowledged.items():
            self.check_offset(machine, group_id, acknowledged)

    def _compare(self, machine: GroupMachine, group_id: str) -> None:
        if not is_settled(machine.groups, group_id):
            return
        live = durable_state(machine.groups, group_id)
        replayed = durable_state(self.shadow.groups, group_id)
        if live != replayed:
            raise LawBroken(REPLAY, f"group {group_id}: live {live}, replayed {replayed}")

    def check_offset(self, machine: GroupMachine, group_id: str, acknowledged: int) -> None:
        committed = machine.groups.offsets.of_group(group_id)
        stored = max((offset.offset for offset in committed.values()), default=-1)
        if stored < acknowledged:
            raise LawBroken(
                OFFSET_LOST,
                f"group {group_id}: {acknowledged} was acknowledged, and {stored} is stored",
            )
