"""Nanoseconds, bytes and shares ↔ text. The only module that divides by a thousand."""

import re

from k25trace.errors import UsageError

_NS_PER = {"ns": 1, "us": 1_000, "µs": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
_SHARE = re.compile(r"\s*\+?(\d+(?:\.\d*)?|\.\d+)\s*(%?)\s*", re.ASCII)
_QUANTITY = re.compile(r"\s*([+-]?\d+(?:\.\d*)?|[+-]?\.\d+)\s*([a-zµ]*)\s*")


def parse_ns(text: str) -> int:
    """Return the whole nanoseconds that a number with an optional unit names; without a unit it is nanoseconds.

    Examples
    --------
    >>> parse_ns("1.5ms"), parse_ns("20")
    (1500000, 20)
    """
    match = _QUANTITY.fullmatch(text)
    if match is None or (match[2] or "ns") not in _NS_PER:
        raise UsageError(f"{text!r} is no time", "a number with ns, us, ms or s, such as 1.5ms")
    sign = -1 if match[1].startswith("-") else 1
    whole, _, fraction = match[1].lstrip("+-").partition(".")
    scale = _NS_PER[match[2] or "ns"]
    # In integers: 1.2 s is 1,200,000,000 ns, not the nearest float to it.
    digits = fraction.rstrip("0")
    part, rest = divmod(int(digits or 0) * scale, 10 ** len(digits))
    if rest:
        raise UsageError(f"{text!r} is no whole number of nanoseconds")
    return sign * (int(whole or 0) * scale + part)


SCALES: tuple[tuple[str, int], ...] = (("ns", 1), ("µs", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000))
"""The units in which times are shown, with their nanoseconds."""


def time_scale(ns: int) -> tuple[str, int]:
    """Return the largest unit of which a duration has at least one, and its nanoseconds.

    Examples
    --------
    >>> time_scale(2_500_000), time_scale(0)
    (('ms', 1000000), ('ns', 1))
    """
    return next((unit, scale) for unit, scale in reversed(SCALES) if abs(ns) >= scale or scale == 1)


def format_ns(ns: float) -> str:
    """Return a duration with three significant digits and its unit.

    Examples
    --------
    >>> format_ns(950), format_ns(14_336), format_ns(-2_500_000), format_ns(61e9)
    ('950 ns', '14.3 µs', '-2.50 ms', '61.0 s')
    """
    magnitude = abs(ns)
    if magnitude < 999.5:
        return f"{ns:.0f} ns"
    for unit, scale in (("µs", 1e3), ("ms", 1e6), ("s", 1e9)):
        value = ns / scale
        if abs(value) < 999.5 or unit == "s":
            digits = 2 if abs(value) < 9.995 else 1 if abs(value) < 99.95 else 0
            return f"{value:,.{digits}f} {unit}"
    raise AssertionError


def format_instant(ns: int, resolution_ns: int) -> str:
    """Return an instant with as many digits as tell it from one that is ``resolution_ns`` away, and its unit.

    Reckoned in integers: instants can be nanoseconds since 1970.

    Examples
    --------
    >>> format_instant(73_512_344, 20), format_instant(73_512_344, 10_000_000), format_instant(-1_500, 1)
    ('73.51234 ms', '74 ms', '-1.500 µs')
    """
    unit, scale = time_scale(ns)
    most = len(str(scale)) - 1
    digits = next((d for d in range(most) if scale <= resolution_ns * 10**d), most)
    last = scale // 10**digits
    whole, rest = divmod((abs(ns) + last // 2) // last, 10**digits)
    sign = "-" if ns < 0 else ""
    return f"{sign}{whole:,}" + (f".{rest:0{digits}d}" if digits else "") + f" {unit}"


def format_share(share: float) -> str:
    """Return a share (0 to 1) as a percentage.

    Examples
    --------
    >>> format_share(0.5), format_share(0.00004), format_share(0)
    ('50.0 %', '<0.1 %', '0.0 %')
    """
    if 0 < share < 0.0005:
        return "<0.1 %"
    return f"{share * 100:.1f} %"


def format_count(count: int) -> str:
    """Return a count with thousands separated.

    Examples
    --------
    >>> format_count(1234567)
    '1,234,567'
    """
    return f"{count:,}"


def counted(count: int, what: str, several: str | None = None) -> str:
    """Return a count with its noun, in the plural where it is not one.

    Examples
    --------
    >>> counted(1, "kernel"), counted(0, "kernel"), counted(1200, "launch", "launches")
    ('1 kernel', '0 kernels', '1,200 launches')
    """
    return f"{format_count(count)} {what if count == 1 else several or what + 's'}"


def parse_share(text: str, option: str = "a share") -> float:
    """Return the share (0 to 1) that ``2%`` or ``0.02`` names.

    Examples
    --------
    >>> parse_share("2%"), parse_share("0.02")
    (0.02, 0.02)
    """
    match = _SHARE.fullmatch(text)
    value = float(match[1]) / (100 if match[2] else 1) if match else None
    if value is None or value > 1:
        raise UsageError(f"{option}: {text!r} is not between 0 and 1", "such as 2% or 0.02")
    return value
