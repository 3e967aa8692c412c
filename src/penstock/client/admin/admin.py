"""Administration: topics, partitions, settings, offsets and the cluster itself. Every failure is a
KafkaError that says why."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeVar
from uuid import UUID

from penstock.client import offsets
from penstock.client.admin import elections, quorum_info, topic_details
from penstock.client.admin.elections import Election
from penstock.client.admin.quorum_info import QuorumInfo
from penstock.client.cluster import Cluster
from penstock.client.faults import check
from penstock.client.metadata import Broker, TopicInfo
from penstock.client.offsets import FoundOffset, Isolation
from penstock.errors import KafkaError
from penstock.ids import TopicPartition
from penstock.limits import MAX_DESCRIBED_PARTITIONS
from penstock.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
)
from penstock.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from penstock.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from penstock.protocol.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from penstock.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
)
from penstock.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from penstock.protocol.messages.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from penstock.protocol.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)

T = TypeVar("T")

# The broker's own defaults (num.partitions, default.replication.factor).
BROKER_DEFAULT = -1


class Resource(IntEnum):
    TOPIC = 2
    BROKER = 4
    GROUP = 32


class ConfigSource(IntEnum):
    """Where a setting's value comes from."""

    UNKNOWN = 0
    TOPIC = 1
    BROKER = 2
    BROKER_DEFAULT = 3
    STATIC = 4
    DEFAULT = 5
    GROUP = 8


@dataclass(frozen=True, slots=True)
class ConfigSynonym:
    """A value that a setting has, or would have if those before it were not there."""

    name: str
    value: str | None
    source: int


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    name: str
    value: str | None
    source: int
    read_only: bool
    sensitive: bool
    synonyms: tuple[ConfigSynonym, ...] = ()


@dataclass(frozen=True, slots=True)
class ClusterInfo:
    id: str
    controller_id: int
    brokers: tuple[Broker, ...]


class Admin:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._timeout_ms = int(cluster.request_timeout_s * 1000)

    async def create_topic(
        self,
        name: str,
        *,
        partitions: int = BROKER_DEFAULT,
        replication_factor: int = BROKER_DEFAULT,
        assignments: Sequence[Sequence[int]] = (),
        configs: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> UUID:
        """With assignments, the brokers of each partition, the two numbers are theirs."""
        settings = tuple(
            CreateTopicsRequest.Topic.Config(name=key, value=value)
            for key, value in (configs or {}).items()
        )
        topic = CreateTopicsRequest.Topic(
            name=name,
            num_partitions=partitions,
            replication_factor=replication_factor,
            assignments=tuple(
                CreateTopicsRequest.Topic.Assignment(
                    partition_index=index, broker_ids=tuple(brokers)
                )
                for index, brokers in enumerate(assignments)
            ),
            configs=settings,
        )
        request = CreateTopicsRequest(
            topics=(topic,), timeout_ms=self._timeout_ms, validate_only=validate_only
        )

        async def attempt() -> UUID:
            answer = await self._cluster.call(request, CreateTopicsResponse)
            for one in answer.topics:
                check(one.error_code, one.error_message or f"topic {name} was not created")
            return answer.topics[0].topic_id

        return await self._cluster.retry(attempt)

    async def delete_topic(self, name: str) -> None:
        topic = DeleteTopicsRequest.Topic(name=name)
        request = DeleteTopicsRequest(
            topics=(topic,), topic_names=(name,), timeout_ms=self._timeout_ms
        )

        async def attempt() -> None:
            answer = await self._cluster.call(request, DeleteTopicsResponse)
            for one in answer.responses:
                check(one.error_code, one.error_message or f"topic {name} was not deleted")

        await self._cluster.retry(attempt)
        self._cluster.metadata.forget(name)

    async def list_topics(self) -> list[str]:
        return [topic.name for topic in await self.describe_topics()]

    async def describe_topics(self, names: Iterable[str] | None = None) -> list[TopicInfo]:
        """These topics or, without names, all of them; sorted by name."""
        asked = None if names is None else list(names)
        return await self._cluster.retry(lambda: self._cluster.topics(asked))

    async def describe_partitions(
        self, names: Sequence[str] = (), page_size: int = MAX_DESCRIBED_PARTITIONS
    ) -> list[TopicInfo]:
        """As describe_topics, with eligible leader replicas where the broker knows them."""
        return await topic_details.describe_partitions(self._cluster, names, page_size)

    async def create_partitions(
        self, name: str, count: int, assignments: Sequence[Sequence[int]] = ()
    ) -> None:
        """Count is how many the topic is to have in all; assignments are the brokers of each new
        one."""
        brokers = tuple(
            CreatePartitionsRequest.Topic.Assignment(broker_ids=tuple(one)) for one in assignments
        )
        topic = CreatePartitionsRequest.Topic(name=name, count=count, assignments=brokers or None)
        request = CreatePartitionsRequest(topics=(topic,), timeout_ms=self._timeout_ms)

        async def attempt() -> None:
            answer = await self._cluster.call(request, CreatePartitionsResponse)
            for one in answer.results:
                check(one.error_code, one.error_message or f"topic {name} got no more partitions")

        await self._cluster.retry(attempt)
        self._cluster.metadata.forget(name)

    async def list_config_resources(self, resource: Resource) -> list[str]:
        """The names of what can have settings; of groups, those that have some of their own."""
        request = ListConfigResourcesRequest(resource_types=(resource,))

        async def attempt() -> list[str]:
            answer = await self._cluster.call(request, ListConfigResourcesResponse)
            check(answer.error_code, "what has settings cannot be listed")
            return [one.resource_name for one in answer.config_resources]

        return await self._cluster.retry(attempt)

    async def describe_configs(self, resource: Resource, name: str) -> list[ConfigEntry]:
        asked = DescribeConfigsRequest.Resource(
            resource_type=resource, resource_name=name, configuration_keys=None
        )
        request = DescribeConfigsRequest(resources=(asked,), include_synonyms=True)

        async def attempt() -> list[ConfigEntry]:
            answer = await self._call_resource(resource, name, request, DescribeConfigsResponse)
            for one in answer.results:
                check(
                    one.error_code,
                    one.error_message or f"the settings of {name} cannot be described",
                )
            return [_config_entry(config) for one in answer.results for config in one.configs]

        return await self._cluster.retry(attempt)

    async def alter_configs(
        self,
        resource: Resource,
        name: str,
        *,
        put: Mapping[str, str] | None = None,
        delete: Iterable[str] = (),
        validate_only: bool = False,
    ) -> None:
        """Settings that are named in neither are left as they are."""
        config = IncrementalAlterConfigsRequest.Resource.Config
        changes = [
            config(name=key, config_operation=0, value=value) for key, value in (put or {}).items()
        ]
        changes += [config(name=key, config_operation=1, value=None) for key in delete]
        altered = IncrementalAlterConfigsRequest.Resource(
            resource_type=resource, resource_name=name, configs=tuple(changes)
        )
        request = IncrementalAlterConfigsRequest(resources=(altered,), validate_only=validate_only)

        async def attempt() -> None:
            answer = await self._call_resource(
                resource, name, request, IncrementalAlterConfigsResponse
            )
            for one in answer.responses:
                check(
                    one.error_code, one.error_message or f"the settings of {name} were not altered"
                )

        await self._cluster.retry(attempt)

    async def delete_records(
        self, before: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        return await offsets.delete_records(self._cluster, before)

    async def list_offsets(
        self, times: Mapping[TopicPartition, int], isolation: Isolation = Isolation.READ_UNCOMMITTED
    ) -> dict[TopicPartition, FoundOffset]:
        return await offsets.list_offsets(self._cluster, times, isolation)

    async def describe_cluster(self, *, with_fenced: bool = False) -> ClusterInfo:
        """Its live brokers and, where asked for, those that are registered but fenced."""

        async def attempt() -> ClusterInfo:
            answer = await self._cluster.call(
                DescribeClusterRequest(include_fenced_brokers=with_fenced), DescribeClusterResponse
            )
            check(answer.error_code, answer.error_message or "the cluster cannot be described")
            brokers = tuple(
                Broker(one.broker_id, one.host, one.port, one.rack, one.is_fenced)
                for one in answer.brokers
            )
            return ClusterInfo(answer.cluster_id, answer.controller_id, brokers)

        return await self._cluster.retry(attempt)

    async def describe_quorum(self) -> QuorumInfo:
        return await quorum_info.describe_quorum(self._cluster)

    async def elect_leaders(
        self, election: Election, partitions: Collection[TopicPartition] | None = None
    ) -> dict[TopicPartition, KafkaError | None]:
        return await elections.elect_leaders(self._cluster, election, partitions)

    async def unregister_broker(self, broker_id: int) -> None:
        """Makes the cluster forget a broker that will not come back."""

        async def attempt() -> None:
            answer = await self._cluster.call(
                UnregisterBrokerRequest(broker_id=broker_id), UnregisterBrokerResponse
            )
            check(
                answer.error_code, answer.error_message or f"broker {broker_id} is still registered"
            )

        await self._cluster.retry(attempt)

    async def _call_resource(
        self, resource: Resource, name: str, request: object, response: type[T]
    ) -> T:
        """A broker's own settings are known to it alone."""
        if resource is Resource.BROKER and name:
            return await (await self._cluster.broker(int(name))).call(request, response)
        return await self._cluster.call(request, response)


def _config_entry(one: DescribeConfigsResponse.Result.Config) -> ConfigEntry:
    synonyms = tuple(
        ConfigSynonym(synonym.name, synonym.value, synonym.source) for synonym in one.synonyms
    )
    return ConfigEntry(
        one.name, one.value, one.config_source, one.read_only, one.is_sensitive, synonyms
    )
