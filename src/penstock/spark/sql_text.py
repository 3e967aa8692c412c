"""Reads the text of a SQL query without Spark: its topics, and the errors that no parser is needed
for. Pure.

Only what Spark refuses for certain is an error here. Spark's own parser checks the rest.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator

# A view name is not longer than the shortest topic(...), so positions in the text stay the same.
_VIEW = "_topic_{}"
# A raw string, r'…', has no escapes.
_QUOTED = r"""\br'[^']*'|\br"[^"]*"|'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*"|`(?:[^`]|``)*`"""
_TOPIC = r"\btopic\s*\(\s*(?P<quote>['\"]?)(?P<topic>[\w.-]+)(?P=quote)\s*\)"
_TOKENS = re.compile(
    rf"{_TOPIC}|(?P<quoted>{_QUOTED})|(?P<line_comment>--[^\n]*)|(?P<comment>/\*)"
    r"|(?P<quote_mark>['\"`])|(?P<bracket>[()\[\]])|(?P<word>\w+)",
    re.IGNORECASE | re.DOTALL,
)
_COMMENT_EDGE = re.compile(r"/\*|\*/")
# Text with these may be quoted by rules of Spark's configuration or of its scripts: not checked.
_UNUSUAL_QUOTES = re.compile(r"\\['\"]|\$\w*\$")
_BRACKETS = {")": "(", "]": "["}
_FIRST_WORDS = """
    add alter analyze begin cache call clear comment create declare delete desc describe drop
    execute explain from insert list load lock map merge msck reduce refresh repair replace reset
    revoke select set show start table truncate uncache unlock update use values with
""".split()  # noqa: SIM905 - a list of 43 lines is no easier to read


class SqlTextError(ValueError):
    """The text is not a SQL statement. The message says what is wrong, and where."""


def topics_in(text: str) -> list[str]:
    """Return the topics of a query in order, with repetitions."""
    return [token["topic"] for token in _tokens(text) if token["topic"]]


def replace_topics(text: str, create_view: Callable[[str, str], None]) -> str:
    """Call `create_view` with a view name and the topic for each topic(...), and replace it by the
    name. The length of the text stays the same."""
    parts, end = [], 0
    topics = [token for token in _tokens(text) if token["topic"]]
    for number, token in enumerate(topics, start=1):
        view = _VIEW.format(number)
        create_view(view, token["topic"])
        parts += [text[end : token.start()], view.ljust(len(token[0]))]
        end = token.end()
    return "".join([*parts, text[end:]])


def check_text(text: str) -> None:
    """Raise SqlTextError if the text is empty, a quote, comment or bracket is not closed, or the
    first word is misspelt."""
    if _UNUSUAL_QUOTES.search(text):
        return
    tokens = list(_tokens(text))
    _check_closed(text, tokens)
    code = [token for token in tokens if not token["line_comment"] and not token["comment"]]
    if not code:
        raise SqlTextError("the query is empty: write, for example, select * from topic('orders')")
    if code[0]["word"]:
        _check_first_word(code[0]["word"])


def place(text: str, index: int) -> str:
    """Describe a position for a user: lines and columns count from 1."""
    before = text[:index]
    return f"line {before.count(chr(10)) + 1}, column {index - before.rfind(chr(10))}"


def _check_closed(text: str, tokens: list[re.Match[str]]) -> None:
    opened: list[re.Match[str]] = []
    for token in tokens:
        bracket, where = token["bracket"], place(text, token.start())
        if token["quote_mark"]:
            raise SqlTextError(f"the quote {token[0]} at {where} is not closed")
        if token["comment"] and _comment_end(text, token) is None:
            raise SqlTextError(f"the comment at {where} is not closed: add */")
        if bracket in _BRACKETS:
            if not opened or opened.pop()[0] != _BRACKETS[bracket]:
                raise SqlTextError(
                    f"the {bracket} at {where} has no {_BRACKETS[bracket]} before it"
                )
        elif bracket:
            opened.append(token)
    if opened:
        raise SqlTextError(
            f"the {opened[-1][0]} at {place(text, opened[-1].start())} is not closed"
        )


def _check_first_word(word: str) -> None:
    similar = difflib.get_close_matches(word.lower(), _FIRST_WORDS, n=1, cutoff=0.75)
    if similar and word.lower() not in _FIRST_WORDS:
        raise SqlTextError(f"a query cannot begin with {word}: did you mean {similar[0]}?")


def _tokens(text: str) -> Iterator[re.Match[str]]:
    """Yield topics, quoted texts, comments, brackets and words. A comment, which may contain
    others, is its opening mark."""
    position = 0
    while (token := _TOKENS.search(text, position)) is not None:
        yield token
        position = token.end()
        if token["comment"]:
            position = _comment_end(text, token) or len(text)


def _comment_end(text: str, opening: re.Match[str]) -> int | None:
    depth = 0
    for edge in _COMMENT_EDGE.finditer(text, opening.start()):
        depth += 1 if edge[0] == "/*" else -1
        if depth == 0:
            return edge.end()
    return None
