"""The course of a fire: a load runs, a fault begins and ends, the cluster heals.

`burn` checks what every fire has in common: nothing acknowledged is lost, nothing is there twice,
the order is kept, clients go on within a bound while the fault lasts, all replicas are in sync
within a bound after it, a log line names the cause, and `penstock doctor` finds the chain of causes
while the fault lasts.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from tests.fire.cluster import FireCluster, FireError
from tests.fire.doctor import Diagnosis, diagnose
from tests.fire.load import Load

# With a session timeout of 6 s and a loaded machine.
BOUND_S = 30.0
_RECORDS = 150


@dataclass(frozen=True, slots=True)
class Cause:
    """The log line from which a person finds the cause: a pattern, and the node that logs it."""

    node_id: int
    pattern: str


@dataclass(frozen=True, slots=True)
class Result:
    name: str
    # Seconds until clients went on during the fault, and until everything was in sync after it.
    resumed_s: float
    healed_s: float
    bound_s: float
    records: int
    lines: tuple[str, ...]
    # What doctor said during the fault.
    findings: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def burn(
    cluster: FireCluster,
    name: str,
    light: Callable[[], object],
    put_out: Callable[[], object],
    causes: tuple[Cause, ...],
    findings: tuple[Diagnosis, ...],
    *,
    settle: Callable[[], object] = lambda: None,
    hold_s: float = 0.0,
    until_logged: bool = False,
    goes_on: bool = True,
    bound_s: float = BOUND_S,
    load: Load | None = None,
) -> Result:
    """`goes_on` is False for a fault that a majority does not survive: clients wait until it ends.
    `hold_s` is the least duration of the fault. With `until_logged` it lasts until the causes are
    logged. `settle` returns when the fault has had its effect. Then doctor must have the findings,
    before `put_out` ends the fault."""
    topic = f"fire-{name}"
    if load is None:
        cluster.create_topic(topic)
        load = Load(cluster, topic)
    topics = [load.topic]
    starts = {node_id: node.log_size() for node_id, node in cluster.nodes.items()}
    with load:
        load.wait_more(_RECORDS)
        began = time.monotonic()
        light()
        resumed_s = load.wait_more(_RECORDS, bound_s) if goes_on else 0.0
        time.sleep(max(0.0, began + hold_s - time.monotonic()))
        if until_logged:
            _find_lines(cluster, starts, causes, 60.0)
        settle()
        named = diagnose(cluster, starts, findings)
        put_out()
        ended = time.monotonic()
        cluster.wait(lambda: cluster.all_in_sync(topics), f"{name}: all in sync", bound_s)
        load.wait_more(_RECORDS, bound_s)
        healed_s = time.monotonic() - ended
        load.finish()
    if healed_s > bound_s:
        raise FireError(f"{name} healed in {healed_s:.1f} s, the bound is {bound_s:.0f} s")
    lines = _find_lines(cluster, starts, causes, 10.0)
    return Result(name, resumed_s, healed_s, bound_s, load.count, lines, named)


def _find_lines(
    cluster: FireCluster, starts: dict[int, int], causes: tuple[Cause, ...], within_s: float
) -> tuple[str, ...]:
    return tuple(
        cluster.find_line(cause.node_id, starts[cause.node_id], cause.pattern, within_s)
        for cause in causes
    )
