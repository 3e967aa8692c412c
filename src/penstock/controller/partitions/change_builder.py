"""Builds every PartitionChangeRecord. PURE.

The rules are those of Kafka's `PartitionChangeBuilder`:

- A leader is elected from the ISR, in the order of the assignment.
- A replica that leaves the ISR while fewer than min.insync.replicas remain stays eligible (ELR,
  KIP-966). The high watermark does not advance meanwhile, so the replica has every acknowledged
  record, and may lead if the ISR is empty.
- If both are empty, the last known leader leads again once it is unfenced.
- An unclean election, where it is allowed, elects any replica.
- If ELR is disabled while a partition has no ISR, the eligible replicas stay until one leads. Kafka
  elects from them too, but discards them if none is online.

The third and the fourth may lose records: the leader is marked as recovering.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple
from uuid import UUID

from penstock.controller.partitions.election_config import ElectionConfig
from penstock.metadata.image import (
    MIGRATING_DIRECTORY,
    NO_LEADER,
    UNASSIGNED_DIRECTORY,
    MetadataImage,
    PartitionState,
    TopicImage,
)
from penstock.protocol.internal.metadata_topics import PartitionChangeRecord

RECOVERED, RECOVERING = 0, 1
# A replica whose directory is not known yet is assumed to be online.
_UNKNOWN_DIRECTORIES = (MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY)

Replicas = tuple[int, ...]


class Election(Enum):
    """The kind of election: keep or find an online leader; prefer the first replica; elect any
    replica if no eligible one is online."""

    ONLINE = "online"
    PREFERRED = "preferred"
    UNCLEAN = "unclean"


class PartitionTarget(NamedTuple):
    """The requested state of a partition, besides its leader. None means no change.

    `unclean_shutdown_replica` is a broker that restarted without a clean shutdown. Its log may lack
    acknowledged records, so it is no longer eligible to lead. `directories` has those of
    `replicas`, or of the current replicas if these do not change.
    """

    isr: Replicas | None = None
    leader_recovery_state: int | None = None
    directories: tuple[UUID, ...] | None = None
    unclean_shutdown_replica: int | None = None
    replicas: Replicas | None = None
    adding: Replicas | None = None
    removing: Replicas | None = None


UNCHANGED = PartitionTarget()


class PartitionChange(NamedTuple):
    """A record, and a warning if the election may have lost records."""

    record: PartitionChangeRecord
    warning: str | None


@dataclass(slots=True)
class PartitionChanges:
    """Collects the changes of one decision."""

    records: list[object] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def add(self, change: PartitionChange | None) -> None:
        if change is not None:
            self.records.append(change.record)
            if change.warning is not None:
                self.warnings.append(change.warning)


class AcceptableLeaders:
    """Which replicas may lead: those of active brokers whose log directory is online.

    `added` counts as active already, and `removed` as inactive already: the record that says so
    belongs to the same decision.
    """

    def __init__(
        self, image: MetadataImage, *, added: int | None = None, removed: int | None = None
    ) -> None:
        self._directories: Mapping[int, frozenset[UUID]] = {
            broker.id: frozenset((*broker.directories, *_UNKNOWN_DIRECTORIES))
            for broker in image.brokers.values()
            if broker.id != removed and (broker.id == added or broker.is_active)
        }

    def accepts(self, state: PartitionState, replica: int) -> bool:
        directories = self._directories.get(replica)
        return (
            directories is not None
            and replica in state.replicas
            and (
                len(directories) == len(_UNKNOWN_DIRECTORIES)
                or state.directories[state.replicas.index(replica)] in directories
            )
        )


class _Assignment(NamedTuple):
    replicas: Replicas
    adding: Replicas
    removing: Replicas


class _Elected(NamedTuple):
    leader: int
    unclean: bool = False


def build_partition_change(
    topic: TopicImage,
    index: int,
    state: PartitionState,
    config: ElectionConfig,
    leaders: AcceptableLeaders,
    election: Election = Election.ONLINE,
    target: PartitionTarget = UNCHANGED,
) -> PartitionChange | None:
    """Return the change that the target and the election require; None if there is none."""
    assignment, isr = _complete_reassignment(
        _target_assignment(state, target), state.isr if target.isr is None else target.isr
    )
    replicas = assignment.replicas
    elr = _eligible_leader_replicas(state, config, replicas, isr, target.unclean_shutdown_replica)
    elected = _elect(state, config, leaders, election, replicas, isr, elr)
    changes: dict[str, Any] = {}
    if elected.leader != state.leader:
        changes["leader"] = elected.leader
        if elected.unclean:
            isr, elr = (elected.leader,), ()
            if state.leader_recovery_state != RECOVERING:
                changes["leader_recovery_state"] = RECOVERING
        elif elected.leader in elr:
            isr = (elected.leader,)
            others = tuple(replica for replica in elr if replica != elected.leader)
            elr = others if config.elr_enabled else ()
    elif replicas is not state.replicas and not set(state.replicas) <= set(replicas):
        # A new leader epoch fences the fetches of the removed replicas.
        changes["leader"] = state.leader
    if elr != state.eligible_leader_replicas:
        changes["eligible_leader_replicas"] = elr
    # Without ELR the last in-sync replica stays in the ISR, even when it is offline.
    if isr != state.isr and (isr or config.elr_enabled):
        changes["isr"] = isr
    _update_last_known_elr(changes, state, config)
    changes |= _assignment_changes(state, assignment)
    directories = _target_directories(state, replicas, target)
    if directories != state.directories:
        changes["directories"] = directories
    recovery_state = target.leader_recovery_state
    if recovery_state is not None and recovery_state != state.leader_recovery_state:
        changes["leader_recovery_state"] = recovery_state
    if not changes:
        return None
    warning = (
        _data_loss_warning(topic, index, state, elected.leader)
        if elected.unclean and "leader" in changes
        else None
    )
    record = PartitionChangeRecord(topic_id=topic.id, partition_id=index, **changes)
    return PartitionChange(record, warning)


def _target_assignment(state: PartitionState, target: PartitionTarget) -> _Assignment:
    return _Assignment(
        state.replicas if target.replicas is None else target.replicas,
        state.adding_replicas if target.adding is None else target.adding,
        state.removing_replicas if target.removing is None else target.removing,
    )


def _complete_reassignment(assignment: _Assignment, isr: Replicas) -> tuple[_Assignment, Replicas]:
    """Complete a reassignment when all remaining replicas are in sync (KIP-455)."""
    replicas, adding, removing = assignment
    if adding or removing:
        remaining = tuple(replica for replica in replicas if replica not in removing)
        remaining_isr = tuple(replica for replica in isr if replica not in removing)
        if remaining and remaining_isr and set(remaining) <= set(remaining_isr):
            return _Assignment(remaining, (), ()), remaining_isr
    return assignment, isr


def _assignment_changes(state: PartitionState, assignment: _Assignment) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    if assignment.replicas != state.replicas:
        changes["replicas"] = assignment.replicas
    if assignment.adding != state.adding_replicas:
        changes["adding_replicas"] = assignment.adding
    if assignment.removing != state.removing_replicas:
        changes["removing_replicas"] = assignment.removing
    return changes


def _eligible_leader_replicas(
    state: PartitionState,
    config: ElectionConfig,
    replicas: Replicas,
    isr: Replicas,
    unclean_shutdown: int | None,
) -> Replicas:
    if len(isr) >= config.min_isr if config.elr_enabled else isr or not has_only_elr(state):
        return ()
    eligible = {*state.eligible_leader_replicas, *state.isr}.difference(isr, (unclean_shutdown,))
    if replicas is not state.replicas:
        # A replica that is removed gets no more records, so it must not lead later.
        eligible.intersection_update(replicas)
    return tuple(sorted(eligible))


def has_only_elr(state: PartitionState) -> bool:
    """Return True if the ISR is empty. Nothing was committed since, so the eligible replicas have
    every acknowledged record, also if ELR was disabled meanwhile."""
    return not state.isr and bool(state.eligible_leader_replicas)


def _elect(
    state: PartitionState,
    config: ElectionConfig,
    leaders: AcceptableLeaders,
    election: Election,
    replicas: Replicas,
    isr: Replicas,
    elr: Replicas,
) -> _Elected:
    eligible = isr or elr
    order = (
        (replicas[0], state.leader, *replicas)
        if election is Election.PREFERRED
        else (state.leader, *replicas)
    )
    for replica in order:
        if replica in eligible and leaders.accepts(state, replica):
            return _Elected(replica)
    if (
        config.elr_enabled
        and not eligible
        and len(state.last_known_elr) == 1
        and leaders.accepts(state, state.last_known_elr[0])
    ):
        return _Elected(state.last_known_elr[0], unclean=True)
    if election is Election.UNCLEAN:
        for replica in replicas:
            if leaders.accepts(state, replica):
                return _Elected(replica, unclean=True)
    return _Elected(NO_LEADER)


def _update_last_known_elr(
    changes: dict[str, Any], state: PartitionState, config: ElectionConfig
) -> None:
    """While a partition has no leader, `last_known_elr` holds its last leader."""
    leader = changes.get("leader")
    if leader is None:
        return
    if leader == NO_LEADER:
        if config.elr_enabled and state.leader != NO_LEADER and not state.last_known_elr:
            changes["last_known_elr"] = (state.leader,)
    elif state.last_known_elr:
        changes["last_known_elr"] = ()


def _target_directories(
    state: PartitionState, replicas: Replicas, target: PartitionTarget
) -> tuple[UUID, ...]:
    if target.directories is None or target.replicas is None:
        given, directories = state.replicas, target.directories or state.directories
    else:
        given, directories = target.replicas, target.directories
    if replicas == given:
        return directories
    directory_of = dict(zip(given, directories, strict=True))
    return tuple(directory_of.get(replica, UNASSIGNED_DIRECTORY) for replica in replicas)


def _data_loss_warning(topic: TopicImage, index: int, state: PartitionState, leader: int) -> str:
    kind = (
        "as the last known leader"
        if state.last_known_elr == (leader,)
        else "by an unclean election"
    )
    return (
        f"{topic.name}-{index}: broker {leader} was elected leader {kind} in leader epoch "
        f"{state.leader_epoch + 1}. Records above its log end offset that only the in-sync "
        f"replicas {list(state.isr)} or eligible replicas {list(state.eligible_leader_replicas)} "
        "have are lost"
    )
