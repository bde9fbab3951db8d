"""The settings of identity: what they must have beside them, and what each of them does."""

from collections.abc import Mapping
from typing import Any

import pytest

from forwardpass.core.clock import FakeClock
from forwardpass.core.errors import Misconfigured
from forwardpass.front import admin_edge, edge_of, identity_of
from forwardpass.ingress.message import HttpLimits
from forwardpass.settings import Settings, read

TLS = {"data.tls_certificate": "a.pem", "data.tls_key": "a.key"}
TOKENS = {"auth.required": True, "auth.jwks": "keys.json", "auth.issuer": "https://i", "auth.audience": "us"}


def problems(overrides: Mapping[str, Any]) -> set[str]:
    """The keys that are refused."""
    try:
        read(None, overrides)
    except Misconfigured as refused:
        return {problem.key for problem in refused.problems}
    return set()


@pytest.mark.parametrize(
    ("overrides", "refused"),
    [
        ({"data.host": "0.0.0.0"}, {"data.host"}),
        ({"data.host": "::"}, {"data.host"}),
        ({"admin.host": "0.0.0.0"}, {"admin.host"}),
        ({"admin.host": "0.0.0.0", "data.host": "0.0.0.0", "data.open_to_network": True}, {"admin.host"}),
        ({"admin.host": "0.0.0.0", "data.host": "0.0.0.0", "auth.required": True}, set()),
        ({"data.host": "0.0.0.0", "data.open_to_network": True, "auth.required": True}, {"data.open_to_network"}),
        ({"auth.required": True}, set()),
        (TOKENS, set()),
        (TOKENS | TLS | {"auth.client_ca": "ca.pem"}, set()),
        ({"auth.required": True, "auth.client_ca": "ca.pem"}, {"auth.client_ca"}),
        (TOKENS | {"auth.issuer": ""}, {"auth.issuer"}),
        (TOKENS | {"auth.audience": "", "auth.tenant_claim": ""}, {"auth.audience", "auth.tenant_claim"}),
        ({"auth.required": True, "auth.issuer": "i", "auth.scope_claim": "scp"}, {"auth.issuer", "auth.scope_claim"}),
        ({"auth.jwks": "keys.json"}, {"auth.jwks"}),
        ({"auth.client_ca": "ca.pem"} | TLS, {"auth.client_ca"}),
        ({"auth.tenant_claim": "org"}, {"auth.tenant_claim"}),
    ],
)
def test_a_setting_of_identity_has_an_effect_or_is_refused(overrides: dict[str, Any], refused: set[str]) -> None:
    assert problems(overrides) == refused


@pytest.mark.parametrize("required", [True, False])
def test_required_asks_on_both_planes(required: bool) -> None:
    settings, clock = read(None, {"auth.required": required}), FakeClock()
    identity = identity_of(settings, clock)
    edges = (edge_of(settings, HttpLimits(), clock, identity=identity), admin_edge(HttpLimits(), identity=identity))
    assert [edge.identity is not None for edge in edges] == [required] * 2


def test_keys_of_an_issuer_come_from_a_file_or_over_https() -> None:
    with pytest.raises(Misconfigured, match=r"auth\.jwks"):
        identity_of(read(None, TOKENS | {"auth.jwks": "http://issuer.example/jwks"}), FakeClock())


def test_nobody_need_say_who_they_are_unless_asked() -> None:
    assert not Settings().auth.required


@pytest.mark.parametrize(
    ("overrides", "own_only"),
    [
        ({}, True),
        ({"data.host": "localhost"}, True),
        ({"data.hosts": ["named.example"]}, False),
        ({"auth.required": True}, False),
        ({"data.host": "0.0.0.0", "data.open_to_network": True}, False),
    ],
)
def test_on_loopback_without_keys_only_this_machine_s_names_are_served(
    overrides: dict[str, Any], own_only: bool
) -> None:
    settings, clock = read(None, overrides), FakeClock()
    limits = HttpLimits(hosts=tuple(settings.data.hosts))
    assert edge_of(settings, limits, clock, identity_of(settings, clock)).origins.own_only is own_only
