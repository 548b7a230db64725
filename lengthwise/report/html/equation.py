"""Equations of cards as MathML, which browsers draw by themselves: see `encodings.card` for how they are written.

line      = everything side by side
factor    = atom, scripts behind it, an argument in brackets that follows at once: b_h(d)
a / b     = a fraction of the two factors beside it; in a script it stays in the line
"""

import re
from dataclasses import dataclass
from html import escape

TOKEN = re.compile(
    r'"(?P<words>[^"]*)"|(?P<number>\d+(?:\.\d+)?)|(?P<large>[Σ∏])|(?P<name>[^\W\d_Σ]+)|(?P<space>\s+)|(?P<other>.)'
)
CLOSES = {"(": ")", "[": "]", "⌊": "⌋"}
LARGE = "Σ∏"
SIGNS = {"-": "−", "Σ": "∑"}
"""As they are typed, and as they are drawn."""
SPACE = '<mspace width="0.17em"></mspace>'
LONGEST = 1000
DEEPEST = 40
"""Letters of an equation, and brackets within brackets, that are drawn; else it stays a text."""


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
    tokens = [Token(str(found.lastgroup), found.group(str(found.lastgroup))) for found in TOKEN.finditer(equation)]
    drawn: list[str] | None = None
    if len(equation) <= LONGEST and sum(token.text in CLOSES for token in tokens) <= DEEPEST:
        drawn = _pieces(tokens)
    return f'<span class="equation">{escape(text_of(equation)) if drawn is None else "".join(drawn)}</span>'


def _pieces(tokens: list[Token]) -> list[str] | None:
    """Formulas and what stands between them; None where one of them is no formula."""
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
            drawn = _Reader(formula).all()
            if drawn is None:
                return None
            # A comma stays with the formula before it.
            end = "," if token.text == "," else ""
            pieces.append(f'<span class="ends"><math displaystyle="true"><mrow>{drawn}</mrow></math>{end}</span>')
        formula = []
        pieces.append(f" {escape(token.text)} " if token.text != "," else " ")
    return pieces


class _Reader:
    def __init__(self, tokens: list[Token]) -> None:
        self.tokens, self.place = tokens, 0

    def all(self) -> str | None:
        """None where a bracket does not close or a script has nothing to stand on."""
        try:
            drawn = self.line(None)
        except (ValueError, IndexError):
            return None
        return drawn if self.place == len(self.tokens) else None

    def line(self, end: str | None, in_script: bool = False) -> str:
        """Up to the bracket that ends it, which is taken."""
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
                self.place += 1
                self.skip_space()
                parts[-1] = f"<mfrac>{_bare(parts[-1])}{_bare(self.factor(in_script))}</mfrac>"
            else:
                parts.append(self.factor(in_script))
        if end is not None:
            raise ValueError(f"{end} is missing")
        return "".join(parts)

    def skip_space(self) -> None:
        while self.tokens[self.place].kind == "space":
            self.place += 1

    def is_space(self, place: int) -> bool:
        return 0 <= place < len(self.tokens) and self.tokens[place].kind == "space"

    def next_is(self, *texts: str) -> bool:
        return self.place < len(self.tokens) and self.tokens[self.place].text in texts

    def factor(self, in_script: bool = False) -> str:
        large, named = self.tokens[self.place].text in LARGE, self.tokens[self.place].kind == "name"
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
        token = self.tokens[self.place]
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
        if token.text in "_^/" or token.text in CLOSES.values():
            raise ValueError(f"{token.text} stands on nothing")
        if token.text == ",":
            return '<mo separator="true">,</mo>'
        return f"<mo>{escape(SIGNS.get(token.text, token.text))}</mo>"


def _bare(drawn: str) -> str:
    """Without the brackets around all of it, which a fraction does not need."""
    inner = re.fullmatch(r"<mrow><mo>\(</mo>(.*)<mo>\)</mo></mrow>", drawn)
    return f"<mrow>{inner[1]}</mrow>" if inner else drawn
