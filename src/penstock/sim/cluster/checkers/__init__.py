"""The checkers of cluster runs. Each checks one rule of docs/INVARIANTS.md over a history.

Rule 26 (clocks do not matter for safety) holds if all other checkers pass although clocks jump;
the checker listed for it covers availability.
"""

from __future__ import annotations

from penstock.sim.cluster.checkers import (
    clients,
    compaction,
    damage,
    groups,
    quorum,
    replication,
)
from penstock.sim.cluster.history import Checker

# (rule of INVARIANTS.md, checker)
CHECKERS: tuple[tuple[int, Checker], ...] = (
    (1, clients.no_acknowledged_write_is_lost),
    (1, clients.no_created_topic_is_lost),
    (1, clients.no_consumed_record_is_reported_truncated),
    (1, clients.retention_deletes_no_more_than_it_may),
    (1, compaction.last_value_of_each_key_survives),
    (2, clients.no_false_acknowledgement),
    (2, replication.no_commit_below_min_insync),
    (3, clients.one_value_per_offset),
    (3, compaction.compaction_keeps_the_order),
    (4, clients.no_duplicate_from_an_idempotent_producer),
    (5, clients.log_order_is_send_order),
    (6, clients.offsets_are_dense),
    (7, replication.high_watermark_never_goes_back),
    (7, replication.high_watermark_is_in_every_isr_log),
    (8, clients.nothing_above_the_high_watermark_is_served),
    (8, clients.impostors_get_nothing_more),
    (9, replication.logs_match),
    (10, replication.only_eligible_replicas_are_elected),
    (10, replication.leaders_are_complete),
    (11, replication.divergence_is_truncated_by_epoch),
    (12, replication.stale_leaders_append_nothing),
    (12, replication.stale_broker_epochs_acknowledge_nothing),
    (12, clients.no_record_comes_from_elsewhere),
    (12, groups.stale_members_commit_nothing),
    (12, groups.former_owners_commit_nothing),
    (12, groups.replaced_members_commit_nothing),
    (13, groups.committed_offsets_never_go_back),
    (14, groups.one_owner_per_generation),
    (16, quorum.one_vote_per_epoch),
    (16, quorum.one_quorum_leader_per_epoch),
    (17, quorum.metadata_is_committed_by_a_majority),
    (17, quorum.metadata_agrees),
    (20, damage.damage_is_contained),
    (24, damage.synced_records_survive_power_loss),
    (25, clients.cluster_heals),
    (25, damage.majorities_commit),
    (25, groups.members_that_are_heard_stay),
    (26, clients.clock_jumps_move_no_leader),
)
