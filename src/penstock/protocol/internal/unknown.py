"""Telling a record that we do not know from one that is damaged."""

from __future__ import annotations

from penstock.errors import ProtocolError


class UnknownRecord(ProtocolError):
    """A well-formed record of a type or version that this release does not know. Coordinators skip
    those, as Kafka does."""
