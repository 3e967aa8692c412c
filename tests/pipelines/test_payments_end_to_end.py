"""The whole pipeline on a small stream in several batches: its output is correct to the cent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import penstock
from penstock.client.client import Client
from penstock.spark.pipeline import Pipeline
from penstock.world import World
from penstock.world.real import run
from pipelines.payments import pipeline
from pipelines.payments.audit import audit, read_output
from pipelines.payments.events import Scenario
from pipelines.payments.generate import send
from pipelines.payments.truth import Truth
from tests.spark.live import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

# In one pytest-xdist worker, with the shared Spark session.
pytestmark = pytest.mark.xdist_group("spark")

SCENARIO = Scenario(payments=2_000, customers=100, merchants=4, seed=3)


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with penstock.Cluster({"num.partitions": "2"}) as cluster:
        yield cluster.bootstrap_servers


def produce(servers: str) -> Truth:
    async def work(world: World) -> Truth:
        async with Client(world, servers) as client:
            return await send(client, SCENARIO)

    return run(work)


class SmallBatchPipeline(Pipeline):
    def read(self, *topics: str, **options: str) -> DataFrame:
        return super().read(*topics, maxOffsetsPerTrigger="1100", **options)


def drain(writer: DataStreamWriter, checkpoint: Path) -> tuple[int, int]:
    """Run a query to its end. Return the rows it read, and those dropped as late."""
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination()
    late = [
        operator.numRowsDroppedByWatermark
        for progress in query.recentProgress
        for operator in progress.stateOperators
    ]
    return sum(progress.numInputRows for progress in query.recentProgress), sum(late)


def test_output_equals_what_was_sent(servers: str, tmp_path: Path) -> None:
    truth = produce(servers)
    assert truth.malformed
    assert truth.duplicates
    assert {rule for _payment, rule in truth.fraud} == {"velocity", "amount"}
    spark = session()
    # Sequentially: each query starts Python processes, for which Spark waits only ten seconds. On
    # a busy machine several together exceed that.
    for name, writer in pipeline.build(
        SmallBatchPipeline(spark, servers, {"tables": str(tmp_path)})
    ).items():
        assert drain(writer, tmp_path / "checkpoint" / name) == (truth.records, 0)
    lines = audit(truth, read_output(servers, tmp_path))
    assert [line for line in lines if not line.correct] == [], lines
