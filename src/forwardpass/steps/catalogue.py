"""All built-in kinds of step but ``model``, which needs the engines and so lives above, in ``execution/``."""

from collections.abc import Iterator, Mapping
from importlib import import_module

from forwardpass.steps.kind import invalid
from forwardpass.steps.options import did_you_mean
from forwardpass.steps.own import own_kind
from forwardpass.steps.protocol import StepKind

OWN_PREFIX = "steps:"

_MODULES = {
    "normalize_text": "text.tokens",
    "join_texts": "text.lists",
    "guard": "guard.step",
    "tokenize": "text.tokens",
    "token_windows": "text.windows",
    "spans": "text.spans",
    "merge_spans": "text.spans",
    "answer_span": "text.answer",
    "ctc_decode": "text.ctc",
    "similarity": "vectors.ranking",
    "rank": "vectors.ranking",
    "nearest": "vectors.nearest",
    "item_vectors": "vectors.nearest",
    "byte_windows": "bytes",
    "decode_image": "image.decode",
    "resize_image": "image.resize",
    "crop_image": "image.place",
    "letterbox_image": "image.place",
    "recompress_image": "image.recompress",
    "image_pyramid": "image.pyramid",
    "image_tensor": "image.tensor",
    "decode_audio": "audio.decode",
    "pcm_samples": "audio.samples",
    "resample": "audio.samples",
    "gain": "audio.samples",
    "frames": "audio.frames",
    "log_mel": "audio.mel",
    "segments": "audio.segments",
    "voice_events": "audio.segments",
    "fill": "tabular",
    "scale": "tabular",
    "one_hot": "tabular",
    "ordinal": "tabular",
    "columns": "tabular",
    "softmax": "outputs",
    "sigmoid": "outputs",
    "argmax": "outputs",
    "take": "outputs",
    "mean_pool": "outputs",
    "first_token": "vectors.first_token",
    "l2_norm": "outputs",
    "labels": "decide.labels",
    "threshold": "decide.labels",
    "calibrate": "decide.calibration",
    "label_set": "decide.decisions",
    "abstain": "decide.decisions",
    "decode_boxes": "boxes.decode",
    "decode_grid": "boxes.grid",
    "nms": "boxes.nms",
    "map_boxes": "boxes.mapped",
    "refine_boxes": "boxes.refine",
    "place_points": "boxes.refine",
    "mask_polygons": "boxes.masks",
    "text_regions": "boxes.regions",
    "crop_boxes": "boxes.crops",
    "turn_image": "boxes.crops",
    "draw_boxes": "boxes.drawing",
    "encode_image": "boxes.drawing",
    "expand": "elements",
    "fold": "elements",
    "records": "elements",
}
"""name -> the module under ``steps`` that has the kind, under that name in capitals."""


class _Kinds(Mapping[str, StepKind]):
    """A kind's module is imported when the kind is asked for: most pipelines use few of them."""

    def __init__(self, more: Mapping[str, StepKind]) -> None:
        self._more = more

    def __getitem__(self, name: str) -> StepKind:
        if name in self._more:
            return self._more[name]
        kind: StepKind = getattr(import_module(f"forwardpass.steps.{_MODULES[name]}"), name.upper())
        return kind

    def __contains__(self, name: object) -> bool:
        return name in _MODULES or name in self._more

    def __iter__(self) -> Iterator[str]:
        return iter(_MODULES | dict(self._more))

    def __len__(self) -> int:
        return len(_MODULES.keys() | self._more.keys())


def kinds(more: Mapping[str, StepKind] | None = None) -> Mapping[str, StepKind]:
    """The built-in kinds by name, and ``more``, of which one replaces what has its name."""
    return _Kinds(more or {})


def kind_of(use: str, kinds: Mapping[str, StepKind]) -> StepKind:
    """The kind a step's ``use`` names, built-in or ``steps:NAME``. Raises Misconfigured when there is none."""
    if use in kinds:
        return kinds[use]
    function = use.removeprefix(OWN_PREFIX)
    if function != use and function.isidentifier() and not function.startswith("_"):
        return own_kind(function)
    allowed = f"one of {', '.join(sorted(kinds))} or {OWN_PREFIX}NAME, a function of steps.py"
    raise invalid("use", f"no kind of step is named {use[:64]!r}", allowed + did_you_mean(use, kinds))
