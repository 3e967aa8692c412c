"""Decisions about leaders and in-sync replicas."""
