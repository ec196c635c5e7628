import base64
import hashlib
import json
import re

from graphveil.report.document import Html, data_block, document, element, simple_table, together


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
