"""Text files of a version's folder, read whole and bounded."""

from pathlib import Path

from forwardpass.steps.kind import invalid

TEXT_BYTES_MAX = 16 * 1024 * 1024


def read_text(folder: Path, file: str, bytes_max: int = TEXT_BYTES_MAX) -> str:
    """The file's text, without a byte order mark. Raises Misconfigured: too large, or no UTF-8."""
    data = (folder / file).read_bytes()
    if len(data) > bytes_max:
        raise invalid("", f"{len(data)} bytes", f"at most {bytes_max}", file=file)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise invalid("", f"no UTF-8 at byte {error.start}", "UTF-8 text", file=file) from None


def read_lines(folder: Path, file: str, each: str, bytes_max: int = TEXT_BYTES_MAX) -> list[str]:
    """The file's lines, none of which is empty; ``each`` says in words what a line holds. Raises Misconfigured.

    A line of white space counts: a space is a character of many an alphabet.
    """
    lines = [line.removesuffix("\r") for line in read_text(folder, file, bytes_max).removesuffix("\n").split("\n")]
    if not all(lines):
        raise invalid("", f"line {lines.index('') + 1} is empty", f"{each} a line", file=file)
    return lines
