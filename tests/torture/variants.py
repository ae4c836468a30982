"""
Other leases to torture: one among strangers, which is right and has only time to go by, and two that are wrong.

Each is the real lease with one answer exchanged, and is set up in the worker's own process.
"""

from __future__ import annotations

from pathlib import Path

from tenure import Judgement, ProcessIdentity, Verdict, WriterLease, _lifeline
from tenure._judgement import Asker
from tenure._lease import _sight


def lease(variant: str, store: str, *, ttl: float, skew: float, who: str) -> WriterLease:
    """The lease of *variant*, for a worker called *who*."""
    if variant == "real":
        return WriterLease(store, ttl=ttl, skew=skew, label=who)
    if variant == "strangers":
        # As several machines on one file server: no lock is believed, and nobody can judge anybody.
        vars(_lifeline)["filesystem_type"] = lambda fd: None
        return WriterLease(store, ttl=ttl, skew=skew, label=who, host_id=f"host-of-{who}", host_id_is_unique=True)
    made = WriterLease(store, ttl=ttl, skew=skew, label=who)
    vars(_sight)["asked"] = lambda *_: None
    asker = {"by pid": _ByPid, "by time": _ByTime}[variant]()
    vars(made._observer)["_asker"] = asker
    return made


class _ByPid(Asker):
    """A number and nothing else: in another namespace it is nobody's, or somebody else's."""

    def judge(
        self, holder: ProcessIdentity | str | None, *, lifeline: bool | None = None, released: bool = False
    ) -> Judgement:
        assert isinstance(holder, ProcessIdentity)
        there = not released and Path(f"/proc/{holder.pid}").exists()
        return Judgement(Verdict.ALIVE, "same_start_time") if there else Judgement(Verdict.GONE, "no_such_pid")


class _ByTime(Asker):
    """Whoever is silent is gone, also one that is stopped and will go on."""

    def judge(
        self, holder: ProcessIdentity | str | None, *, lifeline: bool | None = None, released: bool = False
    ) -> Judgement:
        return super().judge(None, released=released)
