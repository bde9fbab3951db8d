"""Which lines are logged, by level."""

import logging

import pytest

from forwardpass.observe.log import LogChoice

LEVELS = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL)


@pytest.mark.parametrize(
    ("choice", "taken"),
    [
        (LogChoice(), LEVELS[1:]),
        (LogChoice(verbose=True), LEVELS),
        (LogChoice(info=False), LEVELS[2:]),
        (LogChoice(warning=False), (logging.INFO, logging.ERROR, logging.CRITICAL)),
        (LogChoice(error=False), (logging.INFO, logging.WARNING)),
    ],
)
def test_each_level_is_logged_or_not_by_itself(choice: LogChoice, taken: tuple[int, ...]) -> None:
    assert tuple(level for level in LEVELS if choice.takes(level)) == taken
