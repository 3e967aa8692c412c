"""Servers that are no brokers, each on a free port of this machine."""

from __future__ import annotations

import contextlib
import http.server
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from penstock.protocol.apis import APIS
from penstock.protocol.framing import frame_response
from penstock.protocol.messages.api_versions import ApiVersionsResponse

Handle = Callable[[socket.socket], None]


@contextmanager
def serving(handle: Handle) -> Iterator[str]:
    """Call `handle` with each connection, and close it afterwards; yield host:port."""
    listener = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        # The listener is closed at the end, which wakes accept with an error.
        with contextlib.suppress(OSError):
            while True:
                connection, _peer = listener.accept()
                threading.Thread(target=serve, args=(connection,), daemon=True).start()

    def serve(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            handle(connection)

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(10)


def close_at_once(_connection: socket.socket) -> None:
    pass


def say_nothing(connection: socket.socket) -> None:
    while connection.recv(4096):
        pass


def greet_as_ssh(connection: socket.socket) -> None:
    connection.sendall(b"SSH-2.0-OpenSSH_9.7\r\n")
    say_nothing(connection)


def shake_hands(connection: socket.socket) -> None:
    """A TLS server without a certificate: it answers a handshake with an alert."""
    with ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).wrap_socket(connection, server_side=True) as tls:
        say_nothing(tls)


def answer_api_versions(connection: socket.socket, versions: dict[int, tuple[int, int]]) -> None:
    """A broker that answers one ApiVersions request of v0 or later, and closes."""
    size = int.from_bytes(connection.recv(4, socket.MSG_WAITALL), "big")
    request = connection.recv(size, socket.MSG_WAITALL)
    version = int.from_bytes(request[2:4], "big")
    correlation_id = int.from_bytes(request[4:8], "big")
    keys = tuple(
        ApiVersionsResponse.ApiKey(api_key=key, min_version=first, max_version=last)
        for key, (first, last) in versions.items()
    )
    response = ApiVersionsResponse(api_keys=keys)
    for part in frame_response(response, version, correlation_id):
        assert isinstance(part, bytes | bytearray | memoryview)
        connection.sendall(part)
    # Read the next request, so that it is answered by a close and not by a reset.
    connection.recv(4096)


def ask_for_authentication(connection: socket.socket) -> None:
    """As a SASL listener: it closes the connection at the first request but ApiVersions."""
    answer_api_versions(
        connection, {api.key: (api.versions.first, api.versions.last) for api in APIS}
    )


def support_only_future_versions(connection: socket.socket) -> None:
    answer_api_versions(connection, {api.key: (90, 99) for api in APIS})


@contextmanager
def http_server() -> Iterator[str]:
    class Quiet(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_error(404)

        def log_message(self, format: str, *_arguments: object) -> None:  # noqa: A002
            assert format

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)
