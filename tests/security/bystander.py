"""A client that works while others attack its node."""

from __future__ import annotations

import threading
import time

from confluent_kafka import KafkaException, Producer


class Bystander:
    """Produces records in a thread, one after the other, until the context ends."""

    def __init__(self, servers: str) -> None:
        self._producer = Producer({"bootstrap.servers": servers, "acks": "all", "linger.ms": 0})
        self._stopping = threading.Event()
        self.times: list[float] = []
        self.failures: list[object] = []
        self._thread = threading.Thread(target=self._run, name="bystander")

    def __enter__(self) -> Bystander:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(0.01):
            started = time.monotonic()
            try:
                self._producer.produce("bystander", b"x", on_delivery=self._delivered)
            except (BufferError, KafkaException) as error:
                self.failures.append(error)
            if self._producer.flush(30):
                self.failures.append("a record was not delivered within 30 s")
            self.times.append(time.monotonic() - started)

    def _delivered(self, error: object, _message: object) -> None:
        if error is not None:
            self.failures.append(error)

    def check(self) -> None:
        """Assert that it worked, and that nothing failed."""
        assert self.failures == []
        assert self.times, "the client did not produce"

    def percentile_ms(self, percent: int) -> float:
        return sorted(self.times)[len(self.times) * percent // 100] * 1000

    def report(self) -> str:
        p50, p99 = self.percentile_ms(50), self.percentile_ms(99)
        return f"another client's {len(self.times)} records: p50 {p50:.1f} p99 {p99:.1f} ms"
