"""Write docs/steps.md from the code and from examples that tests run: python docs/make_steps.py"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any

from forwardpass.execution.kinds import kinds
from forwardpass.execution.model_step import ModelOptions
from forwardpass.pipeline.toml_text import toml_key, toml_value
from forwardpass.steps.own import Own

PAGE = Path(__file__).with_name("steps.md")
EXAMPLES = Path(__file__).parents[1] / "tests" / "steps" / "examples"
LINE_CHARACTERS_MAX = 160
HEAD = """# Steps

Written by `make docs` from the code; do not edit. A step is one `[[steps]]` table of a `pipeline.toml`; the same names
make steps in Python. Every example on this page is run by a test.

A step reads *fields* and makes fields. An input of the pipeline is the first field of its name; what the last step made
is the answer, unless `outputs` says otherwise. Kinds of field:

| kind | one row of it | in an answer |
| --- | --- | --- |
| tensor | numbers of a datatype and shape, the same for every row (-1: the same within a batch) | nested lists; a tensor over V2 |
| ragged | numbers of a datatype, each row with a shape of its own where the shape says -1 | nested lists; a tensor over V2 |
| number | one FP64; NaN is missing | a number |
| text, category | a string; null is missing | a string |
| texts | a list of strings | a list of strings; JSON over V2 |
| json | any JSON value | itself; JSON over V2 |
| image, audio, bytes | an encoded file | base64; raw bytes over V2 |

A decoded image is ragged UINT8 [height, width, channels], RGB or grey; decoded sound is ragged FP32 [samples] in [-1, 1];
boxes are ragged FP32 [n, 4] (x1, y1, x2, y2 in pixels), quads ragged FP32 [n, 4, 2], clockwise from the top left.
"""


def page() -> str:
    parts = [HEAD]
    every = {**kinds(), "steps:NAME": Own}
    parts.append("## All steps\n")
    parts.append(
        _table(("step", "what it does"), ((_link(name), _first(name, kind)) for name, kind in sorted(every.items())))
    )
    for name, kind in sorted(every.items()):
        parts += _step(name, kind)
    return "\n".join(parts).rstrip() + "\n"


def _options(name: str, kind: Any) -> Any:
    options = kind if name == "steps:NAME" else getattr(kind, "options", ModelOptions)
    assert is_dataclass(options), f"the options of {name} are declared"
    return options


def _contract(name: str, kind: Any) -> list[str]:
    """The paragraphs of the docstring, each on one line."""
    text = _options(name, kind).__doc__ or ""
    return [" ".join(paragraph.split()).replace("``", "`") for paragraph in text.split("\n\n")]


def _first(name: str, kind: Any) -> str:
    sentence, _, _ = _contract(name, kind)[0].partition(". ")
    return sentence.rstrip(".") + "."


def _link(name: str) -> str:
    return f"[`{name}`](#{name.lower().replace(':', '')})"


def _step(name: str, kind: Any) -> Iterator[str]:
    yield f"## `{name}`\n"
    for paragraph in _contract(name, kind):
        yield paragraph + "\n"
    rows = [_option(each) for each in fields(_options(name, kind))]
    if rows:
        yield _table(("option", "default", "allowed", "what it is"), rows)
    file = EXAMPLES / f"{name.replace(':', '_')}.json"
    if file.exists():
        yield from _example(name, json.loads(file.read_text("utf-8")))


def _option(each: Any) -> Sequence[str]:
    default = (
        "required" if each.default is MISSING else "" if each.default in (None, ()) else f"`{json.dumps(each.default)}`"
    )
    return (f"`{each.name}`", default, each.metadata["rule"].allowed, each.metadata["doc"])


def _example(name: str, example: Mapping[str, Any]) -> Iterator[str]:
    yield "Example:\n"
    yield "```toml"
    for step in example.get("steps", [{"use": name, **example.get("options", {})}]):
        yield "[[steps]]"
        for key, value in step.items():
            yield f"{toml_key(key)} = {toml_value(value)}"
    yield "```\n"
    for file, content in example.get("files", {}).items():
        if isinstance(content, str):
            yield f"with the file `{file}`:\n"
            yield f"```\n{content.rstrip()}\n```\n"
    yield "makes of\n"
    yield "```"
    for given in example["inputs"]:
        yield from _rows(given["field"]["name"], given["values"])
    yield "```\n"
    yield "this:\n"
    yield "```"
    for output, values in example["outputs"].items():
        yield from _rows(output, values)
    yield "```\n"


def _rows(name: str, values: Sequence[Any]) -> Iterator[str]:
    for row, value in enumerate(values):
        place = name if len(values) == 1 else f"{name}, row {row}"
        shown = (
            f"{len(value['base64']) * 3 // 4} bytes"
            if isinstance(value, dict) and value.keys() == {"base64"}
            else json.dumps(value, ensure_ascii=False)
        )
        yield _cut(f"{place}: {shown}")


def _cut(text: str) -> str:
    return text if len(text) <= LINE_CHARACTERS_MAX else text[: LINE_CHARACTERS_MAX - 2] + " …"


def _table(head: Sequence[str], rows: Any) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
