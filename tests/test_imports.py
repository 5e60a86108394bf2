"""Imports go one way, and nothing heavy or foreign is imported where it must not be."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
MODULES = sorted((ROOT / "k25trace").rglob("*.py"))
FOREIGN = {"torch", "nvtx", "workloads"}
HEAVY = {"polars", "plotly", "torch", "nvtx", "sqlite_utils", "adbc_driver_manager", "adbc_driver_sqlite"}


def imported(source: str) -> set[str]:
    """Every module that a source text imports, at any depth, by its full name."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def loaded_by(*argv: str) -> set[str]:
    """Top-level modules that are loaded when a fresh interpreter has run the arguments."""
    run = "runpy.run_module('k25trace', run_name='__main__')"
    program = f"try:\n    {run}\nexcept SystemExit as end:\n    assert not end.code\n" if argv else "import k25trace\n"
    code = f"import runpy, sys\nsys.argv = {['k25trace', *argv]!r}\n{program}"
    code += "sys.stderr.write('\\n'.join(sorted({m.partition('.')[0] for m in sys.modules})))\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    return set(done.stderr.split())


def test_the_layers_hold():
    code = "import sys; from importlinter.cli import lint_imports_command; sys.exit(lint_imports_command())"
    done = subprocess.run(
        [sys.executable, "-c", code, "--no-cache"], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_module_imports_torch_nvtx_or_the_workloads(module):
    names = imported(module.read_text(encoding="utf-8"))
    assert not {n for n in names if n.partition(".")[0] in FOREIGN or n.startswith("k25trace.workloads")}


def test_the_search_for_imports_finds_them():
    source = "def f():\n    import torch.cuda\n    from k25trace import workloads\n"
    assert imported(source) == {"torch.cuda", "k25trace", "k25trace.workloads"}


def test_importing_the_package_loads_nothing_heavy():
    loaded = loaded_by()
    assert "k25trace" in loaded
    assert not loaded & (HEAVY | {"typer", "rich"})


@pytest.mark.parametrize(
    "argv",
    [["--help"], ["--version"], ["attribute", "--help"], ["query", "--help"], ["query", "--list"]],
    ids=" ".join,
)
def test_help_loads_nothing_heavy(argv):
    loaded = loaded_by(*argv)
    assert "typer" in loaded
    assert not loaded & HEAVY
