"""Simulated clusters: workloads, faults, checkers."""
