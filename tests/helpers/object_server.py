"""
An object server that can be trusted, and told to misbehave: S3, Google Cloud Storage or Azure over real HTTP.

Linearizable by one lock. The servers made for tests elsewhere ignore preconditions, or check and write in two steps; so
races are only ever run against this one.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import random
import socket
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Literal, NamedTuple

from tests.helpers import object_dialects as dialects
from tests.helpers.object_dialects import Answer, Dialect, Object, Operation, Request

DIALECTS: tuple[Dialect, ...] = ("s3", "gs", "az")


class Call(NamedTuple):
    operation: Operation
    key: str


class _DropError(Exception):
    """The connection ends here, without a word."""


class Fault:
    """What is to happen at the *nth* request that fits, counted from now; 0 means at every one."""

    def __init__(self, server: ObjectServer, operations: tuple[Operation, ...], prefix: str, nth: int) -> None:
        self._server = server
        self._operations = operations
        self._prefix = prefix
        self._nth = nth
        self._seen = 0
        self.met = threading.Event()
        self.before: Callable[[Request], Answer | None] = _nothing
        self.after: Callable[[Request], Answer | None] = _nothing

    def meets(self, request: Request) -> bool:
        if request.operation not in self._operations or not request.key.startswith(self._prefix):
            return False
        self._seen += 1
        return self._nth in (0, self._seen)

    def drop(self) -> None:
        """End the connection before anything is applied."""
        self.before = _drop

    def lose_reply(self) -> None:
        """Apply, then end the connection."""
        self.after = _drop

    def lose_replies(self, share: float) -> None:
        """The same at some of them, by chance."""
        self.after = lambda request: _drop(request) if random.random() < share else None

    def answer(self, status: int, code: str = "TestError", *, applied: bool = False, **headers: str) -> None:
        """Answer so, with or without applying."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}

        def refuse(_: Request) -> Answer:
            return dialects.refusal(self._server.dialect, status, code, named)

        if applied:
            self.after = refuse
        else:
            self.before = refuse

    def delay(self, seconds: float) -> None:
        """Apply only after *seconds*, whether or not anybody still waits."""
        self.before = lambda _: self._server.wait(seconds)

    def delay_reply(self, seconds: float) -> None:
        """Apply at once and answer after *seconds*."""
        self.after = lambda _: self._server.wait(seconds)

    def repeat(self) -> None:
        """Deliver it once more when `deliver_again` is called, as a network may."""
        self.after = self._server.keep

    def run(self, function: Callable[[], None]) -> None:
        """Call *function* before applying."""
        self.before = lambda _: function()


class ObjectServer:
    """
    One bucket, served on this machine.

    Attributes:
        ignores: conditions that it takes and does not keep: "create", "replace", or "replace-absent" (it makes the key).
        lists: "all", or how a list lies: "empty", "unordered", "stale" (as `remember_what_is_there` left it).
        missing: there is no such bucket.
        calls: what was asked, in order.
    """

    def __init__(self, dialect: Dialect = "s3", *, page: int | None = None, host: str = "127.0.0.1") -> None:
        self.dialect = dialect
        self.ignores: set[Literal["create", "replace", "replace-absent"]] = set()
        self.missing = False
        self.calls: list[Call] = []
        self.objects: dict[str, Object] = {}
        self._lists: Literal["all", "empty", "unordered", "stale"] = "all"
        self._as_it_was: dict[str, Object] = {}
        self._page = page or (5000 if dialect == "az" else 1000)
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._parts: dict[str, dict[str, bytes]] = {}
        self._faults: list[Fault] = []
        self._kept: list[Request] = []
        self._closed = threading.Event()
        self._connections: set[socket.socket] = set()
        self._server = _Server(self, host)
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def __enter__(self) -> ObjectServer:
        return self

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        self.close()

    @property
    def endpoint(self) -> str:
        host, port = self._server.server_address[:2]
        return f"http://{host!s}:{port}"

    def url(self, prefix: str = "team/store") -> str:
        return dialects.url_of(self.dialect, self.endpoint, prefix)

    @property
    def lists(self) -> str:
        return self._lists

    @lists.setter
    def lists(self, how: Literal["all", "empty", "unordered", "stale"]) -> None:
        self._lists = how

    def remember_what_is_there(self) -> None:
        """Keep what a stale list shows from then on."""
        with self._lock:
            self._as_it_was = dict(self.objects)

    def on(self, *operations: Operation, prefix: str = "", nth: int = 1) -> Fault:
        """Script a fault for the *nth* request from now on whose full key starts with *prefix*; 0 means every one."""
        fault = Fault(self, operations, prefix, nth)
        with self._lock:
            self._faults.append(fault)
        return fault

    def heal(self) -> None:
        with self._lock:
            self._faults.clear()

    def count(self, *operations: Operation, prefix: str = "") -> int:
        with self._lock:
            return sum(
                (not operations or call.operation in operations) and call.key.startswith(prefix) for call in self.calls
            )

    @contextmanager
    def counted(self) -> Iterator[list[Call]]:
        """The requests of the block, there once it is over."""
        calls: list[Call] = []
        with self._lock:
            before = len(self.calls)
        yield calls
        with self._lock:
            calls += self.calls[before:]

    def keep(self, request: Request) -> None:
        """Keep *request* for `deliver_again`."""
        self._kept.append(request)

    def deliver_again(self) -> list[int]:
        """Deliver what a `repeat` kept; the statuses that nobody hears of."""
        kept, self._kept = self._kept, []
        return [self._apply(request).status for request in kept]

    def wait(self, seconds: float) -> None:
        """Wait, but not beyond the end of the server."""
        self._closed.wait(seconds)

    def close(self) -> None:
        self._closed.set()
        self._server.shutdown()
        self._server.server_close()
        with self._lock:
            open_ones = list(self._connections)
        for connection in open_ones:
            _hang_up(connection)

    def listen_at(self, path: Path) -> Callable[[], None]:
        """Serve at a socket in the file system too, which other network namespaces can reach; call the result to cut it."""
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(path))
        listener.listen()
        served: list[socket.socket] = []

        def accept() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                served.append(connection)
                threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

        def cut() -> None:
            path.unlink()
            for one in (listener, *served):
                _hang_up(one)

        threading.Thread(target=accept, daemon=True).start()
        return cut

    def serve(self, connection: socket.socket) -> None:
        """The life of one connection."""
        if connection.family == socket.AF_INET:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self._lock:
            self._connections.add(connection)
        try:
            with connection.makefile("rb") as stream:
                while not self._closed.is_set() and (line := stream.readline()):
                    method, target, _ = line.decode().split(" ")
                    headers: dict[str, str] = {}
                    while (line := stream.readline()) not in (b"\r\n", b""):
                        name, _, value = line.decode().partition(":")
                        headers[name.lower()] = value.strip()
                    body = stream.read(int(headers.get("content-length", "0")))
                    request = dialects.understood(self.dialect, method, target, headers, body)
                    answer = self._handle(request)
                    if self._closed.is_set():
                        break
                    connection.sendall(answer.encode(with_body=method != "HEAD"))
        except (_DropError, OSError):
            pass
        finally:
            with self._lock:
                self._connections.discard(connection)
            _hang_up(connection)

    def _handle(self, request: Request) -> Answer:
        with self._lock:
            self.calls.append(Call(request.operation, request.key))
            faults = [fault for fault in self._faults if fault.meets(request)]
        # Outside the lock, so that one delayed request holds up no other.
        answers = [fault.before(request) for fault in faults]
        for fault in faults:
            fault.met.set()
        refused = next(filter(None, answers), None)
        if refused is not None:
            return refused
        answer = self._apply(request)
        return next(filter(None, [fault.after(request) for fault in faults]), None) or answer

    def _apply(self, request: Request) -> Answer:
        with self._lock:
            if self.missing:
                code = "ContainerNotFound" if self.dialect == "az" else "NoSuchBucket"
                return dialects.refusal(self.dialect, 404, code)
            if request.operation == "list":
                return self._list(request)
            found = self.objects.get(request.key)
            if request.operation == "delete":
                return dialects.deleted(self.dialect, request, self.objects.pop(request.key, None) is not None)
            if request.operation in ("read", "head"):
                return self._read(request, found)
            if request.operation in ("start", "part", "abort"):
                return self._upload(request)
            refusal = self._refusal(request, found)
            if refusal is not None:
                return refusal
            data = request.data
            if request.operation == "complete":
                parts = self._parts.pop(request.upload)
                data = b"".join(parts[name] for name in request.parts)
            return dialects.stored(self.dialect, self._store(request.key, data), request)

    def _store(self, key: str, data: bytes) -> Object:
        number = next(self._numbers)
        # On S3 a tag is a hash of the content: equal bytes bring an old one back.
        tag = hashlib.md5(data).hexdigest() if self.dialect == "s3" else f"0x{number:X}"
        self.objects[key] = Object(data, f'"{tag}"', number)
        return self.objects[key]

    def _refusal(self, request: Request, found: Object | None) -> Answer | None:
        if request.operation == "create" and found is not None and "create" not in self.ignores:
            status, code = (409, "BlobAlreadyExists") if self.dialect == "az" else (412, "PreconditionFailed")
            return dialects.refusal(self.dialect, status, code)
        if request.operation == "replace" and "replace" not in self.ignores:
            if found is None:
                if "replace-absent" in self.ignores:
                    return None
                status, code = (404, "NoSuchKey") if self.dialect == "s3" else (412, "PreconditionFailed")
                return dialects.refusal(self.dialect, status, code)
            if dialects.version_of(self.dialect, found) != request.version:
                return dialects.refusal(self.dialect, 412, "PreconditionFailed")
        return None

    def _read(self, request: Request, found: Object | None) -> Answer:
        if found is None:
            return dialects.refusal(self.dialect, 404, "NoSuchKey")
        if request.version == found.tag:
            return Answer(304, headers={"etag": found.tag})
        return dialects.stored(self.dialect, found, request)

    def _upload(self, request: Request) -> Answer:
        if request.operation == "start":
            upload = str(next(self._numbers))
            self._parts[upload] = {}
            return dialects.started(upload)
        if request.operation == "part":
            self._parts.setdefault(request.upload, {})[request.part] = request.data
            return Answer(201 if self.dialect == "az" else 200, headers={"etag": f'"{request.part}"'})
        self._parts.pop(request.upload, None)
        return Answer(204)

    def _list(self, request: Request) -> Answer:
        objects = self._as_it_was if self._lists == "stale" else {} if self._lists == "empty" else self.objects
        after = request.token or request.after
        inclusive = request.inclusive and not request.token
        keys = sorted(
            key
            for key in objects
            if key.startswith(request.key) and (key > after or (inclusive and key == after and after))
        )
        page, rest = keys[: self._page], keys[self._page :]
        token = page[-1] if rest else ""
        if self._lists == "unordered":
            page.reverse()
        return dialects.listed(self.dialect, [(key, objects[key]) for key in page], token)


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 256

    def __init__(self, objects: ObjectServer, host: str) -> None:
        self._objects = objects
        super().__init__((host, 0), _Handler)

    def process_request_thread(self, request: object, client_address: object) -> None:
        assert isinstance(request, socket.socket)
        self._objects.serve(request)


class _Handler(socketserver.BaseRequestHandler):
    """Never made: a connection is served by the server itself."""


def _hang_up(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
    connection.close()


def _nothing(_: Request) -> Answer | None:
    return None


def _drop(_: Request) -> Answer | None:
    raise _DropError


@functools.cache
def shared(dialect: Dialect) -> ObjectServer:
    """One for the whole run, for tests that keep to a prefix of their own and script no faults."""
    return ObjectServer(dialect)


# What the fake does not look at, and what must never be seen in a message.
SECRET = "never-to-be-seen-0123456789"
ENVIRONMENT = {"AWS_ACCESS_KEY_ID": "AKIDTEST", "AWS_SECRET_ACCESS_KEY": SECRET, "GOOGLE_BEARER_TOKEN": SECRET}
