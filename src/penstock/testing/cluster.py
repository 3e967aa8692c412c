"""A cluster for tests, one process per node, whose nodes a test can kill, pause and cut off, and
whose requests it can delay and fail.

    with ProcessCluster(brokers=3) as cluster:
        topic = cluster.create_topic(partitions=3)
        cluster.kill(cluster.leader(topic))
        ...
        cluster.restore()
        cluster.wait_in_sync()

Only what a test needs is imported: the broker runs in other processes.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING

from penstock.testing.faults.board import DELAY, FAIL, LOSE_RESPONSE, REFUSE
from penstock.testing.faults.requested import Fault, RequestedFaults
from penstock.testing.host_process import ClusterError, HostProcess

if TYPE_CHECKING:
    from penstock.errors import ErrorCode
    from penstock.testing.admin import Admin

START_WITHIN_S = 60.0
# How long a node may take to start, to stop, or to be in sync again.
PATIENCE_S = 60.0
_POLL_S = 0.01
_MAX_BROKERS = 20


class ProcessCluster:
    """`settings` are settings of server.properties for all nodes. `ports` are the clients' ports of
    the first brokers; the others get free ones. A broker keeps its ports when it restarts. `host`
    is a process that was made earlier, and has imported the broker by now."""

    bootstrap_servers: str
    _faults: RequestedFaults

    def __init__(
        self,
        settings: Mapping[str, str] | None = None,
        *,
        brokers: int = 1,
        ports: Iterable[int] = (),
        cluster_id: str | None = None,
        host: HostProcess | None = None,
    ) -> None:
        if not 1 <= brokers <= _MAX_BROKERS:
            raise ValueError(f"a test cluster has 1 to {_MAX_BROKERS} brokers, not {brokers}")
        self.brokers = tuple(range(1, brokers + 1))
        self._settings = dict(settings or {})
        self._ports = list(ports)
        self._cluster_id = cluster_id
        self._prepared = host
        self._host: HostProcess | None = None
        self._admin: Admin | None = None
        self._stopped: set[int] = set()
        self._paused: set[int] = set()
        self._names = itertools.count(1)
        self._name_prefix = f"{os.getpid()}-{id(self):x}"[-12:]

    # Starting and stopping

    def __enter__(self) -> ProcessCluster:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self, within_s: float = START_WITHIN_S) -> ProcessCluster:
        """Start all nodes, and return when clients can use them."""
        if self._host is not None:
            raise ClusterError("the cluster has been started already")
        host = self._host = self._prepared or HostProcess()
        self.directory = host.directory
        self._faults = RequestedFaults(self.directory, self.brokers)
        try:
            host.start(
                {
                    "brokers": len(self.brokers),
                    "settings": self._settings,
                    "ports": self._ports,
                    "cluster_id": self._cluster_id,
                }
            )
            # The client is imported while the cluster starts.
            from penstock.testing.admin import Admin

            addresses = host.wait_ready(within_s)
            self.bootstrap_servers = addresses["clients"]
            self._admin = Admin(addresses["internal"].split(","))
            self._admin.use(self.brokers)
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Kill all nodes, and remove their data. No effect on a cluster that does not run. Raise
        ClusterError if a node has ended by itself."""
        host, self._host = self._host, None
        if host is None:
            return
        admin, self._admin = self._admin, None
        try:
            if admin is not None:
                admin.close()
                running = [node for node in self.brokers if node not in self._stopped]
                host.request("kill", running, PATIENCE_S)
        finally:
            self._faults.close()
            host.end()
            self._prepared = None

    @property
    def admin(self) -> Admin:
        """Topics and groups, by Penstock's own client."""
        if self._admin is None:
            raise ClusterError("the cluster does not run: call start(), or use it in a with block")
        return self._admin

    # Nodes

    def kill(self, *nodes: int) -> None:
        """Kill nodes as `kill -9` does. What they wrote stays."""
        self._control("kill", nodes)
        self._note(stopped=nodes)

    def shut_down(self, *nodes: int) -> None:
        """Stop nodes cleanly: they move their leaderships away first."""
        self._control("stop", nodes)
        self._note(stopped=nodes)

    def restart(self, *nodes: int) -> None:
        """Start nodes again, on the same ports and with what they wrote. Nodes that run are killed
        first. Returns when they serve; `wait_in_sync` waits for their replicas."""
        self.kill(*(node for node in nodes if node not in self._stopped))
        self._control("start", nodes)
        self._note(running=nodes)

    def pause(self, *nodes: int) -> None:
        """Freeze nodes as SIGSTOP does: their connections stay open, and nobody answers."""
        self._control("pause", nodes)
        self._note(paused=nodes)

    def resume(self, *nodes: int) -> None:
        self._control("resume", nodes)
        self._note(running=nodes)

    def _note(
        self,
        *,
        running: Iterable[int] = (),
        stopped: Iterable[int] = (),
        paused: Iterable[int] = (),
    ) -> None:
        """Remember the states of nodes, and ask only those that serve and have a majority."""
        self._stopped = self._stopped.difference(running).union(stopped)
        self._paused = self._paused.difference(running, stopped).union(paused)
        reached = [
            tuple(
                other
                for other in self.alive
                if other == node or not self._faults.is_cut(node, other)
            )
            for node in self.alive
        ]
        self.admin.use(max(reached, key=len, default=()))

    @property
    def alive(self) -> tuple[int, ...]:
        """Return the nodes that run and are not paused."""
        return tuple(node for node in self.brokers if node not in self._stopped | self._paused)

    def bootstrap_servers_of(self, *nodes: int) -> str:
        """Return the addresses of some brokers, for a client that shall begin there."""
        servers = self.bootstrap_servers.split(",")
        return ",".join(servers[self._checked(node) - 1] for node in nodes)

    def log(self, node: int) -> str:
        """Return what a node has logged."""
        file = self.directory / str(self._checked(node)) / "penstock.log"
        return file.read_text(errors="replace") if file.exists() else ""

    def _control(self, action: str, nodes: Iterable[int]) -> None:
        ids = [self._checked(node) for node in nodes]
        if ids:
            self._running_host.request(action, ids, PATIENCE_S)

    @property
    def _running_host(self) -> HostProcess:
        if self._host is None:
            raise ClusterError("the cluster does not run: call start(), or use it in a with block")
        return self._host

    def _checked(self, node: int) -> int:
        if node not in self.brokers:
            raise ValueError(f"there is no broker {node}; the brokers are {self.brokers}")
        return node

    def _checked_or_all(self, node: int | None) -> int | None:
        return None if node is None else self._checked(node)

    # Faults

    def partition(self, *groups: int | Iterable[int]) -> None:
        """Cut the network between groups of nodes; nodes in no group form one more. Clients still
        reach all of them, and one that asks a broker of a minority learns of no new leader.
        `partition(1)` cuts off node 1. Adds to earlier cuts, until `heal`."""
        named = [[group] if isinstance(group, int) else list(group) for group in groups]
        for node in itertools.chain.from_iterable(named):
            self._checked(node)
        self._faults.cut(named)
        self._note()

    def heal(self) -> None:
        """End all cuts of the network."""
        self._faults.heal()
        self._note()

    def delay(
        self, api: str, ms: float, *, times: int | None = None, broker: int | None = None
    ) -> Fault:
        """Handle requests of an API ("Produce", "Fetch", ...), and send their responses `ms`
        milliseconds late. A response holds back those after it on its connection."""
        if not 0 <= ms <= 3_600_000:
            raise ValueError(f"a delay has 0 to 3600000 ms, not {ms}")
        return self._faults.add(DELAY, api, times, self._checked_or_all(broker), delay_ms=ms)

    def fail(
        self,
        api: str,
        error: str | ErrorCode,
        *,
        times: int | None = None,
        broker: int | None = None,
    ) -> Fault:
        """Answer requests of an API with an error ("NOT_LEADER_OR_FOLLOWER", ...) instead of
        handling them: `times` requests of the whole cluster, or all until the fault is removed."""
        from penstock.errors import ErrorCode

        code = ErrorCode[error] if isinstance(error, str) else error
        checked = self._checked_or_all(broker)
        return self._faults.add(FAIL, api, times, checked, error_code=int(code))

    def disconnect(
        self,
        api: str,
        *,
        after: bool = False,
        times: int | None = 1,
        broker: int | None = None,
    ) -> Fault:
        """Close the connection of a client that sends a request of an API. With `after` the request
        is handled first, and only its response is lost: the client cannot know."""
        kind = LOSE_RESPONSE if after else REFUSE
        return self._faults.add(kind, api, times, self._checked_or_all(broker))

    def clear_faults(self) -> None:
        """End all delays, failures and cuts."""
        self._faults.clear()
        self._note()

    def restore(self) -> None:
        """End all faults, resume paused nodes and start those that do not run. Then wait until all
        replicas are in sync. Takes no time if nothing was changed."""
        changed = self._faults.has_cuts or bool(self._paused or self._stopped)
        self.clear_faults()
        self.resume(*self._paused)
        self.restart(*self._stopped)
        if changed:
            self.wait_in_sync()

    # Topics

    def create_topic(
        self,
        name: str | None = None,
        *,
        partitions: int = 1,
        replication_factor: int | None = None,
        configs: Mapping[str, str] | None = None,
    ) -> str:
        """Create a topic that every running broker knows when this returns. Return its name, which
        is a new one unless it is given."""
        topic = self.new_name("topic") if name is None else name
        self.admin.create_topic(topic, partitions, replication_factor or -1, configs or {})
        return topic

    def delete_topics(self, *names: str) -> None:
        """Delete topics in one request. A topic that does not exist is no error."""
        self.admin.delete_topics(names)

    def new_name(self, word: str) -> str:
        """Return a name that this cluster has not seen, for a topic, a group or a transactional
        id."""
        return f"{word}-{self._name_prefix}-{next(self._names)}"

    def leader(self, topic: str, partition: int = 0) -> int:
        """Return the broker that leads a partition, -1 if none does."""
        return self.admin.partitions(topic)[partition].leader_id

    def wait_new_leader(
        self, topic: str, old: int, partition: int = 0, *, within_s: float = PATIENCE_S
    ) -> int:
        """Wait until all brokers that serve, and are not cut off, know another leader than `old`.
        Return it. A client that asks earlier may still be sent to the old one."""

        def is_known() -> bool:
            leaders = self.admin.leaders(topic, partition)
            return len(leaders) == 1 and not leaders & {old, -1}

        self.wait_until(is_known, within_s, lambda: f"{topic}-{partition} has no new leader")
        return self.leader(topic, partition)

    def in_sync(self, topic: str, partition: int = 0) -> tuple[int, ...]:
        """Return the brokers whose replicas are in sync."""
        return tuple(sorted(self.admin.partitions(topic)[partition].isr_nodes))

    def wait_in_sync(self, *topics: str, within_s: float = PATIENCE_S) -> None:
        """Wait until all replicas of these topics, or of all topics, are in sync."""
        self.wait_until(
            lambda: not self.admin.under_replicated(topics or None),
            within_s,
            lambda: f"not in sync: {self.admin.under_replicated(topics or None)}",
        )

    def wait_until(
        self,
        condition: Callable[[], bool],
        within_s: float = PATIENCE_S,
        explain: Callable[[], str] = lambda: "the condition does not hold",
    ) -> None:
        """Call `condition` until it returns True. Raise ClusterError if that takes too long."""
        deadline = time.monotonic() + within_s
        while not condition():
            if time.monotonic() > deadline:
                raise ClusterError(f"after {within_s:g} s: {explain()}")
            time.sleep(_POLL_S)
