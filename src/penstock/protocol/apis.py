"""The table of Kafka's APIs: key, name, versions, listeners. Message modules are imported on first
use.

It lists what the protocol defines. `handlers` decide what a node serves and advertises.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import NamedTuple

from penstock.errors import ProtocolError
from penstock.protocol.schema import Versions, schema_of

BROKER = frozenset({"broker"})
CONTROLLER = frozenset({"controller"})
BOTH = BROKER | CONTROLLER


class Api(NamedTuple):
    """One API. Its request and response have the same versions, and the same first flexible
    version."""

    key: int
    name: str
    versions: Versions
    flexible_from: int | None
    listeners: frozenset[str]
    newest_unstable: bool = False

    def flexible(self, version: int) -> bool:
        """Return whether a version is flexible. Works for unknown versions too, because the header
        of a request must be readable in any version."""
        return self.flexible_from is not None and version >= self.flexible_from

    @property
    def module(self) -> str:
        """The module of the messages: messages/list_offsets.py for ListOffsets."""
        snake = "".join(
            f"_{letter.lower()}" if letter.isupper() else letter for letter in self.name
        )
        return f"penstock.protocol.messages.{snake.lstrip('_')}"


APIS: tuple[Api, ...] = (
    Api(0, "Produce", Versions(3, 13), 9, BROKER),
    Api(1, "Fetch", Versions(4, 18), 12, BOTH),
    Api(2, "ListOffsets", Versions(1, 11), 6, BROKER),
    Api(3, "Metadata", Versions(0, 13), 9, BROKER),
    Api(8, "OffsetCommit", Versions(2, 10), 8, BROKER),
    Api(9, "OffsetFetch", Versions(1, 10), 6, BROKER),
    Api(10, "FindCoordinator", Versions(0, 6), 3, BROKER),
    Api(11, "JoinGroup", Versions(0, 9), 6, BROKER),
    Api(12, "Heartbeat", Versions(0, 4), 4, BROKER),
    Api(13, "LeaveGroup", Versions(0, 5), 4, BROKER),
    Api(14, "SyncGroup", Versions(0, 5), 4, BROKER),
    Api(15, "DescribeGroups", Versions(0, 6), 5, BROKER),
    Api(16, "ListGroups", Versions(0, 5), 3, BROKER),
    Api(17, "SaslHandshake", Versions(0, 1), None, BOTH),
    Api(18, "ApiVersions", Versions(0, 4), 3, BOTH),
    Api(19, "CreateTopics", Versions(2, 7), 5, BOTH),
    Api(20, "DeleteTopics", Versions(1, 6), 4, BOTH),
    Api(21, "DeleteRecords", Versions(0, 2), 2, BROKER),
    Api(22, "InitProducerId", Versions(0, 6), 2, BROKER, newest_unstable=True),
    Api(23, "OffsetForLeaderEpoch", Versions(2, 4), 4, BROKER),
    Api(24, "AddPartitionsToTxn", Versions(0, 5), 3, BROKER),
    Api(25, "AddOffsetsToTxn", Versions(0, 4), 3, BROKER),
    Api(26, "EndTxn", Versions(0, 5), 3, BROKER),
    Api(27, "WriteTxnMarkers", Versions(1, 2), 1, BROKER),
    Api(28, "TxnOffsetCommit", Versions(0, 5), 3, BROKER),
    Api(29, "DescribeAcls", Versions(1, 3), 2, BOTH),
    Api(30, "CreateAcls", Versions(1, 3), 2, BOTH),
    Api(31, "DeleteAcls", Versions(1, 3), 2, BOTH),
    Api(32, "DescribeConfigs", Versions(1, 4), 4, BOTH),
    Api(33, "AlterConfigs", Versions(0, 2), 2, BOTH),
    Api(34, "AlterReplicaLogDirs", Versions(1, 2), 2, BROKER),
    Api(35, "DescribeLogDirs", Versions(1, 5), 2, BROKER),
    Api(36, "SaslAuthenticate", Versions(0, 2), 2, BOTH),
    Api(37, "CreatePartitions", Versions(0, 3), 2, BOTH),
    Api(38, "CreateDelegationToken", Versions(1, 3), 2, BOTH),
    Api(39, "RenewDelegationToken", Versions(1, 2), 2, BOTH),
    Api(40, "ExpireDelegationToken", Versions(1, 2), 2, BOTH),
    Api(41, "DescribeDelegationToken", Versions(1, 3), 2, BOTH),
    Api(42, "DeleteGroups", Versions(0, 2), 2, BROKER),
    Api(43, "ElectLeaders", Versions(0, 2), 2, BOTH),
    Api(44, "IncrementalAlterConfigs", Versions(0, 1), 1, BOTH),
    Api(45, "AlterPartitionReassignments", Versions(0, 1), 0, BOTH),
    Api(46, "ListPartitionReassignments", Versions(0, 0), 0, BOTH),
    Api(47, "OffsetDelete", Versions(0, 0), None, BROKER),
    Api(48, "DescribeClientQuotas", Versions(0, 1), 1, BROKER),
    Api(49, "AlterClientQuotas", Versions(0, 1), 1, BOTH),
    Api(50, "DescribeUserScramCredentials", Versions(0, 0), 0, BOTH),
    Api(51, "AlterUserScramCredentials", Versions(0, 0), 0, BOTH),
    Api(52, "Vote", Versions(0, 2), 0, CONTROLLER),
    Api(53, "BeginQuorumEpoch", Versions(0, 1), 1, CONTROLLER),
    Api(54, "EndQuorumEpoch", Versions(0, 1), 1, CONTROLLER),
    Api(55, "DescribeQuorum", Versions(0, 2), 0, BOTH),
    Api(56, "AlterPartition", Versions(2, 3), 2, CONTROLLER),
    Api(57, "UpdateFeatures", Versions(0, 2), 0, BOTH),
    Api(58, "Envelope", Versions(0, 0), 0, CONTROLLER),
    Api(59, "FetchSnapshot", Versions(0, 1), 0, CONTROLLER),
    Api(60, "DescribeCluster", Versions(0, 2), 0, BOTH),
    Api(61, "DescribeProducers", Versions(0, 0), 0, BROKER),
    Api(62, "BrokerRegistration", Versions(0, 4), 0, CONTROLLER),
    Api(63, "BrokerHeartbeat", Versions(0, 2), 0, CONTROLLER),
    Api(64, "UnregisterBroker", Versions(0, 0), 0, BOTH),
    Api(65, "DescribeTransactions", Versions(0, 0), 0, BROKER),
    Api(66, "ListTransactions", Versions(0, 2), 0, BROKER),
    Api(67, "AllocateProducerIds", Versions(0, 0), 0, CONTROLLER),
    Api(68, "ConsumerGroupHeartbeat", Versions(0, 1), 0, BROKER),
    Api(69, "ConsumerGroupDescribe", Versions(0, 1), 0, BROKER),
    Api(70, "ControllerRegistration", Versions(0, 0), 0, CONTROLLER),
    Api(71, "GetTelemetrySubscriptions", Versions(0, 0), 0, BROKER),
    Api(72, "PushTelemetry", Versions(0, 0), 0, BROKER),
    Api(73, "AssignReplicasToDirs", Versions(0, 0), 0, CONTROLLER),
    Api(74, "ListConfigResources", Versions(0, 1), 0, BROKER),
    Api(75, "DescribeTopicPartitions", Versions(0, 0), 0, BROKER),
    Api(76, "ShareGroupHeartbeat", Versions(1, 1), 1, BROKER),
    Api(77, "ShareGroupDescribe", Versions(1, 1), 1, BROKER),
    Api(78, "ShareFetch", Versions(1, 2), 1, BROKER),
    Api(79, "ShareAcknowledge", Versions(1, 2), 1, BROKER),
    Api(80, "AddRaftVoter", Versions(0, 1), 0, BOTH),
    Api(81, "RemoveRaftVoter", Versions(0, 0), 0, BOTH),
    Api(82, "UpdateRaftVoter", Versions(0, 0), 0, CONTROLLER),
    Api(83, "InitializeShareGroupState", Versions(0, 0), 0, BROKER),
    Api(84, "ReadShareGroupState", Versions(0, 0), 0, BROKER),
    Api(85, "WriteShareGroupState", Versions(0, 1), 0, BROKER),
    Api(86, "DeleteShareGroupState", Versions(0, 0), 0, BROKER),
    Api(87, "ReadShareGroupStateSummary", Versions(0, 1), 0, BROKER),
    Api(88, "StreamsGroupHeartbeat", Versions(0, 0), 0, BROKER),
    Api(89, "StreamsGroupDescribe", Versions(0, 0), 0, BROKER),
    Api(90, "DescribeShareGroupOffsets", Versions(0, 1), 0, BROKER),
    Api(91, "AlterShareGroupOffsets", Versions(0, 0), 0, BROKER),
    Api(92, "DeleteShareGroupOffsets", Versions(0, 0), 0, BROKER),
)

_BY_KEY = {api.key: api for api in APIS}


def find_api(key: int) -> Api:
    """Return the API of a key. Raise ProtocolError if the protocol has none."""
    api = _BY_KEY.get(key)
    if api is None:
        raise ProtocolError(f"unknown API key {key}")
    return api


def api_of(message: type) -> Api:
    """Return the API of a request or response class."""
    key = schema_of(message).api_key
    if key is None:
        raise ValueError(f"{message.__name__} is neither a request nor a response")
    return find_api(key)


@cache
def request_class(key: int) -> type:
    """Return the request class of an API. The first call imports its module."""
    return _message(find_api(key), "Request")


@cache
def response_class(key: int) -> type:
    """Return the response class of an API. The first call imports its module."""
    return _message(find_api(key), "Response")


def _message(api: Api, suffix: str) -> type:
    message: type = getattr(import_module(api.module), api.name + suffix)
    return message
