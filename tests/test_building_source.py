"""``Pipeline.save`` of functions: what is written does elsewhere what the function does here, or is refused."""

import linecache
import subprocess
import sys
import xml.etree.ElementTree
import xml.etree.ElementTree as Tree
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from forwardpass import Misconfigured, Pipeline

MARKS = {"pear", "apple", "fig", "plum"}
WORDS = ["b", "a"]
RIGHT = 'import sys\nsys.path.insert(0, ".")\nimport steps\nprint(steps.{name}({given!r}), end="")'


def tag(text: str) -> str:
    return xml.etree.ElementTree.fromstring(text).tag


def tag_by_alias(text: str) -> str:
    return Tree.fromstring(text).tag


def norm(text: str) -> str:
    return str(np.linalg.norm([3, len(text)]))


def first(text: str) -> str:
    class Kept:
        words = WORDS

    return Kept.words[0] + text


def annotated(text: str) -> str:
    def inner(x: int) -> int:
        return x + 1

    return text + str(inner(1))


def marked(text: str) -> str:
    return str(text in MARKS)


def save(function: Callable[..., object], folder: Path) -> Path:
    with Pipeline([function], inputs={"text": "text"}) as made:
        return made.save(folder) / "steps.py"


def run_apart(file: Path, name: str, given: str) -> str:
    """What the written function says in a process that has imported nothing else."""
    script = RIGHT.format(name=name, given=given)
    done = subprocess.run([sys.executable, "-c", script], cwd=file.parent, capture_output=True, text=True, check=True)
    return done.stdout


@pytest.mark.parametrize("function", [tag, tag_by_alias, norm, first, annotated, marked])
def test_it_says_the_same_in_another_process(function: Callable[[str], str], tmp_path: Path) -> None:
    file = save(function, tmp_path / "1")
    given = "<a/>" if "tag" in function.__name__ else "fig"
    assert run_apart(file, function.__name__, given) == function(given)


def test_a_string_within_an_indented_function_keeps_its_indentation(tmp_path: Path) -> None:
    def told(text: str) -> str:
        """What it does,

        in several lines.
        """
        return f"""
          {text}
        """

    assert run_apart(save(told, tmp_path / "1"), "told", "a") == told("a")


def test_sets_are_written_in_one_order_whatever_the_hash_seed(tmp_path: Path) -> None:
    text = save(marked, tmp_path / "1").read_text()
    assert "\nMARKS = {'apple', 'fig', 'pear', 'plum'}\n" in text


def test_what_is_imported_by_a_function_itself_must_be_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine_alone.py").write_text("WORD = 'a'\n")
    monkeypatch.syspath_prepend(tmp_path)

    def lazy(text: str) -> str:
        import json

        import mine_alone  # type: ignore[import-not-found]

        return json.dumps(text + mine_alone.WORD)

    with pytest.raises(Misconfigured, match="imports mine_alone, which is a file of yours"):
        save(lazy, tmp_path / "1")


def module_of(text: str, name: str) -> ModuleType:
    """A module as a notebook has it: its source is known to ``linecache`` only."""
    module, file = ModuleType(name), f"<{name}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    exec(compile(text, file, "exec"), vars(module))
    return module


def test_a_function_of_one_cell_that_uses_the_imports_of_another_is_saved(tmp_path: Path) -> None:
    cell = "def joined(text) -> str:\n    return str(np.array([1, len(text)]).max()) + WORD.upper()\n"
    function = module_of(cell, "cell").joined
    function.__globals__.update(np=np, WORD="c")  # made by other cells
    assert run_apart(save(function, tmp_path / "1"), "joined", "a") == "1C"


def test_a_function_without_a_source_runs_and_is_not_saved(tmp_path: Path) -> None:
    names: dict[str, Any] = {}
    exec("def ghost(text) -> str: return text + '!'", names)
    with Pipeline([names["ghost"]], inputs={"text": "text"}) as made:
        assert made.predict({"text": "a"}).outputs == {"ghost": "a!"}
        with pytest.raises(
            Misconfigured, match="its source cannot be read; a function written in a file or a notebook"
        ):
            made.save(tmp_path / "1")


def test_a_name_that_means_two_things_is_refused(tmp_path: Path) -> None:
    one = module_of("import math as library\ndef one(text) -> float: return library.pi\n", "one").one
    two = module_of("import cmath as library\ndef two(text) -> float: return library.pi\n", "two").two
    with pytest.raises(Misconfigured, match="library: cannot be saved: two things of this name"):
        Pipeline([one, two], inputs={"text": "text"}).save(tmp_path / "1")


def test_a_default_that_was_another_when_it_was_defined_is_refused(tmp_path: Path) -> None:
    module = module_of(
        "END = '!'\ndef helper(text, end=END): return text + end\ndef said(text) -> str: return helper(text)\n", "end"
    )
    vars(module)["END"] = "?"
    with pytest.raises(Misconfigured, match="helper: cannot be saved"):
        save(module.said, tmp_path / "1")


def test_a_default_that_cannot_be_made_again_is_refused_and_the_function_runs_here(tmp_path: Path) -> None:
    text = "ENDS = ['!']\ndef helper(text, end=ENDS.pop()): return text + end\ndef said(text) -> str: return helper(text)\n"
    with Pipeline([module_of(text, "again").said], inputs={"text": "text"}) as made:
        assert made.predict({"text": "a"}).outputs == {"said": "a!"}
        with pytest.raises(Misconfigured, match="a file of these raises IndexError"):
            made.save(tmp_path / "1")


def test_it_leaves_no_module_behind(tmp_path: Path) -> None:
    before = set(sys.modules)
    save(first, tmp_path / "1")
    assert not [name for name in set(sys.modules) - before if name.startswith("forwardpass_own")]


def test_functions_that_cannot_be_saved_have_digests_of_their_own() -> None:
    def times(count: int) -> Callable[[str], str]:
        def repeated(text: str) -> str:
            return text * count

        return repeated

    digests = set()
    for count in (2, 3):
        with Pipeline([times(count)], inputs={"text": "text"}) as made:
            digests |= {made.predict({"text": text}).digest for text in "ab"}
    assert len(digests) == 2
