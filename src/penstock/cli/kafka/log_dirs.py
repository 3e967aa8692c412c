"""kafka-log-dirs.sh: print the usage of the brokers' log directories as JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from penstock.cli.kafka.errors import java_name, java_text
from penstock.cli.kafka.options import Option, Options, Refused
from penstock.cli.kafka.session import with_admin
from penstock.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from penstock.client.client import Client
    from penstock.protocol.messages.describe_log_dirs import DescribeLogDirsResponse

_PURPOSE = "This tool helps to query log directory usage on the specified brokers."
_OPTIONS = {
    "bootstrap-server": Option(
        "REQUIRED: Bootstrap brokers.", "String: The server(s) to use for bootstrapping"
    ),
    "command-config": Option(
        "A properties file for the client.", "String: Admin client property file"
    ),
    "describe": Option("Describe the log directories."),
    "topic-list": Option("Only these topics.", "String: Topic list"),
    "broker-list": Option("Only these brokers.", "String: Broker list"),
}


def main() -> None:
    sys.exit(run(sys.argv[1:]))


def run(words: Sequence[str]) -> int:
    try:
        options = Options(_OPTIONS, words, _PURPOSE)
        options.require("bootstrap-server", "describe")
        with_admin(
            options.value("bootstrap-server") or "",
            options.value("command-config"),
            lambda client: _describe(client, options),
        )
    except (Refused, KafkaError) as error:
        print(java_text(error) if isinstance(error, KafkaError) else error, file=sys.stderr)
        return 1
    return 0


async def _describe(client: Client, options: Options) -> None:
    topics = [name for name in (options.value("topic-list") or "").split(",") if name]
    known = sorted(broker.id for broker in (await client.admin.describe_cluster()).brokers)
    listed = (options.value("broker-list") or "").split(",")
    brokers = sorted({_id(text) for text in listed if text}) or known
    missing = [broker for broker in brokers if broker not in known]
    if missing:
        print(
            f"ERROR: The given brokers do not exist from --broker-list: {_joined(missing)}. "
            f"Current existent brokers: {_joined(known)}",
            file=sys.stderr,
        )
        return
    print("Querying brokers for log directories information")
    described = [
        {
            "broker": broker,
            "logDirs": [
                _log_dir(log_dir, topics) for log_dir in await _describe_broker(client, broker)
            ],
        }
        for broker in brokers
    ]
    print(f"Received log directory information from brokers {_joined(brokers)}")
    print(json.dumps({"brokers": described, "version": 1}, separators=(",", ":")))


async def _describe_broker(client: Client, broker: int) -> Sequence[DescribeLogDirsResponse.Result]:
    from penstock.client.errors import check
    from penstock.protocol.messages.describe_log_dirs import (
        DescribeLogDirsRequest,
        DescribeLogDirsResponse,
    )

    response = await (await client.cluster.broker(broker)).call(
        DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse
    )
    check(response.error_code, f"DescribeLogDirs failed on broker {broker}")
    return response.results


def _log_dir(log_dir: DescribeLogDirsResponse.Result, topics: list[str]) -> dict[str, Any]:
    partitions = [
        {
            "partition": f"{topic.name}-{partition.partition_index}",
            "size": partition.partition_size,
            "offsetLag": partition.offset_lag,
            "isFuture": partition.is_future_key,
        }
        for topic in log_dir.topics
        if not topics or topic.name in topics
        for partition in topic.partitions
    ]
    return {
        "partitions": partitions,
        "error": java_name(ErrorCode(log_dir.error_code)) if log_dir.error_code else None,
        "logDir": log_dir.log_dir,
        "isCordoned": log_dir.is_cordoned,
    }


def _id(text: str) -> int:
    if not text.strip().isdecimal():
        raise Refused(f"Cannot parse argument '{text}' of option broker-list")
    return int(text)


def _joined(brokers: Sequence[int]) -> str:
    return ",".join(map(str, brokers))
