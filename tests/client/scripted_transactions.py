"""A scripted broker that also coordinates the transactions of one transactional id and a group.

It keeps a transcript of the coordinator requests. It checks epochs and partitions as Kafka does,
and injects the errors that it is given.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from penstock.errors import ErrorCode
from penstock.ids import TopicPartition
from penstock.protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from penstock.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    TopicResult,
)
from penstock.protocol.messages.api_versions import ApiVersionsResponse
from penstock.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from penstock.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from penstock.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from penstock.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from penstock.records.batch import batches, patch
from penstock.records.build import end_transaction_marker
from penstock.records.record import control_kind, rows_of
from tests.client.scripted_broker import LOSE_RESPONSE, SERVED, TOPIC, ScriptedBroker

PRODUCER_ID = 1000
TRANSACTION_APIS = {10: (0, 6), 24: (0, 5), 25: (0, 4), 26: (0, 5), 28: (0, 5)}
# The request classes by the names of the transcript.
_NAMES: dict[type, str] = {
    InitProducerIdRequest: "InitProducerId",
    AddPartitionsToTxnRequest: "AddPartitionsToTxn",
    AddOffsetsToTxnRequest: "AddOffsetsToTxn",
    TxnOffsetCommitRequest: "TxnOffsetCommit",
    EndTxnRequest: "EndTxn",
}
Injected = ErrorCode | str


class TransactionalBroker(ScriptedBroker):
    def __init__(self, transaction_version: int = 2, partitions: int = 2) -> None:
        super().__init__(partitions=partitions)
        self.served = SERVED | TRANSACTION_APIS
        self.transaction_version = transaction_version
        self.epoch = -1
        self.open = False
        self.last_end: tuple[int, bool] | None = None
        self.added: set[int] = set()
        self.pending_offsets: dict[TopicPartition, int] = {}
        self.offsets: dict[TopicPartition, int] = {}
        self.transcript: list[str] = []
        # Errors by the name of an API, or LOSE_RESPONSE; each is injected once.
        self.injected: dict[str, deque[Injected]] = {}
        self.transactional_refusal = self._refusal

    def inject(self, api: str, *errors: Injected) -> None:
        self.injected.setdefault(api, deque()).extend(errors)

    def versions(self, version: int) -> ApiVersionsResponse:
        response = super().versions(version)
        level = ApiVersionsResponse.FinalizedFeature(
            name="transaction.version",
            max_version_level=self.transaction_version,
            min_version_level=self.transaction_version,
        )
        return ApiVersionsResponse(
            error_code=response.error_code,
            api_keys=response.api_keys,
            finalized_features_epoch=1,
            finalized_features=(level,),
        )

    def handle(self, version: int, request: object) -> object:
        if isinstance(request, FindCoordinatorRequest):
            kind = "group" if request.key_type == 0 else "transaction"
            self.transcript.append(f"FindCoordinator {kind} {request.key}")
            return FindCoordinatorResponse(node_id=1, host=self.host, port=self.port)
        name = _NAMES.get(type(request))
        if name is None:
            return super().handle(version, request)
        self.transcript.append(f"{name} v{version} {_text(request)}")
        queue = self.injected.get(name)
        injected = queue.popleft() if queue else None
        if isinstance(injected, ErrorCode):
            return _refuse(request, injected)
        response = self._coordinate(version, request)
        return LOSE_RESPONSE if injected == LOSE_RESPONSE else response

    def _refusal(self, version: int, index: int, data: Any) -> ErrorCode:
        ((_at, header),) = batches(data)
        if not header.is_transactional:
            return ErrorCode.INVALID_RECORD
        if header.producer_epoch != self.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if version >= 12:
            self.open = True
            self.added.add(index)
        return ErrorCode.NONE if index in self.added else ErrorCode.INVALID_TXN_STATE

    def _coordinate(self, version: int, request: object) -> object:
        match request:
            case InitProducerIdRequest():
                return self._init_producer_id(request)
            case AddPartitionsToTxnRequest():
                code = self._check_epoch(request.v3_and_below_producer_epoch)
                if not code:
                    self.open = True
                    self.added |= {
                        index for topic in request.v3_and_below_topics for index in topic.partitions
                    }
                return _refuse(request, code)
            case AddOffsetsToTxnRequest():
                code = self._check_epoch(request.producer_epoch)
                self.open |= not code
                return AddOffsetsToTxnResponse(error_code=code)
            case TxnOffsetCommitRequest():
                code = self._check_epoch(request.producer_epoch)
                if not code:
                    self.open |= version >= 5
                    self.pending_offsets |= {
                        TopicPartition(topic.name, part.partition_index): part.committed_offset
                        for topic in request.topics
                        for part in topic.partitions
                    }
                return _refuse(request, code)
            case EndTxnRequest():
                return self._end(version, request)
        raise AssertionError(request)

    def _check_epoch(self, epoch: int) -> ErrorCode:
        return ErrorCode.NONE if epoch == self.epoch else ErrorCode.PRODUCER_FENCED

    def _init_producer_id(self, request: InitProducerIdRequest) -> InitProducerIdResponse:
        expected = (request.producer_id, request.producer_epoch)
        if expected not in ((-1, -1), (PRODUCER_ID, self.epoch), (PRODUCER_ID, self.epoch - 1)):
            return InitProducerIdResponse(error_code=ErrorCode.PRODUCER_FENCED)
        ongoing = self.epoch if request.keep_prepared_txn and self.open else -1
        if self.open and ongoing < 0:
            self._complete(commit=False)
        if expected != (PRODUCER_ID, self.epoch - 1):
            self.epoch += 1
        return InitProducerIdResponse(
            producer_id=PRODUCER_ID,
            producer_epoch=self.epoch,
            ongoing_txn_producer_id=-1 if ongoing < 0 else PRODUCER_ID,
            ongoing_txn_producer_epoch=ongoing,
        )

    def _end(self, version: int, request: EndTxnRequest) -> EndTxnResponse:
        is_v2 = version >= 5
        if is_v2 and self.last_end == (request.producer_epoch, request.committed):
            return EndTxnResponse(producer_id=PRODUCER_ID, producer_epoch=self.epoch)
        if code := self._check_epoch(request.producer_epoch):
            return EndTxnResponse(error_code=code)
        unknown = not self.open and self.last_end != (request.producer_epoch, request.committed)
        if unknown and (request.committed or not is_v2):
            return EndTxnResponse(error_code=ErrorCode.INVALID_TXN_STATE)
        if self.open:
            self._complete(commit=request.committed)
        self.last_end = (request.producer_epoch, request.committed)
        if not is_v2:
            return EndTxnResponse()
        self.epoch += 1
        return EndTxnResponse(producer_id=PRODUCER_ID, producer_epoch=self.epoch)

    def _complete(self, *, commit: bool) -> None:
        for index in sorted(self.added):
            log = self.partitions[index]
            marker = bytearray(
                end_transaction_marker(
                    commit=commit,
                    producer_id=PRODUCER_ID,
                    producer_epoch=self.epoch,
                    coordinator_epoch=0,
                    timestamp=0,
                )
            )
            patch(marker, 0, log.end, 0)
            log.data += marker
            log.end += 1
        if commit:
            self.offsets |= self.pending_offsets
        self.pending_offsets.clear()
        self.added.clear()
        self.open = False

    def committed(self, index: int = 0) -> list[bytes | None]:
        """Return the values of the partition's committed transactions, in order."""
        visible: list[bytes | None] = []
        pending: list[bytes | None] = []
        data = self.partitions[index].data
        for at, header in batches(data):
            rows = rows_of(data, header, at)
            if header.is_control:
                if control_kind(rows[0][2]).name == "COMMIT":
                    visible += pending
                pending = []
            else:
                pending += [row[3] for row in rows]
        return visible


def _text(request: Any) -> str:
    match request:
        case InitProducerIdRequest():
            words = [f"{request.producer_id}/{request.producer_epoch}"]
            words += ["2pc"] * request.enable2_pc + ["keep"] * request.keep_prepared_txn
            return " ".join(words)
        case AddPartitionsToTxnRequest():
            indexes = sorted(
                index for topic in request.v3_and_below_topics for index in topic.partitions
            )
            return f"epoch {request.v3_and_below_producer_epoch} partitions {indexes}"
        case EndTxnRequest():
            return f"epoch {request.producer_epoch} {'commit' if request.committed else 'abort'}"
        case TxnOffsetCommitRequest():
            return (
                f"epoch {request.producer_epoch} group {request.group_id} member "
                f"{request.member_id}/{request.generation_id}"
            )
        case AddOffsetsToTxnRequest():
            return f"epoch {request.producer_epoch} group {request.group_id}"
    raise AssertionError(request)


def _refuse(request: Any, code: ErrorCode) -> object:
    match request:
        case InitProducerIdRequest():
            return InitProducerIdResponse(error_code=code)
        case AddPartitionsToTxnRequest():
            result = TopicResult.PartitionResult
            return AddPartitionsToTxnResponse(
                results_by_topic_v3_and_below=tuple(
                    TopicResult(
                        name=topic.name,
                        results_by_partition=tuple(
                            result(partition_index=index, partition_error_code=code)
                            for index in topic.partitions
                        ),
                    )
                    for topic in request.v3_and_below_topics
                )
            )
        case AddOffsetsToTxnRequest():
            return AddOffsetsToTxnResponse(error_code=code)
        case EndTxnRequest():
            return EndTxnResponse(error_code=code)
        case TxnOffsetCommitRequest():
            part = TxnOffsetCommitResponse.Topic.Partition
            return TxnOffsetCommitResponse(
                topics=tuple(
                    TxnOffsetCommitResponse.Topic(
                        name=topic.name,
                        partitions=tuple(
                            part(partition_index=partition.partition_index, error_code=code)
                            for partition in topic.partitions
                        ),
                    )
                    for topic in request.topics
                )
            )
    raise AssertionError(request)


def partition(index: int) -> TopicPartition:
    return TopicPartition(TOPIC, index)
