"""InterPodAffinity: the facts that are easily got wrong, one small cluster each."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.adapters.compute.compiled_kernels import CompiledKernels, compile_kernels
from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.framework.decide.cycle import Cycle
from kube_policy_scheduler.framework.default_profile import kubernetes_profile
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.kernels.accelerator import Accelerator
from kube_policy_scheduler.framework.plugins.inter_pod_affinity import FAR, NEAR, UNWANTED, InterPodAffinity
from tests.framework.clusters import HOST, OK, ZONE, Body, add, make_cluster, pod_body, scores, verdicts, zoned

AFFINITY = InterPodAffinity()


def term(key: str = ZONE, app: str = "web", **more: Any) -> Body:
    return {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}} | more


def near(*terms: Body) -> Body:
    return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}


def apart(*terms: Body) -> Body:
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}


def rather(weight: int, *terms: Body) -> Body:
    weighted = [{"weight": weight, "podAffinityTerm": term} for term in terms]
    return {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": weighted}}


def rather_not(weight: int, *terms: Body) -> Body:
    weighted = [{"weight": weight, "podAffinityTerm": term} for term in terms]
    return {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": weighted}}


def namespace(name: str, **labels: str) -> objects.Namespace:
    return objects.Namespace(metadata=objects.ObjectMeta(name=name, labels=labels))


def three_nodes() -> Cluster:
    """Return nodes a and a2 in zone a, b in zone b, z without a zone; namespaces default (team x) and other (y)."""
    return make_cluster(zoned(a="a", a2="a", b="b", z=""), namespace("default", team="x"), namespace("other", team="y"))


FAR_ALL = {"a": f"!{FAR}", "a2": f"!{FAR}", "b": f"!{FAR}", "z": f"!{FAR}"}
IN_A = {"a": OK, "a2": OK, "b": f"!{FAR}", "z": f"!{FAR}"}
NOT_IN_A = {"a": NEAR, "a2": NEAR, "b": OK, "z": OK}


@pytest.mark.parametrize(
    ("what", "affinity", "placed", "expected"),
    [
        ("near a pod", near(term()), [("a", {})], IN_A),
        ("away from a pod, and a node without the label is away", apart(term()), [("a", {})], NOT_IN_A),
        ("by hostname", apart(term(HOST)), [("a", {})], {"a": NEAR, "a2": OK, "b": OK, "z": OK}),
        ("no pod there and not itself one of them", near(term(app="db")), [("a", {})], FAR_ALL),
        (
            "the first of a group goes anywhere with the label",
            near(term()),
            [],
            {"a": OK, "a2": OK, "b": OK, "z": f"!{FAR}"},
        ),
        (
            "no longer the first once a pod matches anywhere",
            near(term()),
            [("b", {})],
            {"a": f"!{FAR}", "a2": f"!{FAR}", "b": OK, "z": f"!{FAR}"},
        ),
        (
            "a match on a node without the label does not count",
            near(term()),
            [("z", {})],
            {"a": OK, "a2": OK, "b": OK, "z": f"!{FAR}"},
        ),
        (
            "one pod must match every term",
            near(term(), term(labelSelector={"matchLabels": {"tier": "x"}})),
            [("a", {})],
            FAR_ALL,
        ),
        (
            "pods of other namespaces do not match",
            near(term()),
            [("a", {"namespace": "other", "app": "web"})],
            {**IN_A, "b": OK},
        ),
        (
            "named namespaces replace the pod's own",
            apart(term(namespaces=["other"])),
            [("a", {"namespace": "other"})],
            NOT_IN_A,
        ),
        ("and its own pods do not match then", apart(term(namespaces=["other"])), [("a", {})], dict.fromkeys(IN_A, OK)),
        (
            "namespaces by label",
            apart(term(namespaceSelector={"matchLabels": {"team": "y"}})),
            [("a", {"namespace": "other"}), ("b", {})],
            NOT_IN_A,
        ),
        ("all namespaces", apart(term(namespaceSelector={})), [("a", {"namespace": "other"})], NOT_IN_A),
        (
            "a negative namespace selector of an incoming pod covers every namespace, as in kube-scheduler",
            apart(
                term(namespaceSelector={"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["y"]}]})
            ),
            [("a", {"namespace": "other"})],
            NOT_IN_A,
        ),
        ("no selector matches nothing", apart(term(labelSelector=None)), [("a", {})], dict.fromkeys(IN_A, OK)),
        ("the empty selector matches all", apart(term(labelSelector={})), [("a", {"app": "db"})], NOT_IN_A),
        (
            "affinity is checked before anti-affinity",
            near(term()) | apart(term(app="db")),
            [("a", {}), ("a", {"app": "db"}), ("b", {"app": "db"})],
            {"a": NEAR, "a2": NEAR, "b": f"!{FAR}", "z": f"!{FAR}"},
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_the_pod_requires(
    what: str, affinity: Body, placed: list[tuple[str, Body]], expected: dict[str, str]
) -> None:
    cluster = three_nodes()
    for number, (node, pod) in enumerate(placed):
        add(cluster, pod_body(f"p{number}", **pod), node)
    assert verdicts(AFFINITY, cluster, pod_body(affinity=affinity)) == expected, what


def test_pods_that_terminate_count_still() -> None:
    cluster = three_nodes()
    going = pod_body("going")
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    add(cluster, going, "a")
    assert verdicts(AFFINITY, cluster, pod_body(affinity=apart(term()))) == NOT_IN_A


@pytest.mark.parametrize(
    ("what", "existing", "incoming", "expected"),
    [
        ("what a placed pod stays away from", {"affinity": apart(term())}, {}, "unwanted"),
        ("a pod that it does not mean", {"affinity": apart(term(app="db"))}, {}, "skip"),
        ("its namespace is meant", {"namespace": "other", "affinity": apart(term())}, {}, "skip"),
        (
            "namespaces by the labels of the incoming pod's",
            {"namespace": "other", "affinity": apart(term(namespaceSelector={"matchLabels": {"team": "x"}}))},
            {},
            "unwanted",
        ),
        (
            "a negative namespace selector of a placed pod is read as written",
            {
                "namespace": "other",
                "affinity": apart(
                    term(
                        namespaceSelector={"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["x"]}]}
                    )
                ),
            },
            {},
            "skip",
        ),
        ("required affinity is not mutual", {"affinity": near(term(app="db"))}, {}, "skip"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_placed_pods_require(what: str, existing: Body, incoming: Body, expected: str) -> None:
    cluster = three_nodes()
    add(cluster, pod_body("existing", **existing), "a")
    unwanted = {"a": UNWANTED, "a2": UNWANTED, "b": OK, "z": OK}
    found = verdicts(AFFINITY, cluster, pod_body(**incoming))
    assert found == (unwanted if expected == "unwanted" else "skip"), what


def test_what_the_pod_and_placed_pods_keep_away_from_adds_up_over_one_key() -> None:
    cluster = three_nodes()
    add(cluster, pod_body("data", app="db"), "a")
    add(cluster, pod_body("alone", app="other", affinity=apart(term(HOST))), "b")
    found = verdicts(AFFINITY, cluster, pod_body(affinity=apart(term(HOST, app="db"))))
    assert found == {"a": NEAR, "a2": OK, "b": UNWANTED, "z": OK}


def test_terms_that_do_not_parse_reject_the_pod_in_kube_schedulers_words() -> None:
    wrong = term(labelSelector={"matchExpressions": [{"key": "app", "operator": "In", "values": ["{{.x}}"]}]})
    assert verdicts(AFFINITY, three_nodes(), pod_body(affinity=near(wrong))) == (
        '!parsing pod: requiredAffinityTerms: values[0][app]: Invalid value: "{{.x}}": a valid label must be an empty'
        " string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric"
        " character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is"
        " '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
    )


def test_a_placed_pod_with_terms_that_do_not_parse_counts_with_the_others() -> None:
    cluster = three_nodes()
    wrong = term(labelSelector={"matchExpressions": [{"key": "app", "operator": "Above"}]})
    add(cluster, pod_body("existing", affinity=near(wrong) | apart(term())), "a")
    assert verdicts(AFFINITY, cluster, pod_body())["a"] == UNWANTED


@pytest.mark.parametrize(
    ("what", "affinity", "placed", "expected"),
    [
        ("towards", rather(5, term()), [("a", {})], {"a": 100, "a2": 100, "b": 0, "z": 0}),
        ("away", rather_not(5, term()), [("a", {})], {"a": 0, "a2": 0, "b": 100, "z": 100}),
        (
            "equal terms add up",
            rather(5, term(), term()),
            [("a", {}), ("b", {})],
            {"a": 100, "a2": 100, "b": 100, "z": 0},
        ),
        (
            "weights and numbers of pods",
            rather(2, term(HOST)),
            [("a", {}), ("a", {}), ("a", {}), ("b", {})],
            {"a": 100, "a2": 0, "b": 33, "z": 0},
        ),
        (
            "opposite terms leave no difference, yet a score",
            rather(5, term()) | rather_not(5, term()),
            [("a", {})],
            dict.fromkeys(IN_A, 0),
        ),
        ("nothing matches", rather(5, term(app="db")), [("a", {})], "skip"),
        ("matches without the label do not count", rather(5, term()), [("z", {})], "skip"),
        (
            "a placed pod's required affinity weighs 1",
            {},
            [("a", {"affinity": near(term())})],
            {"a": 100, "a2": 100, "b": 0, "z": 0},
        ),
        (
            "a placed pod's preferences count with their weight",
            {},
            [("a", {"affinity": rather(10, term())}), ("b", {"affinity": rather_not(10, term())})],
            {"a": 100, "a2": 100, "b": 0, "z": 50},
        ),
        (
            "a placed pod's required anti-affinity does not score",
            {},
            [("a", {"affinity": apart(term(app="web"))})],
            "skip",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_scores(what: str, affinity: Body, placed: list[tuple[str, Body]], expected: Any) -> None:
    cluster = three_nodes()
    for number, (node, pod) in enumerate(placed):
        add(cluster, pod_body(f"p{number}", **pod), node)
    body = pod_body(affinity=affinity) if affinity else pod_body()
    assert scores(AFFINITY, cluster, body) == expected, what


@given(st.dictionaries(st.integers(0, 23), st.integers(1, 4), max_size=24))
def test_a_node_scores_by_its_place_between_the_lowest_and_the_highest(pods: dict[int, int]) -> None:
    cluster = make_cluster(zoned(**{f"n{number}": "a" for number in range(24)}))
    for node, count in pods.items():
        for number in range(count):
            add(cluster, pod_body(f"p{node}-{number}"), f"n{node}")
    found = scores(AFFINITY, cluster, pod_body(affinity=rather(3, term(HOST))))

    if not pods:
        assert found == "skip"
        return
    raw = {f"n{number}": 3 * pods.get(number, 0) for number in range(24)}
    lowest, span = min(raw.values()), max(raw.values()) - min(raw.values())
    assert found == {name: int(100.0 * ((each - lowest) / span)) if span else 0 for name, each in raw.items()}


def test_the_weight_of_required_affinity_can_be_set() -> None:
    cluster = three_nodes()
    add(cluster, pod_body("p0", affinity=near(term())), "a")
    add(cluster, pod_body("p1", affinity=rather(10, term())), "b")
    assert scores(AFFINITY, cluster, pod_body()) == {"a": 10, "a2": 10, "b": 100, "z": 0}
    heavy = InterPodAffinity(hard_pod_affinity_weight=20)
    assert scores(heavy, cluster, pod_body()) == {"a": 100, "a2": 100, "b": 50, "z": 0}
    deaf = InterPodAffinity(hard_pod_affinity_weight=0)
    assert scores(deaf, cluster, pod_body()) == {"a": 0, "a2": 0, "b": 100, "z": 0}


def test_preferences_of_placed_pods_can_be_left_out() -> None:
    cluster = three_nodes()
    add(cluster, pod_body("p0", affinity=rather(10, term())), "a")
    alone = InterPodAffinity(ignore_preferred_terms_of_existing_pods=True)
    assert scores(alone, cluster, pod_body()) == "skip"
    assert scores(AFFINITY, cluster, pod_body())["a"] == 100


@pytest.fixture(scope="module")
def kernels() -> CompiledKernels:
    """Return the compiled loops, where numba is installed."""
    compiled = compile_kernels().kernels
    if compiled is None:
        pytest.skip("numba is not installed")
    return compiled


AFFINITIES = (
    rather(3, term(HOST)),
    rather_not(7, term(HOST)),
    rather(50, term()) | rather_not(50, term(app="db")),
    rather_not(1, term()) | apart(term(HOST, app="db")),
    rather(1, term()) | rather_not(1, term(HOST)),
    apart(term(HOST)),
    {},
)


def set_node(cluster: Cluster, number: int, rng: Random, *, soft: float) -> None:
    labels = {"kubernetes.io/hostname": f"n{number}", ZONE: rng.choice("abc")}
    for key in [key for key in labels if rng.random() < 0.1]:
        del labels[key]
    taints = [{"key": "soft", "effect": "PreferNoSchedule"}] if rng.random() < soft else []
    resources = {"cpu": rng.choice("248"), "memory": "16Gi", "pods": str(rng.choice((2, 3, 30)))}
    body = {"metadata": {"name": f"n{number}", "labels": labels}, "spec": {"taints": taints}}
    cluster.set_node(msgspec.convert(body | {"status": {"allocatable": resources}}, objects.Node))


@given(seed=st.integers(0, 10_000), size=st.sampled_from([1, 4, 30, 700]), soft=st.sampled_from([0.0, 0.1]))
def test_a_compiled_loop_decides_the_same_while_the_cluster_changes(
    seed: int, size: int, soft: float, kernels: CompiledKernels
) -> None:
    """soft: the share of nodes with a taint of PreferNoSchedule, whose scores differ from node to node."""
    used = 0

    def compare_domains(*columns: Any) -> tuple[float, int]:
        nonlocal used
        used += 1
        return kernels.compare_domains(*columns)

    counting = msgspec.structs.replace(kernels, compare_domains=compare_domains)
    rng, cluster, profile = Random(f"{seed} {size}"), Cluster(), kubernetes_profile()
    for number in range(size):
        set_node(cluster, number, rng, soft=soft)
    compiled, plain = Cycle(accelerator=Accelerator(counting)), Cycle()
    placed: list[str] = []
    for number in range(30):
        body = pod_body(f"p{number}", app=rng.choice(("web", "db")), affinity=rng.choice(AFFINITIES))
        pod = cluster.templates.pod(msgspec.convert(body, objects.Pod))
        found = compiled.decide(Frame(pod, cluster, 0.0), profile, preempts=False)
        expected = plain.decide(Frame(pod, cluster, 0.0), profile, preempts=False)
        assert (found.host, found.score, found.ties, found.feasible) == (
            expected.host,
            expected.score,
            expected.ties,
            expected.feasible,
        )
        if found.host is not None:
            cluster.place(pod, found.host)
            placed.append(pod.uid)
        if rng.random() < 0.2 and placed:
            cluster.displace(placed.pop(rng.randrange(len(placed))))
        if rng.random() < 0.1:
            set_node(cluster, rng.randrange(size + 1), rng, soft=soft)
    assert used or soft or size <= 4, "the loop was asked"


@given(
    rows=st.lists(
        st.tuples(st.sampled_from([-np.inf, 0.0, 0.1, 7.0, 1e300, np.inf, np.nan]), st.integers(0, 3)), min_size=1
    ),
    constants=st.lists(st.sampled_from([0.1, 3.0]), max_size=3),
    values=st.lists(st.integers(-(2**40), 2**40), min_size=4, max_size=4),
    weight=st.sampled_from([0.1, 1.0, 2.0]),
)
def test_the_compiled_loop_adds_what_normalize_returns(
    rows: list[tuple[float, int]], constants: list[float], values: list[int], weight: float, kernels: CompiledKernels
) -> None:
    kept, domains = np.array([total for total, _ in rows]), np.array([domain for _, domain in rows])
    raw, feasible, expected = np.array(values)[domains], kept != -np.inf, kept.copy()
    for constant in constants:
        expected += constant
    own = pod_body(affinity=rather(1, term()))
    cluster = three_nodes()
    frame = Frame(cluster.templates.pod(msgspec.convert(own, objects.Pod)), cluster, 0.0)
    expected[feasible] += AFFINITY.normalize(frame, None, raw[feasible]) * weight  # type: ignore[arg-type]
    totals = np.empty(len(kept))

    top, ties = kernels.compare_domains(kept, np.array(constants), domains, np.array(values), weight, totals)

    np.testing.assert_array_equal(totals, expected)
    if np.isnan(expected).any():
        assert ties == 0
    else:
        assert (top, ties) == (expected.max(), np.count_nonzero(expected == expected.max()))
