"""The viewer as tests meet it: served inside of the test, or as the command that users type."""

from __future__ import annotations

import contextlib
import http.client
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from k25trace.pages.make import shown as read
from k25trace.view.model import Model
from k25trace.view.start import start

GOLDEN = Path(__file__).resolve().parents[1] / "golden"


def model_of(name: str) -> Model:
    found = read([GOLDEN / name])
    return Model(found.analysis, found.scene, found.answers)


@contextlib.contextmanager
def serving(model: Model) -> Iterator[str]:
    """The address of a viewer that this process serves."""
    served = start(model.scene, model.analysis, ["golden"], answers=model.answers)
    thread = threading.Thread(target=served.run, daemon=True)
    thread.start()
    yield served.address
    served.stop()
    thread.join()


@contextlib.contextmanager
def running(*options: str) -> Iterator[Running]:
    """``k25trace view`` as a process of its own."""
    command = [sys.executable, "-m", "k25trace", "view", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield Running(process, process.stdout.readline().strip())
        process.kill()


@dataclass(frozen=True)
class Running:
    process: subprocess.Popen[str]
    address: str

    def ended(self, sent: int) -> tuple[int, str]:
        """Its exit code after a signal, and all that it wrote to standard error."""
        self.process.send_signal(sent)
        _, said = self.process.communicate(timeout=30)
        return self.process.returncode, said


def ask(
    address: str, path: str | None = None, body: str | bytes | None = None, method: str = "", **headers: str
) -> tuple[int, str]:
    """Status and body of the answer to a request; a body is posted as JSON."""
    parts = urlsplit(address)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port)
    if body is not None:
        headers.setdefault("Content-Type", "application/json")
    verb = method or ("GET" if body is None else "POST")
    connection.request(verb, parts.path if path is None else path, body=body, headers=headers)
    answer = connection.getresponse()
    said = answer.read().decode("utf-8", "replace")
    connection.close()
    return answer.status, said


def status(address: str, path: str | None = None, **headers: str) -> int:
    return ask(address, path, **headers)[0]


def drawing(view: Any, hidden: Any = (), look: Any = None) -> str:
    """What a page of ours posts when the view changes."""
    return json.dumps(
        {
            "output": "..timeline.figure...said.children..",
            "outputs": [{"id": "timeline", "property": "figure"}, {"id": "said", "property": "children"}],
            "inputs": [
                {"id": "view", "property": "data", "value": view},
                {"id": "hidden", "property": "data", "value": hidden},
            ],
            "changedPropIds": ["view.data"],
            "state": [{"id": "look", "property": "data", "value": look or {"theme": "light", "narrow": False}}],
        }
    )


def content(tab: Any) -> str:
    """What a page of ours posts when another tab is chosen."""
    values = {"tab": tab, "look": {"theme": "light", "narrow": False}, "view": {"start": 0, "end": 9}, "hidden": []}
    given = [{"id": name, "property": "data", "value": value} for name, value in values.items()]
    return json.dumps(
        {
            "output": "content.children",
            "outputs": {"id": "content", "property": "children"},
            "inputs": given[:2],
            "changedPropIds": ["tab.data"],
            "state": given[2:],
        }
    )
