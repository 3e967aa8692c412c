"""Builds a node from its parts and runs it; `penstock.Cluster` runs a cluster in this process."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import shutil
import signal
import socket
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.config.authorizer_settings import (
    ALLOW_EVERYONE_IF_NO_ACL_FOUND,
    AUTHORIZER_CLASS_NAME,
    SUPER_USERS,
    super_users,
)
from penstock.config.cluster_settings import REQUEST_TIMEOUT_MS
from penstock.config.listeners import security_protocols
from penstock.config.meta_properties import META_PROPERTIES, decode_meta_properties
from penstock.config.node import NodeConfig, read_node_config
from penstock.config.quota_settings import (
    CONTROLLER_QUOTA_WINDOW_NUM,
    CONTROLLER_QUOTA_WINDOW_SIZE_SECONDS,
    QUOTA_WINDOW_NUM,
    QUOTA_WINDOW_SIZE_SECONDS,
)
from penstock.config.sasl_settings import (
    SASL_MECHANISM_CONTROLLER_PROTOCOL,
    SASL_MECHANISM_INTER_BROKER_PROTOCOL,
)
from penstock.config.transaction_settings import TWO_PHASE_COMMIT_ENABLE
from penstock.controller.decision import ControllerContext
from penstock.errors import ErrorCode, KafkaError
from penstock.handlers import CONTROLLER_SERVED, SERVED, TWO_PHASE_COMMIT_SERVED
from penstock.handlers import load as load_handler
from penstock.handlers.encoded_topics import EncodedTopics
from penstock.handlers.parts import BrokerParts, ControllerParts
from penstock.limits import FULL_COLLECTION_EVERY
from penstock.log.directory import LogDirectory, formatted_directory
from penstock.log.store import LogStore
from penstock.node.broker.controllers import ControllerChannel, Controllers, ProducerIds
from penstock.node.broker.formatting import first_records, format_directories
from penstock.node.broker.lifecycle import Identity, Lifecycle
from penstock.node.controller.controller import NodeController
from penstock.node.controller.registration import ControllerRegistration
from penstock.node.delayed import ActionQueue
from penstock.node.fetch.fetches import Fetches
from penstock.node.metadata import MetadataView
from penstock.node.node import Node
from penstock.node.partition.replica_moves import ReplicaMoves
from penstock.node.quorum.bootstrap_file import read_bootstrap
from penstock.node.quorum.log import metadata_log_path
from penstock.node.quorum.quorum import Quorum
from penstock.node.quorum.quorum_state_store import is_own_quorum
from penstock.node.quorum.snapshot_store import BOOTSTRAP, checkpoint_name
from penstock.node.replication.replicas import Replicas
from penstock.node.scram_credentials import ScramCredentials
from penstock.node.shards.groups import Groups
from penstock.node.shards.marker_writer import MarkerWriter
from penstock.node.shards.shard_set import ShardEnv
from penstock.node.shards.transactions import Transactions
from penstock.node.shards.verification import TxnVerifier
from penstock.node.supervisor import Supervisor
from penstock.security.authorizer import Authorizer
from penstock.security.quotas.client_quotas import ClientQuotas
from penstock.security.quotas.rates import Windows
from penstock.security.tls.node import NodeTls
from penstock.server.dispatch import Dispatch, Handler
from penstock.server.server import Server
from penstock.world import Disk, World
from penstock.world.real.thread import LoopThread, Running

if TYPE_CHECKING:
    from penstock.security.setup.client_settings import ClientAccess
    from penstock.security.setup.cluster import ClusterSecrets
    from penstock.server.metrics.listener import MetricsListener

# Returns the handler of an API key. `penstock.testing` passes one that adds faults.
LoadHandler = Callable[[int], Handler]


class Built(NamedTuple):
    """A node, and the parts for the handlers of its listeners. A node without the controller role
    has no `controller`. `tls` has its keys and certificates."""

    node: Node
    broker: BrokerParts
    controller: ControllerParts | None
    actions: ActionQueue
    tls: NodeTls


def build(world: World, config: NodeConfig) -> Built:
    """Build the parts of a node, each with the parts that it needs."""
    directories = [
        formatted_directory(world.disk, path, config.node_id) for path in config.directories
    ]
    metadata_directory = next(
        directory for directory in directories if directory.path == config.metadata_log_dir
    )
    cluster_id = _cluster_id(world.disk, directories)
    supervisor, actions = Supervisor(), ActionQueue(world.clock)
    quotas = _client_quotas(config)
    authorizer = _authorizer(config)
    tls = NodeTls(world, config)
    # In which this node connects to controllers, and to the inter-broker listeners of brokers.
    to_controllers, to_brokers = link_worlds(tls, config)

    def on_leadership(epoch: int | None) -> None:
        if controller is not None:
            controller.leadership_changed(leads=epoch is not None)
            if epoch is not None:
                node.authorize()

    quorum = Quorum(
        to_controllers,
        config,
        cluster_id,
        metadata_directory,
        on_applied=lambda image, delta: node.apply(image, delta),
        on_leadership=on_leadership,
        spawn=supervisor.spawn,
        host_name=_host_name(config),
    )
    controller = (
        NodeController(
            world,
            config,
            cluster_id,
            quorum,
            ControllerContext.of(config, world.rng.uuid),
            supervisor.spawn,
            read_bootstrap(world.disk, config.metadata_log_dir),
            quotas,
        )
        if config.is_controller
        else None
    )
    metadata = MetadataView(world.clock, config, lambda leader: replicas.is_cut_off(leader))
    client_id = f"broker-{config.node_id}"
    channel = ControllerChannel(to_controllers, client_id, quorum)
    controllers = Controllers(config, channel, controller, metadata.wait_topics)
    store = LogStore(
        world, [directory for directory in directories if directory.path in config.log_dirs]
    )
    lifecycle = Lifecycle(
        world,
        config,
        ControllerChannel(to_controllers, f"{client_id}-heartbeats", quorum),
        store,
        Identity(cluster_id, _host_name(config)),
        metadata_offset=lambda: quorum.applied_offset,
    )
    replicas = Replicas(
        to_brokers,
        config,
        store,
        metadata,
        channel,
        lifecycle,
        supervisor,
        actions,
        applied_offset=lambda: quorum.applied_offset,
    )
    shard_env = ShardEnv(
        to_brokers,
        config.node_id,
        metadata,
        replicas.partitions,
        controllers.create_missing,
        quorum.wait_applied,
        supervisor.spawn,
    )
    verifier = TxnVerifier(
        to_brokers, config.node_id, metadata, lambda: transactions, supervisor.spawn
    )
    groups = Groups(shard_env, config, verifier)
    marker_writer = MarkerWriter(
        to_brokers, metadata, replicas, groups, timeout_s=config[REQUEST_TIMEOUT_MS] / 1000
    )
    producer_ids = ProducerIds(config.node_id, channel, lambda: lifecycle.broker_epoch)
    transactions = Transactions(shard_env, config, producer_ids, marker_writer.write)
    node = Node(
        world.disk,
        config,
        supervisor,
        metadata_directory,
        quorum,
        metadata,
        channel,
        lifecycle,
        ControllerRegistration(world, config, channel, quorum),
        replicas,
        groups,
        transactions,
        verifier,
        quotas,
        authorizer,
    )
    broker_parts = BrokerParts(
        clock=world.clock,
        disk=world.disk,
        offload=world.offload,
        config=config,
        node_id=config.node_id,
        cluster_id=cluster_id,
        supervisor=supervisor,
        metadata=metadata,
        quorum=quorum,
        controllers=controllers,
        replicas=replicas,
        replica_moves=ReplicaMoves(store, metadata, supervisor.spawn),
        fetches=Fetches(world, metadata, replicas, actions, supervisor.spawn),
        groups=groups,
        transactions=transactions,
        marker_writer=marker_writer,
        verifier=verifier,
        producer_ids=producer_ids,
        encoded_topics=EncodedTopics(world.clock),
        quotas=quotas,
        authorizer=authorizer,
    )
    if controller is None:
        return Built(node, broker_parts, None, actions, tls)
    controller_parts = ControllerParts(
        config=config,
        node_id=config.node_id,
        cluster_id=cluster_id,
        metadata=metadata,
        quorum=quorum,
        controllers=controllers,
        controller=controller,
        authorizer=authorizer,
    )
    return Built(node, broker_parts, controller_parts, actions, tls)


@contextlib.asynccontextmanager
async def serving(
    world: World, config: NodeConfig, *, load: LoadHandler = load_handler
) -> AsyncIterator[tuple[Node, str]]:
    """Run a node. Yield it and its bootstrap.servers (of a controller: its own address), and stop
    it cleanly at the end. `load` returns the handlers of clients' requests."""
    _check_own_quorum(world.disk, config)
    node, broker, controller, actions, tls = build(world, config)
    credentials = ScramCredentials(
        world,
        config,
        lambda: node.metadata.image,
        read_bootstrap(world.disk, config.metadata_log_dir),
    )
    server = Server(
        world,
        config,
        Dispatch(
            broker,
            TWO_PHASE_COMMIT_SERVED if config[TWO_PHASE_COMMIT_ENABLE] else SERVED,
            guarded_load(load, broker.authorizer, is_controller=False),
        ),
        controllers=None
        if controller is None
        else Dispatch(
            controller,
            CONTROLLER_SERVED,
            guarded_load(
                partial(load_handler, served=CONTROLLER_SERVED),
                controller.authorizer,
                is_controller=True,
            ),
        ),
        actions=actions,
        settings=lambda: node.metadata.broker_config,
        tls=tls.listeners,
        logins=credentials,
        quotas=node.quotas,
    )
    _to_controllers, to_brokers = link_worlds(tls, config)
    metrics = _metrics_listener(to_brokers, config, server, broker, controller, tls)
    await node.open()
    try:
        await server.start()
        if metrics is not None:
            await metrics.start()
        node.supervisor.spawn(server.wait_failed())
        for keys in server.key_sets:
            node.supervisor.spawn(keys.follow())
        if tls.is_used:
            node.supervisor.spawn(tls.follow(lambda: node.metadata.broker_config))
        await _first(_join(node, server), node.supervisor.wait_failed())
        yield node, _bootstrap_servers(config, server.ports)
        await node.leave()
    finally:
        if metrics is not None:
            metrics.stop()
        # The quorum sends EndQuorumEpoch; the server must still take the responses.
        await _stop_all(node.quorum.stop, server.stop, node.stop)


def link_worlds(tls: NodeTls, config: NodeConfig) -> tuple[World, World]:
    """Return the worlds in which a node connects to controllers, and to the inter-broker listeners
    of brokers."""
    controllers, brokers = config.controller_listener_names[0], config.inter_broker_listener_name
    protocols = security_protocols(config)
    if not any(protocols[name].is_sasl for name in (controllers, brokers) if name in protocols):
        return tls.link_world(controllers), tls.link_world(brokers)
    # Imported on first use, so that a node without SASL starts quickly.
    from penstock.client.sasl import node_world

    return (
        node_world(
            tls.link_world(controllers), config, controllers, SASL_MECHANISM_CONTROLLER_PROTOCOL
        ),
        node_world(tls.link_world(brokers), config, brokers, SASL_MECHANISM_INTER_BROKER_PROTOCOL),
    )


def _client_quotas(config: NodeConfig) -> ClientQuotas:
    return ClientQuotas(
        Windows(config[QUOTA_WINDOW_NUM], config[QUOTA_WINDOW_SIZE_SECONDS] * 1000),
        Windows(
            config[CONTROLLER_QUOTA_WINDOW_NUM], config[CONTROLLER_QUOTA_WINDOW_SIZE_SECONDS] * 1000
        ),
    )


def _authorizer(config: NodeConfig) -> Authorizer | None:
    if not config[AUTHORIZER_CLASS_NAME]:
        return None
    return Authorizer(
        super_users(config[SUPER_USERS]), allow_everyone=config[ALLOW_EVERYONE_IF_NO_ACL_FOUND]
    )


def guarded_load(
    load: LoadHandler, authorizer: Authorizer | None, *, is_controller: bool
) -> LoadHandler:
    """Return a function that loads the handler of an API with its check, if there is an
    authorizer."""
    if authorizer is None:
        return load
    # Imported on first use, so that a node without an authorizer starts quickly.
    from penstock.handlers.authorization.guarded import guarded
    from penstock.handlers.authorization.table import BROKER_CHECKS, CONTROLLER_CHECKS

    return guarded(load, authorizer, CONTROLLER_CHECKS if is_controller else BROKER_CHECKS)


def _metrics_listener(
    world: World,
    config: NodeConfig,
    server: Server,
    broker: BrokerParts,
    controller: ControllerParts | None,
    tls: NodeTls,
) -> MetricsListener | None:
    if config.metrics_listener is None:
        return None
    # Imported on first use, so that a node without it starts quickly.
    from penstock.server.metrics.page import metrics_listener

    return metrics_listener(world, config, server, broker, controller, tls.metrics)


def _check_own_quorum(disk: Disk, config: NodeConfig) -> None:
    """Refuse a controller that has voters neither in its configuration nor in its metadata log if
    its bootstrap server is another one: it would start a second quorum instead of joining it."""
    path = metadata_log_path(config.metadata_log_dir)
    if (
        not config.is_own_quorum
        or not is_own_quorum(disk, path, config.node_id)
        or disk.exists(f"{path}/{checkpoint_name(BOOTSTRAP)}")
    ):
        return
    ports = [listener.port for listener in config.controller_listeners]
    for server in config.bootstrap_servers:
        if 0 not in ports and server.port not in ports:
            raise _other_quorum(config, str(server), "no controller listener of this node")
        try:
            found = socket.getaddrinfo(server.host, 0, type=socket.SOCK_DGRAM)
        except OSError:
            continue  # the name may be known to other machines only
        if not any(_is_local(family, address) for family, _type, _number, _name, address in found):
            raise _other_quorum(config, str(server), "another machine")


def _other_quorum(config: NodeConfig, server: str, found: str) -> KafkaError:
    message = (
        f"controller.quorum.bootstrap.servers={server} is {found}. A controller that joins its "
        "quorum is formatted with --no-initial-controllers, the first ones of a quorum with "
        "--initial-controllers; static controllers list each other in controller.quorum.voters as "
        f"id@host:port. If {server} leads to this node, set controller.quorum.voters="
        f"{config.node_id}@{server}"
    )
    return KafkaError(ErrorCode.INVALID_CONFIG, message)


def _is_local(family: int, address: tuple[Any, ...]) -> bool:
    """Return True if this machine has the address: only then can a socket be bound to it."""
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind(address)
        except OSError:
            return False
    return True


async def _stop_all(*stops: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Stop parts in order, also if one fails: the log directories that are online must get their
    clean shutdown marker. Raise the first error."""
    errors = []
    for stop in stops:
        try:
            await stop()
        except Exception as error:  # noqa: BLE001 - raised below
            errors.append(error)
    if errors:
        raise errors[0]


async def _join(node: Node, server: Server) -> None:
    """Accept clients last: a client that connects earlier gets metadata without brokers, and may
    not refresh it for a long time."""
    await node.join(server.ports)
    await node.be_unfenced()
    await server.accept_clients()


def _host_name(config: NodeConfig) -> str:
    """Return the host name that this broker registers for listeners with a wildcard host."""
    wildcard = any(
        listener.host in (None, "0.0.0.0", "::") for listener in config.advertised_listeners
    )
    return socket.gethostname() if wildcard else "localhost"


def _bootstrap_servers(config: NodeConfig, ports: Mapping[str, int]) -> str:
    listeners = config.advertised_broker_listeners[:1] or config.controller_listeners[:1]
    return ",".join(
        f"{listener.host or 'localhost'}:{listener.port or ports[listener.name]}"
        for listener in listeners
    )


def _cluster_id(disk: Disk, directories: list[LogDirectory]) -> str:
    files = [f"{directory.path}/{META_PROPERTIES}" for directory in directories]
    ids = {file: decode_meta_properties(disk.read(file), file).cluster_id for file in files}
    if len(set(ids.values())) > 1:
        found = ", ".join(f"{file} has cluster.id {cluster_id}" for file, cluster_id in ids.items())
        raise KafkaError(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"the log directories belong to different clusters: {found}. Check log.dirs, or "
            "restore the file that is wrong",
        )
    return ids[files[0]]


async def serve_until_signal(
    world: World,
    config: NodeConfig,
    ready: Callable[[str], None],
    *,
    load: LoadHandler = load_handler,
) -> None:
    """Run a node until SIGTERM, SIGINT or a failure. Call `ready` with its bootstrap.servers.

    A signal also stops a node that is still joining the cluster, which can take long.
    """
    signalled, started = asyncio.Event(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, signalled.set)

    async def serve() -> None:
        async with serving(world, config, load=load) as (node, bootstrap_servers):
            started.set()
            # Objects made so far live as long as the node. Without freeze, each full collection
            # traverses them and blocks the event loop for tens of milliseconds.
            gc.collect()
            gc.freeze()
            node.replicas.on_large_change = _freeze
            first, second, _third = gc.get_threshold()
            gc.set_threshold(first, second, FULL_COLLECTION_EVERY)
            ready(bootstrap_servers)
            await _first(signalled.wait(), node.supervisor.wait_failed())

    async def cancel_start() -> None:
        await signalled.wait()
        if started.is_set():
            await asyncio.Event().wait()  # `serve` stops the node

    await _first(serve(), cancel_start())


def _freeze() -> None:
    """Let later collections ignore all objects, after one of the young ones, some milliseconds."""
    gc.collect(1)
    gc.freeze()


async def _first(*waits: Coroutine[Any, Any, object]) -> None:
    """Return when the first coroutine is done, after the others are cancelled and have ended. Raise
    its error."""
    tasks = [asyncio.create_task(wait) for wait in waits]
    try:
        done, _waiting = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()


_PROPERTIES = """\
process.roles=broker,controller
node.id={node_id}
listeners={listener}://127.0.0.1:0,CONTROLLER://127.0.0.1:{controller_port}
controller.listener.names=CONTROLLER
{voters}
log.dirs={directory}/{node_id}
offsets.topic.replication.factor={internal_factor}
transaction.state.log.replication.factor={internal_factor}
share.coordinator.state.topic.replication.factor={internal_factor}
transaction.state.log.min.isr={internal_min_isr}
share.coordinator.state.topic.min.isr={internal_min_isr}
default.replication.factor={internal_factor}
transaction.two.phase.commit.enable=true
group.initial.rebalance.delay.ms=0
controlled.shutdown.enable=false
"""


class Cluster:
    """`with penstock.Cluster() as cluster: cluster.bootstrap_servers`: one or more brokers on free
    ports, in a thread of this process, with a temporary directory. With `secure`, connections are
    encrypted and authenticated, as by `penstock up --secure`.

    `access` has the settings with which clients connect, by library: `access.librdkafka()` for
    confluent-kafka, `access.kafka_python()`, `access.aiokafka()`, and `access.java()`."""

    bootstrap_servers: str
    access: ClientAccess

    def __init__(
        self,
        settings: Mapping[str, str] | None = None,
        *,
        brokers: int = 1,
        secure: bool = False,
    ) -> None:
        if brokers < 1:
            raise ValueError(f"a cluster has at least one broker, not {brokers}")
        self._settings = dict(settings or {})
        self._brokers = brokers
        self._secure = secure
        self._secrets: ClusterSecrets | None = None

    def __enter__(self) -> Cluster:
        self._directory = tempfile.mkdtemp(prefix="penstock-")
        self._secrets = None
        self._thread = LoopThread(self._serve)
        try:
            self.bootstrap_servers = self._thread.start()
            self.access = self._access()
        except BaseException:
            shutil.rmtree(self._directory)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._thread.stop()
        except BaseException:
            if error is None:
                raise
        finally:
            shutil.rmtree(self._directory)

    async def _serve(self, world: World, running: Running[str]) -> None:
        configs = self._configs()
        cluster_id: str | None = None
        for config in configs:
            cluster_id = format_directories(
                world.disk,
                world.rng,
                config,
                cluster_id,
                ignore_formatted=False,
                say=lambda _line: None,
                **first_records(self._secrets, world.rng),
            )
        async with contextlib.AsyncExitStack() as stack:
            nodes = await asyncio.gather(
                *(stack.enter_async_context(serving(world, config)) for config in configs)
            )
            bootstrap_servers = ",".join(servers for _node, servers in nodes)
            await _first(
                running(bootstrap_servers),
                *(node.supervisor.wait_failed() for node, _servers in nodes),
            )

    def _configs(self) -> list[NodeConfig]:
        ports = [0] if self._brokers == 1 else _free_ports(self._brokers)
        voters = ",".join(f"{number}@127.0.0.1:{port}" for number, port in enumerate(ports, 1))
        factor = min(self._brokers, 3)
        texts = (
            _PROPERTIES.format(
                node_id=number,
                listener="SASL_SSL" if self._secure else "PLAINTEXT",
                controller_port=port,
                voters="" if self._brokers == 1 else f"controller.quorum.voters={voters}",
                directory=self._directory,
                internal_factor=factor,
                internal_min_isr=min(factor, 2),
            )
            for number, port in enumerate(ports, 1)
        )
        return [
            read_node_config(
                text.encode(), "penstock.Cluster", {**self._security(number), **self._settings}
            )
            for number, text in enumerate(texts, 1)
        ]

    def _security(self, node_id: int) -> dict[str, str]:
        """Return the security settings of a node, and make its certificate."""
        if not self._secure:
            return {}
        # Imported on first use, so that other clusters start quickly.
        from penstock.security.setup.cluster import ClusterSecrets

        directory = Path(self._directory)
        if self._secrets is None:
            self._secrets = ClusterSecrets.create(directory)
        home = directory / f"{node_id}-tls"
        home.mkdir()
        hosts = ["localhost", "127.0.0.1"]
        return self._secrets.node_settings(
            self._secrets.prepare_node(home, f"penstock-{node_id}", hosts)
        )

    def _access(self) -> ClientAccess:
        from penstock.security.setup.client_settings import ClientAccess

        if self._secrets is None:
            return ClientAccess(self.bootstrap_servers)
        return self._secrets.client_access(self.bootstrap_servers)


def _free_ports(count: int) -> list[int]:
    """Return free ports: the voters' ports are in the settings of all nodes, so they must be chosen
    before any node listens."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for listener in sockets:
            listener.bind(("127.0.0.1", 0))
        return [listener.getsockname()[1] for listener in sockets]
