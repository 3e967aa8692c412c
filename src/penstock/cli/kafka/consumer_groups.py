"""kafka-consumer-groups.sh: lists and describes groups, resets and deletes their offsets, deletes
groups."""

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
    "bootstrap-server": Option(
        "REQUIRED: The brokers to begin with.", "String: server to connect to"
    ),
    "command-config": Option(
        "A file with settings of the client.", "String: command config property file"
    ),
    "timeout": Option("How long an answer may take.", "Long: timeout (ms)"),
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
        "Whether the new protocol takes a regular expression (RE2).", "String: regex"
    ),
    "group": Option("A group; may be repeated.", "String: consumer group"),
    "all-groups": Option("All groups."),
    "topic": Option(
        "A topic, or with --reset-offsets topic:0,1; may be repeated.", "String: topic"
    ),
    "all-topics": Option("With --reset-offsets: all topics of the group."),
    "members": Option("With --describe: members."),
    "offsets": Option("With --describe: offsets, which is the default."),
    "state": Option(
        "With --describe or --list: states; with --list, only these.", "String", optional=True
    ),
    "type": Option("With --list: types; only these.", "String", optional=True),
    "verbose": Option("With --describe: more of it."),
    "dry-run": Option("Only show what would be done."),
    "execute": Option("Do it."),
    "export": Option("Show it as CSV."),
    "to-offset": Option("To an offset.", "Long: offset"),
    "from-file": Option("To what a CSV file says.", "String: path to CSV file"),
    "to-datetime": Option("To a time: YYYY-MM-DDTHH:mm:SS.sss", "String: datetime"),
    "by-duration": Option("To so long ago: PnDTnHnMnS", "String: duration"),
    "to-earliest": Option("To the first record."),
    "to-latest": Option("To the end."),
    "to-current": Option("To where they are."),
    "shift-by": Option("By so many records, back where negative.", "Long: number-of-offsets"),
}


def main() -> None:
    sys.exit(run(sys.argv[1:]))


def run(words: Sequence[str]) -> int:
    """Kafka's tool ends with 0 after most errors, and so does this one."""
    try:
        options = Options(_OPTIONS, words, _PURPOSE)
        if sum(options.has(action) for action in _ACTIONS) != 1:
            options.usage(
                "Command must include exactly one action: "
                f"{', '.join('--' + action for action in _ACTIONS)}"
            )
        regex = options.value("validate-regex")
        if regex is not None:
            print(_validated(regex))
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
        and sum(options.has(one) for one in ("members", "offsets", "state")) > 1
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
        listed = await client.groups.list_groups()
        for line in group_tables.listing(listed, options):
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
        return [one.id for one in await client.groups.list_groups()]
    return sorted(dict.fromkeys(options.values("group")))


async def _delete(client: Client, groups: list[str]) -> None:
    failures: dict[str, KafkaError] = {}
    for group in groups:
        try:
            await client.groups.delete_group(group)
        except KafkaError as error:
            failures[group] = error
    done = [group for group in groups if group not in failures]
    if not failures:
        print(
            f"Deletion of requested consumer groups ({', '.join(repr(one) for one in groups)}) "
            "was successful."
        )
        return
    print("\nError: Deletion of some consumer groups failed:")
    for group, failure in failures.items():
        print(f"* Group '{group}' could not be deleted due to: {java_text(failure)}")
    if done:
        print(
            "\nThese consumer groups were deleted successfully: "
            f"{', '.join(repr(one) for one in done)}"
        )


async def _delete_offsets(client: Client, options: Options) -> None:
    from penstock.cli.groups import chosen_partitions

    group = options.value("group") or ""
    partitions = await chosen_partitions(client, options.values("topic"))
    try:
        outcomes = await client.groups.delete_offsets(group, partitions)
        print(
            f"Request succeed for deleting offsets from group {group}."
            if not any(outcomes.values())
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
    if any(outcomes.values()):
        print("\nError: Encountered some partition-level error, see the follow-up details.", end="")
    print(f"\n{'TOPIC':<30} {'PARTITION':<15} {'STATUS':<15}")
    for one, failure in sorted(outcomes.items()):
        print(
            f"{one.topic:<30} {one.partition:<15} "
            f"{'Successful' if failure is None else f'Error: {java_text(failure)}':<15}"
        )


def _validated(regex: str) -> str:
    from penstock.coordinator.consumer.regex import compiled

    try:
        compiled(regex)
    except KafkaError as error:
        return f"The regular expression `{regex}` is invalid: {error.message}."
    return f"The regular expression `{regex}` is valid."
