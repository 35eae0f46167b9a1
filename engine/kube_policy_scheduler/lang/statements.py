"""The statements of the language: how each is written, which extension point it is, what it means.

The list that the parser's keywords, the examples in messages and the reference are taken from.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StatementForm:
    """One form of a statement."""

    keyword: str
    """Its first word."""
    written: str
    extension_point: str
    """Of the scheduling framework; "" for those that decide nothing by themselves."""
    meaning: str
    example: str


STATEMENTS: tuple[StatementForm, ...] = (
    StatementForm("policy", "policy NAME", "", "Names the policy; without it the file's name is used.", "policy batch"),
    StatementForm(
        "scheduler",
        "scheduler NAME",
        "",
        "The `spec.schedulerName` of the pods it is for; without it the daemon's.",
        "scheduler batch-scheduler",
    ),
    StatementForm(
        "for",
        "for pods where CONDITION",
        "",
        "Which pods it is for; without it all of its scheduler's.",
        'for pods where pod.namespace == "batch"',
    ),
    StatementForm("priority", "priority N", "", "Which policy wins where several are for a pod.", "priority 10"),
    StatementForm(
        "canary",
        "canary of NAME for SHARE [of pods where CONDITION]",
        "",
        "Tries this policy out on a share of the pods that the policy NAME is for, whole workloads at a time; the"
        " others stay with NAME. Scheduler, pods and priority are NAME's.",
        "canary of batch for 10%",
    ),
    StatementForm(
        "canary",
        "canary of NAME for pods where CONDITION",
        "",
        "The same for some of its pods, such as those of one namespace.",
        'canary of batch for pods where pod.namespace == "team-a"',
    ),
    StatementForm(
        "ties",
        "ties by hash|name",
        "",
        "Which of several best nodes is taken: by a seeded hash of pod and node (the default), or the smallest name.",
        "ties by name",
    ),
    StatementForm(
        "devices",
        "devices by fullest|emptiest|fragmentation|random",
        "",
        "Which device of the node a share is taken of; without it the one with the least room that suffices.",
        "devices by fragmentation",
    ),
    StatementForm(
        "use",
        "use kubernetes [without NAME, …]",
        "",
        "Kubernetes' default filters hold beside the policy's own, also without this line; `without` leaves some out.",
        "use kubernetes without NodePorts",
    ),
    StatementForm(
        "use",
        "use kubernetes scores [weight N]",
        "Score",
        "Adds Kubernetes' default scores; implied where the policy has no `score`, `spread` or `pack` of its own.",
        "use kubernetes scores weight 2",
    ),
    StatementForm("use", 'use "FILE"', "", "Takes in the statements of another file.", 'use "common.policy"'),
    StatementForm("let", "let NAME = EXPR", "", "Names a value.", "let busy = node.used_fraction.cpu > 80%"),
    StatementForm(
        "def",
        "def NAME(a, b) = EXPR",
        "",
        "Names an expression with parameters; no recursion.",
        "def share(used, all) = used / all",
    ),
    StatementForm(
        "metric",
        'metric NAME = promql("…") [every D] [stale after D] [default EXPR] [by LABEL]',
        "",
        "Names a metric: how often it is asked, when a value is too old, what then holds, which label names the node.",
        'metric load = promql("cpu_usage") stale after 2min default 50',
    ),
    StatementForm(
        "hold",
        'hold if CONDITION [as NAME] [else "why"]',
        "PreEnqueue",
        "The pod waits outside the active queue while the condition holds.",
        'hold if pod.annotation.paused == "true" else "paused"',
    ),
    StatementForm(
        "order",
        "order by EXPR [asc|desc], …",
        "QueueSort",
        "Which pod is decided first; without it `pod.priority desc, pod.queued`.",
        "order by pod.priority desc, pod.queued asc",
    ),
    StatementForm(
        "require",
        'require CONDITION [as NAME] [if CONDITION] [else "why"]',
        "PreFilter",
        "About the pod alone: where it does not hold, the pod is unschedulable.",
        'require pod.label.tenant else "pod missing tenant label"',
    ),
    StatementForm(
        "filter",
        'filter CONDITION [as NAME] [if CONDITION] [else "why"]',
        "Filter",
        "A node passes where it holds, or where the condition after `if` does not.",
        "filter node.ready and fits(cpu, mem)",
    ),
    StatementForm(
        "score",
        "score EXPR [as NAME] [if CONDITION] [weight N]",
        "Score",
        "Added to the node's total; where the condition is false it adds 0.",
        "score -1 if label node=hello",
    ),
    StatementForm(
        "spread",
        "spread by KEY [over TOPOLOGY] [as NAME] [if CONDITION] [weight N]",
        "Score",
        "Prefers domains (the node, unless `over` says otherwise) with fewest pods of the same key, 0 to 100.",
        "spread by pod.label.tenant over zone",
    ),
    StatementForm(
        "spread",
        'spread by KEY [over TOPOLOGY] max skew N [min domains N] [as NAME] [if CONDITION] [else "why"]',
        "Filter",
        "Forbids more than N pods of the key above the emptiest domain.",
        "spread by pod.label.tenant over zone max skew 1",
    ),
    StatementForm(
        "pack",
        "pack by KEY [over TOPOLOGY] [as NAME] [if CONDITION] [weight N]",
        "Score",
        "Prefers domains with most pods of the same key, 0 to 100.",
        "pack by pod.label.job over rack",
    ),
    StatementForm(
        "limit",
        'limit sum(FIELD) | count() by KEY to EXPR [as NAME] [if CONDITION] [else "why"]',
        "PreFilter",
        "A quota over all pods of one key; those assumed but not yet bound count.",
        "limit sum(request.cpu) by pod.label.tenant to 100",
    ),
    StatementForm(
        "gang",
        "gang by KEY size EXPR [within DURATION] [as NAME] [if CONDITION]",
        "Permit",
        "All or nothing: no member is bound until `size` members have a place.",
        "gang by pod.label.job size 4 within 5min",
    ),
    StatementForm(
        "preempt",
        "preempt if CONDITION [evict where CONDITION], preempt never",
        "PostFilter",
        "Who may evict others, and who may be evicted (`victim.…`); beside Kubernetes' own rules.",
        'preempt if pod.priority > 1000 evict where victim.label.tier == "batch"',
    ),
)

KEYWORDS: tuple[str, ...] = tuple(dict.fromkeys(form.keyword for form in STATEMENTS))
"""The words that statements begin with."""

EXAMPLES: dict[str, str] = {form.keyword: form.example for form in reversed(STATEMENTS)}
"""One correct example of each statement, by its first word."""
