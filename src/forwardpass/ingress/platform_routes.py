"""Lines of the route table that the settings name: a platform says at which paths it asks its containers."""

import re

from forwardpass.core.errors import Code, Misconfigured, Problem
from forwardpass.ingress.route_table import routes_of
from forwardpass.ingress.routes import Match, Route, Table

_PATH = re.compile(r"(?:/[A-Za-z0-9._~:@!$&'()*+,;=-]+)+")
PATH_CHARACTERS_MAX = 256


def platform_routes(health: str, predict: str) -> tuple[Route, ...]:
    """A line for each path that is named; none for one at which the table answers just so.

    Raises Misconfigured for what is no path, and for one at which something else answers.
    """
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
    table = Table(routes_of("data"))
    problems: list[Problem] = []
    routes: list[Route] = []
    for path, line in lines:
        if not path:
            continue
        key = "data.health_route" if line.endpoint == "ping" else "data.predict_route"
        there = table.match(line.method, path)
        if not _PATH.fullmatch(path) or len(path) > PATH_CHARACTERS_MAX:
            allowed = f"a path such as /health, of at most {PATH_CHARACTERS_MAX} characters"
            problems.append(Problem("settings", key, f"found {path!r}", allowed))
        elif isinstance(there, Match) and there.route.endpoint == line.endpoint:
            continue
        elif there:
            answering = "something else answers there (forwardpass routes)"
            problems.append(Problem("settings", key, f"found {path!r}", f"another path: {answering}"))
        else:
            routes.append(line)
    if problems:
        raise Misconfigured(Code.SETTINGS_INVALID, tuple(problems))
    return tuple(routes)
