"""The quorum-state file: the epoch and the vote of this node, in Kafka's format (rule 16).

With kraft.version 1 its data version is 1: the vote then has the candidate's directory id.

A second line, which Kafka does not read, has a checksum of the first: a flipped bit in a digit must
not become another vote (rule 20). A file that Kafka wrote has none.
"""

from __future__ import annotations

import zlib

from penstock.errors import ErrorCode, KafkaError, ProtocolError
from penstock.ids import NO_UUID
from penstock.log.directory import LogDirectory
from penstock.protocol.internal.quorum_state import (
    QuorumStateData,
    decode_quorum_state,
    encode_quorum_state,
)
from penstock.raft.messages import ElectionState
from penstock.raft.voters import RECONFIGURATION_LEVEL, VoterSetHistory
from penstock.world import Disk, World

QUORUM_STATE = "quorum-state"
_NONE = -1


class QuorumStateStore:
    """The file in `path`, the directory of the metadata log. `voter_sets` are those of the log."""

    def __init__(
        self,
        world: World,
        directory: LogDirectory,
        path: str,
        cluster_id: str,
        voter_sets: VoterSetHistory,
    ) -> None:
        self._world = world
        self._directory = directory
        self._file = f"{path}/{QUORUM_STATE}"
        self._cluster_id = cluster_id
        self._voter_sets = voter_sets

    def read(self, last_epoch: int) -> ElectionState:
        """Return the saved state. `last_epoch` is the log's last epoch.

        A voter without its vote must not vote again under the same identity (rule 19), so an
        unreadable file is an error. So is a log with a higher epoch: an epoch is saved before its
        first record is written. The leader epoch of a batch is not covered by its CRC, and a node
        that takes a flipped bit of it for an epoch never finds a leader, or raises the epoch of the
        whole quorum (rule 20).
        """
        if not self._world.disk.exists(self._file):
            return ElectionState(last_epoch, None)
        try:
            content = self._world.disk.read(self._file)
            line, newline, checksum = content.partition(b"\n")
            if newline and checksum != _checksum(line):
                raise ProtocolError("its checksum is wrong")
            state, _version = decode_quorum_state(content)
        except ProtocolError as error:
            message = (
                f"{self._file}: {error}. The vote of this voter is lost: empty its metadata "
                "directory and format it again"
            )
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, message) from error
        if state.cluster_id and state.cluster_id != self._cluster_id:
            raise KafkaError(
                ErrorCode.INCONSISTENT_CLUSTER_ID,
                f"{self._file} belongs to cluster {state.cluster_id}, not to {self._cluster_id}",
            )
        if state.leader_epoch < last_epoch:
            message = (
                f"the metadata log has a record of epoch {last_epoch}, and {self._file} has epoch "
                f"{state.leader_epoch}: one of them is damaged. Empty the metadata directory and "
                "format it again: the node then fetches all metadata from the other controllers"
            )
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, message)
        has_voted = state.voted_id != _NONE
        return ElectionState(
            max(state.leader_epoch, 0),
            state.voted_id if has_voted else None,
            voted_directory_id=state.voted_directory_id if has_voted else NO_UUID,
        )

    async def save(self, state: ElectionState) -> None:
        latest = self._voter_sets.latest
        data = QuorumStateData(
            cluster_id=self._cluster_id,
            leader_id=_NONE if state.leader_id is None else state.leader_id,
            leader_epoch=state.epoch,
            voted_id=_NONE if state.voted_id is None else state.voted_id,
            voted_directory_id=state.voted_directory_id,
            current_voters=tuple(
                QuorumStateData.CurrentVoter(voter_id=voter) for voter in latest.voters.ids
            ),
        )
        # A node without voters was formatted to join a dynamic quorum.
        is_dynamic = latest.kraft_version >= RECONFIGURATION_LEVEL or not latest.voters.voters
        content = quorum_state_content(data, 1 if is_dynamic else 0)
        with self._directory.failing("saving quorum-state"):
            await self._world.offload.thread(self._world.disk.replace, self._file, content)


def quorum_state_content(data: QuorumStateData, version: int) -> bytes:
    line = encode_quorum_state(data, version)
    return line + b"\n" + _checksum(line)


def is_own_quorum(disk: Disk, path: str, node_id: int) -> bool:
    """Return True if a controller without configured voters, whose log has none, is the only voter.

    It is so if it never voted, or was the only voter with kraft.version 0 when it did. One that was
    formatted with --no-initial-controllers has a quorum-state of data version 1: it must never
    start a second quorum.
    """
    file = f"{path}/{QUORUM_STATE}"
    if not disk.exists(file):
        return True
    try:
        state, version = decode_quorum_state(disk.read(file))
    except ProtocolError:
        return False  # `QuorumStateStore.read` refuses it
    ids = [voter.voter_id for voter in state.current_voters or ()]
    return version == 0 and ids == [node_id]


def _checksum(line: bytes) -> bytes:
    return b"%08x" % zlib.crc32(line)
