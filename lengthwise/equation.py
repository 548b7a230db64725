"""Equations of cards as MathML, which browsers draw by themselves: see `encodings.card` for how they are written.

A card asks `problem` before it is taken, pages and documentation draw it.

line      = everything side by side
factor    = atom, scripts behind it, an argument in brackets that follows at once: b_h(d)
a / b     = a fraction of the two factors beside it; in a script it stays in the line
√a        = the root of the factor behind it, as sqrt(a)
"""

import re
from dataclasses import dataclass
from html import escape

TOKEN = re.compile(
    r'"(?P<words>[^"]*)"|(?P<number>\d+(?:\.\d+)?)|(?P<large>[Σ∏])|(?P<name>[^\W\d_Σ]+)|(?P<space>\s+)|(?P<other>.)'
)
CLOSES = {"(": ")", "[": "]", "⌊": "⌋"}
LARGE = "Σ∏"
ROOTS = ("√", "sqrt")
SIGNS = {"-": "−", "Σ": "∑"}
"""As they are typed, and as they are drawn."""
SPACE = '<mspace width="0.17em"></mspace>'
LONGEST = 1000
MOST_BRACKETS = 40
"""Letters of an equation, and brackets in it, that are drawn; else it stays a text."""


@dataclass(frozen=True)
class Token:
    kind: str
    text: str


def text_of(equation: str) -> str:
    """As a line of text."""
    return equation.replace('"', "")


def to_mathml(equation: str) -> str:
    """An element that draws the equation; its text where that cannot be drawn.

    Browsers do not break a formula into lines: words and commas outside of brackets stand between several of them.
    """
    try:
        drawn = "".join(_pieces(equation))
    except ValueError:
        drawn = escape(text_of(equation))
    return f'<span class="equation">{drawn}</span>'


def problem(equation: str) -> str:
    """Why it cannot be drawn as it is meant, in words; empty where it can."""
    if equation.count('"') % 2:
        return 'a " is missing'
    if found := re.search(r"[\\${}]", equation):
        return f"{found[0]!r} is LaTeX; write it as one types it, such as b_h(d) = -m_h d/(n + 1)"
    try:
        _pieces(equation)
    except ValueError as error:
        return str(error)
    return ""


def _pieces(equation: str) -> list[str]:
    """Formulas and what stands between them; a ValueError where one of them is no formula."""
    if len(equation) > LONGEST:
        raise ValueError(f"it has more than {LONGEST:,} letters")
    tokens = [Token(str(found.lastgroup), found.group(str(found.lastgroup))) for found in TOKEN.finditer(equation)]
    if sum(token.text in CLOSES for token in tokens) > MOST_BRACKETS:
        raise ValueError(f"it has more than {MOST_BRACKETS} brackets")
    pieces: list[str] = []
    formula: list[Token] = []
    depth = 0
    for token in (*tokens, Token("end", "")):
        depth += (token.text in CLOSES) - (token.text in CLOSES.values())
        between = token.kind == "end" or (depth == 0 and (token.kind == "words" or token.text == ","))
        if not between:
            formula.append(token)
            continue
        if any(each.kind != "space" for each in formula):
            drawn = _Reader(formula).line(None)
            # A comma stays with the formula before it.
            end = "," if token.text == "," else ""
            pieces.append(f'<span class="ends"><math displaystyle="true"><mrow>{drawn}</mrow></math>{end}</span>')
        formula = []
        pieces.append(f" {escape(token.text)} " if token.text != "," else " ")
    return pieces


class _Reader:
    def __init__(self, tokens: list[Token]) -> None:
        self.tokens, self.place = tokens, 0

    def line(self, end: str | None, in_script: bool = False) -> str:
        """Up to the bracket that ends it, which is taken, or to the end of all."""
        parts: list[str] = []
        while self.place < len(self.tokens):
            token = self.tokens[self.place]
            if token.kind == "other" and token.text == end:
                self.place += 1
                return "".join(parts)
            if token.kind == "space":
                self.place += 1
            elif token.text == "/" and in_script:
                self.place += 1
                parts.append("<mo>/</mo>")
            elif token.text == "/":
                if not parts:
                    raise ValueError("/ has nothing before it")
                self.place += 1
                self.skip_space()
                parts[-1] = f"<mfrac>{_bare(parts[-1])}{_bare(self.factor(in_script))}</mfrac>"
            else:
                parts.append(self.factor(in_script))
        if end is not None:
            raise ValueError(f"a {end} is missing")
        return "".join(parts)

    def skip_space(self) -> None:
        while self.is_space(self.place):
            self.place += 1

    def is_space(self, place: int) -> bool:
        return 0 <= place < len(self.tokens) and self.tokens[place].kind == "space"

    def next_is(self, *texts: str) -> bool:
        return self.place < len(self.tokens) and self.tokens[self.place].text in texts

    def token(self) -> Token:
        if self.place == len(self.tokens):
            raise ValueError(f"{self.tokens[-1].text} has nothing behind it")
        return self.tokens[self.place]

    def factor(self, in_script: bool = False) -> str:
        first = self.token()
        if first.text in ROOTS:
            self.place += 1
            self.skip_space()
            return f"<msqrt>{_bare(self.factor(in_script))}</msqrt>"
        large, named = first.text in LARGE, first.kind == "name"
        drawn, scripts = self.atom(in_script), {}
        while self.next_is("_", "^"):
            mark = self.tokens[self.place].text
            self.place += 1
            scripts[mark] = self.script()
        if scripts:
            kind = {"_": "munder" if large else "msub", "^": "mover" if large else "msup"}
            both = "munderover" if large else "msubsup"
            tag = both if len(scripts) == 2 else kind[next(iter(scripts))]
            drawn = f"<{tag}>{drawn}{''.join(scripts[mark] for mark in '_^' if mark in scripts)}</{tag}>"
        if named and self.next_is("(", "["):
            drawn = f"<mrow>{drawn}{self.atom(in_script)}</mrow>"
            if self.next_is("^"):  # ln(n)^2
                self.place += 1
                drawn = f"<msup>{drawn}{self.script()}</msup>"
        return drawn

    def script(self) -> str:
        if self.next_is("("):
            self.place += 1
            return f"<mrow>{self.line(')', in_script=True)}</mrow>"
        return self.atom(in_script=True)

    def atom(self, in_script: bool = False) -> str:
        token = self.token()
        self.place += 1
        match token.kind:
            case "words":
                return f"<mtext>&#160;{escape(token.text)}&#160;</mtext>"
            case "number":
                return f"<mn>{token.text}</mn>"
            case "name":
                drawn = f"<mi>{escape(token.text)}</mi>"
                # The space that a reader expects around `ln` in `z ln n`.
                if len(token.text) == 1:
                    return drawn
                before, behind = (SPACE if self.is_space(i) else "" for i in (self.place - 2, self.place))
                return f"<mrow>{before}{drawn}{behind}</mrow>"
        if token.text in CLOSES:
            close = CLOSES[token.text]
            return f"<mrow><mo>{token.text}</mo>{self.line(close, in_script)}<mo>{close}</mo></mrow>"
        if token.text in CLOSES.values():
            raise ValueError(f"a {token.text} closes nothing")
        if token.text in "_^/":
            raise ValueError(f"{token.text} has nothing before it")
        if token.text == ",":
            return '<mo separator="true">,</mo>'
        return f"<mo>{escape(SIGNS.get(token.text, token.text))}</mo>"


def _bare(drawn: str) -> str:
    """Without the brackets around all of it, which a fraction does not need."""
    inner = re.fullmatch(r"<mrow><mo>\(</mo>(.*)<mo>\)</mo></mrow>", drawn)
    return f"<mrow>{inner[1]}</mrow>" if inner else drawn
