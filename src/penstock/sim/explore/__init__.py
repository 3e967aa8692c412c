"""Explorers: random walks over the state machines themselves, without a simulated world.

A walk delivers events to a few machines in any order: messages are lost, late and duplicated,
processes crash and lose what they have not synced. Laws are checked after each turn. `walk` runs
the walks.
"""

from __future__ import annotations

from penstock.sim.explore.raft import RAFT, VOTERS
from penstock.sim.explore.replica import MOVES, REPLICA
from penstock.sim.explore.shard import SHARD
from penstock.sim.explore.txn import TXN

EXPLORERS = {explorer.name: explorer for explorer in (RAFT, VOTERS, REPLICA, MOVES, SHARD, TXN)}
