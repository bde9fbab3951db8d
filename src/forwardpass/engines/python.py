"""The python engine: a model that is a class or a function in a file of the pipeline's folder.

The file is code of the version's author: it is loaded only from a trusted version, which the model step sees to.
A class may have ``load(folder, threads)``, threads being how many it may use, and ``close()``; its ``predict(batch)``,
or the function, takes and returns a table of arrays, name -> rows, as the step's ``inputs`` and ``outputs`` declare them.
"""

import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from forwardpass.core.errors import Code, Failed, Failure, Misconfigured
from forwardpass.core.own_code import module_at
from forwardpass.core.pipeline import Field
from forwardpass.engines.discover import EngineKind, EngineOption
from forwardpass.engines.oneshot import OneShot
from forwardpass.engines.protocol import Arrays, ModelFile, ModelSignature


class Python:
    """A Predictor over the author's code; whatever that raises becomes engine_failed, its traceback for the log."""

    def load(self, file: ModelFile) -> None:
        place = Path(file.path)
        name = file.options.get("call", "Model")
        self._close: Callable[[], object] | None = None
        try:
            called = getattr(module_at(place), name)
            if isinstance(called, type):
                model = called()
                if hasattr(model, "load"):
                    model.load(str(place.parent), file.threads)
                self._close = getattr(model, "close", None)
                called = model.predict
        except (Exception, SystemExit) as error:  # the author's code: it may raise anything
            text = f"{place.name}: {name} could not be loaded"
            raise Misconfigured(Code.LOAD_FAILED, text, detail=traceback.format_exc()) from error
        self._predict: Callable[[dict[str, Any]], Any] = called
        batched = file.options.get("batched", True)
        self._signature = ModelSignature(
            _fields(file.options["inputs"]), _fields(file.options["outputs"]), batched, None if batched else 1
        )

    def signature(self) -> ModelSignature:
        return self._signature

    def predict(self, batch: Arrays) -> Arrays:
        try:
            answer = self._predict(dict(batch))
        except Failure:
            raise
        except MemoryError as error:
            text = "the model ran out of memory on this input"
            raise Failed(Code.ENGINE_OUT_OF_MEMORY, text, detail=traceback.format_exc()) from error
        except (Exception, SystemExit) as error:  # the author's code: it may raise anything
            raise Failed(Code.ENGINE_FAILED, "the model raised an error", detail=traceback.format_exc()) from error
        if not isinstance(answer, Mapping) or not all(isinstance(array, np.ndarray) for array in answer.values()):
            detail = f"predict returned {type(answer).__name__}; a dict of name -> numpy array is needed"
            raise Failed(Code.ENGINE_FAILED, "the model did not return a table of arrays", detail=detail)
        return answer

    def close(self) -> None:
        if self._close is not None:
            self._close()


def _fields(declared: Mapping[str, Mapping[str, Any]]) -> tuple[Field, ...]:
    return tuple(Field(name, table["datatype"], tuple(table.get("shape", ()))) for name, table in declared.items())


engine = EngineKind(
    make=lambda: OneShot(Python()),
    options={
        "call": EngineOption(
            "the name of a class or function in the file", lambda v: isinstance(v, str) and v.isidentifier(), "Model"
        ),
        "batched": EngineOption("true or false", lambda value: isinstance(value, bool), True),
    },
    platform="python",
    own_code=True,
)
