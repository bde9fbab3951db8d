"""All built-in kinds of step but ``model``, which needs the engines and so lives above, in ``execution/``."""

from collections.abc import Mapping

from forwardpass.steps.audio.decode import DECODE_AUDIO
from forwardpass.steps.audio.frames import FRAMES
from forwardpass.steps.audio.mel import LOG_MEL
from forwardpass.steps.audio.samples import GAIN, PCM_SAMPLES, RESAMPLE
from forwardpass.steps.audio.segments import SEGMENTS, VOICE_EVENTS
from forwardpass.steps.boxes.crops import CROP_BOXES, TURN_IMAGE
from forwardpass.steps.boxes.decode import DECODE_BOXES
from forwardpass.steps.boxes.drawing import DRAW_BOXES, ENCODE_IMAGE
from forwardpass.steps.boxes.grid import DECODE_GRID
from forwardpass.steps.boxes.mapped import MAP_BOXES
from forwardpass.steps.boxes.masks import MASK_POLYGONS
from forwardpass.steps.boxes.nms import NMS
from forwardpass.steps.boxes.refine import PLACE_POINTS, REFINE_BOXES
from forwardpass.steps.boxes.regions import TEXT_REGIONS
from forwardpass.steps.bytes import BYTE_WINDOWS
from forwardpass.steps.decide.calibration import CALIBRATE
from forwardpass.steps.decide.decisions import ABSTAIN, LABEL_SET
from forwardpass.steps.decide.labels import LABELS, THRESHOLD
from forwardpass.steps.elements import EXPAND, FOLD, RECORDS
from forwardpass.steps.guard.step import GUARD
from forwardpass.steps.image.decode import DECODE_IMAGE
from forwardpass.steps.image.place import CROP_IMAGE, LETTERBOX_IMAGE
from forwardpass.steps.image.pyramid import IMAGE_PYRAMID
from forwardpass.steps.image.recompress import RECOMPRESS_IMAGE
from forwardpass.steps.image.resize import RESIZE_IMAGE
from forwardpass.steps.image.tensor import IMAGE_TENSOR
from forwardpass.steps.kind import invalid
from forwardpass.steps.options import did_you_mean
from forwardpass.steps.outputs import ARGMAX, L2_NORM, MEAN_POOL, SIGMOID, SOFTMAX, TAKE
from forwardpass.steps.own import own_kind
from forwardpass.steps.protocol import StepKind
from forwardpass.steps.tabular import COLUMNS, FILL, ONE_HOT, ORDINAL, SCALE
from forwardpass.steps.text.answer import ANSWER_SPAN
from forwardpass.steps.text.ctc import CTC_DECODE
from forwardpass.steps.text.lists import JOIN_TEXTS
from forwardpass.steps.text.spans import MERGE_SPANS, SPANS
from forwardpass.steps.text.tokens import NORMALIZE_TEXT, TOKENIZE
from forwardpass.steps.text.windows import TOKEN_WINDOWS
from forwardpass.steps.vectors.first_token import FIRST_TOKEN
from forwardpass.steps.vectors.nearest import ITEM_VECTORS, NEAREST
from forwardpass.steps.vectors.ranking import RANK, SIMILARITY

OWN_PREFIX = "steps:"


_BUILT_IN: tuple[StepKind, ...] = (
    NORMALIZE_TEXT,
    JOIN_TEXTS,
    GUARD,
    TOKENIZE,
    TOKEN_WINDOWS,
    SPANS,
    MERGE_SPANS,
    ANSWER_SPAN,
    CTC_DECODE,
    SIMILARITY,
    RANK,
    NEAREST,
    ITEM_VECTORS,
    BYTE_WINDOWS,
    DECODE_IMAGE,
    RESIZE_IMAGE,
    CROP_IMAGE,
    LETTERBOX_IMAGE,
    RECOMPRESS_IMAGE,
    IMAGE_PYRAMID,
    IMAGE_TENSOR,
    DECODE_AUDIO,
    PCM_SAMPLES,
    RESAMPLE,
    GAIN,
    FRAMES,
    LOG_MEL,
    SEGMENTS,
    VOICE_EVENTS,
    FILL,
    SCALE,
    ONE_HOT,
    ORDINAL,
    COLUMNS,
    SOFTMAX,
    SIGMOID,
    ARGMAX,
    TAKE,
    MEAN_POOL,
    FIRST_TOKEN,
    L2_NORM,
    LABELS,
    THRESHOLD,
    CALIBRATE,
    LABEL_SET,
    ABSTAIN,
    DECODE_BOXES,
    DECODE_GRID,
    NMS,
    MAP_BOXES,
    REFINE_BOXES,
    PLACE_POINTS,
    MASK_POLYGONS,
    TEXT_REGIONS,
    CROP_BOXES,
    TURN_IMAGE,
    DRAW_BOXES,
    ENCODE_IMAGE,
    EXPAND,
    FOLD,
    RECORDS,
)


def kinds() -> dict[str, StepKind]:
    """The built-in kinds by name."""
    return {kind.name: kind for kind in _BUILT_IN}


def kind_of(use: str, kinds: Mapping[str, StepKind]) -> StepKind:
    """The kind a step's ``use`` names, built-in or ``steps:NAME``. Raises Misconfigured when there is none."""
    if use in kinds:
        return kinds[use]
    function = use.removeprefix(OWN_PREFIX)
    if function != use and function.isidentifier() and not function.startswith("_"):
        return own_kind(function)
    allowed = f"one of {', '.join(sorted(kinds))} or {OWN_PREFIX}NAME, a function of steps.py"
    raise invalid("use", f"no kind of step is named {use[:64]!r}", allowed + did_you_mean(use, kinds))
