"""A request that a test fails gets its error where a client looks for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from penstock.errors import ErrorCode
from penstock.handlers import SERVED
from penstock.ids import NO_UUID
from penstock.protocol.apis import find_api, request_class, response_class
from penstock.protocol.codec import decode, encode_bytes
from penstock.protocol.messages.fetch import FetchRequest, FetchResponse
from penstock.protocol.messages.produce import ProduceRequest, ProduceResponse
from penstock.protocol.schema import Field, fields_of
from penstock.testing.faults.error_response import error_response

ERROR = ErrorCode.NOT_LEADER_OR_FOLLOWER


def sample(cls: type, version: int) -> Any:
    """Return a request with one element in each array."""
    values = {
        field.name: _value(field, version) for field in fields_of(cls) if version in field.versions
    }
    return cls(**values)


def _value(field: Field, version: int) -> Any:
    single = (
        sample(field.struct, version)
        if field.struct is not None
        else {"string": field.name, "uuid": UUID(int=7), "bytes": b"", "records": None}.get(
            field.kind, field.default if not field.is_array else 3
        )
    )
    return (single,) if field.is_array else single


def errors_in(message: Any) -> Iterator[int]:
    for field in fields_of(type(message)):
        value = getattr(message, field.name)
        if field.name.endswith("error_code"):
            yield value
        elif field.struct is not None and value is not None:
            for element in value if field.is_array else (value,):
                yield from errors_in(element)


CASES = [
    (find_api(key).name, version)
    for key, served in SERVED.items()
    for version in range(served.first, served.last + 1)
]


@pytest.mark.parametrize(("name", "version"), CASES)
def test_every_api_has_a_response_with_the_error(name: str, version: int) -> None:
    key = next(key for key in SERVED if find_api(key).name == name)
    response = error_response(sample(request_class(key), version), version, ERROR)
    assert response is not None
    read: Any = decode(response_class(key), version, encode_bytes(response, version))
    assert ERROR in set(errors_in(read))


def test_a_failed_produce_names_its_partitions() -> None:
    topic_data = ProduceRequest.TopicData(
        name="orders",
        partition_data=tuple(
            ProduceRequest.TopicData.PartitionData(index=index, records=b"") for index in (0, 4)
        ),
    )
    response = error_response(ProduceRequest(acks=-1, topic_data=(topic_data,)), 9, ERROR)
    assert isinstance(response, ProduceResponse)
    (topic,) = response.responses
    assert topic.name == "orders"
    assert [(answer.index, answer.error_code) for answer in topic.partition_responses] == [
        (0, ERROR),
        (4, ERROR),
    ]


def test_a_fetch_of_named_partitions_fails_for_each_of_them() -> None:
    partitions = (FetchRequest.Topic.Partition(partition=2, fetch_offset=5),)
    request = FetchRequest(topics=(FetchRequest.Topic(topic="orders", partitions=partitions),))
    response = error_response(request, 12, ERROR)
    assert isinstance(response, FetchResponse)
    (topic,) = response.responses
    assert (topic.topic, topic.topic_id) == ("orders", NO_UUID)
    assert [(answer.partition_index, answer.error_code) for answer in topic.partitions] == [
        (2, ERROR)
    ]
    assert response.error_code == 0


def test_a_fetch_of_a_session_without_changes_fails_as_a_whole() -> None:
    response = error_response(FetchRequest(session_id=9, session_epoch=4), 13, ERROR)
    assert isinstance(response, FetchResponse)
    assert (response.error_code, response.responses) == (ERROR, ())
