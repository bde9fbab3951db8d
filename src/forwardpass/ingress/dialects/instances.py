"""Rows as TensorFlow Serving writes them: ``instances``, row by row, and ``inputs``, column by column.

MLflow, Vertex AI and KServe's V1 take the same two. A bare value stands for the only input.
"""

from collections.abc import Mapping

from forwardpass.core.errors import Code, show
from forwardpass.core.pipeline import Input, Signature
from forwardpass.ingress.dialects.rows import BASE64, Record, Rows, check_count, record_of, undone
from forwardpass.pipeline.bounds import refuse


def by_row(instances: object, signature: Signature, where: str) -> Rows:
    """A list with, for each row, an object by the names of inputs, or the value of the only input. Raises Refused."""
    if not isinstance(instances, list):
        raise refuse(Code.WRONG_TYPE, where, "expected a list with one element a row")
    check_count(len(instances), where)
    records = [instance_of(one, signature, f"{where}/{row}") for row, one in enumerate(instances)]

    def at(row: int, name: str) -> str:
        return f"{where}/{row}/{name}" if _is_record(instances[row], signature) else f"{where}/{row}"

    return Rows(records, at)


def by_column(inputs: object, signature: Signature, where: str) -> Rows:
    """An object with a list of all rows' values for each input, or such a list for the only one. Raises Refused.

    One text by itself is the only row of the only text.
    """
    if isinstance(inputs, str) and [given.type for given in signature.inputs] == ["text"]:
        return Rows([{signature.inputs[0].name: inputs}], lambda row, name: where)
    if not isinstance(inputs, dict):
        return by_row(inputs, signature, where)
    counts: dict[str, int] = {}
    for name, values in inputs.items():
        if not isinstance(values, list):
            raise refuse(Code.WRONG_TYPE, f"{where}/{show(name)}", "expected a list with one value a row")
        counts[name] = len(values)
    if len(set(counts.values())) > 1:
        told = ", ".join(f"{show(name)} {count}" for name, count in list(counts.items())[:8])
        raise refuse(Code.SHAPE_MISMATCH, where, f"every list must have a value for each row; found {told}"[:300])
    check_count(next(iter(counts.values()), 0), where)
    rows = zip(*inputs.values(), strict=True)
    records = [record_of(dict(zip(inputs, row, strict=True)), signature, where) for row in rows]
    return Rows(records, lambda row, name: f"{where}/{name}/{row}" if name in inputs else f"{where}/{name}")


def instance_of(instance: object, signature: Signature, where: str) -> Record:
    """One row, in the form that an element of ``instances`` has."""
    if _is_record(instance, signature):
        assert isinstance(instance, dict), "a record is an object"
        return record_of(instance, signature, where)
    only = _only(signature)
    if only is None:
        names = ", ".join(column.name for column in signature.columns[:16])
        raise refuse(Code.WRONG_TYPE, where, f"expected an object with {names}")
    return {only.name: undone(instance)}


def _is_record(instance: object, signature: Signature) -> bool:
    """Whether the names of inputs stand in it, not the value of the only one."""
    if not isinstance(instance, Mapping):
        return False
    only = _only(signature)
    return only is None or instance.keys() != {BASE64} or only.name == BASE64


def _only(signature: Signature) -> Input | None:
    return signature.inputs[0] if len(signature.inputs) == 1 else None
