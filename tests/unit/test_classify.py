"""Classification against labelled names, and against names that mean harm."""

import csv
import subprocess
import sys
from pathlib import Path

import pytest

from k25trace.classify import load_rules
from k25trace.taxonomy import ALL_CATEGORIES, CATEGORIES, UNCLASSIFIED, is_nccl

DATA = Path(__file__).parent.parent / "data"
RULES = load_rules()


def labelled(file):
    with (DATA / file).open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))
    for row in rows:
        alternatives = row["note"].partition("alt=")[2].split(" ")[0].rstrip(";").split(",")
        row["right"] = {row["bucket"], *(text for text in alternatives if text in CATEGORIES)}
    return rows


def misses(rows):
    return {row["name"] for row in rows if RULES.classify(row["name"]).category not in row["right"]}


def test_labels_are_categories():
    for file in ("kernel_names.tsv", "kernel_names_more.tsv"):
        assert {row["bucket"] for row in labelled(file)} <= set(CATEGORIES)


def test_collected_names_are_classified_as_labelled():
    rows = labelled("kernel_names.tsv")
    assert len(rows) == 628
    wrong = misses(rows)
    assert len(wrong) / len(rows) <= 0.02
    argued = {
        line.removeprefix("- ").partition("`: ")[0].strip("`")
        for line in (DATA / "kernel_misses.md").read_text(encoding="utf-8").splitlines()
        if line.startswith("- ")
    }
    assert wrong == argued


def test_further_names_are_classified_as_labelled():
    rows = labelled("kernel_names_more.tsv")
    assert len(rows) >= 200
    assert len(misses(rows)) / len(rows) <= 0.05, misses(rows)


def test_families_are_those_of_the_labels():
    rows = labelled("kernel_names.tsv")
    right = sum(RULES.classify(row["name"]).family == row["category"] for row in rows)
    assert right / len(rows) >= 0.95


def test_all_category_names_occur_among_the_answers():
    rows = [*labelled("kernel_names.tsv"), *labelled("kernel_names_more.tsv")]
    assert {RULES.classify(row["name"]).category for row in rows} >= set(CATEGORIES)


@pytest.mark.parametrize(
    ("name", "category", "family"),
    [
        ("ncclAllReduceRingLLKernel_sum_f16(ncclColl)", "comm.allreduce", "nccl_allreduce"),
        (
            "ncclKernel_AllReduce_RING_LL_Sum_half(ncclDevComm *, unsigned long, ncclWork *)",
            "comm.allreduce",
            "nccl_allreduce",
        ),
        (
            "ncclDevKernel_AllReduce_bf16_RING(ncclDevKernelArgsStorage<4096ul>)",
            "comm.allreduce",
            "nccl_allreduce",
        ),
        (
            "ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<(unsigned long)4096>)",
            "comm.other",
            "nccl_generic",
        ),
        (
            "ncclSymkDevKernel_AllReduce_AGxLL_R_sum_f32(ncclSymkDevWorkArgs4K)",
            "comm.allreduce",
            "nccl_allreduce_symm",
        ),
        ("void marlin::gptq_marlin_repack_kernel<(int)256, (int)4, (bool)0>(T1 *)", "other", "weight_repack"),
        ("Marlin", "gemm.marlin", "dense_unspecified"),
        ("gptq_marlin_repack_kernel", "other", "weight_repack"),
        ("reshape_and_cache_flash_kernel", "kvcache", "kvcache_write"),
        ("_gemma_rmsnorm_kernel", "norm", "norm"),
        ("concat_and_cache_mla_kernel", "kvcache", "kvcache_write"),
        ("triton_poi_fused_add_all_reduce_0", "elementwise", "triton.pointwise"),
        ("unrolled_elementwise_kernel", "elementwise", "unspecified"),
    ],
)
def test_boundaries(name, category, family):
    match = RULES.classify(name)
    assert (match.category, match.family) == (category, family)


def test_nccl_families_are_nccl_kernels_alone():
    for row in [*labelled("kernel_names.tsv"), *labelled("kernel_names_more.tsv")]:
        assert is_nccl(RULES.classify(row["name"]).family) == ("nccl" in row["name"] and "Kernel" in row["name"])


def test_what_no_rule_knows_is_unclassified():
    for name in ("", "main", "my_own_thing", "\0", "<string 12>"):
        match = RULES.classify(name)
        assert (match.category, match.family, match.rule) == (UNCLASSIFIED, UNCLASSIFIED, None)


def test_many_names_in_their_order():
    names = ["Marlin", "nope", "Marlin"]
    assert RULES.classify_many(iter(names)) == [RULES.classify(name) for name in names]


def test_explanation_names_the_winner_and_the_others_that_apply():
    explanation = RULES.explain("void vllm::silu_and_mul_per_block_quant_kernel<float>(float*)")
    assert explanation.winner is not None
    assert explanation.winner.id == explanation.match.rule == "activation-quant"
    assert [rule.category for rule in explanation.runners_up][:1] == ["activation"]
    assert "quant" in {rule.category for rule in explanation.runners_up}
    assert explanation.normalised.name == "vllm::silu_and_mul_per_block_quant_kernel<float>"
    assert RULES.explain("nope").winner is None


HOSTILE = {
    "long word": "a" * 100_000,
    "repeated words": "a_moe_kv_rope_norm_" * 5_000,
    "repeated prefix": "mla" * 30_000,
    "gemm quant lora": "gemm_quant_lora" * 6_000,
    "underscores": "_" * 100_000,
    "mangled prefix": "_Z" * 50_000,
    "mangled digits": "_ZN" + "9" * 100_000,
    "mangled nested": "".join(f"_Z{n}" for n in range(60_000, 0, -6)),
    "open templates": "<" * 100_000,
    "return types": "void " * 20_000,
    "casts": "(int)" * 20_000 + "4",
    "lambdas": "[lambda(" * 12_000,
    "inductor": "triton_red_fused" + "_mean" * 20_000,
    "inductor views": "triton_poi_fused__to_copy" + "_view" * 20_000 + "x",
    "functors": "void at::native::elementwise_kernel<" + " silu" * 20_000,
    "float8": "void at::native::elementwise_kernel<" + "float8_copy_kernel_cuda lambda(" * 3_000,
    "control": "\0\n<>\x1b[31m" * 10_000,
    "spaces": " " * 100_000,
    "markup": "</script><b>[red]" * 5_000,
    "not ASCII": "ß\u202e漢" * 30_000,
    "surrogates": "\udcff" * 50_000,
}


@pytest.mark.parametrize("name", HOSTILE.values(), ids=HOSTILE.keys())
@pytest.mark.timeout(120)  # a pattern that backtracks would take longer than anyone can wait
def test_every_name_has_an_answer(name):
    match = RULES.classify(name)
    assert match.category in ALL_CATEGORIES
    assert RULES.explain(name).match == match


def test_importing_the_classifier_is_light():
    code = "import sys; import k25trace.classify; print(sorted({'polars', 'rich', 'typer'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
