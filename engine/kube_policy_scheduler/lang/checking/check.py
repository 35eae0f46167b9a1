"""One policy, statement by statement: syntax to checked clauses. Reports errors, and continues."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import assert_never

import msgspec

from kube_policy_scheduler.diagnostics import Diagnostic, Label, Source, Span, closest, in_order
from kube_policy_scheduler.lang import checked, codes, expressions, syntax, typed
from kube_policy_scheduler.lang.checked import CheckedPolicy, ClauseKind, Definition
from kube_policy_scheduler.lang.checking import operators
from kube_policy_scheduler.lang.checking.earlier import (
    MOST_CHARACTERS,
    MOST_NESTED,
    Earlier,
    Known,
    KnownTest,
    NotKnown,
)
from kube_policy_scheduler.lang.checking.inference import (
    MAX_POLICY_COST,
    MAX_POLICY_ERRORS,
    MAX_STEPS,
    Inference,
    Scope,
    constant_of,
    mixes_pod_and_node,
    recursion,
    topology_of,
)
from kube_policy_scheduler.lang.checking.parts import SETTLED, Parts, unsettled
from kube_policy_scheduler.lang.checking.recursion import rings
from kube_policy_scheduler.lang.checking.units import common_unit, in_unit
from kube_policy_scheduler.lang.checking.workloads import belongs, choose, divide, limit
from kube_policy_scheduler.lang.environment import CLUSTER, OF_PODS, OF_WORKLOADS, Environment
from kube_policy_scheduler.lang.formatting.show import clause_text, show
from kube_policy_scheduler.lang.statements import PODS, WORKLOADS
from kube_policy_scheduler.lang.types import (
    BYTES,
    NATIVE_RESOURCES,
    NUMBER,
    PLAIN,
    RESOURCE_WORDS,
    SECONDS,
    Depends,
    Info,
    Kind,
    Shape,
    resource_name,
    resource_unit,
)
from kube_policy_scheduler.wording import one_line

OF_VICTIMS = Depends.TEMPLATE | Depends.POD | Depends.OWN | Depends.RUN | Depends.CLOCK | Depends.CLUSTER
"""The fields of a running pod that might be evicted."""
COUNTED = Depends.TEMPLATE | Depends.OWN
"""The fields of a pod by which a `limit` counts it."""
RUNNING = Depends.TEMPLATE | Depends.POD | Depends.OWN | Depends.SIGNAL
"""The fields by which one can say how long a pod runs, before it starts and while it runs."""
ORDERING = SETTLED | Depends.CLOCK | Depends.SIGNAL
"""The fields that can order a queue: constant ones, and those whose changes the queue follows."""
NODE_LABEL = "kubernetes.io/hostname"
"""The label in one of whose domains a gang is that must be on one node."""
ANY_DOMAIN = "any"
"""The topology of `within one` that stands for all nodes."""
DEFAULT_GANG_SECONDS = 300.0
"""How long a gang waits for its last member: long enough for an autoscaler to bring a node."""
DEFAULT_WAIT_SECONDS = 86400.0
"""How far ahead room is reserved by `backfill`: what is further away is a guess."""
DEFAULT_REST_SECONDS = 600.0
"""Time for a moved workload to become ready, and for metrics to follow."""


def check(
    statements: Sequence[syntax.Statement],
    environment: Environment,
    *,
    source: Source,
    name: str,
    unread_names: frozenset[str] = frozenset(),
    known: Known | None = None,
) -> tuple[CheckedPolicy, tuple[Diagnostic, ...], Known | None]:
    """Return the policy of the statements, all its errors, and what helps to check almost the same statements.

    Args:
        statements: in order, those of used files included.
        environment: what a policy may name.
        source: the policy's own file.
        name: of the policy, if no statement gives another.
        unread_names: names whose definitions could not be read.
        known: what a check of almost the same statements left: the result is the same without it.
    """

    environment = environment.of(subject_of(statements))

    def checked_with(known: Known | None) -> _Checker:
        checker = _Checker(inference=Inference(environment, unread_names), source=source, name=name)
        checker.define(statements)
        if known is not None:
            checker.inference.earlier = Earlier(known, checker.inference.definitions)
        for statement in statements:
            if checker.stop_at_most(statement):
                break
            checker.statement(statement)
        else:
            checker.finish()
        return checker

    checker = None
    if known is not None and known.environment is environment:
        with suppress(NotKnown):
            checker = checked_with(known)
    if checker is None or not checker.leaves_much:
        checker = checked_with(None)
    size = sum(len(each.text) for each in {statement.span.source for statement in statements})
    inference = checker.inference
    leaves = checker.leaves_much and not unread_names and size <= MOST_CHARACTERS
    left = Known(environment, inference.definitions, inference.done, checker.tests) if leaves else None
    return checker.policy(tuple(statements)), in_order(checker.found), left


def subject_of(statements: Sequence[syntax.Statement]) -> str:
    """Return what a policy decides about, which follows from its `for`."""
    return WORKLOADS if any(isinstance(each, syntax.ForWorkloads) for each in statements) else PODS


class _Checker(Parts, kw_only=True):
    """Checks one policy, with one inference."""

    names: dict[str, Span] = msgspec.field(default_factory=dict)
    """Names given with `as`."""
    texts: Counter[str] = msgspec.field(default_factory=Counter)
    """How many clauses without a name have the same text."""
    source: Source
    name: str
    scheduler: str | None = None
    governs: typed.Typed | None = None
    priority: int = 0
    clauses: list[checked.Clause] = msgspec.field(default_factory=list)
    without: set[str] = msgspec.field(default_factory=set)
    scores: Mapping[str, float] | None = None
    ties: str | None = None
    devices: str | None = None
    device_keys: tuple[tuple[typed.Typed, bool], ...] = ()
    domains: str | None = None
    domain_keys: tuple[tuple[typed.Typed, bool], ...] = ()
    canary: checked.Canary | None = None
    tests: dict[tuple[type, str], KnownTest] = msgspec.field(default_factory=dict)
    """For the next check."""
    queues: list[checked.QueueDeclaration] = msgspec.field(default_factory=list)
    reclaims: list[checked.Reclaim] = msgspec.field(default_factory=list)
    backfill: checked.Backfill | None = None
    rebalances: list[checked.Rebalance] = msgspec.field(default_factory=list)
    chooses: list[checked.Choose] = msgspec.field(default_factory=list)
    divides: list[checked.Divide] = msgspec.field(default_factory=list)
    keeps_running: bool = True

    # --- names -------------------------------------------------------------------------------------------

    def define(self, statements: Sequence[syntax.Statement]) -> None:
        """Collect all names, so that they can be used before they are defined."""
        definitions, environment = self.inference.definitions, self.inference.environment
        for tree in statements:
            if not isinstance(tree, syntax.Let | syntax.Def | syntax.Metric):
                continue
            earlier = definitions.get(tree.name)
            if earlier is not None:
                label = Label(earlier.tree.name_span, "defined here")
                message = f"`{tree.name}` is defined twice"
                self.found.append(
                    codes.REDEFINED.at(tree.name_span, message, help="give one of them another name", labels=[label])
                )
                continue
            known = (*environment.subject.roots, environment.subject.everything, *environment.topologies)
            if tree.name in environment.builtins or tree.name in known:
                message = f"`{tree.name}` is built in"
                self.found.append(codes.BUILTIN_NAME.at(tree.name_span, message, help="choose another name"))
                continue
            if isinstance(tree, syntax.Def):
                self._parameters(tree)
            definitions[tree.name] = Definition(tree)

    def _parameters(self, tree: syntax.Def) -> None:
        """Report parameters of one name."""
        said: dict[str, Span] = {}
        for parameter in tree.parameters:
            earlier = said.setdefault(parameter.name, parameter.span)
            if earlier is not parameter.span:
                message = f"two parameters of `{tree.name}` are called `{parameter.name}`"
                label = Label(earlier, "the other one")
                advice = "give one of them another name"
                self.found.append(codes.REDEFINED.at(parameter.span, message, help=advice, labels=[label]))

    @property
    def leaves_much(self) -> bool:
        """Return whether there is nothing to report, and no limit is near which depends on the order of the work."""
        inference = self.inference
        if self.found or inference.most_nested > MOST_NESTED:
            return False
        return inference.steps_so_far <= MAX_STEPS and inference.total <= MAX_POLICY_COST

    def stop_at_most(self, tree: syntax.Statement) -> bool:
        """Return whether to stop, reporting very many errors."""
        if len(self.found) > MAX_POLICY_ERRORS:
            message = f"more than {MAX_POLICY_ERRORS} errors: the rest of the policy is skipped"
            self.found.append(codes.TOO_MANY.at(tree.span, message, help="correct these first"))
            return True
        return self.inference.is_over

    def finish(self) -> None:
        """Check definitions that no statement uses, so that their errors are found too."""
        for definition in list(self.inference.definitions.values()):
            if isinstance(definition.tree, syntax.Def):
                parameters = {p.name: operators.unknown(p.span) for p in definition.tree.parameters}
                if not definition.used and self.inference.enter(definition.tree.name, definition.tree.name_span):
                    scope = Scope("def", scores=True, parameters=parameters)
                    self.inference.infer_root(definition.tree.value, scope)
                    self.inference.active.pop()
            elif definition.value is None:
                was_used = definition.used  # it may be inside an aggregate over members, where it means another value
                self.inference.value_of(definition, definition.tree.span)
                definition.used = was_used
        self._recursion()

    def _recursion(self) -> None:
        """Report recursion that no statement uses."""
        definitions = self.inference.definitions
        reported = [each.span for each in self.found if each.code == codes.RECURSION.id]
        for ring in rings({name: definition.tree for name, definition in definitions.items()}):
            trees = [definitions[name].tree for name in ring]
            if not any(
                span.source == t.span.source and t.span.start <= span.start < t.span.end
                for span in reported
                for t in trees
            ):
                self.found.append(recursion(trees[0].name_span, ring))

    # --- statements --------------------------------------------------------------------------------------

    def statement(self, tree: syntax.Statement) -> None:
        """Check one statement."""
        if belongs(self, tree):
            self._statement(tree)

    def _statement(self, tree: syntax.Statement) -> None:
        match tree:
            case syntax.PolicyName(name=name):
                if self.once("policy", tree.span):
                    self.name = name
            case syntax.SchedulerName(name=name):
                if self.once("scheduler", tree.span):
                    self.scheduler = name
            case syntax.ForPods(condition=condition):
                if self.once("for pods", tree.span):
                    self.governs = self.settled(self.truth(condition, self.pod_scope("for pods where")), "for pods")
            case syntax.ForWorkloads(condition=condition):
                if self.once("for workloads", tree.span):
                    scope = self.pod_scope("for workloads where")
                    self.governs = self.settled(self.truth(condition, scope), "for workloads")
            case syntax.Choose() | syntax.Divide() | syntax.Keep():
                self._of_workloads(tree)
            case syntax.Priority(value=value):
                if self.once("priority", tree.span):
                    self.priority = int(self.whole(value, "priority", low=-1e9))
            case syntax.Canary():
                if self.once("canary", tree.span):
                    self.canary = self._canary(tree)
            case syntax.Ties(word=word, word_span=span):
                if self.once("ties", tree.span):
                    self.ties = self._choice(word, span, self.inference.environment.ties)
            case syntax.Devices():
                if self.once("devices", tree.span):
                    self._devices(tree)
            case syntax.Domains():
                if self.once("domains", tree.span):
                    self._domains(tree)
            case syntax.Queue():
                self.queues.append(self._queue(tree))
            case syntax.Reclaim():
                self.reclaims.append(self._reclaim(tree))
            case syntax.Backfill():
                if self.once("backfill", tree.span):
                    self.backfill = self._backfill(tree)
            case syntax.Rebalance():
                self._rebalance(tree)
            case syntax.UseKubernetes(without=without) | syntax.UseKarmada(without=without):
                for plugin in without:
                    self._known(plugin, score=False)
                    self.without.add(plugin.name)
            case syntax.UseScores():
                if self.once("use kubernetes scores", tree.span):
                    self.scores = self._weights(tree)
            case syntax.Let(low=low, high=high) if low is not None and high is not None:
                self._range(tree.value, low, high)
            case syntax.Language() | syntax.UseFile() | syntax.Let() | syntax.Def() | syntax.Metric():
                pass
            case syntax.Require() | syntax.Filter() | syntax.Score() | syntax.Hold():
                self.clauses.append(self._kept_test(tree))
            case _:
                clause = self.clause(tree, self.named(tree, clause_text(tree)))
                if clause is not None:
                    self.clauses.append(clause)

    def _kept_test(self, tree: syntax.Require | syntax.Filter | syntax.Score | syntax.Hold) -> checked.Test:
        """Return a test from the check before if nothing changed for it, and keep it for the next one."""
        inference, earlier = self.inference, self.inference.earlier
        work = earlier.work_of(tree) if earlier is not None else None
        inference.begin()
        if earlier is not None and work is not None:
            inference.repeat(work, tree.span)
            test, text = earlier.test(tree)
            name = self.named(tree, text)
            if name != test.name:
                test = msgspec.structs.replace(test, name=name)
        else:
            text = clause_text(tree) if tree.name is None else ""
            test = self.test(tree, self.named(tree, text))
        self.tests[type(tree), tree.span.text] = KnownTest(test, text, inference.end())
        return test

    def _of_workloads(self, tree: syntax.Choose | syntax.Divide | syntax.Keep) -> None:
        """Check what only policies of workloads say; of several, the first whose condition holds applies."""
        condition = None if isinstance(tree, syntax.Keep) else tree.condition
        word = next(iter(tree.span.text.split()))
        once = condition is None and self.once(word, tree.span)
        if not once and (condition is None or self.report_repeated(word, tree.span)):
            return
        match tree:
            case syntax.Choose():
                self.chooses.append(choose(self, tree))
            case syntax.Divide():
                self.divides.append(divide(self, tree))
            case syntax.Keep(running=running):
                self.keeps_running = running

    def _range(self, tree: expressions.Expr, low: expressions.Expr, high: expressions.Expr) -> None:
        """Check that a `let` with a range is a number inside the range."""
        found, numbers = self.found, []
        for part in (tree, low, high):
            value = self.inference.infer_root(part, Scope("let"))
            if operators.has_unknown(value):
                return
            number = constant_of(value)
            if value.info.type.kind is not Kind.NUMBER or number is None:
                message = "a `let` with a range must be a constant number, and so must both ends of the range"
                advice = "write numbers, such as `let spare = 20% from 5% to 50%`"
                found.append(codes.NOT_CONSTANT.at(part.span, message, help=advice))
                return
            numbers.append(value)
        for end in numbers[1:]:
            if common_unit(numbers[0], end, "tune {left} between values of {right}", found, end.span) is None:
                return
        start, least, most = (constant_of(value) for value in numbers)
        if not math.isfinite(most - least) or least >= most:
            message = f"the range from {low.span.text} to {high.span.text} is empty"
            found.append(codes.OUT_OF_RANGE.at(low.span.to(high.span), message, help="write the smaller number first"))
        elif not least <= start <= most:
            message = f"{tree.span.text} is outside the range from {low.span.text} to {high.span.text}"
            found.append(codes.OUT_OF_RANGE.at(tree.span, message, help="write a wider range"))

    def _choice(self, word: str, span: Span, known: Sequence[str], *, otherwise: str = "") -> str | None:
        if word in known:
            return word
        meant = closest(word, known)
        advice = (
            f"did you mean `{meant}`?" if meant else f"it can be {', '.join(f'`{each}`' for each in known)}{otherwise}"
        )
        self.found.append(codes.NO_CHOICE.at(span, f"unknown choice `by {word}`", help=advice))
        return None

    def _devices(self, tree: syntax.Devices) -> None:
        word = tree.word
        if word is not None and word.name not in self.inference.definitions:
            otherwise = f', or values of a device, such as `device_value("{word.name}")`'
            self.devices = self._choice(word.name, word.span, self.inference.environment.devices, otherwise=otherwise)
            return
        keys = []
        for key in tree.keys:
            value = self.inference.infer_root(key.value, Scope("devices by", devices=True))
            if value.info.depends & ~Depends.DEVICE:
                message = "`devices by` can use only the devices of a node, but this depends on something else"
                advice = 'use functions of a device, such as `device_value("memory")`, and constants'
                part = unsettled(value, Depends.DEVICE)
                self.found.append(codes.UNSTABLE.at(part.span, message, help=advice))
            elif not operators.has_unknown(value) and value.info.type.kind in (Kind.LIST, Kind.PODS):
                self.found.append(operators.wrong_type(value, "a number or text to select devices by"))
            elif not operators.has_unknown(value) and not value.info.depends:
                message = "this is the same for every device"
                advice = 'use functions of a device, such as `device_value("memory")`'
                self.found.append(codes.NO_CHOICE.at(value.span, message, help=advice))
            keys.append((value, key.descending))
        self.device_keys = tuple(keys)

    def _domains(self, tree: syntax.Domains) -> None:
        word = tree.word
        if word is not None and word.name not in self.inference.definitions:
            self.domains = self._choice(word.name, word.span, self.inference.environment.domains)
            return
        keys = []
        for key in tree.keys:
            value = self.inference.infer_root(key.value, Scope("domains by"))
            if not operators.has_unknown(value) and value.info.type.kind not in (Kind.NUMBER, Kind.TRUTH):
                self.found.append(operators.wrong_type(value, "a number to select domains by"))
            elif not operators.has_unknown(value) and value.info.shape is not Shape.NODE:
                message = "this is the same for every domain"
                advice = "use values of nodes, such as `node.used_fraction.cpu`"
                self.found.append(codes.NO_CHOICE.at(value.span, message, help=advice))
            keys.append((value, key.descending))
        self.domain_keys = tuple(keys)

    def _canary(self, tree: syntax.Canary) -> checked.Canary:
        share, condition = 1.0, None
        if tree.share is not None:
            share = tree.share.value
            if not 0 < share <= 1 or tree.share.suffix not in ("", "%"):
                message = f"a canary's share must be above 0% and at most 100%, this is {tree.share.text}"
                whole = share > 1 and share <= 100 and not tree.share.suffix
                advice = f"write `{share:g}%`" if whole else "write a share such as `10%`"
                self.found.append(codes.OUT_OF_RANGE.at(tree.share.span, message, help=advice))
                share = 1.0
        if tree.condition is not None:
            condition = self.settled(self.truth(tree.condition, self.pod_scope("for pods where")), "canary")
        return checked.Canary(tree, share, condition)

    # --- quotas with borrowing --------------------------------------------------------------------------------

    def _queue(self, tree: syntax.Queue) -> checked.QueueDeclaration:
        pods = self.truth(tree.pods, self.pod_scope("queue")) if tree.pods is not None else None
        if pods is not None and pods.info.depends & ~Depends.TEMPLATE:
            message = "a queue selects pods by their template, but this depends on something else"
            advice = 'use labels, the namespace or requests: `pod.namespace == "research"`'
            self.found.append(codes.KEY.at(unsettled(pods, Depends.TEMPLATE).span, message, help=advice))
        minimum, maximum = self._amounts(tree.minimum, "min"), self._amounts(tree.maximum, "max")
        lend = self._amounts(tree.lend, "lend")
        for resource, amount, span in self._spans(tree.minimum, minimum):
            if amount > maximum.get(resource, math.inf):
                message = f"`min {resource}` is larger than `max {resource}`"
                self.found.append(codes.QUEUE_AMOUNT.at(span, message, help="write a larger `max` or a smaller `min`"))
        for resource, amount, span in self._spans(tree.lend, lend):
            if resource not in minimum:
                message, advice = f"there is no `min {resource}` that could be lent", f"write `min {resource} …`, too"
                self.found.append(codes.QUEUE_AMOUNT.at(span, message, help=advice))
            elif amount > minimum[resource]:
                message = f"`lend {resource}` is larger than `min {resource}`"
                advice = "leave it out: without `lend`, all of `min` is lent while it is not used"
                self.found.append(codes.QUEUE_AMOUNT.at(span, message, help=advice))
        weight = self.number(tree.weight, "weight", low=0)
        if tree.weight is not None and weight == 0:
            message, advice = "`weight` must be above 0", "write a small number, such as `weight 0.1`"
            self.found.append(codes.OUT_OF_RANGE.at(tree.weight.span, message, help=advice))
            weight = 1.0
        remember = None
        if tree.remember is not None:
            remember = self.number(tree.remember, "remember", low=1, unit=SECONDS)
            if tree.parent is not None:
                message = "`remember` belongs to a queue without a parent: it applies to its whole tree"
                advice = "move it to the queue at the top"
                self.found.append(codes.QUEUE_TREE.at(tree.remember.span, message, help=advice))
        key = self.key(tree.key, "queue") if tree.key is not None else None
        return checked.QueueDeclaration(tree, pods, key, minimum, maximum, lend, weight, remember)

    def _amounts(self, trees: Sequence[syntax.Amount] | None, what: str) -> dict[str, float]:
        """Return the amounts of a part by resource, each once, in cores, bytes or numbers."""
        found: dict[str, float] = {}
        for tree in trees or ():
            resource = resource_name(tree.resource)
            if resource in found:
                message = f"`{what}` names `{tree.resource}` twice"
                self.found.append(codes.REPEATED.at(tree.span, message, help="keep one of them"))
            elif resource not in NATIVE_RESOURCES and "/" not in resource and not resource.startswith("hugepages-"):
                meant = closest(tree.resource, RESOURCE_WORDS) if "gpu" not in tree.resource.lower() else None
                advice = f"did you mean `{meant}`?" if meant else "write `cpu`, `memory`, or `nvidia.com/gpu`"
                self.found.append(codes.NO_RESOURCE.at(tree.span, f"unknown resource `{tree.resource}`", help=advice))
            found[resource] = self.number(tree.amount, f"{what} {tree.resource}", low=0, unit=resource_unit(resource))
        return found

    def _spans(
        self, trees: Sequence[syntax.Amount] | None, amounts: Mapping[str, float]
    ) -> list[tuple[str, float, Span]]:
        return [(name, amounts[name], tree.span) for tree in trees or () for name in [resource_name(tree.resource)]]

    def _reclaim(self, tree: syntax.Reclaim) -> checked.Reclaim:
        after = self.number(tree.after, "after", low=0, unit=SECONDS, default=0.0)
        rest = self.number(tree.rest, "rest", low=0, unit=SECONDS, default=0.0)
        condition = self.condition(tree.condition, self.pod_scope("reclaim"))
        evict = None
        if tree.evict is not None:
            scope = Scope("evict where", nodes=False, items=frozenset({"victim"}), item_depends=OF_VICTIMS)
            evict = self.truth(tree.evict, scope)
        if tree.above_max:
            self._check_above_max(tree, evict)
        return checked.Reclaim(tree, tree.fair, after, rest, tree.above_max, condition, evict)

    def _check_above_max(self, tree: syntax.Reclaim, evict: typed.Typed | None) -> None:
        """Report what has no meaning where pods are evicted for no other pod."""
        other = {"after": tree.after, "rest": tree.rest, "if": tree.condition}
        words = ["fair"] * tree.fair + [word for word, value in other.items() if value is not None]
        if words:
            message = f"`{words[0]}` has no meaning beside `above max`, which evicts for no pod"
            advice = f"write two statements: `reclaim above max`, and `reclaim {words[0]}{' …' * (words[0] != 'fair')}`"
            self.found.append(codes.PART.at(tree.span, message, help=advice))
        if evict is not None and (own := _of_the_asking_pod(evict)) is not None:
            message = "`reclaim above max` evicts for no pod, and this asks for a field of one"
            advice = "use fields of the pod that is evicted: `victim.priority`"
            self.found.append(codes.BAD_ARGUMENT.at(own.span, message, help=advice))

    def _backfill(self, tree: syntax.Backfill) -> checked.Backfill:
        scope = self.pod_scope("backfill")
        condition = self.condition(tree.condition, scope)
        if condition is not None:
            condition = self.settled(condition, "if")
        lasts = self.inference.infer_root(tree.lasts, scope)
        if not operators.has_unknown(lasts):
            advice = "write a duration, such as `duration(pod.annotation.runtime)`"
            if lasts.info.type.kind is not Kind.NUMBER:
                self.found.append(operators.wrong_type(lasts, "a duration as `lasts`", advice=advice))
            elif lasts.info.depends & ~RUNNING:
                message = "`lasts` can use the pod and metrics, but this depends on something else"
                advice = "use what the pod says of itself: `duration(pod.annotation.runtime)`"
                self.found.append(codes.UNSTABLE.at(unsettled(lasts, RUNNING).span, message, help=advice))
            elif in_unit(lasts, SECONDS, self.found):
                self.in_range(lasts, "lasts", low=0)
        most = self.number(tree.most, "at most", low=1, unit=SECONDS, default=DEFAULT_WAIT_SECONDS)
        return checked.Backfill(tree, condition, lasts, most)

    def _rebalance(self, tree: syntax.Rebalance) -> None:
        # as with `order by`: after one without a condition none is reached
        once = tree.condition is None and self.once("rebalance", tree.span)
        if not once and (tree.condition is None or self.report_repeated("rebalance", tree.span)):
            return
        margin = self.number(tree.margin, "margin", low=0) if tree.margin is not None else None
        most = int(self.whole(tree.most, "at most", low=0)) if tree.most is not None else None
        rest = self.number(tree.rest, "rest", low=0, unit=SECONDS, default=DEFAULT_REST_SECONDS)
        # pods have one condition, of their own; replicas of a workload one for each cluster that they may move to
        scope = self.pod_scope("rebalance") if self.inference.subject is OF_PODS else Scope("rebalance")
        condition = self.condition(tree.condition, scope)
        if condition is not None and scope.nodes:
            self.require_value(condition, "rebalance")
        self.rebalances.append(checked.Rebalance(tree, margin, most, rest, condition))

    def _weights(self, tree: syntax.UseScores) -> Mapping[str, float]:
        """Return the weights of the default scores that a policy adds."""
        weights, said = dict(self.inference.environment.scores), dict[str, Span]()
        for plugin, weight in [
            *((plugin, None) for plugin in tree.without),
            *((each.plugin, each.weight) for each in tree.weights),
        ]:
            earlier = said.setdefault(plugin.name, plugin.span)
            if earlier is not plugin.span:
                message, label = f"`{plugin.name}` is named twice", Label(earlier, "named here before")
                self.found.append(codes.REPEATED.at(plugin.span, message, help="keep one of them", labels=[label]))
            elif self._known(plugin, score=True):
                if weight is None:
                    del weights[plugin.name]
                else:
                    weights[plugin.name] = self.number(weight, f"weight of {plugin.name}", low=0)
        factor = self.number(tree.weight, "weight", low=0)
        return {name: weight * factor for name, weight in weights.items()}

    def _known(self, plugin: syntax.PluginName, *, score: bool) -> bool:
        """Return whether a default filter, or score, of a name exists; report if it does not."""
        environment = self.inference.environment
        known, others = sorted(environment.plugins), sorted(environment.scores)
        if score:
            known, others = others, known
        if plugin.name in known:
            return True
        is_one, is_other = ("score", "filter") if score else ("filter", "score")
        message = f"there is no default {is_one} `{plugin.name}`"
        if plugin.name in others:
            message = f"`{plugin.name}` is a {is_other} of Kubernetes, not a {is_one}"
            advice = f"write `use kubernetes {'' if score else 'scores '}without {plugin.name}`"
        else:
            part = plugin.name.lower().removesuffix("s")
            meant = closest(plugin.name, known) or next((p for p in known if part in p.lower()), None)
            advice = f"did you mean `{meant}`?" if meant else f"the {is_one}s are {', '.join(known)}"
        self.found.append(codes.NO_PLUGIN.at(plugin.span, message, help=advice))
        return False

    def policy(self, statements: tuple[syntax.Statement, ...]) -> CheckedPolicy:
        """Return the policy without the parts that have errors."""
        of_workloads = None
        if self.inference.subject is OF_WORKLOADS:
            rules = (tuple(self.chooses), tuple(self.divides), self.keeps_running, tuple(self.rebalances))
            of_workloads = checked.OfWorkloads(*rules)
        prefers = any(c.kind in (ClauseKind.SCORE, ClauseKind.SPREAD, ClauseKind.PACK) for c in self.clauses)
        scores = self.scores if self.scores is not None or prefers else self.inference.environment.scores
        return CheckedPolicy(
            name=self.name,
            source=self.source,
            scheduler=self.scheduler,
            governs=self.governs,
            priority=self.priority,
            clauses=tuple(self.clauses),
            without=frozenset(self.without),
            unsafe_without=self.inference.environment.needed_by_kubelet & self.without,
            kubernetes_scores=scores,
            ties=self.ties,
            devices=self.devices,
            device_keys=self.device_keys,
            domains=self.domains,
            domain_keys=self.domain_keys,
            definitions=self.inference.definitions,
            statements=statements,
            canary=self.canary,
            queues=tuple(self.queues),
            reclaims=tuple(self.reclaims),
            backfill=self.backfill,
            rebalances=tuple(self.rebalances) if of_workloads is None else (),
            workloads=of_workloads,
            steps=self.inference.all_steps + self.inference.steps,
            inputs=frozenset(self.inference.inputs),
        )

    # --- clauses ---------------------------------------------------------------------------------------

    def test(self, tree: syntax.Require | syntax.Filter | syntax.Score | syntax.Hold, name: str) -> checked.Test:
        """Return the checked test."""
        match tree:
            case syntax.Require(value=value, condition=condition):
                scope = self.pod_scope("require")
                test, when = self.truth(value, scope), self.condition(condition, scope)
                clause = self._test(ClauseKind.REQUIRE, tree, name, test, when)
                self._answers(clause)
                return clause
            case syntax.Filter(value=value, condition=condition):
                scope = Scope("filter")
                clause = self._test(
                    ClauseKind.FILTER, tree, name, self.truth(value, scope), self.condition(condition, scope)
                )
                self._answers(clause)
                return clause
            case syntax.Score(value=value, condition=condition):
                scope = Scope("score", scores=True)
                result = self._score_value(self.inference.infer_root(value, scope))
                return self._test(
                    ClauseKind.SCORE, tree, name, result, self.condition(condition, scope), weight=tree.weight
                )
            case syntax.Hold(value=value, condition=condition):
                scope = self.pod_scope("hold")
                held, when = self.truth(value, scope), self.condition(condition, scope)
                clause = self._test(ClauseKind.HOLD, tree, name, held, when)
                self._answers(clause)
                return clause
            case _:
                assert_never(tree)

    def clause(
        self,
        tree: syntax.Order | syntax.Spread | syntax.Pack | syntax.Limit | syntax.Gang | syntax.Preempt,
        name: str,
    ) -> checked.Clause | None:
        """Return any other clause; None if it is a repetition of what is allowed only once."""
        match tree:
            case syntax.Order():
                return self._order(tree, name)
            case syntax.Spread() | syntax.Pack():
                return self._grouping(tree, name)
            case syntax.Limit():
                return self._limit(tree, name) if self.inference.subject is OF_PODS else limit(self, tree, name)
            case syntax.Gang():
                return self._gang(tree, name)
            case syntax.Preempt():
                return self._preempt(tree, name)
            case _:
                assert_never(tree)

    def _test(
        self,
        kind: ClauseKind,
        tree: syntax.Require | syntax.Filter | syntax.Score | syntax.Hold,
        name: str,
        value: typed.Typed,
        condition: typed.Typed | None,
        *,
        weight: expressions.Expr | None = None,
    ) -> checked.Test:
        return checked.Test(kind, tree, name, value, condition, self.number(weight, "weight", low=0))

    def _score_value(self, value: typed.Typed) -> typed.Typed:
        info = value.info
        if operators.has_unknown(value):
            return value
        if info.type.kind is Kind.TRUTH:
            message = "a score must be a number, this is true or false"
            advice = f"write `score 1 if {' '.join(value.span.text.split())}`"
            self.found.append(codes.WRONG_TYPE.at(value.span, message, help=advice))
        elif info.type.kind is not Kind.NUMBER:
            self.found.append(operators.wrong_type(value, "a number"))
        elif info.type.unit.bytes or info.type.unit.seconds:
            shown = " ".join(value.span.text.split())
            one = {BYTES: "1Gi", SECONDS: "1h"}.get(info.type.unit)
            advice = (
                f"write `{shown} / {one}`, or `scale({shown}, …)`"
                if one
                else "divide it by an amount with the same unit"
            )
            message = f"a score must be a plain number, this is {info.type}"
            self.found.append(codes.SCORE_UNIT.at(value.span, message, help=advice))
        return value

    def _answers(self, clause: checked.Test) -> None:
        """Report a filter that may have no answer for a node, and what decides for the pod if a metric has none."""
        asked = [(clause.value, clause.condition), (clause.condition, None)]
        for value, when in asked if clause.condition is not None else asked[:1]:
            if value is not None:
                self.require_value(value, clause.kind.value, when=when)

    def _order(self, tree: syntax.Order, name: str) -> checked.Clause | None:
        # the first that holds for a pod orders it: after one without a condition none is reached
        if (
            not self.once("order by", tree.span)
            if tree.condition is None
            else self.report_repeated("order by", tree.span)
        ):
            return None
        condition, scope = self.condition(tree.condition, self.pod_scope("order by")), self.pod_scope("order by")
        if condition is not None:
            condition = self.settled(condition, "if")
        keys: list[tuple[typed.Typed, bool]] = []
        share: int | None = None
        for number, key in enumerate(tree.keys):
            if _is_share(key.value):
                if share is None:
                    share = number
                else:
                    message = "`queue.share` appears twice"
                    self.found.append(codes.REPEATED.at(key.span, message, help="keep the first of them"))
                if key.descending:
                    message, advice = (
                        "`queue.share` cannot be `desc`: the largest borrower would be first",
                        "remove `desc`",
                    )
                    self.found.append(codes.QUEUE_SHARE.at(key.span, message, help=advice))
                keys.append((typed.Constant(Info(NUMBER), key.value.span, 0.0), False))
                continue
            value = self.inference.infer_root(key.value, scope)
            if value.info.depends & ~ORDERING:
                message = "`order by` can use the pod, the time and metrics, but this depends on other pods or nodes"
                advice = 'use a metric, such as `promql("…")` `by namespace as pod.namespace`'
                self.found.append(codes.UNSTABLE.at(unsettled(value, ORDERING).span, message, help=advice))
            if value.info.type.kind in (Kind.LIST, Kind.PODS):
                self.found.append(operators.wrong_type(value, "a number or text to order by"))
            keys.append((value, key.descending))
        if share is not None:
            self._check_fair_order(tree, keys)
        return checked.Ordering(ClauseKind.ORDER, tree, name, tuple(keys), tree.strict, condition, share)

    def _check_fair_order(self, tree: syntax.Order, keys: Sequence[tuple[typed.Typed, bool]]) -> None:
        """Report what cannot stand beside `queue.share`."""
        if tree.strict:
            message = "`strict` cannot stand beside `queue.share`: one queue that waits would stop all others"
            self.found.append(codes.QUEUE_SHARE.at(tree.span, message, help="remove `strict`"))
        for value, _ in keys:
            if value.info.depends & (Depends.CLOCK | Depends.SIGNAL):
                message = "beside `queue.share`, keys cannot change while pods wait"
                advice = "use fields that stay the same, such as `pod.priority` and `pod.queued`"
                span = unsettled(value, ~(Depends.CLOCK | Depends.SIGNAL)).span
                self.found.append(codes.QUEUE_SHARE.at(span, message, help=advice))

    def _grouping(self, tree: syntax.Spread | syntax.Pack, name: str) -> checked.Clause:
        spreads = isinstance(tree, syntax.Spread)
        kind = ClauseKind.SPREAD if spreads else ClauseKind.PACK
        topology = self.topology(tree.topology)
        skew = domains = None
        counting: frozenset[str] = frozenset()
        targets: dict[str, float] = {}
        share = None
        if isinstance(tree, syntax.Spread):
            targets, share = self._targets(tree), self._share(tree)
            skew = int(self.whole(tree.max_skew, "max skew", low=1)) if tree.max_skew else None
            domains = int(self.whole(tree.min_domains, "min domains", low=1)) if tree.min_domains else None
            counting = self._counting(tree.counting) if tree.counting is not None else counting
        return checked.Grouping(
            kind,
            tree,
            name,
            self.key(tree.key, kind.value),
            topology,
            targets,
            share,
            skew,
            domains,
            counting,
            self.condition(tree.condition, self.pod_scope(kind.value)),
            self.number(tree.weight, "weight", low=0),
        )

    def _share(self, tree: syntax.Spread) -> typed.Typed | None:
        """Return the size of nodes after `target by`, reporting what does not go with it."""
        if tree.share is None:
            return None
        for word, other in (("target", tree.targets), ("max skew", tree.max_skew), ("else", tree.reason)):
            if other is not None:
                message = f"`target by` is a preference, and does not go with `{word}`"
                advice = f"write two statements: one with `target by`, one with `{word}`"
                self.found.append(codes.PART.at(tree.span, message, help=advice))
                break
        value = self.inference.infer_root(tree.share, Scope("spread"))
        if operators.has_unknown(value):
            return value
        if value.info.type.kind is not Kind.NUMBER:
            self.found.append(operators.wrong_type(value, "a number after `target by`"))
        elif value.info.shape is not Shape.NODE:
            row = self.inference.subject.row
            message = f"this is the same for every {row}"
            advice = f"use the size of {self.inference.subject.rows}, such as `{row}.allocatable.mem`"
            self.found.append(codes.NO_CHOICE.at(value.span, message, help=advice))
        return value

    def _targets(self, tree: syntax.Spread) -> dict[str, float]:
        """Return the share of each domain that has a target, reporting what does not go with it."""
        if tree.targets and tree.topology is None:
            advice = "write the label of the domains: `over lifecycle target spot 70%`"
            self.found.append(codes.PART.at(tree.span, "`target` needs the domains, after `over`", help=advice))
        if tree.targets and (tree.max_skew is not None or tree.reason is not None):
            word = "max skew" if tree.max_skew is not None else "else"
            advice = "write two statements: one with `target`, one with `max skew`"
            message = f"`target` is a preference, and does not go with `{word}`"
            self.found.append(codes.PART.at(tree.span, message, help=advice))
        return self.shares(tree.targets or ())

    def _counting(self, tree: syntax.Counting) -> frozenset[str]:
        for word in tree.words:
            if word not in checked.COUNTED:
                meant = closest(word, checked.COUNTED)
                listed = ", ".join(f"`{each}`" for each in checked.COUNTED)
                advice = f"did you mean `{meant}`?" if meant else f"it can be {listed}"
                self.found.append(codes.NO_CHOICE.at(tree.span, f"there is no `counting {word} nodes`", help=advice))
        return frozenset(tree.words)

    def _limit(self, tree: syntax.Limit, name: str) -> checked.Clause:
        scope = self.pod_scope("limit")
        distinct = self._distinct(tree.measure)
        measure = self._measure(tree.measure) if distinct is None else None
        bound = self.inference.infer_root(tree.bound, msgspec.structs.replace(scope, part="amount"))
        if not operators.has_unknown(bound):
            if bound.info.type.kind is not Kind.NUMBER:
                self.found.append(operators.wrong_type(bound, "a number"))
            elif measure is None or not operators.has_unknown(measure):
                counted = measure or typed.Constant(Info(NUMBER), tree.measure.span, 0.0)
                if common_unit(counted, bound, "compare {left} with {right}", self.found, bound.span) is not None:
                    self.in_range(bound, "to", low=0)
            self.require_value(bound, "limit")
        of_pods = None
        if tree.of_pods is not None:
            of_pods = self.truth(
                tree.of_pods, Scope("of pods where", nodes=False, bare_item=True, item_depends=COUNTED)
            )
            if mixes_pod_and_node(self.inference, of_pods):
                of_pods = None
        return checked.Quota(
            ClauseKind.LIMIT,
            tree,
            name,
            measure,
            distinct,
            self.key(tree.key, "limit") if tree.key is not None else None,
            bound,
            of_pods,
            tree.topology is not None
            or distinct is not None
            or (of_pods is not None and typed.reads_its_node(of_pods)),
            self.topology(tree.topology) if tree.topology is not None else CLUSTER,
            self.condition(tree.condition, scope),
        )

    def _distinct(self, tree: expressions.Expr) -> tuple[str | None] | None:
        """Return the domains that `count(distinct node)` counts; None if it is another measure."""
        if not isinstance(tree, expressions.Call) or not tree.distinct:
            return None
        (counted,) = tree.arguments
        found = topology_of(self.inference, counted, Scope("limit"))
        if found is None:
            shown = one_line(counted.span.text, 40)
            message = f"`limit` counts different nodes or domains, and `{shown}` is neither"
            advice = "write `count(distinct node)`, `count(distinct zone)` or `count(distinct node.label.rack)`"
            self.found.append(codes.MEASURE.at(counted.span, message, help=advice))
            return (None,)
        return found

    def _measure(self, tree: expressions.Expr) -> typed.Typed | None:
        if isinstance(tree, expressions.Call) and not tree.named:
            if tree.function == "count" and not tree.arguments:
                return None
            if tree.function == "sum" and len(tree.arguments) == 1:
                scope = Scope("limit", nodes=False, bare_item=True, item_depends=COUNTED)
                value = self.inference.infer_root(tree.arguments[0], scope)
                if not operators.has_unknown(value) and value.info.type.kind is not Kind.NUMBER:
                    self.found.append(operators.wrong_type(value, "a number"))
                elif typed.reads_its_node(value):
                    message = "`limit` adds up amounts of pods, not of their nodes"
                    advice = (
                        "write `sum(request.cpu)`, or compare `sum(p.node.price for p in cluster.pods)` in a `filter`"
                    )
                    self.found.append(codes.MEASURE.at(value.span, message, help=advice))
                    return operators.unknown(tree.span)
                return value
        message, measure = "`limit` adds up `sum(…)` or `count()` over pods", "sum(request.cpu)"
        counted = tree.function if isinstance(tree, expressions.Call | expressions.Aggregate) else tree.span.text
        if counted in ("count", "pods"):
            measure = "count()"
        elif isinstance(tree, expressions.Member):
            measure = f"sum({one_line(tree.span.text, 40)})"
        self.found.append(codes.MEASURE.at(tree.span, message, help=f"write `limit {measure} by … to …`"))
        return operators.unknown(tree.span)

    def _gang(self, tree: syntax.Gang, name: str) -> checked.Clause:
        scope = self.pod_scope("gang")
        size = self._number_of_pods(tree.size, "size", scope)
        roles = tuple(self._role(role, scope) for role in tree.roles or ())
        self._check_roles(roles, tree, size)
        within = self.number(tree.within, "within", low=1, unit=SECONDS, default=DEFAULT_GANG_SECONDS)
        levels = self._levels(tree.levels or ())
        condition = self.condition(tree.condition, scope)
        key = self.key(tree.key, "gang")
        return checked.Gang(ClauseKind.GANG, tree, name, key, size, roles, within, levels, tree.evict_whole, condition)

    def _levels(self, trees: Sequence[syntax.Topology]) -> tuple[str | None, ...]:
        """Return the labels of `within one`, None for `any`; report what comes twice, or can never be reached."""
        found: list[str | None] = []
        for number, tree in enumerate(trees):
            key = None if tree.key == ANY_DOMAIN else self.topology(tree) or NODE_LABEL
            if key in found:
                message, advice = f"`{tree.key}` appears twice", "keep the first of them"
                self.found.append(codes.REPEATED.at(tree.span, message, help=advice))
            elif key is None and number + 1 < len(trees):
                message = "the topologies after `any` are never used"
                self.found.append(codes.BAD_ARGUMENT.at(tree.span, message, help="write `any` as the last one"))
            elif key is None and not number:
                message = "`within one any` asks for nothing"
                advice = "leave it out, or name a topology before it: `within one rack or any`"
                self.found.append(codes.BAD_ARGUMENT.at(tree.span, message, help=advice))
            found.append(key)
        return tuple(found)

    def _number_of_pods(self, tree: expressions.Expr, what: str, scope: Scope) -> typed.Typed:
        value = self.inference.infer_root(tree, msgspec.structs.replace(scope, part="amount"))
        if not operators.has_unknown(value):
            if value.info.type.kind is not Kind.NUMBER:
                self.found.append(operators.wrong_type(value, "a number of pods"))
            elif value.info.depends & Depends.SIGNAL:
                message, advice = "the size of a gang cannot follow a metric", "use a constant, or a label of the pod"
                self.found.append(codes.UNSTABLE.at(value.span, message, help=advice))
            elif in_unit(value, PLAIN, self.found):
                self.in_range(value, what, low=1, whole=True)
        return value

    def _role(self, tree: syntax.Role, scope: Scope) -> checked.Role:
        text = show(tree.label).removeprefix("pod label ")
        number = self._number_of_pods(tree.number, f"number of {text}", scope)
        return checked.Role(text, number, self.truth(tree.label, scope))

    def _check_roles(self, roles: Sequence[checked.Role], tree: syntax.Gang, size: typed.Typed) -> None:
        """Report a role that appears twice, and roles that need more pods than the gang has."""
        earlier: dict[str, Span] = {}
        for role, written in zip(roles, tree.roles or (), strict=True):
            before = earlier.setdefault(role.text, written.label.span)
            if before is not written.label.span:
                message, label = f"the role `{role.text}` appears twice", Label(before, "the other one")
                advice = "keep one of them, with the sum of both numbers"
                self.found.append(codes.REPEATED.at(written.label.span, message, help=advice, labels=[label]))
        numbers = [constant_of(role.number) for role in roles]
        needed, most = sum(number for number in numbers if isinstance(number, int | float)), constant_of(size)
        if isinstance(most, int | float) and needed > most >= 1:
            message = f"the roles need {needed:g} pods, but the size is {most:g}"
            advice = f"write `size {needed:g}`, or smaller numbers after `with`"
            self.found.append(codes.OUT_OF_RANGE.at(size.span, message, help=advice))

    def _preempt(self, tree: syntax.Preempt, name: str) -> checked.Clause | None:
        if not self.once("preempt", tree.span):
            return None
        condition = self.condition(tree.condition, self.pod_scope("preempt"))
        evict = None
        if tree.evict is not None:
            scope = Scope("evict where", nodes=False, items=frozenset({"victim"}), item_depends=OF_VICTIMS)
            evict = self.truth(tree.evict, scope)
        return checked.Preemption(ClauseKind.PREEMPT, tree, name, condition, evict)

    # --- what clauses are made of ----------------------------------------------------------------------

    def named(self, tree: syntax.Clause, text: str) -> str:
        """Return the name of a clause: the one that it gives, else its text."""
        given: str | None = getattr(tree, "name", None)
        if given is None:
            return self._numbered(text)
        earlier = self.names.setdefault(given, tree.span)
        if earlier is not tree.span:
            label = Label(earlier, "used here before")
            message = f"two clauses have the name `{given}`"
            self.found.append(codes.SAME_CLAUSE.at(tree.span, message, help="rename one of them", labels=[label]))
        return given

    def _numbered(self, text: str) -> str:
        """Return a name that no earlier clause has: its text, from the second one on with a number."""
        self.texts[text] += 1
        return text if self.texts[text] == 1 else f"{text} #{self.texts[text]}"


def _is_share(tree: expressions.Expr) -> bool:
    """Return whether a key of `order by` is `queue.share`."""
    return (
        isinstance(tree, expressions.Member)
        and tree.name == "share"
        and isinstance(tree.base, expressions.Name)
        and tree.base.name == "queue"
    )


def _of_the_asking_pod(value: typed.Typed) -> typed.Typed | None:
    """Return the innermost part of a test of victims that follows from the pod for which they would be evicted."""
    for part in typed.parts(value):
        if (found := _of_the_asking_pod(part)) is not None:
            return found
    own = value.info.shape is Shape.DECISION and value.info.depends & SETTLED
    return value if own and not typed.free(value) else None
