"""Compare one broker with Apache Kafka 4 over TLS in one run: the same client, alternating rounds.

PENSTOCK_BENCH_QUICK=1 runs everything once with little data and saves no results, to check the
benchmark itself.
"""

from __future__ import annotations

import os
import socket
import ssl
import tempfile
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import confluent_kafka

from bench.load import MB, Case, Latency, Load, Topic
from bench.peer import KafkaPeer, Peer, resident_mb, running
from bench.results import Section
from bench.side_by_side import COLUMNS, OURS, THEIRS, in_turn, row
from tests.e2e.penstock_process import PenstockProcess
from tests.tls.certificates import Authority

QUICK = os.environ.get("PENSTOCK_BENCH_QUICK") == "1"
ROUNDS = 1 if QUICK else 5
PRODUCED = (20 if QUICK else 200) * MB
LATENCY_S = 3 if QUICK else 10
TARGET = "1"
VERSION, SUITE = "TLSv1.3", "TLS_AES_256_GCM_SHA384"
SHAPES = [(size, partitions) for size in (100, 1_000) for partitions in (1, 6)]
INTRO = (
    "Penstock (`penstock up`) and Apache Kafka 4.3.0 (one KRaft node, 1 GB of heap, internal "
    "topics with one partition) use the same key (P-256) and certificate in PEM, "
    f"{VERSION} and {SUITE}; a connection verifies this before the first round. They run at the "
    "same time and are measured "
    f"alternately; medians of {ROUNDS} rounds with their range, after one warm-up round. "
    f"The client is librdkafka {confluent_kafka.libversion()[0]}, from confluent-kafka's wheel, "
    "driven by a C program; it encrypts and decrypts on the same cores as the brokers."
)


class TlsPeers:
    """Both brokers with the same certificate, and the settings of their clients."""

    def __init__(self, directory: Path) -> None:
        authority = Authority()
        self.ca = authority.write_pem(directory / "ca.pem")
        node = authority.sign("node", ["localhost", "127.0.0.1"]).write_pem(directory / "node.pem")
        settings = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": node,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.ca,
            "ssl.enabled.protocols": VERSION,
            "ssl.protocol": VERSION,
        }
        encrypted = {
            **settings,
            "listener.security.protocol.map": "PLAINTEXT:SSL,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
        }
        self.peers: dict[str, Peer] = {
            OURS: PenstockProcess(
                directory / "penstock-tls",
                *(f"{name}={value}" for name, value in encrypted.items()),
            ),
            THEIRS: KafkaPeer(
                directory / "kafka-tls", {**encrypted, "ssl.cipher.suites": SUITE}, self.client
            ),
        }

    @property
    def client(self) -> dict[str, str]:
        return {"security.protocol": "SSL", "ssl.ca.location": self.ca}

    @property
    def settings(self) -> tuple[str, ...]:
        return tuple(f"{name}={value}" for name, value in self.client.items())

    def topic(self, peer: Peer, partitions: int) -> Topic:
        return Topic(peer.bootstrap, partitions, client=self.client)

    def check(self) -> None:
        """Raise SystemExit if a broker negotiates another version or suite."""
        context = ssl.create_default_context(cafile=self.ca)
        for name, peer in self.peers.items():
            host, _, port = peer.bootstrap.rpartition(":")
            with (
                socket.create_connection((host, int(port))) as plain,
                context.wrap_socket(plain, server_hostname=host) as end,
            ):
                suite, version, _bits = end.cipher() or ("", "", 0)
                if (suite, version) != (SUITE, VERSION):
                    raise SystemExit(f"{name} negotiates {suite} of {version}")


def main() -> None:
    section = Section("tls", "make bench ONLY=tls", INTRO)
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as name:
        directory = Path(name)
        load = Load(directory)
        section.table(*COLUMNS)
        tls = TlsPeers(directory)
        with running(tls.peers):
            tls.check()
            _produce(section, tls, load)
            _consume(section, tls, load)
            _latency(section, tls, load)
            memory = {name: [resident_mb(peer.pid)] for name, peer in tls.peers.items()}
            row(section, "resident memory after all of this, MB", "", memory)
    if QUICK:
        print("quick run: no results saved")
    else:
        section.save()


def _produce(section: Section, tls: TlsPeers, load: Load) -> None:
    for size, partitions in SHAPES:
        case = Case(size, partitions, PRODUCED)
        megabytes, thousands = in_turn(
            tls.peers, ROUNDS, 1, partial(_produce_once, tls=tls, case=case, load=load)
        )
        row(section, f"produce over TLS, {case.name}, MB/s", TARGET, megabytes)
        row(section, "the same, thousand records/s", TARGET, thousands)


def _produce_once(peer: Peer, *, tls: TlsPeers, case: Case, load: Load) -> list[float]:
    with tls.topic(peer, case.partitions) as topic:
        return case.rates(load.produce(peer.bootstrap, topic, case.size, case.count, tls.settings))


def _consume(section: Section, tls: TlsPeers, load: Load) -> None:
    peers = tls.peers
    for size, partitions in SHAPES:
        case = Case(size, partitions, PRODUCED)
        with ExitStack() as stack:
            topics = {
                peer.bootstrap: stack.enter_context(tls.topic(peer, partitions))
                for peer in peers.values()
            }
            for peer in peers.values():
                topic = topics[peer.bootstrap]
                load.produce(peer.bootstrap, topic, size, case.count, tls.settings)
            measure = partial(_consume_once, topics=topics, tls=tls, case=case, load=load)
            megabytes, thousands = in_turn(peers, ROUNDS, 1, measure)
        row(section, f"consume over TLS, {case.name}, MB/s", TARGET, megabytes)
        row(section, "the same, thousand records/s", TARGET, thousands)


def _consume_once(
    peer: Peer, *, topics: dict[str, str], tls: TlsPeers, case: Case, load: Load
) -> list[float]:
    topic = topics[peer.bootstrap]
    seconds = load.consume(peer.bootstrap, topic, case.partitions, case.count, tls.settings)
    return case.rates(seconds)


def _latency(section: Section, tls: TlsPeers, load: Load) -> None:
    rate = 1_000
    measure = partial(_latency_once, tls=tls, rate=rate, load=load)
    percentiles = in_turn(tls.peers, ROUNDS, 1, measure)
    for name, figures in zip(("p50", "p99", "p99.9"), percentiles, strict=False):
        label = f"end to end over TLS, {rate:,} records/s, linger 0, {name}, ms"
        row(section, label, TARGET, figures, 2)


def _latency_once(peer: Peer, *, tls: TlsPeers, rate: int, load: Load) -> Latency:
    with tls.topic(peer, 1) as topic:
        return load.latency(peer.bootstrap, topic, 1, rate, LATENCY_S, tls.settings)
