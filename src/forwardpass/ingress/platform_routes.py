"""Lines of the route table that the settings name: a platform says at which paths it asks its containers."""

import re

from forwardpass.core.errors import Code, Misconfigured, Problem
from forwardpass.ingress.route_table import routes_of
from forwardpass.ingress.routes import Route

_PATH = re.compile(r"(?:/[A-Za-z0-9._~:@!$&'()*+,;=-]+)+")
PATH_CHARACTERS_MAX = 256


def data_routes(health: str, predict: str) -> tuple[Route, ...]:
    """The data plane's routes over HTTP: a line for each path that is named, then those of the table it leaves.

    Raises Misconfigured for what is no path, for any of V2, and for one where the server's health is asked.
    """
    named = _named(health, predict)
    taken = {(route.method, route.pattern) for route in named}
    return (*named, *(route for route in routes_of("data") if (route.method, route.pattern) not in taken))


def _named(health: str, predict: str) -> list[Route]:
    lines = (
        (health, Route(b"GET", health, "ping", "open", "200 when ready (data.health_route)", family="mlflow")),
        (
            predict,
            Route(
                b"POST", predict, "invocations", "infer", "rows in any form of /invocations (data.predict_route)",
                family="mlflow", body="large",
            ),
        ),
    )  # fmt: skip
    problems: list[Problem] = []
    routes: list[Route] = []
    for path, line in lines:
        if not path:
            continue
        key = "data.health_route" if line.endpoint == "ping" else "data.predict_route"
        if not _PATH.fullmatch(path) or len(path) > PATH_CHARACTERS_MAX:
            allowed = f"a path such as /health, of at most {PATH_CHARACTERS_MAX} characters"
            problems.append(Problem("settings", key, f"found {path!r}", allowed))
        elif _is_kept(line):
            answering = "the protocol V2 or the server's health has this one (forwardpass routes)"
            problems.append(Problem("settings", key, f"found {path!r}", f"another path: {answering}"))
        else:
            routes.append(line)
    if problems:
        raise Misconfigured(Code.SETTINGS_INVALID, tuple(problems))
    return routes


def _is_kept(line: Route) -> bool:
    """Whether the path keeps the meaning it has: any of V2's, and the server's health where that is not asked for."""
    if line.pattern == "/v2" or line.pattern.startswith("/v2/"):
        return True
    healths = {route.pattern for route in routes_of("data") if route.endpoint == "ping"}
    return line.endpoint != "ping" and line.pattern in healths
