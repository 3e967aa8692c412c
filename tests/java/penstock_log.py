"""Write a log directory with Penstock for Apache Kafka to read: several segments, every codec,
transactions, a clean shutdown."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

from penstock.config.topic import LogConfig, TimestampType
from penstock.ids import TopicPartition
from penstock.log.directory import LogDirectory
from penstock.log.files import OpenFiles
from penstock.log.flush import save_epochs
from penstock.log.log import Log
from penstock.log.open import create_log
from penstock.records.build import NewRecord, build_batch, end_transaction_marker
from penstock.records.compression import Codec
from penstock.world import World
from penstock.world.real import run

FIRST_TIMESTAMP = 1_700_000_000_000
SMALL = LogConfig(segment_bytes=2_000, index_interval_bytes=200)
EPOCH = 0
TOPICS = ("segments", "codecs", "transactions", "append-time")
# The offsets of `transactions` that read_committed returns. The last stable offset is 13, the start
# of the open transaction.
COMMITTED_OFFSETS = [0, 1, 2, 7, 8, 11]


def write_penstock_log(directory: Path, topic_ids: dict[str, UUID]) -> None:
    """Write partition 0 of each of the TOPICS."""

    async def write(world: World) -> None:
        opened = LogDirectory(str(directory), UUID(int=4242))
        files = OpenFiles(world.disk)

        def new(topic: str, config: LogConfig) -> Log:
            return create_log(
                TopicPartition(topic, 0), topic_ids[topic], opened, files, world, config
            )

        logs = [new("segments", SMALL), new("codecs", SMALL), new("transactions", SMALL)]
        logs.append(
            new("append-time", LogConfig(message_timestamp_type=TimestampType.LOG_APPEND_TIME))
        )
        for fill, log in zip(
            (_fill_segments, _fill_codecs, _fill_transactions, _fill_plainly), logs, strict=True
        ):
            fill(log)
            await log.flushing.all()
            log.save()
        await save_epochs(world, logs)

    run(write)


def _records(text: str, count: int, at: int = 0) -> list[NewRecord]:
    headers = (("text", text.encode()), ("empty", None))
    return [
        NewRecord(
            f"key-{i}".encode(),
            f"{text}-{i}".encode(),
            headers if i % 3 == 0 else (),
            FIRST_TIMESTAMP + at + i,
        )
        for i in range(count)
    ]


def _fill_plainly(log: Log) -> None:
    for number in range(5):
        log.append_as_leader(build_batch(_records(f"plain-{number}", 3, 100 * number)), EPOCH)


def _fill_segments(log: Log) -> None:
    """Write with an idempotent producer, for the snapshots; the clock steps back once."""
    sequence = 0
    for number in range(60):
        at = 100 * number - (3_000 if number > 30 else 0)
        batch = build_batch(
            _records(f"segment-{number}", 1 + number % 3, at),
            producer_id=7,
            producer_epoch=0,
            base_sequence=sequence,
        )
        log.append_as_leader(batch, EPOCH)
        sequence += 1 + number % 3


def _fill_codecs(log: Log) -> None:
    for codec in Codec:
        for number in range(3):
            log.append_as_leader(
                build_batch(
                    _records(f"{codec.name} " * 20, 10, 1000 * codec + 100 * number), codec=codec
                ),
                EPOCH,
            )


def _fill_transactions(log: Log) -> None:
    """Producer 1 commits, 2 aborts, two transactions interleave, 3 stays open; a marker is last."""
    _in_transaction(log, 1, 0, 3)
    _end(log, 1, commit=True)
    _in_transaction(log, 2, 0, 2)
    _end(log, 2, commit=False)
    _in_transaction(log, 1, 3, 2)
    _in_transaction(log, 2, 2, 2)
    _in_transaction(log, 1, 5, 1)
    _end(log, 2, commit=False)
    _in_transaction(log, 3, 0, 2)
    _end(log, 1, commit=True)


def _in_transaction(log: Log, producer_id: int, sequence: int, count: int) -> None:
    records = _records(f"producer-{producer_id}", count, 10 * log.end_offset)
    batch = build_batch(
        records,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=sequence,
        transactional=True,
    )
    log.append_as_leader(batch, EPOCH)


def _end(log: Log, producer_id: int, *, commit: bool) -> None:
    marker = end_transaction_marker(
        commit=commit,
        producer_id=producer_id,
        producer_epoch=0,
        coordinator_epoch=0,
        timestamp=FIRST_TIMESTAMP + 10 * log.end_offset,
    )
    log.append_as_leader(marker, EPOCH, from_client=False)
