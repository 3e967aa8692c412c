"""What `penstock doctor` finds out about the cluster while a fire burns."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from penstock.cli.doctor.gather import Request, gather
from penstock.cli.doctor.local import in_order, read_node
from penstock.health.examine import examine
from penstock.health.observations import Event, Node, NodeState, Observation
from penstock.world.real import run
from tests.fire.cluster import METRICS_PORT, OUTSIDE, FireCluster, FireError, FireNode

# A node that does not answer costs doctor several timeouts.
_PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """A finding that doctor must have: patterns of its code, and of its sentence with the chain of
    causes."""

    code: str
    pattern: str


def diagnose(
    cluster: FireCluster, starts: dict[int, int], expected: tuple[Diagnosis, ...]
) -> tuple[str, ...]:
    """Return the sentences that name the causes; FireError if doctor does not find them. Doctor
    reads the logs from `starts` on, so that it does not find the causes of the fire before."""
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        seen = observe(cluster, starts)
        findings = [
            (finding.code, finding.sentence(seen.now_ms, seen.zone)) for finding in examine(seen)
        ]
        sentences = [_matching(findings, each) for each in expected]
        named = tuple(sentence for sentence in sentences if sentence is not None)
        if len(named) == len(expected):
            return named
        if time.monotonic() > deadline:
            missing = [each for each, found in zip(expected, sentences, strict=True) if not found]
            text = "\n".join(f"{code}: {sentence}" for code, sentence in findings)
            raise FireError(f"doctor did not find {missing}, but:\n{text}\nunseen {seen.unseen}")


def observe(cluster: FireCluster, starts: dict[int, int]) -> Observation:
    """Look at the cluster as doctor does, from outside, with the logs of all nodes."""
    zone = datetime.now().astimezone().tzinfo
    assert zone is not None
    nodes: dict[int, Node] = {}
    events: list[Event] = []
    for each in cluster.nodes.values():
        pid = each.process.pid if each.process is not None and each.is_running else None
        text = each.log_text(starts[each.id])
        nodes[each.id], logged = read_node(Node(each.id, _state(each)), text, pid, zone)
        events += logged
    pages = tuple(f"{each.host.address}:{METRICS_PORT}" for each in cluster.nodes.values())
    request = Request(cluster.bootstrap, over_s=0.0, metrics=pages)
    seen = cluster.network.hosts[OUTSIDE].run(lambda: run(lambda world: gather(world, request)))
    return replace(seen, nodes=nodes, events=in_order(events))


def _matching(findings: list[tuple[str, str]], expected: Diagnosis) -> str | None:
    return next(
        (
            sentence
            for code, sentence in findings
            if re.fullmatch(expected.code, code) and re.search(expected.pattern, sentence)
        ),
        None,
    )


def _state(node: FireNode) -> NodeState:
    if node.process is None or not node.is_running:
        return NodeState.STOPPED
    stat = (Path("/proc") / str(node.process.pid) / "stat").read_text()
    is_stopped = stat.rpartition(") ")[2].startswith("T")
    return NodeState.PAUSED if is_stopped else NodeState.RUNNING
