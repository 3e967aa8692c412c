"""Decisions about topics and their partitions."""
