"""The one point where secrets leave what is told: logs and receipts now, traces and captures when there are any (R17).

What is replaced: keys of this server, tokens, passwords in addresses, the values of fields that are named like secrets,
private keys, and the secrets that the settings hold. What is not a secret by its form is not known here: bodies,
queries and header values are kept out of the log by not being put there.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import unquote

from forwardpass.core.secret_forms import SECRET_FORMS

HIDDEN = "***"
TEXT_CHARACTERS_MAX = 8192
"""Longer texts are cut before they are searched, so that the time is bounded."""
SECRET_CHARACTERS_MIN = 6
"""A shorter setting would take words apart; such a password is hidden where its address is known as one."""

_SECRET_NAME = (
    r"(?:x[_-])?api[_-]?keys?|(?:access|auth|refresh|session|id)[_-]?tokens?|(?:client[_-]?)?secrets?"
    r"|secret[_-](?:access[_-])?keys?|passw(?:or)?ds?|passphrases?|pwd|private[_-]?keys?|credentials?"
)
_WHOLE_LINE_NAME = r"(?:proxy-)?authorization|(?:set-)?cookies?"
_NAME = re.compile(rf".*(?<![A-Za-z])(?:{_SECRET_NAME}|{_WHOLE_LINE_NAME})", re.I | re.S)
_FORMS = (
    # what its text has in lower case, its form, what is told instead
    (
        ("private key",),
        re.compile(r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----.*?(?:-----END[^-]*-----|\Z)", re.S),
        HIDDEN,
    ),
    (
        ("authorization", "cookie"),
        re.compile(rf"""(?<![A-Za-z])({_WHOLE_LINE_NAME})(["']?\s*[:=]\s*["']?)[^\r\n"']+""", re.I),
        rf"\1\2{HIDDEN}",
    ),
    (
        ("key", "token", "secret", "pass", "pwd", "credential"),
        re.compile(
            rf"""(?<![A-Za-z])({_SECRET_NAME})(["']?\s*[:=]\s*)(?:"[^"]*"?|'[^']*'?|[^\s,;&"'{{}}()\[\]]+)""", re.I
        ),
        rf"\1\2{HIDDEN}",
    ),
    (("bearer", "basic"), re.compile(r"\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{4,}", re.I), rf"\1 {HIDDEN}"),
    (("fp_",), re.compile(r"(?<![A-Za-z0-9])fp_[A-Za-z0-9_-]{4,}"), f"fp_{HIDDEN}"),
    (("eyj",), re.compile(r"eyJ[A-Za-z0-9_-]{6,}(?:\.[A-Za-z0-9_-]*){0,4}"), HIDDEN),
    (
        tuple(form.mark for form in SECRET_FORMS),
        re.compile(rf"(?<![A-Za-z0-9])(?:{'|'.join(form.begins for form in SECRET_FORMS)})[A-Za-z0-9_-]{{12,}}"),
        HIDDEN,
    ),
)
_WORD = re.compile(r"""[^\s"'<>]+""")


_TRACEBACK = "Traceback (most recent call last):"
_NEXT_ERROR = ("During handling of the above", "The above exception was")
_BEGIN = re.compile(rf"{re.escape(_TRACEBACK)}|\n  File ")
_KIND = re.compile(r"[A-Za-z_][\w.]*")


def without_messages(trace: str) -> str:
    """A traceback as frames and classes: a message may repeat what a client sent. Text that is none stays as it is."""
    begin = _BEGIN.search(trace)
    if begin is None:
        return trace
    kept: list[str] = []  # of what is before it is not known whether it is the end of another one's message
    frame_lines, raised = 0, False
    for line in trace[begin.start() :].split("\n"):
        if line.startswith((_TRACEBACK, *_NEXT_ERROR)):
            raised = False
            kept.append(line)
        elif raised:
            continue
        elif line.startswith("  File "):
            frame_lines = 2  # its source, and marks below it
            kept.append(line)
        elif line.startswith("    ") and frame_lines:
            frame_lines -= 1
            kept.append(line)
        elif line and not line.startswith(" "):
            kind = _KIND.match(line)
            kept.append(kind[0] if kind else HIDDEN)
            raised = True
    return "\n".join(kept)


class Redaction:
    """Replaces secrets by ``***``: those that have a known form, and the ones it is given."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        """``secrets`` are strings that must never be told, as they are and as they stand in an address."""
        known = {form for secret in secrets for form in (secret, unquote(secret))}
        worth = sorted((form for form in known if len(form) >= SECRET_CHARACTERS_MIN), key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, worth))) if worth else None

    def text(self, text: str) -> str:
        """The text without them, in a time that grows linearly and for at most TEXT_CHARACTERS_MAX characters."""
        text = text[:TEXT_CHARACTERS_MAX]
        if self._known is not None:
            text = self._known.sub(HIDDEN, text)
        lower = text.lower()
        for marks, form, replacement in _FORMS:
            if any(mark in lower for mark in marks):
                text = form.sub(replacement, text)
        return _WORD.sub(_without_password, text) if "://" in text else text

    def value(self, value: Any) -> Any:
        """The same for the strings within lists and mappings; what stands under a secret's name is hidden whole."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {name: self.field(str(name), each) for name, each in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(each) for each in value]
        return value

    def field(self, name: str, value: Any) -> Any:
        """What may be told under that name."""
        return HIDDEN if value and isinstance(value, str) and _NAME.fullmatch(name) else self.value(value)


def secrets_of(settings: Any, name: str = "") -> frozenset[str]:
    """What must never be told of settings as lists and mappings: values under secret names, passwords in addresses."""
    if isinstance(settings, Mapping):
        return frozenset().union(*(secrets_of(value, str(key)) for key, value in settings.items()))
    if isinstance(settings, list | tuple):
        return frozenset().union(*(secrets_of(value, name) for value in settings))
    if not isinstance(settings, str) or not settings:
        return frozenset()
    if _NAME.fullmatch(name):
        return frozenset({settings})
    who = settings.partition("://")[2].rpartition("@")[0]
    return frozenset({who.partition(":")[2] or who} - {""})


def _without_password(word: re.Match[str]) -> str:
    """``scheme://user:password@host`` without what stands before the host, whatever characters are in it."""
    scheme, address, rest = word[0].partition("://")
    before, at, host = rest.rpartition("@")
    return f"{scheme}{address}{HIDDEN}@{host}" if at and before else word[0]
