"""Named texts that are no JSON, texts that are, and other ways of writing a text: RFC 8259's grammar, rule by rule.

No text here changes sides when it stands as the value of a key: what is wrong with it is wrong there too.
"""

import json
import re
from collections.abc import Callable, Iterable

DEEPEST = 64


def _named(kind: str, texts: Iterable[bytes]) -> dict[str, bytes]:
    return {f"{kind} {text[:24]!r}": text for text in texts}


_STRUCTURE = _named(
    "structure",
    [
        b"", b" ", b"\n", b",", b":", b"[", b"{", b"]", b"}", b"[]]", b"{}}", b"[[]", b'{"a":{}', b"[}", b"{]", b"[1}", b'{"a":1]',
        b"[,]", b"[1,]", b"[,1]", b"[1,,2]", b"[1 2]", b"[1;2]", b"[1:2]", b'["a":1]', b"[1],", b"{,}", b'{"a"}', b'{"a":}', b'{"a":1,}',
        b'{,"a":1}', b'{"a":1,,"b":2}', b'{"a" 1}', b'{"a"=1}', b'{"a"::1}', b'{"a":1 "b":2}', b'{"a":1;"b":2}', b'{:1}', b'{"a","b"}',
        b"{a:1}", b"{1:1}", b"{'a':1}", b"{null:1}", b"{[]:1}", b'{"a":1:2}', b"{{}}", b"{[]}", b"(1)", b"[1,2", b'["a', b'["a"', b'{"a',
        b'{"a":"b', b'{"a":[', b"<1>", b"[...]", b"[*]", b'{"a":*}', b"[[1],[2]", b"[1]]", b'{"a":[1}]', b"[1,2)", b"-", b"+", b".", b"\\",
        b"=1", b"a=1", b"---\na: 1", b"- 1",
    ],
)  # fmt: skip
_WORDS = _named(
    "word",
    [
        b"True", b"TRUE", b"tru", b"truee", b"true1", b"t", b"False", b"FALSE", b"fals", b"falsee", b"Null", b"NULL", b"nul", b"nulll", b"n",
        b"None", b"nil", b"undefined", b"yes", b"on", b"NaN", b"nan", b"-NaN", b"Infinity", b"-Infinity", b"+Infinity", b"inf", b"-inf",
        b"[true false]", b"[nul]", b"new Date()", b"function(){}", b"true,", b"\xd1\x82rue",
    ],
)  # fmt: skip
_NUMBERS = _named(
    "number",
    [
        b"+1", b"01", b"-01", b"00", b"-00", b"00.5", b".5", b"-.5", b"1.", b"-1.", b"1.e1", b"1.5.2", b"1e", b"1E", b"1e+", b"1e-", b"1.5e",
        b"1eE2", b"1e1.5", b"1e+-1", b"e1", b"-e1", b"--1", b"-+1", b"+-1", b"- 1", b"1 000", b"1_000", b"1,000,", b"0x1", b"0X1F", b"-0x1", b"0b1",
        b"0o7", b"1f", b"1L", b"1n", b"1a", b"-a", b"1-1", b"1+1", b"1/2", b"5%", b"$1", b"1e400", b"-1e400", b"1e99999", b"9" * 310 + b".0",
        "１".encode(), "١".encode(), "1０".encode(), "−1".encode(), "½".encode(), b"[1.]", b"[.1]", b"[1e]", b"[01]", b"[-]", b"[1e400]",
    ],
)  # fmt: skip
_STRINGS = _named(
    "string",
    [
        b'"', b'"a', b'a"', b"'a'", b"`a`", b"a", b'"a"b"', b'"a" "b"', b'"\\"', b'"\\x41"', b'"\\a"', b'"\\\'"', b'"\\0"', b'"\\ "', b'"\\v"', b'"\\e"',
        b'"\\u"', b'"\\u1"', b'"\\u12"', b'"\\u123"', b'"\\uXYZW"', b'"\\u 041"', b'"\\U0041"', b'"\\u{41}"', b'"\\u-041"', b'"\\u+041"',
        b'"\\\n"', b'"\\\xc3\xa9"', b'"\\ud800"', b'"\\udbff"', b'"\\udc00"', b'"\\udfff"', b'"\\udc00\\ud800"', b'"\\ud800\\ud800"',
        b'"\\ud800a"', b'"\\ud800\\n"', b'"\\ud800\\u0041"', b'"\\ud83d\\u"', b'"\\ud83d\\ude0"', b'["\\ud800"]', b'{"\\ud800": 1}',
        "“a”".encode(), b'b"a"', b'u"a"', b'"""a"""', b'["a\'b]', b'{"a: 1}',
    ],
) | {f"string with a raw 0x{byte:02x}": b'"a' + bytes([byte]) + b'b"' for byte in range(32)}  # fmt: skip
_NOT_UTF_8 = {
    f"bytes {sequence.hex()}": b'"' + sequence + b'"'
    for sequence in [
        b"\x80", b"\xbf", b"\xc0\x80", b"\xc0\xaf", b"\xc1\xbf", b"\xc3", b"\xc3\x28", b"\xe0\x80\x80", b"\xe0\x9f\xbf", b"\xe2\x82",
        b"\xe2\x28\xa1", b"\xed\xa0\x80", b"\xed\xbf\xbf", b"\xed\xa0\xbd\xed\xb8\x80", b"\xf0\x80\x80\x80", b"\xf0\x9f\x98", b"\xf0\x28\x8c\xbc",
        b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80", b"\xf8\x88\x80\x80\x80", b"\xfc\x84\x80\x80\x80\x80", b"\xfe", b"\xff", b"caf\xe9",
    ]
}  # fmt: skip
_ENCODINGS = {
    **{f"in {name}": '{"a": "é"}'.encode(name) for name in ("utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le")},
    "in latin-1": '{"a": "é"}'.encode("latin-1"),
    "byte order mark": b"\xef\xbb\xbf{}",
    "half a byte order mark": b"\xef\xbb{}",
    "gzip": b"\x1f\x8b\x08\x00{}",
}
_SPACES = {
    f"as a space {space!r}": f'{{{space}"a"{space}:{space}1}}'.encode()
    for space in "\0\a\b\v\f\x1b\x7f\x85\xa0\u1680\u2000\u2028\u2029\u202f\u205f\u200b\u2060\u3000\ufeff"
}
_COMMENTS = _named(
    "comment",
    [
        b"1 // a", b"// a\n1", b"1 /* a */", b"/* a */ 1", b"[1, /* a */ 2]", b"1 # a", b"# a\n1", b"1 -- a", b"<!-- a --> 1", b"[1 /**/]", b"1 /", b"/",
        b'{"a": 1 // a\n}', b'{/**/"a": 1}', b"1 ; a",
    ],
)  # fmt: skip
_MORE = _named(
    "more than one value",
    [b"1 2", b"{} {}", b"[] []", b"{}\n{}", b"null null", b'"a" 1', b"1\x00", b"{}\x00", b"{}x", b"[]x", b"{}#", b"[]1", b'{}"', b"1true", b"\x1e{}"],
)  # fmt: skip
_TWICE = _named(
    "key twice",
    [
        b'{"a":1,"a":1}', b'{"a":1,"a":2}', b'{"a":1,"\\u0061":2}', b'{"":1,"":2}', b'{"a":1,"b":2,"a":3}', b'{"a":{},"a":[]}',
        b'[{"a":1,"a":2}]', b'{"x":{"a":1,"a":2}}', b'{"a":":","a":"b"}', b'{"a":null,"a":null}', b'{"\\"":1,"\\u0022":2}',
        b'{"/":1,"\\/":2}', '{"é":1,"\\u00e9":2}'.encode(), '{"😀":1,"\\ud83d\\ude00":2}'.encode(), b'{"__proto__":1,"__proto__":2}',
    ],
)  # fmt: skip
_DEEP = {
    **{f"{depth} lists deep": b"[" * depth + b"]" * depth for depth in (DEEPEST + 1, 1_000, 100_000)},
    **{f"{depth} objects deep": b'{"a":' * depth + b"1" + b"}" * depth for depth in (DEEPEST + 1, 1_000)},
    **{f"{depth} lists begun": b"[" * depth for depth in (DEEPEST + 1, 100_000)},
    **{f"{depth} objects begun": b'{"a":' * depth for depth in (DEEPEST + 1, 90_000)},
    "lists and objects deep": b'[{"a":' * DEEPEST + b"1" + b"}]" * DEEPEST,
}

REFUSED: dict[str, bytes] = {
    **_STRUCTURE, **_WORDS, **_NUMBERS, **_STRINGS, **_NOT_UTF_8, **_ENCODINGS, **_SPACES, **_COMMENTS, **_MORE, **_TWICE, **_DEEP,
    "a hundred thousand keys and one": json.dumps(dict.fromkeys(map(str, range(100_001)), 0)).encode(),
}  # fmt: skip
"""No JSON, or JSON beyond the limits."""

NUMBERS: dict[str, bytes] = _named(
    "number",
    [
        b"0", b"-0", b"0.0", b"-0.0", b"0e0", b"0E+0", b"-0e-0", b"1", b"-1", b"9", b"10", b"1.5", b"-1.5", b"0.1", b"1e1", b"1E1", b"1e+1", b"1e-1",
        b"1.5e3", b"1.50", b"1e05", b"1e-45", b"1e-400", b"123456789", b"16777217", b"9007199254740993", b"9223372036854775808",
        b"18446744073709551615", b"18446744073709551616", b"123456789012345678901234567890", b"-123456789012345678901234567890",
        b"0.30000000000000004", b"3.4028234e38", b"-3.4028234e38", b"1.17549435e-38", b"0." + b"1" * 400, b"0." + b"0" * 400 + b"1",
        b"1" + b"0" * 30, b"3.141592653589793238462643383279502884197", b"1e000000000000000001",
    ],
)  # fmt: skip
"""Within FP32's range."""

STRINGS: dict[str, bytes] = _named(
    "string",
    [
        b'"a"', b'" "', b'"\\""', b'"\\\\"', b'"\\/"', b'"/"', b'"\\b\\f\\n\\r\\t"', b'"\\u0041"', b'"\\u00e9"', b'"\\u00E9"', b'"\\u0000"', b'"\\u001f"',
        b'"\\ud83d\\ude00"', b'"\\uD83D\\uDE00"', b'"\\udbff\\udfff"', b'"\\uffff"', b'"\\ufdd0"', b'"\\u2028"', b'"\\\\u0041"', b'"\\\\ud800"', b"\"'\"",
        b'"\x7f"', b'"// a"', b'"[1,"', b'"{\\"a\\":1,\\"a\\":1"', b'":::"', b'"null"', b'"\\ufeff"', b'"' + b"[" * 100 + b'"',
        *(f'"{text}"'.encode() for text in ("é", "😀", "\u2028", "\ufeff", "\uffff", "\U0010ffff", "e\u0301", "עברית", "\x85", "日本", "\U0001f468\u200d\U0001f469")),
    ],
)  # fmt: skip

VALUES: dict[str, bytes] = _named(
    "value",
    [
        b"null", b"true", b"false", b"{}", b"[]", b" 1 ", b"[1]", b"[null]", b"[[[]]]", b'{"a":1}', b'{"":0}', b'{"a":{"a":1}}', b'[{"a":1},{"a":1}]',
        b'{"a":1,"A":2}', b'{"a":1,"a ":2}', b'{"\\u0000":1}', '{"é":1,"e\u0301":2}'.encode(), b'{"a:":"b:"}', b"[1,2,3]", b"\t[\r\n1 , 2]\n",
        b'{"a" : [ true , false , null ] }', b"1e308", b"5e-324", b"-1.7976931348623157e308", b'["\\u2028"]', b'{"__proto__":1}',
        b"[" * (DEEPEST - 8) + b"]" * (DEEPEST - 8), b'{"a":' * (DEEPEST - 8) + b"1" + b"}" * (DEEPEST - 8), b"[" + b"[]," * 1_000 + b"[]]",
        json.dumps(dict.fromkeys(map(str, range(1_000)))).encode(),
    ],
)  # fmt: skip
"""JSON of all kinds, to be read, whatever is then said of its meaning."""

WRITINGS: dict[str, Callable[[bytes], bytes]] = {
    "no spaces": lambda text: json.dumps(json.loads(text), separators=(",", ":")).encode(),
    "a line each": lambda text: json.dumps(json.loads(text), indent=4).encode(),
    "tabs": lambda text: json.dumps(json.loads(text), indent="\t").encode(),
    "carriage returns": lambda text: json.dumps(json.loads(text), indent=1).encode().replace(b"\n", b"\r\n"),
    "spaces around": lambda text: b" \t\r\n" + text + b"\n\r\t ",
    "spaces before all": lambda text: json.dumps(json.loads(text), separators=(" ,\n\t", "\r : ")).encode(),
    "keys in another order": lambda text: json.dumps(json.loads(text, object_pairs_hook=_turned)).encode(),
    "strings in escapes": lambda text: re.sub(rb'"(\w+)"', lambda found: _escaped(found[1]), text),
}
"""The same message, written in another way."""


def _turned(pairs: list[tuple[str, object]]) -> dict[str, object]:
    return dict(reversed(pairs))


def _escaped(text: bytes) -> bytes:
    return b'"' + b"".join(b"\\u%04x" % byte for byte in text) + b'"'
