"""Kernel names: one spelling for the six that tools print, and nothing that a name can break."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from k25trace.classify import load_rules
from k25trace.names import MAX_LENGTH, MAX_PATH, KernelName, kernel_name, normalise

FULL = "void at::native::(anonymous namespace)::cunn_SoftMaxForward<4, float, true>(float*, float const*)"
SPELLINGS = {
    "CUPTI": FULL,
    "nsys": "void at::native::<unnamed>::cunn_SoftMaxForward<(int)4, float, (bool)1>(T4 *, const T2 *)",
    "nvprof": "at::native::_GLOBAL__N__x::cunn_SoftMaxForward<int=4, float, bool=1>(float*, float const*)",
    "short": "cunn_SoftMaxForward",
    "mangled": "_ZN2at6native12_GLOBAL__N_119cunn_SoftMaxForwardILi4EfLb1EEEvPfPKf",
    "truncated": "void at::native::(anonymous namespace)::cunn_SoftMaxForward<4, flo...",
}


def test_six_spellings_of_one_kernel_get_one_answer():
    rules = load_rules()
    assert {rules.classify(name).family for name in SPELLINGS.values()} == {"softmax"}
    assert {kernel_name(name).function for name in SPELLINGS.values()} == {"cunn_SoftMaxForward"}


def test_full_names_of_cupti_and_nsys_are_the_same_name():
    assert kernel_name(SPELLINGS["CUPTI"]) == kernel_name(SPELLINGS["nsys"])


@pytest.mark.parametrize(
    ("raw", "name"),
    [
        ("void f<(int)4, (unsigned long)2, (long)-1>(T1 *)", "f<4, 2, -1>"),
        ("void f<4, 2ul, -1l, 7u>(int*)", "f<4, 2, -1, 7>"),
        ("void f<std::array<char*, 2ul> >(int)", "f<std::array<char*, 2>>"),
        ("f<at::detail::Array<char *, (int)2>>", "f<std::array<char*, 2>>"),
        ("f<g()::[lambda(float) (instance 1)]>(int)", "f<g()::{lambda(float)#1}>"),
        ("f<g()::{lambda(float)#1}::operator()() const>", "f<g()::{lambda(float)#1}::operator()() const>"),
        ("f<g()::operator ()() const>", "f<g()::operator()() const>"),
        ("vllm::paged<unsigned short, int=128, bool=0>", "vllm::paged<unsigned short, 128, false>"),
        (
            "std::enable_if<(((8)>(0)))&&vllm::_typeConvert<c10::Half>::exists, void>::type vllm::norm<8>()",
            "vllm::norm<8>",
        ),
        ("memcpy32_post kernel", "memcpy32_post kernel"),
        (
            "void at::native::unrolled_elementwise_kernel<at::nat…",
            "at::native::unrolled_elementwise_kernel<at::nat",
        ),
        ("<unnamed>::f(int)", "(anonymous namespace)::f"),
        ("", ""),
        ("(", "("),
        ("_Z3foov", "foo"),
        (
            "_ZN6marlin6MarlinI6__halfLl1125899907892224ELin1ELb1EEEvPK4int4",
            "marlin::Marlin<__half, 1125899907892224, -1, true, int4>",
        ),
        ("_ZN7cutlass13device_kernelIN10flashin...", "cutlass::device_kernel<flashin>"),
        ("_ZN9deep_gemm4implILNS_8GemmTypeE1EEEvv", "deep_gemm::impl<GemmType, 1>"),
    ],
)
def test_spelling(raw, name):
    assert normalise(raw) == name


def test_parts_of_a_name():
    assert kernel_name(FULL) == KernelName(
        name="at::native::(anonymous namespace)::cunn_SoftMaxForward<4, float, true>",
        path="at::native::cunn_SoftMaxForward",
        function="cunn_SoftMaxForward",
    )


SCRAPS = st.sampled_from(
    [
        "_Z",
        "_ZN",
        "3foo",
        "I",
        "E",
        "Li4E",
        "void ",
        "<",
        ">",
        "(",
        ")",
        "(int)",
        "(bool)",
        "1",
        "4ul",
        "int=",
        "bool=",
        "<unnamed>",
        "(anonymous namespace)",
        "[lambda(",
        ") (instance 1)]",
        "'lambda'(",
        "operator ()",
        "::",
        " ",
        "...",
        "at::detail::Array<",
        "std::enable_if<",
        "\0",
        "\n",
        "é",
        "\u202e",
        "[red]",
    ]
)
NAMES = st.one_of(st.text(max_size=60), st.lists(SCRAPS, max_size=25).map("".join))


@given(NAMES)
def test_normalising_twice_changes_nothing(name):
    once = normalise(name)
    assert normalise(once) == once


@given(NAMES)
def test_any_text_is_a_name(name):
    parts = kernel_name(name)
    assert parts.function in parts.path
    assert len(parts.path) <= MAX_PATH


@given(st.text(alphabet=string.ascii_lowercase + "_", min_size=1, max_size=30), st.integers(0, 9))
def test_a_mangled_template_reads_like_its_demangled_form(identifier, number):
    symbol = f"_ZN4vllm{len(identifier)}{identifier}ILi{number}EEEvv"
    assert kernel_name(symbol) == kernel_name(f"void vllm::{identifier}<{number}>()")


def test_only_so_much_of_a_name_is_read():
    assert len(normalise("x" * 100_000)) == MAX_LENGTH
