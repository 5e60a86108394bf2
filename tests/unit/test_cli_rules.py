"""``k25trace rules``: what goes to stdout, what to stderr, and with which exit code."""

import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from k25trace.cli.rules import split_names
from k25trace.report.text import printable

MINE = """
[[rule]]
id = "mine"
category = "norm"
family = "mine"
source = "my library"
match.function.exact = "mine"
examples = ["mine"]
counterexamples = ["theirs"]
"""


def run(*arguments, stdin=b""):
    return subprocess.run(
        [sys.executable, "-m", "k25trace", "rules", *map(str, arguments)],
        input=stdin,
        capture_output=True,
        check=False,
        timeout=60,
    )


def classified(*arguments, stdin=b""):
    done = run("classify", *arguments, "--format", "json", stdin=stdin)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_classify_keeps_the_order_and_says_null_where_no_rule_applies():
    rows = classified("-", stdin=b"Marlin\nnope\r\nncclDevKernel_SendRecv")
    assert rows == [
        {"name": "Marlin", "category": "gemm.marlin", "family": "dense_unspecified", "rule": "marlin-dense"},
        {"name": "nope", "category": "unclassified", "family": "unclassified", "rule": None},
        {
            "name": "ncclDevKernel_SendRecv",
            "category": "comm.other",
            "family": "nccl_sendrecv",
            "rule": "nccl-sendrecv",
        },
    ]


def test_classify_reads_nul_separated_names():
    rows = classified("-", "-0", stdin=b"a\nb\0Marlin\0")
    assert [row["name"] for row in rows] == ["a\nb", "Marlin"]


def test_classify_reads_a_file_whose_bytes_are_not_text(tmp_path: Path):
    file = tmp_path / "names.txt"
    file.write_bytes(b"k\xff\nMarlin\n")
    assert [row["name"] for row in classified(file)] == ["k\ufffd", "Marlin"]


def test_classify_of_nothing_is_an_empty_list():
    assert classified("-") == []


def test_own_rules_are_used(tmp_path: Path):
    file = tmp_path / "mine.toml"
    file.write_text(MINE, encoding="utf-8")
    assert classified("-", "--rules", file, stdin=b"mine")[0]["rule"] == "mine"


def test_tables_show_control_characters_and_markup_as_text():
    done = run("classify", "-", stdin=b"[red]x[/red]\x1b[31m\xc2\x9b\xe2\x80\xae\n")
    assert b"\x1b" not in done.stdout
    assert b"[red]x[/red]\\x1b[31m\\x9b\\u202e" in done.stdout


def test_explain_says_who_wins_and_escapes_the_name():
    done = run("explain", "void vllm::silu_and_mul_per_block_quant_kernel<int>\x1b(int)")
    assert done.returncode == 0
    text = done.stdout.decode()
    assert "rule      activation-quant" in text
    assert "also      act-quant (quant, act_quant)" in text
    assert "\x1b" not in text
    explained = json.loads(run("explain", "Marlin", "--format", "json").stdout)
    assert explained["rule"] == "marlin-dense"
    assert b"none applies" in run("explain", "nope").stdout


def test_list_prints_all_rules_in_order():
    rows = json.loads(run("list", "--format", "json").stdout)
    assert rows[1]["id"].startswith("nccl-")
    assert {"id", "category", "family", "source", "file"} == set(rows[0])
    assert run("list").stdout.count(b"nccl-allreduce") >= 2
    assert run("list", "--format", "markdown").stdout.startswith(b"| id | category | family | source |\n| :--- |")


def test_the_table_in_the_reference_is_current():
    page = Path(__file__).parent.parent.parent / "docs" / "reference" / "rules.md"
    text = page.read_text(encoding="utf-8").partition("<!-- rules: begin -->\n")[2]
    assert text.partition("<!-- rules: end -->")[0] == run("list", "--format", "markdown").stdout.decode()


def test_check_says_ok_with_counts(tmp_path: Path):
    file = tmp_path / "mine.toml"
    file.write_text(MINE, encoding="utf-8")
    done = run("check", file)
    assert done.returncode == 0
    assert done.stdout.startswith(b"ok: 1 rule, 1 example, 1 counterexample")


def test_a_byte_order_mark_is_no_fault(tmp_path: Path):
    file = tmp_path / "mine.toml"
    file.write_text(MINE, encoding="utf-8-sig")
    assert run("check", file).stdout == b"ok: 1 rule, 1 example, 1 counterexample\n"


NCCL = MINE.replace('family = "mine"', 'family = "nccl_mine"')
FAULTS = {
    "": ("no rules in it", "write each rule as [[rule]]; docs/reference/rules.md"),
    "# nothing yet\n": ("no rules in it", "write each rule as [[rule]]; docs/reference/rules.md"),
    'extends = "none"': ("no rules in it", "write each rule as [[rule]]; docs/reference/rules.md"),
    NCCL: (
        "rule 'mine': family 'nccl_mine' is NCCL's own, and norm is no communication",
        "give it a category of communication, or another family",
    ),
}


@pytest.mark.parametrize("text", FAULTS)
def test_faults_of_files_are_told_with_what_to_do(tmp_path: Path, text):
    file = tmp_path / "mine.toml"
    file.write_text(text, encoding="utf-8")
    for words in (["check", file], ["list", "--rules", file]):
        done = run(*words)
        assert (done.returncode, done.stdout) == (1, b"")
        said, hint = FAULTS[text]
        assert done.stderr.decode() == f"k25trace: {file}: {said}\n  {hint}\n"


def test_nccl_families_are_communication(tmp_path: Path):
    file = tmp_path / "mine.toml"
    file.write_text(NCCL.replace('"norm"', '"comm.other"'), encoding="utf-8")
    assert run("check", file).returncode == 0


def test_rows_are_written_in_every_format():
    stdin = b'ncclDevKernel_SendRecv\nx|y, "z"\n'
    want = [["comm.other", "nccl_sendrecv", "nccl-sendrecv", "ncclDevKernel_SendRecv"],
            ["unclassified", "unclassified", "", 'x|y, "z"']]  # fmt: skip
    text = run("classify", "-", "-f", "csv", stdin=stdin).stdout.decode()
    assert list(csv.reader(io.StringIO(text, newline=""))) == [["category", "family", "rule", "name"], *want]
    assert run("classify", "-", "-f", "markdown", stdin=stdin).stdout.decode().splitlines()[2:] == [
        "| comm.other | nccl\\_sendrecv | nccl-sendrecv | ncclDevKernel\\_SendRecv |",
        '| unclassified | unclassified |  | x\\|y, "z" |',
    ]
    table = run("classify", "-", stdin=stdin).stdout.decode().splitlines()
    assert [line.split() for line in table] == [
        ["category", "family", "rule", "name"],
        ["comm.other", "nccl_sendrecv", "nccl-sendrecv", "ncclDevKernel_SendRecv"],
        ["unclassified", "unclassified", "x|y,", '"z"'],
    ]


@pytest.mark.parametrize("broken", [MINE.replace('["mine"]', '["other_one"]'), "x = 1", "["])
def test_check_of_a_broken_file_fails_in_one_line(tmp_path: Path, broken):
    file = tmp_path / "mine.toml"
    file.write_text(broken, encoding="utf-8")
    done = run("check", file)
    assert done.returncode == 1
    assert done.stdout == b""
    assert b"Traceback" not in done.stderr
    assert done.stderr.startswith(b"k25trace: ")


def test_a_file_of_names_that_is_not_there():
    done = run("classify", "no/such/file")
    assert done.returncode == 1
    assert done.stderr.startswith(b"k25trace: no/such/file: ")


def test_no_verb_imports_polars_and_only_tables_import_rich():
    code = (
        "import sys; from k25trace.cli import main\n"
        "sys.argv = ['k25trace', 'rules', 'classify', '-', '--format', 'json']\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print({'polars', 'rich.table'} & set(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], input=b"x", capture_output=True, check=True, timeout=60)
    assert done.stderr.strip() == b"set()"


def test_names_of_a_file():
    assert split_names(b"a\r\nb\n\nc", nul=False) == ["a", "b", "", "c"]
    assert split_names(b"a\r\0", nul=True) == ["a\r"]
    assert split_names(b"", nul=False) == []


def test_printable():
    assert printable("a\tb\x00\u200b\udcffé漢") == "a\\tb\\x00\\u200b\\udcffé漢"
