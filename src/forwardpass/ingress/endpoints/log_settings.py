"""V2's log settings, read and changed while the server runs."""

import orjson

from forwardpass.ingress.dialect import Call, Endpoint
from forwardpass.ingress.dialects.v2_logging import changed, log_settings
from forwardpass.ingress.message import HttpAnswer
from forwardpass.observe import log


async def respond(call: Call) -> HttpAnswer:
    """All settings, after the change that the body asks for, if there is one."""
    if call.http.body:
        log.choose(changed(log.chosen(), call.http.body))
    return HttpAnswer(200, orjson.dumps(log_settings(log.chosen())))


ENDPOINTS: dict[str, Endpoint] = {"log_settings": respond}
"""By the names of the route table."""
