"""penstock format, through the command line and real files."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from penstock.cli.format import format_command
from penstock.config.meta_properties import MetaProperties, decode_meta_properties
from penstock.ids import parse_uuid

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
        f"Formatting metadata directory {tmp_path}/meta with cluster.id {CLUSTER}.",
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
    assert (
        result.stdout
        == f"Formatting metadata directory {tmp_path}/meta with cluster.id {CLUSTER}.\n"
    )
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
                "--standalone"
            ),
        ),
        (
            ["controller.quorum.voters=1@localhost:9093"],
            True,
            "You cannot use --standalone if controller.quorum.voters is set",
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
        write_config(tmp_path, "num.partitions=0", "ssl.protocol=TLS", "num.partition=2"),
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
