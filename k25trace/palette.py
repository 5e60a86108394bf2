"""The colours of the product: one for each thing that takes time on a GPU, and those of light and dark pages.

Colours of one kind of work are of one hue: matrix products blue, casts ochre, attention green, communication red, what
works element by element purple. Any two differ by at least 9 (CIE 1976 L*a*b*) to the full eye and under protanopia,
deuteranopia and tritanopia, and each has a contrast of at least 3:1 against both backgrounds; texts have 4.5:1.
Twenty colours cannot be told apart by everybody at a glance: whatever is drawn with them also says its name.
"""

from dataclasses import dataclass

from k25trace import accounting
from k25trace.taxonomy import ALL_CATEGORIES, is_communication

RANGE, PROJECTED, STEP = "range", "range on GPU", "step"
WAIT, TRANSFER = "wait", "transfer"

COLOURS: dict[str, str] = {
    "gemm.marlin": "#1297fd",
    "gemm.dense": "#25629d",
    "gemm.grouped": "#7a95c0",
    "cast": "#b09126",
    "quant": "#a39355",
    "attention.mla": "#518033",
    "attention.other": "#2b6d33",
    "moe.routing": "#008497",
    "comm.allreduce": "#ff4d00",
    "comm.allgather": "#e40036",
    "comm.other": "#e57177",
    "norm": "#5e60fb",
    "activation": "#7e10ff",
    "rope": "#a66bcc",
    "kvcache": "#847e57",
    "sampling": "#619ea7",
    "memory": "#5655b8",
    "reduction": "#db56f3",
    "elementwise": "#785b00",
    "other": "#6b665d",
    "unclassified": "#595f68",
    accounting.OUTSIDE: "#8a8f98",
    accounting.OPAQUE: "#970ed8",
    accounting.MEMCPY: "#747e81",
    accounting.MEMSET: "#12a97b",
    accounting.IDLE: "#8d939c",
    RANGE: "#5d6f86",
    PROJECTED: "#7d8795",
    STEP: "#a05a2c",
    WAIT: "#d0006f",
}
"""Category, wall row that is no category, or kind of range → colour."""

CAUSE_COLOURS: dict[str, str] = {
    "host-bound": "#c65910",
    "launch-bound": "#8b544b",
    "sync": "#6939ef",
    "dependency": "#0da048",
    "graph-internal": "#b30fa8",
    "profiler": "#cf6ebb",
    "edge": "#a48488",
    "short": "#645b7b",
    "unknown": "#86936c",
}
"""Cause of a gap → colour: that of no category, no row and no range."""

COLLECTIVE_COLOURS: dict[str, str] = {WAIT: COLOURS[WAIT], TRANSFER: "#5a7ee2"}
"""Part of a collective → colour: a wait has the one that it has in a timeline."""

PARTS: tuple[str, ...] = (
    *ALL_CATEGORIES,
    accounting.OUTSIDE,
    accounting.OPAQUE,
    accounting.MEMCPY,
    accounting.MEMSET,
    accounting.IDLE,
    RANGE,
    PROJECTED,
    STEP,
    WAIT,
)
"""What a bar can be, the categories first and in their order; a ``part`` is an index into it."""


_PART_NAMES = {RANGE: "host range", accounting.IDLE: "gap", WAIT: "wait in a collective"}


def part_name(part: str) -> str:
    """Return what a timeline calls one of `PARTS`, in its legend and where a bar says what it is."""
    return _PART_NAMES.get(part, part)


def colour(name: str) -> str:
    """Return the colour of a category or wall row; an exposed row has that of its category."""
    return COLOURS[name.removeprefix("exposed ")]


def wall_row(category: str) -> str:
    """Return the wall row of a category."""
    return f"exposed {category}" if is_communication(category) else category


@dataclass(frozen=True)
class Theme:
    """The colours of a page."""

    background: str
    panel: str
    text: str
    muted: str
    line: str
    accent: str


LIGHT = Theme("#ffffff", "#f4f6f8", "#16191d", "#505863", "#d5dae1", "#0a58ca")
DARK = Theme("#0b0d11", "#171b21", "#e8eaed", "#a6aebb", "#343b46", "#7ab0ff")


def luminance(colour: str) -> float:
    """Return the relative luminance of a colour ``#rrggbb`` (WCAG 2.2)."""
    levels = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in levels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """Return the contrast ratio of two colours, 1 to 21 (WCAG 2.2)."""
    lower, higher = sorted((luminance(one), luminance(other)))
    return (higher + 0.05) / (lower + 0.05)


def mixed(one: str, other: str, share: float) -> str:
    """Return the colour that lies ``share`` of the way from one to another, each channel by itself."""
    channels = ((int(one[i : i + 2], 16), int(other[i : i + 2], 16)) for i in (1, 3, 5))
    return "#" + "".join(f"{round(a + (b - a) * share):02x}" for a, b in channels)


def ink(colour: str) -> str:
    """Return black or white: that in which text stands out more on a colour, by 4.5:1 at least."""
    return max("#000000", "#ffffff", key=lambda text: contrast(text, colour))
