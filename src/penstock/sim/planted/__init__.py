"""Bugs planted on purpose, to show that the checkers of cluster runs find them.

Each breaks one rule of the product while its `with` block lasts. They replace product code by name.
When that code is renamed or moved, they fail with KeyError and must be changed too.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from penstock.sim.planted.cluster import PLANTED_CLUSTER
from penstock.sim.planted.groups import PLANTED_GROUPS

PlantedBug = Callable[[], AbstractContextManager[None]]

PLANTED: tuple[PlantedBug, ...] = (*PLANTED_CLUSTER, *PLANTED_GROUPS)
