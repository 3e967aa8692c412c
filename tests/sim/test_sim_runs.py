"""`python -m penstock.sim`: kinds of runs, fresh seeds, and their rows in the CSV file."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from penstock.sim import __main__ as command
from penstock.sim.planted.explore import earlier_epochs_are_committed_by_counting
from penstock.sim.results import Results
from penstock.sim.runs import QUORUM, WALKS, run_fresh_seeds, run_seed

OLD_FILE = """\
commit,seeds,uncounted,failed,elections,truncations,acknowledged,failing_seeds
62da14b,738,159,3,9024,1484,288488,163164457705387
"""


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_old_rows_are_kept_as_rows_of_clusters(tmp_path: Path) -> None:
    path = tmp_path / "results.csv"
    path.write_text(OLD_FILE)
    Results(path, "new", "quorum").save()
    old, new = rows(path)
    assert (old["kind"], old["commit"], old["acknowledged"]) == ("cluster", "62da14b", "288488")
    assert (new["kind"], new["commit"], new["seeds"]) == ("quorum", "new", "0")


def test_fresh_seeds_run_until_enough_of_each_kind_count() -> None:
    kinds = (QUORUM, WALKS["raft"])
    outcomes = list(run_fresh_seeds(kinds, {"quorum": 3, "explore raft": 25}, None, jobs=1))
    counted = [outcome for outcome in outcomes if not isinstance(outcome.report, str)]
    assert len(outcomes) == len(counted)
    assert sum(outcome.kind == "quorum" for outcome in counted) >= 3
    assert sum(outcome.kind == "explore raft" for outcome in counted) >= 25


def test_a_failing_seed_is_an_outcome() -> None:
    with earlier_epochs_are_committed_by_counting():
        outcome = run_seed(WALKS["raft"], 0)
    assert isinstance(outcome.report, str)
    assert "repeat with: python -m penstock.sim --explore raft --seed 0" in outcome.report


@pytest.mark.parametrize(
    ("options", "printed"),
    [
        (["--explore", "raft", "--seed", "3"], ["explore raft"]),
        (["--explore", "--seed", "3"], [f"explore {name}" for name in WALKS]),
        (["--transactions", "--seed", "3"], ["transactions"]),
        (["--reassignments", "--seed", "3"], ["reassignments"]),
        (["--acls", "--seed", "3"], ["acls"]),
        (["--quorum", "--seed", "3"], ["quorum"]),
    ],
)
def test_the_command_repeats_a_seed(
    options: list[str],
    printed: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("sys.argv", ["penstock.sim", *options])
    assert command.main() == 0
    assert [line.split(":")[0] for line in capsys.readouterr().out.splitlines()] == printed


def test_the_command_adds_up_the_results_of_each_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "results.csv"
    options = ["--explore", "--seeds", "4", "--jobs", "1", "--results", str(path), "--commit", "c"]
    monkeypatch.setattr("sys.argv", ["penstock.sim", *options])
    assert command.main() == 0
    assert [row["kind"] for row in rows(path)] == [f"explore {name}" for name in WALKS]
    assert all(int(row["seeds"]) >= 4 for row in rows(path))
