"""Builds the workloads that a seed has drawn."""

from __future__ import annotations

from collections.abc import Callable

from penstock.sim.cluster.spec import WorkloadKind
from penstock.sim.cluster.workloads import recreated_topic
from penstock.sim.cluster.workloads.administration import ChangedSettings, DirectoryMoves
from penstock.sim.cluster.workloads.compacted_topic import CompactedTopic
from penstock.sim.cluster.workloads.consumer_group import ConsumerGroupWorkload
from penstock.sim.cluster.workloads.rack_reader import RackReader
from penstock.sim.cluster.workloads.recreated_topic import RecreatedTopic
from penstock.sim.cluster.workloads.trimmed_topic import TrimmedTopic
from penstock.sim.cluster.workloads.workload import Workload, WorkloadEnv

_KINDS: dict[WorkloadKind, Callable[[WorkloadEnv], Workload]] = {
    WorkloadKind.RACK_READER: RackReader,
    WorkloadKind.RECREATED_TOPIC: RecreatedTopic,
    WorkloadKind.COMPACTED_TOPIC: CompactedTopic,
    WorkloadKind.TRIMMED_TOPIC: TrimmedTopic,
    WorkloadKind.CHANGED_SETTINGS: ChangedSettings,
    WorkloadKind.DIRECTORY_MOVES: DirectoryMoves,
}


def build_workloads(env: WorkloadEnv) -> list[Workload]:
    """Return the workloads of a seed. Static members are a variant of the classic group, which
    every run has or has not."""
    drawn = env.spec.workloads
    workloads = [_KINDS[kind](env) for kind in drawn if kind in _KINDS]
    if WorkloadKind.CONSUMER_GROUP in drawn:
        is_recreated = WorkloadKind.RECREATED_TOPIC in drawn
        workloads.append(
            ConsumerGroupWorkload(env, recreated_topic.TOPIC if is_recreated else None)
        )
    return workloads
