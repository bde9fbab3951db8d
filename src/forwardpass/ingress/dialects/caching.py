"""What a caller says of kept answers (Cache-Control, RFC 9111) and is told of them (Age, and Cache-Status of RFC 9211)."""

from math import inf

from forwardpass.core.request import Answer, Request

AGE_DIGITS_MAX = 10


def apply_cache_control(request: Request, value: bytes) -> None:
    """no-store: no kept answer, and none is kept. no-cache: none, but a new one is. max-age: none that is older.

    Whatever else stands there, from proxies and browsers, has no effect here (RFC 9111 wants it so).
    """
    for directive in value.lower().split(b","):
        name, _, argument = directive.strip().partition(b"=")
        if name == b"no-store":
            leave_alone(request)
        elif name == b"no-cache":
            request.age_s_max = -1.0
        elif name == b"max-age":
            age = argument.strip(b'"')
            if age.isdigit():
                age_s = float(age) if len(age) <= AGE_DIGITS_MAX else inf
                request.age_s_max = min(request.age_s_max, age_s or -1.0)  # 0 is no-cache, as browsers mean it


def leave_alone(request: Request) -> None:
    """It is given no kept answer, and what is computed for it is not kept."""
    request.age_s_max, request.stores = -1.0, False


def cache_headers(answer: Answer, request: Request) -> list[tuple[bytes, bytes]]:
    """Nothing of a version that keeps no answers; Age only where nothing was computed for the answer."""
    use = answer.cache
    if use is None:
        return []
    if not use.miss and not use.joined:
        return [(b"Cache-Status", b"forwardpass; hit"), (b"Age", b"%d" % use.age_s_max)]
    why = b"request" if request.age_s_max < 0 else b"partial" if use.hit else b"miss"
    collapsed = b"" if use.miss else b"; collapsed"
    return [(b"Cache-Status", b"forwardpass; fwd=%b%b" % (why, collapsed))]
