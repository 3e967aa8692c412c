"""Hypothesis strategies for every message, derived from its declaration, and the list of all
messages and versions."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import import_module
from typing import Any
from uuid import UUID

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from penstock.protocol.apis import APIS, request_class, response_class
from penstock.protocol.headers import RequestHeader, ResponseHeader
from penstock.protocol.internal.coordinator_logs import GROUP_LOG, SHARE_STATE_LOG, TRANSACTION_LOG
from penstock.protocol.internal.metadata_records import RECORDS
from penstock.protocol.layout import Layout, layout_of
from penstock.protocol.schema import Field, schema_of

# PENSTOCK_EXAMPLES=500 pytest tests/protocol runs more examples of the generated tests.
EXAMPLES = int(os.environ.get("PENSTOCK_EXAMPLES", "5"))

few_examples = settings(
    max_examples=EXAMPLES,
    deadline=None,
    database=None,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.large_base_example,
    ],
)
fewer_examples = settings(few_examples, max_examples=max(EXAMPLES // 2, 3))

# Strategies for single fields, by their dotted path.
Narrowed = Mapping[str, st.SearchStrategy[Any]]

_PRIMITIVES: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "int8": st.integers(-(2**7), 2**7 - 1),
    "int16": st.integers(-(2**15), 2**15 - 1),
    "uint16": st.integers(0, 2**16 - 1),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "float64": st.floats(allow_nan=False),
    "uuid": st.binary(min_size=16, max_size=16).map(lambda raw: UUID(bytes=raw)),
    # Strings of 128 bytes and more have two-byte lengths.
    "string": st.one_of(st.text(max_size=8), st.just("é" * 70)),
    "bytes": st.binary(max_size=8),
    "records": st.one_of(st.binary(max_size=8), st.just(bytes(200))),
}


def messages_of(
    cls: type, version: int, narrowed: Narrowed | None = None
) -> st.SearchStrategy[Any]:
    """Generate messages. Fields that the version carries have random values, all others their
    defaults."""
    return _structs(layout_of(cls, version), cls, "", narrowed or {})


def _structs(layout: Layout, cls: Any, path: str, narrowed: Narrowed) -> st.SearchStrategy[Any]:
    carried = (*layout.plain(cls), *layout.tagged(cls))
    return st.builds(
        cls,
        **{field.name: _values(layout, field, path + field.name, narrowed) for field in carried},
    )


def _values(layout: Layout, field: Field, path: str, narrowed: Narrowed) -> st.SearchStrategy[Any]:
    values = narrowed.get(path)
    if values is None:
        values = (
            _structs(layout, field.struct, f"{path}.", narrowed)
            if field.struct is not None
            else _PRIMITIVES[field.kind]
        )
    if field.is_array:
        values = st.lists(values, max_size=2).map(tuple)
    return st.one_of(st.none(), values) if layout.nullable(field) else values


def internal_messages() -> list[type]:
    coordinators = [
        getattr(import_module(f"penstock.protocol.internal.{module}"), stem + suffix)
        for log in (GROUP_LOG, TRANSACTION_LOG, SHARE_STATE_LOG)
        for module, stem in log.types.values()
        for suffix in ("Key", "Value")
    ]
    others = [
        getattr(import_module(f"penstock.protocol.internal.{module}"), name)
        for module, names in {
            "control_records": (
                "ControlRecordTypeSchema",
                "EndTxnMarker",
                "LeaderChangeMessage",
                "SnapshotHeaderRecord",
                "SnapshotFooterRecord",
                "KRaftVersionRecord",
                "VotersRecord",
            ),
            "consumer_protocol": ("ConsumerProtocolSubscription", "ConsumerProtocolAssignment"),
            "principal": ("DefaultPrincipalData",),
            "quorum_state": ("QuorumStateData",),
        }.items()
        for name in names
    ]
    return [*RECORDS, *coordinators, *others, RequestHeader, ResponseHeader]


def all_messages() -> list[type]:
    return [
        load(api.key) for api in APIS for load in (request_class, response_class)
    ] + internal_messages()


def all_versions() -> list[tuple[type, int]]:
    return [
        (cls, version)
        for cls in all_messages()
        for version in range(schema_of(cls).versions.first, schema_of(cls).versions.last + 1)
    ]


def name_of(case: object) -> str:
    """Return the pytest id of a parameter."""
    return case.__name__ if isinstance(case, type) else str(case)
