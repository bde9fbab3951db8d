"""What kind of file one is, told by its first bytes, and what is in it."""

from collections.abc import Callable
from pathlib import Path

from forwardpass.core.errors import Misconfigured
from forwardpass.pipeline import onnx_file
from forwardpass.pipeline.inspection import gguf, onnx, openvino, pickles, safetensors, texts, zips
from forwardpass.pipeline.inspection.reading import File, Report, opened

_START_BYTES = 4096
_NOT_BY_ITSELF = "no engine here reads this format"
_ARCHIVE = "an archive or a compressed file is never unpacked here; unpack it yourself and look at what is in it"
_CODE = "it is code; only steps of a version that the operator trusts are ever run"
_SIGNS: tuple[tuple[bytes, str, str], ...] = (
    (b"version https://git-lfs", "Git LFS pointer", "not the file it stands for: run `git lfs pull`"),
    (b"\x89HDF\r\n\x1a\n", "HDF5 file, such as Keras writes", "it may hold code; export the model to ONNX"),
    (b"\x1f\x8b", "gzip file", _ARCHIVE),
    (b"BZh", "bzip2 file", _ARCHIVE),
    (b"\xfd7zXZ\x00", "xz file", _ARCHIVE),
    (b"\x28\xb5\x2f\xfd", "zstd file", _ARCHIVE),
    (b"7z\xbc\xaf\x27\x1c", "7z archive", _ARCHIVE),
    (b"Rar!", "RAR archive", _ARCHIVE),
    *(
        (b"\x78" + level, "zlib stream, such as joblib writes", _ARCHIVE)
        for level in (b"\x01", b"\x5e", b"\x9c", b"\xda")
    ),
    (b"\x7fELF", "program or library of Linux", _CODE),
    (b"MZ", "program or library of Windows", _CODE),
    (b"\xcf\xfa\xed\xfe", "program or library of macOS", _CODE),
    (b"#!", "script", _CODE),
    (b"CBM1", "CatBoost model", "no engine here reads this format: convert it with forwardpass.from_catboost"),
    (b"{L\x00\x00\x00\x00\x00\x00\x00\x07learner", "XGBoost UBJSON", f"{_NOT_BY_ITSELF}: forwardpass.from_xgboost"),
    (b"PAR1", "Parquet table", "no model"),
    (b"ARROW1", "Arrow table", "no model"),
)

Reader = Callable[[File], Report]
WHOLE_BY_NAME: dict[str, tuple[Callable[[bytes], bool], Reader]] = {
    ".gguf": (lambda start: start.startswith(gguf.MAGIC), gguf.report),
    safetensors.SUFFIX: (safetensors.looks_like, safetensors.report),
}
"""Whatever is called so must be a whole file of that kind to be taken in, as ``onnx_file`` has it for ONNX."""

_READERS: tuple[tuple[Callable[[bytes], bool], str, Reader], ...] = (
    (lambda start: start.startswith(gguf.MAGIC), "gguf", gguf.report),
    (lambda start: start.startswith(zips.MAGIC), "zip archive", zips.report),
    (safetensors.looks_like, "safetensors", safetensors.report),
    (texts.looks_like_lightgbm, "LightGBM text", texts.lightgbm_report),
    (openvino.looks_like, "XML", openvino.report),
    (texts.looks_like_json, "JSON", texts.json_report),
    (pickles.looks_like, "pickle", pickles.report),
)


def inspect_file(path: Path) -> Report:
    """What is in a file and whether it would be taken in by itself. Raises Misconfigured when it cannot be read."""
    with opened(path) as file:
        try:
            return _report(file)
        except Misconfigured as failure:
            return Report(_kind(file), {"bytes": file.size}, _what(failure))


def damage(path: Path) -> str:
    """What is wrong with a file by whose name there must be a whole one of its kind; "" for any other."""
    kinds = [kind for suffix, kind in WHOLE_BY_NAME.items() if path.name.lower().endswith(suffix)]
    if not kinds:
        return ""
    with opened(path) as file:
        for looks_like, reader in kinds:
            if not looks_like(file.start(_START_BYTES)):
                return f"not what its name says: {_kind(file)}"
            try:
                reader(file)
            except Misconfigured as failure:
                return _what(failure)
    return ""


def _report(file: File) -> Report:
    start = file.start(_START_BYTES)
    if not start.strip(b"\0"):
        kind = "a file that begins with zeros" if file.size else "an empty file"
        return Report(kind, {"bytes": file.size}, unfit="it is no model file that is known here")
    if onnx_file.is_onnx(file.name):
        return _with_size(file, onnx.report(file))
    for sign, kind, unfit in _SIGNS:
        if start.startswith(sign):
            return Report(kind, {"bytes": file.size}, unfit=unfit)
    for looks_like, _, reader in _READERS:
        if looks_like(start):
            found = reader(file)
            return _with_size(file, found, found.unfit or _NOT_BY_ITSELF)
    return _rest(file, start)


def _rest(file: File, start: bytes) -> Report:
    """What has no sign of its own at its beginning."""
    size = {"bytes": file.size}
    if start[257:262] == b"ustar":
        return Report("tar archive", size, unfit=_ARCHIVE)
    if start[4:8] == b"TFL3":
        return Report("TensorFlow Lite model", size, unfit=f"{_NOT_BY_ITSELF}; export the model to ONNX")
    if start.startswith(b"\x93NUMPY"):
        objects = b"'O'" in start[:256] or b"|O" in start[:256]
        return Report("NumPy array", {**size, "holds_a_pickle": objects}, unfit="no model")
    if file.name == "saved_model.pb":
        return Report("TensorFlow SavedModel", size, unfit=f"{_NOT_BY_ITSELF}; export the model to ONNX")
    if start.lstrip()[:1] == b"<":
        return Report("HTML or XML text", size, "probably a failed download")
    if start.startswith(b"\x08") and b"\x3a" in start:
        try:
            found = onnx.report(file)
        except Misconfigured:
            return Report("unknown", size, unfit="it is no model file that is known here")
        return _with_size(file, found, f"its name must end in {onnx_file.SUFFIX}")
    if pickles.is_old(file):
        return _with_size(file, pickles.report(file))
    if file.name.endswith(".py"):
        return Report("Python source", size, unfit=_CODE)
    try:
        start.decode()
    except UnicodeDecodeError as error:
        if error.end < len(start) - 4:
            return Report("unknown", size, unfit="it is no model file that is known here")
    return Report("text", size, unfit="no model")


def _with_size(file: File, found: Report, unfit: str = "") -> Report:
    return Report(found.kind, {"bytes": file.size, **found.facts}, found.problem, unfit or found.unfit)


def _kind(file: File) -> str:
    if onnx_file.is_onnx(file.name):
        return "onnx"
    start = file.start(_START_BYTES)
    kinds = [kind for sign, kind, _ in _SIGNS if start.startswith(sign)]
    kinds += [kind for looks_like, kind, _ in _READERS if looks_like(start)]
    kinds += ["HTML or XML text"] if start.lstrip()[:1] == b"<" else []
    return next(iter(kinds), "unknown")


def _what(failure: Misconfigured) -> str:
    return "; ".join(each.found for each in failure.problems[:3])
