"""Names of certificates: the form of RFC 4514, as certificates give it and as people write it."""

import logging

import pytest

from forwardpass.ingress.identity.subjects import normal_subject, subject_of


def named(*pairs: tuple[str, str]) -> str:
    """What is written of a certificate whose subject has these parts, the least specific first."""
    return subject_of({"subject": tuple((pair,) for pair in pairs)})


def test_a_subject_is_written_as_rfc_4514_has_it() -> None:
    """Its section 4: the most specific name first, several in one part with +, special characters escaped."""
    name = (
        (("countryName", "GB"),),
        (("organizationName", "Sue, Grabbit and Runn"),),
        (("organizationalUnitName", "Sales"), ("commonName", "J. Smith")),
    )
    assert subject_of({"subject": name}) == r"OU=Sales+CN=J. Smith,O=Sue\, Grabbit and Runn,C=GB"


@pytest.mark.parametrize("certificate", [None, {}, {"subject": ()}])
def test_no_certificate_names_nobody(certificate: dict[str, object] | None) -> None:
    assert subject_of(certificate) == ""


def test_a_certificate_without_a_subject_is_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    """Such as SPIFFE's: its name is an URI beside the subject."""
    names = (("URI", "spiffe://example/svc"),)
    with caplog.at_level(logging.WARNING, "forwardpass.identity"):
        found = [subject_of({"subject": (), "serialNumber": "0ABC", "subjectAltName": names}) for _ in range(3)]
    assert found == ["", "", ""]
    assert [record.message for record in caplog.records if "no subject" in record.message] != []
    assert len(caplog.records) == 1


ESCAPED = {
    " a": r"CN=\ a", "a ": r"CN=a\ ", "#a": r"CN=\#a", "a#": "CN=a#", "a\0b": r"CN=a\00b", "a,O=acme": r"CN=a\,O=acme",
    'a"+;<>\\': r"CN=a\"\+\;\<\>\\", " ": r"CN=\ ", "é": "CN=é",
}  # fmt: skip
"""RFC 4514, section 2.4."""


@pytest.mark.parametrize("value", ESCAPED, ids=repr)
def test_what_has_a_meaning_in_a_name_is_escaped_in_a_value(value: str) -> None:
    assert named(("commonName", value)) == ESCAPED[value]
    assert normal_subject(ESCAPED[value]) == ESCAPED[value]


@pytest.mark.parametrize(
    ("written", "normal"),
    [
        ("CN=svc,O=acme", "CN=svc,O=acme"),
        ("CN=svc, O=acme", "CN=svc,O=acme"),
        (" cn = svc , o=acme ", "CN=svc,O=acme"),
        ("commonName=svc,organizationName=acme", "CN=svc,O=acme"),
        ("UID=jsmith,DC=example,DC=net", "UID=jsmith,DC=example,DC=net"),
        ("OU=Sales+CN=J.  Smith", "OU=Sales+CN=J.  Smith"),
        (r"CN=Lu\C4\8Di\C4\87", "CN=Lučić"),
        (r"CN=James \"Jim\" Smith\, III", r"CN=James \"Jim\" Smith\, III"),
        (r"CN=a\ ,O=b", r"CN=a\ ,O=b"),
        (r"CN=a\=b", "CN=a=b"),
        ("emailaddress=a@b,SERIALNUMBER=7", "emailAddress=a@b,serialNumber=7"),
        ("street=1 Main,2.5.4.97=x", "STREET=1 Main,2.5.4.97=x"),
    ],
)
def test_a_name_has_one_form_however_it_is_written(written: str, normal: str) -> None:
    assert normal_subject(written) == normal
    assert normal_subject(normal) == normal


@pytest.mark.parametrize(
    "written",
    ["", "svc", "CN", "CN=", "=svc", "CN=svc,", ",CN=svc", "CN=a;O=b", 'CN="a"', "CN=a\\", r"CN=a\x", "CN=#0401",
     r"CN=\FF", "CN=a,,O=b", "C N=a", "CN=a+", "CN=a\0"],
)  # fmt: skip
def test_what_is_no_name_is_refused(written: str) -> None:
    with pytest.raises(ValueError):  # whatever it says: the command line tells the form
        normal_subject(written)
