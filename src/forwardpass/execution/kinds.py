"""Every kind of step a definition may use: the built-in ones and ``model``."""

from forwardpass.execution.model_step import ModelStep
from forwardpass.steps import catalogue
from forwardpass.steps.protocol import StepKind


def kinds() -> dict[str, StepKind]:
    """By name, fresh; checking a definition with them loads no model."""
    return {**catalogue.kinds(), ModelStep.name: ModelStep()}
