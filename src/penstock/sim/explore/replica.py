"""Walks over a partition's replicas: leaders, followers, the controller's decisions and how brokers
learn of them, each with delay. `replica_laws` has the laws. In the walks of `MOVES` the
partition is reassigned among four brokers.

Elections are clean. Without flush.messages a broker loses power only while another in-sync replica
runs: more than that is not promised (rule 24). With flush.messages=1 all may lose power.
"""

from __future__ import annotations

from functools import partial
from itertools import count
from typing import NamedTuple
from uuid import UUID

from penstock.controller.partitions.reassignment import is_reassigning
from penstock.errors import ErrorCode
from penstock.metadata.image import MetadataImage, PartitionState
from penstock.sim.explore.replica_broker import (
    LAG_MAX_S,
    ExploredBroker,
    FetchRequest,
    FetchResponse,
    Proposal,
)
from penstock.sim.explore.replica_controller import ExploredController, Result, first_image
from penstock.sim.explore.replica_laws import RECOVERY, ReplicaLaws
from penstock.sim.explore.replica_log import PARTITION, MemoryPartitionLog
from penstock.sim.explore.walk import Choices, Explorer, LawBroken

TURNS = 1_200
RECOVERY_ROUNDS = 1_000

# As in `node.partition.isr_changes`: the leader drops its proposal; or waits for newer metadata.
_REFUSED = (ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA)
_OUTDATED = (
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.INVALID_UPDATE_VERSION,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.NEW_LEADER_ELECTED,
)


class Decision(NamedTuple):
    """The controller's response to a proposal; None if the request failed."""

    sent: Proposal
    result: Result | None


class ReplicaWalk:
    def __init__(self, choices: Choices, *, moves: bool = False) -> None:
        self.choices = choices
        self._moves = moves
        self._reassignments = 0
        self.lines: list[str] | None = None
        self.laws = ReplicaLaws()
        self.network: list[FetchRequest | FetchResponse | Proposal | Decision] = []
        self._flushes = choices.below(3) == 0
        min_insync = (1, 2, 2)[choices.below(3)]
        self.fetch_entries = (1, 2, 100)[choices.below(3)]
        # Percentages: of messages lost, of messages out of order, of turns with a fault.
        self._lost = (1, 5, 15)[choices.below(3)]
        self._reordered = (0, 30, 60)[choices.below(3)]
        self._faults = (2, 5, 10)[choices.below(3)]
        self._controller = ExploredController(
            first_image(
                (1, 2, 3),
                min_insync,
                elr=choices.below(2) == 0,
                more_brokers=(4,) if moves else (),
            )
        )
        self._min_insync = min_insync
        self._numbers = count(1)
        self._uuids = count(1_000_000)
        self.truncations = 0
        self.brokers = {
            number: ExploredBroker(self, number, self.new_log())
            for number in self._controller.image.brokers
        }
        self._brokers = list(self.brokers.values())
        for broker in self._brokers:
            broker.start(1)
            broker.incarnation = self._controller.image.brokers[broker.id].incarnation_id
            broker.epoch = self._controller.image.brokers[broker.id].epoch
            broker.open()

    # What brokers see

    @property
    def images(self) -> list[MetadataImage]:
        return self._controller.images

    def state_at(self, number: int) -> PartitionState:
        return self.images[number].topics[PARTITION.topic].partitions[PARTITION.partition]

    def new_log(self) -> MemoryPartitionLog:
        return MemoryPartitionLog(self._min_insync, flushes=self._flushes)

    def new_uuid(self) -> UUID:
        return UUID(int=next(self._uuids))

    def note(self, *parts: object) -> None:
        if self.lines is not None:
            self.lines.append(" ".join(map(_text, parts)))

    def counts(self) -> dict[str, int]:
        return {
            "elections": len(self.laws.leaders),
            "truncations": self.truncations,
            "committed": len(self.laws.committed),
            "images": len(self.images),
            "reassignments": self._reassignments,
        }

    def close(self) -> None:
        for broker in self._brokers:
            broker.close_tasks()

    # Turns

    def turn(self) -> None:
        choices, brokers, dice = self.choices, self._brokers, self.choices.below(100)
        if dice < self._faults:
            self._fault(brokers[choices.below(len(brokers))])
            return
        if dice < 25:
            chosen = [broker for broker in brokers if not self._is_serving(broker)]
            act = self._live
        elif dice < 40:
            chosen = [broker for broker in brokers if broker.is_leader]
            act = self._append
        elif dice < 55:
            chosen = [broker for broker in brokers if broker.applied < len(self.images)]
            act = self._apply_image
        elif dice < 65:
            chosen = [broker for broker in brokers if broker.tasks]
            act = self._resume
        elif dice < 68:
            chosen, act = brokers, self._review
        elif dice < 85 and self.network:
            self._deliver()
            return
        else:
            chosen, act = brokers, self._send_fetch
        if chosen:
            act(chosen[choices.below(len(chosen))])
        elif self.network:
            self._deliver()

    def _is_serving(self, broker: ExploredBroker) -> bool:
        registered = self._controller.image.brokers[broker.id]
        return (
            broker.is_open
            and registered.epoch == broker.epoch
            and not registered.fenced
            and not registered.in_controlled_shutdown
        )

    def _resume(self, broker: ExploredBroker) -> None:
        self.note(broker.id, "resumes a task")
        broker.resume(self.choices.below(len(broker.tasks)))

    def _review(self, broker: ExploredBroker) -> None:
        seconds = (0.1, 1.0, LAG_MAX_S + 1)[self.choices.below(3)]
        self.note(broker.id, "reviews after", seconds, "s")
        broker.review(seconds)

    def _live(self, broker: ExploredBroker) -> None:
        """Take the broker's next step towards serving its partition."""
        registered = self._controller.image.brokers[broker.id]
        if not broker.is_running:
            applied = max(1, broker.applied - self.choices.below(3))
            self.note(broker.id, "starts with", applied, "images")
            broker.start(applied)
        elif registered.incarnation_id != broker.incarnation:
            self._controller.register(broker)
            broker.has_lost_power = False
            self.note(broker.id, "is registered in epoch", broker.epoch, self._controller.state)
        elif registered.in_controlled_shutdown:
            self.note(broker.id, "shuts down cleanly")
            broker.shut_down()
        elif self.images[broker.applied - 1].offset >= broker.epoch:
            if not broker.is_open:
                broker.open()
                self.note(broker.id, "opens its log", broker.log.start_offset, broker.log.entries)
            elif registered.fenced:
                self._controller.unfence(broker.id)
                self.note(broker.id, "is unfenced", self._controller.state)

    def _append(self, broker: ExploredBroker) -> None:
        if broker.append(next(self._numbers)):
            self.note(broker.id, "appends", broker.log.entries[-1], "at", broker.log.end_offset - 1)

    def _apply_image(self, broker: ExploredBroker) -> None:
        if broker.is_running and broker.applied < len(self.images):
            self.note(broker.id, "learns", self.state_at(broker.applied))
            broker.apply_image()

    def _send_fetch(self, broker: ExploredBroker) -> None:
        request = broker.send_fetch(next(self._numbers))
        if request is not None:
            self.network.append(request)

    # Faults

    def _reassign(self) -> None:
        """Start, replace or cancel a reassignment: to at least two replicas, since one may lose
        power."""
        if any(not self._may_disturb(broker) for broker in self._brokers):
            return
        target: list[int] = []
        size = self.choices.below(3) + 2
        others = list(self.brokers)
        while len(target) < size:
            target.append(others.pop(self.choices.below(len(others))))
        is_cancelled = self.choices.below(4) == 0
        code = self._controller.reassign(None if is_cancelled else tuple(target))
        self._reassignments += code is ErrorCode.NONE
        self.note("cancel" if is_cancelled else target, code.name, self._controller.state)

    def _fault(self, broker: ExploredBroker) -> None:
        if self._moves and self.choices.below(4) == 0:
            self._reassign()
            return
        dice = self.choices.below(12)
        if dice < 5:
            if broker.is_running:
                self._crash(broker, power_loss=dice < 2)
        elif dice < 7:
            if self._may_disturb(broker):
                self._controller.fence(broker.id)
                self.note(broker.id, "is fenced", self._controller.state)
        elif dice < 8:
            self._begin_shutdown(broker)
        elif dice < 9:
            if self._may_disturb(broker):
                self._controller.elect_preferred()
                self.note("preferred election", self._controller.state)
        elif dice < 11:
            broker.save_high_watermark()
        else:
            offset = self.choices.below(broker.log.end_offset + 1)
            self.note(broker.id, "deletes records before", offset)
            broker.delete_records(offset)

    def _may_disturb(self, broker: ExploredBroker) -> bool:
        """Return False while the controller takes another broker for in sync that has lost
        power: two failures at once."""
        state = self._controller.state
        in_sync = {*state.isr, *state.eligible_leader_replicas}
        return self._flushes or not any(
            other.has_lost_power and other.id in in_sync
            for other in self.brokers.values()
            if other is not broker
        )

    def _crash(self, broker: ExploredBroker, *, power_loss: bool) -> None:
        if not self._may_disturb(broker):
            return
        has_peer = any(
            replica != broker.id and self._is_serving(self.brokers[replica])
            for replica in self._controller.state.isr
        )
        kept = None
        if power_loss and (self._flushes or has_peer):
            kept = self.choices.below(3)
        self.note(broker.id, "crashes", "" if kept is None else f"and loses power, keeps {kept}")
        broker.crash(kept)

    def _begin_shutdown(self, broker: ExploredBroker) -> None:
        if not broker.is_open or not self._may_disturb(broker):
            return
        registered = self._controller.image.brokers[broker.id]
        if registered.epoch != broker.epoch:
            return
        self._controller.begin_shutdown(broker.id)
        self.note(broker.id, "begins a controlled shutdown", self._controller.state)

    # The network

    def _deliver(self) -> None:
        choices, network = self.choices, self.network
        index = choices.below(len(network)) if choices.below(100) < self._reordered else 0
        message = network.pop(index)
        is_lost = choices.below(100) < self._lost
        if isinstance(message, FetchRequest):
            self._request(message, is_lost)
        elif isinstance(message, FetchResponse):
            self._respond(message, is_lost)
        elif isinstance(message, Proposal):
            self._propose(message, is_lost)
        else:
            self._decided(message)

    def _request(self, request: FetchRequest, is_lost: bool) -> None:
        """Deliver a fetch. The follower may give up while the request is still under way."""
        leader, follower = self.brokers[request.leader], self.brokers[request.broker]
        if is_lost or not leader.is_running:
            if follower.fetch is request:
                follower.fetch = None
            if is_lost and self.choices.below(2):
                self.network.append(request)
            return
        response = leader.answer(request)
        self.note(
            f"{request.broker} -> {request.leader} fetch at {request.offset} after epoch "
            f"{request.last_fetched_epoch}, leader epoch {request.leader_epoch}, broker epoch "
            f"{request.broker_epoch}: {response.error.name}"
        )
        self.network.append(response)

    def _respond(self, response: FetchResponse, is_lost: bool) -> None:
        request = response.request
        follower = self.brokers[request.broker]
        if follower.life != request.life:
            return
        if is_lost:
            if follower.fetch is request:
                follower.fetch = None
        else:
            self.note(
                f"{request.leader} => {request.broker} at {request.offset}: {response.records}, "
                f"high watermark {response.high_watermark}, {response.diverging or ''}"
            )
            follower.fetched(response)

    def _propose(self, sent: Proposal, is_lost: bool) -> None:
        broker = self.brokers[sent.broker]
        if broker.life != sent.life:
            return
        result = None
        if not is_lost and self._may_disturb(broker):
            result = self._controller.alter_partition(broker, sent)
            self.note(broker.id, "proposes", sent.proposal, self._controller.state)
        # The decision may be made and the response lost.
        self.network.append(Decision(sent, None if self.choices.below(10) == 0 else result))

    def _decided(self, decision: Decision) -> None:
        sent, result = decision
        broker, role = self.brokers[sent.broker], sent.role
        if broker.life != sent.life or not role.is_proposing(sent.proposal):
            return
        if result is None:
            self.network.append(sent)
        elif result.error_code == ErrorCode.NONE:
            if result.leader_epoch == sent.proposal.leader_epoch:
                role.isr_decided(sent.proposal, result.isr, result.partition_epoch)
        elif result.error_code in _REFUSED:
            role.isr_refused(sent.proposal)
        elif result.error_code not in _OUTDATED:
            self.network.append(sent)
        broker.observe()

    # Recovery

    def end(self) -> None:
        """All brokers run, and no message is lost: all replicas get in sync, and a record is
        committed on all of them."""
        self._lost = self._reordered = 0
        brokers = self._brokers
        target: int | None = None
        for _round in range(RECOVERY_ROUNDS):
            for broker in brokers:
                while broker.is_running and broker.applied < len(self.images):
                    self._apply_image(broker)
                self._live(broker)
                while broker.tasks:
                    broker.resume(0)
                self._send_fetch(broker)
            for _message in range(len(self.network)):
                self._deliver()
            state = self._controller.state
            if (
                target is None
                and len(state.isr) == len(state.replicas)
                and not is_reassigning(state)
            ):
                leader = self.brokers[state.leader]
                if leader.append(next(self._numbers)):
                    target = leader.log.end_offset
            if target is not None and all(
                broker.partition is not None and broker.partition.high_watermark >= target
                if broker.id in state.replicas
                else broker.partition is None and not broker.log.end_offset
                for broker in brokers
            ):
                return
            for broker in brokers:
                broker.review(0.1)
        ends = {
            broker.id: (broker.epoch, broker.log.end_offset, broker.partition is not None)
            for broker in brokers
        }
        raise LawBroken(
            RECOVERY,
            f"{_text(self._controller.state)}; broker: (epoch, log end offset, is open) {ends}",
        )


def _text(part: object) -> str:
    if isinstance(part, PartitionState):
        eligible = f", eligible {part.eligible_leader_replicas}" * bool(
            part.eligible_leader_replicas
        )
        return (
            f"(leader {part.leader}, epoch {part.leader_epoch}, partition epoch "
            f"{part.partition_epoch}, ISR {part.isr}{eligible}{_moving(part)})"
        )
    return str(part)


def _moving(state: PartitionState) -> str:
    if not is_reassigning(state):
        return ""
    return (
        f", replicas {state.replicas}, adding {state.adding_replicas}, removing "
        f"{state.removing_replicas}"
    )


REPLICA = Explorer("replica", TURNS, ReplicaWalk)
MOVES = Explorer("moves", TURNS, partial(ReplicaWalk, moves=True))
