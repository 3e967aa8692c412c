"""Clusters with an authorizer in simulation: the rules hold, and planted bugs are caught."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.security.acls import AclOperation
from penstock.security.authorizer import Authorizer
from penstock.sim.cluster.run import run_acls
from penstock.sim.harness import InvariantViolated, quiet
from penstock.sim.results import Results
from tests.sim.seeds import Seeds, seeds_of


@seeds_of("acls")
def test_rules_hold(
    seeds: Seeds, record_property: Callable[[str, object], None], tmp_path: Path
) -> None:
    results = Results(tmp_path / "results.csv", "", "acls")
    with quiet():
        for seed in seeds:
            results.add_passed(run_acls(seed))
    record_property("note", f"simulation of access control: {results}")
    totals, count = results.totals, results.numbers["seeds"]
    assert totals["rights settled"] == count
    assert totals["writes of the stranger denied"] > count
    assert totals["writes of the writer denied"] > count
    assert totals["writes with a right"] > count
    assert totals["access control entries changed"] > count


@pytest.mark.more
def test_an_authorizer_that_takes_read_for_write_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    allows = Authorizer.allows

    def lenient(
        self: Authorizer, principal: Any, host: str, operation: AclOperation, *resource: Any
    ) -> bool:
        if operation == AclOperation.WRITE and allows(
            self, principal, host, AclOperation.READ, *resource
        ):
            return True
        return allows(self, principal, host, operation, *resource)

    monkeypatch.setattr(Authorizer, "allows", lenient)
    assert "rule 28, denied_writes_are_never_visible" in first_violation()


@pytest.mark.skipif("PENSTOCK_DRILL" not in os.environ, reason="takes long: PENSTOCK_DRILL=1")
def test_an_authorizer_that_keeps_removed_entries_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    apply = Authorizer.apply

    def keeping(self: Authorizer, changes: Any, acls: Any) -> Iterator[None]:
        added = {key: change for key, change in changes.items() if change[1] is not None}
        yield from apply(self, added, acls)

    monkeypatch.setattr(Authorizer, "apply", keeping)
    assert "AccessControl takes longer" in first_violation()


def first_violation() -> str:
    with quiet():
        for seed in range(5):
            try:
                run_acls(seed)
            except InvariantViolated as violation:
                return str(violation)
    return ""
