"""The commands of the how-to page run, one after the other, as they stand."""

import re
import shlex
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "how-to" / "ask-why.md").read_text(encoding="utf-8")


def test_the_commands_of_the_page_run(tmp_path: Path, run_in_process: Any, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```console\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    lines = [line.removeprefix("$ k25trace ") for block in blocks for line in block.splitlines()]
    assert len(lines) >= 8
    for line in lines:
        words = [str(ROOT / w) if w.startswith("tests/golden/") else w for w in shlex.split(line)]
        done = run_in_process(*words)
        assert done.code == 0, done.stderr
        assert bool(done.stdout) != ("-o" in words)
