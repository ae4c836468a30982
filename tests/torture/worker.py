"""One worker: takes the lease, writes under it, lets go, and does it again until it is killed."""

from __future__ import annotations

import json
import random
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import tenure
from tenure._core import boottime_ns
from tenure.stores import open_store
from tests.torture.events import History
from tests.torture.log import Log
from tests.torture.variants import lease as lease_of


@dataclass(frozen=True)
class Orders:
    """What the driver tells a worker: one JSON object as its only argument."""

    who: str
    seed: int
    store: str
    history: str
    ttl: float
    skew: float
    variant: str
    blind: bool
    until_ns: int

    def to_json(self) -> str:
        return json.dumps(asdict(self))


class Worker:
    def __init__(self, orders: Orders) -> None:
        self._who = orders.who
        self._random = random.Random(orders.seed)
        self._until_ns = orders.until_ns
        self._lease = lease_of(orders.variant, orders.store, ttl=orders.ttl, skew=orders.skew, who=orders.who)
        self._log = Log(open_store(orders.store), blind=orders.blind)
        self._entries = 0
        self._history = History(Path(orders.history), orders.who)

    def run(self) -> None:
        """Until killed; a worker whose driver is gone ends by itself."""
        while boottime_ns() < self._until_ns:
            self._history.add("invoke")
            try:
                hold = self._lease.acquire(self._random.choice((0.0, 1.0, 3.0)))
            except tenure.WriterBusyError:
                self._history.add("busy")
                self._pause(0.02)
                continue
            except tenure.Error as error:
                self._history.add("failed", note=str(error))
                continue
            self._history.add("acquired", fence=hold.fence)
            try:
                self._work(hold)
            except tenure.FencedError as error:
                self._history.add("fenced", fence=hold.fence, note=str(error))
            except tenure.Error as error:
                self._history.add("failed", note=str(error))
            self._history.add("releasing", fence=hold.fence)
            hold.release()
            self._history.add("released", fence=hold.fence)
            self._pause(0.01)

    def _work(self, hold: tenure.Hold) -> None:
        for _ in range(self._random.randrange(1, 6)):
            self._history.add("checking", fence=hold.fence)
            if self._random.random() < 0.2:
                hold.renew()
            hold.check()
            self._history.add("checked", fence=hold.fence)
            self._entries += 1
            self._history.add("appending", fence=hold.fence, entry=self._entries)
            seq = self._log.append(hold.fence, self._who, self._entries)
            self._history.add("appended", fence=hold.fence, entry=self._entries, seq=seq)
            self._pause(self._random.choice((0.0, 0.002, 0.01, 0.05)))

    def _pause(self, most: float) -> None:
        time.sleep(self._random.random() * most)


def main() -> None:
    worker = Worker(Orders(**json.loads(sys.argv[1])))
    # Until the driver knows our number.
    sys.stdin.readline()
    worker.run()


if __name__ == "__main__":
    main()
