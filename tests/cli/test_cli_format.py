"""penstock format, through the command line and real files."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest
import typer
from typer.testing import CliRunner, Result

from penstock.cli.format import format_command
from penstock.config.meta_properties import MetaProperties, decode_meta_properties
from penstock.ids import parse_uuid, uuid_text
from penstock.node.quorum.snapshot_file import snapshot_voters
from penstock.protocol.internal.quorum_state import decode_quorum_state
from penstock.raft.voters import VotersEntry
from penstock.world.real import RealDisk

CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"

app = typer.Typer()
app.command("format")(format_command)


@app.callback()
def main() -> None:
    """With a callback, typer keeps the command's name."""


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["format", *map(str, arguments)])


def write_config(tmp_path: Path, *lines: str, node_id: int = 1) -> Path:
    """Write the properties of a combined node with two data directories and a metadata
    directory; `lines` override them."""
    path = tmp_path / "server.properties"
    base = [
        "process.roles=broker,controller",
        f"node.id={node_id}",
        "controller.listener.names=CONTROLLER",
        "listeners=PLAINTEXT://:9092,CONTROLLER://:9093",
        f"log.dirs={tmp_path}/a,{tmp_path}/deep/b",
        f"metadata.log.dir={tmp_path}/meta",
    ]
    path.write_text("\n".join([*base, *lines, ""]))
    return path


def meta_of(directory: Path) -> MetaProperties:
    return decode_meta_properties((directory / "meta.properties").read_bytes(), str(directory))


def directories(tmp_path: Path) -> list[Path]:
    return [tmp_path / "a", tmp_path / "deep" / "b", tmp_path / "meta"]


def test_every_directory_gets_its_meta_properties(tmp_path: Path) -> None:
    result = run("-t", CLUSTER, "-c", write_config(tmp_path), "--standalone")
    assert result.exit_code == 0, result.output
    metas = [meta_of(directory) for directory in directories(tmp_path)]
    assert {(meta.cluster_id, meta.node_id) for meta in metas} == {(CLUSTER, 1)}
    ids = {meta.directory_id for meta in metas}
    assert len(ids) == 3
    assert None not in ids
    assert result.stdout.splitlines() == [
        f"Formatting data directory {tmp_path}/a with cluster.id {CLUSTER}.",
        f"Formatting data directory {tmp_path}/deep/b with cluster.id {CLUSTER}.",
        f"Formatting dynamic metadata voter directory {tmp_path}/meta with cluster.id {CLUSTER}.",
    ]
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["meta.properties"]


def test_the_default_cluster_id_is_random_and_printed(tmp_path: Path) -> None:
    result = run("--config", write_config(tmp_path), "-s")
    assert result.exit_code == 0, result.output
    cluster_id = meta_of(tmp_path / "a").cluster_id
    assert result.stdout.splitlines()[0] == f"Cluster id: {cluster_id}"
    assert parse_uuid(cluster_id).int > 100


def test_a_formatted_directory_is_refused(tmp_path: Path) -> None:
    config = write_config(tmp_path)
    run("-t", CLUSTER, "-c", config, "-s")
    before = meta_of(tmp_path / "a")
    result = run("-t", CLUSTER, "-c", config, "-s")
    assert result.exit_code == 1
    assert result.stderr == (
        f"Log directory {tmp_path}/a is already formatted. Use --ignore-formatted to ignore this "
        "directory and format the others.\n"
    )
    assert meta_of(tmp_path / "a") == before


@pytest.mark.parametrize("cluster_id", [["-t", CLUSTER], []])
def test_ignore_formatted_formats_the_other_directories_into_the_same_cluster(
    tmp_path: Path, cluster_id: list[str]
) -> None:
    config = write_config(tmp_path)
    run("-t", CLUSTER, "-c", config, "-s")
    before = meta_of(tmp_path / "a")
    (tmp_path / "meta" / "meta.properties").unlink()
    result = run(*cluster_id, "-c", config, "-s", "--ignore-formatted")
    assert result.exit_code == 0, result.output
    directory = f"dynamic metadata voter directory {tmp_path}/meta"
    assert result.stdout == f"Formatting {directory} with cluster.id {CLUSTER}.\n"
    assert meta_of(tmp_path / "a") == before
    assert meta_of(tmp_path / "meta").cluster_id == CLUSTER
    again = run("-t", CLUSTER, "-c", config, "-s", "-g")
    assert (again.exit_code, again.stdout) == (
        0,
        "All of the log directories are already formatted.\n",
    )


@pytest.mark.parametrize("ignore", [[], ["--ignore-formatted"]])
def test_another_cluster_or_node_is_refused(tmp_path: Path, ignore: list[str]) -> None:
    run("-t", CLUSTER, "-c", write_config(tmp_path), "-s")
    (tmp_path / "meta" / "meta.properties").unlink()
    other = run("-t", "another", "-c", write_config(tmp_path), "-s", *ignore)
    assert other.exit_code == 1
    assert other.stderr == (
        f"Invalid cluster.id in: {tmp_path}/a/meta.properties. Expected another, but read "
        f"{CLUSTER}\n"
    )
    node = run("-t", CLUSTER, "-c", write_config(tmp_path, node_id=2), "-s", *ignore)
    assert node.exit_code == 1
    assert node.stderr.startswith(
        f"Stored node id 1 doesn't match previous node id 2 in {tmp_path}/a/meta.properties."
    )
    assert not (tmp_path / "meta" / "meta.properties").exists()


def test_a_copied_directory_is_refused_by_its_directory_id(tmp_path: Path) -> None:
    config = write_config(tmp_path)
    run("-t", CLUSTER, "-c", config, "-s")
    (tmp_path / "meta" / "meta.properties").write_bytes(
        (tmp_path / "a" / "meta.properties").read_bytes()
    )
    result = run("-t", CLUSTER, "-c", config, "-s", "-g")
    assert result.exit_code == 1
    assert f"It was the ID of {tmp_path}/a, but also of {tmp_path}/meta" in result.stderr


def test_a_corrupt_meta_properties_is_reported_and_nothing_is_written(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "meta.properties").write_text("version=1\nnode.id=1\n")
    result = run("-t", CLUSTER, "-c", write_config(tmp_path), "-s", "-g")
    assert result.exit_code == 1
    assert result.stderr.startswith(f"{tmp_path}/a/meta.properties: cluster.id was not found")
    assert not (tmp_path / "meta").exists()


def test_a_log_directory_that_is_a_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("")
    result = run("-t", CLUSTER, "-c", write_config(tmp_path), "-s")
    assert result.exit_code == 1
    assert f"Error while writing meta.properties file {tmp_path}/a: " in result.stderr


@pytest.mark.parametrize(
    ("lines", "standalone", "reason"),
    [
        (
            [],
            False,
            (
                "Because controller.quorum.voters is not set on this controller, you must specify "
                "one of the following: --standalone, --initial-controllers, or "
                "--no-initial-controllers."
            ),
        ),
        (
            ["controller.quorum.voters=1@localhost:9093"],
            True,
            "You cannot use --standalone or --initial-controllers if controller.quorum.voters is ",
        ),
        (
            [
                "process.roles=broker",
                "listeners=PLAINTEXT://:9092",
                "controller.quorum.bootstrap.servers=c:9093",
            ],
            True,
            "You cannot use --standalone on a broker node.",
        ),
    ],
)
def test_contradictory_standalone_options_are_refused(
    tmp_path: Path, lines: list[str], standalone: bool, reason: str
) -> None:
    result = run(
        "-t", CLUSTER, "-c", write_config(tmp_path, *lines), *["--standalone"] * standalone
    )
    assert result.exit_code == 1
    assert reason in result.stderr
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize(
    "lines",
    [
        ["controller.quorum.voters=1@localhost:9093"],
        [
            "process.roles=broker",
            "listeners=PLAINTEXT://:9092",
            "controller.quorum.bootstrap.servers=c:9093",
        ],
    ],
)
def test_a_voter_and_a_broker_are_formatted_without_standalone(
    tmp_path: Path, lines: list[str]
) -> None:
    result = run("-t", CLUSTER, "-c", write_config(tmp_path, *lines))
    assert result.exit_code == 0, result.output
    assert meta_of(tmp_path / "a").cluster_id == CLUSTER


CHECKPOINT = "__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"
DIRECTORY = uuid_text(UUID(int=2**100))


def voters_of(directory: Path) -> VotersEntry | None:
    """Return the voters of the checkpoint that was written."""
    return snapshot_voters(RealDisk().open(str(directory / CHECKPOINT)), -1)


def test_standalone_writes_a_checkpoint_with_this_controller(tmp_path: Path) -> None:
    """KIP-853: the first voters of the quorum, with kraft.version 1."""
    assert run("-t", CLUSTER, "-c", write_config(tmp_path), "-s").exit_code == 0
    found, directory_id = voters_of(tmp_path / "meta"), meta_of(tmp_path / "meta").directory_id
    assert found is not None
    assert found.kraft_version == 1
    (voter,) = found.voters.voters
    assert voter.key == (1, directory_id)
    assert [endpoint.name for endpoint in voter.endpoints] == ["CONTROLLER"]
    assert voter.supports(1)


def test_initial_controllers_are_the_same_on_all_of_them(tmp_path: Path) -> None:
    other = uuid_text(UUID(int=2**101))
    given = f"1@a:9093:{DIRECTORY},2@[::1]:9094:{other}"
    result = run("-t", CLUSTER, "-c", write_config(tmp_path), "-I", given)
    assert result.exit_code == 0, result.output
    assert meta_of(tmp_path / "meta").directory_id == UUID(int=2**100), "as the option says"
    found = voters_of(tmp_path / "meta")
    assert found is not None
    assert [(voter.id, voter.directory_id, voter.endpoints) for voter in found.voters.voters] == [
        (1, UUID(int=2**100), (("CONTROLLER", "a", 9093),)),
        (2, UUID(int=2**101), (("CONTROLLER", "::1", 9094),)),
    ]


def test_no_initial_controllers_writes_a_quorum_state_without_a_vote(tmp_path: Path) -> None:
    result = run("-t", CLUSTER, "-c", write_config(tmp_path), "-N")
    assert f"Formatting dynamic metadata directory {tmp_path}/meta" in result.stdout
    log = tmp_path / "meta" / "__cluster_metadata-0"
    assert [path.name for path in log.iterdir()] == ["quorum-state"]
    state, version = decode_quorum_state((log / "quorum-state").read_bytes())
    assert (version, state.voted_id, state.leader_epoch) == (1, -1, 0)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("1@a:9093", "is not of the form id@host:port:directoryId"),
        (f"1@a:0:{DIRECTORY}", "is not of the form"),
        (f"2@a:9093:{DIRECTORY}", "no controller with the id 1 of this node"),
        (f"1@a:9093:{DIRECTORY},1@b:9093:{DIRECTORY}", "two voters have the same id"),
        (f"1@a:9093:{uuid_text(UUID(int=1))}", "is reserved"),
        ("", "has 0 controllers"),
    ],
)
def test_invalid_initial_controllers_are_refused(tmp_path: Path, given: str, reason: str) -> None:
    result = run("-t", CLUSTER, "-c", write_config(tmp_path), "-I", given)
    assert result.exit_code == 1
    assert reason in result.stderr
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("cluster_id", ["", "two words", "a\nb"])
def test_a_cluster_id_must_be_one_word(tmp_path: Path, cluster_id: str) -> None:
    result = run("-t", cluster_id, "-c", write_config(tmp_path), "-s")
    assert result.exit_code == 1
    assert "Invalid cluster id" in result.stderr


def test_every_problem_of_the_file_is_reported(tmp_path: Path) -> None:
    result = run(
        "-t",
        CLUSTER,
        "-c",
        write_config(tmp_path, "num.partitions=0", "zookeeper.connect=z", "num.partition=2"),
        "-s",
    )
    assert result.exit_code == 1
    warning, *problems = result.stderr.splitlines()
    assert warning.startswith(
        f"warning: {tmp_path}/server.properties:9: unknown setting num.partition"
    )
    assert [line.split(": ")[0] for line in problems] == [
        f"{tmp_path}/server.properties:{line}" for line in (7, 8)
    ]


def test_warnings_are_printed_to_stderr(tmp_path: Path) -> None:
    result = run("-t", CLUSTER, "-c", write_config(tmp_path, "num.partition=2"), "-s")
    assert result.exit_code == 0
    assert result.stderr == (
        f"warning: {tmp_path}/server.properties:7: unknown setting num.partition is ignored. "
        "Did you mean num.partitions?\n"
    )


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    result = run("-t", CLUSTER, "-c", tmp_path / "nowhere.properties", "-s")
    assert (result.exit_code, result.stderr) == (
        1,
        f"Error reading {tmp_path}/nowhere.properties: No such file or directory\n",
    )
