"""Decisions about brokers."""
