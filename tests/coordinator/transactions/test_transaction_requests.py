"""Every request in every state of a transactional id: the error codes of Kafka 4.3.

The client's producer has epoch 1 in each state; "before" is its epoch 0, with which it ended the
transaction of the Prepare and Complete states (EndTxn v5). "other" is another producer id.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.coordinator.transactions.transaction import Producer, TransactionState
from penstock.errors import ErrorCode
from tests.coordinator.transactions.transaction_world import (
    A0,
    FIRST_PRODUCER_ID,
    NO_PRODUCER,
    World,
    code,
    durable_state,
)

CURRENT = Producer(FIRST_PRODUCER_ID, 1)
PRODUCERS = {
    "current": CURRENT,
    "before": Producer(FIRST_PRODUCER_ID, 0),
    "after": Producer(FIRST_PRODUCER_ID, 2),
    "other": Producer(7, 1),
    "new": NO_PRODUCER,
}

CODES = {
    "-": ErrorCode.NONE,
    "concurrent": ErrorCode.CONCURRENT_TRANSACTIONS,
    "fenced": ErrorCode.PRODUCER_FENCED,
    "mapping": ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    "state": ErrorCode.INVALID_TXN_STATE,
    "abortable": ErrorCode.TRANSACTION_ABORTABLE,
}

# PrepareCommit and PrepareAbort have the same results.
COLUMNS = ("Missing", "Empty", "Ongoing", "Prepare", "CompleteCommit", "CompleteAbort")
TABLE = """
                  Missing  Empty      Ongoing     Prepare     CompleteCommit  CompleteAbort
init new          -        -          concurrent  concurrent  -               -
init current      -        -          concurrent  concurrent  -               -
init before       -        fenced     fenced      concurrent  -               -
init after        -        fenced     fenced      concurrent  fenced          fenced
init other        -        fenced     fenced      concurrent  fenced          fenced
add current       mapping  -          -           concurrent  -               -
add before        mapping  fenced     fenced      concurrent  fenced          fenced
add after         mapping  fenced     fenced      concurrent  fenced          fenced
add other         mapping  mapping    mapping     concurrent  mapping         mapping
verify current    mapping  abortable  -           concurrent  abortable       abortable
verify before     mapping  fenced     fenced      fenced      fenced          fenced
verify after      mapping  fenced     fenced      fenced      fenced          fenced
verify other      mapping  mapping    mapping     mapping     mapping         mapping
commit5 current   mapping  state      -           concurrent  state           state
commit5 before    mapping  fenced     fenced      concurrent  -               state
commit5 after     mapping  fenced     fenced      concurrent  fenced          fenced
commit5 other     mapping  mapping    mapping     concurrent  mapping         mapping
abort5 current    mapping  -          -           concurrent  -               -
abort5 before     mapping  fenced     fenced      concurrent  state           -
abort5 after      mapping  fenced     fenced      concurrent  fenced          fenced
abort5 other      mapping  mapping    mapping     concurrent  mapping         mapping
commit4 current   mapping  state      -           concurrent  -               state
commit4 before    mapping  fenced     fenced      fenced      fenced          fenced
commit4 after     mapping  fenced     fenced      fenced      fenced          fenced
commit4 other     mapping  mapping    mapping     mapping     mapping         mapping
abort4 current    mapping  state      -           concurrent  state           -
abort4 before     mapping  fenced     fenced      fenced      fenced          fenced
abort4 after      mapping  fenced     fenced      fenced      fenced          fenced
abort4 other      mapping  mapping    mapping     mapping     mapping         mapping
"""

# Requests that a state accepts, and that change nothing because they were done before.
DONE = {
    ("commit5 before", TransactionState.COMPLETE_COMMIT),
    ("abort5 before", TransactionState.COMPLETE_ABORT),
    ("commit4 current", TransactionState.COMPLETE_COMMIT),
    ("abort4 current", TransactionState.COMPLETE_ABORT),
    ("add current", TransactionState.ONGOING),
    ("verify current", TransactionState.ONGOING),
}


def parse() -> list[tuple[str, TransactionState | None, ErrorCode]]:
    header, *rows = (line.split() for line in TABLE.strip().splitlines())
    assert tuple(header) == COLUMNS
    cases: list[tuple[str, TransactionState | None, ErrorCode]] = []
    for request, producer, *results in rows:
        assert len(results) == len(COLUMNS)
        for column, result in zip(COLUMNS, results, strict=True):
            states = {
                "Missing": (None,),
                "Prepare": (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT),
            }.get(column) or tuple(s for s in TransactionState if s.label == column)
            cases += [(f"{request} {producer}", state, CODES[result]) for state in states]
    return cases


CASES = parse()


def in_state(state: TransactionState | None) -> World:
    """Return a world whose transactional id is in this state, with the producer CURRENT."""
    world = World()
    if state is None:
        return world
    producer = world.new_producer()
    match state:
        case TransactionState.EMPTY | TransactionState.ONGOING:
            assert world.new_producer() == CURRENT
            if state is TransactionState.ONGOING:
                world.add(CURRENT)
        case _:
            world.add(producer)
            commit = state in (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)
            assert world.ended(producer, commit) == CURRENT
            if state in (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT):
                world.write_markers()
    assert world.state() is state
    assert world.of().producer == CURRENT
    return world


REQUESTS: dict[str, Callable[[World, Producer], ErrorCode]] = {
    "init": lambda world, producer: code(world.init(producer)),
    "add": lambda world, producer: world.add(producer, A0),
    "verify": lambda world, producer: world.verify(producer, A0)[A0],
    "commit5": lambda world, producer: code(world.end(producer, True, version=5)),
    "abort5": lambda world, producer: code(world.end(producer, False, version=5)),
    "commit4": lambda world, producer: code(world.end(producer, True, version=4)),
    "abort4": lambda world, producer: code(world.end(producer, False, version=4)),
}


@pytest.mark.parametrize(
    ("request_", "state", "expected"),
    CASES,
    ids=[f"{request}-{state.label if state is not None else None}" for request, state, _ in CASES],
)
def test_every_request_in_every_state(
    request_: str, state: TransactionState | None, expected: ErrorCode
) -> None:
    world = in_state(state)
    written = len(world.log)
    name, producer = request_.split()
    assert REQUESTS[name](world, PRODUCERS[producer]) == expected
    if expected != ErrorCode.NONE or (request_, state) in DONE:
        # Fencing aborts the ongoing transaction before the client retries.
        fences = name == "init" and state is TransactionState.ONGOING
        assert len(world.log) == written + (fences and expected != ErrorCode.PRODUCER_FENCED)
    else:
        assert len(world.log) > written
    # The log holds what the machine decides on.
    assert durable_state(world.replayed()) == durable_state(world.machine)


@pytest.mark.parametrize("state", [None, *list(TransactionState)[:6]])
def test_an_empty_transactional_id_is_invalid(state: TransactionState | None) -> None:
    world = in_state(state)
    assert code(world.init(name="")) == ErrorCode.INVALID_REQUEST
    assert world.add(CURRENT, name="") == ErrorCode.INVALID_REQUEST
    assert world.verify(CURRENT, A0, name="") == {A0: ErrorCode.INVALID_REQUEST}
    assert code(world.end(CURRENT, name="")) == ErrorCode.INVALID_REQUEST
    assert code(world.end(CURRENT, name="", version=4)) == ErrorCode.INVALID_REQUEST
    assert world.machine.describe("").error_code == ErrorCode.INVALID_REQUEST


def test_errors_carry_no_producer() -> None:
    world = in_state(TransactionState.PREPARE_COMMIT)
    init, end = world.init(), world.end(CURRENT)
    assert (init.producer_id, init.producer_epoch) == NO_PRODUCER
    assert (end.producer_id, end.producer_epoch) == NO_PRODUCER
