"""AlterClientQuotas, and the quota of partitions that a client creates and deletes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.controller.client_quotas import alter_client_quotas
from penstock.controller.topics.create import create_topics
from penstock.controller.topics.create_partitions import create_partitions
from penstock.controller.topics.delete import delete_topics
from penstock.errors import ErrorCode, KafkaError
from penstock.metadata.image import MetadataImage
from penstock.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
)
from penstock.protocol.messages.create_partitions import CreatePartitionsRequest
from penstock.protocol.messages.create_topics import CreateTopicsRequest
from penstock.protocol.messages.delete_topics import DeleteTopicsRequest
from penstock.security.quotas.client_quotas import MutationQuota, MutationQuotas
from penstock.security.quotas.entities import QuotaEntity, quota_entity
from penstock.security.quotas.rates import Windows
from tests.controller.clusters import after, broker, cluster, context

Entry = AlterClientQuotasRequest.Entry
Parts = dict[str, str | None]
Values = dict[str, float | None]

ALICE: QuotaEntity = (("user", "alice"),)


def entry(parts: Parts, values: Values) -> Entry:
    return Entry(
        entity=tuple(
            Entry.Entity(entity_type=kind, entity_name=name) for kind, name in parts.items()
        ),
        ops=tuple(
            Entry.Op(key=key, value=value or 0.0, remove=value is None)
            for key, value in values.items()
        ),
    )


def altered(
    image: MetadataImage, *entries: Entry, validate_only: bool = False
) -> tuple[MetadataImage, tuple[AlterClientQuotasResponse.Entry, ...]]:
    request = AlterClientQuotasRequest(entries=entries, validate_only=validate_only)
    decision = alter_client_quotas(image, request, context())
    return after(image, decision), decision.response.entries


def test_quotas_are_set_changed_and_removed() -> None:
    image, (result,) = altered(
        cluster(), entry({"user": "alice"}, {"producer_byte_rate": 100, "request_percentage": 0.5})
    )
    assert (result.error_code, result.error_message) == (0, None)
    assert image.client_quotas == {ALICE: {"producer_byte_rate": 100, "request_percentage": 0.5}}
    image, _results = altered(
        image, entry({"user": "alice"}, {"producer_byte_rate": 7, "request_percentage": None})
    )
    assert image.client_quotas == {ALICE: {"producer_byte_rate": 7}}
    image, _results = altered(image, entry({"user": "alice"}, {"producer_byte_rate": None}))
    assert image.client_quotas == {}


def test_only_changes_are_written() -> None:
    image, _results = altered(cluster(), entry({"user": "alice"}, {"producer_byte_rate": 100}))
    request = AlterClientQuotasRequest(
        entries=(
            entry({"user": "alice"}, {"producer_byte_rate": 100, "consumer_byte_rate": None}),
            entry({"user": "bob"}, {"no such key": None}),
        )
    )
    decision = alter_client_quotas(image, request, context())
    assert decision.records == ()
    assert [each.error_code for each in decision.response.entries] == [0, 0]


def test_validate_only_writes_nothing() -> None:
    image, (result,) = altered(
        cluster(), entry({"user": "alice"}, {"producer_byte_rate": 100}), validate_only=True
    )
    assert (result.error_code, image.client_quotas) == (0, {})


VALID: list[tuple[Parts, Values]] = [
    ({"user": None}, {"producer_byte_rate": 1}),
    ({"client-id": "app"}, {"consumer_byte_rate": 2.0**62}),
    ({"client-id": None, "user": "a"}, {"request_percentage": 0.01}),
    ({"user": None, "client-id": None}, {"controller_mutation_rate": 1.5}),
    ({"ip": "10.0.0.1"}, {"connection_creation_rate": 10}),
    ({"ip": "2001:db8::1"}, {"connection_creation_rate": 10}),
    ({"ip": None}, {"connection_creation_rate": 2**31 - 1}),
]


@pytest.mark.parametrize(("parts", "values"), VALID)
def test_entities_and_their_keys(parts: Parts, values: Values) -> None:
    image, (result,) = altered(cluster(), entry(parts, values))
    assert result.error_code == 0
    assert image.client_quotas == {quota_entity(parts.items()): values}
    assert {(each.entity_type, each.entity_name) for each in result.entity} == set(parts.items())


REFUSED: list[tuple[Parts, Values, str]] = [
    ({}, {}, "Invalid empty client quota entity"),
    ({"group": "g"}, {}, "Unhandled client quota entity type: group"),
    ({"user": ""}, {}, "Empty user not supported"),
    ({"user": "x" * 5_000}, {}, "The user has more than 4096 characters"),
    (
        {"ip": "10.0.0.1", "user": "a"},
        {},
        "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId",
    ),
    ({"ip": "nowhere"}, {}, "nowhere is not a valid IP or resolvable host."),
    ({"user": "a"}, {"rate": 1}, "Invalid configuration key rate"),
    (
        {"user": "a"},
        {"connection_creation_rate": 1},
        "Invalid configuration key connection_creation_rate",
    ),
    (
        {"ip": None},
        {"producer_byte_rate": 1},
        "Invalid configuration key producer_byte_rate",
    ),
    ({"user": "a"}, {"producer_byte_rate": 0.0}, "Quota producer_byte_rate must be greater than 0"),
    (
        {"user": "a"},
        {"request_percentage": -1.0},
        "Quota request_percentage must be greater than 0",
    ),
    (
        {"user": "a"},
        {"producer_byte_rate": 1.5},
        "producer_byte_rate cannot be a fractional value.",
    ),
    (
        {"user": "a"},
        {"producer_byte_rate": 1e30},
        "Proposed value for producer_byte_rate is too large for a LONG.",
    ),
    (
        {"ip": None},
        {"connection_creation_rate": 2.0**31},
        "Proposed value for connection_creation_rate is too large for an INT.",
    ),
    (
        {"user": "a"},
        {"request_percentage": float("nan")},
        "Quota request_percentage must be a number",
    ),
    (
        {"user": "a"},
        {"request_percentage": float("inf")},
        "Quota request_percentage must be a number",
    ),
]


@pytest.mark.parametrize(("parts", "values", "message"), REFUSED)
def test_what_is_not_valid_is_refused(parts: Parts, values: Values, message: str) -> None:
    image, results = altered(
        cluster(), entry(parts, values), entry({"user": "alice"}, {"producer_byte_rate": 5})
    )
    assert [(each.error_code, each.error_message) for each in results] == [
        (ErrorCode.INVALID_REQUEST, message),
        (0, None),
    ]
    assert image.client_quotas == {ALICE: {"producer_byte_rate": 5}}


def test_the_largest_long_is_a_quota() -> None:
    """9223372036854775807, which administrators set for no limit, is not a float."""
    values: Values = {"producer_byte_rate": float(2**63 - 1), "consumer_byte_rate": 2.0**63}
    image, (result,) = altered(cluster(), entry({"user": "alice"}, values))
    assert (result.error_code, image.client_quotas) == (0, {ALICE: values})


def test_an_entity_and_a_key_may_occur_once() -> None:
    first = entry({"user": "alice"}, {"producer_byte_rate": 5})
    image, (result,) = altered(cluster(), first, entry({"user": "alice"}, {}))
    assert result.error_code == ErrorCode.INVALID_REQUEST
    # As in Kafka, what came first is done.
    assert image.client_quotas == {ALICE: {"producer_byte_rate": 5}}
    image, (result,) = altered(cluster(), replace_ops(first, first.ops * 2))
    assert result.error_code == ErrorCode.INVALID_REQUEST
    assert image.client_quotas == {}


def replace_ops(changed: Entry, ops: tuple[Entry.Op, ...]) -> Entry:
    return Entry(entity=changed.entity, ops=ops)


def test_a_request_has_a_bound() -> None:
    entries = tuple(entry({"user": f"u{number}"}, {}) for number in range(10_001))
    with pytest.raises(KafkaError) as refused:
        altered(cluster(), *entries)
    assert refused.value.code is ErrorCode.INVALID_REQUEST


_names = st.none() | st.sampled_from(["a", "b"])
_entities = st.one_of(
    st.fixed_dictionaries({"user": _names}),
    st.fixed_dictionaries({"client-id": _names}),
    st.fixed_dictionaries({"user": _names, "client-id": _names}),
)
_values = st.dictionaries(
    st.sampled_from(["producer_byte_rate", "consumer_byte_rate", "request_percentage"]),
    st.none() | st.integers(1, 5).map(float),
)


@given(st.lists(st.tuples(_entities, _values)))
def test_any_history_gives_what_was_set_last(history: list[tuple[Parts, Values]]) -> None:
    """Also after a snapshot: no quota is lost, and none applies to another entity."""
    image, model = cluster(), dict[QuotaEntity, dict[str, float]]()
    for parts, values in history:
        image, (result,) = altered(image, entry(parts, values))
        assert result.error_code == 0
        of_entity = model.setdefault(quota_entity(parts.items()), {})
        for key, value in values.items():
            of_entity.pop(key, None)
            if value is not None:
                of_entity[key] = value
    expected = {entity: values for entity, values in model.items() if values}
    assert image.client_quotas == expected
    restored, delta = MetadataImage.empty().replay(image.records(), image.offset)
    assert restored.client_quotas == expected
    assert delta.client_quotas == expected.keys()


# The quota of mutations


def mutations(rate: float, *, is_strict: bool = True) -> MutationQuota:
    quotas = MutationQuotas(Windows(1, 1_000))
    quotas.set(ALICE, rate)
    quota = quotas.of_request("alice", "", 0, is_strict=is_strict)
    assert quota is not None
    return quota


def creation(**partitions: int) -> CreateTopicsRequest:
    return CreateTopicsRequest(
        topics=tuple(
            CreateTopicsRequest.Topic(name=name, num_partitions=count, replication_factor=1)
            for name, count in partitions.items()
        )
    )


def test_topics_beyond_the_quota_are_not_created() -> None:
    quota = mutations(5)
    decision = create_topics(
        cluster(broker(1)), creation(a=4, bad=0, b=4, c=1), replace(context(), mutations=quota)
    )
    assert {topic.name: topic.error_code for topic in decision.response.topics} == {
        "a": 0,
        "bad": ErrorCode.INVALID_PARTITIONS,
        "b": 0,
        "c": ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    }
    assert quota.throttle_ms(0) == 600
    assert set(after(cluster(broker(1)), decision).topics) == {"a", "b"}


def test_old_clients_are_throttled_and_their_topics_created() -> None:
    quota = mutations(5, is_strict=False)
    decision = create_topics(
        cluster(broker(1)), creation(a=4, b=4, c=1), replace(context(), mutations=quota)
    )
    assert [topic.error_code for topic in decision.response.topics] == [0, 0, 0]
    assert quota.throttle_ms(0) == 800


def test_topics_beyond_the_quota_are_not_deleted_or_extended() -> None:
    image = cluster(broker(1))
    image = after(image, create_topics(image, creation(a=4, b=4, c=4), context()))
    names = tuple(DeleteTopicsRequest.Topic(name=name) for name in ("a", "none", "b", "c"))
    decision = delete_topics(
        image, DeleteTopicsRequest(topics=names), replace(context(), mutations=mutations(5))
    )
    assert [each.error_code for each in decision.response.responses] == [
        0,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        0,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    ]
    assert set(after(image, decision).topics) == {"c"}
    extension = CreatePartitionsRequest(
        topics=tuple(
            CreatePartitionsRequest.Topic(name=name, count=10, assignments=None) for name in "abc"
        )
    )
    extended = create_partitions(image, extension, replace(context(), mutations=mutations(5)))
    assert [each.error_code for each in extended.response.results] == [
        0,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    ]
