"""The simulated world: a whole cluster in one process, in virtual time, from one seed.

Tests and `penstock.sim` import from here. What a run may do to it, beyond crashes and pauses:

    node.set_speed(0.001, pause_s=0.5, pause_share=0.001)   computing takes virtual time
    node.set_drift(1.01)                                    the clocks run fast
    network.set_bandwidth("n1", "n2", 100_000)              bytes per second
    network.on_frame(action, api_key=1, target="n1", nth=3) at the third Fetch to n1
    network.on_frame(action, response=True, after_bytes=9)  in the middle of a response
    node.drive.on_operation(action, {"sync"}, kind="segment", instead=True)
                                                            between a write and its sync
    node.drive.files("index"), .flip_bit(path, 0, 7), .cut(path, 100)

An observer that runs inside of nodes takes the time from `Simulation.now`, because the loop's
time() is that of the machine whose code runs.

docs/decisions/0001-the-seam.md says what is modelled, and what is not.
"""

from __future__ import annotations

from penstock.world.sim.clock import SimClock
from penstock.world.sim.disk import SimDisk, SimFile
from penstock.world.sim.drive import SimDrive
from penstock.world.sim.errors import NodeCrashed, SimulationFailed, SimulationStuck
from penstock.world.sim.fabric import Fabric
from penstock.world.sim.frames import Frame, FrameTrigger
from penstock.world.sim.kinds import KINDS, DiskTrigger, file_kind
from penstock.world.sim.rng import SimRng, stream
from penstock.world.sim.simulation import Node, Simulation
from penstock.world.sim.trace import Trace

__all__ = [
    "KINDS",
    "DiskTrigger",
    "Fabric",
    "Frame",
    "FrameTrigger",
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
    "file_kind",
    "stream",
]
