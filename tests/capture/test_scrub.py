"""Scrubbed copies: nothing that was put in is left, and every result is what it was."""

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import tracekit

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
TRACES = [
    "h200x2_decode_graph",
    "h200x2_toy_eager",
    "h200x1_toy_graph",
    "h200x2_vllm_graph",
    "h200x2_vllm_lossy",
]

HOST, USER, TOKEN = "node17.cluster.example.org", "wanda", "hf_QmFzZTY0c2VjcmV0"
FOLDER, UUID, BUS, SESSION = (
    "/home/wanda/models/k2",
    "8c3d7f9e-1c1b-4d52-a0f7-2f9f4c0d1e2a",
    "0000:ab:00.0",
    "profile-31337-xyz",
)
OTHER = "/srv/other-tenant/config.yaml"
ENVIRONMENT = {
    "HF_TOKEN": TOKEN,
    "HOME": FOLDER,
    "HOSTNAME": HOST,
    "LOGNAME": USER,
    "MODEL": "k2",
    "LONG": "x1-" * 3000 + "end-of-it",
}
SECRETS = [
    HOST,
    USER,
    TOKEN,
    FOLDER,
    UUID,
    BUS,
    SESSION,
    OTHER,
    "end-of-it",
    "2027-03-04",
    "secret-project",
    "gpt-worker-7",
]


def leaky(source: Path, target: Path) -> Path:
    """A copy of a trace with what real reports hold: environment, host, paths, processes, identifiers."""
    shutil.copyfile(source, target)
    lines = [f"{name}={value}" for name, value in ENVIRONMENT.items()]
    with closing(sqlite3.connect(target)) as db, db:
        tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        next_id = db.execute("SELECT max(id) + 1 FROM StringIds").fetchone()[0]
        texts = [
            "\0".join(lines),
            f"{FOLDER}/.nsys/stdout.log",
            f"output of {HOST}",
            "gpt-worker-7",
            "\0".join([f"CONFIG={OTHER}"]),
        ]
        db.executemany("INSERT INTO StringIds (id, value) VALUES (?, ?)", enumerate(texts, next_id))
        system = [
            ("DeviceEnvironment", ";".join(lines)),
            ("Hostname", HOST),
            ("TargetInstallDir", FOLDER),
            ("CpuCores", "8"),
            ("SoftwareReleaseVersion", "6.1.55-acme-gpu"),
        ]
        db.executemany(
            "INSERT INTO TARGET_INFO_SYSTEM_ENV (globalVid, devStateName, name, nameEnum, value)"
            " VALUES (1, ?, ?, 1, ?)",
            [(HOST, name, value) for name, value in system],
        )
        capture = [
            *(("PROCESS_0:ENVIRONMENT_VARIABLE", f'{n}="{v}"') for n, v in ENVIRONMENT.items()),
            ("DEVICE_DISPLAY_NAME", HOST),
            ("PROCESS_0:COMMAND", f"{FOLDER}/bin/python"),
            ("PROCESS_0:ARGUMENT_0", f"--hf-token={TOKEN}"),
            ("PROCESS_0:ARGUMENT_1", "--model"),
            ("PROCESS_0:ARGUMENT_2", f"{FOLDER}/secret-project/k2.bin"),
            ("SESSION", SESSION),
            ("PROCESS_0:WORKING_DIR", FOLDER),
            ("PROCESS_0:USER_NAME", USER),
            ("RATE_HZ", "0"),
        ]
        db.executemany("INSERT INTO META_DATA_CAPTURE (name, value) VALUES (?, ?)", capture)
        export = [
            ("EXPORT_HOST", HOST),
            ("EXPORT_USER", USER),
            ("EXPORT_TIME_UTC", "2027-03-04T05:06:07"),
            ("EXPORT_PARAM_INPUT_PATH", FOLDER),
        ]
        db.executemany("INSERT INTO META_DATA_EXPORT (name, value) VALUES (?, ?)", export)
        db.execute("INSERT INTO PROCESSES (globalPid, pid, name) VALUES (1, 1, ?)", (f"{FOLDER}/bin/python",))
        db.execute("INSERT INTO ThreadNames (nameId, priority, globalTid) VALUES (?, 20, 1)", (next_id + 3,))
        db.execute(
            "INSERT INTO ProcessStreams (globalPid, filenameId, contentId) VALUES (1, ?, ?)",
            (next_id + 1, next_id + 2),
        )
        db.execute(
            "UPDATE TARGET_INFO_SESSION_START_TIME"
            " SET utcTime = '2027-03-04T05:06:07', localTime = '2027-03-04T06:06:07'"
        )
        if "TARGET_INFO_GPU" in tables:
            db.execute("UPDATE TARGET_INFO_GPU SET uuid = ?, busLocation = ? WHERE id = 0", (UUID, BUS))
        db.execute("CREATE TABLE IF NOT EXISTS TARGET_INFO_NIC_INFO (name TEXT, guid TEXT)")
        db.execute("INSERT INTO TARGET_INFO_NIC_INFO VALUES ('mlx5_0', ?)", (HOST,))
        db.execute("CREATE TABLE Deleted (value TEXT)")
        db.execute("INSERT INTO Deleted VALUES (?)", (f"{TOKEN} {SESSION} " * 40,))
        db.execute("DROP TABLE Deleted")  # its bytes stay in the file
    return target


@pytest.fixture
def scrub(run_in_process, tmp_path):
    def run(source, *options, output="public.sqlite"):
        done = run_in_process("scrub", source, "-o", tmp_path / output, *options)
        return done, tmp_path / output

    return run


def results(run, path, *options):
    done = run("attribute", path, "--format", "json", *options)
    assert done.code in {0, 3}, done.stderr
    found = json.loads(done.stdout) if done.stdout else {"stderr": done.stderr.replace(str(path), "")}
    for report in found.get("reports", []):
        report.pop("file")
    checks = run("doctor", path, "--format", "json").stdout
    return found, checks


@pytest.mark.parametrize("trace", TRACES)
def test_every_result_is_what_it_was_and_nothing_put_in_is_left(trace, scrub, run_in_process, tmp_path):
    source = leaky(GOLDEN / f"{trace}.sqlite", tmp_path / "leaky.sqlite")
    before = source.read_bytes()
    assert all(secret.encode() in before for secret in SECRETS)
    done, copy = scrub(source)
    assert done.code == 0, done.stderr
    after = copy.read_bytes()
    assert [secret for secret in SECRETS if secret.encode() in after] == []
    assert results(run_in_process, copy) == results(run_in_process, source)
    assert source.read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["leaky.sqlite", "public.sqlite"]
    assert "environment variables" in done.stdout


def test_of_a_kernels_release_the_number_stays(scrub, tmp_path):
    source = leaky(GOLDEN / "h200x2_decode_graph.sqlite", tmp_path / "leaky.sqlite")
    _, copy = scrub(source)
    with closing(sqlite3.connect(copy)) as db:
        found = db.execute("SELECT value FROM TARGET_INFO_SYSTEM_ENV WHERE name = 'SoftwareReleaseVersion'").fetchall()
    assert found == [("6.1.55",)]
    assert b"acme" not in copy.read_bytes()


@pytest.mark.parametrize("options", [["--range", "*_step"], ["--window", "10ms:60ms"], ["--domain", "NCCL"]])
def test_results_of_a_part_are_equal_too(options, scrub, run_in_process, tmp_path):
    source = leaky(GOLDEN / "h200x2_decode_graph.sqlite", tmp_path / "leaky.sqlite")
    _, copy = scrub(source)
    assert results(run_in_process, copy, *options) == results(run_in_process, source, *options)


def test_rows_of_events_are_the_same(scrub, tmp_path):
    source = leaky(GOLDEN / "h200x2_decode_graph.sqlite", tmp_path / "leaky.sqlite")
    _, copy = scrub(source)
    with closing(sqlite3.connect(source)) as a, closing(sqlite3.connect(copy)) as b:
        tables = [n for (n,) in a.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        events = [t for t in tables if t.startswith(("CUPTI", "CUDA_GRAPH", "NVTX", "ANALYSIS", "ENUM_"))]
        assert len(events) > 5
        for table in events:
            assert a.execute(f'SELECT * FROM "{table}"').fetchall() == b.execute(f'SELECT * FROM "{table}"').fetchall()


@pytest.mark.parametrize("trace", ["h200x2_decode_graph", "h200x2_vllm_graph"])
def test_names_are_replaced_consistently(trace, scrub, run_in_process, tmp_path):
    source = leaky(GOLDEN / f"{trace}.sqlite", tmp_path / "leaky.sqlite")
    done, copy = scrub(source, "--names")
    assert done.code == 0, done.stderr
    (before, checks_before), (after, checks_after) = (results(run_in_process, p) for p in (source, copy))
    named = {"ranges", "inclusive"}
    assert {k: v for k, v in before.items() if k not in named} == {k: v for k, v in after.items() if k not in named}
    assert checks_before == checks_after

    def rows(found):
        return sorted(
            (
                r["gpu"],
                r["process"],
                r["kind"],
                r["via"],
                r["category"],
                r["kernel_count"],
                r["kernel_ns"],
                len(r["path"] or ()),
            )
            for r in found["ranges"]
        )

    assert rows(before) == rows(after)
    names = {n for r in before["ranges"] for n in r["path"] or () if not n.startswith("nccl")}
    new = {n for r in after["ranges"] for n in r["path"] or () if not n.startswith("nccl")}
    assert len(names) == len(new)
    assert not names & new
    data = copy.read_bytes()
    assert not [n for n in names if len(n) > 8 and n.encode() in data and "::" not in n and n not in ("elementwise",)]


def test_a_path_in_the_name_of_a_range_is_an_error_and_names_is_the_remedy(scrub, tmp_path):
    trace = tracekit.TraceBuilder()
    trace.push_pop(f"load {FOLDER}/secret-project", 0, 900)
    trace.kernel(tracekit.MARLIN, 1_000, 600, launch=800)
    trace.environment("HOME", FOLDER)
    source = trace.write(tmp_path / "t.sqlite")
    done, copy = scrub(source)
    assert done.code == 1
    assert "--names" in done.stderr
    assert not copy.exists()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["t.sqlite"]
    done, copy = scrub(source, "--names")
    assert done.code == 0
    assert FOLDER.encode() not in copy.read_bytes()


def test_a_registered_name_that_a_call_has_too_is_replaced_for_the_range_alone(scrub, tmp_path):
    trace = tracekit.TraceBuilder()
    trace.push_pop("cudaLaunchKernel_v7000", 0, 900, registered=True)
    trace.push_pop("mine", 0, 900, registered=True)
    trace.kernel(tracekit.MARLIN, 1_000, 600, launch=800)
    done, copy = scrub(trace.write(tmp_path / "t.sqlite"), "--names")
    assert done.code == 0, done.stderr
    with closing(sqlite3.connect(copy)) as db:
        texts = {v for (v,) in db.execute("SELECT value FROM StringIds JOIN NVTX_EVENTS ON textId = id")}
        calls = {
            v for (v,) in db.execute("SELECT value FROM StringIds JOIN CUPTI_ACTIVITY_KIND_RUNTIME ON nameId = id")
        }
    assert all(text.startswith("name ") for text in texts)
    assert "cudaLaunchKernel_v7000" in calls


def test_ranks_and_nccl_keep_what_attribution_rests_on(scrub, tmp_path):
    trace = tracekit.TraceBuilder()
    trace.mark("worker of wanda rank=3", 5)
    trace.domain("NCCL", 1)
    trace.push_pop("ncclAllReduce", 0, 900, domain=1)
    trace.kernel(tracekit.ALL_REDUCE, 1_000, 600, launch=800)
    _, copy = scrub(trace.write(tmp_path / "t.sqlite"), "--names")
    with closing(sqlite3.connect(copy)) as db:
        texts = {v for (v,) in db.execute("SELECT text FROM NVTX_EVENTS")}
    assert texts == {"name 1 rank=3", "NCCL", "ncclAllReduce"}


def test_bytes_that_are_not_text_are_kept(scrub, run_in_process, tmp_path):
    done, copy = scrub(GOLDEN / "cpu_bytes.sqlite")
    assert done.code == 0
    with closing(sqlite3.connect(copy)) as a, closing(sqlite3.connect(GOLDEN / "cpu_bytes.sqlite")) as b:
        for db in (a, b):
            db.text_factory = bytes
        assert a.execute("SELECT * FROM NVTX_EVENTS").fetchall() == b.execute("SELECT * FROM NVTX_EVENTS").fetchall()


@pytest.mark.parametrize(
    ("make", "code", "said"),
    [
        (lambda p: p, 1, "no such file"),
        (lambda p: (p.write_bytes(b"") and p) or p, 1, "cannot be read"),
        (
            lambda p: p.write_bytes((GOLDEN / "h200x1_toy_graph.sqlite").read_bytes()[:50_000]) and p,
            1,
            "truncated",
        ),
        (lambda p: p.mkdir() or p, 2, "a folder"),
    ],
    ids=["missing", "empty", "truncated", "folder"],
)
def test_what_cannot_be_scrubbed(scrub, tmp_path, make, code, said):
    done, copy = scrub(make(tmp_path / "x.sqlite"))
    assert done.code == code
    assert said in done.stderr
    assert not copy.exists()


def test_a_database_of_something_else(scrub, tmp_path):
    with closing(sqlite3.connect(tmp_path / "x.sqlite")) as db, db:
        db.execute("CREATE TABLE t (a TEXT)")
    done, copy = scrub(tmp_path / "x.sqlite")
    assert (done.code, copy.exists()) == (3, False)


def test_a_copy_that_exists_is_not_replaced_and_the_source_never(scrub, tmp_path):
    source = tmp_path / "s.sqlite"
    shutil.copyfile(GOLDEN / "h200x1_toy_graph.sqlite", source)
    (tmp_path / "public.sqlite").write_text("old", encoding="utf-8")
    done, copy = scrub(source)
    assert (done.code, copy.read_text(encoding="utf-8")) == (1, "old")
    assert scrub(source, "--force")[0].code == 0
    done, _ = scrub(source, "--force", output="s.sqlite")
    assert (done.code, "is read or written by this command already" in done.stderr) == (2, True)
    assert source.read_bytes() == (GOLDEN / "h200x1_toy_graph.sqlite").read_bytes()
