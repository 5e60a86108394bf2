"""Tables of `attribute` at the widths of terminals: every number whole, every row's subject there, rows told apart."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tracekit import CAST, MARLIN, TraceBuilder, unknown

from k25trace.analysis import attribute as analysed
from k25trace.report import markdown, table
from k25trace.report.cells import NOTHING, Column
from k25trace.report.choices import By, Request
from k25trace.report.layout import GAP, fitted, lay_out, stacked
from k25trace.report.rows import rows
from k25trace.report.sections import sections
from k25trace.report.text import path_label, range_label

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
VLLM = GOLDEN / "h200x2_vllm_graph.sqlite"


@pytest.fixture
def attribute(run_in_process):
    def run(*words):
        outcome = run_in_process("attribute", *words)
        assert (outcome.code, outcome.stderr) == (0, ""), outcome
        return outcome.stdout

    return run


@pytest.fixture(scope="module")
def vllm():
    return analysed(VLLM)


@pytest.fixture
def tables(vllm, monkeypatch):
    """Render the vLLM trace as one who has a terminal of that width sees it, without header and warnings."""

    def run(width, form=table, **asked):
        monkeypatch.setenv("COLUMNS", str(width))
        request = Request(top=4, **asked)
        out = io.StringIO()
        form.render([], [], sections(vllm, request, rows(vllm, request.by)), out)
        return out.getvalue()

    return run


@pytest.mark.parametrize("by", By)
def test_no_number_is_cut_and_every_row_says_what_it_is_about(by, tables):
    whole = tables(80, form=markdown, by=by)
    _, _, *cells = [line.strip("|").split(" | ") for line in whole.split("###")[1].splitlines() if line[:1] == "|"]
    headings = [h.strip() for h in whole.split("###")[1].splitlines()[2].strip("|").split(" | ")]
    subject = headings.index({By.kernel: "Name", By.gpu: "GPU"}.get(by, by.value.title()))
    for width in (30, 40, 60, 80, 100, 120, 200):
        text = tables(width, by=by)
        squeezed = re.sub(r"\s", "", text)
        for row in cells:
            if (time := row[headings.index("Kernel time")].strip()) != NOTHING:
                assert time in text
            # A wrapped name is in pieces on several lines, among the cells of other columns: its beginning is there.
            name = re.sub(r"\\(.)", r"\1", row[subject].strip()).replace("&lt;", "<").replace("&gt;", ">")
            assert re.sub(r"\s", "", name)[:10] in squeezed
        assert all(len(line.rstrip()) <= width for line in text.splitlines())


def test_columns_go_in_the_stated_order_and_are_named(tables):
    def headings_and_note(width):
        _, headings, *section = tables(width).strip().split("\n\n")[0].splitlines()
        return re.split(r"  +", headings.strip()), [line for line in section if "Left out" in line]

    every = ["Category", "Kernels", "Kernel time", "Share", "Busy", "Wall", "Wall share", "Mean", "Median", "Max"]
    assert headings_and_note(120) == (every, [])
    assert headings_and_note(100) == (
        [h for h in every if h != "Median"],
        ["Left out for want of width: Median; --format csv has all."],
    )
    assert headings_and_note(80) == (
        every[:7],
        ["Left out for want of width: Mean, Median, Max; --format csv has all."],
    )
    assert "Left out for want of width: Graph launches, Opaque, Name; --by gpu --format csv" in tables(80)
    assert headings_and_note(60)[0] == ["Category", "Kernels", "Kernel time", "Share", "Wall"]
    assert headings_and_note(40)[0] == ["Category", "Kernel time", "Share"]


def test_where_no_table_fits_rows_are_stacked(tables):
    assert [line.rstrip() for line in tables(30, by=By.family).strip().splitlines()[:6]] == [
        "By family, over all GPUs",
        "Category gemm.marlin, Family",
        "moe_w4a16_int4",
        "  Kernels 544,",
        "  Kernel time 55.4 ms,",
        "  Share 33.8 %",
    ]


COLUMN = st.tuples(st.booleans(), st.none() | st.integers(0, 9), st.text("ab ", min_size=1, max_size=8))


@given(st.data(), st.lists(COLUMN, min_size=1, max_size=6, unique_by=lambda c: c[1] or c[2]), st.integers(5, 120))
def test_a_layout_fits_or_is_stacked_and_keeps_what_must_stay(data, described, width):
    columns = [Column(heading, str, right=right, goes=goes) for right, goes, heading in described]
    cell = st.text("ab漢", max_size=60)
    texts = data.draw(st.lists(st.tuples(*(cell for _ in columns)), max_size=4))
    layout = lay_out(columns, texts, width)
    kept = {i for i, c in enumerate(columns) if c.goes is None}
    assert kept <= set(layout.shown)
    if layout.widths:
        assert sum(layout.widths) + GAP * (len(layout.widths) - 1) <= width
        for i, wide in zip(layout.shown, layout.widths, strict=True):
            longest = max([len(columns[i].heading), *(len(r[i].replace("漢", "xx")) for r in texts)])
            assert wide <= longest
            if columns[i].right:
                assert wide == longest
        left_out = [columns[i].goes for i in range(len(columns)) if i not in layout.shown]
        assert all(c.goes is None or c.goes >= max(left_out, default=-1) for c in (columns[i] for i in layout.shown))
    else:
        assert layout.shown == tuple(range(len(columns)))
    for row in texts:
        lines = stacked(columns, row, width)
        assert all(any(cell in line for line in lines) for cell in row)


@given(st.lists(st.text("ab", min_size=60, max_size=300), max_size=6), st.integers(1, 100))
def test_names_that_differ_look_different(texts, width):
    shown = fitted(texts, width)
    assert len(set(shown)) == len(set(texts))
    assert all(len(s) <= max(len(t), 72) for s, t in zip(shown, texts, strict=True))


NAME = st.one_of(
    st.sampled_from(
        ["", "a", "b", "a / b", "(unnamed)", "(launched under no range)", "/", " / ", "a /", '"a"', "a\nb"]
    ),
    st.text('ab /\\"n\n()\u202e', max_size=6),
)
PATH = st.none() | st.lists(NAME, min_size=1, max_size=3).map(tuple)


@given(st.sets(PATH, max_size=8))
def test_different_paths_have_different_labels(paths):
    labels = [path_label(path) for path in paths]
    assert len(set(labels)) == len(paths)
    assert all(label.isprintable() for label in labels)


def test_labels():
    assert [range_label(n) for n in (None, "", "gemm", "layer0/attn", "(warm-up)", 'say "hi"')] == [
        "(launched under no range)", "(unnamed)", "gemm", "layer0/attn", "(warm-up)", 'say "hi"',
    ]  # fmt: skip
    assert [range_label(n) for n in ("(unnamed)", "a / b", "/", " x", "a\nb", 'a\n"\\', "a\\nb")] == [
        '"(unnamed)"', '"a / b"', '"/"', '" x"', '"a\\nb"', '"a\\n\\"\\\\"', "a\\nb",
    ]  # fmt: skip


HOSTILE = [
    "a / b",
    "(unnamed)",
    "",
    "(launched under no range)",
    "#x",
    "a\n#b",
    'q"u,o',
    "c\rr",
    "\r\n",
    "tab\t",
    "🙂",
    " ",
]


@pytest.fixture
def hostile(tmp_path):
    """One kernel under each hostile name, 10 ns longer each, one under a then b, and one under no range."""
    t = TraceBuilder()
    at = 0
    for i, name in enumerate(HOSTILE):
        t.push_pop(name, at, at + 90)
        t.kernel(unknown(f"k{name}"), at + 50, 10 * (i + 1), launch=at + 10)
        at += 1000
    t.push_pop("a", at, at + 90)
    t.push_pop("b", at + 1, at + 80)
    t.kernel(MARLIN, at + 50, 500, launch=at + 10)
    t.kernel(CAST, at + 700, 600, launch=at + 650)
    return t.write(tmp_path / "trace.sqlite")


def test_paths_with_one_text_are_rows_of_their_own(hostile, attribute):
    want = {(name,): 10 * (i + 1) for i, name in enumerate(HOSTILE)} | {("a", "b"): 500, None: 600}
    text = attribute(hostile, "--by", "path", "--format", "csv", "--no-header")
    found = list(csv.DictReader(io.StringIO(text, newline="")))
    assert {tuple(json.loads(r["path"])) if r["path"] else None: int(r["kernel_ns"]) for r in found} == want
    assert len(found) == len(want)
    table = attribute(hostile, "--by", "path").split("By path, exclusive, over all GPUs\n")[1]
    shown = {line.split("  ")[0]: line for line in table.splitlines()[1:]}
    for label, ns in (('"a / b"', 10), ("a / b", 500), ('"(unnamed)"', 20), ("(unnamed)", 30)):
        assert f" {ns} ns " in shown[label]
    assert " 40 ns " in shown['"(launched under no range)"']
    assert " 600 ns " in shown["(launched under no range)"]


def test_ranges_with_one_text_are_rows_of_their_own(hostile, attribute):
    want = {name: 10 * (i + 1) for i, name in enumerate(HOSTILE)} | {"b": 500, None: 600}
    text = attribute(hostile, "--by", "range", "--format", "csv", "--no-header")
    assert dict(pl.read_csv(text.encode()).select("range", "kernel_ns").iter_rows()) == want
    inclusive = attribute(hostile, "--by", "range", "--inclusive", "--format", "csv", "--no-header")
    assert dict(pl.read_csv(inclusive.encode()).select("range", "kernel_ns").iter_rows()) == (
        {name: ns for name, ns in want.items() if name is not None} | {"a": 500}
    )


def test_paths_that_agree_to_a_depth_are_one_row(hostile, attribute):
    text = attribute(hostile, "--by", "path", "--depth", "1", "--format", "csv", "--no-header")
    found = {r["path"]: r["kernel_ns"] for r in csv.DictReader(io.StringIO(text, newline=""))}
    assert (found['["a"]'], found['["a / b"]'], found[""]) == ("500", "10", "600")


@pytest.mark.parametrize("by", By)
@pytest.mark.parametrize("per_gpu", [[], ["--per-gpu"]])
def test_csv_gives_readers_back_what_the_program_had(by, per_gpu, hostile, attribute):
    if per_gpu and by in {"kernel", "gpu"}:
        return
    plain = attribute(hostile, "--by", by, *per_gpu, "--format", "csv", "--no-header")
    text = attribute(hostile, "--by", by, *per_gpu, "--format", "csv")
    comments, _, rest = text.partition(plain)
    assert rest == ""
    assert comments.count("\n") == len(re.findall(r"(?m)^# [\w :-]+: .*$", comments)) >= 5
    frame = pl.read_csv(text.encode(), comment_prefix="#")
    assert frame.equals(pl.read_csv(plain.encode()))
    headings, *lines = csv.reader(io.StringIO(plain, newline=""))
    assert headings == frame.columns
    for name, dtype in frame.schema.items():
        if dtype == pl.String:
            assert [line[headings.index(name)] for line in lines] == frame[name].fill_null("").to_list()
    if by is By.kernel:
        assert set(frame["name"]) == {f"k{name}" for name in HOSTILE} | {MARLIN.demangled, CAST.demangled}
