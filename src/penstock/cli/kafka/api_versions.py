"""kafka-broker-api-versions.sh: which versions of which APIs each broker serves."""

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
        "REQUIRED: The brokers to begin with.", "String: server(s) to use for bootstrapping"
    ),
    "command-config": Option(
        "A file with settings of the client.", "String: command config property file"
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
    for broker in sorted((await client.admin.describe_cluster()).brokers, key=lambda one: one.id):
        offered = (await client.cluster.broker(broker.id)).broker_versions
        lines = [f"\t{line}" for line in _lines(offered)]
        fenced = "true" if broker.fenced else "false"
        print(
            f"{broker.host}:{broker.port} (id: {broker.id} rack: {broker.rack or 'null'} "
            f"isFenced: {fenced}) -> ("
        )
        print(",\n".join(lines))
        print(")")


def _lines(offered: Mapping[int, Versions]) -> list[str]:
    from penstock.protocol.apis import APIS

    names = {api.key: api for api in APIS}
    lines = []
    for key, versions in sorted(offered.items()):
        span = (
            f"{versions.first} to {versions.last}"
            if versions.last > versions.first
            else f"{versions.first}"
        )
        if key not in names:
            lines.append(f"UNKNOWN({key}): {span}")
            continue
        usable = min(versions.last, names[key].versions.last - names[key].newest_unstable)
        use = (
            str(usable)
            if usable >= max(versions.first, names[key].versions.first)
            else "UNSUPPORTED"
        )
        lines.append(f"{names[key].name}({key}): {span} [usable: {use}]")
    missing = [
        f"{api.name}({api.key}): UNSUPPORTED"
        for api in APIS
        if api.key not in offered and "broker" in api.listeners
    ]
    return lines + missing
