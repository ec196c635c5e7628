"""The page in Chromium: a person asks, is answered, and cannot ask for another."""

import time

import pytest

from support.browser import NETWORK, TOO_WIDE

ANSWER = 'document.getElementById("answer").textContent'


def ask(browser, node, token):
    browser.run(
        f"""(() => {{ const form = document.getElementById("ask"); document.getElementById("answer").replaceChildren();
             form.node.value = {node!r}; form.token.value = {token!r}; form.requestSubmit(); }})()"""
    )
    for _ in range(100):
        if text := browser.run(ANSWER):
            return text
        time.sleep(0.05)
    raise TimeoutError("no answer on the page")


def test_a_person_sees_their_own_prediction(browser, service):
    browser.requests()
    browser.visit(f"{service.url}/")
    expected = service.ask("3", service.tokens.of_node("3")).json()
    text = ask(browser, "3", service.tokens.of_node("3"))
    assert f"guess for you: {expected['prediction']}" in text
    assert f"{100 * max(expected['probabilities']):.1f} %" in text
    assert browser.console() == []
    asked = [url for url in browser.requests() if url.startswith(NETWORK)]
    assert set(asked) == {f"{service.url}/", f"{service.url}/v1/prediction"}
    assert browser.run("location.href") == f"{service.url}/"
    assert browser.run("localStorage.length + sessionStorage.length + document.cookie.length") == 0


def test_anothers_is_refused(browser, service):
    browser.visit(f"{service.url}/")
    assert ask(browser, "17", service.tokens.of_node("3")) == "This token does not belong to this name."


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [390, 1280])
def test_it_fits_and_says_what_is_protected(browser, service, width, dark):
    browser.visit(f"{service.url}/", width=width, dark=dark)
    ask(browser, "3", service.tokens.of_node("3"))
    browser.run('document.querySelectorAll("details").forEach(details => { details.open = true; })')
    assert browser.run(TOO_WIDE) == 0
    text = browser.run("document.body.textContent")
    assert "any one of your connections" in text
    assert "What is not protected" in text
    assert "epsilon" in text


def test_names_are_text_and_never_markup(browser, service):
    browser.visit(f"{service.url}/")
    ask(browser, "<img src=x onerror=alert(1)>", "<script>alert(1)</script>")
    assert browser.run('document.querySelectorAll("#answer img, #answer script").length') == 0


def test_without_script_the_words_are_there(browser, service):
    browser.visit(f"{service.url}/", script=False)
    assert "What is protected" in browser.run("document.body.textContent")
    browser.visit(f"{service.url}/")
