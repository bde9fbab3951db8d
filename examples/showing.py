"""How the demo prints: with colours on a terminal when rich is installed, as plain text everywhere else."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

WIDTH = 100
BAR_WIDTH = 40


class Screen:
    """Lines of at most WIDTH characters on standard output."""

    def __init__(self) -> None:
        if hasattr(sys.stdout, "reconfigure"):
            sys.stdout.reconfigure(errors="replace")  # a name with an accent must not end the show
        self._console = _console()

    def title(self, number: int, text: str) -> None:
        self.say()
        self.say(f"{number}. {text}", "bold cyan")

    def say(self, text: str = "", style: str = "") -> None:
        if self._console is None:
            print(text[:WIDTH], flush=True)
        else:
            self._console.print(text[:WIDTH], style=style or None, markup=False, highlight=not style, soft_wrap=True)

    def command(self, text: str) -> None:
        """A line to be pasted: whole, whatever its length."""
        if self._console is None:
            print(f"  {text}", flush=True)
        else:
            self._console.print(f"  {text}", style="green", markup=False, highlight=False, soft_wrap=True)

    def bars(self, rows: Sequence[tuple[str, float, str]]) -> None:
        """One line each: a name, a bar as long as its number, and what to read beside it."""
        most = max((number for _, number, _ in rows), default=0) or 1
        names = max((len(name) for name, _, _ in rows), default=0)
        block = "#" if self._console is None else "█"
        for name, number, text in rows:
            length = max(round(BAR_WIDTH * number / most), 1 if number > 0 else 0)
            self.say(f"  {name:{names}} {text:>9}  {block * length}")

    @contextmanager
    def busy(self, text: str) -> Iterator[None]:
        """``text`` while the block runs: with a moving sign on a terminal."""
        if self._console is None:
            self.say(text)
            yield
        else:
            with self._console.status(text):
                yield


def _console() -> "Console | None":
    if not sys.stdout.isatty():
        return None
    try:
        from rich.console import Console
    except ImportError:
        return None
    return Console(width=min(WIDTH, Console().width))
