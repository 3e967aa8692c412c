"""Delayed responses and the action queue: what waits is completed before the callback that wakes it
returns."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, cast

import pytest

from penstock.limits import ACTIONS_S
from penstock.node.delayed import ActionQueue, DelayedResponse
from penstock.protocol.framing import frame_request
from penstock.protocol.messages.fetch import FetchRequest, FetchResponse
from penstock.protocol.messages.produce import ProduceRequest
from penstock.server.connection import Connection
from penstock.world.sim import Simulation, SimulationFailed
from tests.log.making import batch
from tests.node.replicas import TOPIC, TOPIC_ID, Broker, Cluster
from tests.node.replicas import run as run_cluster


class StepClock:
    """A clock that a test advances."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def now_ms(self) -> int:
        return int(self.now_s * 1000)

    def monotonic(self) -> float:
        return self.now_s


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    Simulation(1).run(main())


# The action queue


def test_actions_run_when_the_outermost_callback_ends() -> None:
    async def main() -> None:
        actions, calls = ActionQueue(StepClock()), list[str]()
        with actions:
            actions.add(lambda: calls.append("first"))
            with actions:
                actions.add(lambda: calls.append("second"))
            calls.append("callback")
        assert calls == ["callback", "first", "second"]

    run(main)


def test_actions_that_actions_add_run_in_the_same_callback() -> None:
    async def main() -> None:
        actions, calls = ActionQueue(StepClock()), list[int]()

        def add(number: int) -> None:
            calls.append(number)
            if number < 5:
                with actions:
                    actions.add(lambda: add(number + 1))

        with actions:
            actions.add(lambda: add(1))
        assert calls == [1, 2, 3, 4, 5]

    run(main)


def test_an_action_outside_of_a_callback_runs_in_the_next_iteration() -> None:
    async def main() -> None:
        actions, calls = ActionQueue(StepClock()), list[int]()
        actions.add(lambda: calls.append(1))
        assert calls == []
        await asyncio.sleep(0)
        assert calls == [1]

    run(main)


@pytest.mark.parametrize(("action_s", "count"), [(ACTIONS_S / 10, 10), (ACTIONS_S * 5, 1)])
def test_a_callback_runs_actions_for_a_bounded_time(action_s: float, count: int) -> None:
    async def main() -> None:
        clock, calls = StepClock(), list[int]()
        actions = ActionQueue(clock)

        def act(number: int) -> None:
            calls.append(number)
            clock.now_s += action_s

        with actions:
            for number in range(25):
                actions.add(partial(act, number))
        assert len(calls) == count
        await asyncio.sleep(0)
        assert len(calls) == 2 * count
        await asyncio.sleep(1)
        assert calls == list(range(25))

    run(main)


def test_a_failed_action_is_reported_and_fails_neither_its_callback_nor_the_others() -> None:
    calls = list[int]()

    async def main() -> None:
        actions = ActionQueue(StepClock())
        with actions:
            actions.add(lambda: cast(None, 1 / 0))
            actions.add(lambda: calls.append(1))
        calls.append(2)
        await asyncio.sleep(1)

    with pytest.raises(SimulationFailed, match="ZeroDivisionError"):
        run(main)
    assert calls == [1, 2]


# Delayed responses


def test_a_delayed_response_calls_back_once_and_immediately() -> None:
    async def main() -> None:
        delayed, results = DelayedResponse[int](), list[int]()
        delayed.on_done(lambda done: results.append(done.result()))
        delayed.complete(1)
        delayed.complete(2)
        delayed.cancel()
        assert results == [1]
        assert await delayed == 1

    run(main)


def test_a_task_that_awaits_a_delayed_response_cancels_it() -> None:
    async def main() -> None:
        delayed = DelayedResponse[int]()
        waiting = asyncio.ensure_future(delayed)
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert delayed.is_done
        with pytest.raises(asyncio.CancelledError):
            delayed.result()

    run(main)


def test_a_task_that_is_cancelled_while_its_delayed_response_completes_is_silent() -> None:
    async def main() -> None:
        delayed: DelayedResponse[str] = DelayedResponse()
        waiting = asyncio.ensure_future(delayed)
        await asyncio.sleep(0)
        waiting.cancel()
        delayed.complete("late")
        (outcome,) = await asyncio.gather(waiting, return_exceptions=True)
        assert isinstance(outcome, asyncio.CancelledError)
        assert delayed.result() == "late"

    run(main)


# Produce and fetch on connections


class Client:
    """A connection of a broker without a network: `send` returns when `buffer_updated` does."""

    def __init__(self, broker: Broker) -> None:
        state, dispatch = broker.server._state, broker.server._dispatch["PLAINTEXT"]
        self.connection = Connection(state, dispatch, "PLAINTEXT")
        self.transport = RecordingTransport(self.connection)
        self.connection.connection_made(self.transport)

    def send(self, request: object, version: int) -> None:
        frame = b"".join(cast("list[bytes]", frame_request(request, version, 1, "test")))
        self.connection.get_buffer(-1)[: len(frame)] = frame
        self.connection.buffer_updated(len(frame))

    @property
    def responses(self) -> int:
        return len(self.transport.written)

    def lose(self) -> None:
        self.connection.connection_lost(None)


class RecordingTransport(asyncio.Transport):
    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self._connection = connection
        self.written: list[bytes] = []

    def write(self, data: Any) -> None:
        self.written.append(bytes(data))

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """There is no buffer."""

    def is_closing(self) -> bool:
        return False

    def close(self) -> None:
        asyncio.get_running_loop().call_soon(self._connection.connection_lost, None)

    abort = close


def produce(*texts: str, acks: int = 1) -> ProduceRequest:
    data = ProduceRequest.TopicData.PartitionData(index=0, records=batch(*texts))
    topic = ProduceRequest.TopicData(name=TOPIC, partition_data=(data,))
    return ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=(topic,))


def fetch(
    offset: int, replica_id: int = -1, broker_epoch: int = -1, session_epoch: int = -1
) -> FetchRequest:
    partition = FetchRequest.Topic.Partition(
        partition=0, fetch_offset=offset, partition_max_bytes=100_000
    )
    return FetchRequest(
        replica_state=FetchRequest.ReplicaState(replica_id=replica_id, replica_epoch=broker_epoch),
        max_wait_ms=10_000,
        min_bytes=1,
        max_bytes=100_000,
        session_epoch=session_epoch,
        topics=(FetchRequest.Topic(topic=TOPIC, topic_id=TOPIC_ID, partitions=(partition,)),),
    )


def alone(test: Callable[[Cluster, Broker], Coroutine[Any, Any, None]], isr: int) -> None:
    """Run a test on broker 1 with so many in-sync replicas, whose own fetches are stopped."""

    async def main(cluster: Cluster) -> None:
        for number in (2, 3):
            cluster.brokers[number].replication.unfollow(cluster.partition(number))
        cluster.controller.change(isr=tuple(range(1, isr + 1)))
        await test(cluster, cluster.brokers[1])

    run_cluster(main)


def test_a_fetch_is_answered_in_the_callback_of_the_produce_request_that_wakes_it() -> None:
    async def main(cluster: Cluster, broker: Broker) -> None:
        follower, producer = Client(broker), Client(broker)
        epoch = cluster.controller.brokers[2].epoch
        follower.send(fetch(0, 2, epoch), 17)
        assert follower.responses == 0
        producer.send(produce("a"), 9)
        assert (producer.responses, follower.responses) == (1, 1)
        assert b"a" in follower.transport.written[0]

    alone(main, isr=2)


def test_the_fetch_that_commits_answers_producers_and_consumers_in_its_callback() -> None:
    async def main(cluster: Cluster, broker: Broker) -> None:
        producer, consumer, follower = Client(broker), Client(broker), Client(broker)
        consumer.send(fetch(0), 17)
        producer.send(produce("a", acks=-1), 9)
        assert (producer.responses, consumer.responses) == (0, 0), "not committed yet"
        follower.send(fetch(1, 2, cluster.controller.brokers[2].epoch), 17)
        assert (producer.responses, consumer.responses) == (1, 1)
        assert cluster.partition(1).high_watermark == 1

    alone(main, isr=2)


def test_a_follower_answers_consumers_in_the_callback_that_brings_the_high_watermark() -> None:
    async def main(cluster: Cluster) -> None:
        await cluster.produce("a")
        await cluster.until(lambda: cluster.ends() == [(1, 1)] * 3)
        consumer, partition = Client(cluster.brokers[2]), cluster.partition(2)
        consumer.send(fetch(1), 17)
        fetcher = cluster.brokers[2].replication._fetchers[1]
        received: Any = fetcher._received
        responses: dict[int, int] = {}

        def observed(response: FetchResponse) -> None:
            received(response)
            responses.setdefault(partition.high_watermark, consumer.responses)

        cast(Any, fetcher)._received = observed
        await cluster.produce("b")
        await cluster.produce("c")
        await cluster.until(lambda: partition.high_watermark == 3)
        assert responses[2] == 1

    run_cluster(main)


def test_an_append_outside_of_a_callback_answers_the_fetch_in_the_next_iteration() -> None:
    async def main(cluster: Cluster, broker: Broker) -> None:
        follower = Client(broker)
        follower.send(fetch(0, 2, cluster.controller.brokers[2].epoch), 17)
        cluster.partition(1).append(batch("a"))
        assert follower.responses == 0
        await asyncio.sleep(0)
        assert follower.responses == 1

    alone(main, isr=2)


def test_a_client_that_disconnects_while_its_fetch_is_woken_leaves_nothing_behind() -> None:
    async def main(cluster: Cluster, broker: Broker) -> None:
        client, others = Client(broker), Client(broker)
        epoch = cluster.controller.brokers[2].epoch
        client.send(fetch(0, 2, epoch), 17)
        others.send(fetch(0, 2, epoch), 17)
        partition = cluster.partition(1)
        assert len(partition._follower_watchers._callbacks or ()) == 2
        with broker.actions:
            partition.append(batch("a"))
            client.lose()
        assert (client.responses, others.responses) == (0, 1)
        assert partition._follower_watchers._callbacks == {}
        assert broker.server._state.waiting == 0

    alone(main, isr=2)


def test_a_follower_with_a_session_that_leaves_while_its_fetch_is_woken_is_silent(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main(cluster: Cluster, broker: Broker) -> None:
        leaving, staying = Client(broker), Client(broker)
        for replica, client in ((2, leaving), (3, staying)):
            epoch = cluster.controller.brokers[replica].epoch
            client.send(fetch(0, replica, epoch, session_epoch=0), 17)
        with broker.actions:
            cluster.partition(1).append(batch("a"))
            leaving.lose()
        assert (leaving.responses, staying.responses) == (0, 1)
        assert broker.server._state.waiting == 0
        sessions = broker.fetches.sessions._sessions.values()
        assert all(session.state.delayed is None for session in sessions)
        cluster.partition(1).append(batch("b"))
        await asyncio.sleep(1)

    alone(main, isr=2)
    assert not caplog.records, "no warning and no traceback"


def test_a_producer_that_disconnects_before_the_commit_is_silent() -> None:
    async def main(cluster: Cluster, broker: Broker) -> None:
        producer = Client(broker)
        producer.send(produce("a", acks=-1), 9)
        producer.lose()
        Client(broker).send(fetch(1, 2, cluster.controller.brokers[2].epoch), 17)
        assert cluster.partition(1).high_watermark == 1
        assert producer.responses == 0
        assert broker.server._state.waiting == 1, "the follower's fetch"

    alone(main, isr=2)
