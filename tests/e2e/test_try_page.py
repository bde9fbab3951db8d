"""The try-it page in a real browser: what a person does with it, and what it keeps to itself."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.browser import Page, browsing
from tests.e2e.test_openapi_served import write_pipelines
from tests.serving import Server, forwardpass, serving
from tests.steps.photos import china, encoded

from forwardpass.store.keys import Key, KeyStore, digest_of

NUMBERS, PICTURES, TEXTS = "#predict_numbers", "#predict_pictures", "#predict_texts"


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Iterator[Server]:
    root = tmp_path_factory.mktemp("shown")
    write_pipelines(root)
    forwardpass("trust", root, data=data)
    with serving(root, data=data) as server:
        yield server


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browsing(tmp_path_factory.mktemp("browser") / "profile") as page:
        yield page


@pytest.fixture
def page(browser: Page, shown: Server) -> Page:
    """The page at its first pipeline, as it is opened."""
    browser.open("about:blank")
    browser.requested.clear()
    browser.complaints.clear()
    browser.open(f"http://127.0.0.1:{shown.port}/docs")
    browser.until("document.querySelector('.send')")
    return browser


def choose(page: Page, name: str) -> None:
    page.value(f"location.hash = {name!r}")
    page.until(f"document.querySelector('nav a[aria-current]')?.hash === {name!r}")


def answer(page: Page) -> str:
    """Sends what is filled in, and waits for what comes."""
    page.click(".send")
    page.until("document.querySelector('.answer .status') && !document.querySelector('.answer[aria-busy]')")
    return page.text(".answer")


def test_the_example_is_filled_in_and_is_answered(page: Page) -> None:
    choose(page, NUMBERS)
    assert json.loads(page.value("document.querySelector('#field-x').value")) == [1.0, 2.0]
    shown = answer(page)
    assert "200 OK" in shown
    assert '"y": 3.0' in shown


def test_what_is_typed_is_what_is_sent(page: Page) -> None:
    choose(page, TEXTS)
    page.type("#field-text", "gruß <b>&\n'")
    assert "GRUSS <B>&\\n'" in answer(page)


def test_a_refusal_is_shown_with_its_status_and_headers(page: Page) -> None:
    choose(page, TEXTS)
    page.type("#field-text", "bad")
    assert "invalid_input" in answer(page)
    page.click(".answer summary")
    assert "x-error-code" in page.text(".answer .headers")


def test_a_picture_is_chosen_sent_and_shown(page: Page, tmp_path: Path) -> None:
    (tmp_path / "me.jpg").write_bytes(encoded(china(), "JPEG"))
    choose(page, PICTURES)
    page.choose_file("#field-picture", tmp_path / "me.jpg")
    page.until("document.querySelector('.command').innerText.includes('picture=@me.jpg')")
    answer(page)
    page.until("document.querySelector('.answer img')?.naturalWidth > 0")


def test_an_answer_that_is_a_picture_is_shown_as_one(page: Page) -> None:
    choose(page, PICTURES)
    page.value("document.querySelector('#accept').value = 'image/*'")
    assert answer(page).startswith("Answer")
    page.until("document.querySelector('.answer img')?.naturalWidth === 64")


def test_the_curl_command_asks_for_the_same(page: Page) -> None:
    choose(page, TEXTS)
    page.type("#field-text", 'it\'s $HOME `x` \\ "y"')
    came = subprocess.run(["bash", "-c", page.text(".command") + " -s"], capture_output=True, text=True, check=True)
    outputs = json.loads(came.stdout)["outputs"]
    assert outputs == {"shout": 'IT\'S $HOME `X` \\ "Y"'}
    assert json.dumps(outputs["shout"]) in answer(page)


def test_text_and_form_follow_each_other(page: Page) -> None:
    choose(page, NUMBERS)
    page.click(".switch button:last-child")
    page.type("textarea.code", '{"x": [20, 22]}')
    assert '"y": 42.0' in answer(page)
    page.click(".switch button:first-child")
    assert page.value("document.querySelector('#field-x').value") == "[20,22]"


def test_a_number_is_sent_as_it_was_written(page: Page) -> None:
    choose(page, NUMBERS)
    page.type("#field-x", "[9007199254740993, 1.0]")
    page.click(".switch button:last-child")
    page.click(".switch button:first-child")  # to the text and back
    assert "9007199254740993,1.0" in page.value("document.querySelector('#field-x').value")
    assert "[9007199254740993, 1.0]" in page.text(".command")


def test_what_a_form_cannot_show_stays_text(page: Page) -> None:
    choose(page, NUMBERS)
    page.click(".switch button:last-child")
    page.type("textarea.code", '{"instances": [{"x": [1, 1]}]}')
    page.click(".switch button:first-child")
    assert 'no place for "instances"' in page.text(".problem")
    assert '"failed": 0' in answer(page)


def test_a_request_is_made_with_the_keyboard_alone(page: Page) -> None:
    choose(page, TEXTS)
    for _ in range(20):
        if page.value("document.activeElement.id") == "field-text":
            break
        page.press("Tab")
    page.send("Input.insertText", text=" more")
    while page.value("document.activeElement.className") != "send":
        page.press("Tab")
    page.press("Enter", "\r")
    page.until("document.querySelector('.answer .status')")
    assert "MORE" in page.text(".answer")


def test_the_list_is_searched(page: Page) -> None:
    page.type("#search", "health/ready")
    links = "[...document.querySelectorAll('#list a')].map(each => each.innerText).join()"
    page.until(f"{links}.includes('/v2/health/ready')")
    assert "/predict/" not in page.value(links)


def test_it_is_dark_where_that_is_preferred(page: Page) -> None:
    colour = "getComputedStyle(document.body).backgroundColor"
    page.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    assert page.value(colour) == "rgb(20, 24, 29)"
    page.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "light"}])
    assert page.value(colour) == "rgb(255, 255, 255)"


def test_nothing_is_asked_of_any_other_server_and_nothing_is_blocked(page: Page, shown: Server) -> None:
    choose(page, PICTURES)
    answer(page)
    page.until("document.querySelector('.answer img')?.naturalWidth === 64")
    own = (f"http://127.0.0.1:{shown.port}/", "data:", "blob:")
    assert [address for address in page.requested if not address.startswith(own)] == []
    assert page.complaints == []


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Iterator[Server]:
    root = tmp_path_factory.mktemp("keyed")
    write_pipelines(root)
    forwardpass("trust", root, data=data)
    KeyStore(data).add(Key("k1", "acme", frozenset({"infer"}), 1.0, digest_of(b"secret")))
    with serving(root, data=data, settings={"auth.required": "true"}) as server:
        yield server


def enter(page: Page, key: str) -> None:
    page.type("#key", key)
    page.press("Enter", "\r")


def test_where_a_key_is_needed_it_is_typed_in_and_kept_nowhere(browser: Page, keyed: Server) -> None:
    browser.open(f"http://127.0.0.1:{keyed.port}/docs")
    browser.until("document.activeElement?.id === 'key'")
    assert "have a key" in browser.text("main")
    enter(browser, "wrong")
    browser.until("document.querySelector('main').innerText.includes('not accepted')")
    enter(browser, "secret")
    browser.until("document.querySelector('.send')")
    choose(browser, NUMBERS)
    assert "200 OK" in answer(browser)
    assert "$FORWARDPASS_KEY" in browser.text(".command") and "secret" not in browser.text("body")
    assert browser.value("localStorage.length + sessionStorage.length + document.cookie.length") == 0
    browser.open(f"http://127.0.0.1:{keyed.port}/docs")
    browser.until("document.activeElement?.id === 'key'")
    assert browser.value("document.querySelector('#key').value") == ""
