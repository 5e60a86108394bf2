"""The pure parts: command lines, presets, what a manifest may hold."""

import string
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from k25trace import manifest
from k25trace.capture import overhead
from k25trace.captureplan import argv, plan
from k25trace.errors import UsageError
from k25trace.nsys import Nsys, nvtx_is_too_new
from k25trace.presets import load_preset, preset_names

NSYS = Nsys(Path("/opt/nsys"), (2023, 4, 4))
EVERY = frozenset({"trace", "output", "trace-fork-before-exec", "cuda-graph-trace", "capture-range-end"})


def words(*program, known=EVERY, **options):
    return argv(plan(Path("/data/decode8"), program or ["true"], environment={}, **options), NSYS, known)


def test_the_defaults():
    assert words("python", "x.py", "--flag") == [
        "/opt/nsys",
        "profile",
        "--output=/data/.decode8.capture/decode8",
        "--trace=cuda,nvtx",
        "--cuda-graph-trace=node",
        "--sample=none",
        "--cpuctxsw=none",
        "--kill=none",
        "--export=sqlite",
        "--trace-fork-before-exec=true",
        "python",
        "x.py",
        "--flag",
    ]


def test_every_capture_range_lets_the_program_run_on():
    for name, options in (
        ("cudaProfilerApi", ["--capture-range=cudaProfilerApi"]),
        ("nvtx=step@k25", ["--capture-range=nvtx", "--nvtx-capture=step@k25"]),
    ):
        found = words(capture_range=name)
        assert set(options) <= set(found)
        assert "--capture-range-end=stop" in found
    assert not [w for w in words(capture_range="none", preset="torchrun") if "capture-range" in w]


def test_strings_that_are_not_registered_open_a_range_too():
    made = plan(Path("x"), ["true"], capture_range="nvtx=step", environment={})
    assert made.environment == {"NSYS_NVTX_PROFILER_REGISTER_ONLY": "0"}


def test_fork_tracing_only_where_nsys_has_it():
    assert not [w for w in words(known=frozenset({"trace"}), preset="vllm") if "fork" in w]
    assert not [w for w in words(known=frozenset()) if "fork" in w]


@pytest.mark.parametrize("given_", ["--trace=osrt", "-t", "--sample=process-tree", "-s"])
def test_an_argument_of_the_user_replaces_the_default(given_):
    found = words(nsys_args=[given_, "x"])
    long = {"-t": "--trace", "-s": "--sample"}.get(given_, given_.partition("=")[0])
    assert [w for w in found if w.partition("=")[0] in {long, given_}] == [given_]
    assert found[-3:-1] == [given_, "x"]


def test_delay_duration_and_session():
    assert {"--delay=1.5", "--duration=20", "--session-new=mine"} <= set(
        words(delay_s=1.5, duration_s=20.0, session="mine")
    )


@pytest.mark.parametrize("name", preset_names())
def test_presets_are_whole(name):
    preset = load_preset(name)
    assert preset.summary
    assert preset.open_range
    assert preset.close_range
    assert preset.notes
    made = plan(Path("x"), ["true"], preset=name, environment={})
    assert made.environment == preset.environment
    assert made.capture_range == preset.capture_range == "cudaProfilerApi"


def test_the_presets_of_the_command_line_are_those_that_there_are():
    from k25trace.cli.capture import PresetName

    assert [p.value for p in PresetName] == sorted(preset_names(), key=["torchrun", "vllm", "sglang", "trtllm"].index)


def test_a_preset_leaves_what_the_user_has_set():
    made = plan(Path("x"), ["true"], preset="vllm", environment={"VLLM_WORKER_MULTIPROC_METHOD": "fork"})
    assert "VLLM_WORKER_MULTIPROC_METHOD" not in made.environment


def test_an_unknown_preset():
    with pytest.raises(UsageError, match="no such preset"):
        plan(Path("x"), ["true"], preset="../torchrun")


@pytest.mark.parametrize(
    ("environment", "rank"),
    [
        ({"RANK": "3", "SLURM_PROCID": "0"}, 3),
        ({"SLURM_PROCID": "5"}, 5),
        ({"OMPI_COMM_WORLD_RANK": "7"}, 7),
        ({"PMI_RANK": "1"}, 1),
    ],
)
def test_the_rank_of_each_launcher(environment, rank):
    made = plan(Path("d/x.nsys-rep"), ["true"], per_rank=True, environment=environment)
    assert made.output.name == f"x.rank{rank}"


def test_the_slowdown_and_its_spread():
    found = overhead(3000, [1000, 2000, 1500])
    assert (found["slowdown"], found["slowdown_least"], found["slowdown_most"]) == (2.0, 1.5, 3.0)


@pytest.mark.parametrize(
    ("nvtx", "nsys", "too_new"),
    [
        ((0, 2, 11), (2023, 4, 4), False),
        ((0, 2, 12), (2023, 4, 4), True),
        ((0, 2, 14), (2024, 1), False),
        ((), (2023, 4), False),
    ],
)
def test_which_nvtx_is_too_new(nvtx, nsys, too_new):
    assert nvtx_is_too_new(nvtx, nsys) is too_new


# ---- what a manifest may hold


def test_only_the_allowed_part_of_the_environment_is_written():
    given_ = {
        "NCCL_ALGO": "Ring",
        "TORCH_NCCL_AVOID_RECORD_STREAMS": "1",
        "CUDA_VISIBLE_DEVICES": "0,1",
        "VLLM_USE_V1": "1",
        "CUDA_DEVICE_MAX_CONNECTIONS": "1",
        "VLLM_API_KEY": "short",
        "NCCL_TOPO_FILE": "/home/me/topo.xml",
        "HOME": "/home/me",
        "HF_TOKEN": "hf_abcdefghijkl",
        "NCCL_DEBUG": "x" * 65,
        "VLLM_X": "hf_abcdefghijkl",
        "MY_NCCL_ALGO": "Ring",
        "CUDA_HOME": "/usr",
        "VLLM_NOTE": "two words",
    }
    assert sorted(manifest.allowed_environment(given_)) == [
        "CUDA_DEVICE_MAX_CONNECTIONS",
        "CUDA_VISIBLE_DEVICES",
        "NCCL_ALGO",
        "TORCH_NCCL_AVOID_RECORD_STREAMS",
        "VLLM_USE_V1",
    ]


SECRET = "s3cr3t-v4lue"


@pytest.mark.parametrize(
    "words_",
    [
        ["--api-key", SECRET],
        [f"--api-key={SECRET}"],
        ["--hf-token", SECRET],
        [f"HF_TOKEN={SECRET}"],
        ["--password", SECRET],
        ["env", f"AWS_SECRET_ACCESS_KEY={SECRET}"],
        ["sh", "-c", f"export HF_TOKEN={SECRET}; python x.py"],
        ["sh", "-c", f"serve --api-key {SECRET} --port 1"],
        [f"--env-var=A=B,HF_TOKEN={SECRET}"],
        ["curl", "-H", f"Authorization: Bearer {SECRET}"],
        [f"https://me:{SECRET}@example.org/x"],
        ["--key", SECRET],
        [f'{{"token": "{SECRET}"}}'],
    ],
)
def test_secrets_in_arguments_are_masked(words_):
    shown = manifest.masked(words_)
    assert SECRET not in " ".join(shown)
    assert len(shown) == len(words_)


@pytest.mark.parametrize(
    "token", ["hf_QmFzZTY0c2VjcmV0", "sk-proj-abc123abc123", "ghp_0123456789abcdefABCD", "nvapi-abcdefgh1234"]
)
def test_credentials_of_known_forms_are_masked_anywhere(token):
    assert token not in " ".join(manifest.masked(["prog", f"x{' '}{token}", token]))


@pytest.mark.parametrize(
    "words_",
    [
        ["--max-tokens", "512"],
        ["--max-num-batched-tokens=8192"],
        ["--tokenizer", "deepseek"],
        ["--tokenizer-mode=auto"],
        ["--kv-cache-dtype", "fp8"],
        ["--model", "moonshotai/Kimi-K2"],
        ["--num-speculative-tokens", "3"],
        ["-c", "print(1)"],
    ],
)
def test_what_only_sounds_like_a_secret_stays(words_):
    assert manifest.masked(words_) == words_


@given(st.lists(st.text(alphabet=string.printable, max_size=20), max_size=6))
def test_masking_keeps_the_number_of_arguments_and_never_fails(words_):
    assert len(manifest.masked(words_)) == len(words_)


def test_bytes_that_are_not_text_can_be_written(tmp_path):
    manifest.write_manifest(tmp_path / "m.json", {"argv": manifest.shown(["a\udcff"])})
    assert "a" in (tmp_path / "m.json").read_text(encoding="utf-8")
