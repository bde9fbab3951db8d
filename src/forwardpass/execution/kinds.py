"""Every kind of step a definition may use: the built-in ones and ``model``."""

from collections.abc import Mapping

from forwardpass.execution.model_step import ModelStep
from forwardpass.steps import catalogue
from forwardpass.steps.protocol import StepKind


def kinds() -> Mapping[str, StepKind]:
    """By name, fresh; checking a definition with them loads no model."""
    return catalogue.kinds({ModelStep.name: ModelStep()})
