"""The clients of `bench.crowd` and `bench.curves`, in a process of their own: idle connections, and
members of consumer groups that send heartbeats."""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from collections.abc import Iterable
from contextlib import suppress
from multiprocessing.connection import Connection as Pipe
from typing import Any

from penstock.client.connection import Connection, open_connection
from penstock.client.errors import check
from penstock.errors import ErrorCode
from penstock.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from penstock.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from penstock.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from penstock.world import World
from penstock.world.real import run

TIMEOUT_S = 120.0
HEARTBEAT_S = 3.0  # Kafka's default
_AT_ONCE = 200
_OLD = 3  # the last version that accepts a member without an id


class Crowd:
    """`with Crowd(bootstrap) as crowd`: the process ends with the block."""

    def __init__(self, bootstrap: str) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, bootstrap), daemon=True)

    def __enter__(self) -> Crowd:
        self._process.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._process.kill()
        self._process.join()

    def connect(self, number: int) -> float:
        """Open more connections; return the seconds until all have got an ApiVersions response."""
        return self._ask("connect", number)

    def join(self, groups: int) -> float:
        """Start groups of one member; return the seconds until all members are assigned."""
        return self._ask("join", groups)

    def rebalance(self) -> float:
        """Add a second member to each group; return the seconds until all members are assigned."""
        return self._ask("rebalance")

    def _ask(self, name: str, *arguments: int) -> float:
        self._pipe.send((name, *arguments))
        result: float | str = self._pipe.recv()
        if isinstance(result, str):
            raise SystemExit(f"the crowd failed: {name}{arguments}: {result}")
        return result


def _serve(pipe: Pipe, bootstrap: str) -> None:
    run(lambda world: _Clients(world, bootstrap).serve(pipe))


class _Clients:
    def __init__(self, world: World, bootstrap: str) -> None:
        self._world = world
        self._host, port = bootstrap.rsplit(":", 1)
        self._port = int(port)
        self._idle: list[Connection] = []
        self._members: list[_Member] = []
        self._heartbeats: asyncio.Task[None] | None = None

    async def serve(self, pipe: Pipe) -> None:
        while True:
            name, *arguments = await asyncio.to_thread(pipe.recv)
            began = time.perf_counter()
            try:
                await getattr(self, name)(*arguments)
            except Exception as error:  # The benchmark ends with it.
                pipe.send(repr(error))
                raise
            pipe.send(time.perf_counter() - began)

    async def connect(self, number: int) -> None:
        self._idle += await self._opened(number)

    async def join(self, groups: int) -> None:
        await self._without_heartbeats()
        connections = await self._opened(groups)
        known = len(self._members)
        added = [
            _Member(connection, f"crowd-{number}")
            for number, connection in enumerate(connections, known)
        ]
        await asyncio.gather(*(member.join() for member in added))
        self._members += added
        self._heartbeats = asyncio.create_task(self._send_heartbeats())

    async def rebalance(self) -> None:
        await self._without_heartbeats()
        connections = await self._opened(len(self._members))
        pairs = list(zip(self._members, connections, strict=True))
        added = [_Member(connection, first.group) for first, connection in pairs]
        joining = [asyncio.create_task(member.join()) for member in added]
        await asyncio.gather(*(member.rejoin() for member in self._members), *joining)
        self._members += added
        self._heartbeats = asyncio.create_task(self._send_heartbeats())

    async def _opened(self, number: int) -> list[Connection]:
        opened: list[Connection] = []
        while len(opened) < number:
            some = min(_AT_ONCE, number - len(opened))
            opened += await asyncio.gather(*(self._open() for _ in range(some)))
        return opened

    async def _open(self) -> Connection:
        return await open_connection(
            self._world,
            self._host,
            self._port,
            client_id="crowd",
            connect_timeout_s=TIMEOUT_S,
            request_timeout_s=TIMEOUT_S,
        )

    async def _send_heartbeats(self) -> None:
        while True:
            began = time.perf_counter()
            for member in self._members:
                check(await member.heartbeat(), "Heartbeat")
            await asyncio.sleep(max(0.0, began + HEARTBEAT_S - time.perf_counter()))

    async def _without_heartbeats(self) -> None:
        if self._heartbeats is not None:
            self._heartbeats.cancel()
            with suppress(asyncio.CancelledError):
                await self._heartbeats


class _Member:
    """A member of a classic group, which asks for nothing of its assignment."""

    def __init__(self, connection: Connection, group: str) -> None:
        self.group = group
        self._connection = connection
        self._id = ""
        self._generation = -1

    async def join(self) -> None:
        """Join and get an assignment. The first FindCoordinator creates __consumer_offsets."""
        protocols = (JoinGroupRequest.Protocol(name="any", metadata=b""),)
        while not self._id:
            request = FindCoordinatorRequest(key=self.group, key_type=0)
            found = await self._call(request, FindCoordinatorResponse)
            if found.error_code != ErrorCode.COORDINATOR_NOT_AVAILABLE:
                check(found.error_code, "FindCoordinator")
                break
            await asyncio.sleep(0.1)
        while True:
            join = JoinGroupRequest(
                group_id=self.group,
                session_timeout_ms=45_000,
                rebalance_timeout_ms=60_000,
                member_id=self._id,
                protocol_type="bench",
                protocols=protocols,
            )
            joined = await self._call(join, JoinGroupResponse)
            if joined.error_code in (
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                ErrorCode.NOT_COORDINATOR,
            ):
                await asyncio.sleep(0.1)  # the coordinator is being created
                continue
            check(joined.error_code, "JoinGroup")
            self._id, self._generation = joined.member_id, joined.generation_id
            members = joined.members if joined.leader == self._id else ()
            synced = await self._sync(member.member_id for member in members)
            if synced != ErrorCode.REBALANCE_IN_PROGRESS:
                check(synced, "SyncGroup")
                return

    async def _sync(self, members: Iterable[str]) -> int:
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=self._generation,
            member_id=self._id,
            assignments=tuple(
                SyncGroupRequest.Assignment(member_id=member, assignment=b"") for member in members
            ),
        )
        return int((await self._call(request, SyncGroupResponse)).error_code)

    async def rejoin(self) -> None:
        """Join again as soon as the coordinator says that another member wants to."""
        while await self.heartbeat() == ErrorCode.NONE:
            await asyncio.sleep(0.02)
        await self.join()

    async def heartbeat(self) -> int:
        request = HeartbeatRequest(
            group_id=self.group, generation_id=self._generation, member_id=self._id
        )
        return int((await self._call(request, HeartbeatResponse)).error_code)

    async def _call(self, request: object, response: type[Any]) -> Any:
        return await self._connection.call(request, response, max_version=_OLD)
