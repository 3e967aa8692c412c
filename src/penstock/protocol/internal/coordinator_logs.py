"""Framing of the coordinators' logs: groups, transactions and share groups.

A record's key begins with its type as int16, its value with its version as int16. A null value is a
tombstone, which is not decoded here. Record modules are imported on first use.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module

from penstock.ids import Buffer
from penstock.protocol.internal.versioned import (
    UnknownRecord,
    decode_after,
    decode_versioned,
    encode_after,
    encode_versioned,
    read_int16,
)
from penstock.protocol.schema import schema_of


@dataclass(frozen=True, slots=True)
class CoordinatorLog:
    """A coordinator's log: its topic, and for each record type the module and the stem of its
    classes, <stem>Key and <stem>Value."""

    topic: str
    types: Mapping[int, tuple[str, str]]

    def encode_key(self, key: object) -> bytes:
        return encode_after(self._type_of(key), key, 0)

    def encode_value(self, value: object, version: int | None = None) -> bytes:
        """Encode a value, in its newest version by default."""
        self._type_of(value)
        return encode_versioned(value, version)

    def decode_key(self, buffer: Buffer) -> object:
        """Decode a key. Raise UnknownRecord for an unknown type."""
        type_ = read_int16(buffer, f"a key of {self.topic}")
        if type_ not in self.types:
            raise UnknownRecord(f"unknown record type {type_} in {self.topic}")
        return decode_after(self.class_of(type_, "Key"), 0, buffer)

    def decode_value(self, key: object, buffer: Buffer) -> object:
        """Decode the value of a record whose key `decode_key` returned. Raise UnknownRecord for an
        unknown version."""
        return decode_versioned(self.class_of(self._type_of(key), "Value"), buffer)

    def class_of(self, type_: int, suffix: str) -> type:
        """Return the class of the keys ("Key") or values ("Value") of a type."""
        module, stem = self.types[type_]
        return _load(module, stem + suffix)

    def _type_of(self, message: object) -> int:
        cls = type(message)
        type_ = schema_of(cls).api_key
        if (
            type_ is not None
            and type_ in self.types
            and cls in (self.class_of(type_, "Key"), self.class_of(type_, "Value"))
        ):
            return type_
        raise ValueError(f"{cls.__name__} does not belong to {self.topic}")


@cache
def _load(module: str, name: str) -> type:
    message: type = getattr(import_module(f"penstock.protocol.internal.{module}"), name)
    return message


GROUP_LOG = CoordinatorLog(
    "__consumer_offsets",
    {
        0: ("classic_group_records", "LegacyOffsetCommit"),
        1: ("classic_group_records", "OffsetCommit"),
        2: ("classic_group_records", "GroupMetadata"),
        3: ("consumer_group_records", "ConsumerGroupMetadata"),
        4: ("consumer_group_records", "ConsumerGroupPartitionMetadata"),
        5: ("consumer_group_records", "ConsumerGroupMemberMetadata"),
        6: ("consumer_group_records", "ConsumerGroupTargetAssignmentMetadata"),
        7: ("consumer_group_records", "ConsumerGroupTargetAssignmentMember"),
        8: ("consumer_group_records", "ConsumerGroupCurrentMemberAssignment"),
        10: ("share_group_records", "ShareGroupMemberMetadata"),
        11: ("share_group_records", "ShareGroupMetadata"),
        12: ("share_group_records", "ShareGroupTargetAssignmentMetadata"),
        13: ("share_group_records", "ShareGroupTargetAssignmentMember"),
        14: ("share_group_records", "ShareGroupCurrentMemberAssignment"),
        15: ("share_group_records", "ShareGroupStatePartitionMetadata"),
        16: ("consumer_group_records", "ConsumerGroupRegularExpression"),
        17: ("streams_group_records", "StreamsGroupMetadata"),
        19: ("streams_group_records", "StreamsGroupMemberMetadata"),
        20: ("streams_group_records", "StreamsGroupTargetAssignmentMetadata"),
        21: ("streams_group_records", "StreamsGroupTargetAssignmentMember"),
        22: ("streams_group_records", "StreamsGroupCurrentMemberAssignment"),
        23: ("streams_group_records", "StreamsGroupTopology"),
    },
)

TRANSACTION_LOG = CoordinatorLog(
    "__transaction_state", {0: ("transaction_records", "TransactionLog")}
)

SHARE_STATE_LOG = CoordinatorLog(
    "__share_group_state",
    {0: ("share_state_records", "ShareSnapshot"), 1: ("share_state_records", "ShareUpdate")},
)
