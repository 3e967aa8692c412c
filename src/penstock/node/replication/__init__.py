"""Replication: fetchers that copy leaders' logs."""
