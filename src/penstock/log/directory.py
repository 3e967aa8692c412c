"""One log directory of a node, and whether it is online."""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Callable, Iterator
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from penstock.config.meta_properties import META_PROPERTIES, decode_meta_properties
from penstock.config.properties import PropertiesError
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import NO_UUID, DirectoryId, NodeId
from penstock.log.names import LOCK
from penstock.world import TOO_MANY_FILES, Disk

P = ParamSpec("P")
T = TypeVar("T")

logger = logging.getLogger(__name__)


class TooManyFiles(KafkaError):
    """An operation was refused because the process or the machine has too many open files."""


class LogDirectory:
    """Goes offline at the first disk error, and stays offline until the node restarts. After a
    failed write or sync the state of the disk is unknown, and a retry that succeeds proves nothing
    (rule 22)."""

    def __init__(self, path: str, directory_id: DirectoryId) -> None:
        self.path = path
        self.id = directory_id
        self.failure: str | None = None
        # A cordoned directory gets no new replicas (KIP-1066).
        self.cordoned = False
        self.on_failure: Callable[[LogDirectory], None] = lambda _directory: None
        # The logs in service in it.
        self.log_count = 0
        self._lock: object = None
        self._refused = 0

    def lock(self, disk: Disk) -> None:
        """Lock the directory for this process. Raises KafkaError if another process has it."""
        try:
            self._lock = self._lock or disk.lock(f"{self.path}/{LOCK}")
        except BlockingIOError as error:
            message = (
                f"log directory {self.path} is in use by another process: stop it, or give "
                "this node other directories"
            )
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, message) from error

    def unlock(self) -> None:
        self._lock = None

    def fail(self, doing: str, error: OSError) -> KafkaError:
        """Take the directory offline, unless too many files are open: then the disk is not at
        fault. Return the error for clients."""
        if error.errno in TOO_MANY_FILES:
            return self._refuse(doing, error)
        if self.failure is None:
            self.failure = f"{doing}: {error.strerror or error}"
            logger.error(
                "log directory %s is offline: %s. Its partitions are offline until the disk is "
                "repaired and the broker restarted",
                self.path,
                self.failure,
            )
            self.on_failure(self)
        return self.offline()

    def _refuse(self, doing: str, error: OSError) -> TooManyFiles:
        self._refused += 1
        if self._refused & (self._refused - 1) == 0:  # 1, 2, 4, ...: not a line for each request
            logger.error(
                "%s in %s was refused: %s (%d times since the start). Raise the limit of open "
                "files (ulimit -n), or lower max.connections",
                doing,
                self.path,
                error.strerror or error,
                self._refused,
            )
        return TooManyFiles(ErrorCode.KAFKA_STORAGE_ERROR, f"{doing}: {error.strerror or error}")

    @contextlib.contextmanager
    def failing(self, doing: str) -> Iterator[None]:
        """Take the directory offline on an OSError in the block."""
        try:
            yield
        except OSError as error:
            raise self.fail(doing, error) from error

    def offline(self) -> KafkaError:
        return KafkaError(
            ErrorCode.KAFKA_STORAGE_ERROR, f"log directory {self.path} is offline: {self.failure}"
        )


@contextlib.contextmanager
def unless_offline(directory: LogDirectory) -> Iterator[None]:
    """Suppress errors of a directory that is offline or short of open files: in a loop over
    directories, one must not stop the others. It has logged its failure."""
    try:
        yield
    except TooManyFiles:
        return
    except KafkaError:
        if directory.failure is None:
            raise


class InDirectory(Protocol):
    @property
    def directory(self) -> LogDirectory: ...


Self = TypeVar("Self", bound=InDirectory)


def guarded(method: Callable[Concatenate[Self, P], T]) -> Callable[Concatenate[Self, P], T]:
    """Decorate a method that uses the disk: refuse it while its directory is offline, and take the
    directory offline on an OSError."""

    @functools.wraps(method)
    def guard(self: Self, /, *args: P.args, **kwargs: P.kwargs) -> T:
        if self.directory.failure is not None:
            raise self.directory.offline()
        try:
            return method(self, *args, **kwargs)
        except OSError as error:
            raise self.directory.fail(
                method.__name__.strip("_").replace("_", " "), error
            ) from error

    return guard


def formatted_directory(disk: Disk, path: str, node_id: NodeId) -> LogDirectory:
    """Return the directory at a path that `penstock format` formatted for this node. Otherwise
    raises KafkaError with instructions."""
    meta = f"{path}/{META_PROPERTIES}"
    if not disk.exists(meta):
        message = (
            f"log directory {path} is not formatted: run 'penstock format -c FILE' once "
            "(--standalone for a controller without voters)"
        )
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, message)
    try:
        properties = decode_meta_properties(disk.read(meta), meta)
    except PropertiesError as error:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
    if properties.node_id != node_id:
        message = (
            f"log directory {path} belongs to node {properties.node_id}, not to {node_id}, by its "
            f"{META_PROPERTIES}: check log.dirs"
        )
        raise KafkaError(ErrorCode.INCONSISTENT_CLUSTER_ID, message)
    return LogDirectory(path, properties.directory_id or NO_UUID)
