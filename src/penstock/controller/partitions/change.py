"""How a partition changes: every PartitionChangeRecord of this house is made here. PURE.

The rules are those of Kafka's PartitionChangeBuilder. A leader comes from the in-sync replicas, in
the order of the assignment. Those who leave them while fewer than min.insync.replicas are left stay
eligible (ELR, KIP-966): the watermark did not move meanwhile, so they have all that was
acknowledged, and one of them may lead when nobody is in sync. When both are empty the last leader
leads again once it is up; and an unclean election, where it is allowed, takes anybody. The last two
may lose records: the leader is marked as recovering.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, NamedTuple
from uuid import UUID

from penstock.controller.partitions.candidates import Candidates
from penstock.controller.topics.rules import TopicRules
from penstock.metadata.image import NO_LEADER, UNASSIGNED_DIRECTORY, PartitionState, TopicImage
from penstock.protocol.internal.metadata_topics import PartitionChangeRecord

RECOVERED, RECOVERING = 0, 1

Replicas = tuple[int, ...]


class Election(Enum):
    """What the election is held for: a leader that is up; the preferred one if it can be; anybody
    rather than none."""

    ONLINE = "online"
    PREFERRED = "preferred"
    UNCLEAN = "unclean"


class Wanted(NamedTuple):
    """What is asked of a partition besides a leader; None leaves things as they are. `unclean` is
    the broker that restarted without the proof that its log is whole, and so is eligible no more.
    """

    isr: Replicas | None = None
    recovery_state: int | None = None
    directories: tuple[UUID, ...] | None = None
    unclean: int | None = None


AS_IT_IS = Wanted()


class Change(NamedTuple):
    """The record, and a line for the log where the election may have lost records."""

    record: PartitionChangeRecord
    note: str | None


class _Elected(NamedTuple):
    leader: int
    unclean: bool = False


def change_partition(
    topic: TopicImage,
    index: int,
    state: PartitionState,
    rules: TopicRules,
    candidates: Candidates,
    election: Election = Election.ONLINE,
    wanted: Wanted = AS_IT_IS,
) -> Change | None:
    """None where everything stays as it is."""
    replicas, isr, reassigned = _reassigned(state, state.isr if wanted.isr is None else wanted.isr)
    elr = _eligible(state, rules, isr, wanted.unclean)
    elected = _elect(state, rules, candidates, election, replicas, isr, elr)
    changes: dict[str, Any] = {}
    if elected.leader != state.leader:
        changes["leader"] = elected.leader
        if elected.unclean:
            isr, elr = (elected.leader,), ()
            if state.leader_recovery_state != RECOVERING:
                changes["leader_recovery_state"] = RECOVERING
        elif elected.leader in elr:
            isr, elr = (
                (elected.leader,),
                tuple(replica for replica in elr if replica != elected.leader),
            )
    elif reassigned and not set(state.replicas) <= set(replicas):
        # A new leader epoch, so that the replicas that leave are heard no more.
        changes["leader"] = state.leader
    if elr != state.eligible_leader_replicas:
        changes["eligible_leader_replicas"] = elr
    # Without ELR the last in-sync replica stays one, also when it is gone.
    if isr != state.isr and (isr or rules.elr):
        changes["isr"] = isr
    _keep_last_leader(changes, state, rules)
    if reassigned:
        changes |= {"adding_replicas": (), "removing_replicas": ()} | (
            {"replicas": replicas} if replicas != state.replicas else {}
        )
    directories = _directories(state, replicas, wanted.directories)
    if directories != state.directories:
        changes["directories"] = directories
    if wanted.recovery_state is not None and wanted.recovery_state != state.leader_recovery_state:
        changes["leader_recovery_state"] = wanted.recovery_state
    if not changes:
        return None
    note = (
        _loss(topic, index, state, elected.leader)
        if elected.unclean and "leader" in changes
        else None
    )
    return Change(PartitionChangeRecord(topic_id=topic.id, partition_id=index, **changes), note)


def _reassigned(state: PartitionState, isr: Replicas) -> tuple[Replicas, Replicas, bool]:
    """A reassignment ends when all replicas that stay are in sync (KIP-455)."""
    if state.adding_replicas or state.removing_replicas:
        staying = tuple(
            replica for replica in state.replicas if replica not in state.removing_replicas
        )
        in_sync = tuple(replica for replica in isr if replica not in state.removing_replicas)
        if staying and in_sync and set(staying) <= set(in_sync):
            return staying, in_sync, True
    return state.replicas, isr, False


def _eligible(
    state: PartitionState, rules: TopicRules, isr: Replicas, unclean: int | None
) -> Replicas:
    if not rules.elr or len(isr) >= rules.min_isr:
        return ()
    eligible = {*state.eligible_leader_replicas, *state.isr}.difference(isr, (unclean,))
    return tuple(sorted(eligible))


def _elect(
    state: PartitionState,
    rules: TopicRules,
    candidates: Candidates,
    election: Election,
    replicas: Replicas,
    isr: Replicas,
    elr: Replicas,
) -> _Elected:
    trusted = isr or elr
    order = (
        (replicas[0], state.leader, *replicas)
        if election is Election.PREFERRED
        else (state.leader, *replicas)
    )
    for replica in order:
        if replica in trusted and candidates.may_lead(state, replica):
            return _Elected(replica)
    if (
        rules.elr
        and not trusted
        and len(state.last_known_elr) == 1
        and candidates.may_lead(state, state.last_known_elr[0])
    ):
        return _Elected(state.last_known_elr[0], unclean=True)
    if election is Election.UNCLEAN:
        for replica in replicas:
            if candidates.may_lead(state, replica):
                return _Elected(replica, unclean=True)
    return _Elected(NO_LEADER)


def _keep_last_leader(changes: dict[str, Any], state: PartitionState, rules: TopicRules) -> None:
    """While a partition has no leader, `last_known_elr` holds the one that it had last."""
    leader = changes.get("leader")
    if not rules.elr or leader is None:
        return
    if leader == NO_LEADER and not state.last_known_elr:
        changes["last_known_elr"] = (state.leader,)
    elif leader != NO_LEADER and state.last_known_elr:
        changes["last_known_elr"] = ()


def _directories(
    state: PartitionState, replicas: Replicas, wanted: tuple[UUID, ...] | None
) -> tuple[UUID, ...]:
    given = state.directories if wanted is None else wanted
    if replicas == state.replicas:
        return given
    where = dict(zip(state.replicas, given, strict=True))
    return tuple(where.get(replica, UNASSIGNED_DIRECTORY) for replica in replicas)


def _loss(topic: TopicImage, index: int, state: PartitionState, leader: int) -> str:
    kind = (
        "as the last known leader"
        if state.last_known_elr == (leader,)
        else "by an unclean election"
    )
    return (
        f"{topic.name}-{index}: broker {leader} leads {kind}, in leader epoch "
        f"{state.leader_epoch + 1}. What it does not have is lost: "
        f"everything above its log end that the replicas in sync {list(state.isr)} or eligible "
        f"{list(state.eligible_leader_replicas)} had"
    )
