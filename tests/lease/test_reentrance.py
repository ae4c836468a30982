"""A signal handler, and whatever runs when Python collects garbage, come in the middle of anything, in the same thread."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tenure._lease import _tenancy
from tests.helpers.capabilities import NEEDS_IDENTITY
from tests.helpers.scripts import Script

pytestmark = NEEDS_IDENTITY

# Each lock of the lease is held by the very thread that is interrupted.
WITHIN = """
    import faulthandler, tenure
    from tenure._lease import _tenancy
    from tenure._store._memory import MemoryStore
    faulthandler.dump_traceback_later(15, exit=True)
    lease = tenure.WriterLease(MemoryStore() if sys.argv[1] == "memory" else sys.argv[2])
    hold, other = lease.acquire(), lease.acquire()
    tenancy = hold._tenancy
    locks = {
        "tenancy": tenancy._lock,
        "ending": tenancy._ending,
        "registry": _tenancy._registry_lock,
        "silence": lease._observer._silence._lock,
        "beating": getattr(tenancy._pulse, "_beating", tenancy._lock),
    }
    with locks[sys.argv[3]]:
        lease.acquire().release()
        hold.check()
        hold.renew()
        hold.release()
        other.release()
    print(lease.inspect().state)
"""


@pytest.mark.parametrize("lock", ["tenancy", "ending", "registry", "silence", "beating"])
@pytest.mark.parametrize("kind", ["directory", "memory"])
def test_no_lock_of_the_lease_keeps_its_own_thread_out(tmp_path: Path, kind: str, lock: str) -> None:
    with Script(WITHIN, kind, tmp_path / "store", lock) as script:
        assert script.ends() == (0, "free\n", "")


RELEASES_AS_THE_PULSE_WAITS = """
    import faulthandler, time, tenure
    from tenure._store._memory import MemoryStore
    faulthandler.dump_traceback_later(15, exit=True)
    lease = tenure.WriterLease(MemoryStore(), ttl=0.3)
    hold = lease.acquire()
    with hold._tenancy._pulse._beating:
        # By now the pulse's thread stands before the lock.
        time.sleep(0.3)
        hold.release()
    print(lease.inspect().state)
"""


def test_a_release_within_a_renewal_waits_for_no_thread_that_waits_for_it() -> None:
    with Script(RELEASES_AS_THE_PULSE_WAITS) as script:
        assert script.ends() == (0, "free\n", "")


RELEASES_ON_TERM = """
    import faulthandler, signal, tenure
    faulthandler.dump_traceback_later(30, exit=True)
    lease = tenure.WriterLease(sys.argv[1])
    hold = lease.acquire()
    def leave(*_):
        hold.release()
        sys.exit(0)
    signal.signal(signal.SIGTERM, leave)
    print("held")
    while True:
        with lease.acquire() as joined:
            joined.check()
"""


@pytest.mark.parametrize("_", range(6))
def test_a_handler_that_releases_and_exits_ends_the_hold_wherever_it_comes(tmp_path: Path, _: int) -> None:
    """What many servers do on TERM."""
    with Script(RELEASES_ON_TERM, tmp_path / "store") as script:
        assert script.says() == "held"
        script.send(signal.SIGTERM)
        assert script.ends()[0] == 0


def test_a_hold_that_leaves_in_the_middle_of_a_join_takes_the_joiner_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the question whether it is over and the answer."""
    from tenure import WriterLease

    lease = WriterLease(tmp_path / "store")
    hold = lease.acquire()
    tenancy = hold._tenancy

    class Joined(set[int]):
        """A set into which something is put only after the last one has left."""

        def add(self, element: int) -> None:
            monkeypatch.undo()
            hold.release()
            super().add(element)

    monkeypatch.setattr(tenancy, "_joined", Joined(tenancy._joined))
    assert not tenancy.join(object())
    assert _tenancy.tenancy_of(hold.nonce) is None
