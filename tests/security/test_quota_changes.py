"""Requests that alter the same quota at the same time."""

from __future__ import annotations

import asyncio

import pytest

import penstock
from penstock.client.admin.quotas import alter_client_quotas, describe_client_quotas
from penstock.client.client import Client
from penstock.security.quotas.entities import QuotaEntity, QuotaFilter
from penstock.world import World
from penstock.world.real import run

ALICE: QuotaEntity = (("user", "alice"),)


def test_requests_that_alter_one_quota_do_not_wait_for_values_that_are_overwritten(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The records of all of them are applied together. Each of the others waited for two
    seconds for its own value."""

    async def scenario(world: World) -> dict[QuotaEntity, dict[str, float]]:
        async with Client(world, cluster.bootstrap_servers) as client:
            await asyncio.gather(
                *(
                    alter_client_quotas(
                        client.cluster, {ALICE: {"producer_byte_rate": rate}}, validate_only=False
                    )
                    for rate in range(1_000, 1_020)
                )
            )
            return await describe_client_quotas(client.cluster, QuotaFilter())

    with penstock.Cluster() as cluster:
        assert run(scenario) == {ALICE: {"producer_byte_rate": 1_019}}
    assert "a committed change is not in this node's metadata" not in caplog.text
