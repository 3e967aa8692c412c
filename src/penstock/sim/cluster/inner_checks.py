"""The rules of INVARIANTS.md over the history of a run of a cluster: what only a look inside its
nodes shows. One small checker a rule."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from penstock.ids import TopicPartition
from penstock.sim.cluster.checks import Violation
from penstock.sim.cluster.history import (
    Advanced,
    Appended,
    Applied,
    Counted,
    Cut,
    Decided,
    Elected,
    History,
    Led,
    Ruled,
    Voted,
)


def too_few_in_sync_commit_nothing(history: History) -> Iterator[Violation]:
    """Rule 2, and KIP-966: the watermark does not move while the ISR is below
    min.insync.replicas."""
    for event in history.of(Advanced):
        if event.in_sync < event.min_insync:
            yield Violation(
                event.at,
                (
                    f"{event.in_sync} in sync moved the watermark of {event.partition} to "
                    f"{event.watermark}"
                ),
            )


def watermark_never_goes_back(history: History) -> Iterator[Violation]:
    """Rule 7, within a leader epoch."""
    last: dict[tuple[TopicPartition, int], int] = {}
    for event in history.of(Advanced):
        before = last.get((event.partition, event.epoch), -1)
        if event.watermark < before:
            text = (
                f"the watermark of {event.partition} went back from {before} to "
                f"{event.watermark} in leader epoch {event.epoch}"
            )
            yield Violation(event.at, text)
        last[event.partition, event.epoch] = event.watermark


def watermark_is_what_all_in_sync_have(history: History) -> Iterator[Violation]:
    """Rule 7."""
    for event in history.of(Advanced):
        for replica, end in event.ends.items():
            if end < event.watermark:
                text = (
                    f"node {event.node} moved the watermark of {event.partition} to "
                    f"{event.watermark}"
                )
                yield Violation(event.at, f"{text}, but in-sync replica {replica} ends at {end}")


def logs_match(history: History) -> Iterator[Violation]:
    """Rule 9: identical bytes up to the smallest watermark."""
    for partition, replicas in history.logs.items():
        least = min(log.high_watermark for log in replicas.values())
        committed = {
            node: [batch for batch in log.batches if batch[1] <= least]
            for node, log in replicas.items()
        }
        for (one, ours), (other, theirs) in pairwise(committed.items()):
            if ours != theirs:
                differ = next((a for a, b in zip(ours, theirs, strict=False) if a != b), None)
                place = (
                    f"at offset {differ[0]}"
                    if differ is not None
                    else f"in length: {len(ours)} and {len(theirs)} batches"
                )
                yield Violation(
                    history.ended,
                    (
                        f"replicas {one} and {other} of {partition} differ {place}, below the "
                        f"watermark {least}"
                    ),
                )


def leaders_come_from_the_in_sync(history: History) -> Iterator[Violation]:
    """Rule 10. Where nobody is in sync nor eligible the last known leader may lead again (KIP-966),
    or anybody if that is allowed."""
    for event in history.of(Elected):
        allowed = event.eligible or event.last_known
        if (
            event.leader >= 0
            and event.leader not in allowed
            and event.partition.topic not in history.unclean
        ):
            yield Violation(
                event.at,
                (
                    f"{event.leader} was elected to lead {event.partition}, but only "
                    f"{list(allowed)} "
                    "could be"
                ),
            )


def leaders_are_complete(history: History) -> Iterator[Violation]:
    """Rule 10: everything that was ever below a watermark."""
    for event in history.of(Led):
        if event.end_offset < event.highest and history.is_promised(event.partition):
            text = (
                f"node {event.node} leads {event.partition} in epoch {event.epoch} with a log "
                f"up to {event.end_offset}"
            )
            yield Violation(event.at, f"{text}, but {event.highest} is committed")


def divergence_is_cut_by_epoch(history: History) -> Iterator[Violation]:
    """Rule 11: nothing is dropped that the leader has too."""
    for event in history.of(Cut):
        if event.shared is not None and event.after < min(event.shared, event.before):
            text = (
                f"node {event.node} cut {event.partition} from {event.before} to "
                f"{event.after}, but shares {event.shared} with its leader"
            )
            yield Violation(event.at, text)


def old_leaders_take_nothing(history: History) -> Iterator[Violation]:
    """Rule 12: who knows of a later leader takes no records."""
    for event in history.of(Appended):
        if (event.known_leader, event.known_epoch) != (event.node, event.epoch):
            text = (
                f"node {event.node} took records of {event.partition} in epoch {event.epoch}, "
                f"and knew of leader {event.known_leader}"
            )
            yield Violation(event.at, f"{text} in epoch {event.known_epoch}")


def old_fetches_do_not_count(history: History) -> Iterator[Violation]:
    """Rule 12: a broker's earlier life acknowledges nothing, nor does a life that is not known."""
    for event in history.of(Counted):
        if event.broker_epoch != event.known_epoch:
            text = (
                f"node {event.node} counted a fetch of {event.partition} by broker "
                f"{event.replica} in epoch {event.broker_epoch}"
            )
            yield Violation(event.at, f"{text}, which is in epoch {event.known_epoch}")


def one_vote_an_epoch(history: History) -> Iterator[Violation]:
    """Rule 16."""
    votes: dict[tuple[int, int], int] = {}
    for event in history.of(Voted):
        if votes.setdefault((event.node, event.epoch), event.candidate) != event.candidate:
            text = (
                f"node {event.node} voted for {votes[event.node, event.epoch]} and for "
                f"{event.candidate} in epoch {event.epoch}"
            )
            yield Violation(event.at, text)


def one_quorum_leader_an_epoch(history: History) -> Iterator[Violation]:
    """Rule 16."""
    leaders: dict[int, int] = {}
    for event in history.of(Ruled):
        if leaders.setdefault(event.epoch, event.node) != event.node:
            yield Violation(
                event.at,
                (
                    f"nodes {leaders[event.epoch]} and {event.node} both led the quorum in epoch "
                    f"{event.epoch}"
                ),
            )


def metadata_needs_a_majority(history: History) -> Iterator[Violation]:
    """Rule 17: a majority has it on disk, and an earlier epoch's entry is not committed by counting
    alone."""
    for event in history.of(Decided):
        if event.holders * 2 <= event.voters:
            yield Violation(
                event.at,
                (
                    f"node {event.node} committed metadata up to {event.offset}; {event.holders} "
                    "of "
                    f"{event.voters} have it"
                ),
            )
        if event.entry_epoch != event.epoch:
            text = (
                f"node {event.node} committed metadata up to {event.offset} in epoch "
                f"{event.epoch}, by an entry of {event.entry_epoch}"
            )
            yield Violation(event.at, text)


def metadata_agrees(history: History) -> Iterator[Violation]:
    """Rule 17: identical everywhere, and it never changes."""
    seen: dict[int, Applied] = {}
    for event in history.of(Applied):
        first = seen.setdefault(event.offset, event)
        if first.fingerprint != event.fingerprint:
            yield Violation(
                event.at,
                (
                    f"committed metadata at {event.offset} differs between node {first.node} and "
                    "node "
                    f"{event.node}"
                ),
            )
