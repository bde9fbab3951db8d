"""What no request can show of the door: how keys are compared, and how values get into SQL (the catalogue's A3, R17)."""

import ast
import re
from pathlib import Path

import forwardpass as product


def test_a3_a_key_is_only_compared_in_constant_time_and_only_by_its_digest() -> None:
    """A3 as structure: what is secret meets ``hmac.compare_digest`` over SHA-256 digests, and no ``==`` anywhere."""
    package = Path(product.__file__).parent
    files = [
        *(package / "ingress" / "identity").glob("*.py"),
        package / "store" / "keys.py",
        package / "ingress" / "edge.py",
    ]
    nodes = [node for file in files for node in ast.walk(ast.parse(file.read_text()))]
    compared = [ast.unparse(node) for node in nodes if isinstance(node, ast.Compare)]
    assert not [text for text in compared if re.search(r"\b(secret|token|digest|authorization)\b *[!=]=", text)]
    calls = [
        ast.unparse(node) for node in nodes if isinstance(node, ast.Call) and "compare_digest" in ast.unparse(node.func)
    ]
    assert calls == ["hmac.compare_digest(digest, key.digest)"]


def test_values_get_into_sql_as_bound_parameters_only() -> None:
    """What is written into a statement are names of the module's own, in capitals."""
    for file in Path(product.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(text)) if ".execute" in (text := file.read_text()) else ():
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr.startswith("execute")
                and node.args  # a statement; what takes none executes no SQL
            ):
                put_in = [
                    ast.unparse(part.value) for part in ast.walk(node.args[0]) if isinstance(part, ast.FormattedValue)
                ]
                assert all(re.fullmatch("_?[A-Z_]+", name) for name in put_in), f"{file.name}:{node.lineno}"
                assert not isinstance(node.args[0], ast.BinOp), f"{file.name}:{node.lineno}"
