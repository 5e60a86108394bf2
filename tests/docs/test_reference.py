"""The reference pages are those of the live objects, and the JSON is that of its schema."""

import contextlib
import copy
import doctest
import importlib
import io
import json
import pkgutil
import re
import runpy
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path

import jsonschema
import polars as pl
import pytest

import k25trace
from k25trace import accounting, analysis
from k25trace.cli import app
from k25trace.taxonomy import ALL_CATEGORIES
from k25trace.warnings import KINDS

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
GOLDEN = ROOT / "tests" / "golden"
TRACES = sorted(path.stem for path in GOLDEN.glob("h200*.sqlite"))
SCHEMA = json.loads((DOCS / "reference" / "attribution.schema.json").read_text(encoding="utf-8"))
GENERATE = runpy.run_path(str(DOCS / "generate.py"))
MEASURE = re.compile(r"_(ns|count|share|bytes)$")

OPTIONS = {
    "plain": [],
    "window": ["--window", "40ms:60ms"],
    "open_window": ["--window", ":60ms"],
    "nccl": ["--domain", "NCCL"],
    "of_tables": ["--per-gpu", "--by", "range"],
}


def page(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


@cache
def document(*words: str) -> dict:
    """What `k25trace attribute WORDS --format json` prints, run in this process and once."""
    with contextlib.chdir(GOLDEN), contextlib.redirect_stdout(io.StringIO()) as out:
        app(["attribute", *words, "--format", "json"], standalone_mode=False)
    return json.loads(out.getvalue())


def errors(found: dict) -> list[str]:
    return [f"{e.json_path}: {e.message}" for e in jsonschema.Draft202012Validator(SCHEMA).iter_errors(found)]


# ---- pages


def test_generated_pages_are_current():
    done = subprocess.run(
        [sys.executable, str(DOCS / "generate.py"), "--check"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_stale_page_is_noticed():
    (cli,) = [text for path, text in GENERATE["pages"]() if path.name == "cli.md"]
    assert cli == page("reference/cli.md") != page("reference/cli.md").replace("--range GLOB", "--rnage GLOB")


COMMANDS = dict(GENERATE["leaves"]())


@pytest.mark.parametrize("words", COMMANDS)
def test_every_command_has_help_with_an_example_of_itself(words, run_in_process):
    said, example = GENERATE["split_help"](COMMANDS[words])
    assert len(said) > 20
    assert example.startswith(f"{words} ")
    shown = run_in_process(*words.split()[1:], "--help")
    assert shown.code == 0
    assert "Example: " in shown.stdout


@pytest.mark.parametrize("words", COMMANDS)
def test_every_option_of_the_page_is_one_of_the_program(words, run_in_process):
    arguments, options = GENERATE["parameters"](COMMANDS[words])
    shown = run_in_process(*words.split()[1:], "--help").stdout
    for parameter in options:
        assert parameter.meaning
        for name in re.findall(r"-{1,2}[a-zA-Z0][\w-]*", parameter.spelling.partition(" ")[0]):
            assert name in shown
    listed = set(re.findall(r"(?<![\w-])--[a-z][\w-]*", shown)) - {"--help"}
    assert listed <= set(re.findall(r"--[a-z][\w-]*", page("reference/cli.md")))
    assert all(parameter.meaning for parameter in arguments)


@pytest.mark.parametrize("code", KINDS)
def test_every_warning_is_documented(code):
    text = page("reference/warnings.md")
    assert f"### `{code}`\n" in text
    assert KINDS[code].effect in text


@pytest.mark.parametrize("category", ALL_CATEGORIES)
def test_every_category_is_documented(category):
    assert f"`{category}`" in page("reference/rules.md")


def columns() -> set[str]:
    found = k25trace.attribute(GOLDEN / "h200x2_decode_graph.sqlite")
    frames = [f for f in vars(found).values() if isinstance(f, pl.DataFrame)]
    return {column for frame in frames for column in frame.columns}


def keys(value: object) -> set[str]:
    if isinstance(value, list):
        return {key for item in value for key in keys(item)}
    if isinstance(value, dict):
        return set(value) | {key for item in value.values() for key in keys(item)}
    return set()


def test_every_measure_of_the_frames_and_of_the_json_is_in_the_glossary():
    found = columns() | keys(document("h200x2_decode_graph.sqlite"))
    measures = {name for name in found if MEASURE.search(name)}
    assert {"kernel_ns", "kernel_share", "graph_launch_count"} <= measures
    glossary = page("concepts/glossary.md")
    assert {name for name in measures if f"`{name}`" not in glossary} == set()


def test_the_glossary_names_no_measure_that_is_not_there():
    named = {n for n in re.findall(r"`(\w+)`", page("concepts/glossary.md")) if MEASURE.search(n)}
    assert named - columns() == set()


def test_every_frame_of_an_analysis_names_its_columns_in_its_documentation():
    found = k25trace.attribute(GOLDEN / "h200x2_decode_graph.sqlite")
    said = dict(GENERATE["documented"](analysis.Analysis))
    assert said.keys() == vars(found).keys()
    for name, frame in vars(found).items():
        if isinstance(frame, pl.DataFrame):
            assert {c for c in frame.columns if not re.search(rf"\b{c}\b", said[name])} == set(), name


def test_every_public_name_is_on_the_page():
    text = page("reference/python-api.md")
    assert all(f"### `{name}`\n" in text for name in k25trace.__all__)


def test_the_example_of_the_python_page_runs(monkeypatch, capsys):
    (example,) = [
        c for c in re.findall(r"```python\n(.*?)```", page("reference/python-api.md"), re.DOTALL) if "import" in c
    ]
    monkeypatch.chdir(ROOT)
    exec(compile(example, "python-api.md", "exec"), {})
    assert "assumed-device" in capsys.readouterr().out


COMMANDS_OF_PAGES = [
    (name, line[2:])
    for name in ("how-to/read-a-trace.md", "how-to/save-and-browse.md")
    for block in re.findall(r"^```console\n(.*?)^```", page(name), re.MULTILINE | re.DOTALL)
    for line in block.splitlines()
    if line.startswith("$ k25trace ")
]


@pytest.mark.parametrize(("name", "line"), COMMANDS_OF_PAGES, ids=[line for _, line in COMMANDS_OF_PAGES])
def test_the_commands_of_the_how_to_pages_run(name, line, tmp_path, run_cli):
    assert name
    _, *words = shlex.split(line)
    done = run_cli(*(str(ROOT / w) if w.startswith("tests/golden/") else w for w in words), cwd=tmp_path)
    assert (done.code, done.stderr) == (0, "")
    written = [words[i + 1] for i, w in enumerate(words) if w in {"-o", "--save"}]
    assert bool(done.stdout) != ("-o" in words)
    assert sorted(p.name for p in tmp_path.iterdir()) == written


def test_the_views_of_the_save_page_are_those_of_the_database(tmp_path, run_cli):
    import sqlite3

    run_cli("attribute", GOLDEN / "h200x2_decode_graph.sqlite", "--save", tmp_path / "a.db")
    with sqlite3.connect(tmp_path / "a.db") as db:
        found = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'view'")}
        assert {view for view in found if f"`{view}`" not in page("how-to/save-and-browse.md")} == set()
        (query,) = re.findall(r'sqlite3 analysis.db "(.*)"', page("how-to/save-and-browse.md"))
        assert db.execute(query).fetchall()
    db.close()


# ---- figures that pages state


def share(selected: str, category: str) -> float:
    rows = document("h200x2_decode_graph.sqlite", "--range", selected)["categories"]
    (found,) = [r["kernel_share"] for r in rows if (r["gpu"], r["category"]) == ("all", category)]
    return found


def test_the_shares_of_the_limits_page_are_those_of_the_trace():
    (stated,) = re.findall(
        r"AllReduce is (\S+) % of the kernel time of `eager_step` and (\S+) % of\s+`graph_step`",
        page("concepts/limits.md"),
    )
    assert stated == tuple(f"{share(s, 'comm.allreduce') * 100:.1f}" for s in ("eager_step", "graph_step"))


def test_the_example_of_the_accounting_page_is_right():
    parts = {
        "gemm.dense": (accounting.kernel_part("gemm.dense", nccl=False), 0, 40),
        "comm.allreduce": (accounting.kernel_part("comm.allreduce", nccl=True), 30, 80),
        "memcpy": (accounting.row_part(accounting.MEMCPY), 70, 90),
    }
    types = {"gpu": pl.Int64, "start_ns": pl.Int64, "end_ns": pl.Int64}
    sweep = accounting.Sweep(pl.DataFrame([(0, 0, 100)], schema=types, orient="row"))
    rows = [(0, start, end, part) for part, start, end in parts.values()]
    sweep.add(pl.DataFrame(rows, schema={**types, "part": pl.UInt8}, orient="row"))
    account = sweep.finish()[0]
    stated = {
        what.replace("wall: ", "").strip("`"): int(value)
        for what, value in re.findall(r"^\| ([^|]+) \| (\d+) \|", page("concepts/time-accounting.md"), re.MULTILINE)
    }
    assert stated.pop("kernel time") == 90
    assert stated.pop("busy") == account.busy_ns
    assert stated.pop("exposed communication") == account.exposed_communication_ns
    assert stated == dict(account.wall)


# ---- JSON


@pytest.mark.parametrize(
    ("trace", "options"),
    # One GPU has no NCCL, and such a report refuses to answer by its ranges.
    [(t, o) for t in TRACES for o in OPTIONS if o != "nccl" or (t.startswith("h200x2") and not t.endswith("late"))],
)
def test_the_json_of_real_traces_fits_the_schema(trace, options):
    assert errors(document(f"{trace}.sqlite", *OPTIONS[options])) == []


def test_the_json_of_a_range_and_of_two_reports_fits_the_schema():
    assert errors(document("h200x2_decode_graph.sqlite", "--range", "graph_*")) == []
    two = document("h200x1_toy_graph.sqlite", "h200x2_toy_eager.sqlite")
    assert errors(two) == []
    assert [g["gpu"] for g in two["gpus"]] == ["0:0", "1:0", "1:1"]


def test_every_key_of_the_json_has_a_description():
    def undescribed(value: object, part: dict, at: str) -> list[str]:
        if "$ref" in part:
            part = {**SCHEMA["$defs"][part["$ref"].rsplit("/", 1)[1]], **part}
        if isinstance(value, list):
            return [gap for item in value for gap in undescribed(item, part.get("items", {}), at)]
        if not isinstance(value, dict):
            return []
        known = part.get("properties", {})
        missing = [f"{at}.{key}" for key in value if not known.get(key, {}).get("description")]
        return missing + [gap for k, v in value.items() if k in known for gap in undescribed(v, known[k], f"{at}.{k}")]

    for trace in TRACES:
        assert undescribed(document(f"{trace}.sqlite"), SCHEMA, "$") == []


def test_the_schema_knows_the_taxonomy():
    assert SCHEMA["$defs"]["category"]["enum"] == list(ALL_CATEGORIES)
    assert SCHEMA["$defs"]["wall_row"]["properties"]["row"]["enum"] == list(accounting.WALL_ROWS)


def test_the_schema_is_a_schema_that_lets_keys_be_added():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    more = copy.deepcopy(document("h200x2_decode_graph.sqlite"))
    more["steps"] = []
    more["gpus"][0]["sm_count"] = 132
    assert errors(more) == []


MUTATIONS = {
    "schema_of_another_version": lambda d: d.update(schema="k25trace.attribution/2"),
    "no_warnings": lambda d: d.pop("warnings"),
    "no_gpus": lambda d: d.update(gpus=[]),
    "time_as_float": lambda d: d["gpus"][0].update(kernel_ns=1.5),
    "negative_time": lambda d: d["wall"][0].update(wall_ns=-1),
    "share_in_percent": lambda d: d["categories"][0].update(kernel_share=39.2),
    "share_unknown": lambda d: d["categories"][0].update(kernel_share=None),
    "key_gone": lambda d: d["gpus"][0].pop("exposed_communication_ns"),
    "category_unheard_of": lambda d: d["families"][0].update(category="gemm"),
    "wall_row_unheard_of": lambda d: d["wall"][0].update(row="comm.allreduce"),
    "path_as_text": lambda d: d["ranges"][0].update(path="a/b"),
    "kind_unheard_of": lambda d: d["ranges"][0].update(kind="push"),
    "gpu_as_number": lambda d: d["gpus"][0].update(gpu=0),
    "gpu_without_report": lambda d: d["gpus"][0].update(gpu="0"),
    "count_as_text": lambda d: d["kernels"][0].update(kernel_count="3"),
    "level_unheard_of": lambda d: d["warnings"][0].update(level="fatal"),
}


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_the_schema_rejects_what_it_should(mutation):
    changed = copy.deepcopy(document("h200x2_decode_graph.sqlite"))
    MUTATIONS[mutation](changed)
    assert errors(changed)


# ---- docstrings


@pytest.mark.parametrize(
    "name",
    [m.name for m in pkgutil.walk_packages(k25trace.__path__, "k25trace.") if "__main__" not in m.name],
)
def test_the_examples_in_docstrings_are_true(name):
    if name.startswith(("k25trace.workloads", "k25trace.queries")):
        pytest.skip("its examples need more than the test extra")
    failed, _ = doctest.testmod(importlib.import_module(name))
    assert failed == 0
