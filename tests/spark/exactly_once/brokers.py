"""Creates sinks on a broker, and runs `penstock transactions`."""

from __future__ import annotations

from itertools import count

from typer.testing import CliRunner

from penstock.cli import build
from penstock.cli.kafka import features
from penstock.spark.shared_client import close_shared_clients
from penstock.spark.sink.decision import PreparedTransaction
from tests.spark.exactly_once.sink import Sink

_numbers = count()


def set_transaction_version(servers: str, version: int) -> None:
    """Change the version if it is another one. Clients learn it when they connect."""
    words = (
        "upgrade" if version == 2 else "downgrade",
        "--feature",
        f"transaction.version={version}",
    )
    assert features.run(["--bootstrap-server", servers, *words]) == 0
    close_shared_clients()


def new_sink(servers: str, **options: str) -> Sink:
    number = next(_numbers)
    sink = Sink(servers, f"sink-{number}", f"topic-{number}", **options)
    sink.create_topic()
    return sink


def timeout_ms(sink: Sink, transaction: PreparedTransaction | None) -> int:
    assert transaction is not None
    name = transaction.transactional_id
    described = sink.call(lambda client: client.admin.describe_transaction(name))
    return described.timeout_ms


def run(*words: str, code: int = 0) -> str:
    result = CliRunner().invoke(build("transactions"), list(words))
    assert result.exit_code == code, result.output
    return result.output.strip()
