"""What counts as personal data or a secret, and what only looks like it.

Cards: the test numbers that payment providers publish. IBANs: the examples of the registry (ISO 13616). Addresses: those
reserved for documentation (RFC 2606, 5737, 3849, 5952). Telephones: those reserved for fiction (Ofcom, NANPA 555-01xx,
ITU). Keys: the examples of the services' own documentation, or their form filled with letters.
"""

from pathlib import Path

import pytest

from forwardpass.core.pipeline import Guard, Pii
from forwardpass.steps.guard.checks import Check, Seen, ready

FOUND: dict[Pii, list[str]] = {
    "email": [
        "joe@example.com", "first.last+tag@sub.example.co.uk", "x@example.museum", "o'brien@example.org",
        "user%dept@example.com", "a_b-c@example-one.net", "JOE@EXAMPLE.COM", "jörg@bücher.example",
        "user!host@example.com", '"joe bloggs"@example.com', "用户@例子.公司", "joe@xn--bcher-kva.xn--p1ai", "1234567890@example.com", "joe@a.b.c.d.example.com",
    ],
    "card": [
        "4242424242424242", "4242 4242 4242 4242", "4242-4242-4242-4242", "4012888888881881", "4222222222222",
        "5555555555554444", "5105 1051 0510 5100", "2223003122003222", "378282246310005", "3782 822463 10005",
        "371449635398431", "6011111111111117", "6011000990139424", "3530111333300000", "30569309025904",
        "3852 000002 3237", "6205500000000000004", "4242  4242  4242  4242", "4242\t4242\t4242\t4242",
        "4242\r\n4242\r\n4242\r\n4242", "4242.4242.4242.4242", "4242_4242_4242_4242", "3782.822463.10005",
    ],
    "iban": [
        "GB29 NWBK 6016 1331 9268 19", "GB29NWBK60161331926819", "DE89 3704 0044 0532 0130 00",
        "FR14 2004 1010 0505 0001 3M02 606", "NO93 8601 1117 947", "MT84 MALT 0110 0001 2345 MTLC AST0 01S",
        "CH93 0076 2011 6238 5295 7", "NL91 ABNA 0417 1643 00", "SA03 8000 0000 6080 1016 7519",
        "BE68 5390 0754 7034", "GB29-NWBK-6016-1331-9268-19", "DE89\n3704\n0044\n0532\n0130\n00", "es91 2100 0418 4502 0005 1332", "PL61 1090 1014 0000 0712 1981 2874",
    ],
    "phone": [
        "+44 20 7946 0958", "+442079460958", "+1 202-555-0147", "+1 (202) 555-0147", "(202) 555-0147", "202-555-0147",
        "202.555.0147", "1-202-555-0147", "+49 30 23125 000", "+33 1 99 00 12 34", "0044 20 7946 0958", "+61 491 570 156",
    ],
    "ip": [
        "192.0.2.1", "198.51.100.255", "203.0.113.77", "127.0.0.1", "0.0.0.0", "2001:db8::1", "2001:db8:0:0:1:0:0:1",
        "2001:DB8::8:800:200C:417A", "::1", "fe80::1", "2606:4700::1111", "64:ff9b::192.0.2.33", "::ffff:192.0.2.128", "2001:db8:85a3::8a2e:370:7334",
    ],
    "key": [
        "AKIAIOSFODNN7EXAMPLE", "sk_test_" + "4eC39HqLyjWDarjtT1zdp7dc", "ghp_" + "a1B2" * 9, "github_pat_" + "A1b2C3d4" * 4,
        "xoxb-" + "123456789012-abcdef", "AIza" + "SyA-" * 8 + "abc", "hf_" + "AbCd" * 9, "glpat-" + "abcd" * 5,
        "sk-" + "proj-Ab12" * 4, "sk-" + "0123456789abcdef" * 2, "sk-" + "a1B2" * 100, "fp_a1b2c3d4_" + "Ab-_" * 10,
        "eyJhbGciOiJIUzI1NiJ9.eyJ" + "a" * 3000 + "." + "b" * 3000,
        "npm_" + "a1B2" * 9,
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U",
    ],
}  # fmt: skip
PASSED: dict[Pii, list[str]] = {
    "email": [
        "joe at example.com", "@joe", "joe@", "joe@localhost", "a@b", "@example.com", "x @ y.com", "git@", "foo@bar.",
        "3 @ 2.50", "joe@@", "a@.com", '""@example.com', '"a\nb"@example.com',
    ],
    "card": [
        "4242424242424243", "1234567890123456", "0000000000000000", "42424242424242424242", "9999999999999995",
        "4242 4242 4242", "4 2 4 2 4 2 4 2 4 2 4 2 4 2 4 2", "12.34567890123456", "2024-01-31",
        "424242424242", "14242424242424242424",
        "0x4111111111111111", "4.111111111111111", "2010-2011-2012-2013", "2015 2016 2017 2025",
    ],
    "iban": [
        "GB29 NWBK 6016 1331 9268 18", "GB29NWBK6016133192681", "XX29 NWBK 6016 1331 9268 19", "GB29NWBK601613319268190",
        "AGB29NWBK60161331926819", "DE89", "BE68 5390 0754 7035", "invoice AB12 3456 7890 1234 5678", "NO93 8601 1117 94",
    ],
    "phone": [
        "+44", "2024-01-31", "12:30:45", "1.234.567", "123-45-6789", "555-0147", "3.14159265358979", "1,234,567,890",
        "+12345", "+123456789012345678", "v202.555.01477", "978-3-16-148410-0",
        "invoice 0012345678", "a+12345678", "1e+1234567", "200.100.2000", "00100200300400",
    ],
    "ip": [
        "256.1.1.1", "1.2.3", "1.2.3.4.5", "12:30:45", "std::vector", "a::b::c", "01.02.03.04", "::", "1.2.3.456",
        "2001:db8::1::2", "face:b00k::1x", "10:20",
        "xs[1::2]", "xs[::1]", "A::B", "dead::beef", "Chrome/120.0.0.0 Safari", "section 3.2.1.4", "version 4.18.0.1",
        "foo==1.2.3.4", "v1.0.0.0",
    ],
    "key": [
        "sk-short", "AKIA1234", "task-force-one-two", "ghp_short", "eyJhbGciOiJIUzI1NiJ9", "the risk-averse-investor-x",
        "hf_model", "xoxb-1", "AIzaTooShort", "sk", "sk-learn-is-not-a-key-but-long-words-here", "sk-estimator-container-id-1-top",
        "sk-SOMETHING-long-enough-to-be", "disk-ABCDEFGHIJKLMNOPQRSTUVWXYZ",
    ],
}  # fmt: skip


def check(kind: Pii) -> Check:
    return ready(Guard("g", "input", "mask", pii=(kind,)), Path("/nowhere"))


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, texts in FOUND.items() for text in texts])
def test_it_is_found_alone_and_within_a_sentence(kind: Pii, text: str) -> None:
    assert check(kind).look(text) == Seen(1, f"[{kind}]")
    assert check(kind).look(f"It is {text}, he said.").text == f"It is [{kind}], he said."
    assert check(kind).look(f"«{text}»\n{text}").text == f"«[{kind}]»\n[{kind}]"


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, texts in PASSED.items() for text in texts])
def test_what_only_looks_like_it_passes(kind: Pii, text: str) -> None:
    assert check(kind).look(text) == Seen(0, text)


HIDDEN: list[tuple[Pii, str]] = [
    ("card", "4242\u00a04242\u202f4242\u20094242"), ("card", "4242\u20114242\u20134242\u22124242"),
    ("card", "４２４２４２４２４２４２４２４２"), ("card", "4242\u200b4242\u200b4242\u200b4242"), ("card", "4242 42\u200b42 4242 4242"),
    ("card", "٤٢٤٢٤٢٤٢٤٢٤٢٤٢٤٢"), ("card", "4242\x0042424242\x004242"), ("iban", "GB29\u00a0NWBK\u00a06016\u00a01331\u00a09268\u00a019"),
    ("email", "joe＠example.com"), ("email", "j\u200boe@exam\u00adple.com"), ("email", "ｊｏｅ@example．com"),
    ("key", "AKIA\u200bIOSFODNN7EXAMPLE"), ("phone", "+44\u00a020\u00a07946\u00a00958"), ("phone", "＋４４ 20 7946 0958"),
    ("ip", "192.0.\u20602.1"), ("ip", "192．0．2．1"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "text"), HIDDEN)
def test_it_is_found_however_its_characters_are_written(kind: Pii, text: str) -> None:
    assert check(kind).look(f"é so: {text}, yes").text == f"é so: [{kind}], yes"


@pytest.mark.parametrize(
    ("kind", "text", "left"),
    [
        ("ip", "192.0.2.1:8080", "[ip]:8080"),
        ("ip", "http://192.0.2.1:80/x", "http://[ip]:80/x"),
        ("ip", "ip:10.0.0.1", "ip:[ip]"),
        ("ip", "addr:2001:db8::1", "addr:[ip]"),
        ("ip", "http://[::1]:80/ and [2001:db8::1]:443", "http://[[ip]]:80/ and [[ip]]:443"),
        ("email", "请联系joe@example.com谢谢", "请联系[email]谢谢"),
        ("email", "로joe@example.com으로", "로[email]으로"),
        ("email", "**joe@example.com**", "**[email]**"),
        ("email", "joe@example.com_amy@example.com", "[email][email]"),
        ("email", "joe@" + "a." * 126 + "com.example", "[email].example"),
        ("phone", "电话202-555-0147号", "电话[phone]号"),
        ("card", "12\u200b4242424242424242", "12\u200b[card]"),
        ("card", "4000 4242 4242 4242 4242", "4000 [card]"),
    ],
)  # fmt: skip
def test_what_stands_around_it_stays(kind: Pii, text: str, left: str) -> None:
    assert check(kind).look(text).text == left


def test_a_card_is_found_behind_another_number() -> None:
    assert check("card").look("room 1234 4242 4242 4242 4242").text == "room 1234 [card]"


def test_kinds_are_told_apart() -> None:
    guard = Guard("g", "input", "mask", pii=("phone", "card", "email", "iban", "ip", "key"))
    text = "GB29NWBK60161331926819 4242424242424242 202-555-0147 192.0.2.1 joe@example.com AKIAIOSFODNN7EXAMPLE"
    assert ready(guard, Path("/nowhere")).look(text).text == "[iban] [card] [phone] [ip] [email] [key]"
