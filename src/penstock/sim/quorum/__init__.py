"""Simulated quorums: controllers without brokers, under faults. Start with `run`."""
