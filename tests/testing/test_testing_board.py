"""Faults reach other processes, and `times` counts requests of the whole cluster."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

from penstock.testing.faults.board import DELAY, FAIL, ApiFault, FaultBoard, Faults


def test_a_published_fault_is_read_by_boards_that_exist_and_by_later_ones(tmp_path: Path) -> None:
    writer, reader = FaultBoard(tmp_path), FaultBoard(tmp_path)
    assert reader.faults == Faults()
    faults = Faults((ApiFault(0, DELAY, 1, None, 2, 30.0),), frozenset({(1, 2)}))
    writer.publish(faults)
    assert reader.faults == faults
    assert FaultBoard(tmp_path).faults == faults
    writer.publish(Faults())
    assert reader.faults == Faults()


def test_a_fault_is_used_as_often_as_it_says(tmp_path: Path) -> None:
    first, second = FaultBoard(tmp_path), FaultBoard(tmp_path)
    fault = ApiFault(4, FAIL, 0, times=2)
    assert [first.use(fault), second.use(fault), first.use(fault)] == [True, True, False]
    assert second.uses(4) == 2
    second.reset(4)
    assert first.use(fault)


def test_a_fault_without_a_number_of_times_is_counted(tmp_path: Path) -> None:
    board, fault = FaultBoard(tmp_path), ApiFault(0, FAIL, 0)
    assert all(board.use(fault) for _request in range(5))
    assert board.uses(0) == 5


def _use_often(directory: str) -> int:
    board = FaultBoard(Path(directory))
    return sum(board.use(ApiFault(0, FAIL, 0, times=300)) for _request in range(200))


def test_processes_count_together(tmp_path: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        used = pool.map(_use_often, [str(tmp_path)] * 2, chunksize=1)
    assert sum(used) == 300


def test_a_cut_has_no_direction() -> None:
    faults = Faults(cuts=frozenset({(1, 3)}))
    assert faults.is_cut(3, 1)
    assert faults.is_cut(1, 3)
    assert not faults.is_cut(1, 2)
