"""Compare the protocol codec with kio's and kafka-python's on a Fetch request of six partitions."""

from __future__ import annotations

import io
import time
import warnings
from collections.abc import Callable
from uuid import UUID

from bench.results import Section, median
from penstock.protocol.codec import decode, encode, encode_bytes
from penstock.protocol.messages.fetch import FetchRequest

ROUNDS = 9
CALLS = 3_000
VERSION = 13

REQUEST = FetchRequest(
    max_wait_ms=500,
    min_bytes=1,
    max_bytes=52_428_800,
    session_id=7,
    session_epoch=3,
    topics=(
        FetchRequest.Topic(
            topic_id=UUID(int=4711),
            partitions=tuple(
                FetchRequest.Topic.Partition(
                    partition=number,
                    current_leader_epoch=5,
                    fetch_offset=1_000 * number,
                    last_fetched_epoch=-1,
                    partition_max_bytes=1_048_576,
                )
                for number in range(6)
            ),
        ),
    ),
)


def main() -> None:
    section = Section(
        "codec",
        "make bench ONLY=log",
        f"A Fetch request v{VERSION} of six partitions, µs per call; medians of {ROUNDS} "
        "alternating rounds.",
    )
    body = encode_bytes(REQUEST, VERSION)
    candidates = {
        "Penstock": _penstock(body),
        "kio (its decoder is native code)": _kio(body),
        "kafka-python": _kafka_python(body),
    }
    times: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in candidates}
    for _ in range(ROUNDS):
        for name, (decoder, encoder) in candidates.items():
            times[name][0].append(_microseconds(decoder))
            times[name][1].append(_microseconds(encoder))
    section.table("codec", "decode", "encode")
    for name, (decoding, encoding) in times.items():
        section.row(name, f"{median(decoding):.1f}", f"{median(encoding):.1f}")
    section.save()


def _microseconds(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    for _ in range(CALLS):
        call()
    return (time.perf_counter() - started) / CALLS * 1e6


Pair = tuple[Callable[[], object], Callable[[], object]]


def _penstock(body: bytes) -> Pair:
    return lambda: decode(FetchRequest, VERSION, body), lambda: encode(REQUEST, VERSION)


def _kio(body: bytes) -> Pair:
    from kio.schema.fetch.v13.request import FetchRequest as KioRequest
    from kio.serial import entity_reader, entity_writer

    read, write = entity_reader(KioRequest), entity_writer(KioRequest)
    request, size = read(body, 0)
    if size != len(body):
        raise SystemExit("kio decodes the request differently: the benchmark is wrong")

    def encode_request() -> bytes:
        buffer = io.BytesIO()
        write(buffer, request)
        return buffer.getvalue()

    if encode_request() != body:
        raise SystemExit("kio encodes the request differently: the benchmark is wrong")
    return lambda: read(body, 0), encode_request


def _kafka_python(body: bytes) -> Pair:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from kafka.protocol.consumer.fetch import FetchRequest as KafkaRequest
    request = KafkaRequest.decode(body, version=VERSION)
    # The encoder reads a header, which a decoded message does not have.
    request._header = None
    if bytes(request.encode(version=VERSION)) != body:
        raise SystemExit("kafka-python encodes the request differently: the benchmark is wrong")
    return lambda: KafkaRequest.decode(body, version=VERSION), lambda: request.encode(
        version=VERSION
    )
