"""From a scene to a server that shows it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from k25trace.errors import K25TraceError
from k25trace.pages.why import NOT_ASKED, Why
from k25trace.results import Analysis
from k25trace.scene import Scene

if TYPE_CHECKING:
    from k25trace.view.serve import Served


def start(
    scene: Scene, analysis: Analysis, names: Sequence[str], *, answers: Why = NOT_ASKED, port: int = 0
) -> "Served":
    """Bind the viewer to a port of this machine; it runs when its ``run`` is called.

    Raises
    ------
    K25TraceError
        Dash is not installed, or the port is taken.
    """
    try:
        from k25trace.view import app, serve  # noqa: PLC0415 - an extra
        from k25trace.view.model import Model  # noqa: PLC0415
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in {"dash", "flask", "werkzeug"}:
            raise
        raise K25TraceError("the viewer needs Dash", "pip install 'k25trace[view]'") from None
    model = Model(analysis, scene, answers)
    _ = model.pyramid, model.overview()  # now, not at the first zoom
    secret = serve.token()
    made = app.make_app(model, secret, names)
    try:
        return serve.bind(made.server, secret, port)
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise K25TraceError(f"port {port} of {serve.LOOPBACK} cannot be used: {why}", "leave --port out") from None
