import base64
import hashlib
import json
import re

import pytest

from graphveil.errors import InvalidInput
from graphveil.report.document import (
    Collection,
    Html,
    as_html,
    blocks,
    data_block,
    document,
    element,
    simple_table,
    spent,
    together,
)
from support.results import certificate_of


def test_attributes():
    made = element("input", id="a", class_="wide", aria_label='"<x>"', hidden=True, lang=None, disabled=False)
    assert made == '<input id="a" class="wide" aria-label="&quot;&lt;x&gt;&quot;" hidden></input>'


def test_text_is_escaped_and_html_is_not():
    assert together("a & b", Html("<br>"), "\x00") == "a &amp; b<br>�"


def test_no_text_ends_a_block_of_data():
    block = data_block("runs", {"name": "</script><!--&"})
    assert block.count("<") == 2
    assert json.loads(re.search(r">(.*)<", block)[1]) == {"name": "</script><!--&"}


def test_a_table_names_its_columns_and_rows():
    table = simple_table(["a", "b"], [["x", "1"], ["y", "<2>"]], "Numbers")
    assert re.findall(r'<th scope="col">(.*?)</th>', table) == ["a", "b"]
    assert re.findall(r'<th scope="row">(.*?)</th><td>(.*?)</td>', table) == [("x", "1"), ("y", "&lt;2&gt;")]
    assert 'aria-label="Numbers"' in table


def test_the_policy_allows_this_script_and_no_other():
    text, policy = document("Title", "alert(1)", "body")
    digest = base64.b64encode(hashlib.sha256(b"alert(1)").digest()).decode()
    assert policy.startswith("default-src 'none';")
    assert f"script-src 'sha256-{digest}'" in policy
    assert "connect-src" not in policy
    assert policy in text
    assert "connect-src 'self'" in document("Title", "", asks_server=True)[1]


@pytest.mark.parametrize("private", [True, False])
def test_the_page_has_every_line_of_the_certificate_in_its_order(private):
    certificate = certificate_of(private)
    lines = [line.strip() for line in str(certificate).splitlines()[1:] if line.strip()]
    assert [text for _, text in blocks(certificate)] == [line.removeprefix("- ") for line in lines]
    shown = re.findall(r"<(h3|p|li)>(.*?)</\1>", as_html(certificate))
    tags = {"h": "h3", "p": "p", "i": "li"}
    assert [tag for tag, _ in shown] == [tags[kind] for kind, _ in blocks(certificate)]


def test_items_stand_in_lists_below_their_heading():
    text = as_html(certificate_of(True))
    assert text.count("<ul>") == text.count("</ul>") > 1
    assert "<ul></ul>" not in text
    outside = re.sub(r"<ul>.*?</ul>", "", text)
    assert "<li>" not in outside
    assert re.search(r"<h3>[^<]*What is NOT protected[^<]*</h3><ul><li>", text)


def test_equal_certificates_have_one_number():
    collection = Collection()
    first, second = (certificate_of(private).to_dict() for private in (True, False))
    numbers = [collection.add({"key": "a", "certificate": data}) for data in (first, second, first, None)]
    assert numbers == [0, 1, 0, None]
    assert len(collection.certificates) == 2
    data = collection.to_data()
    assert [data["lines"][line] for line in data["certificates"][1]] == blocks(collection.certificates[1])
    assert collection.certificates[1].epsilon == float("inf")


def test_a_certificate_that_cannot_be_read_names_its_run():
    with pytest.raises(InvalidInput, match="run = 'abc': its certificate cannot be read"):
        Collection().add({"key": "abc", "certificate": {"schema": "other"}})


def test_what_was_spent():
    private, public = certificate_of(True), certificate_of(False)
    assert spent([private, private]) == f"certified epsilon {private.epsilon:.4g} at delta {private.delta:.3g}"
    assert spent([private, public]) == "no guarantee"
