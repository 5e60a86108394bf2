"""One spelling for a kernel's name, whoever printed it, and the parts of it that rules look at.

CUPTI, nsys, nvprof and the mangled symbol spell one kernel in different ways. `normalise` drops what they
disagree about and no rule needs (return type, parameter list, suffixes of literals) and writes the rest in one
way. Mangled symbols are not demangled in full but *read*: their identifiers and literals, in order, which also
works for a symbol that was cut off (docs/decisions/0007-demangling.md).
"""

import re
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
_TEMPLATES = re.compile(r"<[^<>]*>")

_MANGLED = re.compile(
    r"(?P<substitution>S[0-9A-Z]*_|St|T[0-9]*_|A[0-9]+_|Dv[0-9]+_)"
    r"|(?P<closure>E[0-9]*_)"
    r"|L(?P<type>[a-z])(?P<value>n?[0-9]+)E"
    r"|(?P<length>[0-9]+)"
    r"|Ul(?P<parameter>[a-z]?)"
    r"|(?P<open>[IJ])"
    r"|(?P<skip>.)",
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
    ``(anonymous namespace)``; ``[lambda(T) (instance 1)]`` becomes ``{lambda(T)#1}``; ``at::detail::Array`` becomes
    ``std::array``; spaces before ``> & * , )`` and marks of truncation go. Of a mangled symbol, the qualified
    function name and then, in angle brackets, the identifiers and literals that follow are given. Applying
    it twice changes nothing. Only the first `MAX_LENGTH` characters are read.
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
    """The qualified name with template arguments: what stands before the parameters and after the return type."""
    stack: list[str] = []
    start, returns = 0, text.startswith(_RETURN_TYPES)
    end = len(text)
    for found in _SCAN.finditer(text):
        token = found[0]
        if token in "<({[":
            if token == "(" and not stack:
                end = found.start()
                break
            stack.append(token)
        elif token == " ":
            if returns and not stack:
                start = found.end()
        elif token in _CLOSES and stack and stack[-1] == _CLOSES[token]:
            stack.pop()
    if end == 0:
        return text
    return text[start:end].strip() or text


def _read_symbol(symbol: str) -> str:
    """Qualified name, then identifiers and literals, of an Itanium symbol that may be cut off."""
    match = _SYMBOL.match(symbol)
    if match is None:
        return _PREFIXES.sub("", symbol, count=1)
    names: list[str] = []
    words: list[str] = []
    joined = templated = False
    position = match.end()
    nested = symbol.startswith("N", position)
    position += nested
    in_path = True
    while position < len(symbol):
        found = _MANGLED.match(symbol, position)
        if found is None:
            break
        position = found.end()
        if not in_path and not words and not templated:
            templated = bool(found["open"])
            if not templated:
                break  # parameters of a function that is no template
            continue
        if found["length"]:
            identifier, position = _identifier(symbol, found["length"], position)
            if identifier.startswith("_GLOBAL__N_"):
                identifier = _ANONYMOUS
            if in_path:
                names.append(identifier)
                in_path = nested or not names
            elif joined and words:
                words[-1] += "::" + identifier
            else:
                words.append(identifier)
            joined = True
            continue
        if found["type"]:
            words.append(_literal(found["type"], found["value"]))
        elif found["parameter"] is not None:
            words.append(f"lambda({_BUILTIN_TYPES.get(found['parameter'], '')}")
        elif found["substitution"] == "St" and not in_path:
            words.append("std")
            joined = True
            continue
        if found["skip"] == "L" or (in_path and found["closure"]):
            continue  # internal linkage: part of the name that follows
        if in_path and names and found["skip"] == "E":
            break
        if in_path and names and found["open"]:
            in_path, templated = False, True
        joined = False
    head = "::".join(names)
    return f"{head}<{', '.join(words)}>" if words else head


def _identifier(symbol: str, digits: str, position: int) -> tuple[str, int]:
    """The identifier after its length; the digits themselves where they are the value of an enumerator."""
    text = symbol[position : position + int(digits[:6])]
    if not _IDENTIFIER.match(text) or (len(text) <= 3 and text.startswith("E") and text.isupper()):
        return digits, position
    return text, position + len(text)


def _literal(kind: str, value: str) -> str:
    if kind == "b":
        return "true" if value == "1" else "false"
    return value.replace("n", "-")
