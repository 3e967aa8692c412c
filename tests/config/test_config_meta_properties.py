"""meta.properties: files of Kafka can be read, and errors have file and line."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.config.meta_properties import (
    MetaProperties,
    decode_meta_properties,
    encode_meta_properties,
)
from penstock.config.properties import PropertiesError
from penstock.ids import RESERVED_UUIDS, NodeId, uuid_text

DIRECTORY = UUID("0123456789abcdef0123456789abcdef")
META = MetaProperties("MkU3OEVBNTcwNTJENDM2Qg", NodeId(1), DIRECTORY)


def test_kafkas_format_is_read() -> None:
    text = (
        "#\n#Wed Jan 01 12:00:00 UTC "
        f"2025\ndirectory.id={uuid_text(DIRECTORY)}\nnode.id=1\nversion=1\ncluster.id=MkU3OEVBNTcwNTJENDM2Qg\n"
    )
    assert decode_meta_properties(text.encode(), "f") == META


def test_file_written_by_kafka_4_3_is_read() -> None:
    path = Path(__file__).parents[1] / "fixtures" / "kafka-4.3" / "data" / "meta.properties"
    meta = decode_meta_properties(path.read_bytes(), path.name)
    assert f"cluster.id={meta.cluster_id}\n" in path.read_text()
    assert f"node.id={meta.node_id}\n" in path.read_text()
    assert meta.directory_id is not None
    assert f"directory.id={uuid_text(meta.directory_id)}\n" in path.read_text()


def test_directory_of_an_older_kafka_has_no_id() -> None:
    assert decode_meta_properties(b"version=1\nnode.id=7\ncluster.id=c\n", "f") == MetaProperties(
        "c", NodeId(7)
    )


def test_encoded_file() -> None:
    assert encode_meta_properties(META) == (
        b"#\ncluster.id=MkU3OEVBNTcwNTJENDM2Qg\ndirectory.id=ASNFZ4mrze8BI0VniavN7w\nnode.id=1\nversion=1\n"
    )


@given(
    st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1),
    st.integers(0, 2**31 - 1),
    st.none() | st.uuids().filter(lambda uuid: uuid.int >= RESERVED_UUIDS),
)
def test_encoded_file_reads_back(cluster_id: str, node_id: int, directory_id: UUID | None) -> None:
    meta = MetaProperties(cluster_id, NodeId(node_id), directory_id)
    assert decode_meta_properties(encode_meta_properties(meta), "f") == meta


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "f: version 0 of meta.properties is not supported"),
        ("version=0\nbroker.id=1\n", "f: version 0 of meta.properties is not supported"),
        (
            "version=2\nnode.id=1\ncluster.id=c\n",
            "f: version 2 of meta.properties is not supported",
        ),
        ("version=1\nnode.id=1\n", "f: cluster.id was not found"),
        ("version=1\nnode.id=1\ncluster.id=\n", "f: cluster.id was not found"),
        ("version=1\ncluster.id=c\n", "f: node.id was not found"),
        ("version=1\ncluster.id=c\nnode.id=-1\n", "f:3: node.id '-1' is not a valid node id"),
        (
            "version=1\ncluster.id=c\nnode.id=2147483648\n",
            "f:3: node.id '2147483648' is not a valid node id",
        ),
        (
            "version=1\ncluster.id=c\nnode.id=1\ndirectory.id=abc\n",
            "f:4: directory.id: 'abc' is not a Kafka uuid",
        ),
        (
            "version=1\ncluster.id=c\nnode.id=1\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAA\n",
            "f:4: directory.id AAAAAAAAAAAAAAAAAAAAAA is reserved",
        ),
        ("version=1\ncluster.id=\\u12\n", "f:2: malformed"),
    ],
)
def test_errors_have_file_and_line(text: str, message: str) -> None:
    with pytest.raises(PropertiesError) as caught:
        decode_meta_properties(text.encode(), "f")
    assert str(caught.value).startswith(message)
