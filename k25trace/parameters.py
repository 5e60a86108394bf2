"""Values of a query's parameters: from what the user gave to what SQLite takes."""

import math
from collections.abc import Mapping

from k25trace.catalog import Column, Query
from k25trace.errors import UsageError
from k25trace.units import parse_ns

Given = str | int | float | None

_LEAST, _MOST = -(1 << 63), (1 << 63) - 1
"""SQLite's integers."""


def option(name: str) -> str:
    """Return the spelling of a parameter on the command line."""
    return f"--{name.replace('_', '-')}"


def bound(query: Query, values: Mapping[str, Given]) -> dict[str, Given]:
    """Return the value of every parameter of a query, NULL for those that are not given.

    Parameters
    ----------
    query
        The query.
    values
        Parameter → value, as text or as it is; times may have units (``1.5ms``).

    Raises
    ------
    UsageError
        A parameter that the query has not, or a value that is not of its type, or below its least one.
    """
    types = {param.name: param for param in query.params}
    found: dict[str, Given] = dict.fromkeys(types)
    for name, value in values.items():
        if name not in types:
            known = ", ".join(map(option, types)) or "none"
            raise UsageError(f"{query.name} has no parameter {option(name)}", f"its parameters: {known}")
        if value is not None:
            found[name] = _typed(types[name], value)
    return found


def _typed(param: Column, value: str | int | float) -> Given:
    try:
        number = _converted(param, value)
    except ValueError:
        raise UsageError(f"{option(param.name)} {value}: no {param.type}") from None
    except UsageError as error:
        raise UsageError(f"{option(param.name)}: {error.message}", error.hint) from None
    if isinstance(number, str):
        return number
    if not (math.isfinite(number) if isinstance(number, float) else _LEAST <= number <= _MOST):
        raise UsageError(f"{option(param.name)} {value}: more than 64 bits hold")
    if param.least is not None and number < param.least:
        raise UsageError(f"{option(param.name)} {value}: less than {param.least}")
    return number


def _converted(param: Column, value: str | int | float) -> str | int | float:
    if param.type == "TEXT":
        if not isinstance(value, str):
            raise ValueError
        value.encode()  # an argument that is no UTF-8 cannot be any text of a database
        return value
    if isinstance(value, str) and param.unit == "ns":
        return parse_ns(value)
    if param.type == "REAL":
        return float(value)
    number = int(value)
    if number != value and not isinstance(value, str):
        raise ValueError
    return number
