"""Voters in the metadata log (KIP-853). Penstock has the voters of its configuration, so those of
the log must be the same ones."""

from __future__ import annotations

from penstock.errors import ErrorCode, KafkaError
from penstock.protocol.internal.control_records import (
    ControlType,
    VotersRecord,
    decode_control_value,
)
from penstock.records.batch import BatchHeader
from penstock.records.record import ControlRecord, control_kind, records_of


def check_voters(data: bytes, header: BatchHeader, position: int, voters: tuple[int, ...]) -> None:
    """Check the voters in a control batch. Raises KafkaError if they are not `voters`.

    A log of kraft.version 1 has them. Kafka then ignores controller.quorum.voters. Two nodes with
    different voters could elect two leaders (rule 16). An observer without configured voters knows
    the leader from the other nodes, and needs no check.
    """
    if not voters:
        return
    for record in records_of(data, header, position):
        if control_kind(record.key) is not ControlRecord.KRAFT_VOTERS:
            continue
        decoded = decode_control_value(ControlType.KRAFT_VOTERS, record.value or b"")
        assert isinstance(decoded, VotersRecord)
        found = sorted(voter.voter_id for voter in decoded.voters)
        if found != sorted(voters):
            message = (
                f"the metadata log has the voters {found} (kraft.version 1), but this node is "
                f"configured with {sorted(voters)}. Dynamic voters (KIP-853) are not available: "
                "set controller.quorum.voters to the voters of the log on all nodes"
            )
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, message)
