"""Chromium for tests, asked over its debugging pipe: no driver, no port, and nothing but its own program is needed."""

import base64
import fcntl
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

LIMIT_S = 30.0
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--remote-debugging-pipe",
)  # fmt: skip
_DESCRIPTORS_FROM = 10  # the program wants its pipe at 3 and 4, so neither end may lie there before


class Page:
    """One open page. ``requested`` are the addresses it asked for, ``complaints`` what its console was told."""

    def __init__(self, sink: int, source: int) -> None:
        self._sink, self._source = sink, source
        self._left = b""
        self._number = 0
        self._session = ""
        self.requested: list[str] = []
        self.complaints: list[str] = []
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network", "DOM"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """What the browser answers; events that come before are noted."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._sink, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._message()
            if answer.get("id") == self._number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                result: dict[str, Any] = answer["result"]
                return result
            self._note(answer)

    def open(self, address: str) -> None:
        self.send("Page.navigate", url=address)

    def value(self, expression: str) -> Any:
        """What a JavaScript expression is, awaited."""
        found = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def until(self, expression: str) -> None:
        """Fails the test when the expression does not become true."""
        started = time.monotonic()
        while not self.value(f"Boolean({expression})"):
            assert time.monotonic() - started < LIMIT_S, f"still not so: {expression}; console: {self.complaints}"
            time.sleep(0.02)

    def text(self, selector: str) -> str:
        return str(self.value(f"document.querySelector({selector!r})?.innerText ?? ''"))

    def click(self, selector: str) -> None:
        self.value(f"document.querySelector({selector!r}).click()")

    def press(self, key: str, text: str = "") -> None:
        """A key of the keyboard, where the focus is."""
        codes = {"Tab": 9, "Enter": 13}
        for kind in ("keyDown", "keyUp"):
            self.send(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                code=key,
                windowsVirtualKeyCode=codes.get(key, 0),
                text=text,
            )

    def type(self, selector: str, text: str) -> None:
        """In place of what a field holds."""
        self.value(f"(f => {{ f.focus(); f.select?.(); }})(document.querySelector({selector!r}))")
        self.send("Input.insertText", text=text)

    def choose_file(self, selector: str, file: Path) -> None:
        root = self.send("DOM.getDocument")["root"]["nodeId"]
        node = self.send("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        self.send("DOM.setFileInputFiles", nodeId=node, files=[str(file)])

    def picture(self, file: Path) -> None:
        file.write_bytes(base64.b64decode(self.send("Page.captureScreenshot")["data"]))

    def _message(self) -> dict[str, Any]:
        while b"\0" not in self._left:
            part = os.read(self._source, 1 << 20)
            assert part, "the browser has ended"
            self._left += part
        text, _, self._left = self._left.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        return message

    def _note(self, event: dict[str, Any]) -> None:
        match event.get("method"):
            case "Network.requestWillBeSent":
                self.requested.append(event["params"]["request"]["url"])
            case "Log.entryAdded":
                self.complaints.append(event["params"]["entry"]["text"])
            case "Runtime.exceptionThrown":
                self.complaints.append(str(event["params"]["exceptionDetails"]))


@contextmanager
def browsing(folder: Path) -> Iterator[Page]:
    """A browser with nothing open, its profile in ``folder``; ended at the end of the block."""
    program = shutil.which("chromium")
    assert program is not None, "chromium is not installed: make services"
    to_browser, from_browser = os.pipe(), os.pipe()
    given = [fcntl.fcntl(end, fcntl.F_DUPFD, _DESCRIPTORS_FROM) for end in (to_browser[0], from_browser[1])]
    for end in (to_browser[0], from_browser[1]):
        os.close(end)
    script = f'exec "$@" 3<&{given[0]} 4>&{given[1]}'
    command = ["bash", "-c", script, "bash", program, *FLAGS, f"--user-data-dir={folder}", "about:blank"]
    with (folder.parent / f"{folder.name}.log").open("wb") as log:
        process = subprocess.Popen(command, pass_fds=given, stdout=log, stderr=log)
    for end in given:
        os.close(end)
    try:
        yield Page(to_browser[1], from_browser[0])
    finally:
        os.close(to_browser[1])
        os.close(from_browser[0])
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
