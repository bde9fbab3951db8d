"""MLServer: a runtime of our own with its numpy codec, in its own process, with adaptive batching."""

import numpy as np
from bench.peers.shared.network import session
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceRequest, InferenceResponse


class Served(MLModel):
    async def load(self) -> bool:
        self.session = session(self.name)
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        given = {each.name: NumpyCodec.decode_input(each) for each in payload.inputs}
        if "x" in given:
            given["x"] = given["x"].astype(np.float32)
        (answer,) = self.session.run(None, given)
        return InferenceResponse(model_name=self.name, outputs=[NumpyCodec.encode_output("y", answer)])
