"""Simulated clusters: runs, faults, workloads, observers and checkers.

`run` draws a cluster from a seed (`spec`), starts its `nodes`, puts clients to work (`workloads`),
injects `faults`, waits until the cluster is healthy again (`health`), and then runs every checker
(`checkers`) over the `history` that clients and `observers` recorded.
"""
