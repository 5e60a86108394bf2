"""A web server for one reader on this machine: loopback only, an address that cannot be guessed, no other name.

Pages of other sites can make a browser send requests to this machine. They cannot know the path, which is random; and
a name of theirs that leads here is refused, because the Host header has to be the address that was printed.
"""

import secrets
import socket
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from werkzeug.exceptions import BadRequest, Forbidden, HTTPException, InternalServerError, NotFound
from werkzeug.serving import BaseWSGIServer, WSGIRequestHandler, make_server

LOOPBACK = "127.0.0.1"
_WAITING = 128
_MOST_BYTES = 1 << 20
"""What a page of ours sends is far shorter."""

_HEADERS = {
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline';"
        " img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self'; frame-ancestors 'none'"
    ),
}


def token() -> str:
    """Return the secret part of an address: 128 random bits."""
    return secrets.token_urlsafe(16)


@dataclass(frozen=True)
class Served:
    """A server that is bound and not yet running."""

    server: BaseWSGIServer
    address: str

    def run(self) -> None:
        """Answer requests until the process is interrupted or `stop` is called."""
        self.server.serve_forever()

    def stop(self) -> None:
        """End `run`, from another thread."""
        self.server.shutdown()
        self.server.server_close()


class _Quiet(WSGIRequestHandler):
    def log(self, type: str, message: str, *args: Any) -> None:  # noqa: A002, ANN401 - Werkzeug's names
        """Say nothing of requests: their paths hold the secret."""


def bind(app: Any, secret: str, port: int = 0) -> Served:  # noqa: ANN401 - a Flask application
    """Bind an application to a free port of the loopback address, and let it answer nobody else.

    Parameters
    ----------
    app
        A Flask application, all of whose addresses begin with ``/SECRET/``.
    port
        The port; 0: a free one.

    Raises
    ------
    OSError
        The port is taken, or not ours to use.
    """
    # Werkzeug would print its own words about a port that is taken, and end the process.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((LOOPBACK, port))
        listening.listen(_WAITING)
        server = make_server(LOOPBACK, port, app, threaded=True, request_handler=_Quiet, fd=listening.fileno())
    allowed = {f"{name}:{server.port}" for name in (LOOPBACK, "localhost")}
    app.config["MAX_CONTENT_LENGTH"] = _MOST_BYTES
    app.before_request(_guard(allowed))
    app.after_request(_with_headers)
    app.register_error_handler(Exception, _refusal)
    return Served(server, f"http://{LOOPBACK}:{server.port}/{secret}/")


def _guard(allowed: set[str]) -> Callable[[], None]:
    from flask import request  # noqa: PLC0415 - Werkzeug alone is needed to bind

    def guard() -> None:
        origin = request.headers.get("Origin")
        if request.host not in allowed or (origin is not None and origin.removeprefix("http://") not in allowed):
            raise Forbidden

    return guard


def _refusal(error: Exception) -> Any:  # noqa: ANN401 - what Flask takes for a response
    """Answer a request that went wrong, and say nothing of it, unless this package is at fault.

    A page of ours sends no request that Dash cannot read: what fails there, outside of this package, was made by hand.
    """
    if isinstance(error, HTTPException):
        return error
    if any(
        frame.f_globals.get("__name__", "").startswith("k25trace")
        for frame, _ in traceback.walk_tb(error.__traceback__)
    ):
        # Not by the log of Flask, which names the path of the request, and with it the secret.
        traceback.print_exception(error, file=sys.stderr)
        return InternalServerError()
    from flask import request  # noqa: PLC0415 - Werkzeug alone is needed to bind

    return BadRequest() if request.method == "POST" else NotFound()


def _with_headers(response: Any) -> Any:  # noqa: ANN401 - a Flask response
    response.headers.update(_HEADERS)
    return response
