"""Transactions in a log: verification before the first batch (KIP-890), checks of markers
(KIP-1228), and the offsets that transactions hold back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.errors import ErrorCode, KafkaError
from penstock.limits import MAX_VERIFIED_EPOCHS
from penstock.log.log import Log
from penstock.log.producers.replay import end_marker
from penstock.log.producers.state import ProducerStates
from penstock.log.producers.verification import VerificationGuard
from penstock.records.batch import read_header
from penstock.world import World
from tests.log.making import (
    NOW_MS,
    PARTITION,
    SMALL,
    TOPIC_ID,
    batch,
    in_real_world,
    marker,
    new_log,
    open_store,
    sequenced,
)


def begin(
    states: ProducerStates, producer: int, epoch: int = 0, sequence: int = 0, *, adds: bool = False
) -> VerificationGuard:
    guard = states.begin_verification(producer, epoch, sequence, NOW_MS, adds=adds)
    assert guard is not None
    return guard


def append(states: ProducerStates, data: bytes) -> None:
    """Check a batch as a leader does, and apply it."""
    header = read_header(data)._replace(base_offset=states.end_offset)
    found = end_marker(header, data) if header.is_control else None
    if found is not None:
        states.check_marker(header.producer_id, header.producer_epoch, found.coordinator_epoch)
    else:
        assert states.check(header, only_verified=True) is None
    states.apply(header, found)


def first(producer: int, sequence: int = 0, epoch: int = 0) -> bytes:
    return sequenced(producer, sequence, "x", epoch=epoch, transactional=True)


def refusal(call: Callable[..., object], *args: object, **kwargs: object) -> ErrorCode:
    with pytest.raises(KafkaError) as refused:
        call(*args, **kwargs)
    return refused.value.code


# Verification


def test_a_transaction_begins_only_with_a_confirmed_guard() -> None:
    states = ProducerStates()
    assert refusal(append, states, first(1)) == ErrorCode.INVALID_TXN_STATE
    guard = begin(states, 1)
    assert refusal(append, states, first(1)) == ErrorCode.INVALID_TXN_STATE
    assert states.confirm_verification(guard)
    append(states, first(1))
    append(states, first(1, 1))
    assert states.begin_verification(1, 0, 2, NOW_MS, adds=False) is None, "it is open"


def test_batches_without_a_transaction_need_no_verification() -> None:
    states = ProducerStates()
    append(states, sequenced(1, 0, "a"))
    append(states, sequenced(1, 1, "b"))


def test_a_marker_voids_the_guard() -> None:
    """The coordinator's answer is of a transaction that has ended (the ABA problem)."""
    states = ProducerStates()
    guard = begin(states, 1)
    append(states, marker(1, committed=False))
    assert not states.confirm_verification(guard)
    assert refusal(append, states, first(1)) == ErrorCode.INVALID_TXN_STATE
    renewed = begin(states, 1)
    assert renewed is not guard
    assert states.confirm_verification(renewed)
    append(states, first(1))


def test_a_marker_voids_a_confirmed_guard_too() -> None:
    states = ProducerStates()
    assert states.confirm_verification(begin(states, 1))
    append(states, marker(1, committed=True, epoch=1))
    assert refusal(append, states, first(1, epoch=1)) == ErrorCode.INVALID_TXN_STATE


def test_a_marker_of_an_earlier_epoch_does_not_void_the_guard() -> None:
    states = ProducerStates()
    guard = begin(states, 1, epoch=5)
    append(states, marker(1, committed=True, epoch=4))
    assert states.confirm_verification(guard)
    append(states, first(1, epoch=5))


def test_a_guard_is_of_one_epoch() -> None:
    states = ProducerStates()
    assert states.confirm_verification(begin(states, 1, epoch=3))
    assert refusal(append, states, first(1, epoch=4)) == ErrorCode.INVALID_TXN_STATE
    assert refusal(append, states, first(1, epoch=2)) == ErrorCode.INVALID_TXN_STATE


def test_an_open_transaction_of_an_earlier_epoch_does_not_count() -> None:
    states = ProducerStates()
    states.confirm_verification(begin(states, 1, epoch=3))
    append(states, first(1, epoch=3))
    assert begin(states, 1, epoch=4)
    assert refusal(append, states, first(1, epoch=4)) == ErrorCode.INVALID_TXN_STATE


def test_a_stale_epoch_is_refused_before_the_coordinator_is_asked() -> None:
    states = ProducerStates()
    append(states, marker(1, committed=True, epoch=7))
    assert refusal(begin, states, 1, epoch=6) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert refusal(append, states, first(1, epoch=6)) == ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_second_verification_of_a_transaction_that_is_open_by_then_is_confirmed() -> None:
    """Two requests of a producer begin before either is verified."""
    states = ProducerStates()
    guard, same = begin(states, 1), begin(states, 1)
    assert states.confirm_verification(guard)
    append(states, first(1))
    assert states.confirm_verification(same)


def test_a_refused_guard_is_forgotten() -> None:
    states = ProducerStates()
    guard = begin(states, 1, sequence=4)
    states.void_verification(guard)
    assert not states.confirm_verification(guard)
    assert begin(states, 1, sequence=9).lowest_sequence == 9


def test_a_change_of_the_leader_voids_all_guards() -> None:
    states = ProducerStates()
    guard = begin(states, 1)
    states.void_verifications()
    assert not states.confirm_verification(guard)


def test_guards_expire_with_idle_producers() -> None:
    states = ProducerStates()
    guard = begin(states, 1)
    states.expire(NOW_MS + 999, 1_000)
    assert states.confirm_verification(guard)
    states.expire(NOW_MS + 1_000, 1_000)
    assert not states.confirm_verification(guard)


def test_few_epochs_of_a_producer_are_verified_at_the_same_time() -> None:
    states = ProducerStates()
    guards = [begin(states, 1, epoch=epoch) for epoch in range(MAX_VERIFIED_EPOCHS + 1)]
    confirmed = [states.confirm_verification(guard) for guard in guards]
    assert confirmed == [False] + [True] * MAX_VERIFIED_EPOCHS


# Sequences


def test_a_later_batch_does_not_overtake_one_that_is_not_verified_yet() -> None:
    states = ProducerStates()
    begin(states, 1, sequence=5)
    states.confirm_verification(begin(states, 1, sequence=6))
    assert refusal(append, states, first(1, 6)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    append(states, first(1, 5))
    append(states, first(1, 6))


def test_an_unknown_producer_of_version_2_begins_at_sequence_zero() -> None:
    """Its state expired or was deleted, and it does not know. Each transaction has its own epoch
    and begins at zero; older clients continue where they were."""
    for adds, expected in [(True, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER), (False, None)]:
        states = ProducerStates()
        states.confirm_verification(begin(states, 1, sequence=7, adds=adds))
        if expected is None:
            append(states, first(1, 7))
        else:
            assert refusal(append, states, first(1, 7)) == expected


def test_each_transaction_of_version_2_begins_its_epoch_at_sequence_zero() -> None:
    states = ProducerStates()
    for epoch in range(3):
        for sequence in (1, 0):
            states.confirm_verification(begin(states, 1, epoch, sequence, adds=True))
            if sequence:
                code = refusal(append, states, first(1, sequence, epoch))
                assert code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            else:
                append(states, first(1, 0, epoch))
        append(states, first(1, 1, epoch))
        append(states, marker(1, committed=epoch % 2 == 0, epoch=epoch + 1))


def test_transactions_of_one_epoch_continue_their_sequences() -> None:
    states = ProducerStates()
    for sequence in range(3):
        states.confirm_verification(begin(states, 1, sequence=sequence))
        append(states, first(1, sequence))
        append(states, marker(1, committed=True))


# Markers


@pytest.mark.parametrize(
    ("marker_epoch", "version", "is_open", "code"),
    [
        (2, 0, True, ErrorCode.INVALID_PRODUCER_EPOCH),
        (3, 0, True, None),
        (3, 1, True, None),
        (4, 0, True, None),
        (2, 2, True, ErrorCode.INVALID_PRODUCER_EPOCH),
        (3, 2, True, ErrorCode.INVALID_PRODUCER_EPOCH),
        (4, 2, True, None),
        # Retries: the marker has ended the transaction already.
        (3, 0, False, None),
        (3, 2, False, None),
        (2, 2, False, ErrorCode.INVALID_PRODUCER_EPOCH),
    ],
)
def test_markers_of_version_2_have_a_newer_epoch_than_the_transaction(
    marker_epoch: int, version: int, is_open: bool, code: ErrorCode | None
) -> None:
    states = ProducerStates()
    states.confirm_verification(begin(states, 1, epoch=3))
    append(states, first(1, epoch=3))
    if not is_open:
        append(states, marker(1, committed=True, epoch=3))
    if code is None:
        states.check_marker(1, marker_epoch, 0, version)
    else:
        assert refusal(states.check_marker, 1, marker_epoch, 0, version) == code


def test_a_marker_for_an_unknown_producer_is_accepted_and_remembered() -> None:
    states = ProducerStates()
    for version in (0, 1, 2):
        states.check_marker(1, 3, 7, version)
    append(states, marker(1, committed=False, epoch=3, coordinator_epoch=7))
    producer = states.producers[1]
    assert (producer.epoch, producer.coordinator_epoch) == (3, 7)
    assert (producer.txn_first_offset, producer.last_sequence) == (None, -1)
    assert refusal(states.check_marker, 1, 3, 6, 2) == ErrorCode.TRANSACTION_COORDINATOR_FENCED


def test_a_repeated_marker_changes_nothing() -> None:
    states = ProducerStates()
    states.confirm_verification(begin(states, 1))
    append(states, first(1))
    for _ in range(3):
        append(states, marker(1, committed=False, coordinator_epoch=2))
    assert states.first_unstable_offset() == 0, "no marker is replicated yet"
    states.advance(2)
    assert states.first_unstable_offset() is None


# The last stable offset


def test_the_first_unstable_offset_never_goes_back(tmp_path: Path) -> None:
    """Transactions of many producers begin and end in any order, while the high watermark follows.
    The offset is also what a search of all of them finds (rule 15)."""

    async def main(world: World, path: str) -> None:
        log = await new_log(world, path)
        producers = log.producers
        opened: dict[int, tuple[int, int]] = {}
        ended: list[tuple[int, int]] = []
        watermark, last_stable = 0, 0
        for _ in range(400):
            producer = world.rng.randrange(6)
            if producer not in opened:
                known = producers.producers.get(producer)
                sequence = 0 if known is None else known.last_sequence + 1
                opened[producer] = (log.end_offset, sequence)
                log.append_as_leader(sequenced(producer, sequence, "x", transactional=True), 0)
            elif world.rng.randrange(2):
                ended.append((opened.pop(producer)[0], log.end_offset))
                log.append_as_leader(
                    marker(producer, committed=bool(world.rng.randrange(2))), 0, from_client=False
                )
            if world.rng.randrange(3) == 0:
                watermark += world.rng.randrange(log.end_offset - watermark + 1)
                producers.advance(watermark)
            unstable = [offset for offset, _sequence in opened.values()]
            unstable += [offset for offset, end in ended if end >= watermark]
            expected = min(unstable, default=None)
            assert producers.first_unstable_offset() == expected
            stable = watermark if expected is None else min(watermark, expected)
            assert stable >= last_stable
            last_stable = stable

    in_real_world(tmp_path, main)


def test_an_open_transaction_survives_a_restart(tmp_path: Path) -> None:
    """Snapshots have it, and the log after a crash: rule 4 and rule 15."""

    async def main(world: World, path: str) -> None:
        store = await open_store(world, path)
        log = store.create(PARTITION, TOPIC_ID, SMALL)
        log.append_as_leader(batch("plain"), 0)
        log.append_as_leader(sequenced(9, 0, "late", epoch=2, transactional=True), 0)
        log.append_as_leader(sequenced(3, 0, "early", epoch=4, transactional=True), 0)
        log.append_as_leader(
            marker(9, committed=False, epoch=2, coordinator_epoch=6), 0, from_client=False
        )
        log.append_as_leader(sequenced(9, 1, "again", epoch=2, transactional=True), 0)

        def check(found: Log) -> None:
            producers = found.producers
            assert producers.is_open(3, 4)
            assert producers.is_open(9, 2)
            assert producers.producers[9].coordinator_epoch == 6
            producers.advance(found.end_offset)
            assert producers.first_unstable_offset() == 2
            found.append_as_leader(
                sequenced(3, 1, "more", epoch=4, transactional=True), 0, only_verified=True
            )

        crashed = (await open_store(world, path)).logs[PARTITION]
        check(crashed)
        again = await open_store(world, path)
        await again.close()
        clean = (await open_store(world, path)).logs[PARTITION]
        clean.producers.advance(clean.end_offset)
        assert clean.producers.first_unstable_offset() == 2
        assert clean.producers.is_open(3, 4)

    in_real_world(tmp_path, main)


def test_a_marker_that_is_not_replicated_holds_back_the_offset_after_a_clean_restart(
    tmp_path: Path,
) -> None:
    """The marker may still be truncated: the last stable offset would then go back (rule 15)."""

    async def main(world: World, path: str) -> None:
        store = await open_store(world, path)
        log = store.create(PARTITION, TOPIC_ID, SMALL)
        log.append_as_leader(sequenced(1, 0, "a", transactional=True), 0)
        log.append_as_leader(marker(1, committed=True), 0, from_client=False)
        log.producers.advance(1)
        await store.close()
        reopened = await open_store(world, path)
        producers = reopened.logs[PARTITION].producers
        producers.advance(1)
        assert producers.first_unstable_offset() == 0
        producers.advance(2)
        assert producers.first_unstable_offset() is None

    in_real_world(tmp_path, main)


# What read_committed consumers skip


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("committed", [True, False])
def test_a_marker_that_is_not_replicated_holds_back_the_offset_after_a_roll_and_a_restart(
    tmp_path: Path, clean: bool, committed: bool
) -> None:
    """The snapshot of the roll does not have the transaction any more."""

    async def main(world: World, path: str) -> None:
        store = await open_store(world, path)
        log = store.create(PARTITION, TOPIC_ID, SMALL)
        log.append_as_leader(batch("plain"), 1)
        log.roll()
        log.append_as_leader(first(7), 1)
        high_watermark = log.end_offset
        log.append_as_leader(marker(7, committed=committed), 1, from_client=False)
        log.roll()
        log.append_as_leader(batch("plain"), 1)
        end_offset = log.end_offset
        await log.flushing.all()
        await store.offsets.save_high_watermarks({PARTITION: high_watermark})
        await store.offsets.save_recovery_points()
        if clean:
            await store.close()
        again = await open_store(world, path)
        producers = again.logs[PARTITION].producers
        producers.advance(high_watermark)
        assert producers.first_unstable_offset() == 1
        assert producers.end_offset == end_offset
        producers.advance(high_watermark + 1)
        assert producers.first_unstable_offset() is None
        # Once the marker is replicated, the newest snapshot is enough.
        await again.offsets.save_high_watermarks({PARTITION: high_watermark + 1})
        if clean:
            await again.close()
        last = (await open_store(world, path)).logs[PARTITION].producers
        assert last.snapshot_offset > high_watermark
        assert last.first_unstable_offset() is None

    in_real_world(tmp_path, main)


def test_a_read_names_the_aborted_transactions_of_what_it_returns(tmp_path: Path) -> None:
    """A catching-up consumer gets those of its records, and not of the whole log."""

    async def main(world: World, path: str) -> None:
        log = await new_log(world, path)
        spanning = sequenced(0, 0, "spans many", transactional=True)
        log.append_as_leader(spanning, 0)
        for number in range(1, 300):
            log.append_as_leader(sequenced(number, 0, "aborted", transactional=True), 0)
            log.append_as_leader(marker(number, committed=False), 0, from_client=False)
        log.append_as_leader(marker(0, committed=False), 0, from_client=False)
        assert len(log.segments) > 5
        end = log.end_offset
        every = log.aborted_transactions(0, end)
        assert len(every) == 300
        offset, most = 0, 0
        while offset < end:
            found = log.read(offset, 700, below=end)
            assert found is not None
            aborted = log.aborted_in(offset, found, end)
            data = found.read()
            last = offset
            position = 0
            while position < len(data):
                header = read_header(data, position)
                last = header.last_offset
                position += header.size
            needed = [
                txn for txn in every if txn.first_offset <= last and txn.last_offset >= offset
            ]
            assert [txn for txn in needed if txn not in aborted] == []
            assert all(txn in every for txn in aborted)
            most = max(most, len(aborted))
            offset = last + 1
        assert most < 20

    in_real_world(tmp_path, main)
