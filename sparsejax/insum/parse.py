"""The grammar of indirect einsums.

    text   := line*                                 a "#" starts a comment
    line   := access ("=" | "+=" | "*=" | "max=" | "min=") expr
    expr   := term (("+" | "-") term)*
    term   := factor (("*" | "/") factor)*
    factor := "-" factor | "(" expr ")" | number | name "(" [expr ("," expr)*] ")" | access
    access := name | name "[" index ("," index)* "]"
    index  := name | ["-"] integer | name "[" index ("," index)* "]"

A name without brackets is a variable if it stands as an index somewhere in the line, else an array of no dimensions. Every node knows where it
stands in the text, so that errors point there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NoReturn

OPERATORS = {"=": "add", "+=": "add", "*=": "multiply", "max=": "maximum", "min=": "minimum"}
_TOKEN = re.compile(
    r"(?P<op>max\s?=(?!=)|min\s?=(?!=)|\+=|\*=|=)|(?P<name>[^\W\d]\w*)|(?P<number>(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?)|(?P<sign>[-+*/(),\[\]])"
)

_NUMBER = re.compile(r"[\d.]+")


@dataclass(frozen=True)
class Name:
    """An access: a name, with indices or without brackets (None)."""

    name: str
    indices: tuple[Name | Whole, ...] | None
    at: int


@dataclass(frozen=True)
class Whole:
    """An integer as an index."""

    value: int
    at: int


@dataclass(frozen=True)
class Constant:
    """A number."""

    value: int | float
    at: int


@dataclass(frozen=True)
class Op:
    """An operator or function: "+", "-", "*", "/", "neg" or a name."""

    op: str
    args: tuple[Node, ...]
    at: int


Node = Name | Constant | Op


@dataclass(frozen=True)
class Line:
    """One statement; `text` is the whole line, for errors."""

    target: Name
    op: str
    value: Node
    text: str


def fault(text: str, at: int, message: str, error: type[Exception] = ValueError) -> NoReturn:
    """Raise an error that shows the line, and a caret below the place in question."""
    raise error(f"{message}{pointer(text, at)}")


def pointer(text: str, at: int) -> str:
    """The line with a caret below a place, as the end of a message."""
    return f"\n  {text}\n  {' ' * at}^"


def parse(text: object) -> tuple[Line, ...]:
    """The statements of a text. ValueError with a caret where it has none; TypeError for what is no text.

    >>> [line.op for line in parse("t[i] = A[i,j]  # sums of rows\\ns max= t[i]")]
    ['=', 'max=']
    """
    if not isinstance(text, str):
        raise TypeError(f"the statements must be a str, not {type(text).__name__}")
    lines = [line.partition("#")[0].rstrip() for line in text.splitlines()]
    made = tuple(_Parser(line).line() for line in lines if line.strip())
    if not made:
        line = next((line.rstrip() for line in text.splitlines() if line.strip()), "")
        fault(line, len(line), "there is no statement: write one such as 'C[i] = A[i,j] * x[j]'")
    return made


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    at: int


def _tokens(line: str) -> Iterator[_Token]:
    at = 0
    while at < len(line):
        if line[at].isspace():
            at += 1
            continue
        found = _TOKEN.match(line, at)
        if found is None:
            if line.startswith("...", at):
                fault(line, at, "... is no index: write an index for every axis")
            fault(line, at, f"unknown character {line[at]!r}")
        kind = found.lastgroup
        assert kind is not None
        if kind == "number" and (more := _NUMBER.match(line, at)) and more.end() > found.end():
            fault(line, at, f"{more.group()} is no number")
        yield _Token(kind, found.group().replace(" ", ""), at)
        at = found.end()
    yield _Token("end", "", len(line))


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = list(_tokens(text))
        self.place = 0

    @property
    def here(self) -> _Token:
        return self.tokens[self.place]

    def fault(self, at: int, message: str) -> NoReturn:
        fault(self.text, at, message)

    def take(self, text: str) -> bool:
        if self.here.text == text and self.here.kind != "end":
            self.place += 1
            return True
        return False

    def expect(self, text: str, opened: int, what: str) -> None:
        if not self.take(text):
            if self.here.kind == "end":
                self.fault(opened, f"missing {text!r}: {what} is not closed")
            self.fault(self.here.at, f"expected {text!r}, not {self.here.text!r}")

    def line(self) -> Line:
        if self.here.kind != "name":
            self.fault(self.here.at, "a statement starts with its target, such as C[i]")
        target = self.access()
        if self.here.kind != "op":
            what = "the end of the line" if self.here.kind == "end" else repr(self.here.text)
            self.fault(self.here.at, f"expected one of = += *= max= min= after the target, not {what}")
        op = self.here.text
        self.place += 1
        value = self.expr()
        if self.here.kind != "end":
            self.unexpected()
        return Line(target, op, value, self.text)

    def unexpected(self) -> NoReturn:
        token = self.here
        if token.kind in ("name", "number") or token.text in ("(", "["):
            self.fault(
                token.at, f"{token.text!r} stands side by side with what is before it: write an operator between them"
            )
        if token.text in (")", "]"):
            self.fault(token.at, f"{token.text!r} closes nothing")
        self.fault(token.at, f"unexpected {token.text!r}" if token.text else "the expression ends too early")

    def expr(self) -> Node:
        made = self.term()
        while self.here.text in ("+", "-"):
            token = self.here
            self.place += 1
            made = Op(token.text, (made, self.term()), token.at)
        return made

    def term(self) -> Node:
        made = self.factor()
        while self.here.text in ("*", "/"):
            token = self.here
            self.place += 1
            made = Op(token.text, (made, self.factor()), token.at)
        return made

    def factor(self) -> Node:
        token = self.here
        if self.take("-"):
            return Op("neg", (self.factor(),), token.at)
        if self.take("("):
            made = self.expr()
            self.expect(")", token.at, "this parenthesis")
            return made
        if token.kind == "number":
            self.place += 1
            whole = token.text.isdigit()
            return Constant(int(token.text) if whole else float(token.text), token.at)
        if token.kind != "name":
            self.unexpected()
        following = self.tokens[self.place + 1]
        if following.text == "(":
            self.place += 2
            args = [] if self.here.text == ")" else [self.expr()]
            while self.take(","):
                args.append(self.expr())
            self.expect(")", following.at, "this parenthesis")
            return Op(token.text, tuple(args), token.at)
        return self.access()

    def access(self) -> Name:
        token = self.here
        self.place += 1
        opened = self.here
        if not self.take("["):
            return Name(token.text, None, token.at)
        if self.take("]"):
            return Name(token.text, (), token.at)
        indices = [self.index()]
        while self.take(","):
            indices.append(self.index())
        if self.here.text in ("+", "-", "*", "/"):
            self.fault(
                self.here.at,
                f"{self.here.text!r} in an index: an index is a variable, an integer or an access of an array",
            )
        self.expect("]", opened.at, "this bracket")
        return Name(token.text, tuple(indices), token.at)

    def index(self) -> Name | Whole:
        token = self.here
        minus = self.take("-")
        if self.here.kind == "number":
            number = self.here
            self.place += 1
            if not number.text.isdigit():
                self.fault(
                    number.at, f"{number.text} is no index: an index is a variable, an integer or an access of an array"
                )
            return Whole(-int(number.text) if minus else int(number.text), token.at)
        if minus or self.here.kind != "name":
            self.fault(token.at, "an index is a variable, an integer or an access of an array")
        return self.access()
