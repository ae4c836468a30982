"""
A nightly job with three workers on a bucket: one of them does it, once, whichever machine dies.

    AWS_REGION=eu-central-1 python examples/nightly_job.py s3://my-bucket/nightly "$(date +%Y-%m-%d)"

Each worker would run on a machine of its own, started by cron at the same minute. Here they are three processes.
"""

from __future__ import annotations

import subprocess
import sys

from tenure import FencedError, WriterBusyError, WriterLease, open_store


def work(url: str, night: str, worker: str) -> str:
    """Do the job of *night* unless somebody has, and say what happened."""
    store = open_store(url)
    done = f"nightly/{night}"
    # A dead worker's lease passes on after ttl + skew, and a night has time for that.
    lease = WriterLease(store, ttl=30, skew=10, label=f"nightly job, {worker}")
    try:
        with lease.acquire(timeout=300) as hold:
            if store.read(done) is not None:
                return f"{worker}: somebody has done it"
            report = f"{night}: counted by {worker} under fence {hold.fence}\n"
            # Asked last: between the check and the write there should be as little as possible. And if we are replaced
            # right there, write-once keys see to it that one report stands.
            hold.check()
            created = store.create(done, report.encode())
            return f"{worker}: done" if created.won else f"{worker}: somebody was faster"
    except WriterBusyError as busy:
        return f"{worker}: still busy after five minutes, by {busy.holder}"
    except FencedError:
        return f"{worker}: replaced while it worked, nothing written"


def main() -> None:
    """Start three workers, or be one of them."""
    if len(sys.argv) == 4:
        print(work(*sys.argv[1:]))
        return
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    # New processes and not forks: the client of the bucket has threads.
    workers = [subprocess.Popen([sys.executable, *sys.argv, f"worker-{number}"]) for number in (1, 2, 3)]
    sys.exit(max(worker.wait() for worker in workers))


if __name__ == "__main__":
    main()
