"""The data plane put together: which dialects and endpoints answer its routes, with the settings in force."""

from collections.abc import Callable

from forwardpass.ingress.data_plane import DataPlane
from forwardpass.ingress.dialect import Endpoint
from forwardpass.ingress.dialects.table import DIALECTS
from forwardpass.ingress.endpoints.description import Description
from forwardpass.ingress.inference import Inference
from forwardpass.ingress.route_table import routes_of
from forwardpass.settings import Settings


def data_plane(
    settings: Settings, inference: Inference, why_not_ready: Callable[[], str], product_version: str
) -> DataPlane:
    """Every route of the table has somebody here who answers it."""
    endpoints: dict[str, Endpoint] = {
        **Description(inference, why_not_ready, product_version).endpoints(),
    }
    return DataPlane(inference, routes_of("data"), DIALECTS, endpoints, _switched_on(settings))


def _switched_on(settings: Settings) -> frozenset[str]:
    """The settings of those that a route may need."""
    return frozenset(["data.model_control"] if settings.data.model_control else [])
