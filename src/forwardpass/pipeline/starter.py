"""The text of the ``pipeline.toml`` that ``forwardpass init`` writes beside a model: what is so, and what could be."""

from collections.abc import Iterator, Sequence

from forwardpass.core.pipeline import Golden, Input, Signature
from forwardpass.pipeline.definition import bare
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
rows_max = 32
wait_ms = 0                       # 0 = never wait for more: take what is there when a worker is free
"""

_NOT_BATCHED = """
[batch]
enabled = false                   # the model does not take several rows of different callers at once:
"""

_NOT_PROVED = """
[batch]                           # rows run one by one until it is proved that they may run together:
"""


def starter(
    name: str, signature: Signature, model_file: str, golden: Sequence[Golden], *, apart: str = "", proved: bool = True
) -> str:
    """A commented definition of at most 60 lines that serves a model as it is and shows what to add.

    ``golden`` holds answers the model gave: they pin its behaviour, and the first of them go into the file. ``apart``
    is why rows of different callers must not share a batch, ``proved`` whether that was found out or could not be tried.
    """
    return "".join(
        [
            f"# Pipeline {toml_value(name)}. After a change: forwardpass check FOLDER\n",
            f"description = {toml_value(name)}\n",
            *_outputs(signature),
            "\n",
            *_inputs(signature.inputs),
            _AROUND_THE_MODEL,
            "\n[[steps]]\n",
            *_step(model_file),
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
    for given in inputs:
        yield f"[[inputs]]\nname = {toml_value(given.name)}\ntype = {toml_value(given.type)}\n"
        if given.type == "tensor":
            yield f"datatype = {toml_value(given.datatype)}\n"
            yield f"shape = {toml_value(given.shape)}  # of one row; -1 = any length\n"
        if given.type == "record":
            yield f"columns = {toml_value(given.columns)}\n"
        yield "\n"


def _step(model_file: str) -> Iterator[str]:
    step = bare(model_file).steps[0]
    yield f"use = {toml_value(step.use)}\n"
    for key, value in step.options.items():
        yield f"{toml_key(key)} = {toml_value(value)}\n"


def _checks(signature: Signature) -> Iterator[str]:
    example = signature.outputs[0].name if signature.outputs else "score"
    yield "\n[checks]                          # what must hold of every answer; one that fails it is an error\n"
    yield "finite = true                     # no NaN, no infinity\n"
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
