"""One log directory of a node, and whether it can still be trusted."""

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
from penstock.world import Disk

P = ParamSpec("P")
T = TypeVar("T")

logger = logging.getLogger(__name__)


class LogDirectory:
    """Goes offline at the first error and stays so until the node starts anew: after a failed write
    or sync nobody knows what is on the disk, and a retry that succeeds proves nothing (invariant
    22)."""

    def __init__(self, path: str, directory_id: DirectoryId) -> None:
        self.path = path
        self.id = directory_id
        self.failure: str | None = None
        self.on_failure: Callable[[LogDirectory], None] = lambda _directory: None
        self._lock: object = None

    def take(self, disk: Disk) -> None:
        """For this process alone, until it is let go. KafkaError where another one has it."""
        try:
            self._lock = self._lock or disk.lock(f"{self.path}/{LOCK}")
        except BlockingIOError as error:
            message = (
                f"log directory {self.path} is in use by another process: stop it, or give "
                "this node directories of its own"
            )
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, message) from error

    def let_go(self) -> None:
        self._lock = None

    def fail(self, doing: str, error: OSError) -> KafkaError:
        """Takes the directory offline. Gives the error that its clients get."""
        if self.failure is None:
            self.failure = f"{doing}: {error.strerror or error}"
            logger.error(
                (
                    "log directory %s is offline: %s. Its partitions are not served until the "
                    "disk is "
                    "mended and the node restarted"
                ),
                self.path,
                self.failure,
            )
            self.on_failure(self)
        return self.offline()

    @contextlib.contextmanager
    def failing(self, doing: str) -> Iterator[None]:
        """What the disk refuses takes the directory offline."""
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
    """For work on many directories, in which one that fails must not stop the others: it has said
    so itself."""
    try:
        yield
    except KafkaError:
        if directory.failure is None:
            raise


class InDirectory(Protocol):
    @property
    def directory(self) -> LogDirectory: ...


Self = TypeVar("Self", bound=InDirectory)


def guarded(method: Callable[Concatenate[Self, P], T]) -> Callable[Concatenate[Self, P], T]:
    """A method that touches the disk: refused while its directory is offline, and an OSError takes
    the directory offline."""

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
    """The directory at a path, which `penstock format` made this node's. KafkaError with what to do
    where it did not."""
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
        raise KafkaError(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            (
                f"log directory {path} belongs to node {properties.node_id}, not to {node_id}: "
                "check "
                "log.dirs"
            ),
        )
    return LogDirectory(path, properties.directory_id or NO_UUID)
