"""The background tasks of a node: a failed task stops the node."""

from __future__ import annotations

import asyncio

import pytest

from penstock.node.supervisor import Supervisor


async def fail(message: str) -> None:
    raise ValueError(message)


def test_wait_failed_raises_the_first_error() -> None:
    async def main() -> None:
        supervisor = Supervisor()
        supervisor.spawn(asyncio.sleep(0))
        await asyncio.sleep(0.01)
        assert not supervisor.has_failed
        supervisor.spawn(fail("first"))
        with pytest.raises(ValueError, match="first"):
            await supervisor.wait_failed()
        supervisor.fail(ValueError("second"))
        with pytest.raises(ValueError, match="first"):
            await supervisor.wait_failed()

    asyncio.run(main())


def test_cancelled_tasks_end_and_are_no_failure() -> None:
    async def main() -> None:
        supervisor = Supervisor()
        ended = asyncio.Event()

        async def work() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

        supervisor.spawn(work())
        await asyncio.sleep(0)
        await supervisor.cancel_all()
        assert ended.is_set()
        assert not supervisor.has_failed

    asyncio.run(main())
