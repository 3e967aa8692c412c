"""kafka-features.sh: the feature levels of a cluster, described and changed."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.cli.kafka.errors import java_text
from penstock.cli.kafka.options import Refused, argument_parser
from penstock.cli.kafka.session import with_admin
from penstock.cli.kafka.storage import METADATA_VERSION
from penstock.errors import KafkaError

if TYPE_CHECKING:
    from penstock.client.client import Client
    from penstock.protocol.messages.update_features import UpdateFeaturesRequest

_METADATA = "metadata.version"
# The level of the only metadata.version that there is here, and its name.
_NAMED = {30: METADATA_VERSION}
_UPGRADE, _SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE = 1, 2, 3


def main() -> None:
    sys.exit(run(sys.argv[1:]))


def run(words: Sequence[str]) -> int:
    asked = _parser().parse_args(words)
    if not asked.bootstrap_server:
        print("You must specify --bootstrap-server.", file=sys.stderr)
        return 1
    try:
        with_admin(asked.bootstrap_server, asked.command_config, lambda client: _act(client, asked))
    except (Refused, KafkaError) as error:
        print(java_text(error) if isinstance(error, KafkaError) else error, file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argument_parser("kafka-features", "This tool manages feature flags in Kafka.")
    parser.add_argument("--bootstrap-server", help="The brokers to begin with.")
    parser.add_argument("--command-config", help="A file with settings of the client.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("describe", help="Describe the current active feature flags.")
    for name in ("upgrade", "downgrade"):
        change = commands.add_parser(name, help=f"{name.capitalize()} one or more feature flags.")
        change.add_argument("--feature", action="append", required=True, help="feature=level")
        change.add_argument("--dry-run", action="store_true", help="Only validate the change.")
        if name == "downgrade":
            change.add_argument("--unsafe", action="store_true", help="Allow a loss of metadata.")
    disable = commands.add_parser(
        "disable", help="Disable one or more feature flags, which is the level 0."
    )
    disable.add_argument("--feature", action="append", required=True, help="The feature's name.")
    disable.add_argument("--dry-run", action="store_true", help="Only validate the change.")
    disable.add_argument("--unsafe", action="store_true", help="Allow a loss of metadata.")
    return parser


async def _act(client: Client, asked: argparse.Namespace) -> None:
    if asked.command == "describe":
        await _describe(client)
    else:
        await _update(client, asked)


async def _describe(client: Client) -> None:
    from penstock.client.connection import API_VERSIONS_REQUEST
    from penstock.protocol.messages.api_versions import ApiVersionsResponse

    answer = await client.cluster.call(API_VERSIONS_REQUEST, ApiVersionsResponse)
    finalized = {one.name: one.max_version_level for one in answer.finalized_features}
    for one in sorted(answer.supported_features, key=lambda each: each.name):
        levels = (one.min_version, one.max_version, finalized.get(one.name, 0))
        low, high, level = (
            _NAMED.get(number, str(number)) if one.name == _METADATA else str(number)
            for number in levels
        )
        columns = [
            f"Feature: {one.name}",
            f"SupportedMinVersion: {low}",
            f"SupportedMaxVersion: {high}",
        ]
        print(
            "\t".join(
                [
                    *columns,
                    f"FinalizedVersionLevel: {level}",
                    f"Epoch: {answer.finalized_features_epoch}",
                ]
            )
        )


async def _update(client: Client, asked: argparse.Namespace) -> None:
    from penstock.client.errors import check
    from penstock.protocol.messages.update_features import (
        UpdateFeaturesRequest,
        UpdateFeaturesResponse,
    )

    updates = tuple(_change(text, asked) for text in asked.feature)
    request = UpdateFeaturesRequest(feature_updates=updates, validate_only=asked.dry_run)

    async def attempt() -> None:
        answer = await client.cluster.call(request, UpdateFeaturesResponse)
        check(answer.error_code, answer.error_message or "the features were not changed")
        for one in answer.results:
            check(one.error_code, one.error_message or f"{one.feature} was not changed")

    await client.cluster.retry(attempt)
    done = {"upgrade": "upgraded to", "downgrade": "downgraded to"}.get(asked.command)
    for one in updates:
        words = f"{done} {one.max_version_level}" if done else "disabled"
        print(f"{one.feature} {'can be' if asked.dry_run else 'was'} {words}.")


def _change(text: str, asked: argparse.Namespace) -> UpdateFeaturesRequest.FeatureUpdate:
    from penstock.protocol.messages.update_features import UpdateFeaturesRequest

    name, equals, level = text.partition("=")
    if asked.command != "disable" and (not equals or not level.strip().isdecimal()):
        raise Refused(
            f"Can't parse feature=level string {text}: equals sign not found."
            if not equals
            else f"Can't parse level {level}"
        )
    lower = _UNSAFE_DOWNGRADE if getattr(asked, "unsafe", False) else _SAFE_DOWNGRADE
    number = 0 if asked.command == "disable" else int(level)
    return UpdateFeaturesRequest.FeatureUpdate(
        feature=name.strip(),
        max_version_level=number,
        upgrade_type=_UPGRADE if asked.command == "upgrade" else lower,
    )
