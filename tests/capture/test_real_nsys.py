"""The real nsys with programs that need no GPU: what it does well, and each of its silent failures."""

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

SLEEPER, TWO_PROCESSES = "sleeper", "two processes"

pytestmark = [pytest.mark.nsys, pytest.mark.slow]


@pytest.fixture
def programs(program):
    import importlib.util

    kit = Path(__file__).with_name("conftest.py")
    spec = importlib.util.spec_from_file_location("capture_conftest", kit)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return {SLEEPER: lambda: program(module.SLEEPER), TWO_PROCESSES: lambda: program(module.TWO_PROCESSES)}


# What nsys says where its own agent does not answer in time, as happens while several of them start on a busy machine.
STUMBLED = "Local Endpoint is not available"


@pytest.fixture
def capture(run_here, nsys, tmp_path):
    out = tmp_path / "out"
    out.mkdir()

    def run(*words, env=None):
        for _ in range(3):
            done = run_here("capture", *words, env={"K25TRACE_NSYS": str(nsys), **(env or {})}, cwd=out)
            assert "Traceback" not in done.stderr
            if STUMBLED not in done.stderr:
                break
            assert "capture again" in " ".join(done.stderr.split())
        return done

    run.out = out
    return run


def manifest(path):
    return json.loads(path.read_text(encoding="utf-8"))


def statuses(path):
    return {c["name"]: c["status"] for c in manifest(path)["checks"]}


def test_two_processes_are_captured_exported_checked_and_attributed(capture, programs, run_here, nsys):
    done = capture("-o", "a b%p", "--", *programs[TWO_PROCESSES]())
    out = capture.out
    assert done.code == 1  # CUDA was traced, and there are no kernels
    assert sorted(p.name for p in out.iterdir()) == ["a b%p.k25.json", "a b%p.nsys-rep", "a b%p.sqlite"]
    found = statuses(out / "a b%p.k25.json")
    assert found["report"] == found["export"] == found["NVTX per rank"] == found["NVTX package"] == "ok"
    assert found["GPUs"] == "missing"
    assert "no CUDA kernel" in done.stderr
    assert "121 ranges in 3 of 3 processes" in done.stderr
    exit_ = manifest(out / "a b%p.k25.json")["exit"]
    assert (exit_["code"], exit_["whose"], exit_["k25trace_code"]) == (0, "program", 1)

    attributed = run_here("attribute", out / "a b%p.sqlite")
    assert attributed.code == 3
    assert "no CUDA kernels: none was recorded" in attributed.stderr
    listed = run_here("doctor", out / "a b%p.sqlite", "--format", "json")
    assert listed.code == 1
    assert {c["name"]: c["status"] for c in json.loads(listed.stdout)["checks"]}.items() <= found.items()

    again = run_here("export", out / "a b%p.nsys-rep", "-o", out / "again.sqlite")
    assert (again.code, again.stdout) == (0, f"{out / 'again.sqlite'}\n")
    refused = run_here("export", out / "a b%p.nsys-rep", "-o", out / "again.sqlite")
    assert (refused.code, "exists already" in refused.stderr) == (1, True)
    folder = run_here("export", out / "a b%p.nsys-rep", "--type", "parquetdir")
    assert folder.code == 0
    assert (out / "a b%p_pqtdir" / "NVTX_EVENTS.parquet").exists()
    assert not [p.name for p in out.iterdir() if p.name.startswith(".")]


def test_without_cuda_a_capture_of_ranges_is_in_order(capture, programs):
    done = capture("-o", "cpu", "--trace", "nvtx", "--", *programs[TWO_PROCESSES]())
    assert done.code == 0
    assert statuses(capture.out / "cpu.k25.json")["GPUs"] == "cannot say"


def test_the_exit_code_and_the_report_of_a_program_that_fails(capture, programs):
    done = capture("-o", "c", "--trace", "nvtx", "--", *programs[TWO_PROCESSES](), "7")
    assert done.code == 7
    assert "the program exited with code 7; what was recorded is in" in done.stderr
    assert (capture.out / "c.sqlite").exists()


@pytest.mark.parametrize(("how", "code"), [("kill -9 $$", 137), ("kill -SEGV $$", 139)])
def test_a_program_that_is_killed(capture, how, code):
    done = capture("-o", "k", "--trace", "nvtx", "--", "sh", "-c", how)
    assert done.code == code
    assert f"code {code} (killed by signal {code - 128}" in done.stderr
    assert (capture.out / "k.nsys-rep").exists()


def test_a_killed_process_may_lose_its_ranges_and_the_list_says_which(capture, program):
    source = "import nvtx, os, signal\nfor i in range(9):\n    with nvtx.annotate('step'): pass\n"
    done = capture("-o", "k", "--trace", "nvtx", "--", *program(source + "os.kill(os.getpid(), signal.SIGKILL)\n"))
    assert done.code == 137
    # Whether the ranges reached nsys before the kill is a race; what the list says of them must be so.
    with closing(sqlite3.connect(capture.out / "k.sqlite")) as db:
        tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master")}
        sql = "SELECT count(*) FROM NVTX_EVENTS WHERE eventType = 59"
        recorded = db.execute(sql).fetchone()[0] if "NVTX_EVENTS" in tables else 0
    said = statuses(capture.out / "k.k25.json")["NVTX per rank"]
    assert said == ("ok" if recorded else "cannot say")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_the_program_and_the_report_is_kept(nsys, programs, tmp_path, number):
    command = [
        sys.executable,
        "-m",
        "k25trace",
        "capture",
        "-o",
        str(tmp_path / "s"),
        "--trace",
        "nvtx",
        "--",
    ]
    process = subprocess.Popen(
        [*command, *programs[SLEEPER]()],
        env={**os.environ, "K25TRACE_NSYS": str(nsys)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "up\n"
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 5
    assert f"stopping after {int(number)}\n" in out
    assert "passed to the program; nsys then finishes the report" in err
    found = manifest(tmp_path / "s.k25.json")
    assert (found["exit"]["code"], found["exit"]["signals"]) == (5, [number])
    assert statuses(tmp_path / "s.k25.json")["NVTX per rank"] == "ok"


def test_a_range_that_never_opens(capture, programs):
    done = capture("-o", "r", "--capture-range", "cudaProfilerApi", "--", *programs[TWO_PROCESSES](), "4")
    assert done.code == 4
    assert "the capture range never opened" in " ".join(done.stderr.split())
    assert [p.name for p in capture.out.iterdir()] == ["r.k25.json"]


def test_a_range_of_nvtx_opens_once_and_the_program_runs_on(capture, programs):
    done = capture(
        "-o",
        "r",
        "--trace",
        "nvtx",
        "--capture-range",
        "nvtx=layer1@k25",
        "--",
        *programs[TWO_PROCESSES](),
        "6",
    )
    assert done.code == 6  # nsys' own default would have ended it: 143
    with closing(sqlite3.connect(capture.out / "r.sqlite")) as db:
        (count,) = db.execute("SELECT count(*) FROM NVTX_EVENTS WHERE eventType = 59").fetchone()
    assert 0 < count < 20


def test_a_new_nvtx_package_is_recognised(capture, programs, new_nvtx):
    done = capture("-o", "n", "--trace", "nvtx", "--", *programs[TWO_PROCESSES](), env={"PYTHONPATH": str(new_nvtx)})
    assert done.code == 1
    assert statuses(capture.out / "n.k25.json")["NVTX package"] == "missing"
    assert "pip install nvtx==0.2.11" in " ".join(done.stderr.split())


def test_a_duration_ends_the_recording_and_the_program_runs_on(capture):
    done = capture("-o", "d", "--trace", "nvtx", "--duration", "1", "--", "sh", "-c", "sleep 6; exit 3")
    assert done.code == 0
    assert "the program goes on running; its exit code is not known" in done.stderr
    assert manifest(capture.out / "d.k25.json")["exit"]["whose"] == "unknown"


def test_an_nsys_without_importer_leaves_a_recording_that_a_whole_one_can_import(
    capture, run_here, nsys, programs, tmp_path
):
    home = nsys.resolve().parent
    lone = tmp_path / "lone" / home.name
    shutil.copytree(home, lone, copy_function=os.symlink)
    (lone / "nsys").unlink()
    shutil.copy(home / "nsys", lone / "nsys")  # finds what belongs to it by its own place
    done = capture("-o", "q", "--trace", "nvtx", "--nsys", lone / "nsys", "--", *programs[TWO_PROCESSES]())
    assert done.code == 1
    assert sorted(p.name for p in capture.out.iterdir()) == ["q.k25.json", "q.qdstrm"], done.stderr
    assert "only a raw recording (.qdstrm)" in " ".join(done.stderr.split())
    listed = run_here("doctor", "--nsys", lone / "nsys", "--format", "json")
    found = {c["name"]: c["status"] for c in json.loads(listed.stdout)["checks"]}
    assert (found["nsys"], found["importer"], found["export"]) == ("ok", "missing", "missing")

    importer = next(home.parent.glob("host-linux-*/QdstrmImporter"))
    whole = tmp_path / "whole"
    whole.mkdir()
    (whole / "QdstrmImporter").symlink_to(importer)
    path = os.pathsep.join([str(whole), os.environ["PATH"]])
    done = capture(
        "-o",
        "p",
        "--trace",
        "nvtx",
        "--nsys",
        lone / "nsys",
        "--",
        *programs[TWO_PROCESSES](),
        env={"PATH": path},
    )
    assert (capture.out / "p.nsys-rep").exists(), done.stderr
    assert not (capture.out / "p.qdstrm").exists()
    assert statuses(capture.out / "p.k25.json")["report"] == "ok"
    assert done.code in {0, 1}  # its own export needs what it lacks


def test_the_two_ways_in_which_nsys_itself_writes_elsewhere_are_there(nsys, tmp_path):
    """What `capture` guards against: exit code 0, and the report in the temporary folder."""
    (tmp_path / "old.nsys-rep").write_text("old", encoding="utf-8")
    for target in ("old", "missing/new"):
        done = subprocess.run(
            [
                nsys,
                "profile",
                "--trace=nvtx",
                "--sample=none",
                "--cpuctxsw=none",
                f"--output={tmp_path / target}",
                "true",
            ],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "TMPDIR": str(tmp_path)},
        )
        assert done.returncode == 0
        assert "Failed to create" in done.stdout + done.stderr
    assert (tmp_path / "old.nsys-rep").read_text(encoding="utf-8") == "old"


def test_a_report_that_is_damaged_is_not_exported(capture, run_here, nsys):
    capture("-o", "d", "--trace", "nvtx", "--", "true")
    whole = (capture.out / "d.nsys-rep").read_bytes()
    for name, content in (("half.nsys-rep", whole[:1000]), ("empty.nsys-rep", b"")):
        (capture.out / name).write_bytes(content)
        done = run_here("export", capture.out / name, env={"K25TRACE_NSYS": str(nsys)})
        assert done.code == 1
        assert len(done.stderr.splitlines()) == 2
        assert not (capture.out / name.replace(".nsys-rep", ".sqlite")).exists()


def test_an_unknown_option_is_said(capture):
    done = capture("-o", "u", "--nsys-arg=--no-such-option=1", "--", "true")
    assert done.code == 1
    assert "unrecognised option" in " ".join(done.stderr.split())


def test_an_option_of_the_user_takes_the_place_of_a_default(capture):
    done = capture("-o", "u", "--nsys-arg=--trace=osrt", "--nsys-arg=-s", "--nsys-arg=none", "--", "true")
    assert (capture.out / "u.nsys-rep").exists()
    words = manifest(capture.out / "u.k25.json")["nsys"]["argv"]
    assert [w for w in words if w.startswith("--trace")] == ["--trace-fork-before-exec=true", "--trace=osrt"]
    assert done.code == 0


def test_doctor_knows_this_machine(run_here, nsys):
    done = run_here("doctor", "--nsys", nsys, "--python", sys.executable, "--format", "json")
    found = {c["name"]: c for c in json.loads(done.stdout)["checks"]}
    assert found["nsys"]["status"] == found["importer"]["status"] == found["export"]["status"] == "ok"
    assert found["NVTX package"]["seen"].startswith("nvtx 0.2.")
    assert done.code == int(any(c["status"] == "missing" for c in found.values()))


def test_what_a_capture_leaks_is_not_in_its_scrubbed_copy(capture, run_here, programs):
    secrets = {
        "HF_TOKEN": "hf_QmFzZTY0c2VjcmV0",
        "LOGNAME": "wanda.example",
        "MODEL_HOME": "/srv/private/models",
    }
    capture("-o", "s", "--trace", "nvtx", "--", *programs[TWO_PROCESSES](), env=secrets)
    leaky = (capture.out / "s.sqlite").read_bytes()
    assert all(value.encode() in leaky for value in secrets.values())
    assert not any(v in (capture.out / "s.k25.json").read_text(encoding="utf-8") for v in secrets.values())
    done = run_here("scrub", capture.out / "s.sqlite", "-o", capture.out / "public.sqlite")
    assert done.code == 0, done.stderr
    clean = (capture.out / "public.sqlite").read_bytes()
    assert not any(value.encode() in clean for value in secrets.values())
    assert os.environ["PATH"].encode() not in clean
    before = run_here("doctor", capture.out / "s.sqlite").stdout
    assert run_here("doctor", capture.out / "public.sqlite").stdout == before
