"""What a file in a datastore may be called."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure._datastore._names import _problem, folded, is_normal, is_plain, normal

GOOD = [
    "a",
    "a/b",
    "notes/hello.txt",
    "ünïcode/Ω",
    "a b",
    ".hidden",
    "x" * 255,
    "a.tenure",
    "b/.tenure",
    "com",
    "com10",
    "日本",
]
BAD = {
    "": "empty",
    "/etc/passwd": "absolute",
    "../x": "'..'",
    "a/../b": "'..'",
    "a//b": "''",
    "a/": "''",
    "./a": "'.'",
    ".tenure/catalog.db": "checkout itself",
    ".TENURE/x": "checkout itself",
    "a\\b": "contains",
    "c:x": "contains",
    "a\x00b": "contains",
    "a\nb": "contains",
    "a\u200bb": "contains",
    "a.": "ends with",
    "a ": "ends with",
    "dir./x": "ends with",
    "con": "device",
    "NUL.txt": "device",
    "x/Lpt1": "device",
    "com\u00b9": "device",
    "x" * 256: "more than 255 bytes",
    "/".join(["x" * 200] * 6): "more than 1024",
    "\ud800": "Unicode",
}


@pytest.mark.parametrize("name", GOOD)
def test_an_ordinary_name_is_allowed(name: str) -> None:
    assert normal(name) == unicodedata.normalize("NFC", name)


@pytest.mark.parametrize("name", BAD)
def test_a_name_that_some_system_would_change_is_refused_and_says_why(name: str) -> None:
    with pytest.raises(ValueError, match=BAD[name]):
        normal(name)
    assert not is_normal(name)


def test_two_spellings_of_one_character_are_one_name() -> None:
    assert normal("u\u0308.txt") == normal("\u00fc.txt") == "\u00fc.txt"
    assert not is_normal("u\u0308.txt")


def test_names_that_differ_by_case_alone_fold_to_one() -> None:
    assert folded("README") == folded("readme")
    assert folded("stra\u00dfe") == folded("STRASSE")


def test_what_is_no_text_is_a_type_error() -> None:
    with pytest.raises(TypeError):
        normal(b"x")  # type: ignore[arg-type]


@given(
    st.lists(
        st.sampled_from(["con", "NUL", "lpt1", "com10", "a", ".tenure", ".", "/", "-", "_", "$", " ", "\u017f", "\n"])
    ).map("".join)
)
def test_the_short_look_at_a_name_allows_nothing_that_the_long_one_refuses(name: str) -> None:
    if is_plain(name):
        assert _problem(name) is None
        assert unicodedata.is_normalized("NFC", name)


def test_the_short_look_is_enough_for_ordinary_names() -> None:
    assert all(map(is_plain, ["a", "d000/f00017", "src/main.rs", "notes/2026-12-01_b.tar.gz", "con1/prn-x"]))


@given(st.text(max_size=40))
def test_whatever_is_allowed_leads_nowhere_else(name: str) -> None:
    try:
        kept = normal(name)
    except ValueError:
        return
    assert normal(kept) == kept
    assert not kept.startswith("/")
    assert not {"", ".", ".."} & set(kept.split("/"))
    assert "\\" not in kept
    assert "\0" not in kept
