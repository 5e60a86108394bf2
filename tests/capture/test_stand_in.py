"""What nsys does wrong without saying so, by a stand-in for it: exit code, message, files."""

import json
import os
import signal
from pathlib import Path

import pytest

OLD = "old report"
ROOT = Path(__file__).resolve().parents[2]


def files(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def capture(run_here, tmp_path):
    """Run `k25trace capture -o out/cap -- PROGRAM` under a stand-in; return the outcome and the folder."""
    out = tmp_path / "out"
    out.mkdir()

    def run(env, *program, options=(), name="cap", before=()):
        for suffix in before:
            (out / f"cap{suffix}").write_text(OLD, encoding="utf-8")
        done = run_here("capture", *options, "-o", out / name, "--", *(program or ["true"]), env=env, cwd=tmp_path)
        assert "Traceback" not in done.stderr
        return done, out

    return run


def test_a_good_capture_is_checked_and_leaves_three_files(capture, stand_in):
    done, out = capture(stand_in(), "echo", "of the program")
    assert (done.code, files(out)) == (0, ["cap.k25.json", "cap.nsys-rep", "cap.sqlite"])
    assert "of the program" in done.stdout
    manifest = json.loads((out / "cap.k25.json").read_text(encoding="utf-8"))
    assert {c["name"] for c in manifest["checks"] if c["status"] != "ok"} == {"diagnostics"}
    assert manifest["exit"] == {"code": 0, "whose": "program", "signals": [], "k25trace_code": 0}
    assert [f["name"] for f in manifest["files"]] == ["cap.nsys-rep", "cap.sqlite"]


@pytest.mark.parametrize("name", ["cap.nsys-rep", "cap.sqlite", "a b", "100%p", "ünï", "a.b.c", "-cap"])
def test_names(capture, stand_in, name):
    done, out = capture(stand_in(), name=name)
    stem = name.removesuffix(".nsys-rep").removesuffix(".sqlite")
    assert (done.code, files(out)) == (0, sorted(stem + s for s in (".k25.json", ".nsys-rep", ".sqlite")))


def test_a_relative_name_and_the_current_folder(run_here, stand_in, tmp_path):
    done = run_here("capture", "-o", "cap", "--", "true", env=stand_in(), cwd=tmp_path)
    assert done.code == 0
    assert (tmp_path / "cap.nsys-rep").exists()


@pytest.mark.parametrize("suffix", [".nsys-rep", ".sqlite", ".k25.json", ".qdstrm"])
def test_an_output_that_exists_is_refused_before_the_program_runs(capture, stand_in, suffix):
    done, out = capture(stand_in(), "echo", "ran", before=[suffix])
    assert done.code == 1
    assert f"cap{suffix}: exists already" in done.stderr
    assert "ran" not in done.stdout
    assert files(out) == [f"cap{suffix}"]
    assert (out / f"cap{suffix}").read_text(encoding="utf-8") == OLD


def test_a_capture_that_left_nothing_but_its_manifest_is_not_in_the_way(capture, stand_in):
    done, out = capture(stand_in("print('bad option', file=sys.stderr)\nsys.exit(1)"))
    assert (done.code, files(out)) == (1, ["cap.k25.json"])
    done, out = capture(stand_in())
    assert (done.code, files(out)) == (0, ["cap.k25.json", "cap.nsys-rep", "cap.sqlite"])


def test_with_force_everything_of_the_old_capture_is_replaced(capture, stand_in):
    suffixes = [".nsys-rep", ".sqlite", ".k25.json", ".qdstrm"]
    env = stand_in()
    out = capture(env, name="other")[1]
    for suffix in suffixes:
        (out / f"cap{suffix}").write_text(OLD, encoding="utf-8")
        (out / f"cap{suffix}").chmod(0o400)
    done, _ = capture(env, options=["--force"])
    assert done.code == 0
    assert [f for f in files(out) if f.startswith("cap")] == ["cap.k25.json", "cap.nsys-rep", "cap.sqlite"]
    assert all(OLD.encode() not in (out / f).read_bytes() for f in files(out))


def test_with_force_a_failed_capture_leaves_the_old_one_alone(capture, stand_in):
    env = stand_in("sys.exit(0)")
    done, out = capture(env, options=["--force"], before=[".nsys-rep", ".sqlite"])
    assert done.code == 1
    assert files(out) == ["cap.nsys-rep", "cap.sqlite"]
    assert "is of an earlier capture" in done.stderr


@pytest.mark.parametrize("code", [1, 2, 3, 4, 7, 125, 126, 127, 128, 137, 200, 255])
def test_the_programs_exit_code_is_passed_on_and_the_report_kept(capture, stand_in, code):
    done, out = capture(stand_in(), "sh", "-c", f"exit {code}")
    assert done.code == code
    assert f"exited with code {code}" in done.stderr
    assert files(out) == ["cap.k25.json", "cap.nsys-rep", "cap.sqlite"]
    exit_ = json.loads((out / "cap.k25.json").read_text(encoding="utf-8"))["exit"]
    assert (exit_["code"], exit_["whose"]) == (code, "program")


def test_nsys_killed_by_a_signal_is_not_the_programs_code(capture, stand_in):
    done, out = capture(stand_in("run()\nos.kill(os.getpid(), signal.SIGKILL)"))
    assert done.code == 1
    assert "nsys was killed by signal 9" in done.stderr
    assert files(out) == ["cap.k25.json"]
    assert json.loads((out / "cap.k25.json").read_text(encoding="utf-8"))["exit"]["whose"] == "nsys"


def test_nsys_that_fails_itself(capture, stand_in):
    done, out = capture(stand_in("print('Permission denied: perf', file=sys.stderr)\nsys.exit(1)"))
    assert done.code == 1
    assert "nsys failed with exit code 1: Permission denied: perf" in " ".join(done.stderr.split())
    assert files(out) == ["cap.k25.json"]


def test_an_nsys_whose_agent_does_not_answer(capture, stand_in):
    said = "[QuadDCommon::tag_message*] = Local Endpoint is not available."
    done, _ = capture(stand_in(f"print({said!r}, file=sys.stderr)\nsys.exit(1)"))
    assert done.code == 1
    assert "did not answer in time, as happens on a busy machine: capture again" in " ".join(done.stderr.split())


@pytest.mark.parametrize("options", [[], ["--capture-range", "cudaProfilerApi"], ["--capture-range", "nvtx=step"]])
@pytest.mark.parametrize("code", [0, 4])
def test_no_report_at_all(capture, stand_in, options, code):
    done, _ = capture(
        stand_in("code = run()\ngenerated()\nsys.exit(code)"), "sh", "-c", f"exit {code}", options=options
    )
    assert done.code == (code or 1)
    said = " ".join(done.stderr.split())
    assert "no report" in said
    assert ("the capture range never opened" in said) == bool(options)


ELSEWHERE = """
code = run()
folder = tempfile.mkdtemp()
generated(report(os.path.join(folder, "nsys-report-1234.nsys-rep")))
sys.exit(code)
"""


def test_a_report_written_elsewhere_is_found_and_named(capture, stand_in):
    done, out = capture(stand_in(ELSEWHERE))
    assert done.code == 1
    said = "".join(done.stderr.split())
    assert "nsyswroteitto" in said
    assert "nsys-report-1234.nsys-rep" in said
    assert ".nsys-rep" not in "".join(files(out))


def test_only_a_raw_recording_without_an_importer(capture, stand_in):
    env = stand_in("code = run()\nos.rename(report(), out + '.qdstrm')\ngenerated(out + '.qdstrm')\nsys.exit(code)")
    done, out = capture(env)
    assert done.code == 1
    assert files(out) == ["cap.k25.json", "cap.qdstrm"]
    assert "only a raw recording (.qdstrm)" in " ".join(done.stderr.split())
    assert "QdstrmImporter" in done.stderr


def test_a_raw_recording_is_imported_where_an_importer_is_found(capture, stand_in, tmp_path):
    env = stand_in("code = run()\nos.rename(report(), out + '.qdstrm')\nsys.exit(code)")
    importer = tmp_path / "bin" / "QdstrmImporter"
    importer.write_text('#!/bin/sh\ncp "$2" "$4"\n', encoding="utf-8")
    importer.chmod(0o755)
    done, out = capture(env)
    assert (done.code, files(out)) == (0, ["cap.k25.json", "cap.nsys-rep", "cap.sqlite"])
    assert "by nsys export" in done.stderr


def test_an_importer_that_fails_leaves_the_recording(capture, stand_in, tmp_path):
    env = stand_in("code = run()\nos.rename(report(), out + '.qdstrm')\nsys.exit(code)")
    importer = tmp_path / "bin" / "QdstrmImporter"
    importer.write_text("#!/bin/sh\necho wrong version >&2\nexit 1\n", encoding="utf-8")
    importer.chmod(0o755)
    done, out = capture(env)
    assert done.code == 1
    assert "wrong version" in done.stderr
    assert "cap.qdstrm" in files(out)


@pytest.mark.parametrize(
    "left",
    [
        "",
        "open(out + '.sqlite', 'wb').close()",
        "open(out + '.sqlite', 'wb').write(open(EXPORT, 'rb').read()[:9000])",
        "open(out + '.sqlite', 'w').write('no database')",
    ],
    ids=["none", "empty", "truncated", "other"],
)
def test_an_export_that_is_missing_or_half_written_is_made_again(capture, stand_in, left):
    done, out = capture(stand_in(f"code = run()\n{left}\ngenerated(report())\nsys.exit(code)"))
    assert (done.code, files(out)) == (0, ["cap.k25.json", "cap.nsys-rep", "cap.sqlite"])


@pytest.mark.parametrize(
    "on_export", ["sys.exit(1)", "pass", "open(out, 'wb').write(open(EXPORT, 'rb').read()[:9000])"]
)
def test_an_export_that_cannot_be_made_leaves_the_report_and_no_half_of_a_database(capture, stand_in, on_export):
    done, out = capture(stand_in("code = run()\ngenerated(report())\nsys.exit(code)", on_export))
    assert done.code == 1
    assert files(out) == ["cap.k25.json", "cap.nsys-rep"]
    assert "k25trace export" in done.stderr


def test_what_nsys_says_on_the_terminal_alone_is_not_lost(capture, stand_in):
    words = "Importation succeeded with non-fatal errors.\nUnknown runtime API function index: 468\n"
    profile = (
        f"print({words!r}, file=sys.stderr, flush=True)\ncode = run()\ngenerated(report(), export())\nsys.exit(code)"
    )
    done, out = capture(stand_in(profile))
    checks = json.loads((out / "cap.k25.json").read_text(encoding="utf-8"))["checks"]
    (found,) = [c for c in checks if c["name"] == "diagnostics"]
    assert (done.code, found["status"]) == (0, "cannot say")
    assert "non-fatal errors; Unknown runtime API function index: 468" in found["seen"]


@pytest.mark.parametrize("option", ["--delay", "--duration"])
@pytest.mark.parametrize("seconds", ["-1", "nan", "inf"])
def test_times_that_are_none(capture, stand_in, option, seconds):
    done, out = capture(stand_in(), "echo", "ran", options=[option, seconds])
    assert (done.code, done.stdout, files(out)) == (2, "", [])
    assert f"{option} {seconds}" in done.stderr


def test_no_kernels_is_said(capture, stand_in, tmp_path):
    import tracekit

    empty = tracekit.TraceBuilder()
    empty.push_pop("step", 0, 100)
    done, out = capture(stand_in(export=empty.write(tmp_path / "empty.sqlite")))
    assert done.code == 1
    assert "no CUDA kernel" in done.stderr
    assert "cap.nsys-rep" in files(out)


@pytest.mark.parametrize(
    ("options", "program", "said"),
    [
        (["-o", "missing/cap"], ["true"], "missing: no such directory"),
        (["-o", "cap"], ["no-such-program"], "no-such-program: program not found"),
        (["-o", "cap"], ["./data.txt"], "not executable"),
        (["-o", "cap", "--nsys", "/no/such/nsys"], ["true"], "nsys not found"),
        (["-o", "cap", "--capture-range", "sometimes"], ["true"], "--capture-range sometimes"),
        (["-o", "cap", "--capture-range", "nvtx="], ["true"], "--capture-range nvtx="),
        (["-o", "cap", "--per-rank"], ["true"], "--per-rank: no rank here"),
        (["-o", "cap", "--nsys-arg=--output=x"], ["true"], "named with -o alone"),
        (["-o", "/"], ["true"], "not the name of a report"),
    ],
)
def test_what_cannot_end_well_is_refused_in_one_line_before_anything_runs(
    run_here, stand_in, tmp_path, unchanged, options, program, said
):
    (tmp_path / "data.txt").touch()
    env = stand_in("open('ran', 'w')\n" + "sys.exit(0)")
    for name in ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"):
        env[name] = ""
    (tmp_path / "temporary").mkdir()
    with unchanged(tmp_path):
        done = run_here("capture", *options, "--", *program, env=env, cwd=tmp_path)
    assert done.code in {1, 2}
    assert said in done.stderr
    assert len(done.stderr.splitlines()) <= 2


def test_no_nsys(run_cli, tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    done = run_cli("capture", "-o", "cap", "--", "/bin/true", env={"PATH": str(empty), "K25TRACE_NSYS": ""})
    assert (done.code, done.stderr.splitlines()[0]) == (1, "k25trace: nsys not found on PATH")


@pytest.mark.parametrize("how", ["version", "help"])
def test_an_nsys_that_is_too_old(capture, stand_in, how):
    old = {"version": "2021.2.1.58"} if how == "version" else {"help": "--trace=  --output=", "version": "?"}
    done, out = capture(stand_in(**old))
    assert done.code == 1
    assert "too old" in done.stderr
    assert not files(out)


def test_an_nsys_that_cannot_be_started(capture, stand_in, tmp_path):
    env = stand_in()
    (tmp_path / "bin" / "nsys").write_bytes(b"\x7fELF nonsense")
    done, _ = capture(env)
    assert done.code == 1
    assert "nsys cannot be started" in done.stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written(capture, stand_in, tmp_path):
    (tmp_path / "out").chmod(0o500)
    done, _ = capture(stand_in())
    assert done.code == 1
    assert "ermission denied" in done.stderr


def test_a_capture_to_the_same_name_that_goes_on_is_not_disturbed(capture, stand_in, tmp_path):
    (tmp_path / "out" / ".cap.capture").mkdir()
    done, out = capture(stand_in())
    assert done.code == 1
    assert "another capture to this name" in done.stderr
    assert files(out) == [".cap.capture"]


def test_what_follows_the_dashes_is_the_programs(capture, stand_in):
    done, _ = capture(stand_in(), "echo", "--help", "--", "-o", "x", "--dry-run")
    assert done.code == 0
    assert "--help -- -o x --dry-run\n" in done.stdout


def test_the_dry_run_prints_what_the_stand_in_then_gets(capture, stand_in):
    import shlex

    env = stand_in("print(repr(sys.argv[1:]))\ngenerated(report(), export())")
    dry, out = capture(env, "echo", "a b", options=["--dry-run", "--preset", "trtllm"])
    assert (dry.code, files(out)) == (0, [])
    words = shlex.split(dry.stdout)
    assert words[0] == "TLLM_LLMAPI_ENABLE_NVTX=1"
    real, _ = capture(env, "echo", "a b", options=["--preset", "trtllm"])
    assert repr(words[2:]) in real.stdout


def test_per_rank(capture, stand_in):
    done, out = capture({**stand_in(), "RANK": "3"}, options=["--per-rank"])
    assert (done.code, files(out)) == (0, ["cap.rank3.k25.json", "cap.rank3.nsys-rep", "cap.rank3.sqlite"])


def test_the_overhead_is_measured(capture, stand_in, tmp_path):
    count = f"echo run >>'{tmp_path / 'runs'}'; sleep 0.05"
    done, out = capture(stand_in(), "sh", "-c", count, options=["--measure-overhead", "3"])
    assert done.code == 0
    assert (tmp_path / "runs").read_text(encoding="utf-8") == "run\n" * 4
    assert "slowdown under nsys" in done.stderr
    times = json.loads((out / "cap.k25.json").read_text(encoding="utf-8"))["overhead"]
    assert len(times["plain_ns"]) == 3
    assert times["slowdown_least"] <= times["slowdown"] <= times["slowdown_most"]


def test_without_polars_the_report_is_kept_and_its_check_cannot_be_made(capture, stand_in, monkeypatch):
    import importlib.util

    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == "polars" else find(name, *a))
    done, out = capture(stand_in())
    assert done.code == 0
    assert "polars is not installed here" in done.stderr
    assert "cap.sqlite" in files(out)


def test_polars_is_not_imported_before_the_program_has_run(stand_in, tmp_path, run_cli):
    code = "code = run()\nos.environ.pop('X', None)\ngenerated(report())\nsys.exit(code)"
    env = stand_in(code, "sys.exit(1)")
    site = tmp_path / "site"
    site.mkdir()
    (site / "polars.py").write_text("raise SystemExit('polars was imported')\n", encoding="utf-8")
    done = run_cli("capture", "-o", tmp_path / "cap", "--", "true", env={**env, "PYTHONPATH": f"{site}:{ROOT}"})
    assert done.code == 1
    assert "polars was imported" not in done.stderr
    assert (tmp_path / "cap.nsys-rep").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_reaches_a_program_that_shares_the_group_of_nsys(stand_in, tmp_path, number):
    import subprocess
    import sys

    env = {**os.environ, **stand_in()}
    code = "import signal, sys, time\nfor n in (2, 15): signal.signal(n, lambda n, f: sys.exit(9))\n"
    code += "print('up', flush=True)\ntime.sleep(60)\n"
    command = [
        sys.executable,
        "-m",
        "k25trace",
        "capture",
        "-o",
        str(tmp_path / "cap"),
        "--",
        sys.executable,
        "-c",
        code,
    ]
    process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout.readline() == b"up\n"
    process.send_signal(number)
    process.communicate(timeout=30)
    assert process.returncode == 9
    assert (tmp_path / "cap.nsys-rep").exists()
    exit_ = json.loads((tmp_path / "cap.k25.json").read_text(encoding="utf-8"))["exit"]
    assert exit_["signals"] == [number]
