# Written by `make docs` from the options of every kind of step; do not edit.

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any, Literal

from forwardpass.core.pipeline import Step

def abstain(
    *,
    input: str | None = None,
    label: str = "label",
    score_min: float | None = None,
    margin_min: float | None = None,
    entropy_max: float | None = None,
    otherwise: str = "unknown",
    null: bool = False,
    output: str = "abstained",
) -> Step:
    """Takes the label back where the model is not sure: behind ``labels``, over the scores that it chose from.

    It abstains when the best score is below ``score_min``, the best is less than ``margin_min`` ahead of the second, or
    the entropy of the probabilities, divided by its most, log(classes), is over ``entropy_max``; each as far as given.
    Then the label becomes ``otherwise`` and a note "abstained" says why. BOOL ``output`` says whether it did. A NaN among
    the scores fails the row, as does with entropy_max a score that is no probability.

    Options:

        input: the scores; without it the latest floating tensor with an axis (the name of a field, 1 to 256 printable characters)
        label: the label, one text per row (the name of a field, 1 to 256 printable characters)
        score_min: the least best score (a finite number)
        margin_min: the least difference between the best two (a finite number)
        entropy_max: the most entropy, from 0 (one is certain) to 1 (all alike) (a finite number)
        otherwise: the label of a row that is not sure (text)
        null: the label of such a row is null instead (true or false)
        output: where it is said whether the label was taken back (the name of a field, 1 to 256 printable characters)"""

def answer_span(
    *,
    first: str = "start_logits",
    last: str = "end_logits",
    text: str | None = None,
    offsets: str = "offsets",
    mask: str = "attention_mask",
    tokens_max: int = 30,
    shift: str | None = None,
    output: str = "answer",
    score: str = "score",
    place: str = "place",
) -> Step:
    """The best answer of an extractive reader: the span of the text for which P(start) P(end) is greatest, of equal
    ones the earliest.

    P is the softmax of the logits over all tokens that count, so that what the model gives to "no answer" (its first
    token) and to the question makes the score small; the span itself lies in the text, of which ``tokenize`` or
    ``token_windows`` with ``pair`` and ``offsets`` gives the places. Makes the answer (text), its FP32 score and its
    place, INT64 [2], in characters. A logit that is not finite at a token that counts fails the row, and so does a text
    without a token. All of a token's fields may be ragged (``tokenize`` with ``pad = "row"``).

    Options:

        first: the logits of an answer's first token (the name of a field, 1 to 256 printable characters)
        last: the logits of an answer's last token (the name of a field, 1 to 256 printable characters)
        text: the text; without it the latest text field (the name of a field, 1 to 256 printable characters)
        offsets: the tokens' places in the text (the name of a field, 1 to 256 printable characters)
        mask: [tokens], 0 where a token does not count (the name of a field, 1 to 256 printable characters)
        tokens_max: the most tokens of an answer (an integer from 1 to 1024)
        shift: INT64, added to the place, such as a window's start (the name of a field, 1 to 256 printable characters)
        output: where the answer goes (the name of a field, 1 to 256 printable characters)
        score: where its score goes (the name of a field, 1 to 256 printable characters)
        place: where its place goes (the name of a field, 1 to 256 printable characters)"""

def argmax(
    *,
    input: str | None = None,
    output: str = "index",
) -> Step:
    """The place of the greatest score of the last axis; of equal ones the first. A NaN among them fails the row.

    Options:

        input: the scores; without it the latest floating tensor (the name of a field, 1 to 256 printable characters)
        output: where the place goes, INT64 (the name of a field, 1 to 256 printable characters)"""

def byte_windows(
    *,
    input: str | None = None,
    output: str = "bytes",
    block: int = 4096,
    first: int = 1024,
    last: int = 1024,
    pad: int = 256,
    strip: bool = True,
    bytes_min: int = 8,
) -> Step:
    """The first and the last bytes of each value as numbers, as models of file types want them.

    Of the first ``block`` bytes, white space stripped in front, ``first`` are kept and padded behind; of the last
    ``block`` bytes, stripped behind, ``last`` are kept and padded in front. The defaults are Magika's. A value whose
    stripped first block has fewer than ``bytes_min`` bytes fails its row.

    Options:

        input: the bytes; without it the latest bytes field (the name of a field, 1 to 256 printable characters)
        output: where the numbers go (the name of a field, 1 to 256 printable characters)
        block: bytes looked at from each end (an integer from 1 to 16777216)
        first: bytes kept from the beginning (an integer from 0 to 16777216)
        last: bytes kept from the end (an integer from 0 to 16777216)
        pad: the number that stands for no byte (an integer from -2147483648 to 2147483647)
        strip: leave out ASCII white space before the first and after the last byte (true or false)
        bytes_min: fewer bytes than this are refused (an integer from 0 to 16777216)"""

def calibrate(
    *,
    input: str | None = None,
    temperature: float | None = None,
    of: str = "logits",
    a: float | Sequence[float] | None = None,
    b: float | Sequence[float] | None = None,
    isotonic_file: str | PathLike[str] | None = None,
    form: str | None = None,
    output: str = "probabilities",
) -> Step:
    """Turns scores into calibrated FP32 probabilities, in one of three ways that were fitted beforehand.

    ``temperature``: logits divided by it (Guo et al. 2017); of probabilities the logarithm counts as the logit.
    ``a`` and ``b``: 1 / (1 + exp(a * score + b)) (Platt 1999), as scikit-learn's sigmoid calibration. ``isotonic_file``:
    ``{"x": [...], "y": [...]}``, X_thresholds_ and y_thresholds_ of scikit-learn's IsotonicRegression; linear between
    them, constant outside.

    ``form`` "softmax": the last axis holds classes of which one is right; they sum to one. "sigmoid": each score stands
    for itself. With a and b or a table, softmax calibrates each class, by the pair or table of its own or the only one,
    and divides by their sum (all zero: all alike); of two classes with one pair or table the second is calibrated and
    the first is the rest. A NaN among the scores fails the row.

    Options:

        input: the scores; without it the latest floating tensor (the name of a field, 1 to 256 printable characters)
        temperature: what logits are divided by, above 0 (a finite number)
        of: what temperature is applied to ("logits" or "probabilities")
        a: the slope, or one for each class (a finite number or a list of 1 to 100000, each a finite number)
        b: the offset, or one for each class (a finite number or a list of 1 to 100000, each a finite number)
        isotonic_file: a JSON file of one table, or a list of one for each class (the name of a file in the pipeline's folder)
        form: by default softmax; of one number per row sigmoid ("softmax" or "sigmoid")
        output: where the probabilities go (the name of a field, 1 to 256 printable characters)"""

def columns(
    names: Sequence[str],
    *,
    output: str = "features",
    missing: Literal["refuse", "nan"] | Sequence[str] = "refuse",
    datatype: Literal["FP32", "FP64"] = "FP32",
) -> Step:
    """Joins numbers and blocks, in the order named, to one row of FP32 (or FP64).

    A number that FP32 cannot hold fails its row; so does a missing one, unless ``missing = "nan"`` (for trees) or the
    list ``missing`` names its column.

    Options:

        names: the columns in the training's order (a list of 1 to 100000 different ones, each the name of a field, 1 to 256 printable characters)
        output: where the row goes (the name of a field, 1 to 256 printable characters)
        missing: what a missing number becomes; a list of columns: "nan" in these only ("refuse" or "nan" or a list of 1 to 100000 different ones, each the name of a field, 1 to 256 printable characters)
        datatype: of the numbers ("FP32" or "FP64")"""

def crop_boxes(
    *,
    image: str | None = None,
    input: str | None = None,
    margin: float = 0.0,
    outside: Literal["cut", "pad"] = "cut",
    turn_tall: bool = True,
    size: Sequence[int] | None = None,
    output: str = "crop",
) -> Step:
    """Cuts one box or quad out of each row's picture: ragged UINT8 [-1, -1, channels] ``output``.

    A box (FP32 [4]: x1, y1, x2, y2) is cut out with every pixel it touches, as far as it lies in the picture or, with
    ``outside = "pad"``, black where it does not; with ``margin`` it is widened first. A quad (FP32 [4, 2], clockwise
    from top left) is warped to an upright rectangle, as wide as its longer horizontal edge and as high as its longer
    vertical one (bicubic, the picture's edge goes on outside), and a quarter to the left when it is a column of text;
    so do PaddleOCR and RapidOCR. A box without any pixel of the picture and a quad without an inside fail the row, as
    do numbers that are not finite, and a padded box whose side is over 4 times the picture's longer one.

    Options:

        image: the picture; without it the latest decoded one (the name of a field, 1 to 256 printable characters)
        input: the box or quad; without it the latest such field (the name of a field, 1 to 256 printable characters)
        margin: what a box is widened by on each side, as a share of its width and height (a finite number)
        outside: what becomes of the part of a box that lies outside of the picture ("cut" or "pad")
        turn_tall: turn the crop of a quad a quarter to the left when it is 1.5 as high as wide (true or false)
        size: [width, height] every crop is resized to (bilinear); without it none is (a list of 1 to 100000, each an integer from 1 to 32766)
        output: where the crop goes (the name of a field, 1 to 256 printable characters)"""

def crop_image(
    *,
    input: str | None = None,
    output: str | None = None,
    size: Sequence[int] | None = None,
    box: Sequence[int] | None = None,
    outside: Literal["refuse", "pad"] = "refuse",
    fill: int | Sequence[int] = 0,
) -> Step:
    """Cuts a piece out of a decoded image: ``size`` from its middle, or the ``box`` of the pixels x1 to x2, y1 to y2.

    The middle is torchvision's CenterCrop. What lies outside of the image is refused (``out_of_range``) or, with
    ``outside = "pad"``, filled with ``fill``. Makes ragged UINT8 [height, width, channels].

    Options:

        input: the image; without it the latest decoded one (the name of a field, 1 to 256 printable characters)
        output: where the result goes; without it, in place (the name of a field, 1 to 256 printable characters)
        size: [width, height] of a piece from the middle (a list of 2 to 100000, each an integer from 1 to 65535)
        box: [x1, y1, x2, y2]; x2 and y2 are left out (a list of 4 to 100000, each an integer from -65535 to 65535)
        outside: what a smaller image gets ("refuse" or "pad")
        fill: the level or levels of what is padded (an integer from 0 to 255 or a list of 1 to 100000, each an integer from 0 to 255)"""

def ctc_decode(
    file: str | PathLike[str] | None = None,
    *,
    input: str | None = None,
    characters: str | None = None,
    space: bool = False,
    blank: int = 0,
    word_break: str | None = None,
    softmax: bool = False,
    output: str = "text",
    score: str = "score",
) -> Step:
    """The text of CTC scores [steps, classes]: the best class of each step, of equal ones the lower; repeats and then
    blanks left out.

    This is the best path of Graves and others, 2006. Makes the text and its FP32 score, the mean of the scores of the
    steps that wrote something, 0 of a text without any: as PaddleOCR and RapidOCR do. The alphabet holds what the
    classes write, in the model's order and without the blank; class and alphabet must agree in number. A score that is
    not finite fails the row.

    Options:

        input: the scores; without it the latest [steps, classes] (the name of a field, 1 to 256 printable characters)
        file: the alphabet: a UTF-8 file with one character a line (the name of a file in the pipeline's folder)
        characters: the alphabet in one text, instead of a file (text)
        space: the alphabet ends with a space that it does not list, as PP-OCR's does (true or false)
        blank: the class that writes nothing; -1 is the last (an integer from -1 to 1000000)
        word_break: what in the alphabet stands for a space, such as | of wav2vec 2.0 (text)
        softmax: the scores are logits and first become probabilities (true or false)
        output: where the text goes (the name of a field, 1 to 256 printable characters)
        score: where its score goes (the name of a field, 1 to 256 printable characters)"""

def decode_audio(
    rate_hz: int,
    *,
    input: str | None = None,
    output: str = "samples",
    seconds_max: float = 600.0,
    samples_max: int = 57600000,
    channels_max: int = 8,
    channel: int | None = None,
    truncated: Literal["refuse", "accept"] = "refuse",
) -> Step:
    """Decodes WAV, FLAC, Ogg (Vorbis, Opus) and MP3, told by their content, to one channel of samples from -1 to 1.

    Makes ``output``, ragged FP32 [samples]: the mean of the channels, resampled to ``rate_hz`` by soxr (HQ), and
    what is beyond -1 or 1 set to it. WAV may hold PCM of 8, 16, 24 or 32 bits, floats, A-law or mu-law. A row fails
    with ``audio_invalid`` when it is none of these files or damaged; with ``audio_format`` when its header is wrong
    or not taken (8,000 to 192,000 Hz, 1 to 8 channels, no ADPCM) or a WAV is cut; with ``input_too_large`` past
    ``seconds_max`` or ``samples_max``, which are counted while decoding. A WAV written as a stream, without a length
    in its header, is taken to its end. RF64, RIFX and W64 are not taken, nor is an MP3 behind zeros or anything but ID3
    tags. Of a damaged MP3 libmpg123 also writes a line to the worker's standard error.

    Options:

        input: the file; without it the latest audio field, else bytes field (the name of a field, 1 to 256 printable characters)
        output: where the samples go (the name of a field, 1 to 256 printable characters)
        rate_hz: samples a second of the result (an integer from 8000 to 192000)
        seconds_max: longer sound is refused; more than 0, at most 86400 (a finite number)
        samples_max: sound of more samples, counted over all channels at the file's own rate, is refused: 600 s of 48 kHz stereo (an integer from 1 to 132710400000)
        channels_max: sound of more channels is refused (an integer from 1 to 8)
        channel: take this channel, 0 = the first; without it the mean of all (an integer from 0 to 7)
        truncated: what a cut or damaged file gets; accept: what can be decoded of it ("refuse" or "accept")"""

def decode_boxes(
    file: str | PathLike[str] | None = None,
    *,
    input: str | None = None,
    layout: Literal["yolov8", "yolov5", "end_to_end", "separate"] = "yolov8",
    attributes: Literal["first", "last"] | None = None,
    scores_input: str | None = None,
    form: Literal["xyxy", "cxcywh", "xywh"] | None = None,
    scale: Sequence[float] | None = None,
    image: str | None = None,
    score_min: float = 0.25,
    every_class: bool = False,
    background: Literal["first", "last"] | None = None,
    names: Sequence[str] | None = None,
    class_count: int | None = None,
    rest: str | None = None,
    boxes: str = "boxes",
    scores: str = "scores",
    classes: str = "classes",
    texts: str | None = None,
) -> Step:
    """Turns what a detector answers into boxes in pixels, the score of each and its class, in the detector's order.

    Layouts of ``input``: "yolov8" (also YOLO11 and alike), [4 + classes, boxes], scores after the box; "yolov5",
    [boxes, 5 + classes], objectness after the box, which multiplies the scores; "end_to_end" (YOLOv10, YOLO26),
    [boxes, 6] with x1, y1, x2, y2, score, class; "separate" (SSD, DETR), boxes [boxes, 4] in ``input`` and scores
    [boxes, classes] in ``scores_input``. A box has its best class, of equal ones the lower.

    Makes ``boxes`` ragged FP32 [-1, 4] (x1, y1, x2, y2), ``scores`` ragged FP32 [-1], ``classes`` ragged INT64 [-1];
    with ``names`` or ``file`` also ``texts``, a list of text; with ``rest`` that, ragged FP32 [-1, numbers]. NaN among
    the scores, or a kept box that is not finite, fails the row. The boxes of one thing still overlap: ``nms`` is next.

    Options:

        input: the output; without it the latest floating tensor with two axes (the name of a field, 1 to 256 printable characters)
        layout: how the output is laid out ("yolov8" or "yolov5" or "end_to_end" or "separate")
        attributes: the axis of a box's own numbers; without it "first" for yolov8, else "last" ("first" or "last")
        scores_input: the scores of the separate layout (the name of a field, 1 to 256 printable characters)
        form: how a box is written; without it cxcywh for yolov8 and yolov5, else xyxy ("xyxy" or "cxcywh" or "xywh")
        scale: [width, height] that boxes are multiplied by: the picture's size when they are from 0 to 1 (a list of 1 to 100000, each a finite number)
        image: a decoded picture whose size is taken instead of scale (the name of a field, 1 to 256 printable characters)
        score_min: the least score a box is kept with (a finite number)
        every_class: keep a box once for each class that reaches score_min (true or false)
        background: the class that means nothing is there, in the separate layout; it is left out ("first" or "last")
        file: a UTF-8 file with the classes' names, one a line (the name of a file in the pipeline's folder)
        names: the classes' names, instead of a file (a list of 1 to 100000, each text)
        class_count: the number of classes, where no names say it (an integer from 1 to 1000000)
        rest: where the numbers after the class scores go (mask coefficients, points of a body) (the name of a field, 1 to 256 printable characters)
        boxes: where the boxes go (the name of a field, 1 to 256 printable characters)
        scores: where their scores go (the name of a field, 1 to 256 printable characters)
        classes: where their class numbers go (the name of a field, 1 to 256 printable characters)
        texts: where their classes' names go, by default "names" (the name of a field, 1 to 256 printable characters)"""

def decode_grid(
    *,
    input: str | None = None,
    offsets_input: str | None = None,
    layout: Literal["chw", "hwc", "cwh", "whc"] = "chw",
    channel: int = -1,
    stride: int,
    cell: int,
    score_min: float = 0.5,
    count_max: int = 100000,
    boxes: str = "boxes",
    scores: str = "scores",
    offsets: str | None = None,
) -> Step:
    """Makes boxes of the cells of a grid whose score reaches ``score_min``, row by row from the top left.

    The cell in column x and row y of the grid is the box from (x * ``stride``, y * ``stride``), ``cell`` pixels wide
    and high, of the picture that the network saw. Its score is the ``channel`` of ``input``. ``offsets_input``, a grid
    of the same size with 4 channels, says how the sides of each box are to be moved, which ``refine_boxes`` does.
    MTCNN's P-Net: ``stride = 2, cell = 12, score_min = 0.6``.

    Makes ``boxes`` ragged FP32 [-1, 4] (x1, y1, x2, y2), ``scores`` ragged FP32 [-1] and, with ``offsets_input``,
    ``offsets`` ragged FP32 [-1, 4]. A NaN among the scores, or an offset of a box that is not finite, fails the
    row, and so do more boxes than ``count_max``. Boxes of one thing still overlap: ``nms`` is next.

    Options:

        input: the grid of scores; without it the latest grid (the name of a field, 1 to 256 printable characters)
        offsets_input: the grid of offsets (the name of a field, 1 to 256 printable characters)
        layout: the order of the axes: channels, height, width ("chw" or "hwc" or "cwh" or "whc")
        channel: which channel of scores counts; -1 is the last (an integer from -1 to 1000000)
        stride: pixels from one cell to the next (an integer from 1 to 65535)
        cell: pixels that a cell sees in each direction (an integer from 1 to 65535)
        score_min: the least score (a finite number)
        count_max: the most boxes of one row (an integer from 1 to 1000000)
        boxes: where the boxes go (the name of a field, 1 to 256 printable characters)
        scores: where their scores go (the name of a field, 1 to 256 printable characters)
        offsets: where their offsets go, by default "offsets" (the name of a field, 1 to 256 printable characters)"""

def decode_image(
    *,
    input: str | None = None,
    output: str = "image",
    color: Literal["rgb", "gray"] = "rgb",
    background: Sequence[int] = (255, 255, 255),
    pixels_max: int = 25000000,
    aspect_max: int = 200,
    draft: int = 0,
) -> Step:
    """Decodes JPEG, PNG, WebP, GIF (its first frame) and plain BMP, known by their content, to RGB or grey pixels.

    Makes ragged UINT8 [height, width, 3], with ``color = "gray"`` [height, width, 1] (ITU-R 601-2 luma). EXIF
    orientation is applied; transparent pixels are laid over ``background``; 16 bits become 8 by /257, rounded; CMYK as
    Pillow does it; colour profiles are not applied. A JPEG may be progressive or arithmetic-coded; one whose data is
    flawed yet complete comes out as libjpeg repairs it. ``draft`` lets a JPEG be decoded at 1/2, 1/4 or 1/8 while both
    sides stay at least that long: several times quicker, and pixels differ a little from those of a full decode
    resized.

    A row fails with ``image_truncated``; ``image_invalid`` (no such image, or damaged); ``input_too_large`` (over
    ``pixels_max`` by its header, or a JPEG with very many scans); ``out_of_range`` (a side over ``aspect_max`` times
    the other); ``missing_field``.

    Options:

        input: the encoded image; without it the latest image field, else bytes (the name of a field, 1 to 256 printable characters)
        output: where the pixels go (the name of a field, 1 to 256 printable characters)
        color: three channels or one ("rgb" or "gray")
        background: [red, green, blue] behind transparency (a list of 1 to 100000, each an integer from 0 to 255)
        pixels_max: the most pixels, width times height (an integer from 1 to 178956970)
        aspect_max: how many times the shorter side the longer may be (an integer from 1 to 65535)
        draft: the least side that is still needed; 0 = decode in full (an integer from 0 to 65535)"""

def draw_boxes(
    *,
    image: str | None = None,
    input: str | None = None,
    names: str | None = None,
    scores: str | None = None,
    classes: str | None = None,
    points: str | None = None,
    count_max: int = 1000,
    output: str = "drawing",
) -> Step:
    """Draws boxes or quads and what they are onto the picture: ``output``, the bytes of a PNG file (RGB).

    The colour follows the class number or else the name; lines and letters grow with the picture. The same input gives
    the same bytes. A row fails when ``names``, ``scores``, ``classes`` or ``points`` has another number of elements
    than there are boxes, when a box or a point is not finite, and when there are more boxes than ``count_max``.

    Options:

        image: the picture; without it the latest decoded one (the name of a field, 1 to 256 printable characters)
        input: the boxes or quads; without it the latest such field (the name of a field, 1 to 256 printable characters)
        names: what to write at each box (the name of a field, 1 to 256 printable characters)
        scores: the scores to write behind it (the name of a field, 1 to 256 printable characters)
        classes: the class numbers, for the colours (the name of a field, 1 to 256 printable characters)
        points: points of each box (ragged FP32 [-1, points, 2]), such as landmarks (the name of a field, 1 to 256 printable characters)
        count_max: the most boxes of one picture (an integer from 1 to 100000)
        output: where the file goes (the name of a field, 1 to 256 printable characters)"""

def encode_image(
    *,
    input: str | None = None,
    format: Literal["png", "jpeg"] = "png",
    quality: int | None = None,
    output: str = "encoded",
) -> Step:
    """Turns a decoded picture into the bytes of a PNG or JPEG file: ``output``, an image.

    It has 1 (grey) or 3 (RGB) channels. A picture without pixels fails its row, as does one too large for JPEG.

    Options:

        input: the picture; without it the latest decoded one (the name of a field, 1 to 256 printable characters)
        format: the kind of file ("png" or "jpeg")
        quality: of JPEG; without it 90 (an integer from 1 to 100)
        output: where the file goes (the name of a field, 1 to 256 printable characters)"""

def expand(
    over: Mapping[str, str],
    *,
    keep: Sequence[str] = (),
    count_max: int = 1000,
) -> Step:
    """Makes each element of a row's lists a row of its own, until ``fold``: detections, documents, pages.

    The lists of one row are of equal length, which may be 0. Inside, there are their elements, under the names that
    ``over`` gives (texts: a text; ragged or tensor [n, ...]: a tensor [...]; JSON: a JSON value), and the fields in
    ``keep``, repeated. Lists of unequal length or more than ``count_max`` elements fail their row, as does a JSON value
    that is no list.

    Options:

        over: list field = the name of one element of it (a table of 1 to 100000 names, each the name of a field, 1 to 256 printable characters)
        keep: fields of the row that the elements need (a list of 1 to 100000 different ones, each the name of a field, 1 to 256 printable characters)
        count_max: the most elements of one row (an integer from 1 to 1000000)"""

def fill(
    values: Mapping[str, float | str],
) -> Step:
    """Puts a fixed value where a number or category is missing. No row fails.

    Options:

        values: {column = value} (a table of 1 to 100000 names, each a finite number or text)"""

def first_token(
    *,
    input: str | None = None,
    mask: str = "attention_mask",
    output: str = "embedding",
) -> Step:
    """The vector of a text's first token that its mask keeps, such as BERT's [CLS]; FP32 [hidden].

    It is what sentence-transformers calls pooling_mode_cls_token (BGE and others). A row that keeps no token fails.
    Vectors and mask may both be ragged (``tokenize`` with ``pad = "row"``).

    Options:

        input: [tokens, hidden]; without it the latest such tensor (the name of a field, 1 to 256 printable characters)
        mask: [tokens], 0 where a token does not count (the name of a field, 1 to 256 printable characters)
        output: where the vector goes (the name of a field, 1 to 256 printable characters)"""

def fold(
    *,
    lists: Mapping[str, str] | None = None,
    join: Mapping[str, str] | None = None,
    records: str | None = None,
    fields: Sequence[str] = (),
    pool: Mapping[str, Literal["mean", "max", "min", "sum", "first", "last"]] | None = None,
    best: str | None = None,
    keep: Sequence[str] = (),
) -> Step:
    """Makes rows of their elements again; every field of the row from before ``expand`` is back.

    ``lists`` keeps all elements of a field as one list (tensors: ragged [n, ...]; text: texts; JSON: JSON); ``join``
    puts the lists of all elements one behind the other (the boxes found in each copy or tile of an image);
    ``records`` makes one JSON list of objects of ``fields``, in order; ``pool`` joins the numbers of all elements into
    one tensor; ``best`` keeps ``fields`` of the element with the greatest ``by``, of equal ones the first. A row
    without elements gets empty lists; with ``pool`` or ``best`` it fails.

    Options:

        lists: element field = list field (a table of 1 to 100000 names, each the name of a field, 1 to 256 printable characters)
        join: list field of an element = list field (a table of 1 to 100000 names, each the name of a field, 1 to 256 printable characters)
        records: the JSON list of objects (the name of a field, 1 to 256 printable characters)
        fields: what each object holds (a list of 1 to 100000 different ones, each the name of a field, 1 to 256 printable characters)
        pool: element field = how (a table of 1 to 100000 names, each "mean" or "max" or "min" or "sum" or "first" or "last")
        best: the field whose greatest number picks the element (the name of a field, 1 to 256 printable characters)
        keep: what is kept of that element (a list of 1 to 100000 different ones, each the name of a field, 1 to 256 printable characters)"""

def frames(
    *,
    input: str | None = None,
    output: str = "frame",
    rate_hz: int,
    length: int,
    hop: int | None = None,
    context: int = 0,
    tail: Literal["pad", "drop", "carry"] = "pad",
    frames_max: int = 20000,
) -> Step:
    """Cuts samples into frames of ``length`` that begin every ``hop``; from here on a row is one frame.

    Takes FP32 [-1], ragged or a tensor. Makes ``output``, FP32 [context + length]: the ``context`` samples before the
    frame (zeros before the beginning), then the frame; and ``start_s`` and ``end_s``, FP64: where the frame, without
    its context, begins and where its last sample ends. In a sequence context and time go on from request to request.
    ``tail`` says what becomes of samples left at the end of a request: padded with zeros to a last frame, dropped, or
    carried to the sequence's next request and padded in its last, so that the frames are those of the whole sound
    however it was cut (a row outside a sequence is a whole sound). More than ``frames_max`` frames fail a row with
    ``input_too_large``.

    Options:

        input: the samples; without it the latest field of this kind (the name of a field, 1 to 256 printable characters)
        output: where the frames go (the name of a field, 1 to 256 printable characters)
        rate_hz: samples a second, to tell the time (an integer from 1 to 192000)
        length: samples of a frame, without its context (an integer from 1 to 10000000)
        hop: samples from one frame's beginning to the next; without it length (an integer from 1 to 10000000)
        context: samples of the past in front of each frame (an integer from 0 to 10000000)
        tail: what becomes of an incomplete last frame ("pad" or "drop" or "carry")
        frames_max: the most frames of one row (an integer from 1 to 1000000)"""

def gain(
    *,
    input: str | None = None,
    output: str | None = None,
    db: float | None = None,
    peak: float | None = None,
    rms: float | None = None,
) -> Step:
    """Makes sound louder or quieter: by ``db`` decibels, or so far that its ``peak`` or its ``rms`` is as given.

    Takes FP32 [-1], ragged or a tensor; makes ``output``, ragged FP32 [samples]; what goes beyond -1 or 1 is set to
    it. Silence stays silence. Peak and rms are of each row alone, also in a sequence. A sample that is not a finite
    number fails the row.

    Options:

        input: the samples; without it the latest field of this kind (the name of a field, 1 to 256 printable characters)
        output: where the result goes; without it, in place (the name of a field, 1 to 256 printable characters)
        db: decibels, from -120 to 120; 6.02 doubles (a finite number)
        peak: the greatest absolute sample of the result, above 0, at most 1 (a finite number)
        rms: the root of the mean square of the result, above 0, at most 1 (a finite number)"""

def guard(
    name: str,
    *,
    mode: Literal["block", "mask", "flag", "shadow"] = "block",
    fields: Sequence[str] = (),
    deny: Sequence[str] = (),
    allow: Sequence[str] = (),
    words: Sequence[str] = (),
    words_file: str | PathLike[str] = "",
    words_are: Literal["denied", "allowed"] = "denied",
    length_max: int | None = None,
    length_min: int | None = None,
    pii: Sequence[Literal["email", "phone", "iban", "card", "ip", "key"]] = (),
    schema: str | PathLike[str] = "",
) -> Step:
    """Looks for something in texts, and blocks the row, masks what it found, or tells. Exactly one check is given.

    Takes text, texts, categories, arrays of text and JSON; every text in these, the names in JSON objects too. In mode
    mask what was found is replaced in the field itself: `[email]` for personal data, else `[name]`. A row that is
    blocked fails with `guard_blocked`. What fired is told in a note named guard, never with the text; in mode shadow
    only receipt and metrics have it. Guards that belong around a whole pipeline are `[[guards]]`.

    Options:

        name: letters, digits, '.', '_' and '-': what verdicts and refusals call it (text)
        mode: what is done with what is found ("block" or "mask" or "flag" or "shadow")
        fields: which fields; unset, every one with text (a list of 1 to 100000 different ones, each the name of a field, 1 to 256 printable characters)
        deny: regular expressions (RE2) that must match nothing (a list of 1 to 100000, each text)
        allow: of which one must match the whole text (a list of 1 to 100000, each text)
        words: words and phrases, however they are written (a list of 1 to 100000, each text)
        words_file: the same, one a line of a UTF-8 file (the name of a file in the pipeline's folder)
        words_are: allowed: every other word is found ("denied" or "allowed")
        length_max: characters of a text (an integer from 0 to 1099511627776)
        length_min: characters of a text (an integer from 0 to 1099511627776)
        pii: personal data and secrets (a list of 1 to 100000 different ones, each "email" or "phone" or "iban" or "card" or "ip" or "key")
        schema: JSON schema that JSON, or a text of it, must fit (the name of a file in the pipeline's folder)"""

def image_pyramid(
    *,
    input: str | None = None,
    output: str = "copy",
    scale: str = "scale",
    largest: float = 1.0,
    factor: float = 0.709,
    side_min: int = 12,
    method: Literal["bilinear", "bicubic", "area", "nearest", "lanczos"] = "bilinear",
    antialias: bool = True,
    pixels_max: int = 25000000,
) -> Step:
    """Makes smaller and smaller copies of a decoded image; from here on, until ``fold``, a row is one copy.

    The first is ``largest`` times as large as the image, each other ``factor`` times as large as the one before, down
    to the last whose shorter side, not yet rounded, is at least ``side_min``: none of an image that is too small. Sides
    are rounded up. MTCNN, which sees 12 pixels, finds faces of 20 with ``largest = 0.6`` (12 / 20).

    Makes ``output``, ragged UINT8 [height, width, channels], and ``scale``, FP32 [2]: x and y of original / copy, so a
    box found in the copy, multiplied by it (``map_boxes``), is one of the original. ``method`` and ``antialias`` are
    those of ``resize_image``. A copy over ``pixels_max`` fails the row.

    Options:

        input: the image; without it the latest decoded one (the name of a field, 1 to 256 printable characters)
        output: where a copy goes (the name of a field, 1 to 256 printable characters)
        scale: a field for original / copy of x and y (the name of a field, 1 to 256 printable characters)
        largest: size of the first copy, above 0, at most 16 (a finite number)
        factor: size of each copy to the one before, 0.1 to 0.95 (a finite number)
        side_min: the least shorter side of a copy (an integer from 1 to 65535)
        method: the filter's name ("bilinear" or "bicubic" or "area" or "nearest" or "lanczos")
        antialias: widen the filter when shrinking; false only with bilinear (true or false)
        pixels_max: the most pixels of a copy (an integer from 1 to 178956970)"""

def image_tensor(
    *,
    input: str | None = None,
    output: str = "tensor",
    color: Literal["rgb", "bgr", "gray"] = "rgb",
    scale: float = 1.0,
    mean: Sequence[float] = (0.0,),
    std: Sequence[float] = (1.0,),
    layout: Literal["chw", "hwc", "cwh", "whc"] = "chw",
    datatype: Literal["FP32", "FP16", "UINT8"] = "FP32",
    size: Sequence[int] | None = None,
    width_buckets: Sequence[int] = (),
    sides_multiple: int = 1,
    pad: float = 0.0,
) -> Step:
    """Turns a decoded image into numbers: ``(level * scale - mean) / std`` for each channel, computed as a * level + b.

    Computed in float32, within 3e-7 of the greater of |level * scale / std| and |mean / std|. ``mean`` and ``std`` are
    in the order of ``color``, one for each channel or one for all. Makes ``datatype`` [channels, height,
    width] ("chw") or in another order of these axes: one tensor of all rows when ``size`` says what every image
    measures (another fails its row with ``shape_mismatch``), else ragged, -1 in place of height and width.

    Ragged images can be padded at their right and bottom with ``pad`` (a value of the tensor, after mean and std):
    ``width_buckets`` to the next of these widths, so that few shapes reach the model (a wider one fails its row with
    ``input_too_large``); ``sides_multiple`` to the next multiple of both sides.

    Options:

        input: the image; without it the latest decoded one (the name of a field, 1 to 256 printable characters)
        output: where the numbers go (the name of a field, 1 to 256 printable characters)
        color: which channels, in which order ("rgb" or "bgr" or "gray")
        scale: what levels (0 to 255) are multiplied with first, e.g. 0.00392156862745098 (a finite number)
        mean: subtracted then (a list of 1 to 100000, each a finite number)
        std: what is divided by last (a list of 1 to 100000, each a finite number)
        layout: the order of the axes: channels, height, width ("chw" or "hwc" or "cwh" or "whc")
        datatype: of the numbers ("FP32" or "FP16" or "UINT8")
        size: [width, height] of every image (a list of 2 to 100000, each an integer from 1 to 65535)
        width_buckets: widths to pad up to, ascending (a list of 1 to 100000, each an integer from 1 to 65535)
        sides_multiple: both sides are padded to a multiple of this (an integer from 1 to 4096)
        pad: the value of what is padded (a finite number)"""

def item_vectors(
    vectors: str | PathLike[str],
    *,
    input: str | None = None,
    items: str | PathLike[str],
    id: str = "id",
    output: str = "embedding",
) -> Step:
    """The mean of the vectors of the items that a caller names, FP32 [size]: what somebody who likes these is like.

    The files are those of ``nearest``. An item named twice counts twice. A missing id, an empty list and an id that the
    catalogue does not have refuse the row, naming it.

    Options:

        input: the ids (text, category or texts); without it the latest such field (the name of a field, 1 to 256 printable characters)
        vectors: the items' vectors, a .npy file of FP32 [items, size] (the name of a file in the pipeline's folder)
        items: the items, one JSON object a line (the name of a file in the pipeline's folder)
        id: the key of an item's id, a text of its own (text)
        output: where the mean goes (the name of a field, 1 to 256 printable characters)"""

def join_texts(
    *,
    input: str | None = None,
    output: str = "text",
    separator: str = " ",
) -> Step:
    """Makes one text of a list of texts, such as ``fold`` makes of the windows of a sound or the lines of a page.

    Takes texts; makes ``output``, a text: all that are not empty, in their order, with ``separator`` between. Of a list
    without any it is the empty text. No row fails.

    Options:

        input: the texts; without it the latest field of this kind (the name of a field, 1 to 256 printable characters)
        output: where the text goes (the name of a field, 1 to 256 printable characters)
        separator: what stands between two (text)"""

def l2_norm(
    *,
    input: str | None = None,
    output: str | None = None,
) -> Step:
    """Divides vectors by their length (over the last axis), keeping their datatype. A zero vector stays zero;
    NaN goes through, and no row fails.

    Options:

        input: the vectors; without it the latest floating tensor (the name of a field, 1 to 256 printable characters)
        output: where the result goes; without it, in place (the name of a field, 1 to 256 printable characters)"""

def label_set(
    file: str | PathLike[str] | None = None,
    *,
    input: str | None = None,
    names: Sequence[str] | None = None,
    score_min: float = 0.5,
    score_min_file: str | PathLike[str] | None = None,
    top: int | None = None,
    output: str = "labels",
    score: str = "scores",
) -> Step:
    """Every label whose score reaches its own least score, best first; of equal ones the lower place. It may be none.

    ``output`` is a list of texts, ``score`` ragged FP32 [-1] of the same length. Scores are compared in their own
    precision. In ``score_min_file`` a label not listed takes ``score_min``. A NaN among the scores fails the row.

    Options:

        input: the scores; without it the latest floating tensor [labels] (the name of a field, 1 to 256 printable characters)
        file: a UTF-8 file with one label a line (the name of a file in the pipeline's folder)
        names: the labels, instead of a file (a list of 1 to 100000, each text)
        score_min: the least score (a finite number)
        score_min_file: a JSON file {label: least score} (the name of a file in the pipeline's folder)
        top: how many labels come back at most (an integer from 1 to 1000000)
        output: where the labels go (the name of a field, 1 to 256 printable characters)
        score: where their scores go (the name of a field, 1 to 256 printable characters)"""

def labels(
    file: str | PathLike[str] | None = None,
    *,
    input: str | None = None,
    names: Sequence[str] | None = None,
    top: int = 1,
    output: str = "label",
    score: str = "score",
) -> Step:
    """The names and scores of the greatest scores of the last axis, best first; of equal ones the lower place.

    ``top = 1`` gives one label and one FP32 score, a greater ``top`` lists of that length. There must be as many
    labels as scores. A NaN among the scores fails the row.

    Options:

        input: the scores; without it the latest floating tensor (the name of a field, 1 to 256 printable characters)
        file: a UTF-8 file with one label a line (the name of a file in the pipeline's folder)
        names: the labels, instead of a file (a list of 1 to 100000, each text)
        top: how many labels come back (an integer from 1 to 1000000)
        output: where the labels go (the name of a field, 1 to 256 printable characters)
        score: where their scores go (the name of a field, 1 to 256 printable characters)"""

def letterbox_image(
    *,
    input: str | None = None,
    output: str | None = None,
    width: int,
    height: int,
    fill: int | Sequence[int] = 114,
    align: Literal["center", "top_left"] = "center",
    enlarge: bool = True,
    rounding: Literal["down", "nearest", "up"] = "nearest",
    method: Literal["bilinear", "bicubic", "area", "nearest", "lanczos"] = "bilinear",
    antialias: bool = True,
    place: str | None = None,
) -> Step:
    """Fits a decoded image into ``width`` x ``height`` in proportion and fills the rest, as YOLO models want it.

    Makes ragged UINT8 [height, width, channels] and, if ``place`` names a field, FP32 [4]: scale x, scale y, offset x,
    offset y, in pixels of the frame. A point of the frame is one of the original by
    ``original = (point - offset) / scale`` for x and y each; the scales are resized / original and differ by rounding
    alone. The defaults are ultralytics' letterbox without antialias; ``align = "top_left", rounding = "down"`` YOLOX's.
    A row fails when its image has no pixels (`bad_output_shape`).

    Options:

        input: the image; without it the latest decoded one (the name of a field, 1 to 256 printable characters)
        output: where the result goes; without it, in place (the name of a field, 1 to 256 printable characters)
        width: the width of the frame (an integer from 1 to 8192)
        height: the height of the frame (an integer from 1 to 8192)
        fill: the level or levels of what the image does not cover (an integer from 0 to 255 or a list of 1 to 100000, each an integer from 0 to 255)
        align: where the image lies ("center" or "top_left")
        enlarge: also make small images larger (true or false)
        rounding: how the sides of the resized image are rounded ("down" or "nearest" or "up")
        method: the filter, as in resize_image ("bilinear" or "bicubic" or "area" or "nearest" or "lanczos")
        antialias: as in resize_image; false = OpenCV's INTER_LINEAR (true or false)
        place: a field for scale x, scale y, offset x, offset y (the name of a field, 1 to 256 printable characters)"""

def log_mel(
    *,
    input: str | None = None,
    output: str = "log_mel",
    rate_hz: int = 16000,
    bins: int = 80,
    window: int = 400,
    hop: int = 160,
    low_hz: float = 0.0,
    high_hz: float | None = None,
    scale: Literal["slaney", "htk"] = "slaney",
    norm: Literal["slaney", "none"] = "slaney",
    log: Literal["whisper", "natural", "db"] = "whisper",
    seconds: float | None = None,
) -> Step:
    """The log-mel spectrogram of samples; the defaults are Whisper's.

    Takes FP32 [-1], ragged or a tensor. Makes ``output``, ragged FP32 [bins, frames]: power in ``bins`` triangular mel
    bands from ``low_hz`` to ``high_hz``, of Hann windows centred on every ``hop``-th sample (the ends mirrored), then
    its logarithm: "natural", "db" (10 log10), each of at least 1e-10, or "whisper": log10, lifted to 8 below the row's
    greatest, plus 4, divided by 4, and without the last frame. There are samples // hop frames then, else one more; of
    an odd window (samples - 1) // hop. With ``seconds`` each row is first filled up with silence or cut (note
    "truncated") to that length, and the output is an FP32 tensor of fixed shape: 30 make Whisper's [80, 3000]. Samples
    too few to mirror fail their row with ``invalid_input``, and samples that are no finite numbers, or too large to
    have a power, fail it too. Source: Radford et al. 2022, section 2.2; Slaney 1998 (scale); O'Shaughnessy 1987 (htk).

    Options:

        input: the samples; without it the latest field of this kind (the name of a field, 1 to 256 printable characters)
        output: where the spectrogram goes (the name of a field, 1 to 256 printable characters)
        rate_hz: samples a second (an integer from 1 to 192000)
        bins: how many mel bands (an integer from 1 to 1024)
        window: samples of a window, and size of its Fourier transform (an integer from 2 to 65536)
        hop: samples from one window to the next (an integer from 1 to 65536)
        low_hz: where the lowest band begins (a finite number)
        high_hz: where the highest band ends; without it half the rate (a finite number)
        scale: the mel scale ("slaney" or "htk")
        norm: slaney: each band divided by half its width in hertz ("slaney" or "none")
        log: the logarithm ("whisper" or "natural" or "db")
        seconds: the length of every row; above 0, at most 3600 (a finite number)"""

def map_boxes(
    *,
    input: str | None = None,
    place: str | None = None,
    scale: str | None = None,
    image: str | None = None,
    output: str | None = None,
) -> Step:
    """Brings boxes, quads or points from the picture the model saw back to the original one.

    With ``place`` (FP32 [4]: scale x, scale y, offset x, offset y, as letterbox_image makes it) a coordinate becomes
    (coordinate - offset) / scale; with ``scale`` (FP32 [2]) it is multiplied. With ``image``, the original, what lies
    outside of it is moved to its edge. A coordinate that is not finite, or a scale that is not above 0, fails the row.

    Options:

        input: boxes, quads or points; without it the latest such field (the name of a field, 1 to 256 printable characters)
        place: where the original lies in a letterboxed picture (the name of a field, 1 to 256 printable characters)
        scale: the original's size divided by the resized one's (the name of a field, 1 to 256 printable characters)
        image: the original, to whose size the result is clipped (the name of a field, 1 to 256 printable characters)
        output: where the result goes; without it, in place (the name of a field, 1 to 256 printable characters)"""

def mask_polygons(
    *,
    input: str | None = None,
    threshold: float = 0.5,
    area_min: float = 0.0,
    epsilon: float = 0.0,
    count_max: int = 1000,
    scale: str | None = None,
    image: str | None = None,
    output: str = "polygons",
) -> Step:
    """Finds the areas of a map [height, width] whose scores are above ``threshold``; their outer outlines, largest first.

    Makes a JSON list of polygons, each a list of [x, y] through the centres of the pixels at its edge, in pixels of the
    map or, with ``scale`` (FP32 [2]) or ``image``, of the original. Holes are not followed; what is only a point or a
    line is left out. A map that holds NaN or marks over 100,000 areas fails its row, as does a scale that is not above
    0. OpenCV's findContours and approxPolyDP do the work.

    Options:

        input: the map of scores; without it the latest such field (the name of a field, 1 to 256 printable characters)
        threshold: a pixel belongs to an area when its score is above this (a finite number)
        area_min: the least area of a polygon, in pixels of the map (a finite number)
        epsilon: how far, in pixels of the map, a simpler outline may be from the real one (a finite number)
        count_max: the most polygons that come back (an integer from 1 to 100000)
        scale: the original's size divided by the map's (the name of a field, 1 to 256 printable characters)
        image: the original, instead of scale (the name of a field, 1 to 256 printable characters)
        output: where the polygons go (the name of a field, 1 to 256 printable characters)"""

def mean_pool(
    *,
    input: str | None = None,
    mask: str = "attention_mask",
    output: str = "embedding",
) -> Step:
    """The mean of a text's token vectors over the tokens its mask keeps. A row that keeps none fails.

    Vectors and mask may both be ragged (``tokenize`` with ``pad = "row"``).

    Options:

        input: [tokens, hidden]; without it the latest such tensor (the name of a field, 1 to 256 printable characters)
        mask: [tokens], 0 where a token does not count (the name of a field, 1 to 256 printable characters)
        output: where the mean goes (the name of a field, 1 to 256 printable characters)"""

def merge_spans(
    *,
    input: str | None = None,
    output: str | None = None,
) -> Step:
    """One list of the lists of spans that the windows of a text gave, in the text's order.

    Of spans that overlap, as in the part that two windows share, the longer stays, of equally long ones that of the
    greater score: as the TokenClassificationPipeline of transformers does. JSON that is no list of lists of spans
    fails its row (`step_failed`).

    Options:

        input: a json list of lists of spans; without it the latest json field (the name of a field, 1 to 256 printable characters)
        output: where the list goes; without it, in place (the name of a field, 1 to 256 printable characters)"""

def model(
    file: str | PathLike[str],
    *,
    engine: str | None = None,
    inputs: Mapping[str, Any] | None = None,
    outputs: Mapping[str, Any] | None = None,
    state: Mapping[str, str] | None = None,
    constants: Mapping[str, Any] | None = None,
    tolerance: Any = None,
    optimization: Any = "all",
    spinning: Any = False,
    precision: Any = "fp32",
    call: Any = "Model",
    batched: Any = True,
) -> Step:
    """Runs ``file`` in ``engine``. Graph inputs take the fields of their names; a single one the latest that fits.
    ``inputs`` and ``outputs`` map names of the graph to fields; own code declares its whole signature with them.
    Inputs in ``state`` take an output of the step before, zeros at first: steps are the elements of a row in their order,
    or with [sequence] the requests of one sequence. One axis of a state is free, that of the rows.

    Makes a field of each graph output, of its datatype and shape; ragged where a ragged input left that open. A row
    fails with `missing_field` or `invalid_utf8` (text that is none), `shape_mismatch` (a size the graph does not take),
    `engine_failed`, `engine_out_of_memory`, or `bad_output_shape` (another answer than the graph declares).

    Options:

        engine: the runtime (text)
        file: the model file (the name of a file in the pipeline's folder)
        inputs: graph input = field (a table)
        outputs: graph output = field (a table)
        state: graph input = the graph output of the step before (a table of 1 to 100000 names, each the name of a field, 1 to 256 printable characters)
        constants: graph input = what it is in every call (a table of 1 to 100000 names, each a value: a number, text, true, false, or lists of these)
        tolerance: of the engine auto (what answers may differ by from onnxruntime's: { absolute = 0.001, cosine = 0.9999 }, or one of the two)
        optimization: of the engine onnxruntime ("all" or "extended" or "basic" or "off")
        spinning: of the engine onnxruntime (true or false)
        precision: of the engine openvino ("fp32" or "bf16")
        call: of the engine python (the name of a class or function in the file)
        batched: of the engine python (true or false)"""

def nearest(
    vectors: str | PathLike[str],
    *,
    input: str | None = None,
    items: str | PathLike[str],
    metric: Literal["cosine", "dot"] = "cosine",
    top: int = 10,
    score_min: float | None = None,
    exclude: str | None = None,
    id: str | None = None,
    score: str = "score",
    output: str = "nearest",
) -> Step:
    """The catalogue's items most like a vector, best first and of equal ones the earlier in the file first: a json list
    of the items' own objects, each with its score.

    ``vectors`` is a NumPy file (.npy) of FP32 [items, size], ``items`` has one JSON object a line in the same order.
    The search is exact, up to 1 000 000 items. ``cosine`` is 0 where a vector has no length. A vector that is not finite
    fails the row.

    Options:

        input: the vector; without it the latest floating vector (the name of a field, 1 to 256 printable characters)
        vectors: the items' vectors, a .npy file (the name of a file in the pipeline's folder)
        items: the items, one JSON object a line (the name of a file in the pipeline's folder)
        metric: how they are compared ("cosine" or "dot")
        top: how many items come back at most (an integer from 1 to 10000)
        score_min: the least score that comes back (a finite number)
        exclude: ids that must not come back (text, category or texts); others than the catalogue's are fine (the name of a field, 1 to 256 printable characters)
        id: the key of an item's id, a text of its own, by default "id" (text)
        score: the key that an item's score gets (text)
        output: where the list goes (the name of a field, 1 to 256 printable characters)"""

def nms(
    *,
    boxes: str = "boxes",
    scores: str = "scores",
    classes: str | None = None,
    also: Sequence[str] | None = None,
    iou_max: float = 0.45,
    share_of: Literal["union", "smaller"] = "union",
    across_classes: bool = False,
    count_max: int = 300,
    score_min: float | None = None,
) -> Step:
    """Keeps the best boxes and drops each that overlaps a better one by more than ``iou_max``; in place, best first.

    Greedy suppression by intersection over union, as torchvision and OpenCV do it, or with ``share_of = "smaller"``
    by intersection over the smaller box, which also drops a part of a thing; of equal scores the box that stood first
    wins. Only boxes of one class suppress each other. ``boxes`` ragged FP32 [-1, 4], ``scores`` ragged FP32 [-1], the
    class numbers and each field of ``also`` keep the elements of the boxes that stay. A row fails when one of
    these has another number of elements, and when a score is NaN or a box not finite.

    Options:

        boxes: the boxes, x1, y1, x2, y2 (the name of a field, 1 to 256 printable characters)
        scores: their scores (the name of a field, 1 to 256 printable characters)
        classes: their class numbers, by default "classes" unless across_classes (the name of a field, 1 to 256 printable characters)
        also: further fields with one element a box; without it "names" and "classes" where there are such (a list of 1 to 100000 different ones, each the name of a field, 1 to 256 printable characters)
        iou_max: the overlap that is still allowed, 0 to 1 (a finite number)
        share_of: what the shared area is divided by: both boxes' area, or the smaller box's ("union" or "smaller")
        across_classes: let boxes suppress those of other classes too (true or false)
        count_max: the most boxes that stay (an integer from 1 to 100000)
        score_min: the least score that stays (a finite number)"""

def normalize_text(
    *,
    input: str | None = None,
    output: str | None = None,
    form: Literal["NFC", "NFKC", "none"] = "NFC",
    lower: bool = False,
    strip: bool = False,
    collapse_spaces: bool = False,
) -> Step:
    """Brings text into one form: Unicode form, then lower case, then white space. A missing value stays missing.

    More than 256 combining characters in a row, which no writing has, fail the row with ``invalid_input`` where there
    is a form to bring them into: putting them in order takes time that grows with the square of their number.

    Options:

        input: the text; without it the latest text field (the name of a field, 1 to 256 printable characters)
        output: where the result goes; without it, in place (the name of a field, 1 to 256 printable characters)
        form: the Unicode form ("NFC" or "NFKC" or "none")
        lower: turn capitals into small letters (true or false)
        strip: remove white space at both ends (true or false)
        collapse_spaces: make every run of white space one space (true or false)"""

def one_hot(
    categories: Mapping[str, tuple[str | float, ...]],
    *,
    unknown: Literal["zeros", "refuse"] = "refuse",
    missing: Literal["zeros", "refuse", "own"] = "refuse",
) -> Step:
    """Turns a category, or a number that names one, into a FP32 block with a one at its place in the training's order.

    What is missing is refused, gets zeros, or has a place of its own behind all others.

    Options:

        categories: {column = [categories in the training's order]} (a table of 1 to 100000 names, each a list of 1 to 100000 different ones, each text or a finite number)
        unknown: what any other category gets ("zeros" or "refuse")
        missing: what a missing one gets ("zeros" or "refuse" or "own")"""

def ordinal(
    categories: Mapping[str, tuple[str | float, ...]],
    *,
    unknown: float | Literal["refuse", "missing"] = "refuse",
    missing: float | Literal["refuse", "missing"] = "missing",
) -> Step:
    """Turns a category, or a number that names one, into its place (0, 1, ...) in the training's order.

    Makes FP64 in the column's place, NaN for missing. With "refuse" a row fails with `invalid_input` (no category of
    the training) or `missing_field`.

    Options:

        categories: {column = [categories in the training's order]} (a table of 1 to 100000 names, each a list of 1 to 100000 different ones, each text or a finite number)
        unknown: what any other category gets ("refuse" or "missing" or a finite number)
        missing: what a missing one gets ("refuse" or "missing" or a finite number)"""

def pcm_samples(
    *,
    input: str | None = None,
    output: str = "samples",
    rate_hz: int | None = None,
) -> Step:
    """Takes bytes as 16-bit little-endian PCM of one channel, as live streams send it.

    Makes ``output``, ragged FP32 [samples] from -1 to 1: a sample divided by 32,768. An odd number of bytes fails its
    row with ``audio_format``, also inside a sequence: each request holds whole samples. No bytes are no samples.
    With ``rate_hz`` a whole WAV of such samples at this rate is taken as well, for the samples in it; any other WAV
    fails its row with ``audio_format``, instead of being heard with its header as noise.

    Options:

        input: the bytes; without it the latest audio field, else bytes field (the name of a field, 1 to 256 printable characters)
        output: where the samples go (the name of a field, 1 to 256 printable characters)
        rate_hz: samples a second of a WAV that is taken; without it none is (an integer from 8000 to 192000)"""

def place_points(
    *,
    input: str | None = None,
    boxes: str = "boxes",
    order: Literal["xy", "xxyy"] = "xy",
    size: Sequence[float] = (1.0, 1.0),
    image: str | None = None,
    output: str = "points",
) -> Step:
    """Brings points that a network found in the crops of boxes (landmarks, joints) to the picture they were cut from.

    A point (x, y) of a crop whose box is x1, y1, x2, y2 is (x1 + x * width, y1 + y * height) of the picture, x and y
    divided by ``size`` first: [1, 1] where they are shares of the crop, the crop's size where they are pixels of it.
    ``order`` says how they are written: "xy", x1, y1, x2, y2, ...; "xxyy", first each x and then each y, as in MTCNN.

    Makes ``output`` ragged FP32 [-1, points, 2]; with ``image``, the picture, what lies outside of it is moved to its
    edge. A row fails when there is another number of them than of boxes, and when one is not finite.

    Options:

        input: the points; without it the latest such field (the name of a field, 1 to 256 printable characters)
        boxes: the boxes whose crops these are (the name of a field, 1 to 256 printable characters)
        order: how the numbers of a box are written ("xy" or "xxyy")
        size: [width, height] of a crop in the points' own unit (a list of 1 to 100000, each a finite number)
        image: the picture, to whose size the result is clipped (the name of a field, 1 to 256 printable characters)
        output: where the points go (the name of a field, 1 to 256 printable characters)"""

def rank(
    *,
    input: str | None = None,
    fields: Sequence[str] = (),
    top: int | None = None,
    score_min: float | None = None,
    output: str = "ranking",
) -> Step:
    """Orders a list by its scores, best first and of equal ones the lower index first: a json list of objects
    {index, score, …} with the element of each of ``fields`` under the field's name.

    A score that is not a finite number fails the row, and so does a field that has another number of elements.

    Options:

        input: the scores; without it the latest floating [elements] (the name of a field, 1 to 256 printable characters)
        fields: lists with one element for each score, to come along (a list of 1 to 100000 different ones, each the name of a field, 1 to 256 printable characters)
        top: how many come back at most; without it all (an integer from 1 to 10000)
        score_min: the least score that comes back (a finite number)
        output: where the list goes (the name of a field, 1 to 256 printable characters)"""

def recompress_image(
    *,
    input: str | None = None,
    output: str | None = None,
    quality: int = 75,
    subsampling: Literal["4:4:4", "4:2:2", "4:2:0"] = "4:2:0",
) -> Step:
    """Encodes a decoded image as JPEG with Pillow and decodes it again; ragged UINT8 of the same size.

    Open-NSFW's reference does so between its resize and its crop, at Pillow's defaults, which are the defaults here.
    An image with a side over 65,500 pixels, which JPEG has not, fails its row with ``input_too_large``.

    Options:

        input: the image; without it the latest decoded one (the name of a field, 1 to 256 printable characters)
        output: where the result goes; without it, in place (the name of a field, 1 to 256 printable characters)
        quality: JPEG quality (an integer from 1 to 100)
        subsampling: how much of the colour is kept ("4:4:4" or "4:2:2" or "4:2:0")"""

def records(
    fields: Mapping[str, str],
    *,
    output: str = "records",
) -> Step:
    """Makes one JSON list of objects of several lists: ``{ box = "boxes", score = "scores" }`` of boxes and scores.

    The lists of one row are of equal length, which may be 0; a tensor's first axis is such a list. FP32 becomes the
    JSON number with the fewest digits that is that FP32. Lists of unlike length, and a JSON value that is no list, fail
    their row: `bad_output_shape`, or `shape_mismatch` where the caller sent all of them.

    Options:

        fields: key of each object = list field (a table of 1 to 100000 names, each the name of a field, 1 to 256 printable characters)
        output: where the JSON goes (the name of a field, 1 to 256 printable characters)"""

def refine_boxes(
    *,
    boxes: str = "boxes",
    offsets: str | None = None,
    form: Literal["sides", "center"] | None = None,
    std: Sequence[float] | None = None,
    square: bool = False,
    output: str | None = None,
) -> Step:
    """Corrects boxes by the four numbers that a detector gives for each, and makes squares of them if told to.

    ``form`` "sides": x1, y1, x2 and y2 are moved by these shares of the box's width and height, as in MTCNN. "center":
    the centre is moved by the first two, and width and height are multiplied by exp of the last two, as in R-CNN.
    The numbers are multiplied by ``std`` first. ``square`` makes of each box then the square around its centre whose
    side is the longer one.

    Makes boxes ragged FP32 [-1, 4]. A row fails when there is another number of offsets than of boxes, and when a
    box becomes one that is not finite.

    Options:

        boxes: the boxes, x1, y1, x2, y2 (the name of a field, 1 to 256 printable characters)
        offsets: their offsets (ragged FP32 [-1, 4]); without it none are applied (the name of a field, 1 to 256 printable characters)
        form: by default "sides" ("sides" or "center")
        std: four numbers, by default 1 (a list of 1 to 100000, each a finite number)
        square: make squares (true or false)
        output: where the result goes; without it, in place (the name of a field, 1 to 256 printable characters)"""

def resample(
    *,
    input: str | None = None,
    output: str | None = None,
    from_hz: int,
    to_hz: int,
) -> Step:
    """Changes the rate of samples from ``from_hz`` to ``to_hz`` with soxr (HQ).

    Takes FP32 [-1], ragged or a tensor; makes ``output``, ragged FP32 [samples], about to_hz / from_hz as many.
    Each row is a sound of its own: pieces of a sequence, resampled one by one, do not join without a click. Send a
    live stream at the model's rate. No row fails.

    Options:

        input: the samples; without it the latest field of this kind (the name of a field, 1 to 256 printable characters)
        output: where the result goes; without it, in place (the name of a field, 1 to 256 printable characters)
        from_hz: samples a second of the input (an integer from 8000 to 192000)
        to_hz: samples a second of the result (an integer from 8000 to 192000)"""

def resize_image(
    *,
    input: str | None = None,
    output: str | None = None,
    width: int | None = None,
    height: int | None = None,
    short_side: int | None = None,
    long_side: int | None = None,
    when: Literal["always", "smaller", "larger"] = "always",
    rounding: Literal["down", "nearest", "up"] = "down",
    multiple: int = 1,
    multiple_rounding: Literal["down", "nearest", "up"] = "nearest",
    width_max: int | None = None,
    method: Literal["bilinear", "bicubic", "area", "nearest", "lanczos"] = "bilinear",
    antialias: bool = True,
    scale: str | None = None,
    pixels_max: int = 25000000,
) -> Step:
    """Brings a decoded image to another size; ragged UINT8 [height, width, channels] as before.

    The size is ``width`` and ``height``; or one of them, ``short_side`` or ``long_side``, and the other side follows
    in proportion, rounded by ``rounding``; ``short_side`` beside ``long_side`` means: no longer than that. Without any,
    ``multiple`` alone. ``when`` = "smaller" or "larger" leaves an image alone whose named side is large or small
    enough. Then ``width_max`` squeezes, and ``multiple`` rounds both sides to one, at least one of it.
    PP-OCR's detection: ``short_side = 736, when = "smaller", multiple = 32`` (limit_type min) or
    ``long_side = 960, when = "larger", multiple = 32`` (max). Its recognition: ``height = 48, rounding = "up"``.

    ``method`` is Pillow's filter of that name (area = BOX), which widens when it shrinks, pixel for pixel, and
    torchvision's with antialias within one level. ``antialias = false`` is OpenCV's INTER_LINEAR: bilinear between
    pixel centres at any scale. ``scale`` names a field FP32 [2]: x and y of original / resized, so a box found in the
    resized image, multiplied by it, is one of the original. A result over ``pixels_max`` fails its row.

    Options:

        input: the image; without it the latest decoded one (the name of a field, 1 to 256 printable characters)
        output: where the result goes; without it, in place (the name of a field, 1 to 256 printable characters)
        width: the width in pixels (an integer from 1 to 65535)
        height: the height in pixels (an integer from 1 to 65535)
        short_side: the length of the shorter side (an integer from 1 to 65535)
        long_side: the length of the longer side, or its limit beside short_side (an integer from 1 to 65535)
        when: resize only what is smaller or larger on the named side ("always" or "smaller" or "larger")
        rounding: how the side that follows is rounded ("down" or "nearest" or "up")
        multiple: both sides become a multiple of this (an integer from 1 to 4096)
        multiple_rounding: to which multiple; nearest takes the even one of two ("down" or "nearest" or "up")
        width_max: a wider result is squeezed to this width (an integer from 1 to 65535)
        method: the filter's name ("bilinear" or "bicubic" or "area" or "nearest" or "lanczos")
        antialias: widen the filter when shrinking; false only with bilinear (true or false)
        scale: a field for original / resized of x and y (the name of a field, 1 to 256 printable characters)
        pixels_max: the most pixels of a result (an integer from 1 to 178956970)"""

def scale(
    *,
    mean: Mapping[str, float],
    std: Mapping[str, float],
) -> Step:
    """(number - mean) / std of each column; ``mean`` and ``std`` name the same columns. Missing stays missing; no row
    fails.

    Options:

        mean: {column = mean}, the training's (a table of 1 to 100000 names, each a finite number)
        std: {column = standard deviation}, the training's (a table of 1 to 100000 names, each a finite number)"""

def segments(
    frame_s: float,
    *,
    input: str | None = None,
    output: str = "segments",
    on: float = 0.5,
    off: float | None = None,
    silence_min_s: float = 0.1,
    pad_s: float = 0.03,
    speech_min_s: float = 0.25,
) -> Step:
    """The stretches of speech in a whole sound.

    Takes one probability a frame, FP32 [-1], ragged or a tensor. Makes ``output``, json: a list of {"start_s", "end_s",
    "score"}, score being the mean probability of its frames. Speech starts with a frame of ``on`` or more and ends with
    the first below ``off`` once ``silence_min_s`` passed without one of ``on`` or more; it must last longer than
    ``speech_min_s``, and is then made longer by ``pad_s`` at both ends, or by half the silence between two where that
    is less. The rules and defaults are those of silero-vad. Each row is a whole sound, also in a sequence: a live
    client gets the segments of its latest request alone, and wants ``voice_events``. A probability that is
    not finite fails its row.

    Options:

        input: the probabilities; without it the latest field of this kind (the name of a field, 1 to 256 printable characters)
        output: where the segments go (the name of a field, 1 to 256 printable characters)
        frame_s: seconds from one frame to the next, above 0, at most 3600 (a finite number)
        on: a probability from which a frame is speech, from 0 to 1 (a finite number)
        off: a probability below which it is silence; without it on - 0.15 (a finite number)
        silence_min_s: a shorter silence does not end speech (a finite number)
        pad_s: how much earlier speech starts and later it ends than its frames (a finite number)
        speech_min_s: speech that does not last longer is left out (a finite number)"""

def sigmoid(
    *,
    input: str | None = None,
    output: str = "probabilities",
) -> Step:
    """Turns each score, in a tensor or ragged, into a FP32 probability of its own. NaN goes through; no row fails.

    Options:

        input: the scores; without it the latest floating tensor, else ragged field (the name of a field, 1 to 256 printable characters)
        output: where the probabilities go (the name of a field, 1 to 256 printable characters)"""

def similarity(
    *,
    input: str,
    others: str,
    metric: Literal["cosine", "dot", "euclidean"] = "cosine",
    output: str = "scores",
) -> Step:
    """Compares one vector with each of a list: ragged FP32 scores [vectors], the greater the nearer.

    ``cosine`` is 0 where a vector has no length, ``euclidean`` the distance, negated. Each is computed in FP64, row by
    row. NaN goes through, for the steps after it to find. Vectors of unlike size fail their row: `bad_output_shape`, or
    `shape_mismatch` where the caller sent one.

    Options:

        input: the vector [size] (the name of a field, 1 to 256 printable characters)
        others: the vectors [vectors, size] to compare it with (the name of a field, 1 to 256 printable characters)
        metric: how they are compared ("cosine" or "dot" or "euclidean")
        output: where the scores go (the name of a field, 1 to 256 printable characters)"""

def softmax(
    *,
    input: str | None = None,
    output: str = "probabilities",
) -> Step:
    """Turns scores, in a tensor or ragged, into FP32 probabilities that sum to one over the last axis.
    NaN and infinities become NaN, for the checks to find; no row fails.

    Options:

        input: the scores; without it the latest floating tensor, else ragged field (the name of a field, 1 to 256 printable characters)
        output: where the probabilities go (the name of a field, 1 to 256 printable characters)"""

def spans(
    file: str | PathLike[str] | None = None,
    *,
    input: str | None = None,
    text: str | None = None,
    offsets: str = "offsets",
    mask: str = "attention_mask",
    words: str | None = None,
    names: Sequence[str] | None = None,
    outside: str | None = None,
    aggregate: Literal["none", "first", "mean", "max"] = "first",
    score_min: float | None = None,
    shift: str | None = None,
    output: str = "spans",
) -> Step:
    """The pieces of text that a token classifier finds: a json list of {start, end, label, score, text} in the text's
    order, places in characters, [start, end).

    Put ``softmax`` before it where the model's scores are logits. The scheme is read from the labels: B- and I- begin
    and go on; L- or E- end and U- or S- stand alone where the same name has B- or I- too; without prefixes,
    neighbours of one label are one piece. The answers are those of the TokenClassificationPipeline of transformers with
    aggregation_strategy "simple" (``none`` here: every token has its own label), "first", "average" (``mean``) and
    "max", by which the tokens of a word agree. A score that is not a finite number, at a token of the text, fails the
    row. All of a token's fields may be ragged (``tokenize`` with ``pad = "row"``).

    Options:

        input: the scores [tokens, labels]; without it the latest such field (the name of a field, 1 to 256 printable characters)
        text: the text; without it the latest text field (the name of a field, 1 to 256 printable characters)
        offsets: the tokens' places in the text, from tokenize (the name of a field, 1 to 256 printable characters)
        mask: [tokens], 0 where a token does not count (the name of a field, 1 to 256 printable characters)
        words: the tokens' words, from tokenize; without it a token that touches the one before goes on (the name of a field, 1 to 256 printable characters)
        file: a UTF-8 file with one label a line (the name of a file in the pipeline's folder)
        names: the labels, instead of a file (a list of 1 to 100000, each text)
        outside: the label of what is no piece, by default "O" where there is one (text)
        aggregate: how the tokens of a word become one label ("none" or "first" or "mean" or "max")
        score_min: the least score of a piece (a finite number)
        shift: INT64, added to start and end, such as a window's start (the name of a field, 1 to 256 printable characters)
        output: where the pieces go (the name of a field, 1 to 256 printable characters)"""

def take(
    *,
    input: str | None = None,
    index: int,
    output: str,
) -> Step:
    """One element of the last axis, such as the positive class's probability: ``output``, without that axis.

    The batch fails with `bad_output_shape` where the axis is open and the element is not there.

    Options:

        input: the field; without it the latest that has an axis (the name of a field, 1 to 256 printable characters)
        index: the element's place, from 0 (an integer from 0 to 2147483647)
        output: where the element goes (the name of a field, 1 to 256 printable characters)"""

def text_regions(
    *,
    input: str | None = None,
    threshold: float = 0.3,
    score_min: float = 0.5,
    unclip: float = 1.6,
    size_min: float = 3.0,
    count_max: int = 1000,
    dilate: bool = False,
    scale: str | None = None,
    image: str | None = None,
    quads: str = "quads",
    scores: str = "scores",
) -> Step:
    """Finds the lines of text in the probability map [height, width] of a DBNet detector, as PaddleOCR and RapidOCR do.

    Each area above ``threshold`` gets the smallest rectangle around it; one whose mean probability reaches
    ``score_min`` is grown by area x ``unclip`` / perimeter on every side. Makes ``quads`` ragged FP32 [-1, 4, 2],
    whole pixels clockwise from top left, and ``scores`` ragged FP32 [-1], sorted in lines from top to bottom, in a line
    from left to right. They are in pixels of the map or, with ``scale`` (FP32 [2]) or ``image``, of the original. A map
    that holds NaN or has over 100,000 areas and holes fails its row, as does a scale that makes no size of a picture.
    Source: Liao et al., Real-time Scene Text Detection with Differentiable Binarization.

    Options:

        input: the probability map; without it the latest such field (the name of a field, 1 to 256 printable characters)
        threshold: a pixel is text when its probability is above this (a finite number)
        score_min: the least mean probability of a region (a finite number)
        unclip: how far regions are grown, as the share of area / perimeter (a finite number)
        size_min: the least shorter side of a region before it is grown, in pixels of the map (a finite number)
        count_max: the most areas that are looked at (an integer from 1 to 10000)
        dilate: thicken the areas by a pixel to the right and below first, which joins broken ones (true or false)
        scale: the original's size divided by the map's (the name of a field, 1 to 256 printable characters)
        image: the original, instead of scale (the name of a field, 1 to 256 printable characters)
        quads: where the quads go (the name of a field, 1 to 256 printable characters)
        scores: where their scores go (the name of a field, 1 to 256 printable characters)"""

def threshold(
    *,
    input: str = "score",
    label: str | None = None,
    score_min: float | None = None,
    score_min_file: str | PathLike[str] | None = None,
    otherwise: str | None = None,
    otherwise_file: str | PathLike[str] | None = None,
    output: str | None = None,
) -> Step:
    """Compares a score with the least it must be, in the score's own precision. A NaN score fails its row.

    With ``otherwise`` or ``otherwise_file`` the label of a row below is replaced; without, BOOL ``output`` says
    whether it is reached. In the files, a label not listed takes ``score_min`` (without it: passes) and ``otherwise``
    (without it: stays).

    Options:

        input: the score, one number per row (the name of a field, 1 to 256 printable characters)
        label: the label, by default "label" (the name of a field, 1 to 256 printable characters)
        score_min: the least score (a finite number)
        score_min_file: a JSON file {label: least score} (the name of a file in the pipeline's folder)
        otherwise: the label of a row below (text)
        otherwise_file: a JSON file {label: label of a row below} (the name of a file in the pipeline's folder)
        output: where the decision goes, by default "decision" (the name of a field, 1 to 256 printable characters)"""

def token_windows(
    tokenizer: str | PathLike[str],
    *,
    input: str | None = None,
    pair: str | None = None,
    tokens_max: int,
    stride: int = 0,
    windows_max: int = 64,
    overflow: Literal["truncate", "refuse"] = "truncate",
    buckets: Sequence[int] = (),
    offsets: str | None = None,
    words: str | None = None,
) -> Step:
    """Cuts a long text into windows of at most ``tokens_max`` tokens, each with its special tokens, and goes on with
    them as elements: ``stride`` tokens of one window are the first of the next. A short text is one window.

    Elements have ``input_ids``, ``attention_mask`` and ``token_type_ids`` as of ``tokenize``, the piece of text
    ``window`` and its place ``start``, ``end`` in the text, in characters, INT64. With ``pair`` the second text is cut
    into windows and the first, such as a question, stands whole in each; a first text that leaves no room fails its
    row. A text of more than ``windows_max`` windows is cut, with a note "truncated", or refused; always its end is
    left out, also where the file's truncation says the left side, which is meant for a text of one window. The answer's
    count of tokens counts those of every window, so what two share twice.

    Options:

        input: the text; without it the latest text field, but pair (the name of a field, 1 to 256 printable characters)
        pair: the text to cut, behind that of input (the name of a field, 1 to 256 printable characters)
        tokenizer: a tokenizer.json of the tokenizers library (the name of a file in the pipeline's folder)
        tokens_max: the most tokens of a window, special ones counted (an integer from 1 to 1000000)
        stride: tokens that a window shares with the one before (an integer from 0 to 1000000)
        windows_max: the most windows of one text (an integer from 1 to 10000)
        overflow: what a text of more windows gets ("truncate" or "refuse")
        buckets: lengths to pad up to, ascending; beyond the last it is tokens_max (a list of 1 to 100000, each an integer from 1 to 1000000)
        offsets: where each token's place in the window's text goes, INT64 [tokens, 2], as of tokenize (the name of a field, 1 to 256 printable characters)
        words: where each token's word goes, INT64 [tokens], as of tokenize (the name of a field, 1 to 256 printable characters)"""

def tokenize(
    tokenizer: str | PathLike[str],
    *,
    input: str | None = None,
    pair: str | None = None,
    tokens_max: int,
    overflow: Literal["truncate", "refuse"] = "truncate",
    cut: Literal["longest", "first", "second"] | None = None,
    buckets: Sequence[int] = (),
    pad: Literal["batch", "row"] = "batch",
    offsets: str | None = None,
    words: str | None = None,
) -> Step:
    """Cuts text into the token ids of a tokenizer.json, with its special tokens, padded to the batch's longest row.

    Makes ``input_ids``, ``attention_mask`` and ``token_type_ids``, INT64 [tokens]. With ``pad = "row"`` they are ragged,
    each row as long as it is alone (up to its own bucket): the model takes rows of equal length together, and a short
    text does not cost what a long one beside it costs. With ``pair`` both texts go in, as
    cross-encoders and readers take (query, document); special tokens stand where the file says.

    Padding and truncation written in that file are not applied, only their side and padding id. A special token's
    name inside the text is plain text. Cutting leaves a note "truncated" (of a pair one for each text that was cut,
    in its own tokens); a text without any token fails its row, and so does a pair of which the text that may not be
    cut leaves no room. A text is cut only when all of it is tokens: what bounds that work is its input's ``bytes_max``.

    An input that only ``tokenize`` without ``offsets`` and ``words`` reads takes ids of this file's tokens too, where
    the protocol has them (``/v1/embeddings``), four bytes of ``bytes_max`` each. They are used as they are, get the
    special tokens, and are cut or refused as a text's; ids that already stand between all special tokens of one text
    get none again. An id that the file does not have fails its row with ``out_of_range``.

    All tokens but padding, special ones too and after cutting, are what the answer's count of tokens counts.

    Options:

        input: the text; without it the latest text field, but pair (the name of a field, 1 to 256 printable characters)
        pair: the second text of a pair (the name of a field, 1 to 256 printable characters)
        tokenizer: a tokenizer.json of the tokenizers library (the name of a file in the pipeline's folder)
        tokens_max: the most tokens the model takes, special ones counted (an integer from 1 to 1000000)
        overflow: what a longer text gets ("truncate" or "refuse")
        cut: which text of a pair is cut, by default the "longest" ("longest" or "first" or "second")
        buckets: lengths to pad up to, ascending; beyond the last it is tokens_max (a list of 1 to 100000, each an integer from 1 to 1000000)
        pad: what a row is padded for: the batch's longest, or nothing but its own bucket ("batch" or "row")
        offsets: where each token's place in the text goes, INT64 [tokens, 2]: start and end in characters; 0, 0 for special tokens and, of a pair, for the first text's (the name of a field, 1 to 256 printable characters)
        words: where the number of each token's word goes, INT64 [tokens]; -1 for special tokens and, of a pair, for the first text's (the name of a field, 1 to 256 printable characters)"""

def turn_image(
    *,
    input: str | None = None,
    label: str = "label",
    turns: Mapping[str, int] | None = None,
    score: str | None = None,
    score_min: float | None = None,
    output: str | None = None,
) -> Step:
    """Turns the pictures whose label asks for it, clockwise; the others stay as they are.

    ``turns`` says by how many degrees each label turns: by default {"180" = 180}, as the orientation models of
    PaddleOCR need it. ``label`` is a text or a class number (written "1" in ``turns``). With ``score_min`` only a label
    whose score reaches it turns. A missing label or a NaN score fails the row.

    Options:

        input: the picture; without it the latest decoded one (the name of a field, 1 to 256 printable characters)
        label: the label or class number (the name of a field, 1 to 256 printable characters)
        turns: label = 90, 180 or 270 degrees clockwise (a table of 1 to 100000 names, each 90, 180 or 270)
        score: the label's score, by default "score" (the name of a field, 1 to 256 printable characters)
        score_min: the least score a label turns with; without it each does (a finite number)
        output: where the result goes; without it, in place (the name of a field, 1 to 256 printable characters)"""

def voice_events(
    frame_s: float,
    *,
    input: str | None = None,
    output: str = "events",
    on: float = 0.5,
    off: float | None = None,
    silence_min_s: float = 0.1,
    pad_s: float = 0.03,
) -> Step:
    """Says when speech starts and ends while a sequence of requests goes on.

    Takes one probability a frame, FP32 [-1], ragged or a tensor: the frames of this request. Makes ``output``, json: a
    list of {"event": "start" | "end", "at_s": seconds since the sequence began}, empty for most requests. Speech
    starts with a frame of ``on`` or more and ends with the first below ``off`` once ``silence_min_s`` passed without
    one of ``on`` or more, so an end is told that much later than it was; speech that goes on when the sequence ends
    ends with its last frame. Outside a sequence each row is a whole sound. A probability that is not finite
    fails its row.

    Options:

        input: the probabilities; without it the latest field of this kind (the name of a field, 1 to 256 printable characters)
        output: where the events go (the name of a field, 1 to 256 printable characters)
        frame_s: seconds from one frame to the next, above 0, at most 3600 (a finite number)
        on: a probability from which a frame is speech, from 0 to 1 (a finite number)
        off: a probability below which it is silence; without it on - 0.15 (a finite number)
        silence_min_s: a shorter silence does not end speech (a finite number)
        pad_s: how much earlier speech starts and later it ends than its frames (a finite number)"""
