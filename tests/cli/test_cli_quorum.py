"""penstock quorum describe prints what kafka-metadata-quorum.sh of Apache Kafka 4.3.0 prints."""

from __future__ import annotations

from penstock.cli.quorum import replication_lines, status_lines
from penstock.client.admin.quorum import QuorumInfo, QuorumReplica
from penstock.ids import NO_UUID, parse_uuid

DIRECTORY = parse_uuid("AZ1wbf5DTkqHqR27MwNStg")
LEADER = QuorumReplica(1, DIRECTORY, 133, 9_990, 9_990, ("CONTROLLER://127.0.0.1:40025",))
FOLLOWER = QuorumReplica(2, NO_UUID, 130, 9_000, 8_500, ("CONTROLLER://127.0.0.1:40026",))
OBSERVER = QuorumReplica(7, NO_UUID, 120, -1, -1, ())
QUORUM = QuorumInfo(1, 4, 130, (FOLLOWER, LEADER), (OBSERVER,))


def test_status() -> None:
    assert status_lines("UGVuc3RvY2tGaXh0dXJlcw", QUORUM) == [
        "ClusterId:              UGVuc3RvY2tGaXh0dXJlcw",
        "LeaderId:               1",
        "LeaderEpoch:            4",
        "HighWatermark:          130",
        "MaxFollowerLag:         3",
        "MaxFollowerLagTimeMs:   1490",
        'CurrentVoters:          [{"id": 2, "endpoints": ["CONTROLLER://127.0.0.1:40026"]}, '
        '{"id": 1, "directoryId": "AZ1wbf5DTkqHqR27MwNStg", "endpoints": '
        '["CONTROLLER://127.0.0.1:40025"]}]',
        'CurrentObservers:       [{"id": 7}]',
    ]


def test_a_single_voter_has_no_lag() -> None:
    lines = status_lines("id", QuorumInfo(1, 1, 133, (LEADER,), ()))
    assert lines[4:6] == ["MaxFollowerLag:         0", "MaxFollowerLagTimeMs:   0"]
    assert lines[7] == "CurrentObservers:       []"


def test_replication() -> None:
    assert replication_lines(QUORUM, None) == [
        "NodeId\tDirectoryId           \tLogEndOffset\tLag\t"
        "LastFetchTimestamp\tLastCaughtUpTimestamp\tStatus  \t",
        "1     \tAZ1wbf5DTkqHqR27MwNStg\t133         \t0  \t"
        "9990              \t9990                 \tLeader  \t",
        "2     \tAAAAAAAAAAAAAAAAAAAAAA\t130         \t3  \t"
        "9000              \t8500                 \tFollower\t",
        "7     \tAAAAAAAAAAAAAAAAAAAAAA\t120         \t13 \t"
        "-1                \t-1                   \tObserver\t",
    ]
    assert replication_lines(QUORUM, 10_000)[1].split("\t")[4:6] == [
        "10 ms ago         ",
        "10 ms ago            ",
    ]
