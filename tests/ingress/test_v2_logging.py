"""V2's log settings: which there are, and what changes them."""

import json
from typing import Any

import pytest

from forwardpass.core.errors import Code, Refused
from forwardpass.ingress.dialects.v2_logging import changed, log_settings
from forwardpass.observe.log import LogChoice


def test_every_setting_of_the_protocol_is_told() -> None:
    assert log_settings(LogChoice()) == {
        "log_file": "", "log_info": True, "log_warning": True, "log_error": True, "log_verbose_level": 0,
        "log_format": "default",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("log_info", False),
        ("log_warning", False),
        ("log_error", False),
        ("log_verbose_level", 1),
        ("log_format", "ISO8601"),
    ],
)
def test_a_setting_changes_by_itself(name: str, value: Any) -> None:
    before = log_settings(LogChoice())
    after = log_settings(changed(LogChoice(), json.dumps({name: value}).encode()))
    assert after == {**before, name: value}


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({"log_file": "/tmp/x"}, Code.INVALID_INPUT), ({"log_file": ""}, Code.INVALID_INPUT),
        ({"log_info": 1}, Code.WRONG_TYPE), ({"log_verbose_level": True}, Code.WRONG_TYPE),
        ({"log_verbose_level": 2}, Code.OUT_OF_RANGE), ({"log_format": "iso"}, Code.OUT_OF_RANGE),
        ({"log_format": ["default"]}, Code.OUT_OF_RANGE), ({"log_infos": True}, Code.UNKNOWN_FIELD), ([], Code.WRONG_TYPE),
    ],
)  # fmt: skip
def test_a_setting_that_cannot_be_is_refused_and_none_changes(settings: Any, code: Code) -> None:
    with pytest.raises(Refused) as refused:
        changed(LogChoice(), json.dumps(settings).encode())
    assert refused.value.code is code
