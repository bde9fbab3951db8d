"""Pickles, without unpickling: which names a pickle would import and whether it would call them (FAULTS R3).

The opcodes are walked, none is carried out. What a pickle imports by names that it computes cannot be seen this way;
that is no loss, as no pickle is ever loaded.
"""

import re
from dataclasses import dataclass, field

from forwardpass.core.errors import Misconfigured, show
from forwardpass.pipeline.inspection.reading import PIECE_BYTES, Cursor, File, Report, listed

OPCODES_MAX = 2_000_000
FIRST_OPCODES = 1000
BLANK_BYTES_MAX = 4096
MEMO_MAX = 100_000
NAME_BYTES_MAX = 4096
KEPT_CHARACTERS_MAX = 256
_STOP = ord(".")
_PLAIN = frozenset(b"(012NQRabdelost)]u}\x81\x85\x86\x87\x88\x89\x8f\x90\x91\x92\x97\x98")
_FIXED = dict(zip(b"\x80\x95JKMG\x82\x83\x84", (1, 8, 4, 1, 2, 8, 1, 2, 4), strict=True))
_LINES = frozenset(b"FILPSV")
_LENGTHS = dict(zip(b"TUX\x8a\x8bBC\x8c\x8d\x8e\x96", "IBIBIIBBQQQ", strict=True))
_TEXTS = frozenset(b"SVTUX\x8c\x8d")
_GLOBAL, _INSTANCE, _STACK_GLOBAL, _MEMOIZE = b"c"[0], b"i"[0], 0x93, 0x94
_GETS, _PUTS = {b"g"[0]: "", b"h"[0]: "B", b"j"[0]: "I"}, {b"p"[0]: "", b"q"[0]: "B", b"r"[0]: "I"}
_CALLS = frozenset(b"Riob\x81\x92\x82\x83\x84")
_DOTTED = re.compile(r"\w+(?:\.\w+)+")
_UNFIT = "a pickle runs code when it is loaded, so none ever is; export the model to ONNX"


@dataclass(slots=True)
class _Seen:
    imports: dict[str, None] = field(default_factory=dict)
    texts: list[str] = field(default_factory=list)  # the last two that were pushed
    memo: dict[int, str] = field(default_factory=dict)
    memoized: int = 0
    fresh: bool = False  # what was pushed last is a text
    calls: int = 0
    opcodes: int = 0
    opcodes_max: int = OPCODES_MAX

    def push(self, text: str) -> None:
        self.texts = [*self.texts[-1:], text[:KEPT_CHARACTERS_MAX]]
        self.fresh = True

    def name(self, module: str, name: str) -> None:
        if len(self.imports) < MEMO_MAX:
            self.imports[show(f"{module}.{name}")] = None

    def put(self, place: int) -> None:
        if self.fresh and len(self.memo) < MEMO_MAX:
            self.memo[place] = self.texts[-1]


def looks_like(start: bytes) -> bool:
    """Protocol 2 and later say so; earlier ones begin in a few ways."""
    if start[:1] == b"\x80":
        return start[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05")
    return start[:3] in (b"(dp", b"(lp", b"]q\x00", b"}q\x00") or start[:2] in (b"c_", b"c__") or start[:1] == b"\x95"


def is_old(file: File) -> bool:
    """Protocols 0 and 1 have no sign of their own: whether what a file holds, read as one, imports something by a
    name and ends there, but for blanks after one that calls something."""
    seen, cursor = _Seen(opcodes_max=FIRST_OPCODES), Cursor(file)
    try:
        while _step(cursor, seen):
            pass
        left = file.size - cursor.place
        blank = left <= BLANK_BYTES_MAX and not file.at(cursor.place, left).strip()
        if left and not (blank and seen.calls):  # words, line by line
            return False
    except Misconfigured:
        if seen.opcodes <= FIRST_OPCODES:
            return False
    return any(map(_DOTTED.fullmatch, seen.imports))


def report(file: File, place: int = 0, end: int | None = None, opcodes_max: int = OPCODES_MAX) -> Report:
    """One that is cut or holds what is no pickle (joblib's arrays) is read as far as it goes."""
    seen = _Seen(opcodes_max=opcodes_max)
    cursor = Cursor(file, place)
    stopped = ""
    try:
        while _step(cursor, seen):
            if end is not None and cursor.place > end:
                raise file.bad("longer than its entry")
    except Misconfigured as failure:
        stopped = f"read up to byte {cursor.place}: {failure.problems[0].found}"
    facts = {"imports": listed(seen.imports), "calls": seen.calls, "opcodes": seen.opcodes}
    return Report("pickle", {**facts, **({"stopped": stopped} if stopped else {})}, unfit=_UNFIT)


def _step(cursor: Cursor, seen: _Seen) -> bool:
    """One opcode; False after the last."""
    opcode = cursor.take(1)[0]
    seen.opcodes += 1
    if seen.opcodes > seen.opcodes_max:
        raise cursor.file.bad(f"more than {seen.opcodes_max} opcodes")
    seen.calls += opcode in _CALLS
    if opcode == _STOP:
        return False
    if opcode in (_GLOBAL, _INSTANCE):
        module, name = _shown(cursor.line()), _shown(cursor.line())
        seen.name(module, name)
    elif opcode == _STACK_GLOBAL:
        seen.name(*(["?", "?", *seen.texts][-2:]))
    elif opcode == _MEMOIZE:
        seen.put(seen.memoized)
        seen.memoized += 1
        return True
    elif opcode in _PUTS:
        place = _number(cursor, _PUTS[opcode])
        seen.put(place)
        seen.memoized = max(seen.memoized, place + 1)
        return True
    elif opcode in _GETS:
        known = seen.memo.get(_number(cursor, _GETS[opcode]))
        if known is not None:
            seen.push(known)
    elif opcode in _LINES:
        text = _shown(cursor.line(PIECE_BYTES))
        if opcode in _TEXTS:
            seen.push(text)
            return True
    elif opcode in _LENGTHS:
        length = cursor.number(_LENGTHS[opcode])
        if opcode in _TEXTS and length <= NAME_BYTES_MAX:
            seen.push(_shown(cursor.take(length)))
            return True
        cursor.skip(length)
    elif opcode in _FIXED:
        cursor.skip(_FIXED[opcode])
    elif opcode not in _PLAIN:
        raise cursor.file.bad(f"the byte {opcode:#04x} is no opcode")
    seen.fresh = False
    return True


def _number(cursor: Cursor, code: str) -> int:
    """The place in the memo that an opcode names, in binary or in decimal."""
    if code:
        return cursor.number(code)
    text = _shown(cursor.line(32))
    return int(text) if text.isascii() and text.isdigit() else -1


def _shown(data: bytes) -> str:
    return data.decode("utf-8", "replace")
