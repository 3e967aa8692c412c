"""Rules of access control: the denied write nothing, and all nodes decide by the same entries."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.errors import ErrorCode
from penstock.records.record import read_records
from penstock.sim.cluster.events import StrangerAnswered
from penstock.sim.cluster.history import History, Violation
from penstock.sim.cluster.spec import STRANGER


def denied_writes_are_never_visible(history: History) -> Iterator[Violation]:
    """Rule 28: a client that never had WRITE gets no acknowledgement, not even an error that says
    more than that it may not write, and no replica and no reader has a record of it."""
    if not history.has_acls:
        return
    for event in history.of(StrangerAnswered):
        if event.error_code != ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            yield Violation(
                event.at,
                f"{event.value!r} for {event.partition} was answered with {event.error_code}, but "
                "its client may not write",
            )
    prefix = f"{STRANGER}:".encode()
    for partition, records in history.final_records.items():
        for offset, value in records:
            if value.startswith(prefix):
                text = f"{value!r} is at offset {offset} of {partition}, but was denied"
                yield Violation(history.ended_at, text)
    for partition, replicas in history.final_logs.items():
        for node_id, log in replicas.items():
            for _base, _next, data in log.batches:
                if prefix in data and any(
                    (record.value or b"").startswith(prefix) for record in read_records(data)
                ):
                    text = f"node {node_id} has a denied record of {partition}"
                    yield Violation(history.ended_at, text)


def entries_agree(history: History) -> Iterator[Violation]:
    """Rule 28: all nodes have the entries that a client sees, and decide by them alike."""
    if not history.has_acls or history.heal_failure is not None:
        return
    for node_id, (entries, decisions) in history.final_acls.items():
        if entries != history.described_acls:
            differing = len(entries ^ history.described_acls)
            text = f"node {node_id} has {differing} entries more or fewer than DescribeAcls"
            yield Violation(history.ended_at, text)
        others = {node: found for node, (_entries, found) in history.final_acls.items()}
        if decisions != next(iter(others.values())):
            yield Violation(history.ended_at, f"node {node_id} decides otherwise: {others}")
