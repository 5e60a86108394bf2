"""The grammar of range names: what is built is what is parsed."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from k25trace.ranges import KINDS, RANK, Range, build, name, parse

indices = st.none() | st.integers(0, 10**30)
parts = st.none() | st.from_regex(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", fullmatch=True)
kinds = st.sampled_from(sorted(KINDS - {RANK})) | st.from_regex(r"[a-z]+(_[a-z]+)*", fullmatch=True).filter(
    lambda kind: kind != RANK
)
ranges = st.builds(Range, kinds, indices, parts) | st.builds(Range, st.just(RANK), st.integers(0, 10**6))


@given(ranges)
def test_what_is_built_is_what_is_parsed(what):
    assert parse(build(what)) == what


@given(st.text(max_size=12) | st.from_regex(r"[a-z_=.0-9]{0,12}", fullmatch=True))
def test_a_text_has_one_meaning_or_none(text):
    try:
        what = parse(text)
    except ValueError:
        return
    assert build(what) == text


@pytest.mark.parametrize(
    "text",
    ["", "Layer3", "layer 3", "layer03", "layer-1", "layer=3", "rank3", "rank=", "rank=1.a", "gemm.",
     ".experts", "gemm.a.b", "layer3\n", "layer٣", "_layer", "layer_", "gemm.é"],
)  # fmt: skip
def test_names_outside_the_grammar_are_refused(text):
    with pytest.raises(ValueError, match=r"range|rank"):
        parse(text)


@pytest.mark.parametrize(
    ("kind", "index", "part"),
    [("Layer", 3, None), ("layer3", None, None), ("layer", -1, None), ("gemm", None, "A"),
     ("rank", None, None), ("rank", 0, "x"), ("", None, None)],
)  # fmt: skip
def test_ranges_outside_the_grammar_cannot_be_made(kind, index, part):
    with pytest.raises(ValueError, match=r"range|rank"):
        name(kind, index, part)


def test_it_needs_the_standard_library_alone():
    code = (
        "import sys; before = set(sys.modules); import k25trace.ranges; "
        "loaded = {m.partition('.')[0] for m in set(sys.modules) - before} - {'k25trace'}; "
        "assert loaded <= sys.stdlib_module_names, loaded"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
