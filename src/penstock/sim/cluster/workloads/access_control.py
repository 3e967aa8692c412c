"""Access control entries that change while clients are at work, and clients with and without
rights.

The writer gets WRITE on a topic and loses it again. The stranger never gets it, but other rights:
nothing that it writes may be in a log (rule 28). Both are authenticated with SASL. The clients of
the other workloads and the nodes themselves are super users.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from types import MappingProxyType

from penstock.client.client import Client
from penstock.client.connection import Connection, open_connection
from penstock.client.security import secured
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import TopicPartition
from penstock.protocol.messages.produce import ProduceRequest, ProduceResponse
from penstock.records.build import build_batch
from penstock.security.acls import (
    Acl,
    AclFilter,
    AclOperation,
    PatternType,
    PermissionType,
    ResourceType,
)
from penstock.security.authorizer import Authorizer
from penstock.security.principals import KafkaPrincipal
from penstock.sim.cluster.events import RecordAcknowledged, RecordSent, StrangerAnswered
from penstock.sim.cluster.history import ProducerKind
from penstock.sim.cluster.spec import CLIENTS_PORT, STRANGER, WRITER, ClusterSpec
from penstock.sim.cluster.workloads.workload import (
    RETRY_S,
    Clients,
    Workload,
    WorkloadEnv,
    sleep_until,
    until_done,
)
from penstock.world.sim import Node as Machine

_TIMEOUT_S = 2.0
_PRODUCE_VERSION = 9
_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
_ALLOW, _DENY = PermissionType.ALLOW, PermissionType.DENY


class AccessControl(Workload):
    def __init__(self, env: WorkloadEnv) -> None:
        super().__init__(env)
        self._topic = env.spec.topics[0]
        self._numbers = {WRITER: 0, STRANGER: 0}
        # What the stranger writes is never visible, unless the authorizer is wrong.
        for name in (WRITER, STRANGER):
            env.history.producers[name] = ProducerKind(idempotent=False, acks_all=True)
        env.history.has_acls = True

    async def prepare(self, machine: Machine) -> None:
        async with self.env.connected(machine) as client:
            await until_done(lambda: client.admin.create_acls([self._right()]))

    def clients(self, first: Machine, second: Machine) -> Clients:
        return [
            (first, self.change(first)),
            (first, self.write(first, WRITER)),
            (second, self.write(second, STRANGER)),
        ]

    # Changes of the entries

    async def change(self, machine: Machine) -> None:
        async with self.env.connected(machine) as client:
            while not self.env.faults_over.is_set():
                await sleep_until(self.env.faults_over, self.rng.choice((0.05, 0.3, 1.0)))
                with contextlib.suppress(KafkaError):
                    await self._change_once(client)
                    self.history.count("access control entries changed")

    async def _change_once(self, client: Client) -> None:
        draw = self.rng.random()
        if draw < 0.2:
            await client.admin.delete_acls([AclFilter(principal=f"User:{WRITER}")])
        elif draw < 0.3:
            # Nothing of this entry is left for others: those of the stranger stay.
            await client.admin.delete_acls([AclFilter(operation=AclOperation.READ)])
        else:
            await client.admin.create_acls([self._drawn()])

    def _right(self) -> Acl:
        name = self._topic.name
        return _entry(PatternType.LITERAL, name, WRITER, AclOperation.WRITE, _ALLOW)

    def _drawn(self) -> Acl:
        name = self._topic.name
        pattern, resource = self.rng.choice(
            (
                (PatternType.LITERAL, name),
                (PatternType.LITERAL, "*"),
                (PatternType.PREFIXED, name[:2]),
            )
        )
        draw = self.rng.random()
        if draw < 0.5:
            permission = self.rng.choice((_ALLOW, _ALLOW, _ALLOW, _DENY))
            operation = self.rng.choice((AclOperation.WRITE, AclOperation.ALL))
            return _entry(pattern, resource, WRITER, operation, permission)
        if draw < 0.7:
            operation = self.rng.choice((AclOperation.READ, AclOperation.DESCRIBE))
            return _entry(pattern, resource, STRANGER, operation, _ALLOW)
        if draw < 0.85:
            return _entry(PatternType.PREFIXED, f"{name}-other", STRANGER, AclOperation.ALL, _ALLOW)
        user = f"user-{self.rng.randrange(50)}"
        return _entry(pattern, resource, user, AclOperation.READ, _ALLOW)

    # Writers

    async def write(self, machine: Machine, user: str) -> None:
        while not self.over.is_set():
            broker = self.rng.choice(self.spec.brokers)
            with contextlib.suppress(KafkaError):
                connection = await self._connect(machine, user, broker)
                try:
                    for _ in range(self.rng.choice((1, 5))):
                        await sleep_until(self.over, 0.3 * self.rng.random())
                        await self._write_once(machine, connection, user)
                finally:
                    connection.close()
            await sleep_until(self.over, RETRY_S)

    async def _connect(self, machine: Machine, user: str, broker: str) -> Connection:
        return await open_connection(
            secured(machine.world, LOGINS[user]),
            broker,
            CLIENTS_PORT,
            client_id=user,
            connect_timeout_s=_TIMEOUT_S,
            request_timeout_s=_TIMEOUT_S,
        )

    async def _write_once(self, machine: Machine, connection: Connection, user: str) -> int:
        """Write one record to some partition, whoever leads it. Return the error code."""
        now = machine.world.clock.monotonic
        partition = self.rng.choice(self._topic.all_partitions)
        self._numbers[user] += 1
        value = f"{user}:{self._numbers[user]}".encode()
        if user == WRITER:
            # Before the request: it may be carried out although no answer comes.
            self.note(RecordSent(now(), user, partition, value))
        response = await connection.call(
            _request(partition, value, machine.world.clock.now_ms()),
            ProduceResponse,
            max_version=_PRODUCE_VERSION,
        )
        (answer,) = response.responses[0].partition_responses
        code = int(answer.error_code)
        if user == STRANGER:
            self.note(StrangerAnswered(now(), partition, value, code))
        elif code == ErrorCode.NONE:
            high_watermark = self.env.max_high_watermark(partition)
            self.note(
                RecordAcknowledged(
                    now(), user, partition, value, answer.base_offset, high_watermark
                )
            )
            self.history.count("writes with a right")
        if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            self.history.count(f"writes of the {user} denied")
        return code

    # After the faults

    async def settle(self, machine: Machine) -> None:
        """A right that is removed is gone on every broker, and one that is given is there."""
        async with self.env.connected(machine) as client:
            everything = [AclFilter(principal=f"User:{WRITER}")]
            await until_done(lambda: client.admin.delete_acls(everything))
            for broker in self.spec.brokers:
                await self._until(machine, [broker], ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            await until_done(lambda: client.admin.create_acls([self._right()]))
            await self._until(machine, self.spec.brokers, ErrorCode.NONE)
        self.history.count("rights settled")

    async def _until(self, machine: Machine, brokers: Sequence[str], expected: ErrorCode) -> None:
        """Write until one of the brokers answers with this code."""
        while True:
            for broker in brokers:
                with contextlib.suppress(KafkaError):
                    connection = await self._connect(machine, WRITER, broker)
                    try:
                        if await self._write_once(machine, connection, WRITER) == expected:
                            return
                    finally:
                        connection.close()
            await asyncio.sleep(RETRY_S)

    async def read_back(self, machine: Machine) -> None:
        async with self.env.connected(machine) as client:
            self.history.described_acls = frozenset(await client.admin.describe_acls(AclFilter()))


def decisions_of(authorizer: Authorizer, spec: ClusterSpec) -> tuple[bool, ...]:
    """Return what a node's authorizer decides for each client, operation and topic."""
    names = [*(topic.name for topic in spec.topics), "elsewhere"]
    return tuple(
        authorizer.allows(
            KafkaPrincipal("User", user), "10.0.0.1", operation, ResourceType.TOPIC, name
        )
        for user in (WRITER, STRANGER, "user-1")
        for operation in (AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE)
        for name in names
    )


def login_of(user: str) -> MappingProxyType[str, str]:
    return MappingProxyType(
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": f'{_MODULE} username="{user}" password="{user}-secret";',
        }
    )


LOGINS = {user: login_of(user) for user in (WRITER, STRANGER)}


def _entry(
    pattern: PatternType,
    name: str,
    user: str,
    operation: AclOperation,
    permission: PermissionType,
) -> Acl:
    return Acl(ResourceType.TOPIC, name, pattern, f"User:{user}", "*", operation, permission)


def _request(partition: TopicPartition, value: bytes, now_ms: int) -> ProduceRequest:
    data = ProduceRequest.TopicData.PartitionData(
        index=partition.partition, records=build_batch([(None, value, (), now_ms)])
    )
    return ProduceRequest(
        acks=-1,
        timeout_ms=1_000,
        topic_data=(ProduceRequest.TopicData(name=partition.topic, partition_data=(data,)),),
    )
