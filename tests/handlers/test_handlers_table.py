"""The tables of served APIs: each API has a handler that takes each of its versions, and
ApiVersions advertises exactly these."""

from __future__ import annotations

import inspect

import pytest

from penstock.errors import ErrorCode
from penstock.handlers import SERVED, load
from penstock.metadata.image import MetadataImage
from penstock.node.broker.controllers import Controllers, ProducerIds
from penstock.node.partition.partition import Partition
from penstock.node.replication.replicas import Replicas
from penstock.protocol.apis import find_api, request_class
from penstock.protocol.messages.api_versions import ApiVersionsRequest
from penstock.protocol.messages.describe_cluster import DescribeClusterRequest
from tests.handlers.fake_node import (
    FakeControllers,
    FakeNode,
    FakePartition,
    FakeProducerIds,
    FakeReplicas,
    answer,
    run,
)

ROWS = [
    (key, version)
    for key, served in SERVED.items()
    for version in range(served.first, served.last + 1)
]


@pytest.mark.parametrize("key", SERVED)
def test_each_api_has_a_plain_function_and_existing_versions(key: int) -> None:
    served, api = SERVED[key], find_api(key)
    assert served.module.rpartition(".")[2] == api.module.rpartition(".")[2]
    assert served.first in api.versions
    assert served.last in api.versions
    assert not (api.newest_unstable and served.last == api.versions.last)
    assert not inspect.iscoroutinefunction(load(key))
    module = inspect.getmodule(load(key))
    assert module is not None
    assert all(part in (module.__doc__ or "") for part in ("Behaviour", "Version notes"))


@pytest.mark.parametrize(("key", "version"), ROWS)
def test_every_version_answers_an_empty_request(key: int, version: int) -> None:
    async def main(node: FakeNode) -> None:
        request = (
            ApiVersionsRequest(client_software_name="a", client_software_version="1")
            if key == 18
            else request_class(key)()
        )
        if key == 0:
            request = request_class(key)(acks=1)
        await answer(node, key, version, request)

    run(main)


@pytest.mark.parametrize("version", range(5))
def test_api_versions_advertises_the_table(version: int) -> None:
    async def main(node: FakeNode) -> None:
        request = ApiVersionsRequest(
            client_software_name="apache-kafka-java", client_software_version="4.3.0"
        )
        response = await answer(node, 18, version, request)
        advertised = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}
        assert advertised == {
            key: (served.advertised_first, served.last) for key, served in SERVED.items()
        }
        assert advertised[0] == (0, 13)
        assert advertised[22] == (0, 5)
        # KAFKA-17011: up to v3, features with a minimum of 0 are left out.
        assert [feature.name for feature in response.supported_features] == (
            ["group.version", "metadata.version", "transaction.version"]
            if version >= 4
            else ["metadata.version"]
        )
        assert [
            (feature.name, feature.max_version_level) for feature in response.finalized_features
        ] == [
            ("group.version", 1),
            ("metadata.version", 30),
            ("transaction.version", 2),
        ]
        assert response.finalized_features_epoch == 41

    run(main)


@pytest.mark.parametrize(("enabled", "last"), [("false", 5), ("true", 6)])
def test_init_producer_id_v6_is_advertised_with_two_phase_commit(enabled: str, last: int) -> None:
    async def main(node: FakeNode) -> None:
        response = await answer(node, 18, 0, ApiVersionsRequest())
        advertised = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}
        assert advertised[22] == (0, last)

    run(main, **{"transaction.two.phase.commit.enable": enabled})


def test_api_versions_answers_before_any_metadata_is_replayed() -> None:
    async def main(node: FakeNode) -> None:
        node.image = MetadataImage.empty()
        response = await answer(node, 18, 0, ApiVersionsRequest())
        assert (response.error_code, len(response.api_keys)) == (ErrorCode.NONE, len(SERVED))

    run(main)


@pytest.mark.parametrize(
    ("name", "version"), [("", "1"), ("x", ""), ("-x", "1"), ("a b", "1"), ("a", "1\n")]
)
def test_malformed_client_software_is_invalid_since_version_3(name: str, version: str) -> None:
    async def main(node: FakeNode) -> None:
        request = ApiVersionsRequest(client_software_name=name, client_software_version=version)
        assert (await answer(node, 18, 3, request)).error_code == ErrorCode.INVALID_REQUEST
        assert (await answer(node, 18, 2, request)).error_code == ErrorCode.NONE

    run(main)


@pytest.mark.parametrize(
    ("endpoint_type", "code"),
    [
        (1, ErrorCode.NONE),
        (2, ErrorCode.MISMATCHED_ENDPOINT_TYPE),
        (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
    ],
)
def test_describe_cluster(endpoint_type: int, code: ErrorCode) -> None:
    async def main(node: FakeNode) -> None:
        response = await answer(node, 60, 2, DescribeClusterRequest(endpoint_type=endpoint_type))
        assert response.error_code == code
        if not code:
            assert (response.cluster_id, response.controller_id) == ("the-cluster", 1)
            assert [
                (broker.broker_id, broker.host, broker.port, broker.rack)
                for broker in response.brokers
            ] == [(1, "10.0.0.1", 9092, "rack-a")]

    run(main)


def test_a_described_cluster_has_its_authorized_operations_on_request() -> None:
    async def main(node: FakeNode) -> None:
        for included, operations in ((False, -(2**31)), (True, 8096)):
            request = DescribeClusterRequest(include_cluster_authorized_operations=included)
            response = await answer(node, 60, 2, request)
            assert response.cluster_authorized_operations == operations, "as in Kafka"

    run(main)


def test_the_fakes_have_the_signatures_of_the_real_parts() -> None:
    pairs = [
        (Partition, FakePartition, {"commit", "tell"}),
        (Replicas, FakeReplicas, set()),
        (Controllers, FakeControllers, set()),
        (ProducerIds, FakeProducerIds, set()),
    ]
    for real, fake, own in pairs:
        methods = {
            name
            for name, value in vars(fake).items()
            if callable(value) and not name.startswith("_")
        }
        for name in methods - own:
            expected = list(inspect.signature(getattr(real, name)).parameters)
            assert list(inspect.signature(getattr(fake, name)).parameters) == expected, name
