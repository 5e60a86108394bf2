"""Rules are data: every example is a test, and a file that breaks the grammar is told how."""

import pytest

from k25trace.classify import load_rules
from k25trace.errors import BadRules
from k25trace.taxonomy import CATEGORIES, NCCL_FAMILY_PREFIX

RULES = load_rules()

MINE = """
[[rule]]
id = "mine"
category = "gemm.dense"
family = "mine"
source = "my library"
match.function.prefix = "my_"
examples = ["void ns::my_kernel<4>(int)"]
counterexamples = ["void my_ns::kernel(int)"]
"""


@pytest.fixture
def write(tmp_path):
    def _write(text, name="mine.toml"):
        file = tmp_path / name
        file.write_text(text, encoding="utf-8")
        return file

    return _write


@pytest.mark.parametrize("rule", RULES.rules, ids=lambda rule: rule.id)
def test_examples_of_the_default_rules(rule):
    assert rule.examples
    for name in rule.examples:
        assert RULES.classify(name).rule == rule.id, name
    for name in rule.counterexamples:
        assert RULES.classify(name).rule != rule.id, name


def test_default_rules_as_a_whole():
    ids = [rule.id for rule in RULES.rules]
    assert len(set(ids)) == len(ids)
    assert {rule.category for rule in RULES.rules} == set(CATEGORIES)
    assert all(rule.source for rule in RULES.rules)


def test_families_are_lower_case_words_and_belong_to_one_category():
    for rule in RULES.rules:
        assert rule.family == rule.family.lower()
        assert rule.family.startswith(NCCL_FAMILY_PREFIX) <= rule.category.startswith("comm.")


def test_own_rules_come_before_the_default_ones(write):
    file = write(MINE.replace('"my_"', '"nvjet_"').replace("my_kernel<4>", "nvjet_tst_64x8"))
    rules = load_rules([file])
    assert rules.classify("nvjet_tst_64x8").rule == "mine"
    assert rules.classify("Marlin").category == "gemm.marlin"
    assert len(rules.rules) == len(RULES.rules) + 1


def test_own_rules_can_replace_the_default_ones(write):
    rules = load_rules([write('extends = "none"' + MINE)])
    assert [rule.id for rule in rules.rules] == ["mine"]
    assert rules.classify("Marlin").rule is None


def test_the_first_file_wins(write):
    second = MINE.replace('id = "mine"', 'id = "second"').replace("my_kernel<4>", "my_second")
    second = second.replace('"my_"', '"my_s"')
    with pytest.raises(BadRules, match=r"rule 'second': example not won by it: .*: won by rule 'mine'"):
        load_rules([write(MINE), write(second, "second.toml")])
    rules = load_rules([write(second, "second.toml"), write(MINE)])
    assert [rule.id for rule in rules.rules[:2]] == ["second", "mine"]


@pytest.mark.parametrize(
    ("match", "name", "applies"),
    [
        ('match = { exact = "a::b<1>" }', "void a::b<(int)1>(int)", True),
        ('match = { exact = ["x", "a::b"] }', "a::b", True),
        ('match = { function = { exact = "b" } }', "a::b<1>", True),
        ('match = { path = { exact = "a::b" } }', "a::(anonymous namespace)::b<1>", True),
        ('match = { prefix = "a::" }', "b::a", False),
        ('match = { function = { suffix = "_kernel" } }', "a::x_kernel<1>", True),
        ('match = { contains = ["q", "b<1"] }', "a::b<1>", True),
        ('match = { contains = "b", prefix = "x" }', "a::b<1>", False),
        ("match = { regex = '(?i)B<\\d' }", "a::b<1>", True),
        ("match = { function = { regex = ['(?i)X', '^b$'] } }", "a::b<1>", True),
        ('match = { any = [{ exact = "x" }, { function = { exact = "b" } }] }', "a::b", True),
        ('match = { all = [{ prefix = "a" }, { suffix = "c" }] }', "a::b", False),
        ('match = { prefix = "a", not = { contains = "b" } }', "a::b", False),
        ('match = { path = { prefix = "a" }, not = { any = [{ contains = "z" }] } }', "a::b", True),
    ],
)
def test_matchers(write, match, name, applies):
    header = 'extends = "none"\n[[rule]]\nid = "r"\ncategory = "cast"\nfamily = "f"\nsource = "s"\n'
    rules = load_rules([write(f"{header}{match}\nexamples = ['e']\n")], check_examples=False)
    assert (rules.classify(name).rule == "r") == applies
    assert bool(rules.explain(name).winner) == applies


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text + "\nx = ", "not TOML"),
        (lambda text: "a = 1\n" + text, "unknown key 'a'"),
        (lambda text: "extends = 'some'\n" + text, "extends must be"),
        (lambda text: "rule = 4", r"write rules as \[\[rule\]\]"),
        (lambda text: text.replace("family", "famly"), "rule 'mine': unknown key 'famly'"),
        (lambda text: text.replace('source = "my library"', ""), "rule 'mine': source is missing"),
        (lambda text: text.replace('id = "mine"', ""), "rule 1: id is missing"),
        (lambda text: text.replace('id = "mine"', "id = 4"), "rule 1: id must be a string"),
        (
            lambda text: text.replace("gemm.dense", "gemm.sparse"),
            "rule 'mine': unknown category 'gemm.sparse'",
        ),
        (lambda text: text + MINE, "rule 'mine': duplicate id"),
        (lambda text: text.replace('id = "mine"', 'id = "norm"'), "rule 'norm': duplicate id|duplicate id"),
        (
            lambda text: text.replace("prefix", "regex").replace('"my_"', '"("'),
            "match.function.regex: bad regex",
        ),
        (lambda text: text.replace("prefix", "glob"), "match.function: unknown key 'glob'"),
        (
            lambda text: text.replace('match.function.prefix = "my_"', "match = {}"),
            "match: must not be empty",
        ),
        (lambda text: text.replace('match.function.prefix = "my_"', "match = 3"), "match: must be a table"),
        (
            lambda text: text.replace('match.function.prefix = "my_"', "match.any = []"),
            "match.any: must be a list",
        ),
        (lambda text: text.replace('"my_"', "[]"), "must be a list of strings"),
        (lambda text: text.replace('"my_"', "[3]"), "must hold strings"),
        (
            lambda text: text.replace("my_kernel", "your_kernel"),
            "example not won by it: .*: no rule applies to it",
        ),
        (lambda text: text.replace("my_ns::kernel", "ns::my_k"), "counterexample won by it: 'void ns::my_k"),
        (lambda text: text.replace('["void ns::my_kernel<4>(int)"]', "[]"), "examples: must be a list"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_in_one_line(write, change, message):
    file = write(change(MINE))
    with pytest.raises(BadRules, match=message) as caught:
        load_rules([file])
    assert "\n" not in caught.value.message
    assert str(file) in caught.value.message or "kernels.toml" in caught.value.message


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(BadRules, match="No such file"):
        load_rules([tmp_path / "none.toml"])


def test_a_file_that_is_not_text(tmp_path):
    file = tmp_path / "bytes.toml"
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadRules, match="not TOML"):
        load_rules([file])
