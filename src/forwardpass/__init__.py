"""forwardpass: a model plus the exact steps around it, as one versioned pipeline, in every style of service."""

from forwardpass.core.pipeline import Batch, Checks, Golden, Input, Padding, Pipeline, Queue, Step, Workers

__all__ = ["Batch", "Checks", "Golden", "Input", "Padding", "Pipeline", "Queue", "Step", "Workers"]
