"""Runs all checks on an observation: one finding per cause, the most severe first."""

from __future__ import annotations

from itertools import chain

from penstock.health.clients import check_clients
from penstock.health.connections import check_connections
from penstock.health.findings import Finding, by_severity, merged
from penstock.health.groups import check_groups
from penstock.health.links import check_links
from penstock.health.machines import check_machines
from penstock.health.mistakes import check_mistakes
from penstock.health.observations import Observation
from penstock.health.partitions import check_brokers, check_partitions
from penstock.health.quorum import check_quorum
from penstock.health.repairs import check_repairs
from penstock.health.spark import check_queries
from penstock.health.transactions import check_transactions

CHECKS = (
    check_connections,
    check_clients,
    check_quorum,
    check_brokers,
    check_partitions,
    check_groups,
    check_transactions,
    check_queries,
    check_links,
    check_machines,
    check_repairs,
    check_mistakes,
)


def examine(seen: Observation) -> list[Finding]:
    return by_severity(merged(chain.from_iterable(check(seen) for check in CHECKS)))
