"""Names as text for people: they come from traced programs and are hostile input."""

import unicodedata

_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\0": "\\0", "\x1b": "\\e"}


def printable(text: str, limit: int | None = None) -> str:
    r"""Return text on one line that cannot steer a terminal: control and formatting characters are escaped.

    Parameters
    ----------
    limit
        Longest result; a longer one keeps its beginning and end around an ellipsis.

    Examples
    --------
    >>> printable("a\nb\x1b[31m"), printable("abcdefghij", 5)
    ('a\\nb\\e[31m', 'abc…j')
    """
    if limit is not None and len(text) > 2 * limit:
        # Cut before escaping: a name of 100 kB need not be walked to show 80 characters of it.
        text = text[:limit] + "…" + text[-limit:]
    if not text.isprintable():
        text = "".join(c if _is_plain(c) else _SHORT.get(c) or f"\\u{ord(c):04x}" for c in text)
    if limit is not None and len(text) > limit:
        tail = (limit - 1) // 3
        text = text[: limit - 1 - tail] + "…" + text[len(text) - tail :]
    return text


def _is_plain(character: str) -> bool:
    return character in " …" or unicodedata.category(character)[0] not in "CZ"
