"""What the environment variables of platforms set, and what opening a server to the network takes."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from forwardpass.cli import main
from forwardpass.core.errors import Misconfigured
from forwardpass.ingress.platform_routes import data_routes
from forwardpass.ingress.route_table import routes_of
from forwardpass.ingress.routes import Match, Table
from forwardpass.settings import read

VERTEX = {"AIP_MODE": "PREDICTION", "AIP_HTTP_PORT": "7080", "AIP_HEALTH_ROUTE": "/h", "AIP_PREDICT_ROUTE": "/p"}
SAGEMAKER = {"SAGEMAKER_BIND_TO_PORT": "9080"}


def test_a_platform_names_port_and_paths() -> None:
    data = read(None, {}, VERTEX).data
    assert (data.port, data.health_route, data.predict_route) == (7080, "/h", "/p")
    assert read(None, {}, SAGEMAKER).data.port == 9080


def test_the_variables_of_vertex_ai_count_only_in_its_own_mode() -> None:
    assert read(None, {}, {**VERTEX, "AIP_MODE": ""}).data == read(None, {}).data


def test_the_command_line_goes_before_the_file_and_the_file_before_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "server.toml"
    file.write_text("[data]\nport = 1\n")
    assert read(file, {}, SAGEMAKER).data.port == 1
    assert read(file, {"data.port": 2}, SAGEMAKER).data.port == 2


@pytest.mark.parametrize("port", ["0", "65536", "80a", "-1", "٣"])
def test_a_variable_that_is_no_port_is_refused_by_its_name(port: str) -> None:
    with pytest.raises(Misconfigured, match="environment: SAGEMAKER_BIND_TO_PORT"):
        read(None, {}, {"SAGEMAKER_BIND_TO_PORT": port})


def test_the_command_line_reads_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAGEMAKER_BIND_TO_PORT", "9080")
    assert "\nport = 9080 " in CliRunner().invoke(main, ["config"]).output


def test_another_host_than_loopback_needs_open_to_network() -> None:
    with pytest.raises(Misconfigured, match=r"data.host: 0\.0\.0\.0 can be reached.*data.open_to_network"):
        read(None, {"data.host": "0.0.0.0"})
    assert read(None, {"data.host": "0.0.0.0", "data.open_to_network": True}).data.host == "0.0.0.0"


def test_the_admin_plane_stays_on_loopback() -> None:
    with pytest.raises(Misconfigured, match=r"admin.host"):
        read(None, {"data.host": "0.0.0.0", "data.open_to_network": True, "admin.host": "0.0.0.0"})


def test_opening_to_the_network_without_an_address_there_is_refused() -> None:
    with pytest.raises(Misconfigured, match=r"data.open_to_network: has no effect"):
        read(None, {"data.open_to_network": True})


def test_the_table_of_routes_has_the_paths_of_the_settings() -> None:
    shown = CliRunner().invoke(main, ["routes", "--set", "data.predict_route=/score/it:now"]).output
    assert [line.split()[:4] for line in shown.splitlines() if "/score/it:now" in line] == [
        ["data", "http", "POST", "/score/it:now"]
    ]


def test_a_path_of_the_settings_goes_before_the_table_s_own() -> None:
    """Vertex AI's usual two, of which TEI has the second."""
    routes = data_routes("/health", "/predict")
    at_predict = [route.endpoint for route in routes if (route.method, route.pattern) == (b"POST", "/predict")]
    assert at_predict == ["invocations"]
    match = Table(routes).match(b"POST", "/predict")
    assert isinstance(match, Match) and match.route.endpoint == "invocations"
    assert len(routes) == len(routes_of("data"))


def test_the_table_that_is_printed_is_the_one_that_answers() -> None:
    shown = CliRunner().invoke(main, ["routes", "--set", "data.predict_route=/predict"]).output
    (line,) = [line for line in shown.splitlines() if line.split()[:4] == ["data", "http", "POST", "/predict"]]
    assert line.endswith("(data.predict_route)")


@pytest.mark.parametrize(
    ("health", "predict"),
    [
        ("health", ""), ("/a b", ""), ("/{pipeline}", ""), ("/a%20b", ""), ("/a?b", ""), ("//", ""), ("/" + "a" * 256, ""),
        ("/v2/health/ready", ""), ("/v2/models/x", ""), ("", "/ping"), ("", "/health"), ("", "/v2"),
        ("", "/v2/models/x/infer"), ("", "/v2/anything"),
    ],
)  # fmt: skip
def test_a_path_that_is_none_or_v2_s_or_asks_after_health_is_refused_at_the_start(health: str, predict: str) -> None:
    with pytest.raises(Misconfigured, match=r"data\.(health|predict)_route: found"):
        data_routes(health, predict)


def test_two_questions_may_have_one_path() -> None:
    assert [route.method for route in data_routes("/same", "/same") if route.pattern == "/same"] == [b"GET", b"POST"]
