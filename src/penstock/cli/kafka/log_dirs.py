"""kafka-log-dirs.sh: what the log directories of brokers hold, as JSON."""

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
        "REQUIRED: The brokers to begin with.", "String: The server(s) to use for bootstrapping"
    ),
    "command-config": Option(
        "A file with settings of the client.", "String: Admin client property file"
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
    known = sorted(one.id for one in (await client.admin.describe_cluster()).brokers)
    asked = (
        sorted({_id(text) for text in (options.value("broker-list") or "").split(",") if text})
        or known
    )
    missing = [broker for broker in asked if broker not in known]
    if missing:
        print(
            (
                f"ERROR: The given brokers do not exist from --broker-list: {_joined(missing)}. "
                f"Current existent brokers: {_joined(known)}"
            ),
            file=sys.stderr,
        )
        return
    print("Querying brokers for log directories information")
    brokers = [
        {
            "broker": broker,
            "logDirs": [_directory(one, topics) for one in await _ask(client, broker)],
        }
        for broker in asked
    ]
    print(f"Received log directory information from brokers {_joined(asked)}")
    print(json.dumps({"brokers": brokers, "version": 1}, separators=(",", ":")))


async def _ask(client: Client, broker: int) -> Sequence[DescribeLogDirsResponse.Result]:
    from penstock.client.errors import check
    from penstock.protocol.messages.describe_log_dirs import (
        DescribeLogDirsRequest,
        DescribeLogDirsResponse,
    )

    answer = await (await client.cluster.broker(broker)).call(
        DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse
    )
    check(answer.error_code, f"broker {broker} does not describe its log directories")
    return answer.results


def _directory(one: DescribeLogDirsResponse.Result, topics: list[str]) -> dict[str, Any]:
    partitions = [
        {
            "partition": f"{topic.name}-{each.partition_index}",
            "size": each.partition_size,
            "offsetLag": each.offset_lag,
        }
        | {"isFuture": each.is_future_key}
        for topic in one.topics
        if not topics or topic.name in topics
        for each in topic.partitions
    ]
    error = java_name(ErrorCode(one.error_code)) if one.error_code else None
    return {
        "partitions": partitions,
        "error": error,
        "logDir": one.log_dir,
        "isCordoned": one.is_cordoned,
    }


def _id(text: str) -> int:
    if not text.strip().isdecimal():
        raise Refused(f"Cannot parse argument '{text}' of option broker-list")
    return int(text)


def _joined(brokers: Sequence[int]) -> str:
    return ",".join(map(str, brokers))
