"""What a caller may: its scopes against those that routes want."""

import pytest

from forwardpass.core.caller import ANONYMOUS, Caller, is_scope, is_tenant


@pytest.mark.parametrize(
    ("scopes", "scope", "pipeline", "may"),
    [
        ("", "open", "", True),
        ("", "read", "", True),
        ("", "read", "p", False),
        ("", "infer", "", False),
        ("infer", "infer", "p", True),
        ("infer", "read", "p", True),
        ("infer:p", "infer", "p", True),
        ("infer:p", "infer", "", True),
        ("infer:p", "infer", "q", False),
        ("infer:p", "read", "q", False),
        ("infer", "admin", "", False),
        ("infer", "receipts", "", False),
        ("admin", "admin", "", True),
        ("admin", "read", "p", True),
        ("admin", "infer", "p", False),
        ("admin", "infer", "", False),
        ("jobs receipts", "jobs", "", True),
        ("jobs receipts", "infer", "p", False),
    ],
)
def test_a_scope_opens_what_it_says(scopes: str, scope: str, pipeline: str, may: bool) -> None:
    assert Caller("t", scopes=frozenset(scopes.split())).may(scope, pipeline) is may


def test_where_nobody_need_say_who_they_are_everybody_may_everything() -> None:
    for scope in ("open", "read", "infer", "jobs", "receipts", "admin"):
        assert ANONYMOUS.may(scope, "p")


def test_scopes_and_tenants_have_one_form() -> None:
    good, bad = (
        ("infer", "infer:a-b.c_1", "jobs", "receipts", "admin"),
        ("", "infer:", "infer:A", "read", "Infer", "jobs "),
    )
    assert [is_scope(text) for text in (*good, *bad)] == [True] * len(good) + [False] * len(bad)
    tenants, others = ("a", "Acme.eu-1@x_y", "x" * 64), ("", ".a", "a b", "a/b", "x" * 65, "a\n", "é")
    assert [is_tenant(text) for text in (*tenants, *others)] == [True] * len(tenants) + [False] * len(others)
