"""Single changes that would make a pod fit: of the pod, a node, or a clause. Each is decided again."""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import msgspec
import numpy as np

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.nodes import BoolArray, FloatArray
from kube_policy_scheduler.cluster.taints import TaintKey
from kube_policy_scheduler.diagnostics import Edit, Span
from kube_policy_scheduler.framework.devices.requests import EXACT_COUNT
from kube_policy_scheduler.lang import typed
from kube_policy_scheduler.lang.checked import Quota, Test
from kube_policy_scheduler.lang.compiling.columns import full
from kube_policy_scheduler.lang.compiling.compiled import CompiledClause
from kube_policy_scheduler.lang.types import Shape
from kube_policy_scheduler.policy.answer import Held, answer
from kube_policy_scheduler.policy.clauses import LimitClause
from kube_policy_scheduler.policy.decision_inputs import DecisionInputs
from kube_policy_scheduler.quantities.quantity import amount
from kube_policy_scheduler.tooling.undoable_cluster import UndoableCluster
from kube_policy_scheduler.tooling.why.devices import ClaimsOnNode, claim_state, unmet_on_nodes
from kube_policy_scheduler.tooling.why.filters import HARD, Rejections, taint_text, untolerated
from kube_policy_scheduler.tooling.why.scores import amount_text, shown
from kube_policy_scheduler.wording import one_line, plural

_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_DIGITS = 3
"""A threshold is suggested with this many digits."""


@dataclass(frozen=True, slots=True)
class PolicyEdit:
    """The inputs under another text of the policy."""

    text: str
    inputs: DecisionInputs
    edit: Edit


def edits(inputs: DecisionInputs, asked: Rejections) -> Iterator[PolicyEdit]:
    """Return relaxations of each clause that rejects a node, thresholds before the whole clause."""
    policy = inputs.rules.policy
    if policy is None:
        return
    rejecting = {id(unit.clause) for unit in asked.units if unit.clause is not None and unit.rejected.any()}
    held = isinstance(answer(inputs), Held)
    for clause, tree in zip(policy.compiled.clauses, policy.compiled.checked.clauses, strict=True):
        holds_back = held and clause in policy.holds
        if id(clause) not in rejecting and not holds_back:
            continue
        without = _replaced(inputs, clause.span, "")
        if without is None:
            continue
        fits = without.evaluate().feasible
        if not len(fits):
            continue
        if isinstance(tree, Test) and not holds_back:
            yield from _thresholds(inputs, clause, tree, fits)
        if isinstance(tree, Quota):
            yield from _bounds(inputs, tree)
        yield PolicyEdit(f"remove `{clause.text}` ({clause.span})", without, Edit(clause.span, ""))


def _thresholds(inputs: DecisionInputs, clause: CompiledClause, tree: Test, fits: object) -> Iterator[PolicyEdit]:
    """Move each constant that a value per node is compared with to the nearest one that lets a node pass."""
    frame = inputs.frame()
    by_span = {part.span: part for part in clause.parts()}
    for each in typed.below(tree.value):
        if not isinstance(each, typed.Compare) or each.operator not in _MIRRORED:
            continue
        value, constant, operator = each.left, each.right, each.operator
        if isinstance(value, typed.Constant):
            value, constant, operator = each.right, each.left, _MIRRORED[each.operator]
        if not isinstance(constant, typed.Constant) or value.info.shape is not Shape.NODE:
            continue
        part = by_span.get(value.span)
        if part is None or _number(constant.span.text) != constant.value:
            continue
        values: FloatArray = full(part.evaluate(frame), frame.size)[fits]
        values = values[~np.isnan(values)]
        if not len(values):
            continue
        upper = operator in ("<", "<=")
        nearest = float(values.min() if upper else values.max())
        bound = _beyond(nearest, upper=upper, strict=operator in ("<", ">"))
        edit = Edit(constant.span, f"{bound:.12g}")
        changed = _replaced(inputs, edit.span, edit.text)
        if changed is not None and bound != constant.value:
            text = f"`{' '.join(each.span.text.split())}` with {shown(bound)} instead of {constant.span.text}"
            yield PolicyEdit(f"{text} ({constant.span})", changed, edit)


def _bounds(inputs: DecisionInputs, tree: Quota) -> Iterator[PolicyEdit]:
    """Raise a limit as far as the pod needs it."""
    bound = tree.bound
    plugin = next((p for p in inputs.profile.filters if isinstance(p, LimitClause) and p.name == tree.name), None)
    if plugin is None or _number(bound.span.text) is None:
        return
    used, more, _ = plugin.usage(inputs.frame())
    needed = _beyond(used + more, upper=True, strict=False)
    edit = Edit(bound.span, f"{needed:.12g}")
    changed = _replaced(inputs, edit.span, edit.text)
    if changed is not None:
        text = f"`{tree.name}` with {shown(needed)} instead of {bound.span.text} ({bound.span})"
        yield PolicyEdit(text, changed, edit)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _beyond(value: float, *, upper: bool, strict: bool) -> float:
    """Return the nearest number of few digits that is not below (or above) the value."""
    step = 10.0 ** (math.floor(math.log10(abs(value))) - _DIGITS + 1) if value else 0.1
    step = min(step, 1.0) if abs(value) >= 1 else step
    # what is a whole number of steps but for rounding is taken for one
    steps = math.ceil(round(value / step, 6)) if upper else math.floor(round(value / step, 6))
    bound = round(steps * step, 9)
    if strict and bound == round(value, 9):
        bound = round(bound + (step if upper else -step), 9)
    return bound


def _replaced(inputs: DecisionInputs, span: Span, text: str) -> DecisionInputs | None:
    whole = span.source.text[: span.start] + text + span.source.text[span.end :]
    rules = inputs.rules.edited(span.source, whole)
    return None if rules is None else msgspec.structs.replace(inputs, rules=rules)


_HOSTNAME = "kubernetes.io/hostname"
_MORE = "-more"
"""Ends the name of a copy of a node, and those of its devices' pools."""
_MOST_TAINTS, _MOST_SHAPES, _MOST_NODES = 6, 6, 3
"""Candidates tried of each kind: the most frequent ones, so that the time stays bounded on any cluster."""


@dataclass(frozen=True, slots=True)
class Change:
    """One change with which the pod fits."""

    kind: str
    """pod, claim, node, policy, or capacity"""
    text: str
    nodes: int
    """How many nodes fit then."""
    node: str
    """Where the pod would go."""
    edit: Edit | None = None
    """Of the policy's text, for a change of the policy."""
    pod: objects.Pod | None = None
    """The changed pod, for a change of the pod."""
    command: str = ""
    """The `kubectl` line that makes it, for a change of a node; "": there is none."""


def fitting(inputs: DecisionInputs) -> tuple[BoolArray, str] | None:
    """Return `bool[nodes]`, where the pod fits, and the node that it gets; None where it gets none."""
    found = answer(inputs)
    if found.host is None:
        return None
    result = np.zeros(inputs.cluster.nodes.size, np.bool_)
    result[found.inputs.evaluate().feasible] = True
    return result, found.host


def changes(inputs: DecisionInputs, asked: Rejections) -> tuple[Change, ...]:
    """Return the changes that help, those of the pod first, then of a node, of the policy, and one more node."""
    found: list[Change] = []
    tried = UndoableCluster(inputs.cluster, now=inputs.now)

    def attempt(kind: str, text: str, changed: DecisionInputs, edit: Edit | None = None, command: str = "") -> bool:
        fits = fitting(changed)
        if fits is None:
            return False
        pod = changed.manifest if kind == "pod" else None
        found.append(Change(kind, text, int(fits[0].sum()), fits[1], edit, pod, command))
        return True

    _requests(inputs, attempt)
    _tolerations(inputs, asked, attempt)
    _constraints(inputs, attempt)
    for alternatives in _claim_changes(asked):
        for claim, text in alternatives:
            with tried.trying():
                tried.set_object(claim)
                if attempt("claim", text, inputs):
                    break
    for node, text, command in _node_changes(asked):
        with tried.trying():
            tried.set_node(node)
            attempt("node", text, inputs, command=command)
    for edit in edits(inputs, asked):
        attempt("policy", edit.text, edit.inputs, edit.edit)
    for node, text in _new_nodes(inputs):
        with tried.trying():
            tried.set_node(node)
            for made in _copied_devices(inputs.cluster, node.metadata.name):
                tried.set_object(made)
            if attempt("capacity", text, inputs):
                break
    return tuple(found)


Attempt = Callable[[str, str, DecisionInputs], bool]


def _spec(inputs: DecisionInputs) -> objects.PodSpec:
    assert inputs.manifest is not None, "changes are tried on the pod in the API server"
    return inputs.manifest.spec


def _copied_devices(cluster: Cluster, name: str) -> Iterator[objects.ResourceSlice]:
    """Yield the devices of the node of which one is a copy, for the copy."""
    like = name.removesuffix(_MORE)
    for one in (info.slice for info in list(cluster.resource_slices) if info.slice.spec.node_name == like):
        pool = msgspec.structs.replace(one.spec.pool, name=f"{one.spec.pool.name}{_MORE}")
        meta = msgspec.structs.replace(
            one.metadata, name=f"{one.metadata.name}{_MORE}", uid=f"{one.metadata.uid}{_MORE}"
        )
        spec = msgspec.structs.replace(one.spec, node_name=name, pool=pool)
        yield msgspec.structs.replace(one, metadata=meta, spec=spec)


# --- the pod ---------------------------------------------------------------------------------------------


def _requests(inputs: DecisionInputs, attempt: Attempt) -> None:
    wanted = inputs.pod.template.requests
    nodes = inputs.cluster.nodes
    for resource, whole in sorted(wanted.items(), key=lambda item: (item[0] not in ("cpu", "memory"), item[0])):
        if resource == "pods" or whole <= 0:
            continue
        without = _lowered(inputs, resource, 0)
        fits = fitting(without)
        if fits is None:
            continue
        free = nodes.allocatable(resource) - nodes.requested(resource)
        bounds = sorted({int(value) for value in free[fits[0]] if 0 < value < whole}, reverse=True)[:2]
        for bound in bounds or _halving(inputs, resource, whole):
            target = _readable(resource, bound)
            changed = _lowered(inputs, resource, target)
            if changed.pod.template.requests.get(resource, 0) != target:
                continue
            before, after = amount_text(resource, whole), amount_text(resource, target)
            if attempt("pod", f"request {after} {resource} or less, instead of {before}", changed):
                break


def _halving(inputs: DecisionInputs, resource: str, whole: int) -> list[int]:
    """Return the largest request that fits, where something else than room on nodes decides, such as a limit."""
    unit = 1 << 20 if resource in ("memory", "ephemeral-storage") else 1
    low, high = 0, -(-whole // unit)
    while high - low > 1:
        middle = (low + high) // 2
        if fitting(_lowered(inputs, resource, middle * unit)) is None:
            high = middle
        else:
            low = middle
    return [low * unit] if low else []


def _readable(resource: str, bound: int) -> int:
    """Return the amount or a little less, such that it can be read and written: whole Mi of bytes."""
    is_bytes = resource in ("memory", "ephemeral-storage")
    for size in (1 << 30, 1 << 20) if is_bytes else ():
        rounded = bound // size * size
        if rounded * 50 >= bound * 49 and rounded:
            return rounded
    return bound


def _lowered(inputs: DecisionInputs, resource: str, target: int) -> DecisionInputs:
    """Return the inputs with the pod's total request of a resource lowered, largest containers first."""
    spec = _spec(inputs)
    overhead = amount(resource, (spec.overhead or {}).get(resource, 0))
    containers = list(spec.containers or ())
    room = max(0, target - overhead)
    surplus = sum(_request(container, resource) for container in containers) - room
    for at in sorted(range(len(containers)), key=lambda at: -_request(containers[at], resource)):
        has = _request(containers[at], resource)
        if surplus > 0:
            cut = min(has, surplus)
            containers[at] = _requesting(containers[at], resource, has - cut)
            surplus -= cut
    first = [_requesting(c, resource, min(_request(c, resource), room)) for c in spec.init_containers or ()]
    level = spec.resources
    if level is not None and resource in (level.requests or {}):
        level = objects.ResourceRequirements(
            requests={**(level.requests or {}), resource: _quantity(resource, room)}, limits=level.limits
        )
    changed = msgspec.structs.replace(spec, containers=containers, init_containers=first or None, resources=level)
    return inputs.with_spec(changed)


def _request(container: objects.Container, resource: str) -> int:
    requests = container.resources.requests if container.resources is not None else None
    return amount(resource, (requests or {}).get(resource, 0))


def _requesting(container: objects.Container, resource: str, wanted: int) -> objects.Container:
    if _request(container, resource) == wanted:
        return container
    before = container.resources or objects.ResourceRequirements()
    requests = {**(before.requests or {}), resource: _quantity(resource, wanted)}
    return msgspec.structs.replace(
        container, resources=objects.ResourceRequirements(requests=requests, limits=before.limits)
    )


def _quantity(resource: str, wanted: int) -> str:
    return f"{wanted}m" if resource == "cpu" else str(wanted)


def _tolerations(inputs: DecisionInputs, asked: Rejections, attempt: Attempt) -> None:
    nodes = inputs.cluster.nodes
    sets: Counter[tuple[TaintKey, ...]] = Counter()
    for row in range(nodes.size):
        if nodes.infos[row].taints:
            taints = tuple(untolerated(asked.frame, row))
            if taints:
                sets[taints] += 1
    single = Counter({taints: count for taints, count in sets.items() if len(taints) == 1})
    for (taint,), _ in sorted(single.items(), key=lambda item: (-item[1], item[0]))[:_MOST_TAINTS]:
        spec = _spec(inputs)
        operator = "Equal" if taint.value else "Exists"
        more = objects.Toleration(key=taint.key, operator=operator, value=taint.value, effect=taint.effect)
        changed = msgspec.structs.replace(spec, tolerations=[*(spec.tolerations or ()), more])
        attempt("pod", f"tolerate the taint {taint_text(taint)}", inputs.with_spec(changed))


def _constraints(inputs: DecisionInputs, attempt: Attempt) -> None:
    """Try without each entry of the node selector, and without each required term."""
    spec = _spec(inputs)
    for key, value in sorted((spec.node_selector or {}).items()):
        rest = {name: item for name, item in (spec.node_selector or {}).items() if name != key}
        changed = msgspec.structs.replace(spec, node_selector=rest or None)
        attempt("pod", f"remove {key}={value} from the node selector", inputs.with_spec(changed))
    affinity = spec.affinity
    if affinity is not None:
        for field, text in (
            ("node_affinity", "the required node affinity"),
            ("pod_affinity", "the required pod affinity"),
            ("pod_anti_affinity", "the required pod anti-affinity"),
        ):
            part = getattr(affinity, field)
            if part is None or not part.required:
                continue
            kept = msgspec.structs.replace(affinity, **{field: msgspec.structs.replace(part, required=None)})
            attempt("pod", f"drop {text}", inputs.with_spec(msgspec.structs.replace(spec, affinity=kept)))
    constraints = spec.topology_spread_constraints or []
    for at, constraint in enumerate(constraints):
        if constraint.when_unsatisfiable == "DoNotSchedule":
            soft = msgspec.structs.replace(constraint, when_unsatisfiable="ScheduleAnyway")
            changed = msgspec.structs.replace(
                spec, topology_spread_constraints=[*constraints[:at], soft, *constraints[at + 1 :]]
            )
            text = f"let the spread over {constraint.topology_key} be a wish (ScheduleAnyway)"
            attempt("pod", text, inputs.with_spec(changed))


# --- claims ----------------------------------------------------------------------------------------------


_MOST_CLAIM_CHANGES = 12
_MOST_TEXT = 100


_ClaimChange = tuple[objects.ResourceClaim, str]


def _claim_changes(asked: Rejections) -> Iterator[Sequence[_ClaimChange]]:
    """Yield smaller requests, each with alternatives of which the first that helps is enough.

    Fewer devices, without a selector, with a toleration, without a constraint.
    """
    state = claim_state(asked.frame)
    if state is None:
        return
    unmet = list(unmet_on_nodes(asked.frame, state).values())
    own = (claim for claim in state.unallocated if claim is not state.extended)
    yield from islice((change for claim in own for change in _smaller(claim, unmet)), _MOST_CLAIM_CHANGES)


def _smaller(claim: objects.ResourceClaim, unmet: Sequence[ClaimsOnNode]) -> Iterator[Sequence[_ClaimChange]]:
    name, devices = claim.metadata.name, claim.spec.devices
    requests = list(devices.requests or ())

    def changed(**parts: Any) -> objects.ResourceClaim:
        spec = msgspec.structs.replace(claim.spec, devices=msgspec.structs.replace(devices, **parts))
        return msgspec.structs.replace(claim, spec=spec)

    def with_request(place: int, **parts: Any) -> objects.ResourceClaim:
        before = requests[place].exactly
        assert before is not None
        exactly = msgspec.structs.replace(before, **parts)
        made = msgspec.structs.replace(requests[place], exactly=exactly)
        return changed(requests=[*requests[:place], made, *requests[place + 1 :]])

    for place, request in enumerate(requests):
        exactly = request.exactly
        if exactly is None:
            continue
        mine = [
            one for each in unmet for one in each.unmet if one.claim == name and one.request.base_name == request.name
        ]
        most = max((len(one.fitting) for one in mine), default=0)
        if exactly.allocation_mode == EXACT_COUNT:
            counts = {count for count in (most, exactly.count - 1, exactly.count // 2, 1) if 0 < count < exactly.count}
            yield [
                (
                    with_request(place, count=count),
                    f"claim {name}: request {plural(count, 'device')} in {request.name}, instead of {exactly.count}",
                )
                for count in sorted(counts, reverse=True)
            ]
        for at, selector in enumerate(exactly.selectors or ()):
            left = [*(exactly.selectors or ())[:at], *(exactly.selectors or ())[at + 1 :]]
            expression = one_line(selector.cel.expression if selector.cel is not None else "", _MOST_TEXT)
            yield [(with_request(place, selectors=left or None), f"claim {name}: remove the selector `{expression}`")]
        for taint in dict.fromkeys(each for one in mine for each in one.tainted):
            key, value, effect = taint.taint
            more = objects.DeviceToleration(
                key=key, operator="Equal" if value else "Exists", value=value, effect=effect
            )
            tolerations = [*(exactly.tolerations or ()), more]
            yield [(with_request(place, tolerations=tolerations), f"claim {name}: tolerate the device taint {taint}")]
    for at, constraint in enumerate(devices.constraints or ()):
        attribute = constraint.match_attribute or constraint.distinct_attribute
        rest = [*(devices.constraints or ())[:at], *(devices.constraints or ())[at + 1 :]]
        yield [(changed(constraints=rest or None), f"claim {name}: remove the constraint on {attribute}")]


# --- nodes -----------------------------------------------------------------------------------------------


def _node_changes(asked: Rejections) -> Iterator[tuple[objects.Node, str, str]]:
    """Return changes of the closest nodes: uncordoned, ready, without taints, labelled as the pod wants.

    Each comes with its text and its command.
    """
    frame = asked.frame
    selector = frame.template.spec.node_selector or {}
    for row in asked.nearest(_MOST_NODES):
        info = frame.cluster.nodes.infos[row]
        node, name = info.node, info.name
        hard = untolerated(frame, row)
        if node.spec.unschedulable:
            taints = [t for t in node.spec.taints or () if t.key != "node.kubernetes.io/unschedulable"]
            spec = msgspec.structs.replace(node.spec, unschedulable=False, taints=taints)
            yield msgspec.structs.replace(node, spec=spec), f"uncordon {name}", _kubectl("uncordon", name)
        elif hard:
            left = [t for t in node.spec.taints or () if t.effect not in HARD or _key(t) not in hard]
            spec = msgspec.structs.replace(node.spec, taints=left)
            texts = " and ".join(taint_text(taint) for taint in hard)
            command = _kubectl("taint", "node", name, *(f"{taint_text(taint)}-" for taint in hard))
            yield msgspec.structs.replace(node, spec=spec), f"remove the taint {texts} from {name}", command
        wrong = {key: value for key, value in sorted(selector.items()) if info.labels.get(key) != value}
        if wrong:
            labels = {**info.labels, **wrong}
            texts = ", ".join(f"{key}={value}" for key, value in wrong.items())
            meta = msgspec.structs.replace(node.metadata, labels=labels)
            command = _kubectl(
                "label", "node", name, *(f"{key}={value}" for key, value in wrong.items()), "--overwrite"
            )
            yield msgspec.structs.replace(node, metadata=meta), f"label {name} with {texts}", command
        if info.conditions.get("Ready") != "True":
            others = [c for c in node.status.conditions or () if c.type != "Ready"]
            ready = objects.NodeCondition(type="Ready", status="True")
            taints = [t for t in node.spec.taints or () if not t.key.startswith("node.kubernetes.io/not-ready")]
            status = msgspec.structs.replace(node.status, conditions=[*others, ready])
            spec = msgspec.structs.replace(node.spec, taints=taints)
            yield msgspec.structs.replace(node, status=status, spec=spec), f"{name} becomes ready", ""


def _kubectl(*words: str) -> str:
    """Return a line for a shell; strangers may have written the names in a saved cluster."""
    return shlex.join(("kubectl", *words))


def _key(taint: objects.Taint) -> TaintKey:
    return TaintKey(taint.key, taint.value, taint.effect)


def _new_nodes(inputs: DecisionInputs) -> Iterator[tuple[objects.Node, str]]:
    """Return an empty copy of a node of each size and set of taints, the most frequent first."""
    shapes: dict[tuple[object, ...], list[int]] = {}
    for info in inputs.cluster.nodes.infos:
        if not info.node.spec.unschedulable:
            key = (tuple(sorted(info.allocatable.items())), tuple(_key(t) for t in info.taints))
            shapes.setdefault(key, []).append(info.row)
    ranked = sorted(shapes.values(), key=lambda rows: (-len(rows), rows[0]))
    for rows in ranked[:_MOST_SHAPES]:
        names = inputs.cluster.nodes.names
        like = min((names[row], row) for row in rows)[1]
        info = inputs.cluster.nodes.infos[like]
        name = f"{info.name}{_MORE}"
        labels = {**info.labels} | ({_HOSTNAME: name} if _HOSTNAME in info.labels else {})
        meta = msgspec.structs.replace(info.node.metadata, name=name, uid=name, labels=labels)
        yield msgspec.structs.replace(info.node, metadata=meta), f"add one more node like {info.name}, empty"
