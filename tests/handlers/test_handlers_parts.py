"""The parts that a node gives to its handlers have everything that each handler declares.

mypy proves it: a handler whose `Parts` has a member that `BrokerParts` or `ControllerParts` lacks
does not fit the parameter of `on_broker` or `on_controller`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from penstock.handlers import (
    CONTROLLER_SERVED,
    SERVED,
    Served,
    add_offsets_to_txn,
    add_partitions_to_txn,
    add_raft_voter,
    allocate_producer_ids,
    alter_configs,
    alter_partition,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    api_versions,
    assign_replicas_to_dirs,
    begin_quorum_epoch,
    broker_heartbeat,
    broker_registration,
    consumer_group_describe,
    consumer_group_heartbeat,
    controller_registration,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    describe_topic_partitions,
    describe_transactions,
    elect_leaders,
    end_quorum_epoch,
    end_txn,
    envelope,
    fetch,
    fetch_snapshot,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    quorum_fetch,
    remove_raft_voter,
    sync_group,
    txn_offset_commit,
    unregister_broker,
    update_features,
    update_raft_voter,
    vote,
    write_txn_markers,
)
from penstock.handlers.context import RequestContext
from penstock.handlers.parts import BrokerParts, ControllerParts


def on_broker(handle: Callable[[BrokerParts, Any, RequestContext], object]) -> str:
    return handle.__module__


def on_controller(handle: Callable[[ControllerParts, Any, RequestContext], object]) -> str:
    return handle.__module__


ON_BROKERS = [
    on_broker(add_offsets_to_txn.handle),
    on_broker(add_partitions_to_txn.handle),
    on_broker(add_raft_voter.handle),
    on_broker(alter_configs.handle),
    on_broker(alter_replica_log_dirs.handle),
    on_broker(api_versions.handle),
    on_broker(consumer_group_describe.handle),
    on_broker(consumer_group_heartbeat.handle),
    on_broker(create_partitions.handle),
    on_broker(create_topics.handle),
    on_broker(delete_groups.handle),
    on_broker(delete_records.handle),
    on_broker(delete_topics.handle),
    on_broker(describe_cluster.handle),
    on_broker(describe_configs.handle),
    on_broker(describe_groups.handle),
    on_broker(describe_log_dirs.handle),
    on_broker(describe_producers.handle),
    on_broker(describe_quorum.handle),
    on_broker(describe_topic_partitions.handle),
    on_broker(describe_transactions.handle),
    on_broker(alter_partition_reassignments.handle),
    on_broker(list_partition_reassignments.handle),
    on_broker(elect_leaders.handle),
    on_broker(end_txn.handle),
    on_broker(fetch.handle),
    on_broker(find_coordinator.handle),
    on_broker(heartbeat.handle),
    on_broker(incremental_alter_configs.handle),
    on_broker(init_producer_id.handle),
    on_broker(join_group.handle),
    on_broker(leave_group.handle),
    on_broker(list_config_resources.handle),
    on_broker(list_groups.handle),
    on_broker(list_offsets.handle),
    on_broker(list_transactions.handle),
    on_broker(metadata.handle),
    on_broker(offset_commit.handle),
    on_broker(offset_delete.handle),
    on_broker(offset_fetch.handle),
    on_broker(offset_for_leader_epoch.handle),
    on_broker(produce.handle),
    on_broker(remove_raft_voter.handle),
    on_broker(sync_group.handle),
    on_broker(txn_offset_commit.handle),
    on_broker(unregister_broker.handle),
    on_broker(update_features.handle),
    on_broker(write_txn_markers.handle),
]

ON_CONTROLLERS = [
    on_controller(add_raft_voter.handle),
    on_controller(controller_registration.handle),
    on_controller(remove_raft_voter.handle),
    on_controller(update_raft_voter.handle),
    on_controller(allocate_producer_ids.handle),
    on_controller(alter_configs.handle),
    on_controller(alter_partition.handle),
    on_controller(api_versions.handle),
    on_controller(assign_replicas_to_dirs.handle),
    on_controller(begin_quorum_epoch.handle),
    on_controller(broker_heartbeat.handle),
    on_controller(broker_registration.handle),
    on_controller(create_partitions.handle),
    on_controller(create_topics.handle),
    on_controller(delete_topics.handle),
    on_controller(describe_cluster.handle),
    on_controller(describe_configs.handle),
    on_controller(describe_quorum.handle),
    on_controller(alter_partition_reassignments.handle),
    on_controller(list_partition_reassignments.handle),
    on_controller(elect_leaders.handle),
    on_controller(end_quorum_epoch.handle),
    on_controller(envelope.handle),
    on_controller(fetch_snapshot.handle),
    on_controller(incremental_alter_configs.handle),
    on_controller(quorum_fetch.handle),
    on_controller(unregister_broker.handle),
    on_controller(update_features.handle),
    on_controller(vote.handle),
]


@pytest.mark.parametrize(
    ("served", "checked"), [(SERVED, ON_BROKERS), (CONTROLLER_SERVED, ON_CONTROLLERS)]
)
def test_the_parts_of_every_served_api_are_checked(
    served: Mapping[int, Served], checked: list[str]
) -> None:
    assert sorted(checked) == sorted(api.module for api in served.values())
