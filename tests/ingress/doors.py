"""What identities of tests have in common: who asks is only told by being asked, each time."""

from forwardpass.core.caller import Caller
from forwardpass.ingress.message import HttpRequest


class Asked:
    changes = 0

    def known(self, http: HttpRequest) -> Caller | None:
        return None

    def holds(self, caller: Caller) -> bool:
        return True
