"""kafka-features.sh: describe and change the feature levels of a cluster."""

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
# The only metadata.version that Penstock supports: its level and name.
_METADATA_VERSIONS = {30: METADATA_VERSION}
_UPGRADE, _SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE = 1, 2, 3


def main() -> None:
    sys.exit(run(sys.argv[1:]))


def run(words: Sequence[str]) -> int:
    arguments = _parser().parse_args(words)
    controllers = arguments.bootstrap_controller
    try:
        with_admin(
            controllers or arguments.bootstrap_server,
            arguments.command_config,
            lambda client: _act(client, arguments),
            controllers=controllers is not None,
        )
    except (Refused, KafkaError) as error:
        print(java_text(error) if isinstance(error, KafkaError) else error, file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argument_parser("kafka-features", "This tool manages feature flags in Kafka.")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--bootstrap-server", help="Bootstrap brokers.")
    where.add_argument("--bootstrap-controller", help="Bootstrap controllers.")
    parser.add_argument("--command-config", help="A properties file for the client.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("describe", help="Describe the current active feature flags.")
    for name in ("upgrade", "downgrade"):
        change = commands.add_parser(name, help=f"{name.capitalize()} one or more feature flags.")
        change.add_argument("--feature", action="append", required=True, help="feature=level")
        change.add_argument("--dry-run", action="store_true", help="Only validate the change.")
        if name == "downgrade":
            change.add_argument("--unsafe", action="store_true", help="Allow a loss of metadata.")
    disable = commands.add_parser(
        "disable", help="Disable one or more feature flags by setting their level to 0."
    )
    disable.add_argument("--feature", action="append", required=True, help="The feature's name.")
    disable.add_argument("--dry-run", action="store_true", help="Only validate the change.")
    disable.add_argument("--unsafe", action="store_true", help="Allow a loss of metadata.")
    return parser


async def _act(client: Client, arguments: argparse.Namespace) -> None:
    if arguments.command == "describe":
        await _describe(client)
    else:
        await _update(client, arguments)


async def _describe(client: Client) -> None:
    from penstock.client.connection import API_VERSIONS_REQUEST
    from penstock.protocol.messages.api_versions import ApiVersionsResponse

    response = await client.cluster.call(API_VERSIONS_REQUEST, ApiVersionsResponse)
    finalized = {feature.name: feature.max_version_level for feature in response.finalized_features}
    for feature in sorted(response.supported_features, key=lambda feature: feature.name):
        levels = (feature.min_version, feature.max_version, finalized.get(feature.name, 0))
        low, high, level = (
            _METADATA_VERSIONS.get(number, str(number))
            if feature.name == _METADATA
            else str(number)
            for number in levels
        )
        columns = [
            f"Feature: {feature.name}",
            f"SupportedMinVersion: {low}",
            f"SupportedMaxVersion: {high}",
        ]
        print(
            "\t".join(
                [
                    *columns,
                    f"FinalizedVersionLevel: {level}",
                    f"Epoch: {response.finalized_features_epoch}",
                ]
            )
        )


async def _update(client: Client, arguments: argparse.Namespace) -> None:
    from penstock.client.errors import check
    from penstock.protocol.messages.update_features import (
        UpdateFeaturesRequest,
        UpdateFeaturesResponse,
    )

    updates = tuple(_parse_update(text, arguments) for text in arguments.feature)
    request = UpdateFeaturesRequest(feature_updates=updates, validate_only=arguments.dry_run)

    async def attempt() -> None:
        response = await client.cluster.call(request, UpdateFeaturesResponse)
        check(response.error_code, response.error_message or "the features were not changed")
        for result in response.results:
            check(result.error_code, result.error_message or f"{result.feature} was not changed")

    await client.cluster.retry(attempt)
    done = {"upgrade": "upgraded to", "downgrade": "downgraded to"}.get(arguments.command)
    for update in updates:
        words = f"{done} {update.max_version_level}" if done else "disabled"
        print(f"{update.feature} {'can be' if arguments.dry_run else 'was'} {words}.")


def _parse_update(text: str, arguments: argparse.Namespace) -> UpdateFeaturesRequest.FeatureUpdate:
    from penstock.protocol.messages.update_features import UpdateFeaturesRequest

    name, equals, level = text.partition("=")
    if arguments.command != "disable" and (not equals or not level.strip().isdecimal()):
        raise Refused(
            f"Can't parse feature=level string {text}: equals sign not found."
            if not equals
            else f"Can't parse level {level}"
        )
    lower = _UNSAFE_DOWNGRADE if getattr(arguments, "unsafe", False) else _SAFE_DOWNGRADE
    number = 0 if arguments.command == "disable" else int(level)
    return UpdateFeaturesRequest.FeatureUpdate(
        feature=name.strip(),
        max_version_level=number,
        upgrade_type=_UPGRADE if arguments.command == "upgrade" else lower,
    )
