"""kafka-broker-api-versions.sh: the API versions that each broker supports."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from penstock.cli.kafka.errors import java_text
from penstock.cli.kafka.options import Option, Options, Refused
from penstock.cli.kafka.session import with_admin
from penstock.errors import KafkaError

if TYPE_CHECKING:
    from penstock.client.client import Client
    from penstock.protocol.schema import Versions

_PURPOSE = "This tool helps to retrieve broker version information."
_OPTIONS = {
    "bootstrap-server": Option(
        "REQUIRED: Bootstrap brokers.", "String: server(s) to use for bootstrapping"
    ),
    "command-config": Option(
        "A properties file for the client.", "String: command config property file"
    ),
}


def main() -> None:
    sys.exit(run(sys.argv[1:]))


def run(words: Sequence[str]) -> int:
    try:
        options = Options(_OPTIONS, words, _PURPOSE)
        options.require("bootstrap-server")
        with_admin(options.value("bootstrap-server") or "", options.value("command-config"), _show)
    except (Refused, KafkaError) as error:
        print(java_text(error) if isinstance(error, KafkaError) else error, file=sys.stderr)
        return 1
    return 0


async def _show(client: Client) -> None:
    brokers = (await client.admin.describe_cluster()).brokers
    for broker in sorted(brokers, key=lambda broker: broker.id):
        supported = (await client.cluster.broker(broker.id)).broker_versions
        lines = [f"\t{line}" for line in _lines(supported)]
        fenced = "true" if broker.fenced else "false"
        print(
            f"{broker.host}:{broker.port} (id: {broker.id} rack: {broker.rack or 'null'} "
            f"isFenced: {fenced}) -> ("
        )
        print(",\n".join(lines))
        print(")")


def _lines(supported: Mapping[int, Versions]) -> list[str]:
    from penstock.protocol.apis import APIS

    apis = {api.key: api for api in APIS}
    lines = []
    for key, versions in sorted(supported.items()):
        version_range = (
            f"{versions.first} to {versions.last}"
            if versions.last > versions.first
            else f"{versions.first}"
        )
        if key not in apis:
            lines.append(f"UNKNOWN({key}): {version_range}")
            continue
        api = apis[key]
        latest = min(versions.last, api.versions.last - api.newest_unstable)
        usable = str(latest) if latest >= max(versions.first, api.versions.first) else "UNSUPPORTED"
        lines.append(f"{api.name}({key}): {version_range} [usable: {usable}]")
    missing = [
        f"{api.name}({api.key}): UNSUPPORTED"
        for api in APIS
        if api.key not in supported and "broker" in api.listeners
    ]
    return lines + missing
