"""What an operator does after a fire: read the log of a node, and follow what it says."""

from __future__ import annotations

import re
import shutil
import signal
import time

from tests.fire.cluster import FireNode

_OFFLINE = re.compile(r"partition (\S+) is offline: .*Remove the partition's directory")
_DAMAGED = re.compile(r"remove the directory \S*?([^/\s]+) and start the broker")
_LOST_METADATA = re.compile(r"mpty (the|its) metadata directory and format it again")
_META_PROPERTIES = re.compile(r"meta\.properties")


def restart(node: FireNode) -> None:
    """Start the node again. It may have ended by itself."""
    deadline = time.monotonic() + 10.0
    if node.is_running:
        node.signal(signal.SIGTERM)
    while node.is_running and time.monotonic() < deadline:
        time.sleep(0.05)
    node.kill()
    node.start()


class Operator:
    """Knows the files that a backup has: meta.properties of each directory."""

    def __init__(self, node: FireNode) -> None:
        self.node = node
        self.start = node.log_size()
        self.actions: list[str] = []
        files = (directory / "meta.properties" for directory in (node.data, node.meta))
        self._backup = {file: file.read_bytes() for file in files}

    def follow_log(self) -> None:
        """Do what the node's log asks for since the beginning. Starts the node if it ended."""
        text = self.node.log_text(self.start)
        replicas = set(_OFFLINE.findall(text)) | set(_DAMAGED.findall(text))
        if not self.node.is_running and _LOST_METADATA.search(text):
            self._do("empties the metadata directory and formats it again")
            for path in list(self.node.meta.iterdir()):
                if path.is_dir():
                    shutil.rmtree(path)
                else:
                    path.unlink()
            self.node.format()
        elif not self.node.is_running and _META_PROPERTIES.search(text):
            self.restore()
        if replicas:
            self._do(f"removes the directories of {', '.join(sorted(replicas))}")
            self.node.stop()
            for replica in replicas:
                shutil.rmtree(self.node.data / replica, ignore_errors=True)
        if not self.node.is_running:
            restart(self.node)
        self.start += len(text.encode())

    def restore(self) -> None:
        """Bring meta.properties back."""
        self._do("restores meta.properties")
        for file, content in self._backup.items():
            file.write_bytes(content)

    def _do(self, action: str) -> None:
        self.actions.append(f"the operator {action}")
