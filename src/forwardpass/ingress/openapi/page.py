"""The try-it page: a closed list of our own files, read once at start. Nothing of a request's path reaches the disk."""

from importlib.resources import files

ASSETS: dict[str, bytes] = {
    "try.css": b"text/css; charset=utf-8",
    "try.js": b"text/javascript; charset=utf-8",
    "form.js": b"text/javascript; charset=utf-8",
    "answer.js": b"text/javascript; charset=utf-8",
    "layout.js": b"text/javascript; charset=utf-8",
}
"""By name the media type of what the page loads."""
PAGE = "try.html"
HEADERS: tuple[tuple[bytes, bytes], ...] = (
    (
        b"Content-Security-Policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data: blob:; "
        b"media-src data: blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (b"X-Content-Type-Options", b"nosniff"),
    (b"Referrer-Policy", b"no-referrer"),
    (b"Cache-Control", b"no-cache"),
)
"""Nothing but these files runs in the page, and it talks to its own server only."""


def read() -> dict[str, bytes]:
    """The page and its assets, by name."""
    folder = files("forwardpass") / "web"
    return {name: (folder / name).read_bytes() for name in (PAGE, *ASSETS)}
