"""The arguments of kafka-leader-election.sh and kafka-metadata-quorum.sh, without a cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.cli.kafka import leader_election, metadata_quorum, storage
from penstock.config.meta_properties import decode_meta_properties
from penstock.ids import uuid_text
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


def formatted_controller(tmp_path: Path) -> Path:
    """Return the file of a controller that was formatted to join."""
    path = tmp_path / "controller.properties"
    path.write_text(
        "process.roles=controller\nnode.id=4\nlisteners=CONTROLLER://:9093\n"
        "controller.listener.names=CONTROLLER\n"
        f"controller.quorum.bootstrap.servers=a:9093,b:9093\nlog.dirs={tmp_path}/data\n"
    )
    assert storage.run(["format", "-t", "a-cluster", "-c", str(path), "-N"]) == 0
    return path


def test_dry_run_of_adding_a_controller_prints_kafkas_line(tool: Tool, tmp_path: Path) -> None:
    config = formatted_controller(tmp_path)
    meta = (tmp_path / "data" / "meta.properties").read_bytes()
    directory_id = decode_meta_properties(meta, "meta").directory_id
    assert directory_id is not None
    words = ("--bootstrap-server", "x:1", "--command-config", str(config))
    tool(metadata_quorum.run, *words, "add-controller", "--dry-run")
    assert tool(metadata_quorum.run, *words, "add-controller", "--dry-run") == (
        0,
        (
            f"DRY RUN of adding controller 4 with directory id {uuid_text(directory_id)} and "
            "endpoints: CONTROLLER://localhost:9093\n"
        ),
        "",
    )


def test_dry_run_of_removing_a_controller_prints_kafkas_line(tool: Tool) -> None:
    identity = ("-i", "4", "-d", "AZ1wbf5DTkqHqR27MwNStg")
    assert tool(
        metadata_quorum.run,
        "--bootstrap-server",
        "x:1",
        "remove-controller",
        *identity,
        "--dry-run",
    ) == (
        0,
        "DRY RUN of removing  KRaft controller 4 with directory id AZ1wbf5DTkqHqR27MwNStg\n",
        "",
    )


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["add-controller"], "You must supply the configuration file of the controller"),
        (["remove-controller", "-i", "-4", "-d", "x"], "Invalid negative --controller-id: -4"),
        (["remove-controller", "-i", "4", "-d", "x"], "Failed to parse --controller-directory-id"),
    ],
)
def test_invalid_changes_of_controllers_are_refused(
    tool: Tool, words: list[str], reason: str
) -> None:
    code, out, err = tool(metadata_quorum.run, "--bootstrap-server", "x:1", *words)
    assert (code, out) == (1, "")
    assert reason in err


def test_only_a_formatted_controller_is_added(tool: Tool, tmp_path: Path) -> None:
    config = formatted_controller(tmp_path)
    words = ("--bootstrap-server", "x:1", "--command-config", str(config), "add-controller")
    (tmp_path / "data" / "meta.properties").unlink()
    code, _out, err = tool(metadata_quorum.run, *words)
    assert code == 1
    assert "Unable to read meta.properties from" in err
    config.write_text(
        config.read_text().replace("roles=controller", "roles=broker").replace("CONTROLLER:", "B:")
    )
    assert tool(metadata_quorum.run, *words)[0] == 1
