"""Rules of replication: high watermark, ISR, leader elections, truncation and fencing. Observers
inside the nodes provide the evidence."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from penstock.ids import TopicPartition
from penstock.sim.cluster.events import (
    BecameLeader,
    FollowerFetchAccepted,
    HighWatermarkAdvanced,
    LeaderAppended,
    LeaderElected,
    LogTruncated,
)
from penstock.sim.cluster.history import History, Violation


def no_commit_below_min_insync(history: History) -> Iterator[Violation]:
    """Rule 2, and KIP-966: the high watermark does not advance while the ISR is smaller than
    min.insync.replicas."""
    for event in history.of(HighWatermarkAdvanced):
        if event.isr_size < event.min_insync:
            text = (
                f"an ISR of {event.isr_size} advanced the high watermark of {event.partition} to "
                f"{event.high_watermark}"
            )
            yield Violation(event.at, f"{text}, but min.insync.replicas is {event.min_insync}")


def high_watermark_never_goes_back(history: History) -> Iterator[Violation]:
    """Rule 7, within a leader epoch."""
    last: dict[tuple[TopicPartition, int], int] = {}
    for event in history.of(HighWatermarkAdvanced):
        before = last.get((event.partition, event.epoch), -1)
        if event.high_watermark < before:
            text = (
                f"the high watermark of {event.partition} went back from {before} to "
                f"{event.high_watermark} in leader epoch {event.epoch}"
            )
            yield Violation(event.at, text)
        last[event.partition, event.epoch] = event.high_watermark


def high_watermark_is_in_every_isr_log(history: History) -> Iterator[Violation]:
    """Rule 7: never above the log end of an ISR member that has not crashed since."""
    for event in history.of(HighWatermarkAdvanced):
        for replica, end in event.isr_ends.items():
            if end < event.high_watermark:
                text = (
                    f"node {event.node} advanced the high watermark of {event.partition} to "
                    f"{event.high_watermark}"
                )
                yield Violation(event.at, f"{text}, but in-sync replica {replica} ends at {end}")


def logs_match(history: History) -> Iterator[Violation]:
    """Rule 9: identical bytes up to the smallest high watermark."""
    for partition, replicas in history.final_logs.items():
        smallest = min(log.high_watermark for log in replicas.values())
        start = max(log.start_offset for log in replicas.values())
        committed = {
            node: [batch for batch in log.batches if start <= batch[0] and batch[1] <= smallest]
            for node, log in replicas.items()
        }
        for (first, ours), (second, theirs) in pairwise(committed.items()):
            if ours == theirs:
                continue
            differing = next((a for a, b in zip(ours, theirs, strict=False) if a != b), None)
            place = (
                f"at offset {differing[0]}"
                if differing is not None
                else f"in length: {len(ours)} and {len(theirs)} batches"
            )
            text = f"replicas {first} and {second} of {partition} differ {place}"
            yield Violation(history.ended_at, f"{text}, below the high watermark {smallest}")


def only_eligible_replicas_are_elected(history: History) -> Iterator[Violation]:
    """Rule 10. With an empty ISR and ELR the last known leader may lead again (KIP-966), or any
    replica if unclean.leader.election.enable is set."""
    for election in history.of(LeaderElected):
        allowed = election.eligible or election.last_known
        unclean = election.partition.topic in history.unclean_topics
        if election.leader >= 0 and election.leader not in allowed and not unclean:
            text = f"{election.leader} was elected to lead {election.partition}"
            yield Violation(election.at, f"{text}, but only {list(allowed)} were eligible")


def leaders_are_complete(history: History) -> Iterator[Violation]:
    """Rule 10: a new leader has every record that was ever below a high watermark."""
    for event in history.of(BecameLeader):
        if event.end_offset < event.max_high_watermark and history.is_durable(event.partition):
            text = (
                f"node {event.node} leads {event.partition} in epoch {event.epoch} with a log "
                f"up to {event.end_offset}"
            )
            yield Violation(event.at, f"{text}, but {event.max_high_watermark} is committed")


def divergence_is_truncated_by_epoch(history: History) -> Iterator[Violation]:
    """Rule 11: a follower truncates no batch that its leader has too."""
    for event in history.of(LogTruncated):
        if event.common_end is not None and event.after < min(event.common_end, event.before):
            text = (
                f"node {event.node} truncated {event.partition} from {event.before} to "
                f"{event.after}, but has the same log as its leader up to {event.common_end}"
            )
            yield Violation(event.at, text)


def stale_leaders_append_nothing(history: History) -> Iterator[Violation]:
    """Rule 12: a node whose metadata names a later leader appends no client records."""
    for event in history.of(LeaderAppended):
        if (event.known_leader, event.known_epoch) != (event.node, event.epoch):
            text = (
                f"node {event.node} appended to {event.partition} in epoch {event.epoch}, but "
                f"its metadata says that {event.known_leader} leads in epoch {event.known_epoch}"
            )
            yield Violation(event.at, text)


def stale_broker_epochs_acknowledge_nothing(history: History) -> Iterator[Violation]:
    """Rule 12: a fetch with a broker epoch other than the registered one acknowledges nothing."""
    for event in history.of(FollowerFetchAccepted):
        if event.broker_epoch != event.known_epoch:
            text = (
                f"node {event.node} accepted a fetch of {event.partition} by broker "
                f"{event.replica} with broker epoch {event.broker_epoch}"
            )
            yield Violation(event.at, f"{text}, which is registered with {event.known_epoch}")
