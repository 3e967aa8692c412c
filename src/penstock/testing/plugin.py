"""The pytest plugin: clusters, topics, groups and client configurations as fixtures.

pytest imports this module in every session, so it imports nothing but pytest. A process begins to
import the broker when the first test that uses a cluster is collected; the cluster starts when that
test begins.

Each worker of xdist has its own cluster. A shared one would start once, but a broker that one test
kills would be dead for the tests of all workers. Ports are free ones, which a cluster reserves.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from penstock.testing.clients import ClientConfigs
    from penstock.testing.cluster import ProcessCluster
    from penstock.testing.host_process import HostProcess

# Topics and groups are deleted in batches of this many: one request, while a test waits.
_DELETED_TOGETHER = 50
# The process that imports the broker while pytest collects tests.
_HOST: pytest.StashKey[HostProcess | None] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("penstock", "Kafka clusters of Penstock")
    group.addoption(
        "--penstock-brokers",
        type=int,
        default=1,
        metavar="N",
        help="Brokers of the cluster of tests without @pytest.mark.penstock(brokers=N). Default: 1",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "penstock(brokers=N, settings={}): the cluster that penstock_cluster returns for this test",
    )


def pytest_itemcollected(item: pytest.Item) -> None:
    """Begin to import the broker in a process when the first test that needs it is found. pytest
    collects and imports the other tests meanwhile."""
    config = item.config
    if _HOST in config.stash or config.option.collectonly or not _needs_cluster(item):
        return
    from penstock.testing.host_process import HostProcess

    host = config.stash[_HOST] = HostProcess()
    config.add_cleanup(host.end)


def pytest_collection_finish(session: pytest.Session) -> None:
    """End the process if all tests that need it were deselected."""
    host = session.config.stash.get(_HOST, None)
    if host is not None and not any(map(_needs_cluster, session.items)):
        session.config.stash[_HOST] = None
        host.end()


def _needs_cluster(item: pytest.Item) -> bool:
    return "_penstock_clusters" in getattr(item, "fixturenames", ())


class _Clusters:
    """The clusters of a session by their brokers and settings, started when they are needed."""

    def __init__(self, stack: contextlib.ExitStack, host: HostProcess | None) -> None:
        self._stack = stack
        self._host = host
        self._started: dict[tuple[Any, ...], ProcessCluster] = {}

    def get(self, brokers: int, settings: dict[str, str]) -> ProcessCluster:
        shape = (brokers, *sorted(settings.items()))
        if shape not in self._started:
            from penstock.testing.cluster import ProcessCluster

            host, self._host = self._host, None
            self._started[shape] = self._stack.enter_context(
                ProcessCluster(settings, brokers=brokers, host=host)
            )
        return self._started[shape]


class _Leftovers:
    """Topics and groups of tests that have ended."""

    def __init__(self) -> None:
        self._topics: dict[ProcessCluster, list[str]] = {}
        self._groups: dict[ProcessCluster, list[str]] = {}

    def add_topic(self, cluster: ProcessCluster, name: str) -> None:
        self._topics.setdefault(cluster, []).append(name)

    def add_group(self, cluster: ProcessCluster, name: str) -> None:
        self._groups.setdefault(cluster, []).append(name)

    def delete(self, cluster: ProcessCluster) -> None:
        """Delete them if there are many. Called before a test, when all brokers run."""
        topics, groups = self._topics.get(cluster, []), self._groups.get(cluster, [])
        if len(topics) >= _DELETED_TOGETHER:
            cluster.admin.delete_topics(topics)
            topics.clear()
        if len(groups) >= _DELETED_TOGETHER:
            cluster.admin.delete_groups(groups)
            groups.clear()


@pytest.fixture(scope="session")
def _penstock_clusters(pytestconfig: pytest.Config) -> Iterator[_Clusters]:
    with contextlib.ExitStack() as stack:
        yield _Clusters(stack, pytestconfig.stash.get(_HOST, None))


@pytest.fixture(scope="session")
def _penstock_leftovers() -> _Leftovers:
    return _Leftovers()


@pytest.fixture(scope="session")
def penstock_session_cluster(
    _penstock_clusters: _Clusters, pytestconfig: pytest.Config
) -> ProcessCluster:
    """The cluster of tests without a marker, for fixtures of the session."""
    return _penstock_clusters.get(pytestconfig.getoption("--penstock-brokers"), {})


@pytest.fixture
def penstock_cluster(
    request: pytest.FixtureRequest, _penstock_clusters: _Clusters
) -> Iterator[ProcessCluster]:
    """A cluster that runs for the whole session: one broker, or what --penstock-brokers or
    @pytest.mark.penstock(brokers=3) says. After each test its faults end, and all its nodes run."""
    marker = request.node.get_closest_marker("penstock")
    given: dict[str, Any] = {} if marker is None else dict(marker.kwargs)
    brokers = given.pop("brokers", None) or request.config.getoption("--penstock-brokers")
    settings = given.pop("settings", {})
    if given or (marker is not None and marker.args):
        raise pytest.UsageError(
            "@pytest.mark.penstock takes brokers=N and settings={...}, not "
            f"{[*marker.args, *given] if marker is not None else given}"
        )
    cluster = _penstock_clusters.get(brokers, settings)
    yield cluster
    cluster.restore()


@pytest.fixture
def penstock_topic(
    penstock_cluster: ProcessCluster, _penstock_leftovers: _Leftovers
) -> Iterator[str]:
    """The name of a new, empty topic with one partition."""
    _penstock_leftovers.delete(penstock_cluster)
    name = penstock_cluster.create_topic()
    yield name
    _penstock_leftovers.add_topic(penstock_cluster, name)


@pytest.fixture
def penstock_group(
    penstock_cluster: ProcessCluster, _penstock_leftovers: _Leftovers
) -> Iterator[str]:
    """The name of a new group."""
    name = penstock_cluster.new_name("group")
    yield name
    _penstock_leftovers.add_group(penstock_cluster, name)


@pytest.fixture
def penstock_clients(penstock_cluster: ProcessCluster, penstock_group: str) -> ClientConfigs:
    """Configurations for confluent-kafka, kafka-python, aiokafka and Spark. Consumers are in
    `penstock_group` unless a test names another group."""
    from penstock.testing.clients import ClientConfigs

    return ClientConfigs(penstock_cluster.bootstrap_servers, penstock_group)
