"""Clusters whose partitions move between brokers, in simulation: the rules hold, and planted bugs
are caught."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.errors import ErrorCode, KafkaError
from penstock.ids import TopicPartition
from penstock.sim.cluster.run import run_cluster, run_reassignments
from penstock.sim.cluster.workloads.clients import REQUEST_TIMEOUT_S
from penstock.sim.cluster.workloads.reassignments import Reassignments
from penstock.sim.cluster.workloads.workload import WorkloadEnv
from penstock.sim.harness import InvariantViolated, quiet
from penstock.sim.planted.catching import PLANTS, Plant, find_seed, read_caught
from penstock.sim.planted.reassignments import (
    PLANTED_REASSIGNMENTS,
    reassignments_complete_too_early,
)
from penstock.sim.results import Results
from penstock.world.sim import Simulation
from tests.sim.seeds import Seeds, seeds_of

# `python -m penstock.sim.planted` plants all bugs, and writes docs/PLANTED.csv.
QUICK_BUGS = ("cancelled_reassignments_keep_new_replicas",)
CAUGHT = read_caught(Path(__file__).parents[2] / "docs" / "PLANTED.csv")
# If the seed of docs/PLANTED.csv does not catch a bug any more, these are tried.
OTHER_SEEDS = range(20)


@seeds_of("reassignments")
def test_rules_hold(
    seeds: Seeds, record_property: Callable[[str, object], None], tmp_path: Path
) -> None:
    results = Results(tmp_path / "results.csv", "", "reassignments")
    with quiet():
        for seed in seeds:
            results.add_passed(run_reassignments(seed))
    record_property("note", f"simulation of reassignments: {results}")
    assert results.numbers["seeds"] > results.numbers["uncounted"]
    assert results.totals["reassignments started"] > results.numbers["seeds"]
    if results.numbers["seeds"] > 1:
        assert results.totals["reassignments cancelled"] > 0


@pytest.mark.parametrize(
    "plant",
    [pytest.param(plant, id=plant.name) for plant in PLANTS if plant.name in QUICK_BUGS],
)
def test_a_planted_bug_is_caught(
    plant: Plant, record_property: Callable[[str, object], None]
) -> None:
    found = find_seed(plant, [CAUGHT[plant.name].seed, *OTHER_SEEDS])
    assert found is not None
    record_property("note", f"planted, {plant.name}: {found.violation}")


def test_all_bugs_in_reassignments_are_caught() -> None:
    assert {bug.__name__ for bug in PLANTED_REASSIGNMENTS} <= set(CAUGHT)


@pytest.mark.more
def test_a_seed_gives_the_same_run_twice_and_another_one_without_reassignments() -> None:
    with quiet():
        digests = [run_reassignments(2).digest, run_reassignments(2).digest, run_cluster(2).digest]
    assert digests[0] == digests[1]
    assert digests[0] != digests[2]


def test_a_failure_says_how_to_repeat_it() -> None:
    seeds = [CAUGHT["reassignments_complete_too_early"].seed, *OTHER_SEEDS]
    with quiet(), reassignments_complete_too_early(), pytest.raises(InvariantViolated) as violated:
        for seed in seeds:
            run_reassignments(seed)
    assert str(violated.value).endswith(f"python -m penstock.sim --reassignments --seed {seed}")


class FakeAdmin:
    """Accepts everything. The first reassignment is refused once `released` is set."""

    def __init__(self) -> None:
        self.released = asyncio.Event()
        self.blocked = asyncio.Event()
        self.calls: list[str] = []

    async def alter_configs(self, *_args: object, **_kwargs: object) -> None:
        self.calls.append("configs")

    async def alter_partition_reassignments(
        self, assignments: dict[TopicPartition, object]
    ) -> dict[TopicPartition, None]:
        if not self.blocked.is_set():
            self.blocked.set()
            await self.released.wait()
            self.calls.append("late")
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "its outcome is unknown")
        self.calls.append("reassignment")
        return dict.fromkeys(assignments)

    async def list_partition_reassignments(self) -> dict[TopicPartition, object]:
        return {}

    async def describe_topics(self, _names: list[str]) -> list[object]:
        return [SimpleNamespace(partition=lambda _index: SimpleNamespace(replicas=(1,)))]


def test_the_last_moves_begin_when_no_earlier_request_can_be_carried_out() -> None:
    """A cancellation that the client still retried after the faults was carried out after the
    next reassignment was accepted: a violation of rule 27 that was none."""
    simulation = Simulation(1)
    machine = simulation.node("client")

    async def main() -> None:
        admin = FakeAdmin()

        @contextlib.asynccontextmanager
        async def connected(_machine: object) -> AsyncIterator[Any]:
            yield SimpleNamespace(admin=admin)

        topic = SimpleNamespace(
            name="t", min_insync=1, factor=1, all_partitions=[TopicPartition("t", 0)]
        )
        env = SimpleNamespace(
            spec=SimpleNamespace(
                configs={"n1": SimpleNamespace(node_id=1)}, brokers=["n1"], topics=[topic]
            ),
            history=SimpleNamespace(count=lambda _what: None, events=[]),
            rng=random.Random(3),
            connected=connected,
            faults_over=asyncio.Event(),
            over=asyncio.Event(),
        )
        workload = Reassignments(cast(WorkloadEnv, env))
        [(_machine, work)] = workload.clients(machine, machine)
        reassigning = asyncio.ensure_future(work)
        await admin.blocked.wait()
        before = len(admin.calls)
        env.faults_over.set()
        settling = asyncio.ensure_future(workload.settle(machine))
        await asyncio.sleep(5)
        assert len(admin.calls) == before, "the client still waits for its last response"
        admin.released.set()
        await reassigning
        released_at = asyncio.get_running_loop().time()
        while "reassignment" not in admin.calls:
            await asyncio.sleep(0.01)
        waited_s = asyncio.get_running_loop().time() - released_at
        assert waited_s >= REQUEST_TIMEOUT_S, "a broker may still forward the last request"
        await settling
        assert [type(event).__name__ for event in env.history.events] == ["ReassignmentEnded"]

    simulation.run(main())
