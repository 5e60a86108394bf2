"""The JSON of `k25trace attribute` on real traces equals what SQL and hand counting find in their rows."""

import json
import subprocess
import sys
from collections import Counter, defaultdict
from functools import cache

import pytest
from nsys_says import GOLDEN, LOSSY, WHOLE, Rows, path, table

GRAPH = "h200x2_decode_graph"
TOY_GRAPH = "h200x1_toy_graph"
VLLM = "h200x2_vllm_graph"


def to_parquetdir(source, folder):
    tool = GOLDEN.parent / "tools" / "to_parquetdir.py"
    subprocess.run([sys.executable, str(tool), str(source), str(folder)], check=True)


def attribute(report):
    command = [sys.executable, "-m", "k25trace", "attribute", str(report), "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=GOLDEN.parents[1])
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def document():
    """`document(trace)`: the parsed output of the command, run once a trace."""
    return cache(lambda trace: attribute(path(trace)))


def warned(document, code):
    return [w for w in document["warnings"] if w["code"] == code]


def one(trace, query):
    rows = Rows.open(trace).execute(query).fetchall()
    assert len(rows) == 1
    return rows[0]


@pytest.mark.parametrize("trace", [*WHOLE, LOSSY])
def test_kernel_totals_by_name_equal_cuda_gpu_kern_sum(document, trace):
    ours = {k["name"]: (k["kernel_count"], k["kernel_ns"]) for k in document(trace)["kernels"] if k["gpu"] == "all"}
    assert ours == {
        r["Name"]: (int(r["Instances"]), int(r["Total Time (ns)"])) for r in table(trace, "cuda_gpu_kern_sum")
    }


@pytest.mark.parametrize("trace", [*WHOLE, LOSSY])
def test_pushpop_rows_sum_to_the_kernels_of_the_report(document, trace):
    rows = [r for r in document(trace)["ranges"] if r["kind"] == "pushpop"]
    count, total = one(trace, "SELECT count(*), sum(end - start) FROM CUPTI_ACTIVITY_KIND_KERNEL")
    assert (sum(r["kernel_count"] for r in rows), sum(r["kernel_ns"] for r in rows)) == (count, total)


@pytest.mark.parametrize("trace", WHOLE)
def test_a_whole_capture_is_not_called_incomplete(document, trace):
    assert warned(document(trace), "incomplete-capture") == []


def test_a_lossy_capture_is_called_incomplete_as_an_error_and_first(document):
    first = document(LOSSY)["warnings"][0]
    assert (first["code"], first["level"]) == ("incomplete-capture", "error")


def test_ranges_after_the_last_call_of_a_process_that_opened_the_recording_are_a_loss(document):
    first = document("h200x2_decode_lossy")["warnings"][0]
    assert (first["code"], first["count"]) == ("incomplete-capture", 2)
    assert "14 NVTX ranges beginning after the last API call" in first["message"]


def test_every_replayed_kernel_of_a_graph_captured_inside_has_a_capture_path(document):
    replayed = one(GRAPH, "SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE graphNodeId IS NOT NULL")[0]
    by_capture = [r for r in document(GRAPH)["ranges"] if r["via"] == "capture"]
    assert sum(r["kernel_count"] for r in by_capture) == replayed == 3720
    assert {r["path"][0] for r in by_capture} == {"graph_step"}
    assert warned(document(GRAPH), "capture-ranges-missing") == []


def test_a_replay_has_the_kernel_counts_of_the_eager_step_in_every_range(document):
    counts = defaultdict(Counter)
    for r in document(GRAPH)["ranges"]:
        if r["kind"] == "pushpop" and r["path"] is not None:
            counts[r["path"][0]][r["process"], *r["path"][1:], r["category"]] += r["kernel_count"]
    assert set(counts) == {"eager_step", "graph_step"}
    assert counts["graph_step"] == counts["eager_step"]


def test_kernels_of_a_graph_captured_before_the_recording_keep_their_replay_range(document):
    replays = Counter(
        dict(
            Rows.open(TOY_GRAPH).execute(
                "SELECT coalesce(s.value, n.text), count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL k "
                "JOIN CUPTI_ACTIVITY_KIND_RUNTIME r ON r.correlationId = k.correlationId "
                "JOIN NVTX_EVENTS n ON n.globalTid = r.globalTid AND n.start <= r.start AND r.start < n.end "
                "LEFT JOIN StringIds s ON s.id = n.textId "
                "WHERE k.graphNodeId IS NOT NULL AND n.eventType = 59 GROUP BY 1"
            )
        )
    )
    assert replays.total() == 1920
    ours = Counter()
    for r in document(TOY_GRAPH)["ranges"]:
        if r["path"] is not None and r["path"][-1] in replays:
            assert r["via"] == "launch"
            ours[r["path"][-1]] += r["kernel_count"]
    assert ours == replays
    missing = warned(document(TOY_GRAPH), "capture-ranges-missing")
    assert [w["count"] for w in missing] == [1920]


@pytest.mark.parametrize(
    ("part", "pattern", "field", "value"),
    [
        ("kernels", "%marlin_moe_wna16::Marlin%", "family", "moe_w4a16_int4"),
        ("kernels", "%cross_device_reduce_1stage%", "family", "custom_allreduce"),
        ("kernels", "ncclDevKernel%AllGather%", "category", "comm.allgather"),
        ("kernels", "ncclDevKernel%AllReduce%", "family", "nccl_allreduce"),
    ],
)
def test_vllm_totals_equal_those_of_sql(document, part, pattern, field, value):
    total = one(
        VLLM,
        "SELECT count(*), sum(k.end - k.start) FROM CUPTI_ACTIVITY_KIND_KERNEL k "
        f"JOIN StringIds s ON s.id = k.demangledName WHERE s.value LIKE '{pattern}'",
    )
    assert total[0] > 0
    ours = [k for k in document(VLLM)[part] if k[field] == value and k["gpu"] == "all"]
    assert (sum(k["kernel_count"] for k in ours), sum(k["kernel_ns"] for k in ours)) == total


def test_nccl_time_of_vllm_is_the_union_of_its_kernels_per_gpu(document):
    found = Rows.open(VLLM).execute(
        "SELECT k.deviceId, k.start, k.end FROM CUPTI_ACTIVITY_KIND_KERNEL k "
        "JOIN StringIds s ON s.id = k.demangledName WHERE s.value LIKE 'nccl%' ORDER BY k.deviceId, k.start"
    )
    union, reach = Counter(), {}
    for gpu, start, end in found:
        begin = max(start, reach.get(gpu, start))
        union[gpu] += max(0, end - begin)
        reach[gpu] = max(end, reach.get(gpu, end))
    assert len(union) == 2
    assert {g["device"]: g["nccl_ns"] for g in document(VLLM)["gpus"]} == union


def test_unclassified_is_at_most_one_percent_of_the_kernel_time_of_vllm(document):
    every = [c for c in document(VLLM)["categories"] if c["gpu"] == "all"]
    total = one(VLLM, "SELECT sum(end - start) FROM CUPTI_ACTIVITY_KIND_KERNEL")[0]
    assert sum(c["kernel_ns"] for c in every) == total
    unclassified = sum(c["kernel_ns"] for c in every if c["category"] == "unclassified")
    assert 100 * unclassified <= total


def test_every_replayed_kernel_of_vllm_is_in_its_execute_range(document):
    rows = Rows(VLLM)
    inside = Counter()
    for kernel in rows.kernels:
        around = [r.name for r in rows.around(kernel) if r.name.startswith("execute_context_")]
        assert len(around) <= 1
        assert around or kernel.graph_node is None
        inside.update(around)
    ours = Counter()
    for r in document(VLLM)["ranges"]:
        if r["path"] is not None:
            ours.update({n: r["kernel_count"] for n in r["path"] if n.startswith("execute_context_")})
    assert ours == inside
    replayed = sum(k.graph_node is not None for k in rows.kernels)
    assert [w["count"] for w in warned(document(VLLM), "capture-ranges-missing")] == [replayed]


@pytest.mark.parametrize("trace", [*WHOLE, LOSSY])
def test_a_parquetdir_gives_the_document_of_the_sqlite_it_came_from(document, trace, tmp_path):
    folder = tmp_path / trace
    to_parquetdir(path(trace), folder)
    other, same = attribute(folder), document(trace)
    assert [r.pop("file") for r in other["reports"]] == [str(folder)]
    assert other == same | {"reports": [{k: v for k, v in r.items() if k != "file"} for r in same["reports"]]}
