"""The route table's memory of paths."""

from forwardpass.ingress.route_table import routes_of
from forwardpass.ingress.routes import KNOWN_MAX, Match, Table


def test_a_path_is_remembered_however_many_others_were_asked_before() -> None:
    table = Table(routes_of("data"))
    for number in range(KNOWN_MAX + 1):
        table.match(b"GET", f"/v2/models/m{number}")
    first = table.match(b"GET", "/v2/models/late")
    assert isinstance(first, Match)
    assert table.match(b"GET", "/v2/models/late") is first
