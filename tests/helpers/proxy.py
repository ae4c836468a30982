"""A connection to a server that loses things on the way: a request, an answer, or all that comes after."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Literal

from tests.helpers.processes import PATIENCE

Loss = Literal["request", "answer", "every answer"]


@dataclass
class Fault:
    """
    What happens to the next *times* requests that contain *word*.

    `request`: cut off, and the server hears nothing of it. `answer`: the server has done it, and the connection is cut
    before the client hears so. `every answer`: the same, but the connection stays open and silent.
    """

    word: bytes
    loss: Loss
    times: int = 1
    happened: threading.Event = field(default_factory=threading.Event)


class Proxy:
    """Stands before the server on *port* of this machine, on a `port` of its own."""

    def __init__(self, port: int) -> None:
        self._behind = port
        self._faults: list[Fault] = []
        self._lock = threading.Lock()
        self._links: list[_Link] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def before(self, url: str) -> str:
        """What the server has at *url*, as it is reached through here."""
        return url.replace(f":{self._behind}/", f":{self.port}/")

    def lose(self, loss: Loss, word: bytes, *, times: int = 1) -> Fault:
        fault = Fault(word, loss, times)
        with self._lock:
            self._faults.append(fault)
        return fault

    def cut(self) -> None:
        """End every connection there is, as a server that restarts does."""
        for link in self._links:
            link.end()

    def count(self) -> int:
        """How many connections there have been."""
        return len(self._links)

    def meets(self, request: bytes) -> Fault | None:
        with self._lock:
            for fault in self._faults:
                if fault.times > 0 and fault.word in request:
                    fault.times -= 1
                    return fault
        return None

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client = self._listener.accept()[0]
                try:
                    server = socket.create_connection(("127.0.0.1", self._behind))
                except OSError:
                    # The server is down: so are we.
                    client.close()
                    continue
                self._links.append(_Link(self, client, server))


class _Link:
    """One connection, in two directions."""

    def __init__(self, proxy: Proxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy = proxy
        self._client = client
        self._server = server
        self._fault: Fault | None = None
        self._last_one = threading.Barrier(2, action=self._close)
        for pump in (self._forward, self._answer):
            threading.Thread(target=self._run, args=(pump,), daemon=True).start()

    def end(self) -> None:
        # Not closed yet: the other thread may sit on it, and its number would be given out again.
        for end in (self._client, self._server):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _run(self, pump: Callable[[], None]) -> None:
        with contextlib.suppress(OSError):
            pump()
        self.end()
        self._last_one.wait(PATIENCE)

    def _close(self) -> None:
        self._client.close()
        self._server.close()

    def _forward(self) -> None:
        while request := self._client.recv(1 << 16):
            fault = self._proxy.meets(request)
            if fault is not None and fault.loss == "request":
                fault.happened.set()
                return
            self._fault = fault or self._fault
            self._server.sendall(request)

    def _answer(self) -> None:
        while answer := self._server.recv(1 << 16):
            if self._fault is None:
                self._client.sendall(answer)
                continue
            self._fault.happened.set()
            if self._fault.loss == "answer":
                return
