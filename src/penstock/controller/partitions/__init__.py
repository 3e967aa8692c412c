"""Partitions change: ISR, leaders, elections."""
