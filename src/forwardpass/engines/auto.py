"""The auto engine: that of its candidates which runs this model quickest here, within the tolerance that is written.

The choice is made once, at a version's first load, and is every worker's (``execution/choosing.py``).
"""

from typing import Any

from forwardpass.engines import onnxruntime
from forwardpass.engines.discover import EngineKind, EngineOption

BOUNDS = {"absolute": (0.0, float("inf")), "cosine": (-1.0, 1.0)}
"""Of a tolerance: how far apart two numbers may be, and how small the cosine of two rows' answers."""


def _is_tolerance(value: Any) -> bool:
    if not isinstance(value, dict) or not value or not value.keys() <= BOUNDS.keys():
        return False
    return all(
        type(bound) in (int, float) and BOUNDS[name][0] <= bound <= BOUNDS[name][1] for name, bound in value.items()
    )


engine = EngineKind(
    make=onnxruntime.engine.make,
    options={
        "tolerance": EngineOption(
            "what answers may differ by from onnxruntime's: { absolute = 0.001, cosine = 0.9999 }, or one of the two",
            _is_tolerance,
            None,
        ),
    },
    platform=onnxruntime.engine.platform,
    apart=True,
    candidates=(
        ("onnxruntime", {}),
        ("openvino", {"precision": "fp32"}),
        ("openvino", {"precision": "bf16"}),
    ),
)
