"""The documents are true of the tree: links, anchors, cited sections, named files and functions exist."""

from __future__ import annotations

import ast
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ddpmon.tui.draw.help import WORDS

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
OF_BUILDERS = [ROOT / name for name in ("CONTRIBUTING.md", "docs/design.md", "docs/detection.md", "docs/gpu.md")]
OF_BUILDERS += [ROOT / name for name in ("docs/glossary.md", "docs/tour.md")]
SOURCES = [path for top in ("ddpmon", "trainer", "bench", "tests") for path in sorted((ROOT / top).rglob("*.py"))]
LINK = re.compile(r"\]\(([^)\s]+)\)")
CITED = re.compile(r'(docs/[\w/]+\.md)(?: "([^"]+)")?')
NAMED_FILE = re.compile(r"`([\w./-]+\.(?:py|sh|toml|txt|md))`")
ROW = re.compile(r"\| [^|]+ \| (?P<files>`[^|]+`) \| (?P<functions>`[^|]+`) \|")


def by_name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def without_code(text: str) -> str:
    """The text without its fenced blocks."""
    return re.sub(r"^ *```.*?^ *```$", "", text, flags=re.DOTALL | re.MULTILINE)


def headings(document: Path) -> list[str]:
    text = without_code(document.read_text(encoding="utf-8"))
    return [heading.replace("`", "") for heading in re.findall(r"^#{1,6} (.+)$", text, flags=re.MULTILINE)]


def anchors(document: Path) -> set[str]:
    """What GitHub calls the headings: lower case, spaces as hyphens, no other signs."""
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings(document)}


def links(document: Path) -> Iterator[tuple[Path, str]]:
    """The files that a document links, with the anchor in them."""
    for target in LINK.findall(without_code(document.read_text(encoding="utf-8"))):
        if "://" not in target:
            name, _, anchor = target.partition("#")
            yield (document.parent / name if name else document), anchor


def citations(source: Path) -> Iterator[tuple[Path, str]]:
    """The documents that comments and docstrings cite, with the section; both may go over the end of a line."""
    for name, section in CITED.findall(re.sub(r"\s+(?:# )?", " ", source.read_text(encoding="utf-8"))):
        yield ROOT / name, section


def defined_in(source: Path) -> set[str]:
    """The functions, classes, methods (as Class.method) and module-level names of a file."""
    found = set[str]()
    for node in ast.parse(source.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign):
            found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{inner.name}" for inner in node.body if isinstance(inner, ast.FunctionDef)}
    return found


def rows_of_the_tour() -> list[re.Match[str]]:
    decided, _, _ = (ROOT / "docs/tour.md").read_text(encoding="utf-8").partition("## Where do I add")
    return [*ROW.finditer(decided)]


@pytest.mark.parametrize("document", DOCUMENTS, ids=by_name)
def test_links_lead_to_files_and_headings(document: Path) -> None:
    for target, anchor in links(document):
        assert target.exists(), f"{target} does not exist"
        assert not anchor or anchor in anchors(target), f"{by_name(target.resolve())} has no heading #{anchor}"


def test_sections_that_code_cites_exist() -> None:
    cited = {found for source in SOURCES if source != Path(__file__) for found in citations(source)}
    assert len({section for _, section in cited}) > 5
    for document, section in cited:
        assert document.exists(), f"{document} does not exist"
        assert not section or section in headings(document), f"{by_name(document)} has no section {section!r}"


@pytest.mark.parametrize("document", OF_BUILDERS, ids=by_name)
def test_files_that_the_builders_documents_name_exist(document: Path) -> None:
    named = set(NAMED_FILE.findall(document.read_text(encoding="utf-8")))
    assert named
    missing = {name for name in named if not any((top / name).exists() for top in (ROOT, ROOT / "ddpmon"))}
    assert not missing


def test_the_tour_names_functions_of_its_files() -> None:
    rows = rows_of_the_tour()
    assert len(rows) > 20
    for row in rows:
        files = [ROOT / "ddpmon" / name for name in NAMED_FILE.findall(row["files"])]
        names = set(re.findall(r"`([\w.]+)`", row["functions"]))
        assert names <= set[str]().union(*map(defined_in, files)), row[0]


def test_readme_links_every_document_or_a_document_that_does() -> None:
    seen, ahead = set[Path](), [ROOT / "README.md"]
    while ahead:
        document = ahead.pop()
        if document not in seen:
            seen.add(document)
            ahead += [target.resolve() for target, _ in links(document) if target.suffix == ".md"]
    assert {*DOCUMENTS} <= seen


def test_cost_means_the_same_in_every_document_and_in_the_help() -> None:
    defined = "share of the run's time that is saved if this rank loses its lateness and all other stragglers are fixed"
    texts = [(ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "docs/findings.md", "docs/screen.md")]
    texts += [(ROOT / "docs/glossary.md").read_text(encoding="utf-8"), dict(WORDS)["costs"]]
    assert [defined in " ".join(text.split()) for text in texts] == [True] * 5
    assert all("alone saves" in text for text in texts[:4])
    assert "alone saves" in dict(WORDS)


def test_the_help_of_the_script_for_fresh_clones_lists_its_conditions_and_starts_nothing(tmp_path: Path) -> None:
    script = ROOT / "tests" / "anywhere.sh"
    done = subprocess.run(
        ["bash", script, "--help"], capture_output=True, text=True, timeout=60,
        env={**os.environ, "ANYWHERE_FOLDER": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Runs `make test` in fresh clones")
    (conditions,) = re.findall(r"\|\| set -- (.+)", script.read_text(encoding="utf-8"))
    for condition in conditions.split():
        assert re.search(rf"^  {condition} ", done.stdout, re.MULTILINE)
    assert list(tmp_path.iterdir()) == []
