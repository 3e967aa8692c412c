"""The simulated world: a whole cluster in one process, in virtual time, from one seed.

Tests and `penstock.sim` import from here. docs/decisions/0001-the-seam.md says what is modelled of
disks and networks, and what is not.
"""

from __future__ import annotations

from penstock.world.sim.clock import SimClock
from penstock.world.sim.disk import SimDisk, SimFile
from penstock.world.sim.drive import SimDrive
from penstock.world.sim.errors import NodeCrashed, SimulationFailed, SimulationStuck
from penstock.world.sim.fabric import Fabric
from penstock.world.sim.rng import SimRng, stream
from penstock.world.sim.simulation import Node, Simulation
from penstock.world.sim.trace import Trace

__all__ = [
    "Fabric",
    "Node",
    "NodeCrashed",
    "SimClock",
    "SimDisk",
    "SimDrive",
    "SimFile",
    "SimRng",
    "Simulation",
    "SimulationFailed",
    "SimulationStuck",
    "Trace",
    "stream",
]
