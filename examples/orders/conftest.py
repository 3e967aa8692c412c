from __future__ import annotations

import pytest
from shop import Shop

from penstock.testing import ClientConfigs, ProcessCluster


@pytest.fixture
def shop(
    penstock_cluster: ProcessCluster, penstock_clients: ClientConfigs, penstock_group: str
) -> Shop:
    return Shop(penstock_cluster, penstock_clients, penstock_group)
