"""Deterministic simulation: runs with faults in a simulated world, and checkers that judge them.

One seed is one run, and the same run every time. `log` runs a store of logs, `broker` one broker,
`quorum` a quorum of controllers, `cluster` a whole cluster. `planted` has bugs that the checkers
must find. `python -m penstock.sim` runs fresh seeds.
"""
