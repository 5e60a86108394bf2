"""The README: two commands that work, and an output that is the program's."""

import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
QUICK_START = README.partition("## Quick start\n")[2].partition("\n## ")[0]
COMMANDS = re.findall(r"^```sh\n(.*?)^```$", QUICK_START, re.MULTILINE | re.DOTALL)


def steps(command: str) -> list[list[str]]:
    return [shlex.split(part) for part in command.split("&&")]


def test_quick_start_is_the_first_section_and_has_two_commands():
    assert re.findall(r"^## (.*)$", README, re.MULTILINE)[0] == "Quick start"
    assert len(COMMANDS) == 2
    assert QUICK_START.count("```") == 4


def test_both_commands_make_their_environment_and_install_from_the_clone():
    for command, target in zip(COMMANDS, (".", ".[test]"), strict=True):
        make, install, *rest = steps(command)
        assert make == ["python3", "-m", "venv", ".venv"]
        assert install[:2] == [".venv/bin/pip", "install"]
        assert install[-1] == target
        assert len(rest) == 1


def test_the_first_command_prints_what_the_readme_shows(run_cli):
    program, *words = steps(COMMANDS[0])[-1]
    assert program == ".venv/bin/k25trace"
    assert words[0] == "attribute"
    assert words[-2:] == ["--range", "graph_step"]
    done = run_cli(*words, cwd=ROOT)
    assert (done.code, done.stderr) == (0, "")
    shown = README.partition("<!-- output: begin -->\n```text\n")[2].partition("```\n<!-- output: end -->")[0]
    assert [line.rstrip() for line in done.stdout.splitlines()] == shown.splitlines()


def test_the_second_command_runs_these_tests():
    assert steps(COMMANDS[1])[-1][:3] == [".venv/bin/python", "-m", "pytest"]


def test_every_link_leads_to_a_file():
    pages = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")]
    pages += sorted((ROOT / "docs").rglob("*.md"))
    broken = [
        (str(page.relative_to(ROOT)), link)
        for page in pages
        for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8"))
        if "://" not in link and not (page.parent / link).exists()
    ]
    assert broken == []


def test_files_that_the_recipes_name_exist():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:k25trace|tests|docs)/[\w./-]+\.\w+)`", text))
    assert len(named) > 10
    assert {name for name in named if not (ROOT / name).exists()} == set()


def test_ci_runs_the_second_command_of_the_readme():
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    function = re.search(r"^readme_command\(\) \{.*?^\}", script, re.MULTILINE | re.DOTALL)
    assert function is not None
    for number, command in enumerate(COMMANDS, 1):
        shell = f"{function[0]}\nreadme_command {number}"
        done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, check=True, cwd=ROOT)
        assert done.stdout == command


def test_the_test_extra_holds_what_tests_import():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = " ".join(extras["dependencies"] + extras["optional-dependencies"]["test"]).replace("-", "_")
    ours = {p.stem for p in (ROOT / "tests").rglob("*.py")} | {p.parent.name for p in (ROOT / "tests").rglob("*.py")}
    found: set[str] = set()
    # Programs for machines with GPUs run there, with what is there.
    for path in (p for p in (ROOT / "tests").rglob("*.py") if p.parent.name != "gpu"):
        for name in re.findall(r"^\s*(?:from|import) (\w+)", path.read_text(encoding="utf-8"), re.MULTILINE):
            if name not in sys.stdlib_module_names and name not in ours | {
                "k25trace",
                "queries",
                "workloads",
            }:
                found.add({"importlinter": "import_linter"}.get(name, name))
    assert {name for name in found if name not in wanted} - {"typer", "rich"} == set()
