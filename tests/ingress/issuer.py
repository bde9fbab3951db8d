"""An issuer of tokens on loopback: keys of three kinds, their JWKS over HTTP, and tokens signed by pyjwt."""

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

ISSUER, AUDIENCE = "https://issuer.example", "forwardpass"
ALGORITHMS = {"RS256": "rsa", "PS512": "rsa", "ES256": "ec", "EdDSA": "okp"}


@dataclass
class Issuer:
    """``fetched`` are the paths that were asked for; while ``away`` the answer is 503."""

    url: str = ""
    away: bool = False
    documents: dict[str, Any] = field(default_factory=dict)
    fetched: list[str] = field(default_factory=list)

    @cached_property
    def keys(self) -> dict[str, Any]:
        return {
            "rsa": rsa.generate_private_key(65537, 2048),
            "ec": ec.generate_private_key(ec.SECP256R1()),
            "okp": ed25519.Ed25519PrivateKey.generate(),
        }

    def jwks(self, *ids: str) -> dict[str, Any]:
        kinds: dict[str, Any] = {
            "rsa": jwt.algorithms.RSAAlgorithm,
            "ec": jwt.algorithms.ECAlgorithm,
            "okp": jwt.algorithms.OKPAlgorithm,
        }
        listed = []
        for id in ids:
            public = kinds[id].to_jwk(self.keys[id].public_key(), as_dict=True)
            listed.append({**public, "kid": id, "use": "sig"})
        return {"keys": listed}

    def token(
        self, algorithm: str = "RS256", key: Any = None, headers: Mapping[str, Any] | None = None, **claims: Any
    ) -> str:
        """Right, but for the claims given; ... takes one out."""
        now_s = int(time.time())
        right = {"iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "exp": now_s + 300, "tenant": "acme", "scope": "infer"}
        given = {name: value for name, value in (right | claims).items() if value is not ...}
        id = ALGORITHMS.get(algorithm, "rsa")
        return jwt.encode(given, self.keys[id] if key is None else key, algorithm, {"kid": id, **(headers or {})})


@contextmanager
def issuing() -> Iterator[Issuer]:
    issuer = Issuer()

    class Answering(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            issuer.fetched.append(self.path)
            document = issuer.documents.get(self.path)
            self.send_response(503 if issuer.away else 200 if document is not None else 404)
            body = b"" if issuer.away or document is None else json.dumps(document).encode()
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    issuer.url = f"http://127.0.0.1:{server.server_port}"
    issuer.documents["/jwks"] = issuer.jwks("rsa", "ec", "okp")
    try:
        yield issuer
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
