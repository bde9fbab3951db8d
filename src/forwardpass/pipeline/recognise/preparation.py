"""How a picture is prepared for a classifier, by whichever file says it: transformers', timm's, ultralytics', or none."""

from dataclasses import dataclass
from math import floor
from typing import Any

from forwardpass.pipeline.recognise.recognised import Notes
from forwardpass.pipeline.recognise.source import Source, Unfit, part, whole

SIDE_MAX = 8192
_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet
_METHODS = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic", 4: "area"}  # Pillow's numbers of its filters
_CONVNEXT_EXACT = 384  # from this size on ConvNext squeezes instead of cropping


@dataclass(frozen=True, slots=True)
class Preparation:
    """Resized as ``resize`` says, the options of that step; then the middle of ``width`` x ``height``, if that is less."""

    width: int
    height: int
    resize: dict[str, int]
    method: str = "bilinear"
    scale: float = 1 / 255
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)

    @property
    def cropped(self) -> bool:
        return self.resize != _exactly(self.width, self.height)


def preparation(source: Source, width: int, height: int, color: str, notes: Notes) -> Preparation:
    """For a model whose graph says these sides, 0 for one that it leaves open. Raises Unfit."""
    processor = source.table("preprocessor_config.json")
    timm = part(source.table("config.json"), "pretrained_cfg")
    if processor:
        found = _transformers(processor, width, height)
        notes.know("preprocessor_config.json: size, crop, scale, mean and std of a picture")
    elif timm.get("input_size"):
        found = _timm(timm)
        notes.know("config.json, pretrained_cfg: size, crop, mean and std of a picture")
    elif width < 1 or height < 1:
        raise Unfit("nothing says the size of a picture: neither the model's input nor a preprocessor_config.json")
    elif source.facts.metadata.get("task") == "classify":
        notes.know("the model's metadata, task: classify: levels from 0 to 1, the middle of the picture")
        found = Preparation(width, height, {"short_side": min(width, height)})
    else:
        found = _usual(width, height, color, notes)
    if (width or found.width, height or found.height) != (found.width, found.height):
        raise Unfit(f"a picture of {found.width} x {found.height} is prepared, and the model takes {width} x {height}")
    return found


def _usual(width: int, height: int, color: str, notes: Notes) -> Preparation:
    short_side = round(min(width, height) * 256 / 224)
    if color == "gray":
        notes.assume("grey levels go from 0 to 1, and the picture is squeezed to the model's size")
        return Preparation(width, height, _exactly(width, height))
    notes.assume(
        f"pictures are prepared as torchvision's classifiers want it: short side {short_side}, the middle "
        f"{width} x {height}, mean and std of ImageNet"
    )
    return Preparation(width, height, {"short_side": short_side}, mean=_MEAN, std=_STD)


def _transformers(config: dict[str, Any], width: int, height: int) -> Preparation:
    """What an image processor of transformers does. Its size is a number, {height, width} or {shortest_edge}."""
    size, resize = _sized(config, width, height)
    number = config.get("resample")
    scaled = config.get("do_rescale", True) is True
    factor = config.get("rescale_factor", 1 / 255)
    normal = config.get("do_normalize", True) is True
    return Preparation(
        *size,
        resize,
        _METHODS.get(number, "bilinear") if type(number) is int else "bilinear",
        float(factor) if scaled and isinstance(factor, int | float) else 1.0,
        _levels(config.get("image_mean"), (0.0,)) if normal else (0.0,),
        _levels(config.get("image_std"), (1.0,)) if normal else (1.0,),
    )


def _sized(config: dict[str, Any], width: int, height: int) -> tuple[tuple[int, int], dict[str, int]]:
    """Width and height of what the model gets, and how the picture is resized before it is cropped to that."""
    size, crop = _sides(config.get("size")), _sides(config.get("crop_size"))
    short_side = whole(part(config, "size").get("shortest_edge"), 1, SIDE_MAX) or 0
    cropped = config.get("do_center_crop", crop is not None) is True
    percent = config.get("crop_pct")
    if short_side and isinstance(percent, float) and 0 < percent <= 1:  # ConvNext
        exact = short_side >= _CONVNEXT_EXACT
        resize = _exactly(short_side, short_side) if exact else {"short_side": floor(short_side / percent)}
        return (short_side, short_side), resize
    if cropped and crop:
        if isinstance(config.get("size"), int) and size != crop:
            raise Unfit("preprocessor_config.json has a size that is one number, for one side or for both")
        if size and not short_side:
            return crop, _exactly(*size)
        return crop, {"short_side": short_side or min(crop)}
    if short_side:
        raise Unfit("preprocessor_config.json keeps pictures of different shapes, and no crop makes them one")
    if not size and not (width and height):
        raise Unfit("preprocessor_config.json does not say the size of a picture")
    size = size or (width, height)
    return size, _exactly(*size)


def _exactly(width: int, height: int) -> dict[str, int]:
    return {"width": width, "height": height}


def _timm(config: dict[str, Any]) -> Preparation:
    sides = config["input_size"]
    if not isinstance(sides, list) or len(sides) != 3 or not all(whole(side, 1, SIDE_MAX) for side in sides):
        raise Unfit("config.json, pretrained_cfg: input_size is not [channels, height, width]")
    _, height, width = sides
    percent = config.get("crop_pct", 0.875)
    percent = percent if isinstance(percent, int | float) and 0 < percent <= 1 else 0.875
    squeezed = config.get("crop_mode") == "squash"
    return Preparation(
        width,
        height,
        _exactly(width, height) if squeezed else {"short_side": floor(min(width, height) / percent)},
        config["interpolation"] if config.get("interpolation") in ("bilinear", "bicubic", "nearest") else "bilinear",
        1 / 255,
        _levels(config.get("mean"), _MEAN),
        _levels(config.get("std"), _STD),
    )


def _sides(value: object) -> tuple[int, int] | None:
    """Width and height of a size as transformers writes it."""
    if isinstance(value, dict):
        width, height = whole(value.get("width"), 1, SIDE_MAX), whole(value.get("height"), 1, SIDE_MAX)
        return None if width is None or height is None else (width, height)
    side = whole(value, 1, SIDE_MAX)
    return None if side is None else (side, side)


def _levels(value: object, otherwise: tuple[float, ...]) -> tuple[float, ...]:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return (float(value),)
    if isinstance(value, list) and value and all(isinstance(each, int | float) for each in value):
        return tuple(map(float, value))
    return otherwise
