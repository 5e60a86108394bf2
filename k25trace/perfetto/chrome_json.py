"""Chrome's trace event format: JSON that chrome://tracing, Perfetto and other viewers open."""

import json
from collections.abc import Iterator
from typing import IO

from k25trace.perfetto.events import Events, Slice, Track
from k25trace.units import SCALES

_NS_PER = dict(SCALES)["µs"]
_GPU_PROCESS = 1 << 30
"""Processes of the format that stand for GPUs are numbered from here: above every process of Linux."""


def write(events: Events, out: IO[bytes]) -> None:
    """Write a trace, an event a line."""
    out.write(b'{"displayTimeUnit":"ns","traceEvents":[')
    for number, event in enumerate(_events(events)):
        text = json.dumps(event, ensure_ascii=False, separators=(",", ":"))
        out.write((",\n" if number else "\n").encode() + text.encode("utf-8", "replace"))
    out.write(b"\n]}\n")


Event = dict[str, object]


def _events(events: Events) -> Iterator[Event]:
    tracks = {track.number: track for track in events.tracks}

    def root(track: Track) -> Track:
        while track.parent is not None:
            track = tracks[track.parent]
        return track

    def place(track: Track) -> Event:
        top = root(track)
        return {"pid": top.pid if top.pid is not None else _GPU_PROCESS + top.number, "tid": track.number}

    for track in events.tracks:
        if track.parent is None:
            yield {**place(track), "ph": "M", "name": "process_name", "args": {"name": track.name}}
    for track, steps in events.steps():
        at = place(track)
        above = tracks.get(track.parent or 0)
        prefix = f"{above.name}, " if above is not None and above.tid is not None else ""
        yield {**at, "ph": "M", "name": "thread_name", "args": {"name": prefix + track.name}}
        for instant, what in steps:
            moment: Event = {**at, "ts": instant / _NS_PER}
            if what is None:
                yield {**moment, "ph": "E"}
            else:
                yield {**moment, "ph": "B", "name": what.name, "cat": what.category, "args": what.arguments}
                yield from _flows(moment, what)
    for number, instant, value in events.counters():
        track = tracks[number]
        args = {"value": value}
        yield {**place(track), "ph": "C", "name": track.name, "ts": instant / _NS_PER, "args": args}


def _flows(moment: Event, what: Slice) -> Iterator[Event]:
    if what.starts_flow is not None:
        yield {**moment, "ph": "s", "id": what.starts_flow, "name": "launch", "cat": "launch"}
    if what.ends_flow is not None:
        yield {**moment, "ph": "f", "bp": "e", "id": what.ends_flow, "name": "launch", "cat": "launch"}
