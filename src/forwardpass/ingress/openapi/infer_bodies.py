"""Bodies that depend on a pipeline's signature: the plain dialect, V2, and the platforms' rows."""

from collections.abc import Mapping, Sequence
from typing import Any

from forwardpass.core.pipeline import ENCODED, Field, Input
from forwardpass.core.tensor import DATATYPES
from forwardpass.ingress.dialects.generate import HARMLESS, TEXT_INPUT, TEXT_OUTPUT
from forwardpass.ingress.dialects.kserve_v1 import SIGNATURE, SIGNATURES
from forwardpass.ingress.dialects.predict import INSTANCES_MAX
from forwardpass.ingress.dialects.predictions import LINES
from forwardpass.ingress.dialects.turns import NUMBER_MAX
from forwardpass.ingress.dialects.v2 import ID_CHARACTERS_MAX
from forwardpass.ingress.dialects.v2_input import NUMBERS, ROWS_MAX
from forwardpass.ingress.dialects.v2_metadata import row_shape
from forwardpass.ingress.dialects.v2_parameters import COUNT_MAX, PRIORITY_MAX, STRING_CHARACTERS_MAX
from forwardpass.ingress.openapi import examples, schemas
from forwardpass.ingress.openapi.answers import row_error
from forwardpass.ingress.openapi.parameters import SEQUENCE
from forwardpass.ingress.openapi.served import Content, Schema, Served, list_of, object_of, reference
from forwardpass.pipeline.bounds import may_be_missing

RECORD, ANSWER, INFER_REQUEST, INFER_ANSWER = "Record", "Answer", "InferRequest", "InferAnswer"
PARAMETER_NAME = "^[A-Za-z][A-Za-z0-9_.-]{0,63}$"
_TEXT: Schema = {"type": "string"}
_RAW: Schema = {"description": "bytes"}


def components(served: Served) -> dict[str, Schema]:
    """The schemas of one version."""
    signature = served.signature
    record = schemas.record(signature)
    if served.definition.description:
        record["description"] = served.definition.description
    notes = {"notes": list_of(reference("Note")), "receipt": reference("Receipt")}
    answer = object_of({"outputs": schemas.outputs(signature), **notes}, tuple(notes))
    parts = {
        RECORD: record,
        ANSWER: answer,
        INFER_REQUEST: _infer_request(served),
        INFER_ANSWER: _infer_answer(served),
    }
    return {served.part(name): schema for name, schema in parts.items()}


def shared() -> dict[str, Schema]:
    """The schemas that those of versions refer to."""
    return {
        "Note": {
            "type": "object",
            "description": "something that a step did to the row, such as truncated",
            "properties": {"name": _TEXT},
            "required": ["name"],
        },
        "Receipt": {"type": "object", "description": "how the answer came about: version, batch, times"},
        "RowError": object_of({"error": row_error()}),
    }


def predict_body(subjects: Sequence[Served]) -> Content:
    """JSON, a form, or the bare value of an input that is the only one of its kind."""
    (served,) = subjects
    inputs = served.signature.inputs
    record = reference(served.part(RECORD))
    many = object_of({"instances": list_of(record, minItems=1, maxItems=INSTANCES_MAX)})
    own = any(given.name == "instances" for given in inputs)
    media: Schema = {"schema": record if own else {"anyOf": [record, many]}}
    content = {"application/json": _with(media, examples.records(served)), "multipart/form-data": _form(inputs)}
    if _is_bare(inputs, frozenset({"text"})):
        content["text/plain"] = {"schema": _TEXT}
    if _is_bare(inputs, ENCODED):
        content |= {name: {"schema": _RAW} for name in ("application/octet-stream", "image/*", "audio/*")}
    return content


def predict_answer(subjects: Sequence[Served]) -> Content:
    (served,) = subjects
    one = reference(served.part(ANSWER))
    results = list_of({"anyOf": [one, reference("RowError")]})
    failed: Schema = {"type": "integer", "minimum": 0}
    many = object_of({"results": results, "failed": failed, "receipt": reference("Receipt")}, ("receipt",))
    content: Content = {"application/json": {"schema": {"anyOf": [one, many]}}}
    kinds = [output.kind for output in served.signature.outputs if output.kind in ("image", "audio")]
    return {**content, f"{kinds[0]}/*": {"schema": _RAW}} if len(kinds) == 1 else content


def infer_body(subjects: Sequence[Served]) -> Content:
    """JSON, or JSON and binary tensors behind it."""
    (served,) = subjects
    found = {
        name: {**example, "value": value}
        for name, example in examples.records(served).items()
        if (value := examples.infer_request(served, example["value"])) is not None
    }
    return {
        "application/json": _with({"schema": reference(served.part(INFER_REQUEST))}, found),
        "application/octet-stream": {"schema": _binary()},
    }


def infer_answer(subjects: Sequence[Served]) -> Content:
    (served,) = subjects
    return {
        "application/json": {"schema": reference(served.part(INFER_ANSWER))},
        "application/octet-stream": {"schema": _binary()},
    }


def generate_body(subjects: Sequence[Served]) -> Content:
    """Inputs by name, of which the only text is called text_input too; parameters may stand beside them."""
    (served,) = subjects
    inputs = served.signature.inputs
    record = schemas.record(served.signature)
    texts = [given for given in inputs if given.type == "text"]
    stream: Schema = {"type": "boolean", "description": "true on generate_stream only"}
    harmless: Schema = {"description": "accepted and without effect"}
    beside = {**dict.fromkeys(HARMLESS, harmless), "stream": stream, **_meant(served)}
    properties = {"id": _id(), **beside, **record["properties"], "parameters": _parameters(served)}
    schema: Schema = {
        "type": "object",
        "properties": properties,
        "required": record.get("required", []),
        "additionalProperties": False,
    }
    if len(texts) == 1 and TEXT_INPUT not in properties:
        properties[TEXT_INPUT] = schemas.input_value(texts[0])
        either = (texts[0].name, TEXT_INPUT) if texts[0].name in schema["required"] else ()
        schema["required"] = [name for name in schema["required"] if name not in either]
        schema |= {"oneOf": [{"required": [name]} for name in either]} if either else {}
    return {"application/json": _with({"schema": schema}, examples.records(served))}


def generate_answer(subjects: Sequence[Served]) -> Content:
    (served,) = subjects
    outputs = schemas.outputs(served.signature)["properties"]
    beside: dict[str, Schema] = {TEXT_OUTPUT: {"type": ["string", "null"]}, "parameters": {"type": "object"}}
    optional = {"receipt": reference("Receipt"), **{name: beside[name] for name in beside.keys() - outputs.keys()}}
    named = {"id": _TEXT, "model_name": _TEXT, "model_version": _TEXT}
    return {"application/json": {"schema": object_of({**named, **outputs, **optional}, tuple(sorted(optional)))}}


def kserve_body(subjects: Sequence[Served]) -> Content:
    """Rows by instances, or columns by inputs."""
    (served,) = subjects
    name: dict[str, Schema] = {SIGNATURE: {"enum": [*SIGNATURES, None]}}
    rows = list_of(_row(served), minItems=1)
    forms = [
        object_of({"instances": rows, **name}, (SIGNATURE,)),
        object_of({"inputs": _columns(), **name}, (SIGNATURE,)),
    ]
    found = {
        name: {**example, "value": {"instances": [example["value"]]}}
        for name, example in examples.records(served).items()
    }
    return {"application/json": _with({"schema": {"anyOf": forms}}, found)}


def predictions(subjects: Sequence[Served]) -> Content:
    """One prediction a row: the only output's value, or an object of several."""
    return {"application/json": {"schema": _predictions()}}


def invocations_body(subjects: Sequence[Served]) -> Content:
    """MLflow's, SageMaker's and Vertex AI's forms, of whichever pipeline answers."""
    rows = list_of({"anyOf": [_row(served) for served in subjects]} if subjects else {}, minItems=1)
    cells = list_of(list_of({}), minItems=1)
    frame = object_of({"index": list_of({}), "columns": list_of(_TEXT), "data": cells}, ("index", "columns"))
    none: Schema = {"type": "object", "maxProperties": 0, "description": "empty: there are no parameters"}
    beside = {"params": none, "parameters": none}
    forms = {
        "instances": rows,
        "dataframe_records": list_of({"type": "object"}, minItems=1),
        "dataframe_split": frame,
        "inputs": {"anyOf": [_columns(), rows]},
    }
    schema = {"anyOf": [object_of({name: form, **beside}, tuple(beside)) for name, form in forms.items()]}
    found = {
        f"{served.identifier}_{name}": {
            "summary": f"{served.pipeline}: {example['summary']}",
            "value": {"instances": [example["value"]]},
        }
        for served in subjects
        for name, example in examples.records(served).items()
    }
    lines = {"schema": {"type": "string", "description": "an element of instances a line"}}
    table = {"schema": {"type": "string", "description": "a header with the names of inputs, then a row a line"}}
    content: Content = {
        "application/json": _with({"schema": schema}, found), **dict.fromkeys(LINES, lines), "text/csv": table
    }  # fmt: skip
    if any(_is_bare(served.signature.inputs, ENCODED) for served in subjects):
        content["application/octet-stream"] = {"schema": _RAW}
    return content


def invocations_answer(subjects: Sequence[Served]) -> Content:
    text: Schema = {"schema": _TEXT}
    return {"application/json": {"schema": _predictions()}, **dict.fromkeys(LINES, text), "text/csv": text}


def _columns() -> Schema:
    lists = {"type": "object", "additionalProperties": list_of({}, minItems=1), "minProperties": 1}
    return {**lists, "description": "for each input a list with all rows' values"}


def _predictions() -> Schema:
    notes = {"notes": list_of({"type": "object"}), "receipt": reference("Receipt")}
    return object_of({"predictions": {"type": "array"}, **notes}, tuple(notes))


def _row(served: Served) -> Schema:
    """What an element of instances may be: a record, one with a record's columns by themselves, or the only value."""
    inputs = served.signature.inputs
    options = [reference(served.part(RECORD))]
    if any(given.type == "record" for given in inputs):
        flat: dict[str, Schema] = {}
        for given in inputs:
            value = schemas.input_value(given)
            flat |= value["properties"] if given.type == "record" else {given.name: value}
        missing = tuple(name for given in inputs if may_be_missing(given) for name in (given.columns or (given.name,)))
        options.append(object_of(flat, missing))
    if len(inputs) == 1:
        options.append(schemas.input_value(inputs[0]))
    return {"anyOf": options} if len(options) > 1 else options[0]


def _with(media: Schema, found: Mapping[str, Schema]) -> Schema:
    return {**media, "examples": dict(found)} if found else media


def _is_bare(inputs: Sequence[Input], types: frozenset[str]) -> bool:
    """Whether a body may be the value of the only input of these types, the others being left out."""
    return sum(given.type in types for given in inputs) == 1 and all(
        given.type in types or given.missing for given in inputs
    )


def _form(inputs: Sequence[Input]) -> Schema:
    """A part for each input: raw where it is bytes, plain where it is text, else JSON."""
    optional = tuple(given.name for given in inputs if given.missing)
    parts = {
        given.name: {"type": "string", "contentMediaType": schemas.input_value(given)["contentMediaType"]}
        if given.type in ENCODED
        else schemas.input_value(given)
        for given in inputs
    }
    plain = ENCODED | {"text", "category"}
    encoding = {given.name: {"contentType": "application/json"} for given in inputs if given.type not in plain}
    return {"schema": object_of(parts, optional), **({"encoding": encoding} if encoding else {})}


def _binary() -> Schema:
    return {
        "description": "V2's binary tensor extension: the same JSON, whose size Inference-Header-Content-Length says, "
        "then the bytes of the tensors, whose sizes the parameter binary_data_size of each says"
    }


def _id() -> Schema:
    return {"type": "string", "maxLength": ID_CHARACTERS_MAX, "description": "echoed"}


def _meant(served: Served) -> dict[str, Schema]:
    """The parameters of a request that mean something."""
    named: dict[str, Schema] = {
        "priority": {"type": "integer", "minimum": 0, "maximum": PRIORITY_MAX, "description": "1 is the first"},
        "timeout": {"type": "integer", "minimum": 0, "description": "microseconds; 0: the server's default"},
        "receipt": {"type": "string", "enum": ["full"]},
    }
    if served.definition.sequence is not None:
        named |= {
            "sequence_id": {"anyOf": [SEQUENCE, {"type": "integer", "minimum": 0, "maximum": NUMBER_MAX}]},
            "sequence_start": {"type": "boolean"},
            "sequence_end": {"type": "boolean"},
        }
    return named


def _parameters(served: Served) -> Schema:
    return {
        "type": "object",
        "properties": _meant(served),
        "description": "others are without effect",
        "additionalProperties": {"type": ["string", "number", "boolean"], "maxLength": STRING_CHARACTERS_MAX},
        "propertyNames": {"pattern": PARAMETER_NAME},
        "maxProperties": COUNT_MAX,
    }


def _infer_request(served: Served) -> Schema:
    signature = served.signature
    names = list(signature.output_names)
    options: dict[str, Schema] = {
        "binary_data": {"type": "boolean"},
        "classification": {"type": "integer", "minimum": 1},
    }
    parameters = object_of(options, tuple(options))
    wanted = object_of({"name": {"enum": names}, "parameters": parameters}, ("parameters",))
    tensors = [_input_tensor(column, owner, served) for column, owner in signature.bounds]
    least = sum(not may_be_missing(owner) for _, owner in signature.bounds)
    inputs = list_of({"anyOf": tensors}, minItems=max(least, 1), maxItems=len(tensors))
    members = {"inputs": inputs, "id": _id(), "parameters": _parameters(served)}
    return object_of({**members, "outputs": list_of(wanted, maxItems=len(names))}, ("id", "parameters", "outputs"))


def _input_tensor(column: Field, owner: Input, served: Served) -> Schema:
    rows = served.signature.leading
    shape = [*rows, *row_shape(column, served.signature)]
    rank = len(shape)
    either = int(column.kind not in ("tensor", "texts"))  # [rows] or [rows, 1]
    kinds = sorted(NUMBERS) if column.kind == "number" else [column.datatype]
    sizes: Schema = {"type": "integer", "minimum": 1 if rows else 0, "maximum": ROWS_MAX if rank == 1 else 2**40}
    schema = object_of(
        {
            "name": {"const": column.name},
            "shape": list_of(sizes, minItems=rank, maxItems=rank + either),
            "datatype": {"enum": kinds},
            "data": {"type": "array", "description": "row by row, flat or nested as the shape says"},
            "parameters": object_of({}),
        },
        ("parameters",),
    )
    return {**schema, "description": f"{column.name}: {'number' if len(kinds) > 1 else kinds[0]}, shape {shape}"}


def _infer_answer(served: Served) -> Schema:
    size: Schema = {"type": "integer", "minimum": 0}
    output = object_of(
        {
            "name": {"enum": list(served.signature.output_names)},
            "datatype": {"enum": list(DATATYPES)},
            "shape": list_of(size),
            "data": {"type": "array"},
            "parameters": object_of({"binary_data_size": size}),
        },
        ("data", "parameters"),
    )
    kinds = [
        f"{field.name}: {field.datatype}, shape {[*served.signature.leading, *field.shape]}"
        for field in served.signature.outputs
    ]
    members: dict[str, Any] = {
        "model_name": {"const": served.pipeline},
        "model_version": {"const": str(served.number)},
        "id": _TEXT,
        "outputs": {**list_of(output), "description": "; ".join(kinds)},
        "parameters": object_of({"notes": _TEXT}),
        "receipt": reference("Receipt"),
    }
    return object_of(members, ("parameters", "receipt"))
