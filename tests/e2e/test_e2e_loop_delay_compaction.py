"""The event loop does not stall while a topic under load is compacted.

drilled_node.py has the bounds, and how to run the full drill.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.e2e.compacted_topic import (
    SETTINGS,
    TOPIC,
    active_segment,
    clean_offset,
    create,
    wait_clean,
)
from tests.e2e.drilled_node import LOAD_S, DrilledNode, Load, assert_within_bound

KEYS = 5_000
# The child process compacts and also checks produced records for keys. This rate is below what it
# can do for both.
RECORDS_PER_S = 20_000


def test_the_loop_delay_stays_within_its_bound_during_compaction(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    node = DrilledNode(tmp_path, *SETTINGS)
    try:
        create(node.bootstrap, segment_bytes="8388608")
        load = Load(node.bootstrap, TOPIC, per_second=RECORDS_PER_S, keys=KEYS)
        cleaned: set[int] = set()
        for tenth in range(1, 11):
            load.wait(2 * LOAD_S * tenth / 10)
            cleaned.add(clean_offset(node.data))
        produced = load.stop()
        wait_clean(node.data, active_segment(node.data) // 2)
        own, wall = node.stop()
    finally:
        node.process.kill()
        node.process.wait()
    left = sum(path.stat().st_size for path in node.data.glob(f"{TOPIC}-0/*.log"))
    report = (
        f"{own.line} by its own time, {wall.line} by wall clock; "
        f"produced {produced / 1e6:.0f} MB of {KEYS} keys, {left / 1e6:.0f} MB left after "
        f"{len(cleaned - {0})} compactions or more"
    )
    record_property("note", f"loop delay during compaction {report}")
    assert len(cleaned - {0}) > 2, report
    assert left < produced / 2, report
    assert_within_bound(own, report)
