"""What every example promises, whatever it does."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from forwardpass.execution.plan import Plan
from forwardpass.execution.selftest import rows_alone, self_test
from forwardpass.pipeline.golden import close
from forwardpass.steps.protocol import Batch

NAMES = ("sentences", "filetype", "fraud", "ocr", "ranking", "search", "recommendation", "mixed", "safety")
README_LINES_MAX = 30
PIPELINE_LINES_MAX = 150  # three networks in one pipeline, as in ocr, take that many
EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize("name", NAMES)
def test_golden_requests_get_the_answers_they_expect(
    ask: Callable[[str, Sequence[Mapping[str, object]]], Batch], plan_of: Callable[[str], Plan], name: str
) -> None:
    golden = plan_of(name).definition.golden
    assert golden
    for example in golden:
        columns = ask(name, [example.request]).columns
        for output, expected in example.expect.items():
            found = columns[output][0]
            plain = found.tolist() if isinstance(found, np.ndarray | np.generic) else found
            assert close(plain, expected, example.tolerance), (output, plain)


@pytest.mark.parametrize("name", NAMES)
def test_strangers_may_share_a_batch(plan_of: Callable[[str], Plan], name: str) -> None:
    plan = plan_of(name)
    rows_max = plan.definition.batch.rows_cut
    result = self_test(plan, rows_alone(plan), rows_max)
    assert result.independent, result.reason


@pytest.mark.parametrize("name", NAMES)
def test_a_newcomer_can_read_it_at_one_look(folder_of: Callable[[str], Path], name: str) -> None:
    assert len((EXAMPLES / name / "README.md").read_text().splitlines()) <= README_LINES_MAX
    assert len((folder_of(name) / "pipeline.toml").read_text().splitlines()) <= PIPELINE_LINES_MAX


@pytest.mark.parametrize("name", NAMES)
def test_a_built_example_says_where_its_model_comes_from(folder_of: Callable[[str], Path], name: str) -> None:
    assert "Licence" in (folder_of(name) / "NOTICE.txt").read_text()
