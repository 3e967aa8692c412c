"""The nodes that `penstock up` plans and keeps, the settings they get, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli import build, layout
from penstock.cli.layout import LayoutError
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


def test_brokers_are_controllers_too_unless_those_are_asked_for() -> None:
    cluster = plan()
    assert [(node.id, node.roles, node.port) for node in cluster.nodes] == [
        (1, ("broker", "controller"), 9092),
        (2, ("broker", "controller"), 9093),
        (3, ("broker", "controller"), 9094),
    ]
    assert cluster.bootstrap == "127.0.0.1:9092,127.0.0.1:9093,127.0.0.1:9094"
    voters = properties(cluster, 2)["controller.quorum.voters"]
    assert [voter.partition("@")[0] for voter in voters.split(",")] == ["1", "2", "3"]


def test_separate_controllers_are_101_and_up() -> None:
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
def test_what_is_written_can_be_read(controllers: int | None) -> None:
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
    ("brokers", "factor", "least"), [(1, "1", "1"), (2, "2", "2"), (3, "3", "2"), (5, "3", "2")]
)
def test_internal_topics_have_as_many_copies_as_there_can_be(
    brokers: int, factor: str, least: str
) -> None:
    values = properties(plan(brokers, 1), 1)
    assert values["offsets.topic.replication.factor"] == factor
    assert values["transaction.state.log.min.isr"] == least


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
def test_what_nodes_cannot_share_is_refused(name: str, value: str) -> None:
    with pytest.raises(LayoutError, match=name):
        layout.plan("cluster", 3, None, 9092, (), {name: value})


def test_ports_beyond_the_last_are_refused() -> None:
    assert plan(2, port=65534).brokers[1].port == 65535
    with pytest.raises(LayoutError, match="need ports beyond 65535"):
        plan(3, port=65534)


def test_what_is_kept_is_what_was_saved(tmp_path: Path) -> None:
    assert layout.load(tmp_path) is None
    cluster = plan(3, 2, racks=("a", "b"), num_partitions="3")
    layout.save(tmp_path, cluster)
    assert layout.load(tmp_path) == cluster


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"nodes": 1}', "nonsense"])
def test_a_file_that_was_damaged_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / layout.CLUSTER).write_text(text)
    with pytest.raises(LayoutError, match="cannot be read"):
        layout.load(tmp_path)


def test_one_more_broker_has_the_next_id_and_votes_for_nobody() -> None:
    cluster = plan(3, port=layout.free_ports(1, ())[0], racks=("a", "b"))
    grown = layout.with_broker(cluster)
    assert grown.nodes[:3] == cluster.nodes
    assert (grown.nodes[3].id, grown.nodes[3].roles) == (4, ("broker",))
    assert (
        properties(grown, 4)["controller.quorum.voters"]
        == properties(cluster, 1)["controller.quorum.voters"]
    )
    assert properties(grown, 4)["broker.rack"] == "b"


def test_a_taken_port_is_not_given_to_an_added_broker() -> None:
    cluster = plan(1, 1)
    full = replace(
        cluster,
        nodes=tuple(
            replace(node, broker_port=65535) if node.is_broker else node for node in cluster.nodes
        ),
    )
    assert layout.with_broker(full).nodes[-1].port < 32768


def test_flags_are_compared_with_what_is_kept(tmp_path: Path) -> None:
    cluster = plan(3, racks=("a", "b"))
    layout.check_same(cluster, tmp_path, None, None, None, ())
    layout.check_same(cluster, tmp_path, 3, None, 9092, ("a", "b"))
    layout.check_same(cluster, tmp_path, 3, None, 0, ())
    for flags in (
        (2, None, None, ()),
        (None, 1, None, ()),
        (None, None, 9093, ()),
        (None, None, None, ("a",)),
    ):
        with pytest.raises(LayoutError, match="use another --dir"):
            layout.check_same(cluster, tmp_path, *flags)


def up(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(build("up"), ["up", *arguments])
    return result.exit_code, result.stderr


def test_a_single_node_cannot_become_one_of_several(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / layout.PROPERTIES).write_text("node.id=1\n")
    code, said = up("--brokers", "3", "--dir", str(tmp_path))
    assert code == 1
    assert "has a node of its own, which cannot become one of several: use another --dir" in said


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (("--racks", "a,,b"), "--racks a,,b has a rack without a name"),
        (("-c", "nonsense"), "'nonsense' is not of the form key=value"),
        (("--brokers", "3", "-c", "node.id=4"), "node.id differs from node to node"),
        (("--brokers", "3", "-c", "ssl.keystore.location=x"), "Penstock has no TLS yet"),
    ],
)
def test_flags_that_make_no_sense_are_refused(
    tmp_path: Path, flags: tuple[str, ...], reason: str
) -> None:
    code, said = up(*flags, "--dir", str(tmp_path / "new"))
    assert code == 1
    assert said.startswith("penstock up: ")
    assert reason in said
    assert not (tmp_path / "new" / layout.CLUSTER).exists()
