"""Run tests/java/Transactions.java against a cluster, and set the cluster's transaction.version."""

from __future__ import annotations

import re
import time
from uuid import uuid4

from penstock.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tests.e2e.raw_connection import RawConnection
from tests.java.kafka_jars import compile_java, run_java
from tests.java.kafka_tools import FEATURES, Tools

FEATURE = "transaction.version"
# Apache Kafka looks for expired transactions every 10 s by default.
QUICK_TIMEOUTS = "transaction.abort.timed.out.transaction.cleanup.interval.ms"
DEADLINE_S = 60.0


def transcript(bootstrap: str, prefix: str | None = None) -> dict[str, str]:
    """Return what the program prints, by scenario."""
    prefix = prefix or f"t{uuid4().hex[:8]}"
    printed = run_java("Transactions", bootstrap, prefix, classes=compile_java("Transactions"))
    # Which partition of __consumer_offsets a group has depends on the prefix only.
    parts = re.split(r"(?m)^# (.*)\n", printed)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def set_transaction_version(bootstrap: str, level: int) -> None:
    """Finalize a level of transaction.version, and wait until every broker knows it."""
    addresses = bootstrap.split(",")
    if all(finalized(address) == level for address in addresses):
        return
    change = "upgrade" if finalized(addresses[0]) < level else "downgrade"
    Tools(bootstrap)(FEATURES, change, "--feature", f"{FEATURE}={level}")
    deadline = time.monotonic() + DEADLINE_S
    while any(finalized(address) != level for address in addresses):
        assert time.monotonic() < deadline, f"{FEATURE} is not {level} on every broker"
        time.sleep(0.05)


def finalized(address: str) -> int:
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    with RawConnection(address) as connection:
        response = connection.request(request, 3, ApiVersionsResponse)
    levels = {each.name: each.max_version_level for each in response.finalized_features}
    return levels.get(FEATURE, 0)
