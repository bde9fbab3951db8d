"""The text of the ``pipeline.toml`` that ``forwardpass init`` writes beside a model: what is so, and what could be."""

from collections.abc import Iterator, Sequence

from forwardpass.core.pipeline import Golden, Input, Pipeline, Signature, Step
from forwardpass.pipeline.definition import bare
from forwardpass.pipeline.recognise.recognised import Recognised
from forwardpass.pipeline.toml_text import toml_key, toml_value

INPUTS_SHOWN_MAX = 3
GOLDEN_SHOWN_MAX = 2

_AROUND_THE_MODEL = """\
# Steps before the model make its inputs: with an input of type "text" and a tokenizer.json in this folder,
# [[steps]]
# use = "tokenize"
# tokenizer = "tokenizer.json"
# tokens_max = 256
"""

_AFTER_THE_MODEL = """\

# Steps after the model make of its outputs what callers want:
# [[steps]]
# use = "softmax"
# [[steps]]
# use = "labels"
# file = "labels.txt"             # one label a line
"""

_BATCHED = """
[batch]                           # rows of different callers run together; each gets the answer it would get alone
rows_max = "auto"                 # rows of one run: as many as pay here; or a number
wait_ms = 0                       # 0 = never wait for more: take what is there when a worker is free
"""

_NOT_BATCHED = """
[batch]
enabled = false                   # the model does not take several rows of different callers at once:
"""

_CHECKS = """\
[checks]                          # what must hold of every answer; one that fails it is an error
finite = true                     # no NaN, no infinity
"""

_NOT_PROVED = """
[batch]                           # rows run one by one until it is proved that they may run together:
"""


def recognised_starter(
    name: str, found: Recognised, golden: Sequence[Golden], *, apart: str = "", proved: bool = True
) -> str:
    """A commented definition for a model of a known family: what it was told by, what is assumed, and the steps.

    The rest is as in ``starter``.
    """
    return "".join(
        [
            f"# Pipeline {toml_value(name)}. After a change: forwardpass check FOLDER\n#\n",
            f"# Recognised as {_comment(found.family)}, by\n",
            *(f"#   {_comment(text)}\n" for text in found.known),
            *(["# Assumed, so look whether it is right:\n"] if found.assumed else []),
            *(f"#   {_comment(text)}\n" for text in found.assumed),
            f"\ndescription = {toml_value(name)}\n",
            f"outputs = {toml_value(found.outputs)}\n\n",
            *(_input(given) for given in found.inputs),
            *(
                "".join([*(f"# {_comment(why)}\n" for why in placed.why), "[[steps]]\n", *_step(placed.step), "\n"])
                for placed in found.steps
            ),
            _CHECKS,
            _batch(apart, proved),
            *_golden(golden),
        ]
    )


def draft(found: Recognised) -> Pipeline:
    """The pipeline that ``recognised_starter`` writes, without golden examples and as if rows might share a batch."""
    return Pipeline(tuple(placed.step for placed in found.steps), inputs=found.inputs, outputs=found.outputs)


def starter(
    name: str,
    signature: Signature,
    model_file: str,
    golden: Sequence[Golden],
    *,
    apart: str = "",
    proved: bool = True,
    assumed: str = "",
) -> str:
    """A commented definition of at most 60 lines that serves a model as it is and shows what to add.

    ``golden`` holds answers the model gave: they pin its behaviour, and the first of them go into the file. ``apart``
    is why rows of different callers must not share a batch, ``proved`` whether that was found out or could not be tried.
    """
    return "".join(
        [
            f"# Pipeline {toml_value(name)}. After a change: forwardpass check FOLDER\n",
            *([f"# Assumed, so look whether it is right: {_comment(assumed)}\n"] if assumed else []),
            f"description = {toml_value(name)}\n",
            *_outputs(signature),
            "\n",
            *_inputs(signature.inputs),
            _AROUND_THE_MODEL,
            "\n[[steps]]\n",
            *_step(bare(model_file).steps[0]),
            _AFTER_THE_MODEL,
            *_checks(signature),
            _batch(apart, proved),
            *_golden(golden),
        ]
    )


def _outputs(signature: Signature) -> Iterator[str]:
    names = [field.name for field in signature.outputs]
    yield f"# outputs = {toml_value(names[:INPUTS_SHOWN_MAX])}  # to answer with these only\n"


def _inputs(inputs: Sequence[Input]) -> Iterator[str]:
    """The model's inputs; of a model with many, none, which means all of them as they are."""
    if len(inputs) > INPUTS_SHOWN_MAX:
        yield f"# The inputs are the model's own {len(inputs)}. To bound or rename them, list each as [[inputs]].\n\n"
        return
    yield from map(_input, inputs)


def _input(given: Input) -> str:
    lines = [f"[[inputs]]\nname = {toml_value(given.name)}\ntype = {toml_value(given.type)}\n"]
    if given.type == "tensor":
        lines.append(f"datatype = {toml_value(given.datatype)}\n")
        lines.append(f"shape = {toml_value(given.shape)}  # of one row; -1 = any length\n")
    if given.type == "record":
        lines.append(f"columns = {toml_value(given.columns)}\n")
    if given.bytes_max is not None:
        lines.append(f"bytes_max = {toml_value(given.bytes_max)}\n")
    return "".join([*lines, "\n"])


def _comment(text: str) -> str:
    """Text of anybody's file in one line of a comment."""
    return toml_value(text)[1:-1].replace('\\"', '"')


def _step(step: Step) -> Iterator[str]:
    yield f"use = {toml_value(step.use)}\n"
    for key, value in step.options.items():
        yield f"{toml_key(key)} = {toml_value(value)}\n"


def _checks(signature: Signature) -> Iterator[str]:
    example = signature.outputs[0].name if signature.outputs else "score"
    yield "\n" + _CHECKS
    yield f"# range = {toml_value({example: [0.0, 1.0]})}\n"


def _batch(apart: str, proved: bool) -> str:
    if not apart:
        return _BATCHED
    return (_NOT_BATCHED if proved else _NOT_PROVED) + f"# {toml_value(apart)[1:-1]}\n"


def _golden(golden: Sequence[Golden]) -> Iterator[str]:
    yield "\n# Replayed whenever this version is loaded: a request, and what must come back.\n"
    if not golden:
        yield "# [[golden]]\n# request = { }\n# expect = { }\n"
    for example in golden[:GOLDEN_SHOWN_MAX]:
        yield f"[[golden]]\nrequest = {toml_value(example.request)}\nexpect = {toml_value(example.expect)}\n"
        if example.tolerance != Golden({}, {}).tolerance:
            yield f"tolerance = {toml_value(example.tolerance)}\n"
