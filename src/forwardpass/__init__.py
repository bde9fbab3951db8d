"""forwardpass: a model plus the exact steps around it, as one versioned pipeline, in every style of service.

What is imported from here is loaded when it is first named: ``import forwardpass`` itself loads nothing heavy.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from forwardpass.core.errors import Failure, Misconfigured
from forwardpass.core.pipeline import (
    Batch,
    Cache,
    Checks,
    Golden,
    Guard,
    Input,
    Padding,
    Price,
    Queue,
    Rule,
    Sequences,
    Step,
    Task,
    Workers,
)

if TYPE_CHECKING:
    from forwardpass import use
    from forwardpass.building.functions import step
    from forwardpass.building.pipeline import Pipeline
    from forwardpass.client_retry import ForwardpassError
    from forwardpass.client_wire import Prediction
    from forwardpass.core.request import Turn
    from forwardpass.fitted.libraries import from_catboost, from_lightgbm, from_sklearn, from_xgboost

__all__ = [
    "Batch",
    "Cache",
    "Checks",
    "Failure",
    "ForwardpassError",
    "Golden",
    "Guard",
    "Input",
    "Misconfigured",
    "Padding",
    "Pipeline",
    "Prediction",
    "Price",
    "Queue",
    "Rule",
    "Sequences",
    "Step",
    "Task",
    "Turn",
    "Workers",
    "from_catboost",
    "from_lightgbm",
    "from_sklearn",
    "from_xgboost",
    "step",
    "use",
]

_LATER = {
    "ForwardpassError": "client_retry",
    "Pipeline": "building.pipeline",
    "Prediction": "client_wire",
    "Turn": "core.request",
    "from_catboost": "fitted.libraries",
    "from_lightgbm": "fitted.libraries",
    "from_sklearn": "fitted.libraries",
    "from_xgboost": "fitted.libraries",
    "step": "building.functions",
}


def __getattr__(name: str) -> Any:
    if name == "use":
        return import_module("forwardpass.use")
    if name in _LATER:
        return getattr(import_module(f"forwardpass.{_LATER[name]}"), name)
    raise AttributeError(f"module 'forwardpass' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
