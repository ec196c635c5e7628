"""The notation of formulas in docs/theory.md, and what it becomes."""

import re
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "pages"))

import formulas  # noqa: E402


def shape(text):
    """MathML as nested text: tags that carry meaning with what is in them."""
    return _shape(ET.fromstring(f"<all>{formulas.to_mathml(text).replace('<wbr>', '')}</all>"))


def _shape(element):
    inside = (element.text or "") + "".join(map(_shape, element))
    named = ("msub", "msup", "msubsup", "msqrt", "munder", "mover")
    if element.tag not in named:
        return inside
    return f"{element.tag}({','.join(map(_shape, element)) if element.tag != 'msqrt' else inside})"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2 g C", "2gC"),
        ("c sqrt(k^2 + k)", "cmsqrt(msup(k,2)+k)"),
        ("e^eps0 <= 1 - delta", "msup(e,msub(ε,0))≤1−δ"),
        ("2^-34.5", "msup(2,−34.5)"),
        ("(1-q)^(g-|S|)", "msup((1−q),g−|S|)"),
        ("T_r'", "msubsup(T,r,′)"),
        ("v_S'", "msub(v,S′)"),
        ("w_ij", "msub(w,ij)"),
        ("max_d F_own(a p_d)", "munder(max,d)msub(F,own)(amsub(p,d))"),
        ("||x^||_2", "‖mover(x,^)msub(‖,2)"),
        ("P* x Q*", "msup(P,∗)xmsup(Q,∗)"),
        ("<u, Xi>/s^2 < 1", "⟨u,Ξ⟩/msup(s,2)<1"),
        ("floor(k/2) + ceil(log2 m)", "⌊k/2⌋+⌈msub(log,2)m⌉"),
        ("[lo, hi)", "[lo,hi)"),
        ("i in S", "i∈S"),
        ("(**)", "(∗∗)"),
    ],
)
def test_notation(text, expected):
    assert shape(text) == expected


@pytest.mark.parametrize(
    "text",
    ["sensitivity.gap_hop", "dp_accounting", "predict_new(update=True)", "graphveil verify", "docs/theory.md", "auto"],
)
def test_code_stays_code(text):
    assert not formulas.is_formula(text)
    assert formulas.typeset(f"<code>{text}</code>") == f"<code>{text}</code>"


@pytest.mark.parametrize("text", ["(a", "a)", "§"])
def test_what_cannot_be_read_stays_as_it_is(text):
    with pytest.raises(formulas.NotAFormula):
        formulas.to_mathml(text)
    assert formulas.typeset(f"<code>{text}</code>") == f"<code>{text}</code>"


def test_every_formula_of_the_theory_is_understood():
    text = (ROOT / "docs" / "theory.md").read_text(encoding="utf-8")
    blocks = re.findall(r"(?<=\n\n)((?: {4}(?![-*] |  [-*] ).+\n)+)", text)
    assert len(blocks) > 20
    for block in blocks:
        ET.fromstring(formulas.to_mathml(block, display=True))
    spans = {" ".join(span.split()) for span in re.findall(r"`([^`]+)`", re.sub(r"(?m)^ {4}.*\n", "", text))}
    understood = [span for span in spans if formulas.is_formula(span)]
    assert len(understood) > 500
    for span in understood:
        ET.fromstring(f"<all>{formulas.to_mathml(span).replace('<wbr>', '')}</all>")


def test_long_formulas_may_be_broken_before_operators():
    assert "<wbr>" not in formulas.to_mathml("a <= b + c")
    broken = formulas.to_mathml("q (1/q - 1/(q + 1)) = 1/(q + 1) <= 1/(k + 1)")
    assert broken.count("<math>") == 3
    assert formulas.to_mathml("a = b", display=True).startswith('<math display="block">')


def test_on_other_pages_only_clear_formulas_are_set():
    page = "<code>k</code> <code>e^eps</code> <pre><code>x^2</code></pre> <code>torch>=2.5</code>"
    assert formulas.typeset(page, everything=False).count("<math") == 1
