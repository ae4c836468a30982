"""Each reason as a sentence. docs/concepts/verdicts.md has the long form."""

from __future__ import annotations

from tenure._identity import Judgement

SENTENCES = {
    "malformed": "The record cannot be understood, so nothing can be said about its process.",
    "version": "A newer version of tenure wrote the record: upgrade here.",
    "no_identity": "The record names no process.",
    "other_os": "The record comes from another operating system.",
    "other_host": "The record comes from another host, whose processes cannot be seen from here.",
    "no_boot_id": "It is not known whether the record is from this boot, so its numbers prove nothing.",
    "other_boot": "Another boot id: this machine was restarted, or it is another machine. Nobody can tell which.",
    "rebooted": "This very host was restarted since, and no process survives that.",
    "self": "It is the process that asks.",
    "no_pid_namespace": "The pid namespace of one side is not known, so the number may mean anybody.",
    "namespace_gone": "Its pid namespace has ended, and everything inside has ended with it.",
    "handle_opens": "It runs in another pid namespace, where it was found by an id that is never reused.",
    "handle_stale_seen_from_initial_namespace": (
        "No namespace has a process with its id any more, as seen from the initial namespace, which sees them all."
    ),
    "other_pid_namespace": "It belongs to another pid namespace, into which one cannot look from here.",
    "no_such_pid": "The kernel knows no process of that number.",
    "pid_is_now_a_thread": "Its number now belongs to a thread of some other process.",
    "no_fds": "Out of file descriptors or memory, so the kernel could not be asked.",
    "pid_reused": "Another process has its number now.",
    "same_unique_id": "It runs: the kernel's never-reused id is the one in the record.",
    "exited": "That very process has ended.",
    "probe_failed": "The system answered with an error that proves nothing.",
    "no_start_time": "A process of that number runs, but the record has nothing to tell it from another one.",
    "foreign_or_missing_proc": "/proc is missing or shows another pid namespace, so it cannot be believed.",
    "time_namespace": "Start times are shifted by a time namespace, by an amount that cannot be known here.",
    "hidden": "The process is hidden from us, yet the kernel does not deny that there is one.",
    "same_start_time": "It runs: a process of that number and start time is there.",
    "leader_exited": "Its main thread has ended, but other threads run on.",
    "unsupported_platform": "Nothing is known about processes of this system; time and the fence decide.",
    "lifeline_held": "Somebody who carries the hold still lives: the kernel keeps its lock.",
    "lifeline_free": "The last process that carried the hold has ended: the kernel has dropped its lock.",
    "released": "The holder gave the lease back.",
}


def sentence(judgement: Judgement) -> str:
    """What *judgement* means, in one sentence."""
    # A core that is newer than this table still says its slug.
    return SENTENCES.get(judgement.reason, judgement.reason.replace("_", " ") + ".")
