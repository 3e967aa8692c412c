"""The layout of a cluster's directory: nodes, settings, and refused options."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli import build
from penstock.cli.cluster import layout
from penstock.cli.cluster.layout import LayoutError
from penstock.config.node import read_node_config


def plan(
    brokers: int = 3,
    controllers: int | None = None,
    port: int = 9092,
    racks: tuple[str, ...] = (),
    **settings: str,
) -> layout.Layout:
    return layout.plan(
        "cluster",
        brokers,
        controllers,
        port,
        racks,
        {name.replace("_", "."): value for name, value in settings.items()},
    )


def properties(cluster: layout.Layout, node_id: int) -> dict[str, str]:
    return layout.properties_of(cluster, cluster.node(node_id), Path(f"/dir/{node_id}"))


def test_brokers_are_controllers_by_default() -> None:
    cluster = plan()
    assert [(node.id, node.roles, node.port) for node in cluster.nodes] == [
        (1, ("broker", "controller"), 9092),
        (2, ("broker", "controller"), 9093),
        (3, ("broker", "controller"), 9094),
    ]
    assert cluster.bootstrap == "127.0.0.1:9092,127.0.0.1:9093,127.0.0.1:9094"
    voters = properties(cluster, 2)["controller.quorum.voters"]
    assert [voter.partition("@")[0] for voter in voters.split(",")] == ["1", "2", "3"]


def test_dedicated_controllers_have_ids_from_101() -> None:
    cluster = plan(2, 3)
    assert [(node.id, node.roles) for node in cluster.nodes] == [
        (1, ("broker",)),
        (2, ("broker",)),
        (101, ("controller",)),
        (102, ("controller",)),
        (103, ("controller",)),
    ]
    assert cluster.separate_controllers == 3
    assert properties(cluster, 1)["controller.quorum.voters"].startswith("101@127.0.0.1:")
    assert "broker.rack" not in properties(cluster, 101)


@pytest.mark.parametrize("controllers", [None, 1, 3])
def test_the_properties_of_every_node_are_valid(controllers: int | None) -> None:
    cluster = plan(
        4, controllers, port=0, racks=("a", "b", "c"), log_dirs="one, two", num_partitions="3"
    )
    ports = [
        port for node in cluster.nodes for port in (node.broker_port, node.controller_port) if port
    ]
    assert len(set(ports)) == len(ports)
    for node in cluster.nodes:
        values = properties(cluster, node.id)
        config = read_node_config(
            "".join(f"{name}={value}\n" for name, value in values.items()).encode(), "test"
        )
        assert config.node_id == node.id
        assert config.log_dirs == (f"/dir/{node.id}/one", f"/dir/{node.id}/two")
        assert config.is_broker == node.is_broker
        assert config.warnings == ()
    assert [properties(cluster, node)["broker.rack"] for node in (1, 2, 3, 4)] == [
        "a",
        "b",
        "c",
        "a",
    ]


@pytest.mark.parametrize(
    ("brokers", "factor", "min_isr"), [(1, "1", "1"), (2, "2", "2"), (3, "3", "2"), (5, "3", "2")]
)
def test_the_replication_of_internal_topics_is_limited_by_the_brokers(
    brokers: int, factor: str, min_isr: str
) -> None:
    values = properties(plan(brokers, 1), 1)
    assert values["offsets.topic.replication.factor"] == factor
    assert values["transaction.state.log.min.isr"] == min_isr


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("node.id", "7"),
        ("listeners", "PLAINTEXT://:1"),
        ("broker.rack", "a"),
        ("log.dirs", "/a"),
        ("metadata.log.dir", "/a"),
    ],
)
def test_settings_that_nodes_cannot_share_are_refused(name: str, value: str) -> None:
    with pytest.raises(LayoutError, match=name):
        layout.plan("cluster", 3, None, 9092, (), {name: value})


def test_ports_above_65535_are_refused() -> None:
    assert plan(2, port=65534).brokers[1].port == 65535
    with pytest.raises(LayoutError, match="need ports above 65535"):
        plan(3, port=65534)


def test_a_saved_layout_is_loaded(tmp_path: Path) -> None:
    assert layout.load(tmp_path) is None
    cluster = plan(3, 2, racks=("a", "b"), num_partitions="3")
    layout.save(tmp_path, cluster)
    assert layout.load(tmp_path) == cluster


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"nodes": 1}', "nonsense"])
def test_an_invalid_layout_file_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / layout.CLUSTER).write_text(text)
    with pytest.raises(LayoutError, match="is invalid"):
        layout.load(tmp_path)


def test_an_added_broker_has_the_next_id_and_is_not_a_voter() -> None:
    cluster = plan(3, port=layout.free_ports(1, ())[0], racks=("a", "b"))
    grown = layout.with_broker(cluster)
    assert grown.nodes[:3] == cluster.nodes
    assert (grown.nodes[3].id, grown.nodes[3].roles) == (4, ("broker",))
    assert (
        properties(grown, 4)["controller.quorum.voters"]
        == properties(cluster, 1)["controller.quorum.voters"]
    )
    assert properties(grown, 4)["broker.rack"] == "b"


def test_an_added_broker_gets_a_free_port() -> None:
    cluster = plan(1, 1)
    full = replace(
        cluster,
        nodes=tuple(
            replace(node, broker_port=65535) if node.is_broker else node for node in cluster.nodes
        ),
    )
    assert layout.with_broker(full).nodes[-1].port < 32768


def test_options_that_differ_from_the_existing_cluster_are_refused(tmp_path: Path) -> None:
    cluster = plan(3, racks=("a", "b"))
    layout.check_same(cluster, tmp_path, None, None, None, ())
    layout.check_same(cluster, tmp_path, 3, None, 9092, ("a", "b"))
    layout.check_same(cluster, tmp_path, 3, None, 0, ())
    for options in (
        (2, None, None, ()),
        (None, 1, None, ()),
        (None, None, 9093, ()),
        (None, None, None, ("a",)),
    ):
        with pytest.raises(LayoutError, match="use another --dir"):
            layout.check_same(cluster, tmp_path, *options)


def up(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(build("up"), ["up", *arguments])
    return result.exit_code, result.stderr


def test_a_single_node_cannot_become_a_cluster(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / layout.PROPERTIES).write_text("node.id=1\n")
    code, error = up("--brokers", "3", "--dir", str(tmp_path))
    assert code == 1
    assert "has a single node, which cannot become part of a cluster: use another --dir" in error


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--racks", "a,,b"), "--racks a,,b contains an empty name"),
        (("-c", "nonsense"), "'nonsense' is not a setting: give key=value"),
        (("--brokers", "3", "-c", "node.id=4"), "node.id cannot be given with -c"),
        (("--brokers", "3", "-c", "zookeeper.connect=x"), "zookeeper.connect is not supported"),
    ],
)
def test_invalid_options_are_refused(tmp_path: Path, options: tuple[str, ...], reason: str) -> None:
    code, error = up(*options, "--dir", str(tmp_path / "new"))
    assert code == 1
    assert error.startswith("penstock up: ")
    assert reason in error
    assert not (tmp_path / "new" / layout.CLUSTER).exists()
