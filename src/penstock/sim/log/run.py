"""Runs a store of logs under random operations and faults: torn and lost writes, power loss,
kill -9, failing and full disks, flipped bits, logs that are deleted and created again (rules 1, 6,
7, 20, 21, 22, 23)."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import itertools
import random
from collections.abc import Iterator
from functools import partial
from uuid import UUID

from penstock.config.topic import LogConfig
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import NO_UUID, TopicPartition
from penstock.log.directory import LogDirectory
from penstock.log.log import Log
from penstock.log.saved_offsets import StillListed
from penstock.log.store import LogStore
from penstock.records.build import build_batch, end_transaction_marker
from penstock.records.compression import Codec
from penstock.sim.harness import InvariantViolated
from penstock.sim.log.model import LogModel
from penstock.world import Disk, World
from penstock.world.sim import Node, NodeCrashed, SimDisk, Simulation

DIRECTORIES = ("/d0", "/d1")
PROCESSES = 5


def run_log(seed: int) -> str:
    """Run one seed and return the digest of its trace. Raise InvariantViolated with the end of the
    trace if a rule does not hold."""
    simulation = Simulation(seed, trace_lines=40)
    try:
        simulation.run(LogRun(simulation).main())
    except Exception as error:
        tail = "\n".join(simulation.trace.lines())
        raise InvariantViolated(
            f"log seed {seed}: {error}\nthe end of the trace:\n{tail}\n"
            f"repeat with: python -m penstock.sim --seed {seed}"
        ) from error
    return simulation.trace.digest()


class LogRun:
    """Several processes of one node. Each ends with a crash, and each starts by checking what the
    last one left on disk."""

    def __init__(self, simulation: Simulation) -> None:
        self.rng: random.Random = simulation.stream("workload")
        self.deletions: random.Random = simulation.stream("deletions")
        self.node: Node = simulation.node("n1")
        self.trace = simulation.trace
        self.config = LogConfig(
            segment_bytes=self.rng.choice((600, 2_000, 20_000)),
            index_interval_bytes=self.rng.choice((0, 200, 4_096)),
            flush_messages=self.rng.choice((1, 1, 7, 2**63 - 1)),
            retention_ms=-1,
            file_delete_delay_ms=self.rng.choice((0, 1_000)),
        )
        self.topic_ids = (UUID(int=number) for number in itertools.count(7))
        self.models = {
            TopicPartition("t", number): LogModel(next(self.topic_ids))
            for number in range(self.rng.randrange(1, 4))
        }
        self.epoch = 0
        # Whether the machine lost power since the logs were last checked.
        self.power_lost = False

    async def main(self) -> None:
        for _process in range(PROCESSES):
            flipped = self._flip_bit() if self.rng.random() < 0.1 else None
            await self._open_and_check(flipped)
            if flipped is not None:
                return
            await self._run_process()

    # One process

    async def _open_and_check(self, flipped: str | None) -> None:
        """Open the store and check its logs. Some crashes interrupt the recovery first."""
        while self.rng.random() < 0.2:
            world = self.node.restart()
            self.node.drive.stop_after(self.rng.randrange(12))
            with contextlib.suppress(NodeCrashed):
                await self.node.run(self._open(world))
            self._crash()
        self.store = await self.node.run(self._open(self.node.restart()))
        await self.node.run(self._check(flipped))

    async def _open(self, world: World) -> LogStore:
        for path in DIRECTORIES:
            world.disk.make_dirs(path)
            world.disk.sync_dir("/")
        store = LogStore(
            world,
            [LogDirectory(path, UUID(int=n + 1_000)) for n, path in enumerate(DIRECTORIES)],
            open_files=5,
        )
        await store.open(lambda _partition: self.config)
        return store

    async def _check(self, flipped: str | None) -> None:
        high_watermarks = self.store.offsets.read_high_watermarks()
        for partition, model in self.models.items():
            log = self._log_of(partition, model, flipped)
            if log is None:
                self._check_absent(partition, model, flipped)
            elif flipped is not None:
                model.check_damaged(log)
            else:
                model.check_recovered(log, all_survives=not self.power_lost)
                model.check_high_watermark(high_watermarks.get(partition, 0))
                self.trace.note(str(partition), log.start_offset, log.end_offset)
        self.power_lost = False

    def _log_of(
        self, partition: TopicPartition, model: LogModel, flipped: str | None
    ) -> Log | None:
        """Return the log of a model. Lost power may undo the deletion of an earlier log of the same
        name, and a broker then deletes it again."""
        log = self.store.logs.get(partition)
        if log is None or log.topic_id in (NO_UUID, model.topic_id):
            return log
        if not self.power_lost and flipped is None:
            raise InvariantViolated(f"{partition} was deleted, but its log is there again")
        self.store.delete(partition)
        return None

    def _check_absent(
        self, partition: TopicPartition, model: LogModel, flipped: str | None
    ) -> None:
        if flipped is not None:
            return
        if partition in self.store.damaged:
            raise InvariantViolated(
                f"{partition} is marked damaged, but no bit was flipped: "
                f"{self.store.damaged[partition]}"
            )
        if model.synced > 0 or (model.history and not self.power_lost):
            raise InvariantViolated(
                f"{partition} is lost, but offsets below {model.synced} were reported synced"
            )
        self.models[partition] = LogModel(model.topic_id)

    async def _run_process(self) -> None:
        """Work until a crash at a random time, or at a random change to the disk."""
        if self.rng.random() < 0.3:
            self._break_disk()
        if self.rng.random() < 0.5:
            self.node.drive.stop_after(self.rng.randrange(400))
        work = self.node.start(self._work())
        await asyncio.wait([work], timeout=self.rng.random() * 2)
        self._crash()
        await asyncio.wait([work])
        self.node.drive.heal()
        self.node.drive.capacity_bytes = None

    def _crash(self) -> None:
        power_loss = self.rng.random() < 0.7
        self.power_lost |= power_loss
        self.node.crash(power_loss=power_loss)

    async def _work(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                writers = [group.create_task(self._write(partition)) for partition in self.models]
                upkeep = group.create_task(self._upkeep())
                await asyncio.wait(writers)
                upkeep.cancel()
            if self.rng.random() < 0.7:
                await self._close()
        except* NodeCrashed:
            self.trace.note("stopped")

    async def _close(self) -> None:
        """Shut down cleanly. Everything is synced afterwards."""
        await self.store.close()
        for partition, log in self.store.logs.items():
            if log.directory.failure is None:
                self.models[partition].synced = log.end_offset

    async def _write(self, partition: TopicPartition) -> None:
        for _step in range(self.rng.randrange(5, 60)):
            try:
                if self.deletions.random() < 0.02 and partition in self.store.logs:
                    self._delete(partition)
                log = self.store.logs.get(partition) or await self._create(partition)
                await self._step(partition, log, self.models[partition])
            except KafkaError as error:
                if error.code != ErrorCode.KAFKA_STORAGE_ERROR:
                    raise
                self._check_offline(partition)
                return
            await asyncio.sleep(self.rng.random() * 0.02)

    def _delete(self, partition: TopicPartition) -> None:
        self.store.delete(partition)
        self.models[partition] = LogModel(next(self.topic_ids))

    async def _create(self, partition: TopicPartition) -> Log:
        create = partial(self.store.create, partition, self.models[partition].topic_id, self.config)
        try:
            return create()
        except StillListed:
            await self.store.offsets.forget_deleted(self._high_watermarks())
            return create()

    def _high_watermarks(self) -> dict[TopicPartition, int]:
        """Return what is synced as the high watermarks of a checkpoint that is being written."""
        for model in self.models.values():
            model.highest_watermark = max(model.highest_watermark, model.synced)
        return {partition: model.synced for partition, model in self.models.items()}

    async def _step(self, partition: TopicPartition, log: Log, model: LogModel) -> None:
        draw = self.rng.random()
        if draw < 0.05 and log.end_offset > log.start_offset:
            await self._truncate(partition, log, model)
        elif draw < 0.08:
            model.highest_start = max(
                model.highest_start, min(log.flushing.recovery_point, log.end_offset)
            )
            log.advance_start(min(log.flushing.recovery_point, log.end_offset))
        elif draw < 0.10:
            log.roll()
        else:
            await self._append(log, model)

    async def _append(self, log: Log, model: LogModel) -> None:
        data = bytearray(self._random_batch(log))
        model.appending = data
        appended = log.append_as_leader(data, self.epoch, from_client=False)
        model.appending = None
        model.appended(bytes(data))
        if log.flushing.due() or self.rng.random() < 0.05:
            await log.flushing.to(appended.end_offset)
            model.synced = max(model.synced, appended.end_offset)

    def _random_batch(self, log: Log) -> bytes:
        values = [
            self.rng.randbytes(self.rng.randrange(60)) for _ in range(self.rng.randrange(1, 5))
        ]
        records = [(None, value, (), 1_000_000 + self.rng.randrange(1_000)) for value in values]
        kind = self.rng.random()
        if kind < 0.1:
            return end_transaction_marker(
                commit=kind < 0.05,
                producer_id=9,
                producer_epoch=0,
                coordinator_epoch=0,
                timestamp=1_000_000,
            )
        if kind < 0.3:
            producer = log.producers.producers.get(9)
            sequence = 0 if producer is None else producer.last_sequence + 1
            return build_batch(
                records, producer_id=9, producer_epoch=0, base_sequence=sequence, transactional=True
            )
        return build_batch(records, codec=self.rng.choice(list(Codec)))

    async def _truncate(self, partition: TopicPartition, log: Log, model: LogModel) -> None:
        """Truncate as a follower does after a change of leader, which starts a new epoch."""
        offset = log.start_offset + self.rng.randrange(log.end_offset - log.start_offset + 1)
        model.synced = min(model.synced, log.batch_start(offset))
        model.truncating = True
        await self.store.truncate({partition: offset})
        model.truncated(offset)
        model.truncating = False
        self.epoch += 1

    async def _upkeep(self) -> None:
        while True:
            await asyncio.sleep(self.rng.random() * 0.3)
            try:
                await self.store.expiry.apply(self._high_watermarks())
                await self.store.flush_due()
                await self.store.offsets.save_recovery_points()
                await self.store.offsets.save_start_offsets()
                await self.store.offsets.save_high_watermarks(self._high_watermarks())
                await self.store.remove_due_files()
            except KafkaError as error:
                if error.code != ErrorCode.KAFKA_STORAGE_ERROR:
                    raise
                return

    # Faults

    def _break_disk(self) -> None:
        drive = self.node.drive
        kind = self.rng.random()
        if kind < 0.5:
            drive.fail(self.rng.choice(DIRECTORIES), {"sync"}, errno.EIO, times=1)
        elif kind < 0.75:
            drive.fail(
                self.rng.choice(DIRECTORIES),
                {"pwrite"},
                self.rng.choice((errno.EIO, errno.ENOSPC)),
                times=1,
            )
        else:
            drive.capacity_bytes = self.rng.randrange(40_000)

    def _check_offline(self, partition: TopicPartition) -> None:
        log = self.store.logs.get(partition)
        if log is not None and log.directory.failure is None:
            raise InvariantViolated(
                f"{partition} raised a storage error, but {log.directory.path} is not offline "
                "(rule 22)"
            )

    def _flip_bit(self) -> str | None:
        disk = SimDisk(self.node.drive)
        files = [path for path in _files_under(disk, "") if disk.size(path)]
        if not files:
            return None
        path = self.rng.choice(files)
        self.node.drive.flip_bit(path, self.rng.randrange(disk.size(path)), self.rng.randrange(8))
        return path


def _files_under(disk: Disk, directory: str) -> Iterator[str]:
    for name in disk.list(directory or "/"):
        path = f"{directory}/{name}"
        if disk.is_dir(path):
            yield from _files_under(disk, path)
        else:
            yield path
