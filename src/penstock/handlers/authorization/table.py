"""Which operation on which resource each API needs, and the check that holds it: Kafka's table
"Operations and Resources on Protocols".

A check is named as module.function in this package. `needs` is for readers, for `penstock` itself
and for the tests; an API without needs is open to every client that may connect.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from types import MappingProxyType
from typing import Any, NamedTuple

from penstock.errors import InvariantBroken
from penstock.handlers.authorization.calls import Call
from penstock.handlers.authorization.guard import Guard
from penstock.security.acls import AclOperation as Op
from penstock.security.acls import ResourceType as Type

Check = Callable[[Guard, Any, Call], Any]


class Entry(NamedTuple):
    check: str
    needs: tuple[tuple[Op, Type], ...] = ()

    def load(self) -> Check:
        return _load(self.check)


@cache
def _load(name: str) -> Check:
    module, _dot, function = name.rpartition(".")
    check: Check = getattr(import_module(f"{__package__}.{module}"), function)
    return check


_ALTER = Entry("cluster.alter", ((Op.ALTER, Type.CLUSTER),))
_DESCRIBE = Entry("cluster.describe", ((Op.DESCRIBE, Type.CLUSTER),))
_CLUSTER_ACTION = Entry("cluster.cluster_action", ((Op.CLUSTER_ACTION, Type.CLUSTER),))
_OPEN = Entry("cluster.open_to_all")
_OF_MEMBER = Entry("groups.of_member", ((Op.READ, Type.GROUP),))


def _in_handler(*needs: tuple[Op, Type]) -> Entry:
    """An API whose handler asks `context.guard` itself."""
    return Entry("cluster.open_to_all", needs)


# By API key, for the listeners of brokers.
BROKER_CHECKS: Mapping[int, Entry] = MappingProxyType(
    {
        # Produce
        0: Entry("topics.produce", ((Op.WRITE, Type.TOPIC), (Op.WRITE, Type.TRANSACTIONAL_ID))),
        # Fetch: consumers, and followers
        1: _in_handler((Op.READ, Type.TOPIC), (Op.CLUSTER_ACTION, Type.CLUSTER)),
        # ListOffsets
        2: Entry("topics.list_offsets", ((Op.DESCRIBE, Type.TOPIC),)),
        # Metadata
        3: _in_handler(
            (Op.DESCRIBE, Type.TOPIC),
            (Op.CREATE, Type.CLUSTER),
            (Op.CREATE, Type.TOPIC),
            (Op.DESCRIBE, Type.CLUSTER),
        ),
        # OffsetCommit
        8: Entry("offsets.offset_commit", ((Op.READ, Type.GROUP), (Op.READ, Type.TOPIC))),
        # OffsetFetch
        9: Entry("offsets.offset_fetch", ((Op.DESCRIBE, Type.GROUP), (Op.DESCRIBE, Type.TOPIC))),
        # FindCoordinator
        10: Entry(
            "groups.find_coordinator",
            (
                (Op.DESCRIBE, Type.GROUP),
                (Op.DESCRIBE, Type.TRANSACTIONAL_ID),
                (Op.CLUSTER_ACTION, Type.CLUSTER),
            ),
        ),
        # JoinGroup, Heartbeat, LeaveGroup, SyncGroup
        11: Entry("groups.join_group", ((Op.READ, Type.GROUP),)),
        12: _OF_MEMBER,
        13: _OF_MEMBER,
        14: _OF_MEMBER,
        # DescribeGroups
        15: Entry("groups.describe_groups", ((Op.DESCRIBE, Type.GROUP),)),
        # ListGroups
        16: Entry("groups.list_groups", ((Op.DESCRIBE, Type.CLUSTER), (Op.DESCRIBE, Type.GROUP))),
        # SaslHandshake, ApiVersions
        17: _OPEN,
        18: _OPEN,
        # CreateTopics
        19: Entry(
            "topics.create_topics",
            (
                (Op.CREATE, Type.CLUSTER),
                (Op.CREATE, Type.TOPIC),
                (Op.DESCRIBE_CONFIGS, Type.TOPIC),
            ),
        ),
        # DeleteTopics
        20: Entry("topics.delete_topics", ((Op.DELETE, Type.TOPIC), (Op.DESCRIBE, Type.TOPIC))),
        # DeleteRecords
        21: Entry("topics.delete_records", ((Op.DELETE, Type.TOPIC),)),
        # InitProducerId
        22: Entry(
            "transactions.init_producer_id",
            (
                (Op.WRITE, Type.TRANSACTIONAL_ID),
                (Op.TWO_PHASE_COMMIT, Type.TRANSACTIONAL_ID),
                (Op.IDEMPOTENT_WRITE, Type.CLUSTER),
                (Op.WRITE, Type.TOPIC),
            ),
        ),
        # OffsetForLeaderEpoch
        23: Entry(
            "topics.offset_for_leader_epoch",
            ((Op.CLUSTER_ACTION, Type.CLUSTER), (Op.DESCRIBE, Type.TOPIC)),
        ),
        # AddPartitionsToTxn
        24: Entry(
            "transactions.add_partitions_to_txn",
            (
                (Op.WRITE, Type.TRANSACTIONAL_ID),
                (Op.WRITE, Type.TOPIC),
                (Op.CLUSTER_ACTION, Type.CLUSTER),
            ),
        ),
        # AddOffsetsToTxn
        25: Entry(
            "transactions.add_offsets_to_txn",
            ((Op.WRITE, Type.TRANSACTIONAL_ID), (Op.READ, Type.GROUP)),
        ),
        # EndTxn
        26: Entry("transactions.end_txn", ((Op.WRITE, Type.TRANSACTIONAL_ID),)),
        # WriteTxnMarkers
        27: Entry(
            "transactions.write_txn_markers",
            ((Op.ALTER, Type.CLUSTER), (Op.CLUSTER_ACTION, Type.CLUSTER)),
        ),
        # TxnOffsetCommit
        28: Entry(
            "transactions.txn_offset_commit",
            (
                (Op.WRITE, Type.TRANSACTIONAL_ID),
                (Op.READ, Type.GROUP),
                (Op.READ, Type.TOPIC),
            ),
        ),
        # DescribeAcls, CreateAcls, DeleteAcls
        29: _DESCRIBE,
        30: _ALTER,
        31: _ALTER,
        # DescribeConfigs
        32: Entry(
            "cluster.describe_configs",
            (
                (Op.DESCRIBE_CONFIGS, Type.CLUSTER),
                (Op.DESCRIBE_CONFIGS, Type.TOPIC),
                (Op.DESCRIBE_CONFIGS, Type.GROUP),
            ),
        ),
        # AlterConfigs
        33: Entry(
            "cluster.alter_configs",
            (
                (Op.ALTER_CONFIGS, Type.CLUSTER),
                (Op.ALTER_CONFIGS, Type.TOPIC),
                (Op.ALTER_CONFIGS, Type.GROUP),
            ),
        ),
        # AlterReplicaLogDirs, DescribeLogDirs
        34: _ALTER,
        35: _DESCRIBE,
        # SaslAuthenticate
        36: _OPEN,
        # CreatePartitions
        37: Entry("topics.create_partitions", ((Op.ALTER, Type.TOPIC),)),
        # CreateDelegationToken, of another owner; RenewDelegationToken and ExpireDelegationToken:
        # owner and renewers; DescribeDelegationToken, of others
        38: _in_handler((Op.CREATE_TOKENS, Type.USER)),
        39: _OPEN,
        40: _OPEN,
        41: _in_handler((Op.DESCRIBE, Type.DELEGATION_TOKEN), (Op.DESCRIBE_TOKENS, Type.USER)),
        # DeleteGroups
        42: Entry("groups.delete_groups", ((Op.DELETE, Type.GROUP),)),
        # ElectLeaders
        43: _ALTER,
        # IncrementalAlterConfigs
        44: Entry(
            "cluster.alter_configs",
            (
                (Op.ALTER_CONFIGS, Type.CLUSTER),
                (Op.ALTER_CONFIGS, Type.TOPIC),
                (Op.ALTER_CONFIGS, Type.GROUP),
            ),
        ),
        # AlterPartitionReassignments, ListPartitionReassignments
        45: _ALTER,
        46: _DESCRIBE,
        # OffsetDelete
        47: Entry("offsets.offset_delete", ((Op.DELETE, Type.GROUP), (Op.READ, Type.TOPIC))),
        # DescribeClientQuotas, AlterClientQuotas
        48: Entry("cluster.describe_configs_of_cluster", ((Op.DESCRIBE_CONFIGS, Type.CLUSTER),)),
        49: Entry("cluster.alter_configs_of_cluster", ((Op.ALTER_CONFIGS, Type.CLUSTER),)),
        # DescribeUserScramCredentials, AlterUserScramCredentials
        50: _DESCRIBE,
        51: _ALTER,
        # DescribeQuorum
        55: _DESCRIBE,
        # UpdateFeatures
        57: _ALTER,
        # DescribeCluster: the authorized operations only
        60: _in_handler((Op.DESCRIBE, Type.CLUSTER)),
        # DescribeProducers
        61: Entry("topics.describe_producers", ((Op.READ, Type.TOPIC),)),
        # UnregisterBroker
        64: _ALTER,
        # DescribeTransactions
        65: Entry(
            "transactions.describe_transactions",
            ((Op.DESCRIBE, Type.TRANSACTIONAL_ID), (Op.DESCRIBE, Type.TOPIC)),
        ),
        # ListTransactions
        66: _in_handler((Op.DESCRIBE, Type.TRANSACTIONAL_ID)),
        # ConsumerGroupHeartbeat
        68: Entry(
            "groups.consumer_group_heartbeat", ((Op.READ, Type.GROUP), (Op.DESCRIBE, Type.TOPIC))
        ),
        # ConsumerGroupDescribe
        69: Entry(
            "groups.consumer_group_describe",
            ((Op.DESCRIBE, Type.GROUP), (Op.DESCRIBE, Type.TOPIC)),
        ),
        # ListConfigResources
        74: Entry("cluster.describe_configs_of_cluster", ((Op.DESCRIBE_CONFIGS, Type.CLUSTER),)),
        # DescribeTopicPartitions
        75: _in_handler((Op.DESCRIBE, Type.TOPIC)),
        # AddRaftVoter, RemoveRaftVoter
        80: _ALTER,
        81: _ALTER,
    }
)

# For the listeners of controllers.
CONTROLLER_CHECKS: Mapping[int, Entry] = MappingProxyType(
    {
        **BROKER_CHECKS,
        # Fetch of the metadata log
        1: _CLUSTER_ACTION,
        33: Entry("cluster.alter_configs_of_controller", BROKER_CHECKS[33].needs),
        44: Entry(
            "cluster.alter_configs_of_controller",
            (*BROKER_CHECKS[44].needs, (Op.CLUSTER_ACTION, Type.CLUSTER)),
        ),
        # Vote, BeginQuorumEpoch, EndQuorumEpoch
        52: _CLUSTER_ACTION,
        53: _CLUSTER_ACTION,
        54: _CLUSTER_ACTION,
        # AlterPartition
        56: _CLUSTER_ACTION,
        # Envelope: the client's request has its own check
        58: _CLUSTER_ACTION,
        # FetchSnapshot
        59: _CLUSTER_ACTION,
        # DescribeCluster
        60: _ALTER,
        # BrokerRegistration, BrokerHeartbeat
        62: _CLUSTER_ACTION,
        63: _CLUSTER_ACTION,
        # AllocateProducerIds
        67: _CLUSTER_ACTION,
        # ControllerRegistration
        70: _CLUSTER_ACTION,
        # AssignReplicasToDirs
        73: _CLUSTER_ACTION,
        # UpdateRaftVoter
        82: _CLUSTER_ACTION,
    }
)


def entry_of(api_key: int, checks: Mapping[int, Entry]) -> Entry:
    """Return the entry of an API. One without an entry must not be served with an authorizer."""
    entry = checks.get(api_key)
    if entry is None:
        raise InvariantBroken(
            f"API key {api_key} has no entry in {__name__}: nobody may use it with an authorizer"
        )
    return entry
