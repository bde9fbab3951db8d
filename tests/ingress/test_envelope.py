"""What headers say of a request, the same for every dialect."""

import pytest

from forwardpass.core.errors import Code, Refused
from forwardpass.core.request import Request
from forwardpass.core.timeline import Timeline
from forwardpass.ingress.dialects.envelope import apply_headers, trace_header, trace_of
from forwardpass.ingress.message import HttpRequest

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def applied(deadline_s: float | None = None, priority: int = 0, **headers: str) -> Request:
    given = {name.replace("_", "-").encode(): value.encode("latin-1") for name, value in headers.items()}
    request = Request("id-1", [], 0, Timeline(), priority=priority, deadline_s=deadline_s)
    apply_headers(request, HttpRequest(b"POST", "/", "", given, b"", 0.0))
    return request


def test_headers_set_deadline_and_priority() -> None:
    request = applied(x_request_deadline_ms="1500", x_request_priority="9")
    assert (request.deadline_s, request.priority) == (1.5, 9)
    assert (applied(priority=4).deadline_s, applied(priority=4).priority) == (None, 4)


def test_of_several_deadlines_the_earliest_holds() -> None:
    assert applied(0.5, x_request_deadline_ms="1500").deadline_s == 0.5
    assert applied(2.0, x_request_deadline_ms="1500", x_envoy_expected_rq_timeout_ms="700").deadline_s == 0.7


@pytest.mark.parametrize("value", ["0", "", "soon", "-1", "99999999999"])
def test_a_proxys_timeout_that_says_nothing_is_no_deadline(value: str) -> None:
    assert applied(x_envoy_expected_rq_timeout_ms=value).deadline_s is None


@pytest.mark.parametrize("value", ["0", "-1", "1.5", "300001", "", "1e3", "99999999999", "\xb2"])
def test_a_deadline_out_of_bounds_is_refused(value: str) -> None:
    with pytest.raises(Refused) as caught:
        applied(x_request_deadline_ms=value)
    assert (caught.value.code, caught.value.field) == (Code.OUT_OF_RANGE, "X-Request-Deadline-Ms")


@pytest.mark.parametrize("value", ["0", "10", "high"])
def test_a_priority_out_of_bounds_is_refused(value: str) -> None:
    with pytest.raises(Refused) as caught:
        applied(x_request_priority=value)
    assert caught.value.field == "X-Request-Priority"


@pytest.mark.parametrize(("name", "priority"), [("critical", 1), ("standard", 5), ("sheddable", 9)])
def test_a_header_names_a_class_of_priority(name: str, priority: int) -> None:
    assert applied(x_priority=name).priority == priority


def test_a_header_and_the_body_may_say_the_same_of_priority() -> None:
    assert applied(priority=4, x_priority="critical").priority == 4
    assert applied(priority=4, x_request_priority="4").priority == 4


def test_a_header_that_contradicts_the_bodys_priority_is_refused() -> None:
    with pytest.raises(Refused, match="contradict") as caught:
        applied(priority=4, x_priority="sheddable")
    assert (caught.value.code, caught.value.field) == (Code.BAD_REQUEST, "X-Priority")
    with pytest.raises(Refused, match="contradict") as caught:
        applied(priority=4, x_request_priority="3")
    assert (caught.value.code, caught.value.field) == (Code.BAD_REQUEST, "X-Request-Priority")


@pytest.mark.parametrize("name", ["", "high", "Critical", "1", "\xe9"])
def test_a_class_that_there_is_not_is_refused_with_those_there_are(name: str) -> None:
    with pytest.raises(Refused, match="critical, standard, sheddable") as caught:
        applied(x_priority=name)
    assert (caught.value.code, caught.value.field) == (Code.OUT_OF_RANGE, "X-Priority")


def test_a_class_and_a_number_are_not_taken_together() -> None:
    with pytest.raises(Refused) as caught:
        applied(x_priority="critical", x_request_priority="1")
    assert (caught.value.code, caught.value.field) == (Code.BAD_REQUEST, "X-Priority")


def test_a_trace_goes_on_with_a_span_of_our_own() -> None:
    trace = trace_of({b"traceparent": f"00-{TRACE}-{PARENT}-01".encode(), b"tracestate": b"a=1"})
    assert trace is not None
    assert (trace.id, trace.parent, trace.flags, trace.state) == (TRACE, PARENT, "01", "a=1")
    assert trace.span != PARENT
    assert trace_header(trace) == (b"traceparent", f"00-{TRACE}-{trace.span}-01".encode())


@pytest.mark.parametrize(
    "value",
    [
        "", "x", f"00-{TRACE}-{PARENT}", f"00-{'0' * 32}-{PARENT}-01", f"00-{TRACE}-{'0' * 16}-01",
        f"ff-{TRACE}-{PARENT}-01", f"00-{TRACE.upper()}-{PARENT}-01", f"00-{TRACE}-{PARENT}-01-more",
    ],
)  # fmt: skip
def test_a_malformed_trace_counts_as_absent(value: str) -> None:
    assert trace_of({b"traceparent": value.encode()}) is None


def test_a_later_version_of_the_header_is_read_as_far_as_it_is_known() -> None:
    assert trace_of({b"traceparent": f"01-{TRACE}-{PARENT}-01-more".encode()}) is not None
