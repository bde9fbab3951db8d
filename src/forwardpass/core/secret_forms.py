"""Keys, tokens and the like that are known by their form: one table for what logs hide and what guards find."""

from typing import NamedTuple


class SecretForm(NamedTuple):
    """``begins`` is how it begins and ``goes_on`` what follows, regular expressions both; ``mark`` is in each of it."""

    mark: str
    begins: str
    goes_on: str


SECRET_FORMS = (
    SecretForm("fp_", "fp_", "[A-Za-z0-9_-]{16,}"),  # this server's own
    SecretForm("sk-", "sk-", "[A-Za-z0-9_-]{20,}"),
    SecretForm("k_", "[srp]k_(?:live|test)_", "[A-Za-z0-9]{16,}"),
    SecretForm("akia", "AKIA", "[0-9A-Z]{16}"),
    SecretForm("asia", "ASIA", "[0-9A-Z]{16}"),
    SecretForm("gh", "gh[pousr]_", "[A-Za-z0-9]{36,}"),
    SecretForm("github_pat_", "github_pat_", "[A-Za-z0-9_]{22,}"),
    SecretForm("glpat-", "glpat-", "[A-Za-z0-9_-]{20,}"),
    SecretForm("xox", "xox[abeoprs]-", "[A-Za-z0-9-]{10,}"),
    SecretForm("aiza", "AIza", "[0-9A-Za-z_-]{35,}"),
    SecretForm("hf_", "hf_", "[A-Za-z0-9]{30,}"),
    SecretForm("npm_", "npm_", "[A-Za-z0-9]{36,}"),
    SecretForm("eyj", "eyJ", r"[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}"),  # a JSON web token
)
