"""penstock rebalance and penstock brokers drain on a cluster of four brokers."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from typer.testing import CliRunner

import penstock
from penstock.cli import build
from penstock.client.admin.configs import ConfigResourceType
from penstock.client.client import Client
from penstock.client.rebalance.throttles import (
    FOLLOWER_REPLICAS,
    LEADER_REPLICAS,
    set_rate,
    throttle_topics,
)
from penstock.ids import TopicPartition
from tests.cli.kafka_tool import Result
from tests.cli.waiting import ask, eventually
from tests.e2e.penstock_process import COMMAND

PARTITIONS = 24
Command = Callable[..., Result]


@pytest.fixture
def servers() -> Iterator[str]:
    with penstock.Cluster(brokers=4) as cluster:
        yield cluster.bootstrap_servers


@pytest.fixture
def command(servers: str) -> Command:
    def call(*words: str) -> Result:
        done = CliRunner().invoke(build(), [*words, "--bootstrap-server", servers])
        return done.exit_code, done.stdout, done.stderr

    return call


def create(servers: str, name: str, assignments: list[list[int]]) -> None:
    """Create a topic with records in each partition."""

    async def work(client: Client) -> None:
        await client.admin.create_topic(name, assignments=assignments)
        async with client.producer() as producer:
            sent = [
                await producer.send(name, b"%d" % index, partition=index)
                for index in range(len(assignments))
            ]
            for future in sent:
                await future

    ask(servers, work)


def topic(servers: str, name: str) -> list[tuple[int, tuple[int, ...]]]:
    """Return the leader and the replicas of each partition."""

    async def work(client: Client) -> list[tuple[int, tuple[int, ...]]]:
        (info,) = await client.admin.describe_topics([name])
        return [(partition.leader, partition.replicas) for partition in info.partitions]

    return ask(servers, work)


def throttles(servers: str, name: str) -> list[str]:
    async def work(client: Client) -> list[str]:
        entries = await client.admin.describe_configs(ConfigResourceType.TOPIC, name)
        for broker in range(1, 5):
            entries += await client.admin.describe_configs(ConfigResourceType.BROKER, str(broker))
        return [
            entry.name
            for entry in entries
            if "replication.throttled" in entry.name and entry.source in (1, 2)
        ]

    return ask(servers, work)


def read_values(servers: str, name: str, count: int) -> list[bytes]:
    from penstock.client.consumer.consumer import BEGINNING

    async def work(client: Client) -> list[bytes]:
        async with client.consumer() as consumer:
            await consumer.assign(
                {TopicPartition(name, index): BEGINNING for index in range(count)}
            )
            values: list[bytes] = []
            async for record in consumer:
                values.append(record.value or b"")
                if len(values) == count:
                    break
            return values

    return ask(servers, work)


def test_a_new_broker_is_filled(servers: str, command: Command) -> None:
    create(servers, "orders", [[1 + i % 3, 1 + (i + 1) % 3] for i in range(PARTITIONS)])
    code, out, _err = command("rebalance", "--json")
    assert code == 0
    plan = json.loads(out)
    loads = {broker["id"]: broker for broker in plan["brokers"]}
    assert loads[4]["before"]["replicas"] == 0
    assert [loads[broker]["after"]["replicas"] for broker in range(1, 5)] == [12] * 4
    assert {replica for move in plan["moves"] for replica in move["after"]} == {1, 2, 3, 4}
    assert plan["problems"] == []

    code, out, _err = command("rebalance")
    assert code == 0
    assert "BROKER" in out
    assert "0 → 12" in out
    assert out.splitlines()[-1] == "Run it with `penstock rebalance --execute`."
    assert all(4 not in replicas for _leader, replicas in topic(servers, "orders"))

    code, out, err = command(
        "rebalance", "--execute", "--throttle", "10000000", "--concurrent", "3"
    )
    assert (code, out.splitlines()[-1]) == (
        0,
        "Done: the moves are complete and their throttles are removed.",
    ), err
    found = topic(servers, "orders")
    assert all(leader == replicas[0] for leader, replicas in found)
    assert [sum(broker in replicas for _leader, replicas in found) for broker in range(1, 5)] == [
        12
    ] * 4
    assert [sum(leader == broker for leader, _replicas in found) for broker in range(1, 5)] == [
        6
    ] * 4
    assert throttles(servers, "orders") == []
    assert sorted(map(int, read_values(servers, "orders", PARTITIONS))) == list(range(PARTITIONS))

    code, out, _err = command("rebalance", "--execute")
    assert code == 0
    assert "Nothing to move." in out


def test_a_drained_broker_has_no_replicas_and_gets_none(servers: str, command: Command) -> None:
    create(servers, "orders", [[1 + i % 4, 1 + (i + 1) % 4] for i in range(PARTITIONS)])
    code, out, _err = command("brokers", "drain", "4", "--dry-run", "--json")
    assert code == 0
    assert len(json.loads(out)["moves"]) == PARTITIONS // 2
    assert states(command)[4] == "live"

    code, out, err = command("brokers", "drain", "4")
    assert code == 0, err
    assert "It is safe to stop them; then run `penstock brokers remove 4`." in out
    assert states(command)[4] == "cordoned"
    found = topic(servers, "orders")
    assert all(4 not in replicas for _leader, replicas in found)
    assert sorted(map(int, read_values(servers, "orders", PARTITIONS))) == list(range(PARTITIONS))
    created = command("topics", "create", "payments", "--partitions", "9")
    assert created[0] == 0
    assert all(4 not in replicas for _leader, replicas in topic(servers, "payments"))

    code, _out, err = command("brokers", "remove", "4", "--yes")
    assert code == 1
    assert "broker 4 is running" in err
    assert command("brokers", "undrain", "4")[0] == 0
    assert states(command)[4] == "live"
    assert command("brokers", "drain", "9") == (
        1,
        "",
        (
            "penstock brokers drain: broker 9 is not registered; `penstock brokers list` lists "
            "the brokers\n"
        ),
    )


def states(command: Command) -> dict[int, str]:
    code, out, _err = command("brokers", "list", "--json")
    assert code == 0
    listed: list[dict[str, Any]] = json.loads(out)
    return {broker["id"]: broker["state"] for broker in listed}


def test_a_drain_without_enough_brokers_moves_nothing(servers: str, command: Command) -> None:
    create(servers, "wide", [[1, 2, 3, 4]])
    code, _out, err = command("brokers", "drain", "4")
    assert code == 1
    assert "wide-0 has 4 replicas, and no other broker accepts one" in err
    assert topic(servers, "wide") == [(1, (1, 2, 3, 4))]


def test_the_last_broker_is_not_said_to_be_safe_to_stop() -> None:
    with penstock.Cluster() as cluster:
        server = cluster.bootstrap_servers

        def drain(*words: str) -> Result:
            line = ["brokers", "drain", "1", *words, "--bootstrap-server", server]
            done = CliRunner().invoke(build(), line)
            return done.exit_code, done.stdout, done.stderr

        create(server, "orders", [[1]] * 3)
        code, out, err = drain()
        assert (code, out) == (1, "")
        assert err == (
            "penstock brokers drain: no broker but 1 is live: their replicas have no place to go, "
            "and 3 partitions will be offline when they stop. Start another broker first. "
            "Nothing was changed\n"
        )
        assert drain("--dry-run")[0] == 0

        def is_cordoned() -> bool:
            line = ["brokers", "list", "--json", "--bootstrap-server", server]
            return "cordoned" in CliRunner().invoke(build(), line).stdout

        assert not is_cordoned()
        ask(server, lambda client: client.admin.delete_topic("orders"))
        code, out, err = drain()
        assert code == 0, err
        assert "But no other broker is live: when they stop, the cluster serves nobody" in out
        assert "safe to stop" not in out
        assert is_cordoned()


def test_moves_in_progress_are_adopted_or_cancelled(servers: str, command: Command) -> None:
    """As after an interrupted run: a move is in progress, far too slow to complete."""
    create(servers, "large", [[1], [2], [3]])

    async def begin(client: Client) -> None:
        async with client.producer() as producer:
            for _ in range(40):
                await (await producer.send("large", b"x" * 100_000, partition=0))
        await throttle_topics(
            client.cluster, {"large": {LEADER_REPLICAS: "0:1", FOLLOWER_REPLICAS: "0:4"}}
        )
        await set_rate(client.cluster, range(1, 5), 1_000)
        started = await client.admin.alter_partition_reassignments(
            {TopicPartition("large", 0): [4]}
        )
        assert list(started.values()) == [None]

    ask(servers, begin)
    code, out, _err = command("rebalance")
    assert code == 0
    assert "1 moves are in progress, and count as complete above." in out
    assert command("rebalance", "--cancel") == (
        0,
        "Cancelled 1 moves and removed their throttles.\n",
        "",
    )
    assert throttles(servers, "large") == []
    assert topic(servers, "large")[0] == (1, (1,))

    ask(servers, begin)
    assert throttles(servers, "large")
    # Without --throttle the adopted move runs at full speed.
    code, _out, err = command("rebalance", "--execute")
    assert code == 0, err
    assert topic(servers, "large")[0] == (4, (4,))
    assert throttles(servers, "large") == []


def test_watch_balances_what_stays_unbalanced(servers: str) -> None:
    create(servers, "orders", [[1 + i % 3] for i in range(PARTITIONS)])
    words = [str(COMMAND), "rebalance", "--watch", "--interval", "0.1"]
    process = subprocess.Popen(
        [*words, "--bootstrap-server", servers],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        eventually(
            lambda: (
                sum(replicas == (4,) for _leader, replicas in topic(servers, "orders"))
                == PARTITIONS // 4
            )
        )
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 130, err
    assert out.startswith("6 replicas of 6 partitions move")


def test_only_one_action_may_be_given(command: Command) -> None:
    code, _out, err = command("rebalance", "--execute", "--watch")
    assert (code, err) == (
        1,
        "penstock rebalance: give only one of --execute, --cancel and --watch\n",
    )


def test_cancel_without_moves_in_progress(command: Command) -> None:
    assert command("rebalance", "--cancel") == (
        0,
        "No moves are in progress; throttles are removed.\n",
        "",
    )
