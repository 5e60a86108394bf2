"""Words of others that may be repeated: plain language, and nothing that could be a name, a path or a secret."""

import re

MASK = "***"
"""Stands for what is not repeated."""

_EDGE = r"[\"'(\[]*"
_END = r"[\"')\].,:;?!%]*"
_WORD = re.compile(
    rf"{_EDGE}(?:[A-Za-z]?[a-z]{{0,17}}(?:[-/'][a-z]{{1,17}})?|[A-Z]{{2,10}}s?|\d{{1,9}}(?:[.,]\d{{1,6}})?"
    rf"|(?:cuda|cu|nvtx|nsys|Cuda|CUPTI|NVTX|cuGraph)[A-Za-z]{{0,30}}(?:\(\))?){_END}"
)
_SECRET_WORD = re.compile(
    r"(?:.*[-_])?(?:api|access|private|auth|hf)?[-_]?(?:key|token|secret|passw(?:or)?d|passphrase|pwd|credentials?"
    r"|authorization|bearer|cookie|user|username|host|hostname|login)s?[\"']?\s*[:=]?[\"']?",
    re.IGNORECASE,
)


def plain_words(text: str, limit: int) -> str:
    """Return what of a text is plain language, on one line; everything else is `MASK`.

    Diagnostics of nsys hold what it found on a machine: command lines, variables, paths, names of hosts. Repeated
    are words in lower case, capitalised or in capitals, whole numbers, and names of CUDA's and NVTX's functions.

    Parameters
    ----------
    text
        The text.
    limit
        Longest result; a longer one ends in an ellipsis.

    Examples
    --------
    >>> plain_words("Dropped 12 CUPTI events of /home/me/run.py HF_TOKEN=hf_abc, host gpu7.example", 100)
    'Dropped 12 CUPTI events of ***, host ***'
    """
    shown: list[str] = []
    secret = False
    for word in text[: 8 * limit].split():
        kept = word if _WORD.fullmatch(word) and not secret else MASK + word[len(word.rstrip(".,;:")) :]
        secret = _SECRET_WORD.fullmatch(word) is not None
        if kept.startswith(MASK) and shown and shown[-1] == MASK:
            shown.pop()
        shown.append(kept)
    line = " ".join(shown)
    return shortened(line, limit)


def shortened(text: str, limit: int) -> str:
    """Return a text, or its beginning and an ellipsis."""
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"
