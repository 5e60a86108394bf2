"""What goes wrong is one line that says what, and never hangs."""

import importlib
import signal
import socket
import subprocess
import sys
from types import SimpleNamespace

import pytest
from launching import command, environment

torch = pytest.importorskip("torch", reason="no torch: pip install '.[workloads]'")

pytestmark = [pytest.mark.torch, pytest.mark.slow]

if True:  # after the look whether torch is there
    from k25trace.workloads import world as worlds
    from k25trace.workloads.decoder import CPU_SPARE_BYTES, layers_that_fit
    from k25trace.workloads.shapes import KIMI_K25
    from k25trace.workloads.sweep import combinations, without_sweep
    from k25trace.workloads.world import CannotRun

    from k25trace.errors import UsageError


def test_no_gpu(workload):
    ran = workload("decode", tiny=False)
    assert ran.code == 1
    assert ran.stderr.startswith("error: no GPU")
    assert "--device cpu" in ran.stderr


def test_too_few_gpus(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    for key, value in (("WORLD_SIZE", "4"), ("RANK", "0"), ("LOCAL_RANK", "0"), ("LOCAL_WORLD_SIZE", "4")):
        monkeypatch.setenv(key, value)
    with pytest.raises(CannotRun, match="4 ranks on this machine need 4 GPUs, and it has 2") as refused:
        worlds.open_world("cuda", 5)
    assert "--nproc-per-node 2" in refused.value.hint


def test_marlin_needs_a_gpu(workload):
    ran = workload("decode", "--path", "marlin")
    assert (ran.code, ran.stderr.splitlines()[0]) == (1, "error: Marlin's kernels need a GPU")


def test_not_enough_memory_says_how_much_and_how_many_layers_fit(monkeypatch):
    from k25trace.workloads import decode

    lone = SimpleNamespace(cuda=False, size=1, local_size=1, gather=lambda what: [what])
    chosen = SimpleNamespace(requests=4, verify_width=0, path="marlin", context=4096, layers=20)
    monkeypatch.setattr(decode.machine, "available_bytes", lambda: 140 * 10**9)
    with pytest.raises(CannotRun, match=r"20 layers need 19\d,\d{3},\d{3},\d{3} B on each rank") as refused:
        decode._fit(lone, chosen, KIMI_K25)
    fitting = layers_that_fit(KIMI_K25, 1, "marlin", 4, 4096, 4, 140 * 10**9, CPU_SPARE_BYTES)
    assert 5 < fitting < 20
    assert f"--layers {fitting} is the most that fits" in refused.value.hint
    chosen.layers = None
    assert decode._fit(lone, chosen, KIMI_K25) == fitting


@pytest.mark.parametrize("ranks", [1, 2, 8])
@pytest.mark.parametrize("path", ["marlin", "cast", "int4pack", "bf16"])
def test_what_fits_grows_with_memory_and_ranks(ranks, path):
    fitting = [layers_that_fit(KIMI_K25, ranks, path, 4, 4096, 4, gb * 10**9) for gb in (0, 20, 80, 140, 4000)]
    assert fitting == sorted(fitting)
    assert (fitting[0], fitting[-1]) == (0, 61)


def test_a_library_for_another_torch(workload, tmp_path):
    library = tmp_path / "ops.so"
    library.write_bytes(b"\x7fELF, but not really")
    ran = workload("moe_routing", "--vllm-ops", library)
    assert ran.code == 1
    assert f"does not load into torch {torch.__version__}" in ran.stderr
    missing = workload("moe_routing", "--vllm-ops", tmp_path / "none.so")
    assert (missing.code, "no such file" in missing.stderr) == (1, True)


@pytest.mark.parametrize(
    ("module", "words", "said"),
    [
        ("decode", ("--layers", "9"), "tiny has 3 layers, not 9"),
        ("decode", ("--skew", "3:10us"), "there is no rank 3"),
        ("decode", ("--context", "2", "--verify-width", "2"), "--context must hold"),
        ("gemm", ("--only", "q_a"), "there is no q_a"),
        ("gemm", ("-M", "1,x"), "is no list of numbers"),
        ("moe_routing", ("-M", "9223372036854775808"), "is above 2,147,483,647"),
        ("gemm", ("--tp", "3"), "cannot be split over 3 ranks"),
        ("allreduce", (), "at least 2 ranks"),
        ("allreduce", ("--sweep", "LD_PRELOAD=x"), "is no setting"),
    ],
)
def test_options_that_make_no_sense(workload, module, words, said):
    path = ("--path", "bf16") if module == "decode" else ()
    ran = workload(module, *path, *words)
    assert (ran.code, ran.found) == (2, {})
    one, *hint = ran.stderr.splitlines()
    assert one.startswith("error: ")
    assert said in one
    assert all(line.startswith("hint: ") for line in hint)
    assert len(hint) <= 1


def test_results_are_not_overwritten(tmp_path):
    (tmp_path / "there.json").write_text("mine")
    done = subprocess.run(
        [*command("moe_routing"), "--json", "there.json"],
        capture_output=True, text=True, check=False, cwd=tmp_path, env=environment(), timeout=60,
    )  # fmt: skip
    assert (done.returncode, (tmp_path / "there.json").read_text()) == (2, "mine")


@pytest.mark.parametrize(
    ("module", "words", "said"),
    [
        ("decode", ("--skew", "0:-5us"), "a rank cannot be early"),
        ("decode", ("--eager-steps", "0", "--graph-steps", "0"), "nothing is measured"),
        ("decode", ("--preset", "nope"), "invalid choice: 'nope'"),
        ("moe_routing", ("-M", "1,0"), "0 is not above 0"),
        ("moe_routing", ("--seed", "99999999999999999999"), "is above 2,147,483,647"),
        ("moe_routing", ("--timeout", "nan"), "nan is no time"),
        ("moe_routing", ("--see", "1"), "unrecognized arguments: --see"),
        ("allreduce", ("--sweep", "NCCL_PROTO=LL", "--sweep", "NCCL_PROTO=Simple"), "NCCL_PROTO is given twice"),
        ("allreduce", ("--link-gb-per-s", "nan"), "nan is no rate"),
        ("allreduce", ("--no-sizes", "--no-burst"), "nothing is measured"),
        ("allreduce", ("-b", "1M", "-e", "1K"), "-b 1,048,576 is above -e 1,024"),
    ],
)
def test_options_that_are_refused_before_ranks_meet(monkeypatch, module, words, said):
    program = importlib.import_module(f"k25trace.workloads.{module}")
    monkeypatch.setattr(sys, "argv", [module, "--device", "cpu", *words])
    with pytest.raises(UsageError) as refused:
        program.main()
    assert said in refused.value.message
    assert "\n" not in refused.value.message


@pytest.mark.parametrize(
    ("name", "code", "said"),
    [
        ("there", 2, "is a folder"),
        ("nowhere/x.json", 2, "is no folder"),
        ("there.json/x.json", 1, "Not a directory"),
        ("x" * 300, 1, "File name too long"),
        ("/proc/x.json", 1, "cannot be written"),
    ],
)
def test_a_file_that_cannot_be_written_is_refused_before_anything_is_measured(tmp_path, name, code, said):
    (tmp_path / "there").mkdir()
    (tmp_path / "there.json").touch()
    before = sorted(tmp_path.rglob("*"))
    done = subprocess.run(
        [*command("moe_routing"), "--force", "--json", name],
        capture_output=True, text=True, check=False, cwd=tmp_path, env=environment(), timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.startswith("error: ")
    assert said in done.stderr.splitlines()[0]
    assert sorted(tmp_path.rglob("*")) == before


def test_a_name_as_long_as_names_can_be_is_written(tmp_path):
    done = subprocess.run(
        [*command("moe_routing", "-M", "1", "-n", "1", "--calls", "1"), "--json", "x" * 255],
        capture_output=True, text=True, check=False, cwd=tmp_path, env=environment(), timeout=60,
    )  # fmt: skip
    assert (done.returncode, [file.name for file in tmp_path.iterdir()]) == (0, ["x" * 255])


@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("moe_routing", ("-M", "2147483647")),
        ("mla_attention", ("-M", "1", "--context", "2147483647")),
        ("mla_attention", ("-M", "2147483647", "--context", "2147483647", "--preset", "kimi-k2.5")),
    ],
)
def test_what_no_memory_holds_is_one_line(workload, module, words):
    ran = workload(module, *words)
    assert (ran.code, ran.found) == (1, {})
    assert ran.stderr.startswith("error: not enough memory")
    assert len(ran.stderr.splitlines()) == 2


def test_errors_of_torch_that_are_nobody_s_fault_keep_their_traceback():
    assert worlds.refusal(RuntimeError("mat1 and mat2 shapes cannot be multiplied (1x2 and 3x4)")) is None
    assert worlds.refusal(RuntimeError("")) is None
    lost = worlds.refusal(torch.distributed.DistNetworkError("Broken pipe"))
    assert lost is not None
    assert (lost.message, lost.exit_code) == ("the other ranks cannot be reached: Broken pipe", 1)


def test_a_full_disk_under_the_table_leaves_the_results(tmp_path):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*command("moe_routing", "-M", "1", "-n", "1", "--calls", "1"), "--json", "found.json"],
            stdout=full, stderr=subprocess.PIPE, text=True, check=False, cwd=tmp_path, env=environment(), timeout=60,
        )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.splitlines() == ["wrote found.json", "error: standard output: No space left on device"]
    assert (tmp_path / "found.json").exists()


def test_an_interrupt_is_one_line():
    steps = ("--path", "bf16", "--context", "8", "-M", "1", "--eager-steps", "100000000")
    with subprocess.Popen(
        command("decode", *steps), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, env=environment()
    ) as process:
        said = [process.stderr.readline() for _ in range(2)]  # the steps begin
        assert said[1].startswith("checked against float64")
        process.send_signal(signal.SIGINT)
        rest = process.communicate(timeout=60)[1]
    assert (process.returncode, rest) == (130, "error: interrupted\n")


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ({"WORLD_SIZE": "2", "RANK": "2"}, "RANK=2 and WORLD_SIZE=2"),
        ({"WORLD_SIZE": "0", "RANK": "0"}, "RANK=0 and WORLD_SIZE=0"),
        ({"WORLD_SIZE": "two"}, "WORLD_SIZE='two' is no number"),
        ({"WORLD_SIZE": "2", "RANK": "0", "MASTER_PORT": "99999"}, "MASTER_PORT=99999 is no port"),
    ],
)
def test_an_environment_that_describes_no_run(workload, env, said):
    ran = workload("moe_routing", **env)
    assert ran.code == 2
    assert said in ran.stderr.splitlines()[0]


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return str(listener.getsockname()[1])


def start(rank, size, port, *words, code=None):
    env = environment(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(size), LOCAL_WORLD_SIZE=str(size),
                      MASTER_ADDR="127.0.0.1", MASTER_PORT=port)  # fmt: skip
    argv = [sys.executable, "-c", code] if code else command("decode", "--path", "bf16", *words)
    return subprocess.Popen(argv, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, env=env)


def test_a_rank_that_never_comes_is_named():
    port = free_port()
    started = [start(rank, 3, port, "--timeout", "6") for rank in (0, 1)]
    for rank, process in enumerate(started):
        said = process.communicate(timeout=60)[1]
        assert process.returncode == 1
        assert f"error: rank {rank}: rank 2 did not reach 'the start' within 6 s" in said


def test_a_missing_first_rank_is_named():
    process = start(1, 2, free_port(), "--timeout", "4")
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 1
    assert "rank 0 is missing" in said


@pytest.mark.parametrize("killed", [0, 1])
def test_a_rank_that_is_killed_ends_the_others_with_one_line(killed):
    port, steps = free_port(), ("--context", "8", "-M", "1", "--eager-steps", "100000000", "--timeout", "5")
    started = [start(rank, 2, port, *steps) for rank in (0, 1)]
    try:
        for _ in range(2):  # the steps begin
            assert started[0].stderr.readline()
        started[killed].kill()
        said = started[1 - killed].communicate(timeout=60)[1]
    finally:
        for process in started:
            process.kill()
            process.communicate()
    assert started[1 - killed].returncode == 1
    assert "Traceback" not in said
    assert f"error: rank {1 - killed}: " in said


STUCK = """
import sys, time, torch
from k25trace.workloads.world import open_world
world = open_world("cpu", 4)
world.barrier("before")
world.at("the all-reduce")
if world.rank == 0:
    # Stands for a collective that the other rank never joins; NCCL's own waiting cannot be interrupted.
    time.sleep(60)
world.at("the all-reduce")
time.sleep(60)
"""


def test_a_rank_stuck_in_a_collective_ends_itself_and_says_who_went_elsewhere():
    port = free_port()
    started = [start(rank, 2, port, code=STUCK) for rank in (0, 1)]
    said = [process.communicate(timeout=60)[1] for process in started]
    assert [process.returncode for process in started] == [1, 1]
    assert "rank 1: no progress for" in said[1]
    assert "in 'the all-reduce'; rank 0 missing" in said[1]


def test_combinations_of_settings():
    assert combinations(["NCCL_PROTO=LL,Simple", "NCCL_P2P_DISABLE=1"]) == [
        {"NCCL_PROTO": "LL", "NCCL_P2P_DISABLE": "1"},
        {"NCCL_PROTO": "Simple", "NCCL_P2P_DISABLE": "1"},
    ]
    with pytest.raises(UsageError):
        combinations(["NCCL_PROTO"])
    assert without_sweep(["-n", "2", "--sweep", "A=1", "--json=x", "--nproc", "2", "-M", "1"]) == [
        "-n",
        "2",
        "-M",
        "1",
    ]
