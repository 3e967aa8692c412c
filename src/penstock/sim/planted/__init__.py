"""Bugs planted on purpose, to show that the checkers of simulated runs find them.

Each breaks one rule of the product while its `with` block lasts. They replace product code by name.
When that code is renamed or moved, they fail with KeyError and must be changed too.

`python -m penstock.sim.planted` finds the seed that catches each, and writes docs/PLANTED.csv.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from penstock.sim.planted.broker import PLANTED_BROKER, impostors_change_fetch_sessions
from penstock.sim.planted.cluster import PLANTED_CLUSTER
from penstock.sim.planted.defects import PLANTED_DEFECTS
from penstock.sim.planted.groups import PLANTED_GROUPS
from penstock.sim.planted.log import (
    PLANTED_LOG,
    moves_continue_without_comparison,
    too_many_files_break_the_disk,
)
from penstock.sim.planted.workloads import PLANTED_WORKLOADS

PlantedBug = Callable[[], AbstractContextManager[None]]

# Bugs that cluster runs do not catch yet, because no fault or checker is made for them. A follower
# whose session an impostor closes opens another one; no drive returns EMFILE; a restart during a
# move, with a truncation before it, is too rare. Tests of their own hold what must hold.
_UNSEEN = (
    impostors_change_fetch_sessions,
    too_many_files_break_the_disk,
    moves_continue_without_comparison,
)

# Bugs that cluster runs catch.
PLANTED: tuple[PlantedBug, ...] = (
    *(bug for bug in PLANTED_BROKER if bug not in _UNSEEN),
    *PLANTED_CLUSTER,
    *PLANTED_DEFECTS,
    *PLANTED_GROUPS,
    *(bug for bug in PLANTED_LOG if bug not in _UNSEEN),
    *PLANTED_WORKLOADS,
)
