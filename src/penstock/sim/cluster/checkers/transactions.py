"""Rules of transactions (rule 15), and of their producers (rules 4, 5, 12), over what their clients
saw, what read_committed consumers read, and the logs at the end.

A transaction of the old protocol has the same epoch as its predecessor. If a request of that epoch
was never answered, it may have been executed late, and have ended another transaction, as in Kafka:
such transactions are exposed, and not checked.
"""

from __future__ import annotations

from collections.abc import Iterator

from penstock.ids import TopicPartition
from penstock.sim.cluster.checkers.transaction_log import Span, Txn, spans_of, transactions_of
from penstock.sim.cluster.history import History, Violation
from penstock.sim.cluster.transaction_events import (
    EndFinished,
    IsolatedRead,
    ProducerInitialized,
    TransactionBegun,
    TransactionPrepared,
    instance_of,
    txn_of,
)


def no_aborted_read(history: History) -> Iterator[Violation]:
    """Rule 15: read_committed returns no record of a transaction that was aborted, or that its
    client has not asked to commit."""
    transactions = _checked(history)
    reads = [
        (read.at, read.reader, read.partition, read.offset, read.value)
        for read in history.of(IsolatedRead)
        if read.committed
    ]
    reads += [
        (history.ended_at, "the last reader", partition, offset, value)
        for partition, records in history.final_committed.items()
        for offset, value in records
    ]
    for at, reader, partition, offset, value in reads:
        found = transactions.get(txn_of(value))
        if found is not None and (found.is_aborted or not found.may_commit):
            text = f"{reader} read {value!r} at {offset} of {partition} with read_committed"
            why = "was aborted" if found.is_aborted else "was never committed"
            yield Violation(at, f"{text}, but {found.name} {why}")


def no_committed_write_is_lost(history: History) -> Iterator[Violation]:
    """Rules 1 and 15: what an acknowledged commit wrote is read by every later read_committed
    consumer."""
    if not history.final_committed:
        return
    visible = _visible(history)
    for each in _checked(history).values():
        if each.must_commit and each.is_aborted:
            yield Violation(each.at, f"both the commit and the abort of {each.name} succeeded")
        for sent in each.sent if each.must_commit else ():
            if (sent.partition, sent.value) not in visible:
                text = f"{each.name} was committed, but {sent.value!r} of {sent.partition} is lost"
                yield Violation(each.at, text)


def no_torn_transaction(history: History) -> Iterator[Violation]:
    """Rule 15: all of a transaction's records are visible, or none."""
    if not history.final_committed:
        return
    visible = _visible(history)
    for each in _checked(history).values():
        seen = [(sent.partition, sent.value) in visible for sent in each.sent]
        if any(seen) and not all(seen):
            missing = each.sent[seen.index(False)]
            yield Violation(
                history.ended_at,
                f"{sum(seen)} of {len(seen)} records of {each.name} are visible: "
                f"{missing.value!r} of {missing.partition} is not",
            )


def committed_reads_are_final(history: History) -> Iterator[Violation]:
    """Rules 3, 8 and 15: what a reader saw is what a fresh reader sees, at the same offset."""
    finals = {True: history.final_committed, False: history.final_uncommitted}
    records = {
        (committed, partition, offset): value
        for committed, final in finals.items()
        for partition, rows in final.items()
        for offset, value in rows
    }
    for read in history.of(IsolatedRead):
        final = finals[read.committed]
        if read.partition not in final or not history.is_durable(read.partition):
            continue
        value = records.get((read.committed, read.partition, read.offset))
        if value != read.value:
            text = f"{read.reader} read {read.value!r} at {read.offset} of {read.partition}"
            yield Violation(read.at, f"{text}, and a fresh reader reads {value!r}")


def committed_reads_skip_nothing(history: History) -> Iterator[Violation]:
    """Rule 15: a read_committed consumer that reads on sees every committed record."""
    positions: dict[tuple[str, TopicPartition], int] = {}
    offsets = {
        partition: [offset for offset, _value in records]
        for partition, records in history.final_committed.items()
    }
    for read in history.of(IsolatedRead):
        if not read.committed or read.partition not in offsets:
            continue
        if not history.is_durable(read.partition):
            continue
        last = positions.get((read.reader, read.partition), -1)
        skipped = [at for at in offsets[read.partition] if last < at < read.offset]
        if skipped:
            text = f"{read.reader} read {read.offset} of {read.partition} after {last}"
            yield Violation(read.at, f"{text}, but not {skipped[0]}, which is committed")
        positions[read.reader, read.partition] = read.offset


def one_transaction_at_a_time(history: History) -> Iterator[Violation]:
    """Rule 15: in a partition, the records between a producer's markers are of one transaction, and
    a transaction ends once. A late Produce does not join the next transaction, and a late marker
    does not end it."""
    transactions = _checked(history)
    ended: dict[tuple[TopicPartition, str], Span] = {}
    for span in _all_spans(history):
        txns = [txn for txn in span.txns if txn in transactions]
        place = f"{span.partition} from {span.first_offset} to {span.marker_offset}"
        if len(txns) > 1:
            yield Violation(history.ended_at, f"{', '.join(txns)} are one transaction in {place}")
        for txn in txns:
            first = ended.setdefault((span.partition, txn), span)
            if first is not span:
                yield Violation(
                    history.ended_at,
                    f"{txn} ended at {first.marker_offset}, and continues in {place}",
                )


def markers_belong_to_their_transaction(history: History) -> Iterator[Violation]:
    """Rule 15: with transaction.version 2 the marker of a transaction has a newer epoch, so that
    the marker of the transaction before does not end it."""
    transactions = transactions_of(history)
    for span in _all_spans(history):
        bumps = any(txn in transactions and transactions[txn].begun.bumps for txn in span.txns)
        if bumps and span.marker_offset is not None and span.marker_epoch <= span.epoch:
            yield Violation(
                history.ended_at,
                f"{span.txns[0]} of epoch {span.epoch} was ended by a marker of epoch "
                f"{span.marker_epoch} at {span.marker_offset} of {span.partition}",
            )


def each_transaction_has_its_epoch(history: History) -> Iterator[Violation]:
    """Rule 15: with transaction.version 2 no two transactions have the same producer and epoch."""
    seen: dict[tuple[int, int], str] = {}
    for begun in history.of(TransactionBegun):
        if not begun.bumps:
            continue
        first = seen.setdefault((begun.producer_id, begun.epoch), begun.txn)
        # A client that sent nothing has not begun a transaction for its coordinator.
        if first != begun.txn and _has_sent(history, first):
            yield Violation(
                begun.at,
                f"{first} and {begun.txn} both have epoch {begun.epoch} of producer "
                f"{begun.producer_id}",
            )
        seen[begun.producer_id, begun.epoch] = begun.txn


def only_its_client_ends_a_transaction(history: History) -> Iterator[Violation]:
    """Rule 15: an EndTxn ends only the transaction whose client sent it. A late one does not end
    the next."""
    transactions = transactions_of(history)
    by_producer: dict[tuple[int, int], list[Txn]] = {}
    for each in transactions.values():
        by_producer.setdefault((each.begun.producer_id, each.begun.epoch), []).append(each)
    for event in history.of(TransactionPrepared):
        candidates = [
            each
            for each in by_producer.get((event.producer_id, event.epoch), ())
            if each.begun.at <= event.at
        ]
        if not event.by_client or not candidates or candidates[-1].is_exposed:
            continue
        current = candidates[-1]
        if not any(end.at <= event.at and end.commit == event.commit for end in current.ends):
            verb = "committed" if event.commit else "aborted"
            yield Violation(
                event.at, f"EndTxn {verb} {current.name}, whose client has not asked for that"
            )


def markers_agree(history: History) -> Iterator[Violation]:
    """Rule 15: all partitions of a transaction have the same outcome, which its last coordinator
    decided. What an earlier one decided may have been lost, before any marker was sent."""
    transactions = _checked(history)
    decided: dict[tuple[int, int], bool] = {}
    for event in sorted(history.of(TransactionPrepared), key=lambda event: event.coordinator_epoch):
        decided[event.producer_id, event.epoch] = event.commit
    outcomes: dict[str, Span] = {}
    for span in _all_spans(history):
        if span.marker_offset is None:
            continue
        for txn in span.txns:
            if txn not in transactions:
                continue
            first = outcomes.setdefault(txn, span)
            if first.commit != span.commit:
                yield Violation(
                    history.ended_at,
                    f"{txn} is {_verb(first)} in {first.partition} and {_verb(span)} in "
                    f"{span.partition}",
                )
        is_its_own = bool(span.txns) and all(
            txn in transactions and transactions[txn].begun.bumps for txn in span.txns
        )
        outcome = decided.get((span.producer_id, span.epoch), span.commit)
        if is_its_own and span.commit != outcome:
            yield Violation(
                history.ended_at,
                f"{span.txns[0]} is {_verb(span)} in {span.partition}, but its coordinator decided "
                "otherwise",
            )


def fenced_producers_write_nothing(history: History) -> Iterator[Violation]:
    """Rule 12: once a new instance of a transactional id is initialized, sends and commits that an
    earlier instance begins fail."""
    initialized: dict[str, list[ProducerInitialized]] = {}
    for event in history.of(ProducerInitialized):
        initialized.setdefault(event.transactional_id, []).append(event)
    finished = {event.txn: event for event in history.of(EndFinished) if event.error is None}
    for each in transactions_of(history).values():
        transactional_id, instance = instance_of(each.name)
        fenced_at = min(
            (
                event.at
                for event in initialized.get(transactional_id, ())
                if event.instance > instance
            ),
            default=None,
        )
        if fenced_at is None:
            continue
        acknowledged = {write.value: write for write in each.acknowledged}
        for sent in each.sent:
            if sent.at > fenced_at and sent.value in acknowledged:
                text = f"{sent.value!r} was acknowledged at {acknowledged[sent.value].offset}"
                yield Violation(
                    sent.at, f"{text} of {sent.partition} after its producer was fenced"
                )
        end = finished.get(each.name)
        if (
            end is not None
            and each.acknowledged
            and each.ends[0].at > fenced_at
            # The next instance completes a prepared transaction in its place.
            and not transactional_id.startswith("two-phase")
        ):
            verb = "committed" if end.commit else "aborted"
            yield Violation(end.at, f"{each.name} was {verb} after its producer was fenced")


def no_duplicate_in_transactions(history: History) -> Iterator[Violation]:
    """Rule 4, for transactional producers, also in what they aborted."""
    for partition, records in history.final_uncommitted.items():
        seen: dict[bytes, int] = {}
        for offset, value in records:
            if seen.setdefault(value, offset) != offset:
                yield Violation(
                    history.ended_at,
                    f"{value!r} is at offsets {seen[value]} and {offset} of {partition}",
                )


def transactions_are_in_order(history: History) -> Iterator[Violation]:
    """Rule 5: committed records of a transactional id are in the order in which they were sent."""
    number = {
        (sent.partition, sent.value): count
        for count, sent in enumerate(
            sent for each in transactions_of(history).values() for sent in each.sent
        )
    }
    for partition, records in history.final_committed.items():
        last: dict[str, bytes] = {}
        for _offset, value in records:
            if (partition, value) not in number:
                continue
            transactional_id, _instance = instance_of(txn_of(value))
            before = last.get(transactional_id)
            if before is not None and number[partition, before] > number[partition, value]:
                yield Violation(
                    history.ended_at,
                    f"{value!r} was sent before {before!r}, but is after it in {partition}",
                )
            last[transactional_id] = value


def records_come_from_clients(history: History) -> Iterator[Violation]:
    """Rule 12: transactional partitions have only records that were sent to them."""
    sent = {
        (sent.partition, sent.value)
        for each in transactions_of(history).values()
        for sent in each.sent
    }
    for partition, records in history.final_uncommitted.items():
        for offset, value in records:
            if (partition, value) not in sent:
                yield Violation(
                    history.ended_at, f"{value!r} at {offset} of {partition} was not sent to it"
                )


def _checked(history: History) -> dict[str, Txn]:
    """Return the transactions that are not exposed, in runs whose records must survive."""
    if not history.durable_groups:
        return {}
    return {name: each for name, each in transactions_of(history).items() if not each.is_exposed}


def _visible(history: History) -> set[tuple[TopicPartition, bytes]]:
    return {
        (partition, value)
        for partition, records in history.final_committed.items()
        for _offset, value in records
    }


def _all_spans(history: History) -> Iterator[Span]:
    for partition in history.final_committed:
        yield from spans_of(history, partition)


def _has_sent(history: History, txn: str) -> bool:
    return bool(transactions_of(history)[txn].sent)


def _verb(span: Span) -> str:
    return "committed" if span.commit else "aborted"
