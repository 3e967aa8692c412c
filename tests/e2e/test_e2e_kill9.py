"""After rounds of kill -9 of a broker under load, every acknowledged record is in the log once, in
order (rules 1, 4, 5, 6)."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from tests.e2e.numbered_load import NumberedLoad, check, read_back
from tests.e2e.penstock_process import PenstockProcess

TOPIC = "killed"


class Broker(Protocol):
    """A PenstockProcess, or the KafkaNode of tests/java: the drill also runs on Apache Kafka."""

    bootstrap: str

    def start(self) -> None: ...
    def stop(self) -> None: ...
    def kill(self) -> None: ...


def test_acknowledged_records_survive_kill_9(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    rounds = int(os.environ.get("PENSTOCK_KILL_ROUNDS", "10"))
    records = drill(PenstockProcess(tmp_path / "node"), rounds)
    record_property(
        "note",
        f"kill -9 under load, {rounds} rounds: {records} acknowledged records, each found once and "
        "in order",
    )


def drill(broker: Broker, rounds: int) -> int:
    """Return the number of acknowledged records."""
    try:
        broker.start()
        with NumberedLoad(broker.bootstrap, TOPIC) as load:
            sent = kill_under_load(broker, load, rounds)
        check(load, sent, read_back(broker.bootstrap, TOPIC, sent))
        broker.stop()
        broker.start()
        check(load, sent, read_back(broker.bootstrap, TOPIC, sent))
        broker.stop()
        return sent
    finally:
        broker.kill()


def kill_under_load(broker: Broker, load: NumberedLoad, rounds: int) -> int:
    rng = random.Random(rounds)
    load.start()
    for _ in range(rounds):
        load.wait_acknowledged(rng.randrange(1, 5_000))
        broker.kill()
        broker.start()
    load.wait_acknowledged(1_000)
    return load.finish()
