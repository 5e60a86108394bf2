"""Perfetto's own format: a protobuf that ui.perfetto.dev opens (needs the extra ``perfetto``)."""

from importlib import import_module
from typing import IO, Any

from k25trace.errors import K25TraceError
from k25trace.perfetto.events import Events, Slice, Track

_SEQUENCE = 1
_CLEARED, _NEEDS = 1, 2  # SEQ_INCREMENTAL_STATE_CLEARED, SEQ_NEEDS_INCREMENTAL_STATE
_BATCH = 4_000
"""Packets that are in memory at once."""


def write(events: Events, out: IO[bytes]) -> None:
    """Write a trace.

    Raises
    ------
    K25TraceError
        The package ``perfetto`` is not installed.
    """
    _Writer(out).write(events)


class _Writer:
    def __init__(self, out: IO[bytes]) -> None:
        try:
            schema = import_module("perfetto.protos.perfetto.trace.perfetto_trace_pb2")  # an extra
        except ImportError:
            raise K25TraceError(
                "Perfetto's format needs the package perfetto", "pip install 'k25trace[perfetto]'"
            ) from None
        self._schema: Any = schema
        self._out = out
        self._trace = self._schema.Trace()
        self._packets = 0
        self._names: dict[str, int] = {}
        self._categories: dict[str, int] = {}
        self._arguments: dict[str, int] = {}
        self._strings: dict[str, int] = {}

    def write(self, events: Events) -> None:
        first = self._packet()
        first.sequence_flags = _CLEARED | _NEEDS
        for track in events.tracks:
            self._describe(track)
        known = {track.number for track in events.tracks}
        kinds = self._schema.TrackEvent
        for track, steps in events.steps():
            if track.number not in known:
                self._describe(track)
            for at, what in steps:
                packet = self._packet(at)
                event = packet.track_event
                event.track_uuid = track.number
                if what is None:
                    event.type = kinds.TYPE_SLICE_END
                else:
                    event.type = kinds.TYPE_SLICE_BEGIN
                    self._begin(packet, event, what)
        for number, at, value in events.counters():
            event = self._packet(at).track_event
            event.track_uuid, event.type, event.counter_value = number, kinds.TYPE_COUNTER, value
        self._flush()

    def _describe(self, track: Track) -> None:
        described = self._packet().track_descriptor
        described.uuid = track.number
        if track.parent is not None:
            described.parent_uuid = track.parent
        if track.tid is not None:
            described.thread.pid, described.thread.tid = track.pid or 0, track.tid
            described.thread.thread_name = _utf8(track.name)
        elif track.pid is not None and track.parent is None:
            described.process.pid, described.process.process_name = track.pid, _utf8(track.name)
        else:
            described.name = _utf8(track.name)
        if track.is_counter:
            described.counter.unit = self._schema.CounterDescriptor.UNIT_COUNT

    def _begin(self, packet: Any, event: Any, what: Slice) -> None:  # noqa: ANN401 - messages of protobuf
        event.name_iid = self._id(self._names, what.name, packet, "event_names", "name")
        event.category_iids.append(self._id(self._categories, what.category, packet, "event_categories", "name"))
        for name, value in what.arguments.items():
            argument = event.debug_annotations.add()
            argument.name_iid = self._id(self._arguments, name, packet, "debug_annotation_names", "name")
            if isinstance(value, int):
                argument.int_value = value
            else:
                argument.string_value_iid = self._id(
                    self._strings, value, packet, "debug_annotation_string_values", "str"
                )
        if what.starts_flow is not None:
            event.flow_ids.append(what.starts_flow)
        if what.ends_flow is not None:
            event.terminating_flow_ids.append(what.ends_flow)

    def _id(self, known: dict[str, int], text: str, packet: Any, where: str, key: str) -> int:  # noqa: ANN401
        """Return the number of a text, telling it in the packet that uses it first."""
        number = known.get(text)
        if number is None:
            number = known[text] = len(known) + 1
            entry = getattr(packet.interned_data, where).add()
            entry.iid = number
            setattr(entry, key, _utf8(text).encode() if key == "str" else _utf8(text))
        return number

    def _packet(self, at: int | None = None) -> Any:  # noqa: ANN401 - a message of protobuf
        if self._packets == _BATCH:
            self._flush()
        self._packets += 1
        packet = self._trace.packet.add()
        packet.trusted_packet_sequence_id = _SEQUENCE
        if at is not None:
            packet.timestamp = at
            packet.sequence_flags = _NEEDS
        return packet

    def _flush(self) -> None:
        self._out.write(self._trace.SerializeToString())
        self._trace, self._packets = self._schema.Trace(), 0


def _utf8(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")
