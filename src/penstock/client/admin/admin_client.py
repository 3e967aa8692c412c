"""AdminClient for topics, configs, offsets, transactions, leader elections and the cluster itself.

Every failure is a KafkaError with the reason.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from uuid import UUID

from penstock.client import offsets
from penstock.client.admin import (
    acls,
    configs,
    delegation_tokens,
    producers,
    quorum,
    quotas,
    reassignments,
    topics,
    transactions,
    users,
)
from penstock.client.admin.configs import ConfigEntry, ConfigResourceType
from penstock.client.admin.delegation_tokens import TokenWithSecret
from penstock.client.admin.producers import AbortTransactionSpec, ProducerState
from penstock.client.admin.quorum import QuorumInfo, VoterEndpoint
from penstock.client.admin.reassignments import Assignments, PartitionReassignment
from penstock.client.admin.transactions import (
    ANY_DURATION,
    OpenTransaction,
    TransactionDescription,
    TransactionListing,
)
from penstock.client.admin.users import ScramUser
from penstock.client.cluster import Cluster
from penstock.client.errors import check, error_of
from penstock.client.metadata import Broker, TopicInfo
from penstock.client.offsets import IsolationLevel, OffsetAndTimestamp
from penstock.client.routing import Coordinators, CoordinatorType, by_topic
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
from penstock.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from penstock.protocol.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from penstock.security.acls import Acl, AclFilter
from penstock.security.principals import KafkaPrincipal
from penstock.security.quotas.entities import QuotaEntity, QuotaFilter
from penstock.security.sasl.scram_credential import DEFAULT_ITERATIONS, ScramMechanism

# The broker uses num.partitions and default.replication.factor.
BROKER_DEFAULT = -1


class ElectionType(IntEnum):
    PREFERRED = 0
    UNCLEAN = 1


@dataclass(frozen=True, slots=True)
class ClusterInfo:
    id: str
    controller_id: int
    brokers: tuple[Broker, ...]


class AdminClient:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._timeout_ms = int(cluster.request_timeout_s * 1000)
        self._transactions = Coordinators(cluster, CoordinatorType.TRANSACTION)

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
        """Create a topic and return its id.

        `assignments` lists the brokers of each partition, and requires that `partitions` and
        `replication_factor` keep their defaults.
        """
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
            configs=tuple(
                CreateTopicsRequest.Topic.Config(name=key, value=value)
                for key, value in (configs or {}).items()
            ),
        )
        request = CreateTopicsRequest(
            topics=(topic,), timeout_ms=self._timeout_ms, validate_only=validate_only
        )

        async def attempt() -> UUID:
            response = await self._cluster.call(request, CreateTopicsResponse)
            for result in response.topics:
                check(result.error_code, result.error_message or f"topic {name} was not created")
            return response.topics[0].topic_id

        return await self._cluster.retry(attempt)

    async def delete_topic(self, name: str) -> None:
        topic = DeleteTopicsRequest.Topic(name=name)
        request = DeleteTopicsRequest(
            topics=(topic,), topic_names=(name,), timeout_ms=self._timeout_ms
        )

        async def attempt() -> None:
            response = await self._cluster.call(request, DeleteTopicsResponse)
            for result in response.responses:
                check(result.error_code, result.error_message or f"topic {name} was not deleted")

        await self._cluster.retry(attempt)
        self._cluster.metadata.forget(name)

    async def list_topics(self) -> list[str]:
        return [topic.name for topic in await self.describe_topics()]

    async def describe_topics(self, names: Iterable[str] | None = None) -> list[TopicInfo]:
        """Return these topics or, without names, all topics, sorted by name."""
        requested = None if names is None else list(names)
        return await self._cluster.retry(lambda: self._cluster.topics(requested))

    async def describe_partitions(
        self, names: Sequence[str] = (), page_size: int = MAX_DESCRIBED_PARTITIONS
    ) -> list[TopicInfo]:
        """As describe_topics, with eligible leader replicas where the broker reports them."""
        return await topics.describe_partitions(self._cluster, names, page_size)

    async def create_partitions(
        self, name: str, count: int, assignments: Sequence[Sequence[int]] = ()
    ) -> None:
        """Increase a topic's partitions to `count`; `assignments` lists each new one's brokers."""
        brokers = tuple(
            CreatePartitionsRequest.Topic.Assignment(broker_ids=tuple(replicas))
            for replicas in assignments
        )
        topic = CreatePartitionsRequest.Topic(name=name, count=count, assignments=brokers or None)
        request = CreatePartitionsRequest(topics=(topic,), timeout_ms=self._timeout_ms)

        async def attempt() -> None:
            response = await self._cluster.call(request, CreatePartitionsResponse)
            for result in response.results:
                check(
                    result.error_code,
                    result.error_message or f"no partitions were added to topic {name}",
                )

        await self._cluster.retry(attempt)
        self._cluster.metadata.forget(name)

    async def list_config_resources(self, kind: ConfigResourceType) -> list[str]:
        """Return the names of the resources with configs; of groups, those with own configs."""
        return await configs.list_config_resources(self._cluster, kind)

    async def describe_configs(self, kind: ConfigResourceType, name: str) -> list[ConfigEntry]:
        return await configs.describe_configs(self._cluster, kind, name)

    async def alter_configs(
        self,
        kind: ConfigResourceType,
        name: str,
        *,
        put: Mapping[str, str] | None = None,
        delete: Iterable[str] = (),
        validate_only: bool = False,
    ) -> None:
        """Set and delete configs incrementally; other configs keep their values."""
        await configs.alter_configs(
            self._cluster, kind, name, put=put or {}, delete=delete, validate_only=validate_only
        )

    async def delete_records(
        self, before: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        return await offsets.delete_records(self._cluster, before)

    async def list_offsets(
        self,
        times: Mapping[TopicPartition, int],
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        return await offsets.list_offsets(self._cluster, times, isolation)

    async def describe_cluster(self, *, with_fenced: bool = False) -> ClusterInfo:
        """Return the unfenced brokers and, with `with_fenced`, the fenced ones too. A client of
        controllers returns the controllers."""
        request = DescribeClusterRequest(
            endpoint_type=self._cluster.endpoint_type, include_fenced_brokers=with_fenced
        )

        async def attempt() -> ClusterInfo:
            response = await self._cluster.call(request, DescribeClusterResponse)
            check(response.error_code, response.error_message or "DescribeCluster failed")
            brokers = tuple(
                Broker(broker.broker_id, broker.host, broker.port, broker.rack, broker.is_fenced)
                for broker in response.brokers
            )
            return ClusterInfo(response.cluster_id, response.controller_id, brokers)

        return await self._cluster.retry(attempt)

    async def describe_quorum(self) -> QuorumInfo:
        return await quorum.describe_quorum(self._cluster)

    async def add_raft_voter(
        self, voter_id: int, directory_id: UUID, endpoints: Sequence[VoterEndpoint]
    ) -> None:
        """Make a controller a voter of the quorum (KIP-853)."""
        await quorum.add_raft_voter(self._cluster, voter_id, directory_id, endpoints)

    async def remove_raft_voter(self, voter_id: int, directory_id: UUID) -> None:
        """Make a voter of the quorum an observer (KIP-853)."""
        await quorum.remove_raft_voter(self._cluster, voter_id, directory_id)

    async def elect_leaders(
        self, election_type: ElectionType, partitions: Collection[TopicPartition] | None = None
    ) -> dict[TopicPartition, KafkaError | None]:
        """Elect leaders (KIP-460) and return each partition's error or None.

        Without partitions, the controller elects leaders for all partitions that need one, and
        the result has only these.
        """
        requested = None
        if partitions is not None:
            requested = tuple(
                ElectLeadersRequest.TopicPartition(topic=topic, partitions=tuple(indexes))
                for topic, indexes in by_topic(partitions).items()
            )
        request = ElectLeadersRequest(
            election_type=election_type, topic_partitions=requested, timeout_ms=self._timeout_ms
        )

        async def attempt() -> dict[TopicPartition, KafkaError | None]:
            response = await self._cluster.call(request, ElectLeadersResponse)
            check(response.error_code, "ElectLeaders failed")
            return {
                TopicPartition(topic.topic, result.partition_id): error_of(
                    result.error_code, result.error_message or "no leader was elected"
                )
                if result.error_code
                else None
                for topic in response.replica_election_results
                for result in topic.partition_result
            }

        return await self._cluster.retry(attempt)

    async def alter_partition_reassignments(
        self, assignments: Assignments, *, allow_factor_change: bool = True
    ) -> dict[TopicPartition, KafkaError | None]:
        """Move partitions to these replicas, or cancel their reassignment (None). Return each
        partition's error or None."""
        return await reassignments.alter(
            self._cluster, assignments, allow_factor_change=allow_factor_change
        )

    async def list_partition_reassignments(
        self, partitions: Collection[TopicPartition] | None = None
    ) -> dict[TopicPartition, PartitionReassignment]:
        """Return the reassignments in progress of these partitions or, without them, of all."""
        return await reassignments.list_ongoing(self._cluster, partitions)

    async def describe_producers(
        self, partitions: Collection[TopicPartition], broker_id: int | None = None
    ) -> dict[TopicPartition, tuple[ProducerState, ...]]:
        """Return the active producers that the leaders, or a broker, know of these partitions."""
        return await producers.describe_producers(self._cluster, partitions, broker_id)

    async def list_transactions(
        self,
        *,
        states: Collection[str] = (),
        producer_ids: Collection[int] = (),
        longer_than_ms: int = ANY_DURATION,
        pattern: str | None = None,
    ) -> dict[int, list[TransactionListing]]:
        """Return the transactions that match all filters, by the id of their coordinator."""
        return await transactions.list_transactions(
            self._cluster,
            states=states,
            producer_ids=producer_ids,
            longer_than_ms=longer_than_ms,
            pattern=pattern,
        )

    async def describe_transaction(self, transactional_id: str) -> TransactionDescription:
        return await transactions.describe_transaction(self._transactions, transactional_id)

    async def describe_transactions(
        self, transactional_ids: Iterable[str]
    ) -> dict[str, TransactionDescription]:
        return {
            transactional_id: await self.describe_transaction(transactional_id)
            for transactional_id in transactional_ids
        }

    async def open_transaction_at(
        self, partition: TopicPartition, start_offset: int
    ) -> AbortTransactionSpec | None:
        """Return the partition's open transaction that starts at this offset."""
        return await producers.open_transaction_at(self._cluster, partition, start_offset)

    async def abort_transaction(self, spec: AbortTransactionSpec) -> None:
        """Write an abort marker to one partition of a hanging transaction."""
        await producers.abort_transaction(self._cluster, spec)

    async def fence_producers(self, transactional_ids: Iterable[str]) -> dict[str, tuple[int, int]]:
        """Abort the open transactions of transactional ids, and fence their producers; return the
        new producer ids and epochs."""
        return {
            transactional_id: await transactions.fence_producer(
                self._transactions, transactional_id, self._timeout_ms
            )
            for transactional_id in transactional_ids
        }

    async def find_hanging_transactions(
        self,
        partitions: Collection[TopicPartition],
        *,
        max_timeout_min: int,
        broker_id: int | None = None,
    ) -> list[OpenTransaction]:
        """Return the open transactions that no coordinator will end."""
        return await transactions.find_hanging(
            self._cluster, partitions, max_timeout_min=max_timeout_min, broker_id=broker_id
        )

    async def describe_client_quotas(
        self, quota_filter: QuotaFilter
    ) -> dict[QuotaEntity, dict[str, float]]:
        """Return the quotas of the entities that match a filter."""
        return await quotas.describe_client_quotas(self._cluster, quota_filter)

    async def alter_client_quotas(
        self,
        alterations: Mapping[QuotaEntity, Mapping[str, float | None]],
        *,
        validate_only: bool = False,
    ) -> None:
        """Set the quotas of entities, or remove them where the value is None. Raises the error of
        the first entity that is refused."""
        await quotas.alter_client_quotas(self._cluster, alterations, validate_only=validate_only)

    async def describe_users(self, names: Sequence[str] | None = None) -> list[ScramUser]:
        """Return the SCRAM credentials, without secrets, of these users or of all."""
        return await users.describe_users(self._cluster, names)

    async def set_user(
        self,
        name: str,
        mechanism: ScramMechanism,
        password: str,
        iterations: int = DEFAULT_ITERATIONS,
    ) -> None:
        """Set a user's password for a SCRAM mechanism."""
        await users.set_user(self._cluster, name, mechanism, password, iterations)

    async def remove_user(self, name: str, mechanisms: Sequence[ScramMechanism]) -> None:
        """Remove a user's SCRAM credentials for these mechanisms."""
        await users.remove_user(self._cluster, name, mechanisms)

    async def describe_acls(self, acl_filter: AclFilter) -> list[Acl]:
        """Return the access control entries that match a filter."""
        return await acls.describe_acls(self._cluster, acl_filter)

    async def create_acls(self, entries: Sequence[Acl]) -> None:
        """Create access control entries; those that exist stay."""
        await acls.create_acls(self._cluster, entries)

    async def delete_acls(self, filters: Sequence[AclFilter]) -> list[Acl]:
        """Delete the access control entries that match a filter, and return them."""
        return await acls.delete_acls(self._cluster, filters)

    async def create_delegation_token(
        self,
        renewers: Sequence[KafkaPrincipal] = (),
        *,
        max_lifetime_ms: int = -1,
        owner: KafkaPrincipal | None = None,
    ) -> TokenWithSecret:
        """Create a token of this client, or of an owner. A lifetime of -1 is that of the cluster's
        settings."""
        return await delegation_tokens.create_delegation_token(
            self._cluster, renewers, max_lifetime_ms, owner
        )

    async def renew_delegation_token(self, hmac: bytes, period_ms: int = -1) -> int:
        """Let a token expire later. Return when, in milliseconds since 1970."""
        return await delegation_tokens.renew_delegation_token(self._cluster, hmac, period_ms)

    async def expire_delegation_token(self, hmac: bytes, period_ms: int = -1) -> int:
        """Let a token expire after a period, or remove it if that is negative. Return when it
        expires, in milliseconds since 1970."""
        return await delegation_tokens.expire_delegation_token(self._cluster, hmac, period_ms)

    async def describe_delegation_tokens(
        self, owners: Iterable[KafkaPrincipal] | None = None
    ) -> list[TokenWithSecret]:
        """Return the tokens of owners, or all that this client may see."""
        return await delegation_tokens.describe_delegation_tokens(self._cluster, owners)

    async def unregister_broker(self, broker_id: int) -> None:
        """Remove the registration of a broker that will not return."""

        async def attempt() -> None:
            response = await self._cluster.call(
                UnregisterBrokerRequest(broker_id=broker_id), UnregisterBrokerResponse
            )
            check(
                response.error_code,
                response.error_message or f"broker {broker_id} is still registered",
            )

        await self._cluster.retry(attempt)
