"""A shard that reports to the laws of its explorer, and checks those of the runtime: a reply leaves
when everything before it is committed, and a refused step leaves no trace
(`coordinator.runtime.step`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeVar

from penstock.coordinator.runtime.machine import StateMachine
from penstock.coordinator.runtime.step import Now, Reply, Step, Ticket
from penstock.errors import KafkaError
from penstock.node.shards.replies import Replies
from penstock.node.shards.shard import Shard
from penstock.sim.explore.walk import LawBroken

REPLAY = "the log replays to the machine's state"
REPLY_AFTER_COMMIT = "replies leave after the commit"
NO_TRACE = "a refused step leaves no trace"

M = TypeVar("M", bound=StateMachine[Any])
M_contra = TypeVar("M_contra", contravariant=True)
E = TypeVar("E")


class RunnerLaws(Protocol[M_contra]):
    """The laws of a machine. `is_checking_traces` says that a step may be refused."""

    is_checking_traces: bool

    def whole_state(self, machine: M_contra, *, with_deadlines: bool) -> object:
        """Return everything that a step may change, for comparison."""

    def stepped(self, machine: M_contra) -> None:
        """A step was appended."""


class ExploredReplies(Replies):
    """Checks that each reply leaves when it may."""

    def __init__(self, shard: ExploredShard[Any, Any]) -> None:
        super().__init__()
        self._shard = shard
        # Ticket -> the end offset of the log after the step that replied to it.
        self.due: dict[Ticket, int] = {}

    def deliver(self, replies: Iterable[Reply]) -> None:
        shard, replies = self._shard, tuple(replies)
        for ticket, response in replies:
            if shard.step is not None:
                end_offset = 0 if shard.step.immediate else shard.end_offset
            else:
                end_offset = self.due.pop(ticket)
            if not shard.partition.is_committed(end_offset):
                raise LawBroken(
                    REPLY_AFTER_COMMIT,
                    f"{response} left before the records up to {end_offset} were committed",
                )
        super().deliver(replies)


class ExploredShard(Shard[M, E]):
    laws: RunnerLaws[M]

    def observe(self, laws: RunnerLaws[M]) -> None:
        self.laws = laws
        # The step that is being carried out.
        self.step: Step[E] | None = None
        self._explored = self._replies = ExploredReplies(self)

    @property
    def end_offset(self) -> int:
        return self._end

    def _reply_when_committed(self, replies: tuple[Reply, ...]) -> None:
        self._explored.due.update(dict.fromkeys([reply.ticket for reply in replies], self._end))
        super()._reply_when_committed(replies)

    def _run(self, decide: Callable[[Now], Step[E]], *, has_sender: bool = False) -> None:
        partition: Any = self.partition
        is_checked = partition.refusal is not None or self.laws.is_checking_traces
        before = (
            self.laws.whole_state(self.machine, with_deadlines=has_sender) if is_checked else None
        )
        first = partition.log_end_offset

        def capture(now: Now) -> Step[E]:
            self.step = decide(now)
            return self.step

        try:
            super()._run(capture, has_sender=has_sender)
        except KafkaError as error:
            if (
                before is not None
                and self.leads
                and self.laws.whole_state(self.machine, with_deadlines=has_sender) != before
            ):
                raise LawBroken(NO_TRACE, f"the state changed although {error!r}") from error
            raise
        finally:
            self.step = None
        if partition.log_end_offset > first:
            self.laws.stepped(self.machine)
