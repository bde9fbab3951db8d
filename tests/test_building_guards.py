"""Guards of a pipeline that is written in Python: they run in this process, and stand in the folder that is saved."""

from pathlib import Path

import pytest

from forwardpass import Guard, Input, Pipeline, step
from forwardpass.client_retry import RequestError


@step
def shout(text: str) -> str:
    return text.upper()


def guarded(*guards: Guard) -> Pipeline:
    return Pipeline([shout], inputs=[Input("text", "text")], guards=guards)


def test_what_a_guard_masks_no_step_sees() -> None:
    with guarded(Guard("private", "input", "mask", pii=("email",))) as pipeline:
        assert pipeline.predict({"text": "to joe@example.com"}).outputs["shout"] == "TO [EMAIL]"


def test_what_a_guard_blocks_has_no_answer() -> None:
    with guarded(Guard("no", "input", deny=("x",))) as pipeline, pytest.raises(RequestError, match='"no" blocks'):
        pipeline.predict({"text": "x"})


def test_a_saved_pipeline_has_its_guards(tmp_path: Path) -> None:
    with guarded(Guard("private", "output", "mask", pii=("card",))) as pipeline:
        pipeline.save(tmp_path / "1")
    with Pipeline.open(tmp_path / "1", trusted=True) as opened:
        assert opened.predict({"text": "4242424242424242"}).outputs["shout"] == "[card]"
