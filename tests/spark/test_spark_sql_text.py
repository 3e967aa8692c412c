"""The text of SQL queries without Spark: topics, and errors that come at once."""

from __future__ import annotations

import pytest

from penstock.spark.sql_text import SqlTextError, check_text, replace_topics, topics_in


def test_topics_of_a_query() -> None:
    text = """select 'topic(''no'')', "topic('no')" -- topic('no')
    /* topic('no') */ from topic('orders') o join TOPIC ( 'customers' ) c using (id)
    where subtopic('no') = 1 union select * from topic('orders')"""
    assert topics_in(text) == ["orders", "customers", "orders"]
    assert topics_in("select 1") == []
    assert topics_in(
        'select * from topic("a.b") join topic(c-d) join topic(\'e") join topic(f(1))'
    ) == ["a.b", "c-d"]


def test_topics_become_views_at_the_same_place() -> None:
    views: list[tuple[str, str]] = []
    text = "select * from topic('orders') o join topic(x) using (id) -- topic(no)"
    replaced = replace_topics(text, lambda view, topic: views.append((view, topic)))
    assert replaced == "select * from _topic_1        o join _topic_2 using (id) -- topic(no)"
    assert views == [("_topic_1", "orders"), ("_topic_2", "x")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the query is empty: write, for example, select"),
        ("-- nothing\n/* at all */", "the query is empty"),
        ("select 'a", "the quote ' at line 1, column 8 is not closed"),
        ('select 1,\n "a', 'the quote " at line 2, column 2 is not closed'),
        ("select `a", "the quote ` at line 1, column 8 is not closed"),
        ("select 1 /* a /* b */", r"the comment at line 1, column 10 is not closed: add \*/"),
        ("select (1, (2)", r"the \( at line 1, column 8 is not closed"),
        ("select array[1", r"the \[ at line 1, column 13 is not closed"),
        ("select 1)", r"the \) at line 1, column 9 has no \( before it"),
        ("select (1]", r"the \] at line 1, column 10 has no \[ before it"),
        ("selct 1", "a query cannot begin with selct: did you mean select?"),
        ("Shwo tables", "a query cannot begin with Shwo: did you mean show?"),
    ],
)
def test_errors_without_a_parser(text: str, message: str) -> None:
    with pytest.raises(SqlTextError, match=message):
        check_text(text)


@pytest.mark.parametrize(
    "text",
    [
        "select 1;",
        "select ')', \"(\", `(` -- (\n/* ( /* ( */ ( */ from topic('orders')",
        "select 'it''s', r'\\', \"a\"\"b\"",
        "select 'a\\'b'",
        "(select 1)",
        "/*+ broadcast(o) */ values (1)",
        "unknown statement",
        "begin select $$'$$; end",
        "WITH a AS (SELECT 1) SELECT a[0] FROM a",
    ],
)
def test_text_that_only_a_parser_can_refuse(text: str) -> None:
    check_text(text)
