"""What we print is true: examples run and print what they say, tables agree with the code, links lead somewhere."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import io
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

import mqueue
from mqueue.log.segments.storage import Storage
from mqueue.model import errors, limits, settings
from mqueue.model.times import duration_ms, instant

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs/guide.md"
RUN = [ROOT / "README.md", GUIDE]
RUN += [
    ROOT / f"docs/{name}.md"
    for name in ("amqp", "client", "workers", "schedules", "sqs", "telemetry", "flight", "data-tools")
]
PAGES = [ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")]
PAGES += sorted((ROOT / "docs").rglob("*.md"))
EXAMPLES = sorted(path for path in (ROOT / "examples").glob("*.py") if not path.name.startswith("spark_"))

BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PRINTED = "# → "


def shown(path: Path) -> str:
    return str(path.relative_to(ROOT))


# Examples


def blocks(text: str) -> Iterator[tuple[int, str]]:
    """(line, code) of the Python examples of a document."""
    for match in BLOCK.finditer(text):
        yield text.count("\n", 0, match.start(1)) + 1, match[1]


def run(text: str, name: str) -> list[str]:
    """Run a document's examples in order, in one namespace; where what they print is not what they say."""
    space: dict[str, Any] = {"__name__": "__example__"}
    wrong = []
    for line, code in blocks(text):
        printed = io.StringIO()
        tree = ast.increment_lineno(ast.parse(code), line - 1)
        with redirect_stdout(printed):
            exec(compile(tree, name, "exec"), space)
        said = printed_in(code)
        if printed.getvalue().splitlines() != said:
            wrong.append(f"{name}:{line}: prints {printed.getvalue().splitlines()}, says {said}")
    return wrong


def printed_in(code: str) -> list[str]:
    """What some code says that it prints."""
    lines = [line.strip() for line in code.splitlines()]
    return [line[len(PRINTED) :] for line in lines if line.startswith(PRINTED)]


@pytest.mark.parametrize("path", RUN, ids=shown)
def test_the_examples_print_what_they_say(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert list(blocks(text))
    wrong = run(text, shown(path))
    assert not wrong, "\n".join(wrong)


def test_an_example_that_says_something_else_is_caught() -> None:
    good = "```python\nx = 1\nprint(x)\n# → 1\n```\n\n```python\nprint(x + 1)\n# → 2\n```\n"
    assert run(good, "page") == []
    assert run(good.replace("→ 2", "→ 3"), "page") == ["page:8: prints ['2'], says ['3']"]
    with pytest.raises(NameError):
        run(good.replace("x + 1", "y"), "page")


@pytest.mark.parametrize("path", EXAMPLES, ids=shown)
def test_an_example_script_runs_and_prints_what_it_says(path: Path) -> None:
    env = {"PYTHONPATH": str(ROOT / "src"), "PYTHONIOENCODING": "utf-8"}
    command = [sys.executable, "-W", "error", str(path)]
    done = subprocess.run(command, env=env, capture_output=True, encoding="utf-8", timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    said = printed_in(path.read_text(encoding="utf-8"))
    if said or path.name != "async_orders.py":  # which shows times that chance has a part in
        assert done.stdout.splitlines() == said
    assert done.stdout


# Tables


def table(heading: str) -> list[list[str]]:
    """The rows of the table below a heading of the guide, without marks."""
    section = GUIDE.read_text(encoding="utf-8").split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return [row for part in section.split("\n### ") for row in _rows(part)]


def _rows(text: str) -> list[list[str]]:
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_all_settings_are_in_the_guide_with_their_defaults() -> None:
    rows = table("Settings")
    names = list(settings.describe(settings.Settings()))
    assert [row[0] for row in rows] == names
    given = {row[0]: ast.literal_eval(row[1]) for row in rows}
    assert settings.parse(given, settings.Settings(partitions=7, visibility_ms=1)) == settings.Settings()


def test_all_limits_are_in_the_guide() -> None:
    fixed = {name: value for name, value in vars(limits).items() if name.isupper() and name not in ("KIB", "MIB")}
    per_call = {name: getattr(limits.Limits(), name) for name in limits.Limits.__struct_fields__}
    assert {row[0]: _amount(row[1]) for row in table("Limits")} == per_call | fixed


def test_all_sizes_of_a_data_directory_are_in_the_guide() -> None:
    storage = Storage()
    given = {row[0]: row[1] == "yes" if row[1] in ("yes", "no") else _amount(row[1]) for row in table("On disk")}
    assert given == {name: getattr(storage, name) for name in Storage.__struct_fields__}


def _amount(text: str) -> int:
    """`64 KiB`, `12 h` (in ms), `9999-12-31T…`, `10,000`."""
    number, _, unit = text.replace(",", "").partition(" ")
    if unit in ("KiB", "MiB"):
        return int(number) * {"KiB": limits.KIB, "MiB": limits.MIB}[unit]
    if "-" in number:
        return instant(number)
    return duration_ms(number + unit) if unit else int(number)


def error_classes() -> list[type[errors.Error]]:
    return [kind for kind in vars(errors).values() if inspect.isclass(kind) and issubclass(kind, errors.Error)]


def test_all_errors_are_in_the_guide() -> None:
    in_code = {
        kind.__name__: (kind.__base__.__name__, kind.code, kind.status, kind.retryable) for kind in error_classes()
    }
    rows = [row for row in table("Errors") if len(row) == 6]
    in_guide = {row[0]: (row[1], row[2], int(row[3]), row[4] == "yes") for row in rows}
    assert in_guide == in_code
    for name in in_code:
        assert getattr(mqueue, name) is getattr(errors, name)


def test_all_finer_codes_are_in_the_guide() -> None:
    found = set()
    for path in (ROOT / "src/mqueue").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        found |= set(re.findall(r'code="(\w+)"', text))
        if "postgres" in path.parts:  # kinds of ShardDown that nobody sees as classes
            found |= set(re.findall(r'^    code = "(\w+)"', text, re.MULTILINE))
    found |= {"payload_too_large", "key_too_large", "headers_too_large"}  # made from the name of what is too large
    found |= {"bad_ticket", "bad_criteria"}  # or of what cannot be read
    rows = [row for row in table("Errors") if len(row) == 3]
    assert {code.strip("` ") for row in rows for code in row[0].split(",")} == found


# Links and names


LINK = re.compile(r"\]\(([^)\s]+)\)")
FILE = re.compile(
    r"`((?:src|docs|tests|tools|examples|benchmarks|model|policy|heart|wire|log|store|broker|client|testing)/[^`\s]*)`"
)


def dangling(page: Path) -> list[str]:
    """Links of a page that lead nowhere, and files it names that are not there."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    found = []
    for link in LINK.findall(text):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if not target.exists():
            found.append(f"{page.name}: {link} leads nowhere")
        elif anchor and anchor not in anchors(target):
            found.append(f"{page.name}: {link} has no such heading")
    for name in FILE.findall(text.replace("NNNN-title.md", "")):  # stands for any of them
        if not any((folder / name.split("*")[0].rstrip("…")).exists() for folder in (ROOT, ROOT / "src/mqueue")):
            found.append(f"{page.name}: {name} is not there")
    return found


def anchors(page: Path) -> set[str]:
    """The names that headings are linked by."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=shown)
def test_links_and_files_are_there(page: Path) -> None:
    assert dangling(page) == []


def test_a_dangling_link_is_caught(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A b!\n[x](page.md#a-b) [y](#a-b) [z](gone.md) [w](#c) `src/mqueue/gone.py` `model/limits.py`\n")
    assert dangling(page) == [
        "page.md: gone.md leads nowhere",
        "page.md: #c has no such heading",
        "page.md: src/mqueue/gone.py is not there",
    ]


def test_the_architecture_names_what_is_there() -> None:
    """Every name in code marks that looks like one of ours is somewhere in the sources."""
    page = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    files = [*(ROOT / "src").rglob("*.py"), ROOT / "tests/conformance/conftest.py"]
    sources = "".join(path.read_text(encoding="utf-8") for path in files)
    names = {part for code in re.findall(r"`([A-Za-z_.]+)(?:\([^`]*\))?`", page) for part in code.split(".") if part}
    folders = {"tests", "docs", "benchmarks", "md", "py", "make", "fork"}
    assert sorted(name for name in names - folders if not re.search(rf"\b{name}\b", sources)) == []


def test_the_states_are_drawn_from_the_table() -> None:
    tool = _tool("draw_states")
    page = tool.PAGE.read_text(encoding="utf-8")
    assert page == tool.redrawn(page), "run python tools/draw_states.py"
    assert page.count("stateDiagram") == 2
    changed = page.replace("leased --> dead", "leased --> lost")
    assert tool.redrawn(changed) == page != changed


def _tool(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, ROOT / f"tools/{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
