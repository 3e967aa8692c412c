from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import ErrorCode, KafkaError
from penstock.log.producers.snapshot import SnapshotDamaged, decode_snapshot, encode_snapshot
from penstock.log.producers.state import ProducerStates
from penstock.records.batch import read_header
from penstock.records.build import build_batch
from penstock.world import World
from tests.log.making import (
    PARTITION,
    in_real_world,
    marker,
    new_log,
    open_store,
    sequenced,
    values,
)


def code_of(states: ProducerStates, batch: bytes) -> ErrorCode:
    with pytest.raises(KafkaError) as refused:
        states.check(read_header(batch))
    return refused.value.code


def applied(*batches: bytes) -> ProducerStates:
    states = ProducerStates()
    for batch in batches:
        header = read_header(batch)._replace(base_offset=states.end_offset)
        states.apply(header)
    return states


def test_a_new_producer_may_begin_at_any_sequence() -> None:
    assert ProducerStates().check(read_header(sequenced(1, 17, "a"))) is None


def test_the_last_five_batches_are_recognised_as_duplicates() -> None:
    states = applied(*[sequenced(1, 2 * n, "a", "b") for n in range(7)])
    for number in range(2, 7):
        duplicate = states.check(read_header(sequenced(1, 2 * number, "a", "b")))
        assert duplicate is not None
        assert (duplicate.first_offset, duplicate.last_offset) == (2 * number, 2 * number + 1)
    assert code_of(states, sequenced(1, 2, "a", "b")) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_gaps_are_refused() -> None:
    states = applied(sequenced(1, 0, "a", "b"))
    assert states.check(read_header(sequenced(1, 2, "c"))) is None
    for sequence in (0, 1, 3):
        assert (
            code_of(states, sequenced(1, sequence, "c")) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        )


def test_sequences_wrap_after_the_largest_int32() -> None:
    states = applied(sequenced(1, 2**31 - 2, "a", "b"))
    assert states.check(read_header(sequenced(1, 0, "c"))) is None
    assert code_of(states, sequenced(1, 1, "c")) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_new_epoch_begins_at_zero_and_fences_the_old() -> None:
    states = applied(sequenced(1, 0, "a", epoch=3))
    assert code_of(states, sequenced(1, 5, "b", epoch=4)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert code_of(states, sequenced(1, 1, "b", epoch=2)) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert states.check(read_header(sequenced(1, 0, "b", epoch=4))) is None


def test_an_open_transaction_accepts_only_transactional_batches() -> None:
    states = applied(sequenced(1, 0, "a", transactional=True))
    assert code_of(states, sequenced(1, 1, "b")) == ErrorCode.INVALID_TXN_STATE


def test_idle_producers_expire_unless_a_transaction_is_open() -> None:
    states = applied(sequenced(1, 0, "a"), sequenced(2, 0, "b", transactional=True))
    states.expire(states.producers[1].last_timestamp + 1_000, 1_000)
    assert list(states.producers) == [2]


def test_snapshots_are_read_back_and_damage_is_detected() -> None:
    states = applied(
        sequenced(1, 0, "a", "b"),
        sequenced(2, 5, "c", epoch=9, transactional=True),
        sequenced(1, 2, "d"),
    )
    data = encode_snapshot(states.producers)
    back = dict(decode_snapshot(data))
    assert back[1].batches[-1] == states.producers[1].batches[-1]
    assert (back[2].epoch, back[2].txn_first_offset, back[2].last_sequence) == (9, 2, 5)
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 1
        with pytest.raises(SnapshotDamaged):
            decode_snapshot(bytes(damaged))
    for cut in range(len(data)):
        with pytest.raises(SnapshotDamaged):
            decode_snapshot(data[:cut])


def test_duplicates_get_their_first_offset_also_after_a_clean_restart(
    tmp_path: Path,
) -> None:
    async def main(world: World, path: str) -> None:
        store = await open_store(world, path)
        log = await new_log(world, path)
        store.logs[PARTITION] = log
        log.append_as_leader(sequenced(1, 0, "a"), 0)
        first = log.append_as_leader(sequenced(1, 1, "b", "c"), 0)
        again = log.append_as_leader(sequenced(1, 1, "b", "c"), 0)
        assert again == (first.base_offset, first.end_offset, -1, True)
        await store.close()
        reopened = (await open_store(world, path)).logs[PARTITION]
        assert reopened.append_as_leader(sequenced(1, 1, "b", "c"), 0) == again
        reopened.append_as_leader(sequenced(1, 3, "d"), 0)
        assert values(reopened) == ["a", "b", "c", "d"]

    in_real_world(tmp_path, main)


def test_five_batches_are_recognised_also_after_a_crash(tmp_path: Path) -> None:
    async def main(world: World, path: str) -> None:
        log = await new_log(world, path)
        for number in range(100):
            log.append_as_leader(sequenced(1, number, str(number)), 0)
        reopened = (await open_store(world, path)).logs[PARTITION]
        for number in range(95, 100):
            assert reopened.append_as_leader(sequenced(1, number, str(number)), 0) == (
                number,
                number + 1,
                -1,
                True,
            )

    in_real_world(tmp_path, main)


def test_transactions_hold_back_the_last_stable_offset_and_aborted_ones_are_indexed(
    tmp_path: Path,
) -> None:
    async def main(world: World, path: str) -> None:
        log = await new_log(world, path)
        log.append_as_leader(sequenced(1, 0, "a", transactional=True), 0)
        log.append_as_leader(sequenced(2, 0, "b", transactional=True), 0)
        assert log.producers.first_unstable_offset() == 0
        log.append_as_leader(marker(1, committed=False), 0, from_client=False)
        assert log.producers.first_unstable_offset() == 0, "the marker is not replicated yet"
        log.producers.advance(log.end_offset)
        assert log.producers.first_unstable_offset() == 1
        log.append_as_leader(marker(2, committed=True), 0, from_client=False)
        log.producers.advance(log.end_offset)
        assert log.producers.first_unstable_offset() is None
        assert log.aborted_transactions(0, 4) == [(1, 0, 2, 1)]
        assert log.aborted_transactions(3, 4) == []
        recovered = (await open_store(world, path)).logs[PARTITION]
        assert recovered.aborted_transactions(0, 4) == [(1, 0, 2, 1)]

    in_real_world(tmp_path, main)


def test_a_malformed_control_batch_is_refused_before_it_is_written(tmp_path: Path) -> None:
    async def main(world: World, path: str) -> None:
        log = await new_log(world, path)
        log.append_as_leader(sequenced(1, 0, "a", transactional=True), 0)
        bad = build_batch(
            [(b"\0", b"", (), 1)],
            base_offset=1,
            producer_id=1,
            producer_epoch=0,
            transactional=True,
            control=True,
        )
        with pytest.raises(KafkaError):
            log.append_as_leader(bad, 0, from_client=False)
        with pytest.raises(KafkaError):
            log.append_as_follower(bad)
        assert (log.end_offset, log.active.size) == (1, log.active.file.size())
        assert values(log) == ["a"]

    in_real_world(tmp_path, main)


def test_markers_of_stale_coordinators_and_producers_are_refused(tmp_path: Path) -> None:
    async def main(world: World, path: str) -> None:
        log = await new_log(world, path)
        log.append_as_leader(sequenced(1, 0, "a", epoch=1, transactional=True), 0)
        log.append_as_leader(
            marker(1, committed=True, epoch=1, coordinator_epoch=5), 0, from_client=False
        )
        for stale, code in [
            (
                marker(1, committed=False, epoch=0, coordinator_epoch=5),
                ErrorCode.INVALID_PRODUCER_EPOCH,
            ),
            (
                marker(1, committed=False, epoch=1, coordinator_epoch=4),
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
            ),
        ]:
            with pytest.raises(KafkaError) as refused:
                log.append_as_leader(stale, 0, from_client=False)
            assert refused.value.code == code
        assert log.end_offset == 2

    in_real_world(tmp_path, main)
