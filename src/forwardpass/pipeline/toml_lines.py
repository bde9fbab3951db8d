"""Which line of a TOML text a key stands on, so that a problem found in the parsed document can name its place.

``tomllib`` drops positions. This scanner reads only texts that ``tomllib`` has already accepted, so it needs to know
where strings, comments and brackets end, not what is legal.
"""

import re
import tomllib

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_STRING = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}|\'\'\'.*?\'{3,5}|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\'',
    re.DOTALL,
)
_SCALAR = re.compile(r"[^,\]}\n#]*")


def join(path: str, part: str | int) -> str:
    """The key path one level down: ``steps[1].tokens_max``; a part that is no bare key is quoted."""
    if isinstance(part, int):
        return f"{path}[{part}]"
    name = part if _BARE_KEY.fullmatch(part) else '"' + part.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return f"{path}.{name}" if path else name


def key_lines(text: str) -> dict[str, int]:
    """Key path -> the line (from 1) it first appears on, for every table, key and array element of a valid TOML text."""
    scanner = _Scanner(text)
    scanner.document()
    return scanner.lines


def nearest(lines: dict[str, int], path: str) -> int | None:
    """The line of ``path``, or of the closest table around it that the text has."""
    while path and path not in lines:
        path = path[: max(path.rfind("."), path.rfind("["), 0)]
    return lines.get(path)


class _Scanner:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.lines: dict[str, int] = {}
        self._elements: dict[str, int] = {}  # array of tables -> index of its newest element
        self._line = 1
        self._counted_to = 0

    def document(self) -> None:
        table = ""
        while self._skip_blank():
            if self.text.startswith("[[", self.at):
                table = self._header(2, element=True)
            elif self.text[self.at] == "[":
                table = self._header(1, element=False)
            else:
                self._pair(table)

    def _header(self, brackets: int, *, element: bool) -> str:
        start = self.at
        self.at += brackets
        path = ""
        parts = self._key()
        for place, part in enumerate(parts):
            path = join(path, part)
            self._note(path, start)
            if element and place == len(parts) - 1:
                self._elements[path] = self._elements.get(path, -1) + 1
            if path in self._elements:
                path = join(path, self._elements[path])
                self._note(path, start)
        self.at += brackets
        return path

    def _pair(self, table: str) -> None:
        start = self.at
        path = table
        for part in self._key():
            path = join(path, part)
            self._note(path, start)
        self.at += 1  # the equals sign
        self._value(path)

    def _key(self) -> list[str]:
        """The parts of a dotted key; stops at the equals sign or bracket after it."""
        parts: list[str] = []
        while True:
            self._skip_blank()
            quoted = _STRING.match(self.text, self.at)
            found = quoted or _BARE_KEY.match(self.text, self.at)
            assert found is not None, "only texts that tomllib accepted are scanned"
            parts.append(_unquoted(found[0]) if quoted else found[0])
            self.at = found.end()
            self._skip_blank()
            if self.text[self.at] != ".":
                return parts
            self.at += 1

    def _value(self, path: str) -> None:
        self._skip_blank()
        opening = self.text[self.at]
        if opening not in "[{":
            found = _STRING.match(self.text, self.at) or _SCALAR.match(self.text, self.at)
            assert found is not None, "the pattern of a scalar matches anything"
            self.at = found.end()
            return
        self.at += 1
        index = 0
        while self._skip_blank() and self.text[self.at] not in "]}":
            if opening == "{":
                self._pair(path)
            else:
                element = join(path, index)
                self._note(element, self.at)
                self._value(element)
                index += 1
            self._skip_blank()
            if self.text[self.at] == ",":
                self.at += 1
        self.at += 1

    def _skip_blank(self) -> bool:
        """Move past white space, line ends and comments; False at the end of the text."""
        found = _BLANK.match(self.text, self.at)
        assert found is not None, "the pattern of blanks matches nothing at all too"
        self.at = found.end()
        return self.at < len(self.text)

    def _note(self, path: str, at: int) -> None:
        self._line += self.text.count("\n", self._counted_to, at)
        self._counted_to = at
        self.lines.setdefault(path, self._line)


def _unquoted(literal: str) -> str:
    value = tomllib.loads(f"key = {literal}")["key"]
    assert isinstance(value, str)
    return value
