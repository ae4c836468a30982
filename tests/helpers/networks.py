"""
Machines with a network of their own, made of network namespaces: each has one cable, which can be cut.

A cut one answers nothing and refuses nothing: what is sent is lost, as behind a dead switch. Sources: network_namespaces(7),
veth(4).
"""

from __future__ import annotations

import random
import secrets
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType

from tests.helpers.namespaces import with_text_over
from tests.helpers.processes import until


class Machine:
    """
    Another machine to whatever runs behind `prefix`: another network, another boot id. Only the kernel is the same.

    Attributes:
        prefix: of the commands that are to run there.
    """

    def __init__(self, name: str, boot: str, *, here: str, there: str) -> None:
        self.name = name
        # Keeps the namespace; all of it is gone when this is.
        self._anchor = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
        self._ours = f"tn{secrets.token_hex(4)}"
        self._over = with_text_over("/proc/sys/kernel/random/boot_id", boot + "\n")
        net = Path(f"/proc/{self._anchor.pid}/ns/net")
        until(lambda: net.readlink() != Path("/proc/self/ns/net").readlink(), "no namespace")
        enter = ("nsenter", f"--net={net}")
        self.prefix = (*enter, *self._over.__enter__())
        _run("ip", "link", "add", self._ours, "type", "veth", "peer", "name", "cable", "netns", str(self._anchor.pid))
        _run("ip", "address", "add", here, "peer", there, "dev", self._ours)
        _run("ip", "link", "set", self._ours, "up")
        _run(*enter, "ip", "address", "add", there, "peer", here, "dev", "cable")
        _run(*enter, "ip", "link", "set", "cable", "up")
        _run(*enter, "ip", "link", "set", "lo", "up")

    def cut(self) -> None:
        """Nothing gets through any more."""
        _run("ip", "link", "set", self._ours, "down")

    def mend(self) -> None:
        """It does again."""
        _run("ip", "link", "set", self._ours, "up")

    def __enter__(self) -> Machine:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        _run("ip", "link", "delete", self._ours)
        self._anchor.kill()
        self._anchor.wait()
        self._over.__exit__(kind, error, at)


@contextmanager
def machines(*names: str) -> Iterator[tuple[str, list[Machine]]]:
    """An address of this machine, and others that reach it."""
    # Set apart for tests of networks, RFC 2544; any of it, since others may test too.
    network = f"198.{random.choice((18, 19))}.{random.randrange(256)}"
    with ExitStack() as stack:
        made = [
            stack.enter_context(
                Machine(
                    name, f"{number:08d}-0d7e-4b61-9a3c-6e2f8b4d7c10", here=f"{network}.1", there=f"{network}.{number}"
                )
            )
            for number, name in enumerate(names, 2)
        ]
        yield f"{network}.1", made


def _run(*command: str) -> None:
    subprocess.run(command, check=True)
