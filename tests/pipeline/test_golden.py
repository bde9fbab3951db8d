"""What comes and what a golden example expects: when they count as equal."""

import tomllib

import pytest

from forwardpass.pipeline.golden import close, expected
from forwardpass.pipeline.toml_text import toml_value

NULL = {"missing": True}


@pytest.mark.parametrize(
    ("found", "wanted"),
    [(None, NULL), ([1.0, None], [1.0, NULL]), ({"a": None, "b": 1}, {"a": NULL}), ({"missing": True}, NULL)],
)
def test_null_is_expected_as_something_missing(found: object, wanted: object) -> None:
    assert close(found, wanted, 0.0)


@pytest.mark.parametrize(("found", "wanted"), [("a", NULL), (0, NULL), (None, "a"), ([None], NULL), (None, {})])
def test_null_is_nothing_else(found: object, wanted: object) -> None:
    assert not close(found, wanted, 0.0)


def test_an_example_with_null_can_be_written_as_toml() -> None:
    example = {"label": None, "lines": [{"text": None, "score": 1.0}]}
    written = tomllib.loads("expect = " + toml_value(expected(example)))["expect"]
    assert close(example, written, 0.0)
