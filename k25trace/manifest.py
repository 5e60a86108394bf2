"""The manifest beside a report: how it was captured, without the environment and without secrets."""

import hashlib
import json
import platform
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

SCHEMA = "k25trace.capture/1"

ALLOWED_VARIABLES = (
    re.compile(r"NCCL_[A-Z0-9_]+"),
    re.compile(r"TORCH_NCCL_[A-Z0-9_]+"),
    re.compile(r"VLLM_[A-Z0-9_]+"),
    re.compile(r"CUDA_VISIBLE_DEVICES|CUDA_DEVICE_MAX_CONNECTIONS"),
)
"""Names of environment variables that comparisons need; no other one is written."""

ALLOWED_VALUE = re.compile(r"[\w.,:+-]{0,64}", re.ASCII)

_WORDS_OF_SECRETS = (
    r"(?:api[-_]?key|access[-_]?key|secret[-_]?key|private[-_]?key|auth[-_]?key|hf[-_]?key|token|secret|passw(?:or)?d|"
    r"passphrase|pwd|credentials?|authorization|cookie|apikey|auth)"
)
_SECRET_NAME = re.compile(rf"(?:^|[-_]){_WORDS_OF_SECRETS}$|(?:^|[-_])key$", re.IGNORECASE)
_OPTION_WITHOUT_VALUE = re.compile(r"--?[A-Za-z][\w-]*")
_VALUE = r"\"[^\"]*\"|'[^']*'|(?:Bearer|Basic|Token)\s+\S+|[^\s,;&\"']+"
_ASSIGNED = re.compile(rf"(?P<name>-{{0,2}}[A-Za-z_][\w.-]*)(?P<sign>[\"']?\s*[=:]\s*)(?P<value>{_VALUE})")
_SPACED = re.compile(r"(?P<name>--?[A-Za-z][\w-]*)(?P<sign>\s+)(?P<value>\"[^\"]*\"|'[^']*'|[^\s,;&\"'-][^\s,;&\"']*)")
_CREDENTIAL = re.compile(
    r"\bhf_[A-Za-z0-9]{8,}|\bsk-[\w-]{8,}|\bgh[pousr]_\w{16,}|\bgithub_pat_\w{16,}|\bglpat-[\w-]{8,}|\bxox[abpr]-[\w-]{8,}"
    r"|\bnvapi-[\w-]{8,}|\bAKIA[A-Z0-9]{12,}|\bAIza[\w-]{20,}|\beyJ[\w-]{8,}\.[\w-]+(?:\.[\w-]+)?"
    r"|(?<=[Bb]earer )\S+|(?<=://)[^/\s:@]*:[^/\s@]+(?=@)"
)
MASK = "***"


def allowed_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that may be written, sorted: named on the allow-list, with a short plain value."""
    return {
        name: value
        for name, value in sorted(environment.items())
        if any(pattern.fullmatch(name) for pattern in ALLOWED_VARIABLES)
        and not is_secret_name(name)
        and ALLOWED_VALUE.fullmatch(value)
        and not _CREDENTIAL.search(value)
    }


def is_secret_name(name: str) -> bool:
    """Whether a name is that of a secret: ``--api-key`` and ``HF_TOKEN`` are, ``--max-tokens`` is not."""
    return _SECRET_NAME.search(name.lstrip("-")) is not None


def masked(argv: Iterable[str]) -> list[str]:
    """Return a command line with what looks like a secret replaced by ``***``.

    Values of options and variables with a secret's name, credentials of known forms, passwords in URLs;
    also inside an argument that is itself a command.
    """
    shown: list[str] = []
    hide_next = False
    for argument in argv:
        if hide_next and not argument.startswith("--"):
            shown.append(MASK)
            hide_next = False
            continue
        hide_next = bool(_OPTION_WITHOUT_VALUE.fullmatch(argument)) and is_secret_name(argument)
        text = _ASSIGNED.sub(_hidden, argument)
        shown.append(_CREDENTIAL.sub(MASK, _SPACED.sub(_hidden, text)))
    return shown


def _hidden(found: re.Match[str]) -> str:
    if not is_secret_name(found["name"]):
        # `--env-var=A=B,HF_TOKEN=x`: the value may be assignments itself.
        inner = _ASSIGNED.sub(_hidden, found["value"]) if "=" in found["value"] else found["value"]
        return f"{found['name']}{found['sign']}{inner}"
    return f"{found['name']}{found['sign']}{MASK}"


def machine() -> dict[str, str]:
    """Return what runs here, without naming the machine."""
    return {
        "system": platform.system(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "libc": " ".join(platform.libc_ver()).strip(),
        "python": platform.python_version(),
    }


def file_facts(paths: Iterable[Path]) -> list[dict[str, Any]]:
    """Return name, size and SHA-256 of files that are there."""
    return [
        {"name": path.name, "bytes": path.stat().st_size, "sha256": _digest(path)} for path in paths if path.is_file()
    ]


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_manifest(path: Path, content: Mapping[str, Any]) -> None:
    """Write a manifest to a path that is renamed afterwards."""
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def is_of_a_capture_without_files(path: Path) -> bool:
    """Whether a file is the manifest of a capture that left nothing else: nothing is lost with it."""
    try:
        content: object = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    said = cast("dict[str, object]", content) if isinstance(content, dict) else {}
    return said.get("schema") == SCHEMA and said.get("files") == []


def shown(argv: Sequence[str]) -> list[str]:
    """Return a masked command line whose text can be written as UTF-8, whatever bytes it holds."""
    encoding = sys.getfilesystemencoding()
    return [a.encode(encoding, "surrogateescape").decode("utf-8", "replace") for a in masked(argv)]
