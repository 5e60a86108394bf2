"""One spelling for a kernel's name, whoever printed it, and the parts of it that rules look at.

CUPTI, nsys, nvprof and the mangled symbol spell one kernel in different ways. `normalise` drops what they
disagree about and no rule needs (return type, parameter list, suffixes of literals) and writes the rest in
one way. Mangled symbols are not demangled in full but *read*: their identifiers and literals, in order, which
also works for a symbol that was cut off (docs/decisions/0007-demangling.md).
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

MAX_LENGTH = 20_000
"""Characters of a name that are looked at; the longest names of real kernels have about 12,000."""

MAX_PATH = 800
"""Characters of the path that are looked at: a bound on what a regular expression can cost."""

_BUILTIN_TYPES = {
    "a": "signed char",
    "b": "bool",
    "c": "char",
    "d": "double",
    "f": "float",
    "h": "unsigned char",
    "i": "int",
    "j": "unsigned int",
    "l": "long",
    "m": "unsigned long",
    "s": "short",
    "t": "unsigned short",
    "x": "long long",
    "y": "unsigned long long",
}
_ANONYMOUS = "(anonymous namespace)"
_SCAN = re.compile(r"\(anonymous namespace\)|->|operator\(\)|[<>(){}\[\] ]")
_CLOSES = {">": "<", ")": "(", "}": "{", "]": "["}
_RETURN_TYPES = ("void ", "static ", "__global__ ", "std::enable_if", "bool ", "int ", "float ", "auto ")

_SPACE = re.compile(r"\s+")
_SPACE_BEFORE = re.compile(r" +(?=[>&*,)])")
_CAST = re.compile(r"\((?:unsigned |signed )?(?:int|long long|long|short|char)\)(?=-?\d)|\(unsigned\)(?=-?\d)")
_NVPROF = re.compile(r"\b(?:unsigned )?(?:int|long|short|char)=(?=-?\d)")
_BOOL = re.compile(r"(?:\(bool\)|\bbool=)([01])\b")
_SUFFIX = re.compile(r"\b(\d+)(?:ull|ul|ll|u|l)\b")
_LAMBDA_NSYS = re.compile(r"\[lambda\(([^()\[\]]*)\) ?\(instance (\d+)\)\]")
_LAMBDA_LLVM = re.compile(r"'lambda\d*'\(")
_ELLIPSIS = re.compile(r"[\s.…]+$")

_MANGLED = re.compile(
    r"(?P<std>St)"
    r"|(?P<skip>S[0-9A-Z]*_|T[0-9]*_|A[0-9]+_|Dv[0-9]+_|E[0-9]*_)"
    r"|L(?P<type>[a-z])(?P<value>n?[0-9]+)E"
    r"|(?P<linkage>L)"
    r"|(?P<length>[0-9]+)"
    r"|(?P<lambda>Ul[a-z]?)"
    r"|(?P<open>[IJ])"
    r"|(?P<end>E)"
    r"|.",
    re.DOTALL,
)
_IDENTIFIER = re.compile(r"[A-Za-z_$][\w$.]*\Z")
_SYMBOL = re.compile(r"_Z(?=[NLS0-9])")
_PREFIXES = re.compile(r"(?:_Z)+")


@dataclass(frozen=True, slots=True)
class KernelName:
    """A kernel's name in the one spelling that rules match.

    Parameters
    ----------
    name
        Qualified name with its template arguments; no return type, no parameters.
    path
        The qualified name without template arguments and anonymous namespaces.
    function
        The last part of `path`.
    """

    name: str
    path: str
    function: str


def kernel_name(raw: str) -> KernelName:
    """Name, path and function of a kernel, from any of the spellings that tools print.

    Parameters
    ----------
    raw
        The name as printed: demangled, mangled, short, or truncated. Anything is accepted.

    Returns
    -------
    KernelName
        Equal for all spellings of one kernel as far as they carry the same information.

    Examples
    --------
    >>> kernel_name("void at::native::<unnamed>::f<(int)4, bool=1>(T1 *, int)")
    KernelName(name='at::native::(anonymous namespace)::f<4, true>', path='at::native::f', function='f')
    """
    name = normalise(raw)
    path = name[:MAX_PATH].partition("<")[0].replace(_ANONYMOUS + "::", "")
    return KernelName(name, path, path.rpartition("::")[2])


def normalise(raw: str) -> str:
    """Kernel name without return type and parameters, spelled in one way.

    Notes
    -----
    ``(int)4``, ``int=4`` and ``4u`` become ``4``; ``(bool)1`` becomes ``true``; ``<unnamed>`` becomes
    ``(anonymous namespace)``; ``[lambda(T) (instance 1)]`` becomes ``{lambda(T)#1}``; ``at::detail::Array``
    becomes ``std::array``; spaces before ``> & * , )`` and marks of truncation go. Of a mangled symbol, the
    qualified function name and then, in angle brackets, the identifiers and literals that follow are given.
    Applying it twice changes nothing. Only the first `MAX_LENGTH` characters are read.
    """
    text = raw[:MAX_LENGTH]
    while True:
        once = _once(text)
        if once == text:
            return once
        text = once


def _once(text: str) -> str:
    text = _ELLIPSIS.sub("", _SPACE.sub(" ", text)).strip()
    if text.startswith("_Z"):
        return _read_symbol(text)
    if "unnamed>" in text:
        text = text.replace("<unnamed>", _ANONYMOUS)
    if "`anonymous" in text:
        text = text.replace("`anonymous namespace'", _ANONYMOUS)
    if "operator ()" in text:
        text = text.replace("operator ()", "operator()")
    text = _head(text)
    if "lambda" in text:
        text = _LAMBDA_LLVM.sub("{lambda(", _LAMBDA_NSYS.sub(r"{lambda(\1)#\2}", text))
    if "(" in text:
        text = _BOOL.sub(lambda found: "true" if found[1] == "1" else "false", _CAST.sub("", text))
    if "=" in text:
        text = _NVPROF.sub("", text)
        text = _BOOL.sub(lambda found: "true" if found[1] == "1" else "false", text)
    if "at::detail::Array<" in text:
        text = text.replace("at::detail::Array<", "std::array<")
    return _SUFFIX.sub(r"\1", _SPACE_BEFORE.sub("", text))


def _head(text: str) -> str:
    """Return the qualified name with template arguments: between the return type and the parameters."""
    stack: list[str] = []
    start, returns = 0, text.startswith(_RETURN_TYPES)
    end = len(text)
    for found in _SCAN.finditer(text):
        sign = found[0]
        if sign in "<({[":
            if sign == "(" and not stack:
                end = found.start()
                break
            stack.append(sign)
        elif sign == " ":
            if returns and not stack:
                start = found.end()
        elif sign in _CLOSES and stack and stack[-1] == _CLOSES[sign]:
            stack.pop()
    return text[start:end].strip() or text


def _read_symbol(symbol: str) -> str:
    """Return the qualified name, then identifiers and literals, of an Itanium symbol that may be cut off."""
    match = _SYMBOL.match(symbol)
    if match is None:
        return _PREFIXES.sub("", symbol, count=1)
    nested = symbol.startswith("N", match.end())
    tokens = _tokens(symbol, match.end() + nested)
    path, templated = _path(tokens, nested=nested)
    words = _words(tokens) if templated else []
    return f"{path}<{', '.join(words)}>" if words else path


def _path(tokens: Iterator[tuple[str, str]], *, nested: bool) -> tuple[str, bool]:
    """Return the qualified name, and whether template arguments follow it."""
    names: list[str] = []
    for kind, text in tokens:
        if kind == "name":
            names.append(text)
            if not nested:
                return text, next(tokens, ("", ""))[0] == "open"
        elif names and kind in ("open", "end"):
            return "::".join(names), kind == "open"
    return "::".join(names), False


def _words(tokens: Iterator[tuple[str, str]]) -> list[str]:
    """Return identifiers, qualified where they follow each other, and literals."""
    words: list[str] = []
    qualified = False
    for kind, text in tokens:
        if kind == "name" and qualified and words:
            words[-1] += "::" + text
        elif kind in ("name", "std", "literal", "lambda"):
            words.append(text)
        if kind != "linkage":
            qualified = kind in ("name", "std")
    return words


def _tokens(symbol: str, position: int) -> Iterator[tuple[str, str]]:
    """Split a mangled name into its parts, each with its kind; what it does not know is a ``skip``."""
    while (found := _MANGLED.match(symbol, position)) is not None:
        position = found.end()
        kind = found.lastgroup or "skip"
        text = found[0]
        if kind == "length":
            text, position, kind = _identifier(symbol, text, position)
        elif kind == "value":
            kind, text = "literal", _literal(found["type"], found["value"])
        elif kind == "lambda":
            text = f"lambda({_BUILTIN_TYPES.get(text[2:], '')}"
        yield kind, text


def _identifier(symbol: str, digits: str, position: int) -> tuple[str, int, str]:
    """Return the identifier after its length, or the digits where they are the value of an enumerator."""
    text = symbol[position : position + int(digits[:6])]
    if not _IDENTIFIER.match(text) or (len(text) <= 3 and text.startswith("E") and text.isupper()):
        return digits, position, "literal"
    end = position + len(text)
    return (_ANONYMOUS if text.startswith("_GLOBAL__N_") else text), end, "name"


def _literal(kind: str, value: str) -> str:
    if kind == "b":
        return "true" if value == "1" else "false"
    return value.replace("n", "-")
