"""The certificate that new connections get, read again when its files change and without a restart."""

import logging
import os
import ssl

from forwardpass.core.clock import Clock
from forwardpass.core.errors import Code, Misconfigured, Problem

CHECK_S = 5.0
"""How long after one look at the files a new connection makes for the next."""

log = logging.getLogger("forwardpass.ingress")


class Certificates:
    """``context`` is for a listener of one protocol (as ALPN names it): each handshake gets the newest pair that works.

    No connection, no look: the files are looked at when one comes, at most every CHECK_S, and by ``renew``. Clients
    may show a certificate that ``client_ca`` issued; with another one there is no handshake.
    """

    def __init__(
        self, certificate: str, key: str, clock: Clock, protocol: str = "http/1.1", client_ca: str = ""
    ) -> None:
        """Raises Misconfigured settings_invalid when the files cannot be used."""
        self._files = (certificate, key, client_ca) if client_ca else (certificate, key)
        self._clock = clock
        self._protocol = protocol
        self._seen = self._look()
        self._looked_s = clock()
        try:
            self.context, self._newest = self._read(), self._read()
        except (OSError, ValueError) as error:
            keys = "data.tls_certificate" + (", auth.client_ca" if client_ca else "")
            problem = Problem("settings", keys, f"cannot be used: {error}", "a PEM certificate and its key")
            raise Misconfigured(Code.SETTINGS_INVALID, (problem,)) from error
        self.context.sni_callback = self._choose

    def renew(self) -> None:
        """Look at the files now. A new pair that cannot be used is logged, once, and the old one stays."""
        self._looked_s = self._clock()
        seen = self._look()
        if seen == self._seen:
            return
        self._seen = seen
        try:
            self._newest = self._read()
        except (OSError, ValueError) as error:
            event = {"setting": "data.tls_certificate", "protocol": self._protocol, "detail": str(error)}
            log.error("the new certificate cannot be used; the old one stays", extra={"event": event})
        else:
            event = {"setting": "data.tls_certificate", "protocol": self._protocol}
            log.info("the certificate was read again", extra={"event": event})

    def _choose(self, connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        """What the ssl module calls in every handshake."""
        if self._clock() - self._looked_s >= CHECK_S:
            self.renew()
        connection.context = self._newest

    def _look(self) -> object:
        """Differs once a file is another one. That one is not there is a state like others."""
        try:
            found = [os.stat(file) for file in self._files]
        except OSError as error:
            return error.errno
        return [(status.st_ino, status.st_size, status.st_mtime_ns) for status in found]

    def _read(self) -> ssl.SSLContext:
        """Raises OSError (ssl.SSLError is one) or ValueError."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols([self._protocol])
        certificate, key, *authorities = self._files
        for authority in authorities:
            context.verify_mode = ssl.CERT_OPTIONAL
            context.load_verify_locations(authority)
            # A session that is resumed is not verified again, though the authority may be another one by now.
            context.num_tickets = 0
            context.options |= ssl.OP_NO_TICKET
        context.load_cert_chain(certificate, key, password="")  # a key with a passphrase is refused, not asked for
        return context
