"""The arguments of kafka-leader-election.sh and kafka-metadata-quorum.sh, without a cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.cli.kafka import leader_election, metadata_quorum
from tests.cli.kafka_tool import Tool


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--bootstrap-server", "x:1"], "Missing required option(s): election-type"),
        (["--election-type", "preferred"], "Missing required option(s): bootstrap-server"),
        (
            ["--bootstrap-server", "x:1", "--election-type", "preferred"],
            (
                "One and only one of the following options is required: topic, "
                "all-topic-partitions, "
                "path-to-json-file"
            ),
        ),
        (
            ["--bootstrap-server", "x:1", "--election-type", "preferred", "--topic", "t"],
            "Missing required option(s): partition",
        ),
        (
            ["--bootstrap-server", "x:1", "--election-type", "bad", "--all-topic-partitions"],
            "Cannot parse argument 'bad' of option election-type",
        ),
        (
            [
                "--bootstrap-server",
                "x:1",
                "--election-type",
                "preferred",
                "--all-topic-partitions",
                "--partition",
                "1",
            ],
            "Option partition is only allowed if topic is used",
        ),
    ],
)
def test_invalid_election_arguments_print_kafkas_errors(
    tool: Tool, words: list[str], reason: str
) -> None:
    assert tool(leader_election.run, *words) == (1, "", f"{reason}\n")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "Replica election data is empty"),
        ("{}", 'Replica election data is missing "partitions" field'),
        (
            '{"partitions": [{"topic": "a", "partition": 1}, {"topic": "a", "partition": 1}]}',
            "Replica election data contains duplicate partitions: [a-1]",
        ),
    ],
)
def test_the_file_of_partitions_is_validated(
    tool: Tool, tmp_path: Path, text: str, reason: str
) -> None:
    file = tmp_path / "partitions.json"
    file.write_text(text)
    words = (
        "--bootstrap-server",
        "x:1",
        "--election-type",
        "unclean",
        "--path-to-json-file",
        str(file),
    )
    assert tool(leader_election.run, *words) == (1, "", f"{reason}\n")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (
            ["describe"],
            "One of --status or --replication must be specified with describe sub-command",
        ),
        (
            ["describe", "--status", "--replication"],
            "Only one of --status or --replication should be specified with describe sub-command",
        ),
        (
            ["describe", "--status", "--human-readable"],
            "The option --human-readable is only supported along with --replication",
        ),
        ([], "kafka-metadata-quorum: error: too few arguments"),
    ],
)
def test_invalid_quorum_arguments_print_kafkas_errors(
    tool: Tool, words: list[str], reason: str
) -> None:
    code, out, err = tool(metadata_quorum.run, "--bootstrap-server", "x:1", *words)
    assert (code, out, err.splitlines()[-1]) == (1, "", reason)
