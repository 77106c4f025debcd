"""The example for data engineers runs: as a script, and then cell by cell as a notebook, in one process."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "examples/spark_orders.py"
NOTEBOOK = ROOT / "examples/spark_orders.ipynb"
ORDERS = 2000
ALONE = """
import json, runpy, sys

script, notebook, orders, plot = sys.argv[1:]
sys.argv = [script, "--orders", orders, "--plot", plot]
runpy.run_path(script, run_name="__main__")
"""
BOTH = (
    ALONE
    + """
space = {"__name__": "__notebook__"}
for cell in json.load(open(notebook, encoding="utf-8"))["cells"]:
    if cell["cell_type"] == "code":
        exec(compile("".join(cell["source"]), cell["id"], "exec"), space)
"""
)


def cells() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    return found


def test_the_notebook_is_one_and_holds_no_output() -> None:
    whole = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    assert (whole["nbformat"], whole["nbformat_minor"]) == (4, 5)
    assert len({cell["id"] for cell in cells()}) == len(cells())
    for cell in cells():
        assert all(line.endswith("\n") for line in cell["source"][:-1])
        if cell["cell_type"] == "code":
            assert (cell["outputs"], cell["execution_count"]) == ([], None)
            ast.parse("".join(cell["source"]))


@pytest.mark.timeout(900)
def test_the_example_runs_as_a_script(tmp_path: Path) -> None:
    check_script(run(ALONE, tmp_path))


@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_example_runs_as_a_script_and_as_a_notebook(tmp_path: Path) -> None:
    script, notebook = run(BOTH, tmp_path).split("orders are there")
    back = check_script(script)
    assert f"{back} messages, such as" in notebook


def run(program: str, tmp_path: Path) -> str:
    """What the example prints."""
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT / "examples")])
    given = {
        name: value for name, value in os.environ.items() if not name.startswith(("MQUEUE_", "SPARK_", "PYSPARK_"))
    }
    env = {**given, "PYTHONPATH": paths, "PYTHONIOENCODING": "utf-8", "ORDERS": str(ORDERS)}
    plot = tmp_path / "revenue.png"
    command = [sys.executable, "-c", program, str(SCRIPT), str(NOTEBOOK), str(ORDERS), str(plot)]
    done = subprocess.run(
        command, env=env, cwd=tmp_path, capture_output=True, encoding="utf-8", timeout=840, check=False
    )
    assert done.returncode == 0, done.stderr
    assert plot.read_bytes().startswith(b"\x89PNG")
    return done.stdout


def check_script(script: str) -> str:
    """What the script says holds; how many messages it wrote back."""
    assert f"published {ORDERS:,} orders to http://127.0.0.1:" in script
    counted = [int(number) for number in re.findall(r"from ([0-9]+) orders", script)]
    assert sum(counted) == ORDERS
    [back] = re.findall(r"wrote ([0-9]+) messages to orders.revenue", script)
    return str(back)
