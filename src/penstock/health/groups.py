"""Consumer groups that do not progress."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from shlex import quote

from penstock.health.findings import Finding, Level, Reason
from penstock.health.observations import Group, GroupOffset, Observation, Transaction
from penstock.health.partitions import check_partitions
from penstock.health.wording import counted, duration, listed
from penstock.ids import TopicPartition

# A rebalance that takes longer than this does not end by itself, or begins again and again.
LONG_REBALANCE_MS = 8_000
# A consumer commits every 5 s by default. An unread record that is older than this is not just
# between two commits.
STALE_UNREAD_MS = 30_000
REBALANCING = frozenset({"PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"})


def check_groups(seen: Observation) -> Iterator[Finding]:
    for group in seen.groups:
        yield from _check(seen, group)


def _check(seen: Observation, group: Group) -> Iterator[Finding]:
    if not group.exists:
        yield _finding(
            group,
            "group-not-found",
            Level.PROBLEM,
            "does not exist",
            todo="check the group.id of the consumers; a group exists once a member has joined or "
            "an offset was committed",
        )
        return
    if group.error:
        yield _finding(
            group,
            "group-coordinator-missing",
            Level.PROBLEM,
            "has no coordinator: its members can neither join nor commit",
            (Reason("group-coordinator-missing", group.error), *_coordinator(seen, group)),
        )
        return
    if group.states and all(state in REBALANCING for state in group.states):
        if group.over_ms >= LONG_REBALANCE_MS:
            yield _finding(
                group,
                "group-rebalancing",
                Level.PROBLEM,
                f"is rebalancing for more than {duration(group.over_ms)}: its members read nothing",
                (_members(group),),
                "look for members that do not poll within max.poll.interval.ms, or that stop and "
                "start again and again; a classic rebalance waits for every member",
            )
    elif not group.members and group.named:
        lag = sum(offset.lag for offset in group.offsets.values())
        yield _finding(
            group,
            "group-empty",
            Level.PROBLEM if lag else Level.WARNING,
            f"has no members, and {counted(lag, 'record')} to read",
            todo="start its consumers, and check that they use this group.id and cluster",
        )
    yield from _offsets(group)
    yield from _idle(seen, group)
    blocked = _blocked(seen, group)
    yield from blocked.values()
    if group.members:
        yield from _progress(group, blocked)


def _coordinator(seen: Observation, group: Group) -> tuple[Reason, ...]:
    """Return the reasons of the partition of __consumer_offsets that the group is in."""
    partition = group.coordinator_partition
    for finding in () if partition is None else check_partitions(seen):
        if str(partition) in finding.subjects:
            head = Reason(finding.code, f"{partition} {finding.says}", finding.todo)
            return (head, *finding.reasons)
    return ()


def _offsets(group: Group) -> Iterator[Finding]:
    """Committed offsets that cannot be read from."""
    below: list[str] = []
    beyond: list[str] = []
    gone: list[str] = []
    lost = 0
    for partition, offset in sorted(group.offsets.items()):
        if offset.offsets is None:
            gone.append(str(partition))
        elif offset.committed < offset.offsets.start:
            below.append(str(partition))
            lost += offset.offsets.start - offset.committed
        elif offset.committed > offset.offsets.end:
            beyond.append(str(partition))
    if below:
        yield _finding(
            group,
            "offset-before-start",
            Level.PROBLEM,
            f"has committed offsets before the start of {listed(below)}",
            (
                Reason(
                    "offset-before-start",
                    f"{counted(lost, 'record')} were deleted before the group read them",
                ),
            ),
            "its consumers go on by auto.offset.reset. Raise retention.ms or retention.bytes, or "
            "read faster",
        )
    if beyond:
        yield _finding(
            group,
            "offset-beyond-end",
            Level.PROBLEM,
            f"has committed offsets beyond the end of {listed(beyond)}",
            (
                Reason(
                    "offset-beyond-end",
                    "the topic was deleted and created again, or records were lost",
                ),
            ),
            f"stop its members, then: penstock groups reset-offsets {quote(group.id)} --to-latest "
            "--all-topics",
        )
    if gone and group.named:
        yield _finding(
            group,
            "offset-of-deleted-topic",
            Level.NOTE,
            f"has committed offsets of partitions that do not exist: {listed(gone)}",
        )


def _idle(seen: Observation, group: Group) -> Iterator[Finding]:
    idle = [member for member in group.members if member.partitions == 0]
    if not idle or any(state in REBALANCING for state in group.states):
        return
    counts = [member.partitions for member in group.members if member.partitions is not None]
    if len(counts) < len(group.members):
        return
    assigned = sum(counts)
    clients = listed([f"{member.client_id} on {member.host}" for member in idle])
    yield _finding(
        group,
        "more-consumers-than-partitions",
        Level.WARNING,
        f"has {counted(len(group.members), 'member')} for {counted(assigned, 'partition')}",
        (Reason("member-without-partitions", f"{clients} read nothing"),),
        "add partitions to the topics, or run fewer consumers"
        if seen.topics
        else "run fewer consumers",
    )


def _blocked(seen: Observation, group: Group) -> Mapping[TopicPartition, Finding]:
    """Partitions in which read_committed members wait for an open transaction."""
    blocked: dict[TopicPartition, Finding] = {}
    for partition, offset in group.offsets.items():
        if (
            offset.offsets is None
            or offset.offsets.last_stable >= offset.offsets.end
            or offset.committed < offset.offsets.last_stable
        ):
            continue
        culprit = _transaction_at(seen, partition, offset.offsets.last_stable)
        if culprit is None or not _is_old(seen, culprit):
            continue
        name = culprit.transactional_id
        who = f"producer {culprit.producer_id}" if name is None else f"transactional id {name}"
        blocked[partition] = _finding(
            group,
            "group-blocked-by-transaction",
            Level.PROBLEM,
            f"waits in {partition} at offset {offset.offsets.last_stable:,}, if it reads with "
            "read_committed",
            (Reason("open-transaction", f"a transaction of {who} is open there"),),
            "end or abort that transaction: its own row says how",
        )
    return blocked


def _is_old(seen: Observation, transaction: Transaction) -> bool:
    if transaction.transactional_id is None or transaction.start_ms is None:
        return True
    return seen.now_ms - transaction.start_ms >= STALE_UNREAD_MS


def _transaction_at(
    seen: Observation, partition: TopicPartition, offset: int
) -> Transaction | None:
    for transaction in seen.transactions:
        if transaction.partitions.get(partition) == offset:
            return transaction
    return None


def _progress(group: Group, blocked: Mapping[TopicPartition, Finding]) -> Iterator[Finding]:
    """Members that read too slowly, or nothing at all."""
    stuck: list[tuple[TopicPartition, GroupOffset]] = []
    growing: list[tuple[TopicPartition, GroupOffset]] = []
    for partition, offset in sorted(group.offsets.items()):
        if (
            partition in blocked
            or offset.offsets is None
            or offset.committed_before is None
            or offset.end_before is None
            or offset.unread_age_ms is None
            or offset.unread_age_ms < STALE_UNREAD_MS
            or not offset.lag
        ):
            continue
        if offset.committed == offset.committed_before:
            stuck.append((partition, offset))
        elif offset.lag > offset.end_before - offset.committed_before:
            growing.append((partition, offset))
    if stuck:
        names = listed([partition for partition, _offset in stuck])
        yield _finding(
            group,
            "group-stuck",
            Level.PROBLEM,
            f"commits nothing in {names}, with {_lag(stuck)} to read",
            (
                Reason(
                    "group-stuck",
                    f"its members did not advance for {duration(group.over_ms)}, and the first "
                    f"unread record is {_age(stuck)} old",
                ),
            ),
            "look at the log of the consumers for an error that repeats, such as a record that "
            "cannot be parsed, and check that they commit",
        )
    if growing:
        names = listed([partition for partition, _offset in growing])
        yield _finding(
            group,
            "lag-grows",
            Level.PROBLEM,
            f"falls behind in {names}, with {_lag(growing)} to read",
            (
                Reason(
                    "lag-grows",
                    f"in {duration(group.over_ms)} it read {_read(growing):,} of "
                    f"{_written(growing):,} new records, and the first unread record is "
                    f"{_age(growing)} old",
                ),
            ),
            "add consumers up to the number of partitions, make the processing faster, or add "
            "partitions",
        )


_Rows = list[tuple[TopicPartition, GroupOffset]]


def _lag(rows: _Rows) -> str:
    return counted(sum(offset.lag for _partition, offset in rows), "record")


def _age(rows: _Rows) -> str:
    return duration(max(offset.unread_age_ms or 0 for _partition, offset in rows))


def _read(rows: _Rows) -> int:
    return sum(offset.committed - (offset.committed_before or 0) for _partition, offset in rows)


def _written(rows: _Rows) -> int:
    return sum(
        0 if offset.offsets is None else offset.offsets.end - (offset.end_before or 0)
        for _partition, offset in rows
    )


def _members(group: Group) -> Reason:
    clients = listed([f"{member.client_id} on {member.host}" for member in group.members])
    known = f": {clients}" if clients else ""
    return Reason("group-members", f"it has {counted(len(group.members), 'member')}{known}")


def _finding(
    group: Group,
    code: str,
    level: Level,
    says: str,
    reasons: tuple[Reason, ...] = (),
    todo: str = "",
) -> Finding:
    return Finding(code, level, (f"group {group.id}",), says, reasons, todo)
