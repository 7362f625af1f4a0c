"""The code of the documentation runs, and prints what the page says."""

import contextlib
import io
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

import skill_memory  # noqa: F401  (fills the registries that the fixture gives back)
from benchmarks.__main__ import main
from sesa_env.registry import JUDGES, MEMORIES, RETRIEVERS, VALIDATORS

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted((ROOT / "docs").glob("*.md"))
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


class Block(NamedTuple):
    """A fenced block of a page, and the line it starts at."""

    language: str
    text: str
    line: int


def blocks(page):
    text = page.read_text(encoding="utf-8")
    return [Block(found[1], found[2], text[: found.start()].count("\n") + 2) for found in _BLOCK.finditer(text)]


@pytest.fixture
def registries():
    """Give the registries back as they were."""
    before = [(registry, dict(registry._makers)) for registry in (RETRIEVERS, VALIDATORS, JUDGES, MEMORIES)]
    yield
    for registry, makers in before:
        registry._makers = makers


def run(page):
    """Run the page's Python from top to bottom in one namespace; return (line, printed, what the page says)."""
    namespace, results = {"__name__": "page"}, []
    found = blocks(page)
    for block, following in zip(found, [*found[1:], Block("", "", 0)], strict=True):
        if block.language == "python":
            printed = io.StringIO()
            source = "\n" * (block.line - 1) + block.text  # so that a traceback names the page's own line
            with contextlib.redirect_stdout(printed):
                exec(compile(source, str(page), "exec"), namespace)
            said = following.text if following.language == "text" else ""
            results.append((block.line, printed.getvalue(), said))
        elif block.language == "console" and block.text.startswith("$ sesa skills "):  # the others take long
            results.append((block.line, enter(block.text), block.text))
    return results


def enter(text):
    """Enter the commands of a block ("$ ...") and return them with what they print, as a terminal would show it."""
    shown = []
    for command in re.findall(r"^\$ (.+)$", text, re.MULTILINE):
        printed = io.StringIO()
        with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(printed):
            patch.setattr(sys, "argv", shlex.split(command))
            patch.setenv("COLUMNS", "110")
            with contextlib.redirect_stderr(printed), contextlib.suppress(SystemExit):
                main()
        shown += [f"$ {command}", *(line.rstrip() for line in printed.getvalue().splitlines())]
    return "\n".join(shown) + "\n"


@pytest.mark.usefixtures("registries")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_prints_what_it_says(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for line, printed, said in run(page):
        assert printed == said, f"{page.name}, line {line}"


def test_the_picture_of_a_banks_life_is_there_and_small():
    page = (ROOT / "docs" / "bank-life.md").read_text(encoding="utf-8")
    (name,) = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", page)
    picture = (ROOT / "docs" / name).read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert len(picture) < 150_000


def test_there_are_pages_with_code_and_output():
    languages = {block.language for page in PAGES for block in blocks(page)}
    assert {"python", "text"} <= languages


def test_each_part_takes_twenty_lines_at_most():
    """The page's promise."""
    for block in blocks(ROOT / "docs" / "extend.md"):
        if block.text.startswith(("class ", "def ")) or "\nclass " in block.text:
            part = re.split(r"^(?=class |def )", block.text, flags=re.MULTILINE)[-1]
            assert len([row for row in part.splitlines() if row.strip()]) <= 20, part


def test_a_memory_of_your_own_takes_thirty_lines():
    (part,) = [block.text for block in blocks(ROOT / "docs" / "memory.md") if "\nclass Regrets" in block.text]
    lines = part[part.index("class ") :].splitlines()
    assert len([line for line in lines if line.strip()]) <= 30


@pytest.mark.usefixtures("registries")
def test_a_page_that_prints_something_else_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```python\nprint(1)\n```\n\n```text\n2\n```\n\n```python\nx = 1\n```\n", encoding="utf-8")
    assert run(page) == [(2, "1\n", "2\n"), (10, "", "")]


def test_the_readme_prints_what_it_says():
    """Run the README's Python blocks in one go and compare with its text blocks."""
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```(python|text)\n(.*?)```", page.partition("## On your own corpus")[0], flags=re.DOTALL)
    code = "\n".join(body for kind, body in blocks if kind == "python")
    shown = "".join(body for kind, body in blocks if kind == "text")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.split() == shown.split()
