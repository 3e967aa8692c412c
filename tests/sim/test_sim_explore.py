"""Explorers: the laws hold on fixed walks, a seed determines its walk, and planted bugs are
caught."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from penstock.sim.explore import EXPLORERS
from penstock.sim.explore.raft import RAFT, VOTERS
from penstock.sim.explore.raft_laws import (
    ELECTION_SAFETY,
    LEADER_COMPLETENESS,
    STATE_MACHINE_SAFETY,
    RaftLaws,
)
from penstock.sim.explore.replica import MOVES, REPLICA
from penstock.sim.explore.shard import SHARD
from penstock.sim.explore.txn import TXN
from penstock.sim.explore.walk import Explorer, LawBroken, explore, run_walk, turns_of
from penstock.sim.harness import InvariantViolated, quiet, replaced
from penstock.sim.planted import PlantedBug
from penstock.sim.planted.explore import (
    PLANTED_RAFT,
    PLANTED_REPLICA,
    PLANTED_SHARD,
    PLANTED_TXN,
    earlier_epochs_are_committed_by_counting,
)
from penstock.sim.planted.membership import PLANTED_VOTERS, two_changes_at_once
from penstock.sim.planted.reassignments import PLANTED_MOVES
from tests.sim.seeds import EXPLORER_REGRESSIONS

# Walks of each explorer in `make test`: a few seconds each. `make sim` runs fresh ones.
WALKS = {RAFT: 150, VOTERS: 60, REPLICA: 250, MOVES: 150, SHARD: 40, TXN: 60}
# Each planted bug is caught within so many walks.
CAUGHT_WITHIN_WALKS = dict.fromkeys((RAFT, VOTERS, REPLICA, MOVES, SHARD, TXN), 50)

PLANTED = [
    *((RAFT, plant) for plant in PLANTED_RAFT),
    *((VOTERS, plant) for plant in PLANTED_VOTERS),
    *((REPLICA, plant) for plant in PLANTED_REPLICA),
    *((MOVES, plant) for plant in PLANTED_MOVES),
    *((SHARD, plant) for plant in PLANTED_SHARD),
    *((TXN, plant) for plant in PLANTED_TXN),
]


@pytest.mark.parametrize("explorer", EXPLORERS.values(), ids=lambda explorer: explorer.name)
def test_laws_hold(explorer: Explorer, record_property: Callable[[str, object], None]) -> None:
    counts: Counter[str] = Counter()
    with quiet():
        for seed in (*range(WALKS[explorer]), *EXPLORER_REGRESSIONS[explorer.name]):
            counts.update(explore(explorer, seed))
    record_property("note", f"{explorer.name} explorer: {dict(counts)}")
    assert counts["committed"] > WALKS[explorer]
    assert counts["elections"] > WALKS[explorer]


@pytest.mark.parametrize("explorer", EXPLORERS.values(), ids=lambda explorer: explorer.name)
def test_a_seed_determines_its_walk(explorer: Explorer) -> None:
    transcripts: list[list[str]] = []
    with quiet():
        for seed in (7, 7, 8):
            lines: list[str] = []
            run_walk(explorer, turns_of(explorer, seed), lines)
            transcripts.append(lines)
    assert transcripts[0] == transcripts[1]
    assert transcripts[0] != transcripts[2]


@pytest.mark.parametrize(
    ("explorer", "plant"), PLANTED, ids=[plant.__name__ for _explorer, plant in PLANTED]
)
def test_a_planted_bug_is_caught(
    explorer: Explorer, plant: PlantedBug, record_property: Callable[[str, object], None]
) -> None:
    with quiet(), plant(), pytest.raises(InvariantViolated) as caught:
        for seed in range(CAUGHT_WITHIN_WALKS[explorer]):
            explore(explorer, seed)
    record_property("note", f"planted, {plant.__name__}: {str(caught.value).splitlines()[0]}")


def test_figure_8_loses_a_committed_entry() -> None:
    """Also without the law that forbids such a commit the consequence is found. Seed 354 is the
    first of the seeds from 0 on that shows it."""
    with (
        earlier_epochs_are_committed_by_counting(),
        replaced(RaftLaws, "check_commit_rule", lambda _original: lambda *_args: None),
    ):
        failure, _walk = run_walk(RAFT, turns_of(RAFT, 354))
    assert isinstance(failure, LawBroken)
    assert failure.law == LEADER_COMPLETENESS


@pytest.mark.parametrize(
    ("seed", "law"), [(18, STATE_MACHINE_SAFETY), (46, LEADER_COMPLETENESS), (79, ELECTION_SAFETY)]
)
def test_two_changes_of_the_voters_at_once_lose_entries_and_elect_two_leaders(
    seed: int, law: str
) -> None:
    """Also without the law that forbids two changes the consequences are found. The seeds are the
    first ones that show them."""
    with (
        quiet(),
        two_changes_at_once(),
        replaced(RaftLaws, "check_uncommitted_changes", lambda _original: lambda *_args: None),
    ):
        failure, _walk = run_walk(VOTERS, turns_of(VOTERS, seed))
    assert isinstance(failure, LawBroken)
    assert failure.law == law


def test_walks_change_the_voters() -> None:
    """Voters are added, removed, wiped and updated, and kraft.version is raised."""
    changes: Counter[str] = Counter()
    with quiet():
        for seed in range(20):
            lines: list[str] = []
            run_walk(VOTERS, turns_of(VOTERS, seed), lines)
            answers = [line.split()[2] for line in lines if " answers " in line]
            changes.update(answer.partition("(")[0] for answer in answers)
            changes["wiped"] += sum(line.endswith("is wiped") for line in lines)
            changes["upgraded"] += sum(" raises kraft.version " in line for line in lines)
    members = ("AddVoterRequest", "RemoveVoterRequest", "UpdateVoterRequest")
    assert all(changes[change] > 0 for change in (*members, "wiped", "upgraded")), changes


def test_a_failure_has_a_short_transcript_and_says_how_to_repeat_it() -> None:
    with (
        quiet(),
        earlier_epochs_are_committed_by_counting(),
        pytest.raises(InvariantViolated) as caught,
    ):
        explore(RAFT, 0)
    lines = str(caught.value).splitlines()
    assert lines[-1] == "repeat with: python -m penstock.sim --explore raft --seed 0"
    assert lines[1].startswith(f"{RAFT.turns} turns, shortened to ")
    assert int(lines[1].split()[-1].rstrip(":")) < RAFT.turns / 10
