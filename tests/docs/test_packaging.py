"""What users get: the wheel, alone in an environment of its own."""

import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ["pyproject.toml", "README.md", "LICENSE", "k25trace", "queries", "workloads"]
GOLDEN = ROOT / "tests" / "golden" / "h200x2_decode_graph.sqlite"

pytestmark = pytest.mark.slow


def run(*argv: str | Path, cwd: Path) -> str:
    done = subprocess.run(list(map(str, argv)), capture_output=True, text=True, check=False, cwd=cwd)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    # From a copy: a build folder in the checkout, of whatever age, must not get into it.
    place = tmp_path_factory.mktemp("wheel")
    copy = place / "source"
    copy.mkdir()
    for name in SOURCES:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, copy / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        else:
            shutil.copy(source, copy / name)
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", place, copy, cwd=place)
    (built,) = place.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def python(wheel, tmp_path_factory):
    """An interpreter that has the wheel and what it depends on, without extras."""
    place = tmp_path_factory.mktemp("venv")
    run(sys.executable, "-m", "venv", place, cwd=place)
    run(place / "bin" / "pip", "install", "--quiet", wheel, cwd=place)
    return place / "bin" / "python"


def test_the_wheel_holds_the_package_with_its_data_and_nothing_else(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    files = {name for name in names if ".dist-info/" not in name}
    assert {name.partition("/")[0] for name in files} == {"k25trace"}
    assert {"k25trace/rules/kernels.toml", "k25trace/py.typed", "k25trace/__main__.py"} <= files
    for folder, package in (("k25trace", ""), ("queries", "queries/"), ("workloads", "workloads/")):
        wanted = {
            f"k25trace/{package}{path.relative_to(ROOT / folder)}"
            for path in (ROOT / folder).rglob("*")
            if path.suffix in {".py", ".sql", ".toml", ".typed"}
        }
        assert wanted <= files
    assert not {name for name in files if "test" in name.lower()}
    assert {name for name in names if name.endswith("/LICENSE")}


def test_the_wheel_says_what_it_needs(wheel):
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [n for n in archive.namelist() if n.endswith(".dist-info/METADATA")]
        metadata = archive.read(name).decode()
    needed = [line for line in metadata.splitlines() if line.startswith("Requires-Dist:") and "extra ==" not in line]
    assert not [line for line in needed if any(word in line for word in ("torch", "nvtx", "numpy", "pandas"))]
    assert "Requires-Python: >=3.11" in metadata


def test_the_installed_package_attributes_a_trace(python, tmp_path):
    words = ["attribute", GOLDEN, "--range", "graph_step", "--format", "json"]
    document = json.loads(run(python.parent / "k25trace", *words, cwd=tmp_path))
    assert sum(gpu["kernel_count"] for gpu in document["gpus"]) == 3720
    assert "tests" not in run(python, "-c", "import k25trace; print(k25trace.__file__)", cwd=tmp_path)


def test_the_installed_package_finds_its_rules(python, tmp_path):
    assert json.loads(run(python, "-m", "k25trace", "rules", "list", "--format", "json", cwd=tmp_path))
