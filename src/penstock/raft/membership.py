"""Changes of the voters, which the leader writes to the log (KIP-853).

The rules that keep two leaders of one epoch impossible (rules 16 and 17):

1. One voter at a time is added or removed, so that any majority of the old voters and any majority
   of the new ones have a voter in common.
2. A change is refused while an earlier one is not committed.
3. A change is refused before a record of the leader's epoch is committed: an earlier leader may
   have written another change, which is only then known to be committed or gone.
4. The new voters count from the time that the leader appends them; their majority commits them.
5. A leader that is not among the new voters does not count itself. It resigns when they are
   committed. Until then it stands for election again if it loses the leadership: a majority of the
   old voters may need its vote, and it refuses it to those that lack the record.

A voter is added only after its log has caught up, so that commits do not wait for it.
"""

from __future__ import annotations

from penstock.errors import ErrorCode
from penstock.limits import MAX_VOTERS
from penstock.raft.leader import announce_resignation, validate_leader_epoch
from penstock.raft.messages import (
    AddVoterRequest,
    AppendVoters,
    AskSupportedVersions,
    RemoveVoterRequest,
    RequestReceived,
    SupportedVersionsReceived,
    Sync,
    UpdateVoterRequest,
    UpgradeKRaftVersionRequest,
)
from penstock.raft.quorum_state import QuorumState
from penstock.raft.states import LeaderState, ReplicaState, VoterChange
from penstock.raft.voters import (
    KRAFT_VERSION,
    RECONFIGURATION_LEVEL,
    ReplicaKey,
    Voter,
    VoterSet,
)

Refusal = tuple[ErrorCode, str]

# The leader: its view of the voters


def apply_voter_set(quorum: QuorumState, now: float) -> None:
    """Take over the newest voters of the log, before the leader does anything else with them.

    A replica keeps its progress when it becomes a voter or an observer. A voter with another
    directory id than before is another replica.
    """
    state, latest = quorum.state, quorum.log.voter_sets.latest
    if not isinstance(state, LeaderState) or state.voter_set is latest.voters:
        return
    replicas: dict[ReplicaKey, ReplicaState] = {
        voter.key: state.voters[voter.id]
        for voter in state.voter_set.voters
        if voter.id in state.voters
    }
    voters = {}
    for voter in latest.voters.voters:
        if voter.id != quorum.node_id:
            known = replicas.pop(voter.key, None) or state.observers.pop(voter.key, None)
            voters[voter.id] = known or ReplicaState(last_fetch_at=now)
    state.observers |= replicas
    state.voters, state.voter_set = voters, latest.voters
    change = state.change
    if change is not None and change.voters == latest.voters:
        change.offset = latest.offset


def poll_change(quorum: QuorumState, state: LeaderState, now: float) -> None:
    """Complete a change that is committed or late. A leader that was removed then resigns."""
    change = state.change
    if change is not None:
        if change.offset is not None and change.offset < quorum.high_watermark:
            state.change = None
            if not change.is_answered:
                quorum.respond_to_change(change.reply_to, ErrorCode.NONE)
        elif now >= change.deadline:
            state.change = None
            if not change.is_answered:
                message = "the change of the voters was not committed in time; it may be later"
                quorum.respond_to_change(change.reply_to, ErrorCode.REQUEST_TIMED_OUT, message)
    latest = quorum.log.voter_sets.latest
    is_removed = state.voter_set is latest.voters and not quorum.is_voter
    if is_removed and latest.offset < quorum.high_watermark:
        announce_resignation(quorum, state)
        quorum.transition_to_unattached(quorum.epoch, now)


# The leader: requests


def handle_add_voter_request(
    quorum: QuorumState, event: RequestReceived, request: AddVoterRequest, now: float
) -> None:
    """Ask the new voter for the levels of kraft.version that it supports; the answer continues."""
    refusal = _refuse_change(quorum, "adding voter") or _refuse_added(quorum, request.voter)
    state = quorum.state
    if refusal is not None or not isinstance(state, LeaderState):
        _refuse(quorum, event.reply_to, refusal)
        return
    deadline = now + quorum.timing.request_timeout
    state.change = VoterChange(event.reply_to, deadline, request.voter, request.ack_when_committed)
    quorum.effects.append(AskSupportedVersions(request.voter))


def handle_supported_versions(
    quorum: QuorumState, event: SupportedVersionsReceived, now: float
) -> None:
    state = quorum.state
    change = state.change if isinstance(state, LeaderState) else None
    if (
        not isinstance(state, LeaderState)
        or change is None
        or change.added is None
        or change.added.key != event.key
    ):
        return
    refusal = _refuse_levels(quorum, event) or _refuse_lagging(quorum, state, event.key, now)
    if refusal is not None or event.levels is None:
        state.change = None
        _refuse(quorum, change.reply_to, refusal)
        return
    first, last = event.levels
    added = Voter(change.added.id, change.added.directory_id, change.added.endpoints, first, last)
    change.added = None
    _append(quorum, state, change, quorum.voter_set.add(added))
    if not change.ack_when_committed:
        quorum.respond_to_change(change.reply_to, ErrorCode.NONE)


def handle_remove_voter_request(
    quorum: QuorumState, event: RequestReceived, request: RemoveVoterRequest, now: float
) -> None:
    refusal = _refuse_change(quorum, "removing voter")
    state, voters = quorum.state, quorum.voter_set.remove(request.key)
    if refusal is None and voters is None:
        keys = ", ".join(map(str, quorum.voter_set.keys))
        message = f"Cannot remove voter {request.key} from the set of voters [{keys}]"
        refusal = ErrorCode.VOTER_NOT_FOUND, message
    if refusal is None and voters is not None and not voters.voters:
        refusal = ErrorCode.INVALID_REQUEST, f"{request.key} is the last voter: add another first"
    if refusal is not None or voters is None or not isinstance(state, LeaderState):
        _refuse(quorum, event.reply_to, refusal)
        return
    state.change = VoterChange(event.reply_to, now + quorum.timing.request_timeout)
    _append(quorum, state, state.change, voters)


def handle_update_voter_request(
    quorum: QuorumState, event: RequestReceived, request: UpdateVoterRequest, now: float
) -> None:
    """Write what a voter announces to the log. With kraft.version 0 it is kept in memory, for an
    upgrade."""
    state, voter = quorum.state, request.voter
    error = validate_leader_epoch(quorum, request.epoch)
    if error is not ErrorCode.NONE or not isinstance(state, LeaderState):
        quorum.respond_to_change(event.reply_to, error)
        return
    if quorum.kraft_version < RECONFIGURATION_LEVEL:
        if voter.id not in quorum.voters:
            error = ErrorCode.VOTER_NOT_FOUND
        elif not voter.supports(quorum.kraft_version) or not voter.endpoints:
            error = ErrorCode.INVALID_REQUEST
        else:
            state.announced[voter.id] = voter
        quorum.respond_to_change(event.reply_to, error)
        return
    refusal, voters = _refuse_change(quorum, "updating voter"), quorum.voter_set.update(voter)
    if refusal is not None:
        error = refusal[0]
    elif voters is None:
        error = ErrorCode.VOTER_NOT_FOUND
    elif not voter.supports(quorum.kraft_version) or not voter.endpoints:
        error = ErrorCode.INVALID_REQUEST
    elif voters != quorum.voter_set:
        quorum.effects += [AppendVoters(quorum.epoch, voters), Sync()]
    quorum.respond_to_change(event.reply_to, error)
    if error is ErrorCode.NONE and voter.id in state.voters:
        state.voters[voter.id].last_fetch_at = now


def handle_upgrade_request(
    quorum: QuorumState, event: RequestReceived, request: UpgradeKRaftVersionRequest, now: float
) -> None:
    """Raise kraft.version: the voters, as they announced themselves, become records of the log."""
    state = quorum.state
    refusal = _refuse_leaderless(quorum)
    if not isinstance(state, LeaderState) or refusal is not None:
        _refuse(quorum, event.reply_to, refusal)
        return
    announced = {**state.announced, quorum.node_id: quorum.local}
    voters = VoterSet.of(announced[voter] for voter in quorum.voters if voter in announced)
    refusal = _refuse_upgrade(quorum, request.level, voters)
    if refusal is not None:
        _refuse(quorum, event.reply_to, refusal)
    elif request.validate_only or request.level == quorum.kraft_version:
        quorum.respond_to_change(event.reply_to, ErrorCode.NONE)
    else:
        state.change = VoterChange(event.reply_to, now + quorum.timing.request_timeout)
        _append(quorum, state, state.change, voters, request.level)


def _append(
    quorum: QuorumState,
    state: LeaderState,
    change: VoterChange,
    voters: VoterSet,
    kraft_version: int | None = None,
) -> None:
    """The log has the new voters in the next step, which then takes them over."""
    state.change, change.voters = change, voters
    quorum.effects += [AppendVoters(quorum.epoch, voters, kraft_version), Sync()]


# The leader: refusals


def _refuse(quorum: QuorumState, reply_to: object, refusal: Refusal | None) -> None:
    error, message = refusal or (ErrorCode.UNKNOWN_SERVER_ERROR, "the voters do not change")
    quorum.respond_to_change(reply_to, error, message)


def _refuse_leaderless(quorum: QuorumState) -> Refusal | None:
    """A node that does not lead, or whose epoch has no committed record, changes no voters."""
    state = quorum.state
    if quorum.has_resigned:
        return ErrorCode.BROKER_NOT_AVAILABLE, f"node {quorum.node_id} shuts down"
    if not isinstance(state, LeaderState):
        message = f"node {quorum.node_id} is not the leader of the quorum"
        return ErrorCode.NOT_LEADER_OR_FOLLOWER, message
    if is_change_pending(quorum, state):
        message = "Request timed out waiting for leader to handle previous voter change request"
        return ErrorCode.REQUEST_TIMED_OUT, message
    if not has_committed_in_epoch(quorum, state):
        message = (
            "Request timed out waiting for leader to establish HWM and fence previous voter changes"
        )
        return ErrorCode.REQUEST_TIMED_OUT, message
    return None


def is_change_pending(quorum: QuorumState, state: LeaderState) -> bool:
    """Rule 2: the leader works on a change, or the newest voters of its log are not committed."""
    latest = quorum.log.voter_sets.latest
    return state.change is not None or latest.offset >= quorum.high_watermark


def has_committed_in_epoch(quorum: QuorumState, state: LeaderState) -> bool:
    """Rule 3."""
    return quorum.high_watermark > state.epoch_start_offset


def _refuse_change(quorum: QuorumState, what: str) -> Refusal | None:
    refusal = _refuse_leaderless(quorum)
    if refusal is None and quorum.kraft_version < RECONFIGURATION_LEVEL:
        message = (
            f"Cluster doesn't support {what} because the {KRAFT_VERSION} feature is "
            f"{quorum.kraft_version}"
        )
        return ErrorCode.UNSUPPORTED_VERSION, message
    return refusal


def _refuse_added(quorum: QuorumState, added: Voter) -> Refusal | None:
    if added.id in quorum.voters:
        keys = ", ".join(map(str, quorum.voter_set.keys))
        message = f"The voter id for {added.key} is already part of the set of voters [{keys}]."
        return ErrorCode.DUPLICATE_VOTER, message
    if len(quorum.voters) >= MAX_VOTERS:
        message = f"the quorum has {len(quorum.voters)} voters, as many as it may have"
        return ErrorCode.INVALID_REQUEST, message
    return None


def _refuse_levels(quorum: QuorumState, event: SupportedVersionsReceived) -> Refusal | None:
    if event.levels is None:
        message = f"New voter {event.key} is not ready to receive requests"
        return ErrorCode.REQUEST_TIMED_OUT, message
    first, last = event.levels
    if not first <= quorum.kraft_version <= last:
        message = (
            f"Aborted add voter operation for {event.key} since the {KRAFT_VERSION} range "
            f"(min: {first}, max: {last}) doesn't support the finalized version "
            f"{quorum.kraft_version}"
        )
        return ErrorCode.INVALID_REQUEST, message
    return None


def _refuse_lagging(
    quorum: QuorumState, state: LeaderState, key: ReplicaKey, now: float
) -> Refusal | None:
    replica = state.observers.get(key)
    if replica is None or replica.last_caught_up_at < now - quorum.timing.fetch_timeout:
        message = f"Aborted add voter operation for {key} since it is lagging behind"
        return ErrorCode.REQUEST_TIMED_OUT, message
    return None


def _refuse_upgrade(quorum: QuorumState, level: int, voters: VoterSet) -> Refusal | None:
    change = f"Invalid upgrade of {KRAFT_VERSION} from version {quorum.kraft_version} to {level}"
    if level < quorum.kraft_version:
        message = f"{change} because the new version is a downgrade"
        return ErrorCode.INVALID_UPDATE_VERSION, message
    if level == quorum.kraft_version:
        return None
    missing = [voter for voter in quorum.voters if voter not in voters.ids]
    if missing:
        message = f"{change}: the voters {missing} have not announced themselves to the leader"
        return ErrorCode.INVALID_UPDATE_VERSION, message
    if not all(voter.supports(level) for voter in voters.voters):
        message = f"{change} because not all of the voters support it"
        return ErrorCode.INVALID_UPDATE_VERSION, message
    if any(voter.key == ReplicaKey(voter.id) or not voter.endpoints for voter in voters.voters):
        message = f"{change}: a voter has no directory id or no endpoint"
        return ErrorCode.INVALID_UPDATE_VERSION, message
    return None
