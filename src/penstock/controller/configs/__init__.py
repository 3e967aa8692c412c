"""Decisions about dynamic settings."""
