"""Fuzzing of the whole language: any text gives diagnostics or a policy that decides, and soon.

`python -m tests.lang.fuzz --seconds 600` runs it for long; a short run with a fixed seed is among the tests.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

from kube_policy_scheduler.diagnostics import Source, render
from kube_policy_scheduler.framework.evaluate.evaluation import evaluate
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.lang.formatting.format import format_source
from kube_policy_scheduler.policy.policy_set import load
from tests.lang.clusters import NOW, cluster, node, place, pod, signals

ROOT = Path(__file__).parents[2]
SECONDS_PER_CASE = 1.0
"""Of processor time: more than any text of this size may take."""
# ruff: noqa: E501  (lists of snippets)
_PIECES = (
    "(", ")", "[", "]", '"', "\\", "#", "\n", " ", "-", "- ", "not ", "if ", " then ", " else ", " and ", " or ", "??",
    "==", "!=", "<", ">=", "+", "*", "/", "%", ".", ",", "=", " in ", " is missing", "1e30", "0", "500m", "4Gi", "5min",
    "80%", "node.", "pod.", "label ", "node.free.cpu", "node.label.x", "pod.label.tenant", "promql(\"x\")", "count(p in node.pods)",
    "clamp(", "min(", "scale(", "rank(", "normalize(", "log(", "sqrt(", "number(", "split(", "let x = ", "def f(a) = ", "f(", "x",
    "filter ", "score ", "spread by ", "limit sum(request.cpu) by ", " to ", "gang by ", " size ", "preempt if ", " weight ",
    " as ", " over ", " max skew ", "\t", "\r\n", "\u00e9", "\u202e", "\x00", "９", "٣", "ı", "1e-30", "0x1", "1_000", "..", "''",
)  # fmt: skip


def corpus() -> list[str]:
    """Return texts to begin with: good policies and broken ones."""
    files = [*ROOT.glob("policies/**/*.policy"), *ROOT.glob("tests/lang/broken/*.policy")]
    return [file.read_text(encoding="utf-8") for file in sorted(files)]


def mutated(texts: Sequence[str], random: Random) -> str:
    """Return a text with a few random changes."""
    text = random.choice(texts)
    for _ in range(random.choice((1, 1, 2, 3, 8))):
        at = random.randrange(len(text) + 1)
        match random.randrange(7):
            case 0:
                text = text[:at] + random.choice(_PIECES) + text[at:]
            case 1:
                text = text[:at] + text[at + random.randrange(1, 12) :]
            case 2:
                other = random.choice(texts)
                start = random.randrange(len(other) + 1)
                text = text[:at] + other[start : start + random.randrange(40)] + text[at:]
            case 3:
                end = at + random.randrange(20)
                text = text[:at] + text[at:end] * random.choice((2, 2, 3, 60)) + text[end:]
            case 4:
                lines = text.split("\n")
                random.shuffle(lines)
                text = "\n".join(lines)
            case 5:
                text = (
                    text[:at] + chr(random.choice((random.randrange(32, 127), random.randrange(1, 0xD7FF)))) + text[at:]
                )
            case _:
                words = text.split(" ")
                first, second = random.randrange(len(words)), random.randrange(len(words))
                words[first], words[second] = words[second], words[first]
                text = " ".join(words)
    return text[:20_000]


_LEAVES = {
    "number": (
        "0", "1", "-3", "2.5", "1e30", "node.free.cpu", "node.used_fraction.mem", 'node.free["nvidia.com/gpu"]', "hour()",
        "pod.priority", "pod.attempts", 'promql("x")', "node.age / 1h", "number(node.label.x)", "pod.request.cpu",
        "count(p in zone.pods where p.label.tenant == pod.label.tenant)", "length(pod.name)", "node.free.mem / 1Gi",
        "sum(p.request.cpu for p in node.pods)", "avg(p.priority for p in cluster.pods)", "least_allocated()",
        "max(p.request.cpu for p in zone.pods where p.label.tenant in [pod.label.tenant, \"x\"])", "node.volumes_attached",
        "sum(n.free.cpu for n in cluster.nodes where n.ready)", "count(distinct p.label.job for p in zone.pods)",
        "max(n.free.cpu for n in zone.nodes where n.label.x == pod.label.tenant)", "max(length(i) for i in pod.images)",
        "count(t in node.taints where t in pod.tolerations)", "length(node.images)",
        "image_locality()", "predicted(promql(\"x\"), 1)", "pod.waiting / 1s", "weekday(\"Asia/Shanghai\")",
    ),
    "truth": (
        "true", "false", "node.ready", "node.unschedulable", "label x", "label x=1", "pod label tenant in (red, blue)",
        "fits(cpu, mem)", "fits()", "tolerated()", "matches_affinity()", "topology_ok()", "volumes_ok()", "ports_free()",
        'any(p in node.pods where p.label.tenant == "red")', "all(p.request.cpu > 100m for p in zone.pods)",
        'all(i matches "a.*" for i in pod.images)', "any(t == node.name for t in node.taints)",
        'between("22:00", "06:00")', '"gpu" in node.taints', "pod.label.tenant", 'node.name matches "[a-b]+"',
    ),
    "text": (
        '"red"', '""', "node.name", "node.zone", "node.label.x", "pod.label.tenant", "pod.namespace", "pod.owner.kind",
        "node.kernel", "pod.qos", 'split(node.name, "a")[0]', "pod.images[0]", "node.conditions.Ready",
    ),
}  # fmt: skip
_GROWN = {
    "number": (
        "({n} + {n})", "({n} - {n})", "({n} * {n})", "({n} / {n})", "({n} % {n})", "-{n}", "({n} ?? {n})", "abs({n})",
        "clamp({n}, {n}, {n})", "min({n}, {n})", "max({n}, {n}, {n})", "round({n})", "log({n})", "sqrt({n})",
        "scale({n}, {n}, {n})", "normalize({n})", "rank({n})", "(if {t} then {n} else {n})", "length({s})", "number({s})",
    ),
    "truth": (
        "({t} and {t})", "({t} or {t} or {t})", "(not {t})", "({n} < {n})", "({n} >= {n})", "({n} == {n})", "({n} in [{n}, 1])",
        "({s} == {s})", "({s} != {s})", "({s} in [{s}, \"blue\"])", "(({n}) is missing)", "(({t}) ?? {t})", "({t} == {t})",
        "(({s}) is not missing)", "startswith({s}, {s})", "contains({s}, {s})", "(if {t} then {t} else {t})", "endswith({s}, \"d\")",
    ),
    "text": ("lower({s})", "({s} ?? {s})", "(if {t} then {s} else {s})", 'split({s}, "-")[1]'),
}  # fmt: skip
_FORMS = (
    "filter {t}", "filter {t} if {t}", "filter ({t}) ?? true", "score {n}", "score {n} if {t} weight 2", "score {n} ?? 1",
    "require {t} if {t}", "hold if {t}", "order by {n}, {s} desc", "spread by {s} over zone", "spread by {s} max skew 2",
    "pack by {s}", "limit sum(request.cpu) by {s} to {n}", "limit count() by {s} to {n} if {t}", "preempt if {t}",
    "let x = {n}\nscore x * 2 - x", "def f(a) = if {t} then a else {n}\nscore f({n})", "for pods where {t}",
)  # fmt: skip


def generated(random: Random) -> str:
    """Return a policy whose parts mostly go together."""

    def grow(kind: str, depth: int) -> str:
        if depth == 0 or random.random() < 0.3:
            return random.choice(_LEAVES[kind])
        return fill(random.choice(_GROWN[kind]), depth - 1)

    def fill(form: str, depth: int) -> str:
        out, at = "", 0
        while (brace := form.find("{", at)) >= 0:
            kind = {"n": "number", "t": "truth", "s": "text"}[form[brace + 1]]
            out += form[at:brace] + grow(kind, depth)
            at = brace + 3
        return out + form[at:]

    return "\n".join(fill(random.choice(_FORMS), random.randrange(1, 5)) for _ in range(random.randrange(1, 3)))


def cases(seed: int) -> Iterator[str]:
    """Yield texts without end."""
    random, texts = Random(seed), corpus()
    while True:
        yield mutated(texts, random)
        text = generated(random)
        yield text
        yield mutated([text], random)


_NODES = cluster(
    node("a", zone="a", labels={"x": "1", "tenant": "red"}),
    node("b", zone="b", allocatable={"cpu": "0", "nvidia.com/gpu": "2"}),
    node("c", ready=False),
)
place(_NODES, [("a", {"tenant": "red"}), ("b", {}), ("b", {"tenant": "blue"})])
_FRAME = Frame(pod(_NODES, "p", labels={"tenant": "red"}), _NODES, NOW, signals=signals("x", {"a": 1e99, "b": -5.0}))


def run(text: str) -> None:
    """Do everything with one text that can be done with a policy; anything but diagnostics is a bug."""
    loaded = load([Source("fuzz.policy", text)])
    for diagnostic in loaded.diagnostics:
        render(diagnostic, colour=True, width=40)
    format_source(Source("fuzz.policy", text))
    if loaded.policy_set is None:
        assert loaded.diagnostics, "nothing came of it, and nothing was said"
        return
    for policy in loaded.policy_set.policies:
        policy.governs(_FRAME)
        policy.hold_reason(_FRAME)
        for order in policy.orders:
            order.evaluate(_FRAME)
            if order.over_time is not None:
                order.over_time(_FRAME)
        found = evaluate(_FRAME, policy.profile)
        assert not (found.totals != found.totals).any(), "a total is not a number"
        for clause in policy.clauses:
            for part in clause.parts():
                part.evaluate(_FRAME)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    end, done = time.monotonic() + options.seconds, 0
    run("score node.free.cpu")  # the grammar is built once
    for text in cases(options.seed):
        if time.monotonic() > end:
            break
        started = time.process_time()
        try:
            run(text)
        except BaseException:
            print(f"--- case {done} of seed {options.seed}\n{text}\n---", file=sys.stderr)
            raise
        if time.process_time() - started > SECONDS_PER_CASE:
            print(f"--- slow, {time.process_time() - started:.2f} s: case {done} of seed {options.seed}\n{text}\n---")
            return 1
        done += 1
    print(f"{done} texts, no surprise")
    return 0


if __name__ == "__main__":
    sys.exit(main())
