"""Whole histories of groups as transcripts: after `>` an event, below it the replies and the lines
in the node's log.

Members are called by their client's name, static ones (`i`, `j`) by their instance. `wait` is in
milliseconds.
"""

from __future__ import annotations

from textwrap import dedent

import pytest

from penstock.errors import ErrorCode
from penstock.protocol.messages.heartbeat import HeartbeatResponse
from penstock.protocol.messages.join_group import JoinGroupResponse
from penstock.protocol.messages.leave_group import LeaveGroupResponse
from penstock.protocol.messages.offset_commit import OffsetCommitResponse
from penstock.protocol.messages.sync_group import SyncGroupResponse
from tests.coordinator.group_world import World

STATIC = ("i", "j")
UUID_LENGTH = 37


class Transcript:
    def __init__(self) -> None:
        self.world = World()
        self.ids: dict[str, str] = {}
        self.generations: dict[str, int] = {}
        self.senders: dict[int, str] = {}
        self.seen: set[int] = set()
        self.lines_shown = 0

    def run(self, line: str) -> list[str]:
        client, _, event = line.partition(" ")
        if client == "wait":
            self.world.wait(int(event))
        elif client == "reload":
            self.world.reload()
        else:
            self._member(client, event.split())
        return self._new_lines()

    def _member(self, client: str, words: list[str]) -> None:
        world, member, instance = (
            self.world,
            self.ids.get(client, ""),
            client if client in STATIC else None,
        )
        generation = self.generations.get(client, -1)
        match words:
            case ["joins"]:
                ticket = world.join(member, instance=instance, client=client)
            case ["restarts"]:
                ticket = world.join("", instance=instance, client=client)
            case ["syncs", *pairs]:
                given = dict(pair.split("=") for pair in pairs)
                assignments = {
                    self.ids[name]: assignment.encode() for name, assignment in given.items()
                }
                ticket = world.sync(member, generation, assignments, instance=instance)
            case ["commits", offset]:
                ticket = world.send_commit(int(offset), member, generation, instance=instance)
            case ["leaves"]:
                ticket = world.send_leave(member, instance=instance)
            case ["beats"]:
                world.beat(member, generation, instance=instance)
                ticket = max(world.replies)
            case _:
                raise ValueError(f"unknown event: {words}")
        self.senders[ticket] = client

    def _new_lines(self) -> list[str]:
        new = [ticket for ticket in self.world.replies if ticket not in self.seen]
        self.seen.update(new)
        lines = []
        for ticket in new:
            sender = self.senders[ticket]
            lines.append(f"{sender}: {self._text(sender, self.world.replies[ticket])}")
        lines += [self._short(line) for line in self.world.log_lines[self.lines_shown :]]
        self.lines_shown = len(self.world.log_lines)
        return lines

    def _text(self, client: str, answer: object) -> str:
        match answer:
            case JoinGroupResponse(error_code=ErrorCode.NONE):
                self.ids[client], self.generations[client] = answer.member_id, answer.generation_id
                known = (
                    f" of {' '.join(m.member_id[:-UUID_LENGTH] for m in answer.members)}"
                    if answer.members
                    else ""
                )
                return (
                    f"in generation {answer.generation_id}, led by "
                    f"{answer.leader[:-UUID_LENGTH]}{known}"
                )
            case JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED):
                self.ids[client] = answer.member_id
            case SyncGroupResponse(error_code=ErrorCode.NONE):
                return f"has {answer.assignment.decode() or 'nothing'}"
            case LeaveGroupResponse(error_code=ErrorCode.NONE):
                return ErrorCode(answer.members[0].error_code).name
            case OffsetCommitResponse():
                return ErrorCode(answer.topics[0].partitions[0].error_code).name
        assert isinstance(
            answer, JoinGroupResponse | SyncGroupResponse | LeaveGroupResponse | HeartbeatResponse
        )
        return ErrorCode(answer.error_code).name

    def _short(self, line: str) -> str:
        for name, member_id in self.ids.items():
            line = line.replace(member_id, name)
        return line


TRANSCRIPTS = {
    "eager rebalance": """
        > a joins
        a: MEMBER_ID_REQUIRED
        > a joins
        > wait 3000
        a: in generation 1, led by a of a
        > a syncs a=t0,t1
        a: has t0,t1
        group g: generation 1 is stable with 1 members after 3000 ms: a joined
        > a commits 5
        a: NONE
        > b joins
        b: MEMBER_ID_REQUIRED
        > b joins
        > wait 100
        > a beats
        a: REBALANCE_IN_PROGRESS
        > a commits 6
        a: NONE
        > a joins
        a: in generation 2, led by a of a b
        b: in generation 2, led by a
        > b syncs
        > a commits 7
        a: REBALANCE_IN_PROGRESS
        > a syncs a=t0 b=t1
        a: has t0
        b: has t1
        group g: generation 2 is stable with 2 members after 100 ms: b joined; a rejoined
    """,
    "a crash": """
        > a joins
        a: MEMBER_ID_REQUIRED
        > b joins
        b: MEMBER_ID_REQUIRED
        > a joins
        > b joins
        > wait 6000
        a: in generation 1, led by a of a b
        b: in generation 1, led by a
        > b syncs
        > a syncs a=t0 b=t1
        a: has t0
        b: has t1
        group g: generation 1 is stable with 2 members after 6000 ms: a joined; b joined
        > wait 9000
        > b beats
        b: NONE
        > wait 1000
        > b beats
        b: REBALANCE_IN_PROGRESS
        > b joins
        b: in generation 2, led by b of b
        > b syncs b=t0,t1
        b: has t0,t1
        group g: generation 2 is stable with 1 members after 0 ms: a timed out; b rejoined
        > a commits 9
        a: UNKNOWN_MEMBER_ID
        > b leaves
        b: NONE
        group g: generation 3 is empty after 0 ms: b left
    """,
    "a static member restarts": """
        > i joins
        > j joins
        > wait 6000
        i: in generation 1, led by i of i j
        j: in generation 1, led by i
        > j syncs
        > i syncs i=t0 j=t1
        i: has t0
        j: has t1
        group g: generation 1 is stable with 2 members after 6000 ms: i joined; j joined
        > j restarts
        j: in generation 1, led by i
        > j syncs
        j: has t1
        > reload
        > j commits 3
        j: NONE
        > i beats
        i: NONE
    """,
    "the coordinator moves in the middle of a rebalance": """
        > a joins
        a: MEMBER_ID_REQUIRED
        > a joins
        > wait 3000
        a: in generation 1, led by a of a
        > a syncs a=t0
        a: has t0
        group g: generation 1 is stable with 1 members after 3000 ms: a joined
        > b joins
        b: MEMBER_ID_REQUIRED
        > b joins
        > reload
        b: NOT_COORDINATOR
        > a beats
        a: NONE
        > a commits 4
        a: NONE
        > b joins
        b: UNKNOWN_MEMBER_ID
    """,
}


@pytest.mark.parametrize("name", TRANSCRIPTS)
def test_a_transcript(name: str) -> None:
    expected = dedent(TRANSCRIPTS[name]).strip()
    transcript = Transcript()
    actual = []
    for line in expected.splitlines():
        if line.startswith("> "):
            actual += [line, *transcript.run(line[2:])]
    assert "\n".join(actual) == expected
