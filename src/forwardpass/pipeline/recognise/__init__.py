"""Which family a model belongs to, told by its file and those beside it, so that ``init`` can write the steps around it.

Each family is one function: Source -> Recognised, None when it is another family's, Unfit when it is nearly this one's.
A wrong guess is worse than none: what does not fit in every part is not recognised, and why is said.
"""

from dataclasses import replace
from pathlib import Path

from forwardpass.pipeline.recognise.detectors import detector
from forwardpass.pipeline.recognise.images import image_classifier
from forwardpass.pipeline.recognise.recognised import Recognised
from forwardpass.pipeline.recognise.source import Unfit, chosen, source_at
from forwardpass.pipeline.recognise.tables import table_model
from forwardpass.pipeline.recognise.texts import text_model

_FAMILIES = (text_model, table_model, detector, image_classifier)


def recognise(path: Path) -> Recognised | str:
    """What the model at a path is, or why it is not known. Raises Misconfigured for what is no ONNX file."""
    try:
        source = source_at(path)
        for family in _FAMILIES:
            found = family(source)
            if found is not None:
                assumed = (chosen(path), *found.assumed)
                return replace(found, assumed=tuple(text for text in assumed if text))
    except Unfit as why:
        return str(why)
    shapes = ", ".join(f"{value.datatype or 'no tensor'} {list(value.shape or ())}" for value in source.facts.inputs)
    return f"its inputs ({shapes}) and the files beside it are of no family that is known"
