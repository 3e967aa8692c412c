"""The APIs that a node serves, one module each.

`SERVED` has the APIs of brokers' listeners, `CONTROLLER_SERVED` those of controllers' listeners.
The server dispatches by these tables and ApiVersions advertises them.

A handler module has `handle(parts, request, context)`, a plain function: its synchronous part runs
in the order of a connection's requests. It returns the response, an awaitable of the response, or
None if there is no response. `parts` are the parts of the node that the module declares in its
Protocol `Parts`; handlers translate, delegate to them, and never see logs. If a handler raises a
KafkaError, its response has no field for the error: the server logs it and closes the connection.

Handler modules are imported on first use: a message module takes milliseconds to import, and a node
must start quickly.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from importlib import import_module
from types import MappingProxyType
from typing import Any, NamedTuple

# (parts, request, context) -> response.
Handler = Callable[[Any, Any, Any], object | Awaitable[object] | None]


class Served(NamedTuple):
    """The versions of an API that a handler takes, and the lowest version that is advertised."""

    module: str
    first: int
    last: int
    advertised_first: int


def _served(name: str, first: int, last: int, advertised_first: int | None = None) -> Served:
    return Served(
        f"{__name__}.{name}", first, last, first if advertised_first is None else advertised_first
    )


SERVED: Mapping[int, Served] = MappingProxyType(
    {
        # Old versions of librdkafka do not compress if a broker does not advertise Produce v0. No
        # client sends v0 to v2.
        0: _served("produce", 3, 13, advertised_first=0),
        1: _served("fetch", 4, 18),
        2: _served("list_offsets", 1, 11),
        3: _served("metadata", 0, 13),
        8: _served("offset_commit", 2, 10),
        9: _served("offset_fetch", 1, 10),
        10: _served("find_coordinator", 0, 6),
        11: _served("join_group", 0, 9),
        12: _served("heartbeat", 0, 4),
        13: _served("leave_group", 0, 5),
        14: _served("sync_group", 0, 5),
        15: _served("describe_groups", 0, 6),
        16: _served("list_groups", 0, 5),
        17: _served("sasl_handshake", 0, 1),
        18: _served("api_versions", 0, 4),
        19: _served("create_topics", 2, 7),
        20: _served("delete_topics", 1, 6),
        21: _served("delete_records", 0, 2),
        22: _served("init_producer_id", 0, 5),
        23: _served("offset_for_leader_epoch", 2, 4),
        24: _served("add_partitions_to_txn", 0, 5),
        25: _served("add_offsets_to_txn", 0, 4),
        26: _served("end_txn", 0, 5),
        27: _served("write_txn_markers", 1, 2),
        28: _served("txn_offset_commit", 0, 5),
        29: _served("describe_acls", 1, 3),
        30: _served("create_acls", 1, 3),
        31: _served("delete_acls", 1, 3),
        32: _served("describe_configs", 1, 4),
        33: _served("alter_configs", 0, 2),
        34: _served("alter_replica_log_dirs", 1, 2),
        35: _served("describe_log_dirs", 1, 5),
        36: _served("sasl_authenticate", 0, 2),
        37: _served("create_partitions", 0, 3),
        38: _served("create_delegation_token", 1, 3),
        39: _served("renew_delegation_token", 1, 2),
        40: _served("expire_delegation_token", 1, 2),
        41: _served("describe_delegation_token", 1, 3),
        42: _served("delete_groups", 0, 2),
        43: _served("elect_leaders", 0, 2),
        44: _served("incremental_alter_configs", 0, 1),
        45: _served("alter_partition_reassignments", 0, 1),
        46: _served("list_partition_reassignments", 0, 0),
        47: _served("offset_delete", 0, 0),
        48: _served("describe_client_quotas", 0, 1),
        49: _served("alter_client_quotas", 0, 1),
        50: _served("describe_user_scram_credentials", 0, 0),
        51: _served("alter_user_scram_credentials", 0, 0),
        55: _served("describe_quorum", 0, 2),
        57: _served("update_features", 0, 2),
        60: _served("describe_cluster", 0, 2),
        61: _served("describe_producers", 0, 0),
        64: _served("unregister_broker", 0, 0),
        65: _served("describe_transactions", 0, 0),
        66: _served("list_transactions", 0, 2),
        68: _served("consumer_group_heartbeat", 0, 1),
        69: _served("consumer_group_describe", 0, 1),
        74: _served("list_config_resources", 0, 1),
        75: _served("describe_topic_partitions", 0, 0),
        80: _served("add_raft_voter", 0, 1),
        81: _served("remove_raft_voter", 0, 0),
    }
)

# With transaction.two.phase.commit.enable. InitProducerId v6 (KIP-939) is unstable in Kafka 4.3.
TWO_PHASE_COMMIT_SERVED: Mapping[int, Served] = MappingProxyType(
    {**SERVED, 22: _served("init_producer_id", 0, 6)}
)

# For requests of other controllers, of brokers and of tools.
CONTROLLER_SERVED: Mapping[int, Served] = MappingProxyType(
    {
        1: _served("quorum_fetch", 17, 18),
        17: SERVED[17],
        18: SERVED[18],
        19: SERVED[19],
        20: SERVED[20],
        29: SERVED[29],
        30: SERVED[30],
        31: SERVED[31],
        32: SERVED[32],
        33: SERVED[33],
        36: SERVED[36],
        37: SERVED[37],
        38: SERVED[38],
        39: SERVED[39],
        40: SERVED[40],
        41: SERVED[41],
        43: SERVED[43],
        44: SERVED[44],
        45: SERVED[45],
        46: SERVED[46],
        49: SERVED[49],
        50: SERVED[50],
        51: SERVED[51],
        52: _served("vote", 0, 2),
        53: _served("begin_quorum_epoch", 0, 1),
        54: _served("end_quorum_epoch", 0, 1),
        55: SERVED[55],
        56: _served("alter_partition", 2, 3),
        57: SERVED[57],
        58: _served("envelope", 0, 0),
        59: _served("fetch_snapshot", 0, 1),
        60: SERVED[60],
        62: _served("broker_registration", 0, 4),
        63: _served("broker_heartbeat", 0, 2),
        64: SERVED[64],
        67: _served("allocate_producer_ids", 0, 0),
        70: _served("controller_registration", 0, 0),
        73: _served("assign_replicas_to_dirs", 0, 0),
        80: SERVED[80],
        81: SERVED[81],
        82: _served("update_raft_voter", 0, 0),
    }
)


def load(api_key: int, served: Mapping[int, Served] = SERVED) -> Handler:
    """Return the handler of an API in the table, and import it on first use."""
    return _handler(served[api_key].module)


@cache
def _handler(module: str) -> Handler:
    handle: Handler = import_module(module).handle
    return handle
