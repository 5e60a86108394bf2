"""What must hold in every document of schema ``k25trace.attribution/1``, whatever the report.

`faults` says what does not hold, one line each; `check_laws` asserts that there is nothing to say.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

SCHEMA = "k25trace.attribution/1"
PARTS = ("reports", "windows", "gpus", "categories", "families", "wall", "ranges", "kernels", "warnings")
SHARE_TOLERANCE = 1e-9
ALL = "all"
AVERAGES = ("mean_", "median_")


def faults(document: dict[str, Any]) -> list[str]:
    """Return one line for each law that the document breaks."""
    if document.get("schema") != SCHEMA:
        return [f"schema is {document.get('schema')!r}"]
    if missing := [part for part in PARTS if part not in document]:
        return [f"no {part}" for part in missing]
    return [
        *_parts_add_up(document),
        *_gpu_figures_agree(document),
        *_wall_agrees(document),
        *_shares_are_quotients(document),
        *_all_is_the_sum(document),
        *_keys_are_unique(document),
        *_figures_are_counts(document),
        *_warnings_are_well_formed(document),
    ]


def check_laws(document: dict[str, Any]) -> None:
    """Assert that the document agrees with itself."""
    broken = faults(document)
    assert not broken, "\n".join(broken)


def _parts_add_up(d: dict[str, Any]) -> list[str]:
    out = []
    for part in ("categories", "families", "ranges"):
        sums: Counter[tuple[str, str]] = Counter()
        for r in d[part]:
            if r.get("kind") != "startend":
                for key in ("kernel_count", "kernel_ns"):
                    sums[r["gpu"], key] += r[key]
        for g in d["gpus"]:
            for key in ("kernel_count", "kernel_ns"):
                if sums[g["gpu"], key] != g[key]:
                    out.append(f"{part} of {g['gpu']} add up to {key} {sums[g['gpu'], key]}, not {g[key]}")
    for key in ("kernel_count", "kernel_ns"):
        total, by_name = sum(g[key] for g in d["gpus"]), sum(r[key] for r in d["kernels"] if r["gpu"] == ALL)
        if total != by_name:
            out.append(f"kernels add up to {key} {by_name}, not {total}")
    return out


def _gpu_figures_agree(d: dict[str, Any]) -> list[str]:
    out = []
    for g in d["gpus"]:
        pairs = {
            "communication": (
                g["communication_ns"],
                g["exposed_communication_ns"] + g["hidden_communication_ns"],
            ),
            "busy + no kernel": (g["window_ns"], g["busy_ns"] + g["no_kernel_ns"]),
        }
        out += [f"{what} of {g['gpu']}: {a} != {b}" for what, (a, b) in pairs.items() if a != b]
        order = {
            "idle ≤ no kernel": (g["idle_ns"], g["no_kernel_ns"]),
            "busy ≤ window": (g["busy_ns"], g["window_ns"]),
            "exposed ≤ communication": (g["exposed_communication_ns"], g["communication_ns"]),
            "exposed nccl ≤ nccl": (g["exposed_nccl_ns"], g["nccl_ns"]),
            "nccl ≤ communication": (g["nccl_ns"], g["communication_ns"]),
            "communication ≤ busy": (g["communication_ns"], g["busy_ns"]),
            "opaque ≤ graph launches": (g["opaque_graph_count"], g["graph_launch_count"]),
        }
        out += [f"{what} of {g['gpu']}: {a} > {b}" for what, (a, b) in order.items() if a > b]
    return out


def _wall_agrees(d: dict[str, Any]) -> list[str]:
    out = []
    wall: Counter[tuple[str, str]] = Counter()
    for r in d["wall"]:
        wall[r["gpu"], r["row"]] += r["wall_ns"]
    for g in d["gpus"]:
        total = sum(ns for (gpu, _), ns in wall.items() if gpu == g["gpu"])
        if total != g["window_ns"]:
            out.append(f"wall of {g['gpu']} adds up to {total}, not {g['window_ns']}")
        if wall[g["gpu"], "idle"] != g["idle_ns"]:
            out.append(f"idle of {g['gpu']} is {g['idle_ns']}, its wall row {wall[g['gpu'], 'idle']}")
    for r in d["categories"]:
        row = "exposed " * r["category"].startswith("comm.") + r["category"]
        if r["gpu"] != ALL and r["wall_ns"] != wall[r["gpu"], row]:
            out.append(f"wall_ns of {r['category']} on {r['gpu']} is {r['wall_ns']}, its row {wall[r['gpu'], row]}")
    return out


def _shares_are_quotients(d: dict[str, Any]) -> list[str]:
    kernel_ns = {g["gpu"]: g["kernel_ns"] for g in d["gpus"]}
    window_ns = {g["gpu"]: g["window_ns"] for g in d["gpus"]}
    kernel_ns[ALL], window_ns[ALL] = sum(kernel_ns.values()), sum(window_ns.values())
    out = []
    for part, share, ns, whole in (
        ("categories", "kernel_share", "kernel_ns", kernel_ns),
        ("families", "kernel_share", "kernel_ns", kernel_ns),
        ("categories", "wall_share", "wall_ns", window_ns),
        ("wall", "wall_share", "wall_ns", window_ns),
    ):
        for r in d[part]:
            want = r[ns] / whole[r["gpu"]] if whole[r["gpu"]] else 0.0
            if not isinstance(r[share], float | int) or not abs(r[share] - want) <= SHARE_TOLERANCE:
                out.append(f"{share} in {part} on {r['gpu']}: {r[share]}, not {want}")
    return out


def _all_is_the_sum(d: dict[str, Any]) -> list[str]:
    out = []
    for part, name, keys in (
        ("categories", "category", ("kernel_count", "kernel_ns", "busy_ns", "wall_ns")),
        ("families", "family", ("kernel_count", "kernel_ns")),
        ("wall", "row", ("wall_ns",)),
    ):
        rows = d[part]
        if part != "categories" and not any(r["gpu"] == ALL for r in rows):
            continue
        for key in keys:
            every, single = Counter[str](), Counter[str]()
            for r in rows:
                (every if r["gpu"] == ALL else single)[r[name]] += r[key]
            if +every != +single:
                out.append(f"{key} in {part}: all {dict(every)} is not the sum over GPUs {dict(single)}")
    return out


def _keys_are_unique(d: dict[str, Any]) -> list[str]:
    keys = {
        "gpus": ("gpu",),
        "categories": ("gpu", "category"),
        "families": ("gpu", "category", "family"),
        "wall": ("gpu", "row"),
        "kernels": ("gpu", "name"),
        "ranges": ("gpu", "report", "process", "kind", "via", "path", "domain", "category"),
    }
    out = []
    for part, names in keys.items():
        seen = Counter(repr([r[n] for n in names]) for r in d[part])
        out += [f"{part} has {count} rows for {key}" for key, count in seen.items() if count > 1]
    return out


def _figures_are_counts(d: dict[str, Any]) -> list[str]:
    """Every ns and every count is an integer that is not negative; averages need not be whole."""
    out = []
    for part in ("gpus", "categories", "families", "wall", "ranges", "kernels"):
        for r in d[part]:
            for key, value in r.items():
                whole = isinstance(value, int) and not isinstance(value, bool) and value >= 0
                if key.endswith(("_ns", "_count")) and not whole and not key.startswith(AVERAGES):
                    out.append(f"{key} in {part} is {value!r}")
    return out


def _warnings_are_well_formed(d: dict[str, Any]) -> list[str]:
    out = [
        f"{w['code']} has level {w['level']!r}" for w in d["warnings"] if w["level"] not in ("info", "warning", "error")
    ]
    out += [f"{w['code']} has no message" for w in d["warnings"] if not w["message"]]
    levels = [
        ("error", "warning", "info").index(w["level"])
        for w in d["warnings"]
        if w["level"] in ("error", "warning", "info")
    ]
    if "error" in [w["level"] for w in d["warnings"]] and levels[0] != 0:
        out.append("an error does not stand first among the warnings")
    return out
