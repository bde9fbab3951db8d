"""A front's server: ``HttpServer`` whose counts its owner sees at once."""

from collections import Counter

from forwardpass.core.clock import monotonic_s
from forwardpass.core.errors import Code
from forwardpass.ingress.fronts.board import Row
from forwardpass.ingress.fronts.link import Link
from forwardpass.ingress.fronts.wire import Opening
from forwardpass.ingress.http_server import HttpServer
from forwardpass.ingress.in_flight import BytesInFlight
from forwardpass.ingress.serving import FamilyOf
from forwardpass.ingress.tls import Certificates


class CountedServer(HttpServer):
    """Counts on from what others before it in this row had counted. Raises Misconfigured for unusable certificates."""

    def __init__(self, opening: Opening, link: Link, family_of: FamilyOf, in_flight: BytesInFlight, row: Row) -> None:
        self._row = row
        self._certificates = _certificates(opening)
        before = row.board.statistics(row.own)
        super().__init__(
            link.respond, family_of, opening.limits, monotonic_s,
            None if self._certificates is None else self._certificates.context,
            in_flight, link.screen, opening.origins,
        )  # fmt: skip
        self.begin = link.begin
        self.requests, self.cancelled = before.requests, before.cancelled
        self.refused = _Refused(row, before.refused)
        in_flight.join(row)
        self.connections.join(row)

    def renew(self) -> None:
        if self._certificates is not None:
            self._certificates.renew()

    @property
    def running(self) -> int:
        return self._running

    @running.setter
    def running(self, count: int) -> None:
        self._running = count
        self._row.tell_running(count)

    @property
    def requests(self) -> int:
        return self._requests

    @requests.setter
    def requests(self, count: int) -> None:
        self._requests = count
        self._row.tell_requests(count)

    @property
    def cancelled(self) -> int:
        return self._cancelled

    @cancelled.setter
    def cancelled(self, count: int) -> None:
        self._cancelled = count
        self._row.tell_cancelled(count)


class _Refused(Counter[Code]):
    def __init__(self, row: Row, before: dict[Code, int]) -> None:
        self._row = row
        super().__init__(before)

    def __setitem__(self, code: Code, count: int) -> None:
        super().__setitem__(code, count)
        self._row.tell_refused(code, count)


def _certificates(opening: Opening) -> Certificates | None:
    if opening.tls is None:
        return None
    certificate, key, client_ca = opening.tls
    return Certificates(certificate, key, monotonic_s, "http/1.1", client_ca)
