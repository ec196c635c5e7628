r"""Formulas of docs/theory.md as MathML, which every browser sets without a script; a hook of MkDocs.

The page is plain Markdown: formulas are code spans and indented blocks in a notation that can be read as it is, such as
`2 g C sqrt(T) / sigma <= e^eps0`. When the site is built, spans and blocks that are formulas are set as formulas. What
is code (names of functions, commands, files) stays code.

The notation: `x_i`, `x_{i j}`, `x^2`, `x^(a + b)`, `x'`, `x^` (a hat), `P*`, `sqrt(x)`, `floor(x)`, `ceil(x)`, `<=`,
`>=`, `!=`, `->`, `<-`, `in`, `+-`, `||x||`, Greek letters by name, and words, which are upright.
"""

from __future__ import annotations

import html
import re
from typing import Any

# On this page every code span that is not code is a formula, on others those that have a power, a root or a logarithm.
THEORY = "theory.md"
_CLEARLY = re.compile(r"\^|\b(sqrt|log)\(")
_GREEK = {
    "alpha": "α", "beta": "β", "gamma": "γ", "Gamma": "Γ", "delta": "δ", "eps": "ε", "epsilon": "ε", "eta": "η",
    "kappa": "κ", "lambda": "λ", "mu": "μ", "xi": "ξ", "Xi": "Ξ", "pi": "π", "sigma": "σ", "tau": "τ", "phi": "φ",
    "Phi": "Φ", "psi": "ψ",
}  # fmt: skip
_BIG = {"sum": "∑", "integral": "∫"}
_OPERATORS = {
    "<=": "≤", ">=": "≥", "!=": "≠", "->": "→", "<-": "←", "+-": "±", "||": "‖", "..": "…", "...": "…", "-": "−",
    "*": "·", "\\": "∖", "in": "∈", "|": "|",
}  # fmt: skip
_WRAPPED = {"floor": ("⌊", "⌋"), "ceil": ("⌈", "⌉")}
# Words of more than three letters that are not code where they stand alone.
_MATHEMATICAL = {"chord"}
_TOKEN = re.compile(
    r"(?P<gap>\s{3,})|(?P<label>\(\*+\))|(?P<space>\s+)|(?P<number>\d+(?:\.\d+)?)|(?P<word>[A-Za-z]+(?:-[a-z]{2,})*)"
    r"|(?P<operator>\.\.\.|\.\.|<=|>=|!=|->|<-|\+-|\|\||[-+*/=<>~|,;:.∪\\×])|(?P<open>[(\[{])|(?P<close>[)\]}])"
    r"|(?P<under>_)|(?P<raised>\^)|(?P<prime>'+)"
)
_NAME = r"(?:[a-zA-Z]{3,}\w*(?:_[a-zA-Z]\w+)+|[a-z]{2,}_[a-z]{4,}\w*)"
_CODE = re.compile(
    rf"""[\w-]+(\.[A-Za-z_]\w*)+ | {_NAME}(\(.*\))? | {_NAME}\ =\ .* | .*["].* | .*\b(True|False)\b.* | graphveil\ .*
    | [\w/-]*/[\w./-]+\.(md|py) | [a-z0-9]{{2,}}(-[a-z0-9]+)+ | ([A-Z][a-z]+){{2,}} | [a-z]{{4,}}""",
    re.VERBOSE,
)


class NotAFormula(ValueError):
    """Text that is not in the notation."""


def is_formula(text: str) -> bool:
    """Whether a code span is a formula.

    Args:
        text: The span as it stands in Markdown.

    Returns:
        False for code: names of functions and options, files, commands.
    """
    if text in _GREEK or text in _MATHEMATICAL:
        return True
    return text.split("_")[0] in _GREEK or _CODE.fullmatch(text) is None


def to_mathml(text: str, *, display: bool = False) -> str:
    """A formula as MathML.

    Args:
        text: One formula in the notation; lines of a display stand below each other.
        display: Whether it stands on its own instead of in a line of text.

    Returns:
        One element `math`, or several between which a line may end.

    Raises:
        NotAFormula: If the text cannot be read.
    """
    if not display:
        pieces = _Parser(" ".join(text.split())).pieces()
        return "<wbr>".join(map(_inline, pieces))
    lines = [line.strip() for line in text.strip("\n").splitlines()]
    body = _Parser(lines[0]).whole() if len(lines) == 1 else _table(lines)
    return f'<math display="block">{body}</math>'


def _inline(piece: str) -> str:
    """A part of a formula in a line of text; one that may be wider than a telephone scrolls."""
    formula = f"<math><mrow>{piece}</mrow></math>"
    return f'<span class="long" tabindex="0">{formula}</span>' if len(re.sub("<[^>]+>", "", piece)) > 34 else formula


def _table(lines: list[str]) -> str:
    """Lines below each other, those that begin with a relation aligned with the first relation of the first line."""
    rows = []
    for line in lines:
        parts = re.match(r"(.*?)\s*((?:<=|>=|=)\s.*)", line)
        left, right = (parts[1], parts[2]) if parts and any(re.match("<=|>=|=", each) for each in lines) else ("", line)
        cells = (_Parser(part).whole() if part else "" for part in (left, right))
        rows.append("<mtr>" + "".join(f"<mtd>{cell}</mtd>" for cell in cells) + "</mtr>")
    return f'<mtable>{"".join(rows)}</mtable>'


class _Parser:
    """Recursive descent over the tokens of one formula."""

    def __init__(self, text: str) -> None:
        self._tokens: list[tuple[str, str]] = []
        place = 0
        while place < len(text):
            token = _TOKEN.match(text, place)
            if token is None:
                raise NotAFormula(f"{text!r}: {text[place]!r} is not understood")
            self._tokens.append((str(token.lastgroup), token[0]))
            place = token.end()
        self._place = 0
        self._text = text

    def whole(self) -> str:
        """The formula as one element."""
        return f"<mrow>{''.join(self.pieces(longest=0))}</mrow>"

    def pieces(self, longest: int = 28) -> list[str]:
        """The formula in parts. Browsers do not break formulas, so a long one is divided before its operators."""
        parts = self._row(until="")
        if self._place < len(self._tokens):
            raise NotAFormula(f"{self._text!r}: a bracket is closed that was not opened")
        if longest == 0 or len(self._text) <= longest:
            return ["".join(parts)]
        pieces = [parts[0]]
        for part in parts[1:]:
            if part in _BREAKS:
                pieces.append(part.replace("<mo>", '<mo form="infix">'))
            else:
                pieces[-1] += part
        return pieces

    def _peek(self, ahead: int = 0) -> tuple[str, str]:
        place = self._place + ahead
        return self._tokens[place] if place < len(self._tokens) else ("end", "")

    def _next(self) -> tuple[str, str]:
        token = self._peek()
        self._place += 1
        return token

    def _row(self, until: str) -> list[str]:
        """Everything up to a closing bracket, which is left where it is."""
        parts: list[str] = []
        while (kind := self._peek()[0]) not in ("end", "close"):
            if kind == "space":
                self._next()
            elif kind == "gap":
                self._next()
                parts.append('<mspace width="1.6em"/>')
            else:
                parts.append(self._scripted())
        # Half-open intervals, [a, b), are closed by another bracket.
        if until and (self._peek()[0] == "end" or self._peek()[1] not in until):
            raise NotAFormula(f"{self._text!r}: a bracket is not closed")
        return parts

    def _scripted(self) -> str:
        """One thing with its primes, subscript and superscript."""
        before = self._peek()
        base = self._atom()
        lower, upper = "", ""
        while self._peek()[0] in ("under", "raised", "prime"):
            kind, text = self._next()
            if kind == "prime":
                upper += "<mo>" + "′" * len(text) + "</mo>"
            elif kind == "under":
                lower += self._script()
                # The index S' is another set than S; a prime behind another index belongs to what has the index.
                if self._peek()[0] == "prime" and self._peek(-1)[1].isupper() and len(self._peek(-1)[1]) == 1:
                    lower += "<mo>" + "′" * len(self._next()[1]) + "</mo>"
            elif self._peek()[0] in ("word", "number", "open") or self._peek()[1] == "-" or self._bars():
                upper += self._script()
            else:
                base = f'<mover accent="true">{base}<mo>^</mo></mover>'
        attached = self._peek(1)[0] in ("end", "close", "space", "gap", "operator") and self._peek(1)[1] != "*"
        if before[0] == "word" and self._peek() == ("operator", "*") and attached:
            self._next()
            upper += "<mo>∗</mo>"
        if not lower and not upper:
            return base
        names = ("munder", "mover", "munderover") if before[1] in ("max", "min", "sup") else ("msub", "msup", "msubsup")
        parts = [base, *(f"<mrow>{part}</mrow>" for part in (lower, upper) if part)]
        name = names[2] if lower and upper else names[0] if lower else names[1]
        return f"<{name}>{''.join(parts)}</{name}>" + _after(before[1])

    def _bars(self) -> bool:
        return self._peek()[1] == "|" and self._peek(1)[0] == "word"

    def _script(self) -> str:
        """What stands behind _ or ^: a group without its brackets, or one thing with a sign."""
        sign = ""
        if self._peek()[1] == "-":
            self._next()
            sign = "<mo>−</mo>"
        kind, text = self._peek()
        if kind == "open" and text in "({":
            return sign + self._group(shown=False)
        if text == "|":
            self._next()
            inside = self._scripted()
            if self._next()[1] != "|":
                raise NotAFormula(f"{self._text!r}: a bar is not closed")
            return f"{sign}<mo>|</mo>{inside}<mo>|</mo>"
        if kind == "word" and text not in _GREEK and text not in _WRAPPED and len(text) == 2 and text.islower():
            self._next()
            known = text in ("lo", "hi")
            return sign + (f"<mtext>{text}</mtext>" if known else "".join(f"<mi>{letter}</mi>" for letter in text))
        return sign + self._atom()

    def _group(self, *, shown: bool) -> str:
        _, opening = self._next()
        inside = "".join(self._row(until={"(": ")]", "[": "])", "{": "}"}[opening]))
        _, closing = self._next()
        return _fenced(opening, inside, closing) if shown else inside

    def _atom(self) -> str:
        kind, text = self._peek()
        if kind == "open":
            return self._group(shown=True)
        self._next()
        if kind == "number":
            return f"<mn>{text}</mn>"
        if kind == "label":
            return f"<mtext>{text.replace('*', '∗')}</mtext>"
        if kind == "operator" or text == "in":
            return self._operator(text)
        if kind == "word":
            return self._word(text)
        raise NotAFormula(f"{self._text!r}: {text!r} is not expected here")

    def _operator(self, text: str) -> str:
        before = self._beside(-2)[0] if self._place > 1 else "end"
        sign, form = _OPERATORS.get(text, text), ""
        if text in ("-", "+", "+-") and before in ("end", "operator", "open", "gap"):
            form = ' form="prefix"'
        elif text == "<" and self._peek()[0] not in ("space", "end"):  # <u, v> is an inner product
            sign, form = "⟨", ' form="prefix" stretchy="false"'
        elif text == ">" and self._place > 1 and self._peek(-2)[0] != "space":
            sign, form = "⟩", ' form="postfix" stretchy="false"'
        elif text in ("|", "||"):
            form = ' stretchy="false"'
        return f"<mo{form}>{html.escape(sign)}</mo>"

    def _word(self, text: str) -> str:
        if text == "sqrt" and self._peek()[1] == "(":
            return f"<msqrt>{self._group(shown=False)}</msqrt>"
        if text in _WRAPPED and self._peek()[1] == "(":
            left, right = _WRAPPED[text]
            return _fenced(left, self._group(shown=False), right)
        if text in _BIG:
            return f"<mo>{_BIG[text]}</mo>"
        letter = _GREEK.get(text, text if len(text) == 1 else None)
        if letter is None:
            numbered = f"<msub><mi>{text}</mi><mn>2</mn></msub>" if (text, self._peek()[1]) == ("log", "2") else ""
            self._place += bool(numbered)
            return numbered + _SPACE if numbered else self._upright(text)
        if self._peek()[0] == "number":  # z1 is z with the index 1
            return f"<msub><mi>{letter}</mi><mn>{self._next()[1]}</mn></msub>"
        if text == "a" and self._is_word(self._beside(-2)) and self._is_word(self._beside(0)):
            return self._upright(text)
        return f"<mi>{letter}</mi>"

    def _beside(self, ahead: int) -> tuple[str, str]:
        """The nearest token that is not a space: before the current word (-2), or behind it (0)."""
        step = -1 if ahead < 0 else 1
        while self._place + ahead >= 0 and self._peek(ahead)[0] == "space":
            ahead += step
        return self._peek(ahead) if self._place + ahead >= 0 else ("end", "")

    def _is_word(self, token: tuple[str, str]) -> bool:
        return token[0] == "word" and len(token[1]) > 1 and token[1] not in (*_GREEK, *_BIG, *_WRAPPED, "sqrt", "in")

    def _upright(self, text: str) -> str:
        """A word: the name of a function or a set, or a part of a sentence, with space where something is beside it."""
        left, right = ("word", "number", "close", "prime"), ("word", "number")
        before = _SPACE if self._peek(-2)[0] == "space" and self._beside(-2)[0] in left and self._place > 1 else ""
        after = _SPACE if self._peek()[0] == "space" and self._beside(0)[0] in (*right, "open") else ""
        return f"{before}<mtext>{text}</mtext>{after}"


_SPACE = '<mspace width="0.25em"/>'
_BREAKS = {f"<mo>{html.escape(sign)}</mo>" for sign in "=≤≥≠<>+−→~"}


def _after(word: str) -> str:
    """The space behind the name of a function that has a script."""
    return _SPACE if word in ("max", "min", "sup", "log", "mean") else ""


def _fenced(opening: str, inside: str, closing: str) -> str:
    return f'<mrow><mo stretchy="false">{opening}</mo>{inside}<mo stretchy="false">{closing}</mo></mrow>'


_BLOCK = re.compile(r'<div class="highlight"><pre><span></span><code>(.*?)</code></pre></div>', re.DOTALL)
_IN_TEXT = re.compile(r"<pre.*?</pre>|(?:(?!<pre).)+", re.DOTALL)
_SPAN = re.compile(r"<code>(.*?)</code>", re.DOTALL)


def typeset(content: str, *, everything: bool = True) -> str:
    """The HTML of a page with its formulas set as formulas; what cannot be read as one stays code.

    Args:
        content: The HTML.
        everything: Whether all code spans and blocks may be formulas, or only spans that clearly are.

    Returns:
        The HTML with MathML.
    """

    def span(match: re.Match[str]) -> str:
        text = html.unescape(re.sub(r"<[^>]+>", "", match[1]))
        try:
            formula = is_formula(text) and (everything or _CLEARLY.search(text))
            return to_mathml(text) if formula else match[0]
        except NotAFormula:
            return match[0]

    def block(match: re.Match[str]) -> str:
        text = html.unescape(re.sub(r"<[^>]+>", "", match[1]))
        try:
            return f'<div class="formula" tabindex="0">{to_mathml(text, display=True)}</div>'
        except NotAFormula:
            return match[0]

    if everything:
        return _SPAN.sub(span, _BLOCK.sub(block, content))
    return _IN_TEXT.sub(lambda part: part[0] if part[0].startswith("<pre") else _SPAN.sub(span, part[0]), content)


def on_page_content(content: str, page: Any, **_: Any) -> str:
    """Called by MkDocs with the HTML of each page."""
    return typeset(content, everything=page.file.src_uri == THEORY)
