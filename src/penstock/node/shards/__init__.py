"""Shards: coordinator state machines bound to partitions of internal topics."""
