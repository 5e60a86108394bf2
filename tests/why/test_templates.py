"""Graph templates: alignment by laws, application against what generators and whole recordings say."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from laws import check_laws
from strip import stripped
from tracekit import ADD, CAST, MARLIN, RMS_NORM, KernelName, TraceBuilder

from k25trace import attribute, open_trace
from k25trace.attribution import VIAS, Attribution
from k25trace.collectives import match_collectives
from k25trace.errors import BadTemplate, CannotAnswer
from k25trace.learning import learn_template
from k25trace.report import json_
from k25trace.steps import find_steps
from k25trace.templates import LEAST_SCORE, Graph, Template, common, read_template, written

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden"
SCHEMA = json.loads((ROOT / "docs" / "reference" / "attribution.schema.json").read_text(encoding="utf-8"))
STEP = ("step", "default")


def graph(names: list[str], paths: list[tuple[tuple[str, str], ...]] | None = None) -> Graph:
    own = paths or [(STEP, (f"range {i}", "default")) for i in range(len(names))]
    return Graph(tuple(names), tuple(own), (1000,) * len(names), 1)


# ---- alignment

sequences = st.lists(st.sampled_from("abcdef"), max_size=12)


def longest_common(one: list[str], other: list[str]) -> int:
    """Return the length of the longest common subsequence, by trying every choice."""
    if not one or not other:
        return 0
    if one[0] == other[0]:
        return 1 + longest_common(one[1:], other[1:])
    return max(longest_common(one[1:], other), longest_common(one, other[1:]))


@given(learned=sequences, names=sequences)
def test_a_score_is_what_agrees_of_the_longer_sequence(learned: list[str], names: list[str]) -> None:
    found = Template((graph(learned),)).align(names)
    if not learned or not names:
        assert found is None
        return
    assert found is not None
    assert len(found.paths) == len(names)
    agreeing = found.score * max(len(learned), len(names))
    assert agreeing == pytest.approx(round(agreeing))
    assert round(agreeing) <= longest_common(learned, names)
    assert (found.score == 1.0) == (learned == names)


@given(data=st.data(), length=st.integers(1, 30))
def test_what_is_left_of_a_sequence_of_different_kernels_keeps_its_paths(data: st.DataObject, length: int) -> None:
    """Kernels taken out and others put in between: every kernel that is still there has its own path."""
    learned = graph([f"kernel {i}" for i in range(length)])
    kept = data.draw(st.lists(st.sampled_from(range(length)), unique=True).map(sorted))
    names: list[str] = []
    for i in kept:
        names += [f"new {i} {n}" for n in range(data.draw(st.integers(0, 2)))] if i % 3 == 0 else []
        names.append(f"kernel {i}")
    found = Template((learned,)).align(names)
    if not names:
        assert found is None
        return
    assert found is not None
    for name, path in zip(names, found.paths, strict=True):
        if name.startswith("kernel"):
            agrees = path == learned.paths[int(name.split()[1])]
            # A replacement that costs as much as taking out and putting in may move one: never where few differ.
            assert agrees or found.score < LEAST_SCORE


@given(learned=st.lists(sequences, max_size=4), names=sequences)
def test_the_best_of_several_graphs_is_taken(learned: list[list[str]], names: list[str]) -> None:
    found = Template(tuple(map(graph, learned))).align(names)
    alone = [one.score for each in learned if (one := Template((graph(each),)).align(names))]
    assert (found.score if found else None) == max(alone, default=None)


def test_an_additional_kernel_has_what_its_neighbours_have_in_common() -> None:
    layers = [(STEP, ("layer0", "d"), ("gemm", "d")), (STEP, ("layer0", "d"), ("norm", "d")), (STEP, ("layer1", "d"))]
    template = Template((graph(["a", "b", "c"], layers),))
    found = template.align(["a", "new", "b", "new", "c"])
    assert found is not None
    assert found.paths == (layers[0], layers[0][:2], layers[1], layers[0][:1], layers[2])
    assert found.score == 3 / 5


def test_a_kernel_in_the_place_of_another_has_its_path() -> None:
    learned = graph(["a", "b", "c", "d", "e"])
    found = Template((learned,)).align(["a", "b", "x", "d", "e"])
    assert found is not None
    assert (found.paths, found.score) == (learned.paths, 0.8)


def test_common_ranges_are_those_at_the_beginning() -> None:
    assert common((STEP, ("a", "d")), (STEP, ("b", "d"))) == (STEP,)
    assert common((), (STEP,)) == ()


# ---- the file


def test_a_template_survives_its_file(tmp_path: Path) -> None:
    template = Template((graph(["a", "b", "a"]), graph(["ü\n", "</script>"])))
    file = tmp_path / "x.k25tpl"
    file.write_text(written(template), encoding="utf-8")
    assert read_template(file).graphs == template.graphs


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", "{}", '{"schema": "k25trace.template/2"}', '{"schema": "k25trace.template/1"}',
        '{"schema": "k25trace.template/1", "names": [1], "paths": [], "graphs": []}',
        '{"schema": "k25trace.template/1", "names": ["a"], "paths": [[]], "graphs": '
        '[{"names": [3], "paths": [0], "p50_ns": [1], "replay_count": 1}]}',
        '{"schema": "k25trace.template/1", "names": ["a"], "paths": [[]], "graphs": '
        '[{"names": [0], "paths": [], "p50_ns": [1], "replay_count": 1}]}',
        '{"schema": "k25trace.template/1", "names": ["a"], "paths": [[]], "graphs": '
        '[{"names": [-1], "paths": [0], "p50_ns": [1], "replay_count": 1}]}',
        '{"schema": "k25trace.template/1", "names": ["\\ud800"], "paths": [], "graphs": []}',
        '{"schema": "k25trace.template/1", "names": [], "paths": [[["a", "\\udfff"]]], "graphs": []}',
        "[" * 100_000,
    ],
)  # fmt: skip
def test_what_is_no_template_is_refused(tmp_path: Path, text: str, run_in_process: Any) -> None:
    file = tmp_path / "x.k25tpl"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(BadTemplate):
        read_template(file)
    done = run_in_process("attribute", GOLDEN / "h200x1_toy_graph.sqlite", "--template", file)
    assert (done.code, done.stdout) == (1, "")
    assert str(file) in done.stderr


# ---- a graph by hand: captured in ranges, or before the recording


KERNELS: tuple[KernelName, ...] = (RMS_NORM, MARLIN, ADD, CAST)
CAPTURED_IN = (("layer0", "norm"), ("layer0", "gemm"), ("layer1",), ())


def replayed(*, late: bool, kernels: tuple[KernelName, ...] = KERNELS, pid: int = 1000) -> TraceBuilder:
    """A graph of four kernels, replayed three times in a step each."""
    t = TraceBuilder()
    t.process(pid)
    shift = -10_000 if late else 0
    if not late:
        t.capture(10, 90, pid=pid)
        t.push_pop("layer0", 12, 40, pid=pid)
        t.push_pop("norm", 14, 20, pid=pid)
        t.push_pop("gemm", 24, 30, pid=pid)
        t.push_pop("layer1", 44, 60, pid=pid)
    for i, at in enumerate((16, 26, 50, 70)):
        t.node(at + shift, (1 << 32) + i, pid=pid)
    for replay in range(3):
        at = 1000 * (replay + 1)
        t.push_pop("step", at, at + 50, pid=pid)
        corr = t.graph_launch(at + 5, 4, pid=pid)
        for i, kernel in enumerate(kernels):
            t.kernel(kernel, at + 20 + 10 * i, 5 + i, pid=pid, corr=corr, node=(1 << 32) + i)
    return t


def owners(path: Path, template: Template | None = None) -> Counter[tuple[Any, str]]:
    attribution = Attribution(open_trace(path), template=template)
    found: Counter[tuple[Any, str]] = Counter()
    for number, via in attribution.kernels.select("path", "via").iter_rows():
        owner = attribution.owner(number)
        found[owner and owner.names, VIAS[via]] += 1
    return found


def test_kernels_of_a_late_graph_get_their_ranges(tmp_path: Path) -> None:
    template = learn_template(replayed(late=False).write(tmp_path / "whole.sqlite"))
    late = replayed(late=True, pid=2000).write(tmp_path / "late.sqlite")
    assert owners(late) == {(("step",), "launch"): 12}
    want = {(("step", *names), "template" if names else "launch"): 3 for names in CAPTURED_IN}
    assert owners(late, template) == want
    found = attribute(late, template=template)
    assert found.templates is not None
    assert found.templates.rows() == [(0, 2000, 4, 3, 0, 1.0, True)]
    assert "capture-ranges-missing" not in {w.code for w in found.warnings}
    document = json.loads(json.dumps(json_.build(found)))
    check_laws(document)
    assert [e.message for e in jsonschema.Draft202012Validator(SCHEMA).iter_errors(document)] == []


def test_a_graph_that_is_not_alike_is_left_alone_and_said(tmp_path: Path) -> None:
    template = learn_template(replayed(late=False).write(tmp_path / "whole.sqlite"))
    late = replayed(late=True, kernels=(ADD, CAST, CAST, MARLIN)).write(tmp_path / "late.sqlite")
    assert owners(late, template) == {(("step",), "launch"): 12}
    found = attribute(late, template=template)
    assert found.templates is not None
    assert found.templates["applied"].to_list() == [False]
    assert found.templates["score"][0] < LEAST_SCORE
    assert {w.code: w.count for w in found.warnings}["capture-ranges-missing"] == 12


def test_a_graph_with_a_capture_of_its_own_needs_no_template(tmp_path: Path) -> None:
    path = replayed(late=False).write(tmp_path / "whole.sqlite")
    assert owners(path, learn_template(path)) == owners(path)


def test_learned_ranges_can_be_selected(tmp_path: Path) -> None:
    whole = replayed(late=False).write(tmp_path / "whole.sqlite")
    late = replayed(late=True).write(tmp_path / "late.sqlite")
    template = learn_template(whole)
    for glob in ("layer0", "gemm", "layer*"):
        want, got = attribute(whole, range_glob=glob), attribute(late, range_glob=glob, template=template)
        assert got.wall.rows() == want.wall.rows()
        assert got.gpus["kernel_ns"].to_list() == want.gpus["kernel_ns"].to_list()
    with pytest.raises(CannotAnswer, match="no NVTX range matches"):
        attribute(late, range_glob="layer0")


def test_domains_are_kept_apart(tmp_path: Path) -> None:
    t = replayed(late=False)
    t.domain("engine", 3)
    t.push_pop("engine range", 11, 80, domain=3)
    template = learn_template(t.write(tmp_path / "whole.sqlite"))
    late = replayed(late=True).write(tmp_path / "late.sqlite")
    assert owners(late, template)[("step", "engine range"), "template"] == 3
    chosen = Attribution(open_trace(late), ["default"], template)
    assert {chosen.owner(p).names for p in chosen.kernels["path"].unique()} == {
        ("step", *names) for names in CAPTURED_IN
    }


def test_one_sequence_captured_in_different_ranges_has_what_they_share(tmp_path: Path) -> None:
    other = replayed(late=False, pid=2000)
    for row in other.rows["NVTX_EVENTS"]:
        row["text"] = {"gemm": "matmul"}.get(row["text"], row["text"])
    paths = [replayed(late=False).write(tmp_path / "a.sqlite"), other.write(tmp_path / "b.sqlite")]
    (learned,) = learn_template(paths).graphs
    assert learned.paths[1] == (("layer0", "default"),)
    assert learned.replay_count == 6


def test_nothing_to_learn_is_said(tmp_path: Path, run_in_process: Any) -> None:
    for trace in ("h200x2_toy_eager", "h200x1_toy_graph", "h200x2_vllm_graph"):
        done = run_in_process("template", "learn", GOLDEN / f"{trace}.sqlite", "-o", tmp_path / "x.k25tpl")
        assert (done.code, done.stdout) == (3, "")
        assert "no CUDA graph that was captured inside a recorded range" in done.stderr
        assert not (tmp_path / "x.k25tpl").exists()


# ---- against what others know


@pytest.mark.parametrize("seeds", [(3, 4), (5, 3)])
def test_synthetic_graphs_captured_late_are_exact(tmp_path: Path, seeds: tuple[int, int]) -> None:
    """Learned from one run and applied to another of other kernel times and ranks."""
    files = []
    for mode, seed, gpus in (("node", seeds[0], "2"), ("late", seeds[1], "4")):
        out = tmp_path / f"{mode}.sqlite"
        options = ["--kernels", "12000", "--layers", "3", "--gpus", gpus, "--graph-mode", mode, "--seed", str(seed)]
        maker = [sys.executable, ROOT / "tests" / "tools" / "make_trace.py", *options, "--quiet", "--out", out]
        subprocess.run(maker, check=True, timeout=120)
        files.append(out)
    template = learn_template(files[0])
    found = attribute(files[1], template=template)
    truth = json.loads(files[1].with_suffix(".truth.json").read_text(encoding="utf-8"))
    assert found.ranges is not None
    got: Counter[Any] = Counter()
    rows = found.ranges.select("process", "kind", "via", "path", "kernel_count", "kernel_ns")
    for process, kind, via, path, count, ns in rows.iter_rows():
        if kind == "pushpop":
            got[process, via, path and tuple(path), "count"] += count
            got[process, via, path and tuple(path), "ns"] += ns
    want: Counter[Any] = Counter()
    for row in truth["template_exclusive"]:
        key = (row["pid"], row["via"], row["path"] and tuple(row["path"]))
        want[(*key, "count")] += row["kernel_count"]
        want[(*key, "ns")] += row["kernel_ns"]
    assert got == want


def test_a_whole_recording_without_its_capture_gets_every_owner_back(tmp_path: Path) -> None:
    whole = GOLDEN / "h200x2_decode_graph.sqlite"
    late = stripped(whole, tmp_path / "late.sqlite")
    bare = owners(late)
    assert bare[("graph_step",), "launch"] == 3720
    told, want = owners(late, learn_template(whole)), owners(whole)
    as_captured = Counter({(names, via.replace("template", "capture")): n for (names, via), n in told.items()})
    assert as_captured == want


def test_steps_and_collectives_of_a_late_graph_have_layers_and_sites(tmp_path: Path) -> None:
    whole = GOLDEN / "h200x2_decode_graph.sqlite"
    late = stripped(whole, tmp_path / "late.sqlite")
    template = learn_template(whole)
    want, got = (
        find_steps(*a, step="graph_step", per_layer=True, **k)
        for a, k in (((whole,), {}), ((late,), {"template": template}))
    )
    assert want.layers is not None
    assert got.layers is not None
    assert got.layers.rows() == want.layers.rows()
    sites = [match_collectives(whole, step="graph_step"), match_collectives(late, step="graph_step", template=template)]
    assert sites[0].sites.rows() == sites[1].sites.rows()


# ---- command line


def test_learn_and_apply_on_the_command_line(tmp_path: Path, run_in_process: Any) -> None:
    whole = GOLDEN / "h200x2_decode_graph.sqlite"
    late = stripped(whole, tmp_path / "late.sqlite")
    file = tmp_path / "decode.k25tpl"
    learned = run_in_process("template", "learn", whole, "-o", file)
    assert (learned.code, learned.stdout) == (0, "")
    assert "1 graph of 186 kernels" in learned.stderr
    again = run_in_process("template", "learn", whole, "-o", file)
    assert again.code == 1
    assert "exists already" in again.stderr
    assert run_in_process("template", "learn", whole, "-o", file, "--force").code == 0
    for verb, more in (("attribute", ()), ("steps", ("--per-layer",)), ("collectives", ()), ("gaps", ())):
        shown = run_in_process(verb, late, "--template", file, *more)
        assert shown.code == 0
        assert "template: 2 graphs named, alike to at least 100.0 %" in shown.stdout
        document = json.loads(run_in_process(verb, late, "--template", file, "-f", "json", *more).stdout)
        assert [row["applied"] for row in document["templates"]] == [True, True]
    over = run_in_process("attribute", late, "--template", file, "-o", file, "--force")
    assert over.code == 2
