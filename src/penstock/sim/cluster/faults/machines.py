"""Machines and paths that are slow: computing takes virtual time, monotonic clocks drift, and paths
carry few bytes per second."""

from __future__ import annotations

import asyncio

from penstock.sim.cluster.faults.env import FaultEnv

# A clock of a real machine drifts by less than 0.1 %. More finds more, and stays below what the
# timeouts of the cluster allow for.
_DRIFT = 0.03
# Mean time of a callback: none, that of a busy machine, that of a very slow one.
_CALLBACK_S = (0.0, 0.000_02, 0.000_2)
# A pause as of a garbage collection. Shorter than every timeout that must hold without faults.
_PAUSE_S, _PAUSE_SHARE = 0.2, 0.000_3
_BYTES_PER_S = (2_000, 20_000, 200_000)


class MachineFaults:
    def __init__(self, env: FaultEnv) -> None:
        self._env = env
        self._rng = env.rng

    def begin(self) -> None:
        """Draw the speed and the clock of every node, each in some of the runs."""
        if self._rng.random() < 0.4:
            self._env.history.count("runs with slow nodes")
            for node in self._env.nodes.values():
                callback_s = self._rng.choice(_CALLBACK_S)
                pause_share = self._rng.choice((0.0, _PAUSE_SHARE))
                node.machine.set_speed(callback_s, pause_s=_PAUSE_S, pause_share=pause_share)
        if self._rng.random() < 0.3:
            self._env.history.count("runs with drifting clocks")
            for node in self._env.nodes.values():
                node.machine.set_drift(1 + self._rng.uniform(-_DRIFT, _DRIFT))

    def end(self) -> None:
        """Let computing take no time again. The clocks keep drifting."""
        for node in self._env.nodes.values():
            node.machine.set_speed()

    async def limit_bandwidth(self) -> None:
        """Limit what the paths from and to a node carry for some time."""
        env = self._env
        node, bytes_per_s = env.targets.pick().name, self._rng.choice(_BYTES_PER_S)
        env.note(f"paths of {node} carry {bytes_per_s} bytes per second")
        env.history.count("paths limited")
        paths = [
            path for other in env.nodes if other != node for path in ((node, other), (other, node))
        ]
        for source, target in paths:
            env.network.set_bandwidth(source, target, bytes_per_s)
        await asyncio.sleep(0.5 + 2 * self._rng.random())
        for source, target in paths:
            env.network.set_bandwidth(source, target, None)
