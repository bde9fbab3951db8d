"""``use``: a function for each kind of step, made of the kind's options."""

import inspect
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from docs.make_use import STUB, stub

from forwardpass import Misconfigured, Step, use
from forwardpass.building.constructors import constructor
from forwardpass.execution.kinds import kinds

UNTYPED: Any = use
"""For what the types refuse already."""


@pytest.mark.parametrize("name", sorted(kinds()))
def test_every_kind_has_a_function_with_its_options(name: str) -> None:
    options: Any = getattr(kinds()[name], "options")  # noqa: B009 - no member of the protocol
    made = constructor(name)
    declared = [each.name for each in fields(options)]
    assert set(declared) <= set(inspect.signature(made).parameters)
    assert made.__name__ == name
    assert all(f"{each}: " in (made.__doc__ or "") for each in declared)


def test_the_kinds_are_listed() -> None:
    assert dir(use) == sorted(kinds())


def test_a_step_is_made_of_plain_options_and_what_is_not_given_is_left_out() -> None:
    made = use.tokenize(Path("a") / "tokenizer.json", tokens_max=8, buckets=(4, 8), pair=None)
    assert made == Step("tokenize", {"tokenizer": "a/tokenizer.json", "tokens_max": 8, "buckets": [4, 8]})


def test_the_only_required_option_may_be_given_by_its_place() -> None:
    assert use.columns(["age", "income"]) == use.columns(names=["age", "income"])


def test_an_engine_is_told_by_the_model_files_ending() -> None:
    assert use.model("model.onnx", optimization="basic").options["engine"] == "onnxruntime"
    with pytest.raises(Misconfigured, match=r"model\.engine: missing"):
        use.model("model.bin")


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: UNTYPED.tokenize("t.json", token_max=8), "tokenize.token_max: unknown option"),
        (lambda: use.tokenize("t.json", tokens_max=0), "tokenize.tokens_max: 0 (integer)"),
        (lambda: UNTYPED.tokenize("t.json", "u.json", tokens_max=8), "tokenize: 2 values without a name; at most 1"),
        (lambda: UNTYPED.tokenize("t.json", tokenizer="t.json", tokens_max=8), "tokenize.tokenizer: is given twice"),
        (lambda: use.labels("labels.txt", names=["a"]), "one of file and names"),
        (lambda: use.model("m.onnx", engine="nowhere"), "model.engine: no engine nowhere"),
        (lambda: use.model("m.onnx", optimization="wild"), "model.optimization: wild"),
        (lambda: use.model("m.onnx", inputs={"x": 3}), "model.inputs.x"),
    ],
)
def test_a_wrong_option_is_refused_where_it_is_written(make: Any, said: str) -> None:
    with pytest.raises(Misconfigured) as refused:
        make()
    assert said in str(refused.value)


def test_a_kind_that_is_none_is_no_attribute_and_the_right_one_is_named() -> None:
    with pytest.raises(AttributeError, match="did you mean 'tokenize'"):
        UNTYPED.tokenise("t.json")


def test_what_editors_are_told_is_what_is_there() -> None:
    assert STUB.read_text("utf-8") == stub(), "src/forwardpass/use.pyi is out of date: run make docs"
