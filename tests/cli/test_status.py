"""`tenure status` tells what there is, and leaves it as it is."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tenure import ProcessIdentity, Verdict, WriterLease, judge
from tests.cli.running import children, environment, held, started, tenure, until_told
from tests.helpers import independent
from tests.helpers.capabilities import NEEDS_MOUNT
from tests.helpers.processes import until_state

# What scripts read. A change here is a change for them.
KEYS = [
    ("v", int),
    ("url", str),
    ("state", str),
    ("fence", str),
    ("verdict", str),
    ("reason", str),
    ("evidence", str),
    ("detail", str),
    ("holder", str),
    ("host_name", str),
    ("pid", int),
    ("identity", dict),
    ("label", str),
    ("since", str),
    ("ttl_s", float),
    ("skew_s", float),
    ("beat", str),
    ("last_beat", str),
    ("last_beat_age_s", float),
    ("nonce", str),
    ("retry_after_s", type(None)),
    ("problem", type(None)),
]


def shown(url: object, **options: Any) -> dict[str, Any]:
    done = tenure("status", "--json", str(url), **options)
    assert (done.returncode, done.stderr) == (0, "")
    fields: dict[str, Any] = json.loads(done.stdout)
    return fields


def test_the_keys_and_types_of_json_are_pinned(tmp_path: Path) -> None:
    with held(tmp_path / "lease", label="nightly import"):
        seen = shown(tmp_path / "lease")
    assert [(key, type(value)) for key, value in seen.items()] == KEYS


@pytest.mark.parametrize("state", ["never-taken", "released", "torn"])
def test_no_key_is_left_out_whatever_the_state(tmp_path: Path, state: str) -> None:
    if state == "released":
        WriterLease(tmp_path / "lease").acquire().release()
    if state == "torn":
        (tmp_path / "lease/lease").mkdir(parents=True)
        (tmp_path / f"lease/lease/{1:020}").write_bytes(b"{")
    assert list(shown(tmp_path / "lease")) == [key for key, _ in KEYS]


def test_the_help_documents_each_key() -> None:
    help_text = tenure("status", "--help").stdout
    for key, _ in KEYS:
        assert key in help_text.split("Keys of --json")[1].replace(",", " ").split(), key


def test_json_says_who_and_whether_it_lives(tmp_path: Path) -> None:
    with held(tmp_path / "lease", label="nightly import", ttl=20, skew=5) as fence:
        seen = shown(tmp_path / "lease")
    me = ProcessIdentity.current()
    assert ProcessIdentity.from_json(json.dumps(seen["identity"])) == me
    expected = {
        "state": "held",
        "fence": str(fence),
        "pid": os.getpid(),
        "label": "nightly import",
        "ttl_s": 20.0,
        "skew_s": 5.0,
        "verdict": "alive",
        "reason": "lifeline_held",
    }
    assert {key: seen[key] for key in expected} == expected


def test_people_see_holder_verdict_and_reason_in_words(tmp_path: Path) -> None:
    with held(tmp_path / "lease", label="nightly import"):
        out = tenure("status", str(tmp_path / "lease")).stdout
    for words in ("held", f"/{os.getpid()}", "nightly import", "alive · lifeline_held", "the kernel keeps its lock"):
        assert words in out
    assert "takeover  not while it lives" in out


def test_b106_a_torn_record_is_said_to_be_one_with_the_earliest_takeover(tmp_path: Path) -> None:
    (tmp_path / "lease").mkdir()
    (tmp_path / f"lease/{7:020}").write_bytes(b"{")
    out = tenure("status", str(tmp_path)).stdout
    assert "unknown · malformed" in out
    assert "problem   not JSON" in out
    assert "after 40 s" in out


@pytest.mark.parametrize("text", ["a\x1b]0;title\x07b", "[red]x[/red]", ":smile:"])
def test_a_label_of_a_stranger_cannot_steer_the_terminal(tmp_path: Path, text: str) -> None:
    with held(tmp_path / "lease", label="harmless"):
        path = tmp_path / f"lease/lease/{1:020}"
        path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | {"label": text}), encoding="utf-8")
        out = tenure("status", str(tmp_path / "lease"), env=environment(FORCE_COLOR="1", TERM="xterm")).stdout
    assert text.replace("\x1b", "�").replace("\x07", "�") in out


def test_a_pipe_gets_no_colours_and_no_color_wins_over_force_color(tmp_path: Path) -> None:
    with held(tmp_path / "lease"):
        assert "\x1b" not in tenure("status", str(tmp_path / "lease")).stdout
        coloured = tenure("status", str(tmp_path / "lease"), env=environment(FORCE_COLOR="1", TERM="xterm")).stdout
        plain = tenure(
            "status", str(tmp_path / "lease"), env=environment(FORCE_COLOR="1", TERM="xterm", NO_COLOR="1")
        ).stdout
    # Without colours bold may remain: https://no-color.org speaks of colours alone.
    assert "\x1b[1;36mheld\x1b" in coloured
    assert "36m" not in plain


def test_asking_leaves_a_stopped_holder_stopped_and_writes_nothing(tmp_path: Path) -> None:
    words = (
        "--ttl",
        "0.1",
        "--skew",
        "0",
        str(tmp_path / "lease"),
        "--",
        "sh",
        "-c",
        'echo started >> "$0"; exec sleep 60',
    )
    with started("run", *words, str(tmp_path / "log")) as process:
        until_told(tmp_path / "log", "started")
        for pid in (process.pid, *children(process.pid)):
            os.kill(pid, signal.SIGSTOP)
            until_state(pid, "T")
        before = everything(tmp_path)
        seen = shown(tmp_path / "lease")
        judged = tenure("judge", json.dumps(seen["identity"]))
        assert (seen["state"], seen["verdict"]) == ("held", "alive")
        assert judged.returncode == 0
        assert independent.state(process.pid) == "T"
        assert everything(tmp_path) == before


def everything(root: Path) -> dict[str, tuple[int, int, bytes]]:
    return {
        str(path): (path.stat().st_mtime_ns, path.stat().st_ctime_ns, path.read_bytes() if path.is_file() else b"")
        for path in [root, *sorted(root.rglob("*"))]
    }


@contextmanager
def read_only(root: Path) -> Iterator[tuple[str, ...]]:
    """The prefix of a command that sees *root* on a read-only mount, whoever it is."""
    yield ("unshare", "--mount", "sh", "-c", f'mount --bind -o ro "{root}" "{root}" && exec "$@"', "sh")


@NEEDS_MOUNT
def test_b103_a_read_only_mount_shows_a_living_and_a_dead_holder(tmp_path: Path) -> None:
    with started("run", str(tmp_path / "dead"), "--", "sleep", "60") as process:
        until_state_held(tmp_path / "dead")
        for pid in (*children(process.pid), process.pid):
            os.kill(pid, signal.SIGKILL)
    with held(tmp_path / "living"):
        before = everything(tmp_path)
        with read_only(tmp_path) as prefix:
            refused = subprocess.run([*prefix, "touch", str(tmp_path / "x")], capture_output=True, check=False)
            assert refused.returncode != 0
            living = shown(tmp_path / "living", prefix=prefix)
            dead = shown(tmp_path / "dead", prefix=prefix)
            never = shown(tmp_path / "never", prefix=prefix)
        assert everything(tmp_path) == before
    assert (living["state"], living["reason"]) == ("held", "lifeline_held")
    assert (dead["state"], dead["verdict"]) == ("free", "gone")
    assert (never["state"], never["fence"]) == ("free", "0")


def until_state_held(url: Path) -> None:
    from tests.helpers.processes import until

    def is_held() -> bool:
        status = WriterLease(url).inspect()
        return status.judgement is not None and status.judgement.verdict is Verdict.ALIVE

    until(is_held, "nobody takes the lease")


def test_the_identity_shown_can_be_judged(tmp_path: Path) -> None:
    with held(tmp_path / "lease"):
        record = json.dumps(shown(tmp_path / "lease")["identity"])
    assert judge(record).verdict is Verdict.ALIVE
