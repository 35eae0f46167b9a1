"""Colours of policies for Pygments, which documentation tools and terminals use; found by its entry point."""

from __future__ import annotations

from typing import ClassVar

from pygments.lexer import RegexLexer, bygroups, words
from pygments.token import Comment, Keyword, Name, Number, Operator, Punctuation, String, Whitespace

from kube_policy_scheduler.editor.textmate import CONSTANTS, DEFINING, NAME, NUMBER, any_of, further_words, operators
from kube_policy_scheduler.lang.statements import KEYWORDS


class PolicyLexer(RegexLexer):  # type: ignore[misc]
    """Policies of kube-policy-scheduler."""

    name = "Policy"
    aliases: ClassVar[list[str]] = ["policy"]
    filenames: ClassVar[list[str]] = ["*.policy"]
    mimetypes: ClassVar[list[str]] = ["text/x-policy"]

    tokens: ClassVar[dict[str, list[tuple[object, ...]]]] = {
        "root": [
            (r"\s+", Whitespace),
            (r"#.*?$", Comment.Single),
            (r'"(?:[^"\\\n]|\\.)*"?', String.Double),
            (rf"({any_of(DEFINING)})(\s+)({NAME})", bygroups(Keyword.Declaration, Whitespace, Name.Variable)),
            (words(KEYWORDS, prefix=r"^[ \t]*", suffix=r"\b(?!\s*[=.(\[])"), Keyword),
            (rf"(as)(\s+)({NAME}[-\w.]*)", bygroups(Keyword, Whitespace, Name.Tag)),
            (rf"(\.)({NAME})", bygroups(Punctuation, Name.Attribute)),
            (words(CONSTANTS, prefix=r"\b", suffix=r"\b"), Keyword.Constant),
            (words(further_words(), prefix=r"(?<![\w./-])", suffix=r"\b(?![./-]\w)"), Keyword),
            (rf"{NAME}(?=\s*\()", Name.Function),
            (rf"(?<![\w.]){NUMBER}", Number),
            (any_of(operators()), Operator),
            (r"[()\[\],.]", Punctuation),
            (NAME, Name),
        ],
    }
