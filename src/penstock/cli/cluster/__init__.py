"""Clusters that `penstock up` runs on this machine, one process per node."""
