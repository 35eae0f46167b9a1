"""One policy, statement by statement: syntax to checked clauses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kube_policy_scheduler.diagnostics import Diagnostic, Label, Source, Span, closest, in_order
from kube_policy_scheduler.lang import checked, codes_syntax, syntax, typed
from kube_policy_scheduler.lang import codes_meaning as meaning
from kube_policy_scheduler.lang import codes_policy as codes
from kube_policy_scheduler.lang.checked import CheckedPolicy, ClauseKind
from kube_policy_scheduler.lang.checking import operators
from kube_policy_scheduler.lang.checking.clauses import ClauseChecks
from kube_policy_scheduler.lang.checking.infer import MAX_POLICY_ERRORS, Definition, Inference
from kube_policy_scheduler.lang.checking.scope import Scope
from kube_policy_scheduler.lang.environment import Environment


def check(
    statements: Sequence[syntax.Statement], environment: Environment, *, source: Source, name: str
) -> tuple[CheckedPolicy, tuple[Diagnostic, ...]]:
    """Return the policy that the statements make, and everything that is wrong with it.

    Args:
        statements: in order, those of used files included.
        environment: what a policy may name.
        source: the policy's own file.
        name: of the policy, where no statement says otherwise.
    """
    checker = _Checker(inference=Inference(environment), source=source, name=name)
    checker.define(statements)
    for statement in statements:
        if checker.has_enough(statement):
            break
        checker.statement(statement)
    else:
        checker.finish()
    return checker.policy(tuple(statements)), in_order(checker.found)


@dataclass(slots=True, kw_only=True)
class _Checker(ClauseChecks):
    """Checks one policy."""

    source: Source
    name: str
    scheduler: str | None = None
    governs: typed.Typed | None = None
    priority: int = 0
    clauses: list[checked.Clause] = field(default_factory=list)
    without: set[str] = field(default_factory=set)
    scores: float | None = None
    ties: str | None = None
    devices: str | None = None
    canary: checked.Canary | None = None

    # --- names -------------------------------------------------------------------------------------------

    def define(self, statements: Sequence[syntax.Statement]) -> None:
        """Take in all names, so that they can be used before they are defined."""
        definitions, environment = self.inference.definitions, self.inference.environment
        for tree in statements:
            if not isinstance(tree, syntax.Let | syntax.Def | syntax.Metric):
                continue
            earlier = definitions.get(tree.name)
            if earlier is not None:
                label = Label(earlier.tree.name_span, "defined here")
                message = f"`{tree.name}` is defined twice"
                self.found.append(
                    meaning.REDEFINED.at(tree.name_span, message, help="give one of them another name", labels=[label])
                )
                continue
            if tree.name in environment.builtins or tree.name in ("node", "pod", "cluster", *environment.topologies):
                message = f"`{tree.name}` is built in"
                self.found.append(codes.BUILTIN_NAME.at(tree.name_span, message, help="choose another name"))
                continue
            definitions[tree.name] = Definition(tree)

    def has_enough(self, tree: syntax.Statement) -> bool:
        """Return whether nothing more is to be looked at, reporting very many errors."""
        if len(self.found) > MAX_POLICY_ERRORS:
            message = f"more than {MAX_POLICY_ERRORS} errors: the rest of the policy is not looked at"
            self.found.append(codes_syntax.TOO_MANY.at(tree.span, message, help="correct these first"))
            return True
        return self.inference.is_over

    def finish(self) -> None:
        """Look at what no statement used, so that its errors are found too."""
        for definition in list(self.inference.definitions.values()):
            if isinstance(definition.tree, syntax.Def):
                parameters = {p.name: operators.unknown(p.span) for p in definition.tree.parameters}
                if not definition.used and self.inference.enter(definition.tree.name, definition.tree.name_span):
                    scope = Scope("def", scores=True, parameters=parameters)
                    self.inference.top(definition.tree.value, scope)
                    self.inference.active.pop()
            elif definition.value is None:
                self.inference.value_of(definition, definition.tree.span)
                definition.used = False

    # --- statements --------------------------------------------------------------------------------------

    def statement(self, tree: syntax.Statement) -> None:
        """Check one statement."""
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
            case syntax.Priority(value=value):
                if self.once("priority", tree.span):
                    self.priority = int(self.whole(value, "priority", low=-1e9))
            case syntax.Canary():
                if self.once("canary", tree.span):
                    self.canary = self._canary(tree)
            case syntax.Ties(word=word, word_span=span):
                if self.once("ties", tree.span):
                    self.ties = self._choice(word, span, self.inference.environment.ties)
            case syntax.Devices(word=word, word_span=span):
                if self.once("devices", tree.span):
                    self.devices = self._choice(word, span, self.inference.environment.devices)
            case syntax.UseKubernetes(without=without):
                self._leave_out(without)
            case syntax.UseScores(weight=weight):
                if self.once("use kubernetes scores", tree.span):
                    self.scores = self.number(weight, "weight", low=0)
            case syntax.UseFile() | syntax.Let() | syntax.Def() | syntax.Metric():
                pass
            case _:
                clause = self.clause(tree)
                if clause is not None:
                    self.clauses.append(clause)

    def _choice(self, word: str, span: Span, known: Sequence[str]) -> str | None:
        if word in known:
            return word
        meant = closest(word, known)
        advice = f"did you mean `{meant}`?" if meant else f"it can be {', '.join(f'`{each}`' for each in known)}"
        self.found.append(codes.NO_CHOICE.at(span, f"there is no choice `by {word}` here", help=advice))
        return None

    def _canary(self, tree: syntax.Canary) -> checked.Canary:
        share, condition = 1.0, None
        if tree.share is not None:
            share = tree.share.value
            if not 0 < share <= 1 or tree.share.suffix not in ("", "%"):
                message = f"a canary's share is above 0% and at most 100%, this is {tree.share.text}"
                whole = share > 1 and share <= 100 and not tree.share.suffix
                advice = f"write `{share:g}%`" if whole else "write a share such as `10%`"
                self.found.append(codes.NUMBER.at(tree.share.span, message, help=advice))
                share = 1.0
        if tree.condition is not None:
            condition = self.settled(self.truth(tree.condition, self.pod_scope("for pods where")), "canary")
        return checked.Canary(tree, share, condition)

    def _leave_out(self, without: tuple[syntax.PluginName, ...]) -> None:
        plugins = self.inference.environment.plugins
        for plugin in without:
            if plugin.name not in plugins:
                part = plugin.name.lower().removesuffix("s")
                meant = closest(plugin.name, plugins) or next((p for p in sorted(plugins) if part in p.lower()), None)
                advice = f"did you mean `{meant}`?" if meant else f"the filters are {', '.join(sorted(plugins))}"
                message = f"there is no default filter `{plugin.name}`"
                self.found.append(codes.NO_PLUGIN.at(plugin.span, message, help=advice))
            self.without.add(plugin.name)

    def policy(self, statements: tuple[syntax.Statement, ...]) -> CheckedPolicy:
        """Return the policy as far as it was understood."""
        prefers = any(c.kind in (ClauseKind.SCORE, ClauseKind.SPREAD, ClauseKind.PACK) for c in self.clauses)
        scores = self.scores if self.scores is not None or prefers else 1.0
        return CheckedPolicy(
            name=self.name,
            source=self.source,
            scheduler=self.scheduler,
            governs=self.governs,
            priority=self.priority,
            clauses=tuple(self.clauses),
            without=frozenset(self.without),
            kubernetes_scores=scores,
            ties=self.ties,
            devices=self.devices,
            definitions=self.inference.definitions,
            statements=statements,
            canary=self.canary,
            steps=self.inference.all_steps + self.inference.steps,
            inputs=frozenset(self.inference.inputs),
        )
