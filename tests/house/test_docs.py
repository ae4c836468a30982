"""The documents keep up with the code: every slug is explained, every link leads somewhere."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
VERDICTS = ROOT / "docs/concepts/verdicts.md"
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


def literal(name: str) -> set[str]:
    """The members of `name = Literal[...]` in the stub, which is the manual: a Literal leaves nothing at run time."""
    for node in ast.walk(ast.parse((ROOT / "python/tenure/_core.pyi").read_text(encoding="utf-8"))):
        if isinstance(node, ast.Assign):
            names, value = [ast.unparse(target) for target in node.targets], node.value
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            names, value = [ast.unparse(node.target)], node.value
        else:
            continue
        if name in names and isinstance(value, ast.Subscript):
            return {
                item.value for item in ast.walk(value) if isinstance(item, ast.Constant) and isinstance(item.value, str)
            }
    raise AssertionError(f"the stub has no Literal named {name}")


def entries() -> list[tuple[str, str, str, str]]:
    """The rows of the tables of reasons: slug, verdict, evidence, meaning."""
    text = VERDICTS.read_text(encoding="utf-8").split("## The table, row by row")[0]
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| ([\w, ]+) \| (.+) \|$", text, re.MULTILINE)
    return [(slug, verdict, evidence, meaning) for slug, verdict, evidence, meaning in rows]


def test_every_reason_has_one_entry() -> None:
    assert sorted(row[0] for row in entries()) == sorted(literal("Reason"))


def test_an_entry_names_verdict_and_evidence_that_exist_and_says_something() -> None:
    for slug, verdict, evidence, meaning in entries():
        assert verdict in {"ALIVE", "GONE", "UNKNOWN"}, slug
        assert set(evidence.split(", ")) <= literal("Evidence"), slug
        assert len(meaning) > 20, slug


def test_the_table_of_rows_gives_no_reason_another_verdict() -> None:
    verdict_of = {slug: verdict for slug, verdict, _, _ in entries()}
    table = VERDICTS.read_text(encoding="utf-8").split("## The table, row by row")[1]
    rows = re.findall(r"^\| (\d+) \| .* \| ([A-Z, ]+) \| ([`\w, ]+) \|$", table, re.MULTILINE)
    assert {int(number) for number, _, _ in rows} == set(range(1, 31))
    for number, verdicts, slugs in rows:
        for slug in re.findall(r"`(\w+)`", slugs):
            assert verdict_of[slug] in verdicts.split(", "), f"row {number}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_link_leads_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", document.read_text(encoding="utf-8")):
        if "://" in target:
            continue
        path, _, fragment = target.partition("#")
        other = (document.parent / path).resolve() if path else document
        assert other.exists(), target
        if fragment:
            assert fragment in anchors(other), target


def anchors(document: Path) -> set[str]:
    """The names that a renderer gives to headings."""
    headings = re.findall(r"^#+ (.+)$", document.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
