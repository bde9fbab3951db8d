import tomllib

import pytest

from forwardpass.pipeline.toml_lines import key_lines, nearest

TEXT = '''# a comment with [brackets] and = signs
title = "a [b] # no comment" # a comment

[[steps]]
use = "model"
inputs = { x = "a}, b", "odd key" = [1,
  2, # two ]
  3] }

[[steps]] # the second
use = """
[not.a.table]
x = 1
"""
when = 1979-05-27 07:32:00
dotted.deep = 'C:\\'
last = true

[batch.padding]
buckets = [
  8, # eight
  16,
]

[[steps.part]]
name = """a"""""
[[steps.part]]
name = \'\'\'it's\'\'\'
'''


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("title", 2),
        ("steps", 4),
        ("steps[0].use", 5),
        ("steps[0].inputs.x", 6),
        ('steps[0].inputs."odd key"[1]', 7),
        ("steps[1]", 10),
        ("steps[1].when", 15),
        ("steps[1].dotted.deep", 16),
        ("steps[1].last", 17),
        ("batch.padding.buckets[1]", 22),
        ("steps[1].part[0].name", 26),
        ("steps[1].part[1].name", 28),
    ],
)
def test_a_key_is_found_on_its_line(path: str, line: int) -> None:
    assert tomllib.loads(TEXT), "the text itself must be valid"
    assert key_lines(TEXT)[path] == line


def test_text_inside_strings_is_no_key() -> None:
    assert not [path for path in key_lines(TEXT) if path.startswith(("x", "not"))]


def test_a_key_that_is_not_written_is_placed_at_the_table_around_it() -> None:
    lines = key_lines(TEXT)
    assert nearest(lines, "steps[1].tokens_max") == 10
    assert nearest(lines, "batch.padding.fields.x") == 19
    assert nearest(lines, "queue.rows_max") is None
