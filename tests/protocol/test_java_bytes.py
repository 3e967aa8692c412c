"""Compares every message in every version with the bytes that Apache Kafka 4.3.0 writes.
tests/java/WireBytes.java generated them.

Each sample is decoded, compared field by field with Kafka's JSON of it, and encoded again.
`default` is a new message; `full` has no default value; `edge` has nulls, empty values and the
bounds of number ranges; `unknown` is `full` with unknown tagged fields, which are skipped.
"""

from __future__ import annotations

import base64
import gzip
import importlib
import json
import pkgutil
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

import penstock.protocol
from penstock.protocol.apis import APIS, find_api, request_class, response_class
from penstock.protocol.codec import decode, encode_bytes
from penstock.protocol.headers import request_header_version, response_header_version
from penstock.protocol.schema import Field, fields_of, schema_of

FIXTURE = Path(__file__).parent / "fixtures" / "java-bytes.jsonl.gz"

# Messages of Kafka that Penstock does not declare, and why.
NOT_IN_PENSTOCK = {
    "ProducerSnapshot": "a file of the log, with a checksum over its middle: read in `log`",
    "RemoteLogSegmentMetadataRecord": "tiered storage",
    "RemoteLogSegmentMetadataSnapshotRecord": "tiered storage",
    "RemoteLogSegmentMetadataUpdateRecord": "tiered storage",
    "RemotePartitionDeleteMetadataRecord": "tiered storage",
}

Sample = dict[str, Any]


def _samples() -> dict[str, list[Sample]]:
    by_name: dict[str, list[Sample]] = {}
    with gzip.open(FIXTURE, "rt", encoding="utf-8") as lines:
        for line in lines:
            sample = json.loads(line)
            by_name.setdefault(sample["name"], []).append(sample)
    return by_name


SAMPLES = _samples()


@cache
def declared() -> dict[str, type]:
    """Return every message that Penstock declares, by name."""
    messages: dict[str, type] = {}
    for module in pkgutil.walk_packages(penstock.protocol.__path__, "penstock.protocol."):
        for name, value in vars(importlib.import_module(module.name)).items():
            if isinstance(value, type) and "__kafka_schema__" in value.__dict__:
                assert messages.setdefault(name, value) is value, f"{name} is declared twice"
    return messages


@pytest.mark.parametrize("name", sorted(SAMPLES.keys() - NOT_IN_PENSTOCK.keys()))
def test_decodes_and_encodes_kafkas_bytes(name: str) -> None:
    cls = declared()[name]
    full = {
        sample["version"]: sample["hex"] for sample in SAMPLES[name] if sample["sample"] == "full"
    }
    for sample in SAMPLES[name]:
        version, where = sample["version"], f"{name} v{sample['version']} {sample['sample']}"
        message: Any = decode(cls, version, bytes.fromhex(sample["hex"]))
        differences = list(compare_struct(message, sample["json"], version, where))
        assert not differences, "\n".join(differences)
        expected = full[version] if sample["sample"] == "unknown" else sample["hex"]
        assert encode_bytes(message, version).hex() == expected, where


@pytest.mark.parametrize("name", sorted(SAMPLES.keys() - NOT_IN_PENSTOCK.keys()))
def test_defaults_are_kafkas(name: str) -> None:
    cls = declared()[name]
    for sample in SAMPLES[name]:
        if sample["sample"] == "default":
            assert encode_bytes(cls(), sample["version"]).hex() == sample["hex"], (
                f"{name} v{sample['version']}"
            )


def test_penstock_declares_what_kafka_has() -> None:
    kafka = {
        (name, sample["version"])
        for name in SAMPLES.keys() - NOT_IN_PENSTOCK.keys()
        for sample in SAMPLES[name]
    }
    ranges = {name: schema_of(cls).versions for name, cls in declared().items()}
    penstock_has = {
        (name, version)
        for name, versions in ranges.items()
        for version in range(versions.first, versions.last + 1)
    }
    assert sorted(kafka - penstock_has) == []
    assert sorted(penstock_has - kafka) == []


def test_keys_are_kafkas() -> None:
    wrong = [
        (name, schema_of(cls).api_key, SAMPLES[name][0]["key"])
        for name, cls in declared().items()
        if schema_of(cls).api_key != SAMPLES[name][0]["key"]
    ]
    assert wrong == []


def test_the_table_of_apis_is_kafkas() -> None:
    """Keys, listeners, unstable versions and header versions equal Kafka's."""
    of_apis = [sample for samples in SAMPLES.values() for sample in samples if "header" in sample]
    assert {api.key for api in APIS} == {sample["key"] for sample in of_apis}
    for sample in of_apis:
        key, version, is_request = sample["key"], sample["version"], sample["kind"] == "request"
        api = find_api(key)
        assert (request_class if is_request else response_class)(key) is declared()[sample["name"]]
        assert sorted(api.listeners) == sample["listeners"], api.name
        assert (api.newest_unstable and version == api.versions.last) == sample["unstable"], (
            api.name
        )
        header = (
            request_header_version(key, version)
            if is_request
            else response_header_version(key, version)
        )
        assert header == sample["header"], f"{sample['name']} v{version}"


def compare_struct(value: Any, expected: dict[str, Any], version: int, where: str) -> Iterator[str]:
    """Yield a sentence per difference."""
    left = {snake(name): part for name, part in expected.items()}
    for field in fields_of(type(value)):
        mine = getattr(value, field.name)
        path = f"{where}.{field.name}"
        if version not in field.versions or (field.tag is not None and field.name not in left):
            if mine != field.default:
                yield f"{path} is {mine!r}, but Kafka's JSON does not have it"
        elif field.kind == "records" and mine is not None:
            size = left.pop(f"{field.name}_size_in_bytes")
            if len(mine) != size:
                yield f"{path} has {len(mine)} bytes, not {size}"
        elif field.name not in left:
            yield f"{path} is not in Kafka's JSON"
        else:
            yield from compare(mine, left.pop(field.name), field, version, path)
    if left:
        yield f"{where} lacks {sorted(left)}"


def compare(mine: Any, expected: Any, field: Field, version: int, where: str) -> Iterator[str]:
    if mine is None or expected is None:
        if mine is not expected:
            yield f"{where} is {mine!r}, not {expected!r}"
    elif not field.is_array:
        yield from compare_element(mine, expected, field, version, where)
    elif len(mine) != len(expected):
        yield f"{where} has {len(mine)} elements, not {len(expected)}"
    else:
        for index, (element, other) in enumerate(zip(mine, expected, strict=True)):
            yield from compare_element(element, other, field, version, f"{where}[{index}]")


def compare_element(
    mine: Any, expected: Any, field: Field, version: int, where: str
) -> Iterator[str]:
    if field.struct is not None:
        yield from compare_struct(mine, expected, version, where)
        return
    if field.kind == "uuid":
        expected = UUID(bytes=base64.urlsafe_b64decode(expected + "=="))
    elif field.kind == "bytes":
        expected, mine = base64.b64decode(expected), bytes(mine)
    if mine != expected or type(mine) is not type(expected):
        yield f"{where} is {mine!r}, not {expected!r}"


def snake(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
