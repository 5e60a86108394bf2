"""The environment of the traced program is in the report, in three places; it must be in no output."""

from __future__ import annotations

from pathlib import Path

import pytest
from casekit import needs_product
from tracekit import CAST, MARLIN, TraceBuilder, unknown

SECRETS = ("hf_SecretTokenOfTheUser", "sk-another-secret", "gpu-node-17.internal.example")
HOSTILE_KERNEL = "</script><script>alert(1)</script>"
HOSTILE_RANGE = '"><img src=x onerror=alert(2)>'


@pytest.fixture
def report(tmp_path: Path) -> Path:
    t = TraceBuilder()
    t.process(1000, name="python3 serve.py --api-key sk-another-secret")
    t.environment("HF_TOKEN", SECRETS[0])
    t.environment("OPENAI_API_KEY", SECRETS[1])
    t.add("META_DATA_CAPTURE", name="HOST_NAME", value=SECRETS[2])
    t.push_pop(HOSTILE_RANGE, 0, 100)
    t.push_pop("decode", 10, 90)
    t.kernel(MARLIN, 1000, 600, launch=20)
    t.kernel(CAST, 2000, 400, launch=30)
    t.kernel(unknown(HOSTILE_KERNEL), 3000, 100, launch=95)
    folder = tmp_path / "in"
    folder.mkdir()
    return t.write(folder / "trace.sqlite")


def text_of(folder: Path) -> str:
    return "".join(p.read_bytes().decode("utf-8", "replace") for p in sorted(folder.rglob("*")) if p.is_file())


@needs_product
@pytest.mark.parametrize("form", ["table", "json", "csv", "markdown"])
def test_no_secret_is_in_any_format(form: str, report: Path, run_cli, unchanged) -> None:
    with unchanged(report.parent):
        outcome = run_cli("attribute", report, "--format", form)
    assert outcome.code == 0, outcome
    assert outcome.stdout
    for secret in SECRETS:
        assert secret not in outcome.stdout + outcome.stderr


@needs_product
def test_no_secret_and_no_foreign_markup_is_in_the_timeline(report: Path, tmp_path: Path, run_cli, unchanged) -> None:
    pytest.importorskip("k25trace.cli.timeline")
    out = tmp_path / "out"
    out.mkdir()
    with unchanged(report.parent):
        outcome = run_cli("timeline", report, "-o", out / "x.html", cwd=out)
    assert outcome.code == 0, outcome
    html = text_of(out)
    assert "<html" in html.lower()
    for secret in SECRETS:
        assert secret not in html + outcome.stdout + outcome.stderr
    for markup in (HOSTILE_KERNEL, HOSTILE_RANGE):
        assert markup not in html
