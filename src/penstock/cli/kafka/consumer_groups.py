"""kafka-consumer-groups.sh: list, describe and delete groups; reset and delete their offsets."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.cli.kafka.errors import java_text
from penstock.cli.kafka.options import Option, Options, Refused
from penstock.cli.kafka.session import with_admin
from penstock.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from penstock.client.client import Client

_PURPOSE = (
    "This tool helps to list all consumer groups, describe a consumer group, delete "
    "consumer group info, or reset consumer group offsets."
)
_ACTIONS = ("list", "describe", "delete", "reset-offsets", "delete-offsets", "validate-regex")
_OPTIONS = {
    "bootstrap-server": Option("REQUIRED: Bootstrap brokers.", "String: server to connect to"),
    "command-config": Option(
        "A properties file for the client.", "String: command config property file"
    ),
    "timeout": Option("The request timeout.", "Long: timeout (ms)"),
    "list": Option("List all groups."),
    "describe": Option("Describe groups: their offsets and lag, --members or --state."),
    "delete": Option("Delete groups."),
    "reset-offsets": Option(
        "Set the offsets of a group without members. --dry-run (the default), --execute or "
        "--export."
    ),
    "delete-offsets": Option(
        "Delete the offsets of a group for topics that it does not subscribe to."
    ),
    "validate-regex": Option(
        "Check that a regular expression is valid RE2, for the consumer protocol.",
        "String: regex",
    ),
    "group": Option("A group; may be repeated.", "String: consumer group"),
    "all-groups": Option("All groups."),
    "topic": Option(
        "A topic, or with --reset-offsets topic:0,1; may be repeated.", "String: topic"
    ),
    "all-topics": Option("With --reset-offsets: all topics of the group."),
    "members": Option("With --describe: show members."),
    "offsets": Option("With --describe: show offsets; the default."),
    "state": Option(
        "With --describe or --list: show states; with --list, filter by them.",
        "String",
        optional=True,
    ),
    "type": Option("With --list: show types, and filter by them.", "String", optional=True),
    "verbose": Option("With --describe: show more columns."),
    "dry-run": Option("Show the new offsets; the default."),
    "execute": Option("Commit the new offsets."),
    "export": Option("Print the new offsets as CSV."),
    "to-offset": Option("Reset to an offset.", "Long: offset"),
    "from-file": Option("Reset to the offsets of a CSV file.", "String: path to CSV file"),
    "to-datetime": Option("Reset to a time: YYYY-MM-DDTHH:mm:SS.sss", "String: datetime"),
    "by-duration": Option("Reset to this long ago: PnDTnHnMnS", "String: duration"),
    "to-earliest": Option("Reset to the first record."),
    "to-latest": Option("Reset to the end."),
    "to-current": Option("Reset to the current offsets."),
    "shift-by": Option(
        "Shift by this many records; negative shifts back.", "Long: number-of-offsets"
    ),
}


def main() -> None:
    sys.exit(run(sys.argv[1:]))


def run(words: Sequence[str]) -> int:
    """Run the tool. Like Kafka's, it exits with 0 after most errors."""
    try:
        options = Options(_OPTIONS, words, _PURPOSE)
        if sum(options.has(action) for action in _ACTIONS) != 1:
            options.usage(
                "Command must include exactly one action: "
                f"{', '.join('--' + action for action in _ACTIONS)}"
            )
        regex = options.value("validate-regex")
        if regex is not None:
            print(_validate_regex(regex))
            return 0
        _check(options)
        with_admin(
            options.value("bootstrap-server") or "",
            options.value("command-config"),
            lambda client: _act(client, options),
        )
    except Refused as refused:
        print(refused, file=sys.stderr)
        return 1
    except KafkaError as error:
        print(f"\nError: Executing consumer group command failed due to {java_text(error)}")
    return 0


def _check(options: Options) -> None:
    options.require("bootstrap-server")
    for action in ("describe", "delete", "reset-offsets"):
        if options.has(action) and not options.has("group", "all-groups"):
            options.usage(f"Option [{action}] takes one of these options: [group], [all-groups]")
    if (
        options.has("describe")
        and sum(options.has(option) for option in ("members", "offsets", "state")) > 1
    ):
        options.usage(
            "Option [describe] takes at most one of these options: [members], [offsets], [state]"
        )
    if options.has("delete") and options.has("topic"):
        options.usage(
            "The consumer does not support topic-specific offset deletion from a consumer group."
        )
    if options.has("delete-offsets") and not (options.has("group") and options.has("topic")):
        options.usage("Option [delete-offsets] takes the following options: [group], [topic]")
    if options.has("reset-offsets"):
        if options.has("dry-run") and options.has("execute"):
            options.usage("Option [reset-offsets] only accepts one of [execute] and [dry-run]")
        if not options.has("topic", "all-topics", "from-file"):
            options.usage(
                "Option [reset-offsets] takes one of these options: [topic], [all-topics], unless "
                "[from-file] is given"
            )


async def _act(client: Client, options: Options) -> None:
    from penstock.cli.kafka import group_resets, group_tables

    if options.has("list"):
        for line in group_tables.listing(await client.groups.list_groups(), options):
            print(line)
    elif options.has("describe"):
        for group in await _groups(client, options):
            await group_tables.describe(client, group, options)
    elif options.has("delete"):
        await _delete(client, await _groups(client, options))
    elif options.has("reset-offsets"):
        await group_resets.reset(client, await _groups(client, options), options)
    else:
        await _delete_offsets(client, options)


async def _groups(client: Client, options: Options) -> list[str]:
    if options.has("all-groups"):
        return [group.id for group in await client.groups.list_groups()]
    return sorted(dict.fromkeys(options.values("group")))


async def _delete(client: Client, groups: list[str]) -> None:
    failures: dict[str, KafkaError] = {}
    for group in groups:
        try:
            await client.groups.delete_group(group)
        except KafkaError as error:
            failures[group] = error
    deleted = [group for group in groups if group not in failures]
    if not failures:
        print(
            f"Deletion of requested consumer groups ({', '.join(map(repr, groups))}) "
            "was successful."
        )
        return
    print("\nError: Deletion of some consumer groups failed:")
    for group, failure in failures.items():
        print(f"* Group '{group}' could not be deleted due to: {java_text(failure)}")
    if deleted:
        print(f"\nThese consumer groups were deleted successfully: {', '.join(map(repr, deleted))}")


async def _delete_offsets(client: Client, options: Options) -> None:
    from penstock.cli.groups import parse_partitions

    group = options.value("group") or ""
    partitions = await parse_partitions(client, options.values("topic"))
    try:
        results = await client.groups.delete_offsets(group, partitions)
        print(
            f"Request succeed for deleting offsets from group {group}."
            if not any(results.values())
            else "",
            end="",
        )
    except KafkaError as error:
        if error.code in (
            ErrorCode.GROUP_ID_NOT_FOUND,
            ErrorCode.INVALID_GROUP_ID,
            ErrorCode.NON_EMPTY_GROUP,
        ):
            print(f"\nError: Deletion of offsets failed due to: {java_text(error)}")
            return
        raise
    if any(results.values()):
        print("\nError: Encountered some partition-level error, see the follow-up details.", end="")
    print(f"\n{'TOPIC':<30} {'PARTITION':<15} {'STATUS':<15}")
    for partition, failure in sorted(results.items()):
        status = "Successful" if failure is None else f"Error: {java_text(failure)}"
        print(f"{partition.topic:<30} {partition.partition:<15} {status:<15}")


def _validate_regex(regex: str) -> str:
    from penstock.coordinator.consumer.regex import compiled

    try:
        compiled(regex)
    except KafkaError as error:
        return f"The regular expression `{regex}` is invalid: {error.message}."
    return f"The regular expression `{regex}` is valid."
