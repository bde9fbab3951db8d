"""Cache-Control on requests (RFC 9111), and what an answer says of the cache (RFC 9211)."""

from math import inf

import pytest

from forwardpass.core.pipeline import Pipeline, Signature, Version
from forwardpass.core.request import Answer, CacheUse, Request
from forwardpass.core.timeline import Timeline
from forwardpass.ingress.dialects.caching import apply_cache_control, cache_headers


def asked(value: bytes = b"") -> Request:
    request = Request("id", [], 1, Timeline())
    apply_cache_control(request, value)
    return request


def answered(use: CacheUse | None) -> Answer:
    return Answer(Version("p", 1, "d", "/", Pipeline(())), Signature((), ()), {}, 1, {}, [], cache=use)


@pytest.mark.parametrize(
    ("value", "age_s_max", "stores"),
    [
        (b"", inf, True),
        (b"no-cache", -1.0, True),
        (b"No-Cache, max-age=60", -1.0, True),
        (b"max-age=0", -1.0, True),
        (b"max-age=60", 60.0, True),
        (b'max-age="60"', 60.0, True),
        (b"max-age=99999999999999999999", inf, True),
        (b"max-age=soon", inf, True),
        (b"max-stale=5, only-if-cached, something=else", inf, True),
        (b"no-store", -1.0, False),
        (b" no-transform ,no-store", -1.0, False),
    ],
)
def test_a_caller_says_which_kept_answers_it_takes(value: bytes, age_s_max: float, stores: bool) -> None:
    request = asked(value)
    assert (request.age_s_max, request.stores) == (age_s_max, stores)


@pytest.mark.parametrize(
    ("use", "control", "status"),
    [
        (CacheUse(2, 0, 0, 12.7), b"", b"forwardpass; hit"),
        (CacheUse(1, 0, 1, 5.0), b"", b"forwardpass; fwd=partial"),
        (CacheUse(0, 0, 2), b"", b"forwardpass; fwd=miss"),
        (CacheUse(0, 2, 0), b"", b"forwardpass; fwd=miss; collapsed"),
        (CacheUse(1, 1, 0), b"", b"forwardpass; fwd=partial; collapsed"),
        (CacheUse(0, 0, 1), b"no-cache", b"forwardpass; fwd=request"),
    ],
)
def test_an_answer_says_whether_it_was_kept(use: CacheUse, control: bytes, status: bytes) -> None:
    headers = dict(cache_headers(answered(use), asked(control)))
    assert headers.pop(b"Cache-Status") == status
    assert headers == ({b"Age": b"12"} if status.endswith(b"hit") else {})


def test_a_version_that_keeps_nothing_says_nothing() -> None:
    assert cache_headers(answered(None), asked()) == []
