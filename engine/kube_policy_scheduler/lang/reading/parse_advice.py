"""What was probably meant where a word of another language stands. Guesses: nothing of it is a fix."""

from __future__ import annotations

import re

from kube_policy_scheduler.lang.reading import foreign
from kube_policy_scheduler.lang.reading.parse_place import Place

_METHOD = re.compile(r"([\w.]+)\.([A-Za-z_]\w*)\s*$")
ONE_WORD = "a name is one word without quotes: letters, digits and `-`"


def advice_for(place: Place) -> str:
    """Return what is probably meant; "" where nothing is known."""
    word, last, text = place.word.lower(), place.last, place.line.text
    if place.word == "(" and (method := _METHOD.search(place.near)):
        if method[1].endswith(".pods") or method[2] in ("any", "all", "filter", "count", "exists"):
            return f"there are no methods: write `any(p in {method[1]} where …)`"
        if method[2] == "label":
            return f'write `{method[1]}.label["KEY"]`'
        return f"there are no methods: write `{method[2].lower()}({method[1]}, …)`"
    if last == "else" and place.keyword == "score":
        return "write `score if COND then A else B`"
    if last == "else" and place.word[0].isalpha():
        reason = text[place.at :].strip().replace('"', "")
        return f'write `else "{reason}"`'
    if place.keyword in ("policy", "scheduler") or last == "as" or re.search(r"\bas\s+\S+\s*$", place.near):
        return ONE_WORD
    if place.keyword == "use" and last == "use" and place.word[0].isalpha():
        file = text[place.at :].strip()
        return "write `use kubernetes`" if word in ("k8s", "kube", "default", "defaults") else f'write `use "{file}"`'
    if place.keyword == "for" and "PODS" in place.accepts:
        return "a policy is for pods, and its statements for every node: `for pods where …`, `filter …`"
    if place.keyword == "for" and "WHERE" in place.accepts:
        return "write `for pods where …`, such as `for pods where pod label app=web`"
    if place.keyword == "hold" and "NUMBER" not in place.accepts and last == "hold":
        return f"write `hold if {'not ' if word == 'until' else ''}…`"
    if word == "by" and last in ("avg", "sum", "min", "max", "count", "topk", "quantile"):
        return f'a query stands in quotes: `promql("{last} by (node) (…)")`'
    if word == "by" and last in ("spread", "pack"):
        return f"`{last}` is a statement of its own, with a weight: `{last} by pod.label.app weight 2`"
    if "BY" in place.accepts and last == place.keyword and place.word[0].isalpha() and word not in ("over", "size"):
        return f"write `{place.keyword} by {text[place.at :].strip()}`"
    if last == "evict":
        return f"write `evict where {text[place.at :].strip()}`"
    if last == "stale":
        return f"write `stale after {text[place.at :].strip()}`"
    if last == "label" and place.word == "(":
        return "write `label KEY=VALUE`"
    if last in ("has", "exists") and "AND" in place.accepts:
        return foreign.WORDS[last]
    if last in ("is", "not") and word in foreign.WORDS:
        return foreign.WORDS[word]
    return foreign.WORDS.get(word, "") if "AND" in place.accepts or "$END" in place.accepts else ""
