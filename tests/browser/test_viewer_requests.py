"""What the viewer answers to requests that no page of its own sends: one quiet refusal, whatever they hold."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from viewing import GOLDEN, Running, ask, content, drawing, model_of, running, serving

from k25trace.palette import DARK
from k25trace.view import app
from k25trace.view.components import TABS
from k25trace.view.model import Look, Model, asked_hidden, asked_look, asked_view

SMALL = "h200x1_toy_graph.sqlite"
ONLY = "Only this machine can open it, and only with this address. Ctrl-C ends it.\n"

# Every kind of thing that JSON can be, in each place where the page sends something.
ODD = (None, [], {}, "abc", "1", True, [[]], {"start": "abc", "end": 1}, {"start": None, "end": 1}, {"start": 5})
FAR = ("1e400", "-1e400", "5e30", "NaN", "1" + "0" * 400, "1" + "0" * 5000)


def bodies() -> list[str]:
    sound = drawing({"start": 1, "end": 9})
    found = [drawing(odd) for odd in ODD]
    found += [drawing({"start": 1, "end": 987_654_321}).replace("987654321", far) for far in FAR]
    found += [drawing({"start": 1, "end": 9}, hidden) for hidden in (None, {}, "x", [9999], [[]], [-1], ["0"])]
    found += [drawing({"start": 1, "end": 9}, [], look) for look in ([1], "dark", {"theme": "dark"}, {"narrow": True})]
    found += [content(tab) for tab in ("nonsense", None, ["overview"], {}, 7)]
    asked = {"tab": "kernels", "look": {"theme": "light", "narrow": False}, "find": "x"}
    for name, value in (("find", 7), ("find", ["x"]), ("tab", "steps"), ("tab", None), ("look", {})):
        given = [{"id": k, "property": "data", "value": v} for k, v in {**asked, name: value}.items()]
        found.append(
            json.dumps(
                {
                    "output": "named.children",
                    "outputs": {"id": "named", "property": "children"},
                    "inputs": given[2:],
                    "changedPropIds": ["find.value"],
                    "state": given[:2],
                }
            )
        )
    whole = json.loads(sound)
    for key in ("output", "outputs", "inputs", "state"):
        found += [json.dumps({**whole, key: odd}) for odd in (7, "x", ["x"], {"id": "x"}, [{"id": {}}])]
    found += ["", "{", "[]", "null", "5", '"x"', "{}", '{"output": "x", "inputs": []}', "[" * 100_000]
    return found


PATHS = (
    "_dash-component-suites/../../etc/passwd",
    "_dash-component-suites/dash/%2e%2e/%2e%2e/etc/passwd",
    "_dash-component-suites/os/path.py",
    "_dash-component-suites/dash/nothing.js",
    "_dash-component-suites/dash/%00",
    "_dash-component-suites/k25trace/view/app.py",
    "_dash-component-suites/dash/dcc/.v1m1.js",
    "assets/x.css",
)


@pytest.fixture(scope="module")
def viewer() -> Any:
    with running(str(GOLDEN / SMALL)) as found:
        yield found


@pytest.fixture(scope="module")
def model() -> Model:
    return model_of(SMALL)


def test_malformed_requests_are_refused_and_nothing_is_said_of_them(viewer: Running) -> None:
    there = urlsplit(viewer.address)
    update = there.path + "_dash-update-component"
    assert ask(viewer.address, update, drawing({"start": 1, "end": 9}))[0] == 200
    for tab in TABS:
        assert ask(viewer.address, update, content(tab))[0] == 200
    secret = there.path.strip("/")
    for body in bodies():
        status, said = ask(viewer.address, update, body)
        assert status == 400, body[:300]
        assert "Traceback" not in said
        assert secret not in said
    assert ask(viewer.address, update, b"x" * (1 << 21))[0] == 413
    assert ask(viewer.address, update, "x=1", **{"Content-Type": "application/x-www-form-urlencoded"})[0] == 415
    for path in PATHS:
        status, said = ask(viewer.address, there.path + path)
        assert status == 404, path
        assert secret not in said
    for method in ("PUT", "DELETE", "TRACE", "PATCH", "POST"):
        assert ask(viewer.address, method=method)[0] == 405
    for raw in (
        b"rubbish\r\n\r\n",
        f"GET {there.path} HTTP/1.1\r\nHost: a b:c\r\n\r\n".encode(),
        f"GET {there.path} HTTP/1.1\r\nHost: {there.netloc}\r\nContent-Length: abc\r\n\r\n".encode(),
        f"POST {update} HTTP/1.1\r\nHost: {there.netloc}\r\nContent-Type: application/json\r\n".encode()
        + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n",
        f"POST {update} HTTP/1.1\r\nHost: {there.netloc}\r\nContent-Length: 50\r\n\r\n{{".encode(),
    ):
        with socket.create_connection((there.hostname, there.port), timeout=10) as connection:
            connection.sendall(raw)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(1 << 16):
                pass
    assert ask(viewer.address)[0] == 200
    assert viewer.ended(signal.SIGINT) == (0, ONLY)


def test_a_fault_of_the_viewer_itself_is_told_without_the_secret(
    model: Model, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(app, "chapters_tab", broken)
    with serving(model) as address:
        path = urlsplit(address).path
        assert ask(address, path + "_dash-update-component", content("steps"))[0] == 500
        said = capfd.readouterr().err
    assert "ZeroDivisionError: a defect" in said
    assert path.strip("/") not in said


def test_a_port_that_is_taken_is_one_error(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        command = [sys.executable, "-m", "k25trace", "view", str(GOLDEN / SMALL), "--port", str(port)]
        ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert ended.returncode == 1
    assert ended.stdout == ""
    why = f"k25trace: port {port} of 127.0.0.1 cannot be used: address already in use"
    assert ended.stderr.splitlines() == [why, "  leave --port out"]


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(("start", "end", "theme", "narrow", "x")), inner, max_size=4)
        ),
    )
)
def test_what_is_asked_is_a_view_or_nothing(value: Any) -> None:
    view = asked_view(value)
    assert view is None or (view[0] <= view[1] and all(abs(end) <= 1 << 63 for end in view))
    assert asked_look(value) is None or value["theme"] in {"light", "dark"}
    hidden = asked_hidden(value, {0, 1, 5})
    assert hidden is None or hidden <= {0, 1, 5}


def test_what_a_page_asks_for_is_understood() -> None:
    assert asked_view({"start": 5.4, "end": 9.9}) == (5, 9)
    assert asked_view({"start": 9, "end": 5, "count": 3}) == (5, 9)
    assert asked_look({"theme": "dark", "narrow": True}) == Look(DARK, narrow=True)
    assert asked_hidden([1, 5, 1], {0, 1, 5}) == {1, 5}
    assert asked_hidden([], set()) == frozenset()


def test_any_view_is_answered(model: Model) -> None:
    for start, end in ((-(1 << 62), 1 << 62), (0, 0), (1 << 62, 1 << 62), (model.scene.end_ns, model.scene.end_ns)):
        figure, _ = model.view(start, end)
        first, last = figure["layout"]["xaxis2"]["range"]
        assert model.scene.start_ns <= first < last <= model.scene.end_ns
