"""Each fire, in a cluster of three real nodes in network namespaces.

Nothing acknowledged is lost or there twice, the order is kept, clients go on and replicas are in
sync within a bound, a log line names the cause, and `penstock doctor` finds the chain of causes
while the fire burns.

docs/FIRES.md has the list. A machine without the tools skips these tests: the reason says what to
install. PENSTOCK_FIRE=long runs both kinds of damage to files of a whole node.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

import pytest

from tests.fire.lab import FIRES, Lab

pytestmark = [
    pytest.mark.more,
    pytest.mark.xdist_group("fire"),
    pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's"),
]
_ONLY_LONG = {
    "damaged_checkpoints_cut",
    "damaged_meta_properties_cut",
    "damaged_quorum_state_flip",
    "damaged_metadata_log_cut",
    "damaged_metadata_snapshot_flip",
}
_IS_LONG = os.environ.get("PENSTOCK_FIRE") == "long"


@pytest.mark.parametrize("name", [name for name in FIRES if _IS_LONG or name not in _ONLY_LONG])
def test_nothing_is_lost_in_the_fire(
    lab: Lab, name: str, record_property: Callable[[str, object], None]
) -> None:
    result = lab.burn(name)
    note = (
        f"{name}: clients went on after {result['resumed_s']:.1f} s, all in sync "
        f"{result['healed_s']:.1f} s after the fire (bound {result['bound_s']:.0f} s), "
        f"{result['records']} records"
    )
    record_property("note", note)
    for finding in result["findings"]:
        record_property("doctor", finding)
    assert result["healed_s"] <= result["bound_s"]
    assert result["lines"]
    assert result["findings"]
