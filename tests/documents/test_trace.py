"""CSV traces: rows of nodes and pods in any order of columns; errors have their line."""

from __future__ import annotations

import pytest

from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.documents.trace import PodKind, PodList, TraceNode, parse_nodes, parse_pods
from kube_policy_scheduler.documents.yaml_document import DocumentError


def pods(text: str) -> PodList:
    return parse_pods(Source("pods.csv", text))


def kind(line: str, *, header: str = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec") -> PodKind:
    return pods(f"{header}\n{line}\n").pods[0].kind


def problems(text: str, *, nodes: bool = False) -> list[str]:
    with pytest.raises(DocumentError) as caught:
        (parse_nodes if nodes else parse_pods)(Source("list.csv", text))
    return [diagnostic.message for diagnostic in caught.value.diagnostics]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("a,4000,1024,0,0,", PodKind(4000, 1024, 0, 0, ())),
        ("a,4000,1024,,,", PodKind(4000, 1024, 0, 0, ())),
        ("a,4000,1024,0,500,T4", PodKind(4000, 1024, 0, 0, ())),
        ("a,4000,1024,1,460,", PodKind(4000, 1024, 1, 460, ())),
        ("a,4000,1024,1,1000,", PodKind(4000, 1024, 1, 1000, ())),
        ("a,4000,1024,1,,", PodKind(4000, 1024, 1, 1000, ())),
        ("a,4000,1024,8,1000,V100M16|V100M32|V100M32", PodKind(4000, 1024, 8, 1000, ("V100M16", "V100M32"))),
        ("a,4000,1024,1,460, T4 | A10 |", PodKind(4000, 1024, 1, 460, ("A10", "T4"))),
        ("a,4000.0,1024.0,1.0,460.0,", PodKind(4000, 1024, 1, 460, ())),
    ],
)
def test_a_row_is_read(line: str, expected: PodKind) -> None:
    assert kind(line) == expected


def test_columns_may_be_in_any_order_and_others_are_not_read() -> None:
    header = "qos, GPU_SPEC ,memory_mib,extra,num_gpu,cpu_milli,gpu_milli,name"
    assert kind("LS,T4,1,x,1,2,300,a", header=header) == PodKind(2, 1, 1, 300, ("T4",))


def test_lists_without_gpus_need_no_columns_for_them() -> None:
    found = pods("name,cpu_milli,memory_mib\na,1,2\n\nb,3,4\n")
    assert [pod.kind for pod in found.pods] == [PodKind(1, 2, 0, 0, ()), PodKind(3, 4, 0, 0, ())]


def test_times_are_seconds_and_may_be_absent() -> None:
    found = pods("name,cpu_milli,memory_mib,creation_time,deletion_time\na,1,1,5,9.5\nb,1,1,7,\nc,1,1,,\n").pods
    assert [(pod.created, pod.deleted) for pod in found] == [(5, 9.5), (7, None), (None, None)]


def test_several_gpus_with_a_part_of_each_count_as_whole_ones_with_a_note() -> None:
    found = pods("name,cpu_milli,memory_mib,num_gpu,gpu_milli\na,1,1,2,500\n")
    assert found.pods[0].kind.gpu_millis == 2000
    assert found.notes == ("pods that want several GPUs with a gpu_milli other than 1000, taken for whole ones: 1",)
    assert pods("name,cpu_milli,memory_mib,num_gpu,gpu_milli\na,1,1,2,2000\nb,1,1,2,1000\n").notes == ()


def test_a_pod_that_is_deleted_before_it_is_created_ends_at_once_with_a_note() -> None:
    found = pods("name,cpu_milli,memory_mib,creation_time,deletion_time\na,1,1,9,5\n")
    assert (found.pods[0].created, found.pods[0].deleted) == (9, 9)
    assert found.notes == ("pods that are deleted before they are created, taken to end at once: 1",)


def test_empty_values_of_other_programs_are_empty() -> None:
    header = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,creation_time"
    found = pods(f"{header}\nnull,1,2,1,500,nan,None\n").pods[0]
    assert (found.name, found.kind, found.created) == ("null", PodKind(1, 2, 1, 500, ()), None)


@pytest.mark.parametrize("end", ["\r", "\x0b", "\x1c", "\x85", "\u2028"])
def test_what_ends_lines_elsewhere_is_text_here(end: str) -> None:
    with pytest.raises(DocumentError) as caught:
        parse_nodes(Source("list.csv", f"{end}y"))
    assert {diagnostic.span.source.position(diagnostic.span.start)[0] for diagnostic in caught.value.diagnostics} == {1}


def test_nodes_with_and_without_gpus() -> None:
    text = "sn,cpu_milli,memory_mib,gpu,model\nn1,32000,262144,0,\nn2,96000,393216,8,G2\n"
    assert parse_nodes(Source("n", text)) == (
        TraceNode("n1", 32000, 262144, 0, ""),
        TraceNode("n2", 96000, 393216, 8, "G2"),
    )
    assert parse_nodes(Source("n", "name,cpu_milli,memory_mib\r\nn,1,2\r\n")) == (TraceNode("n", 1, 2, 0, ""),)


HEADER = "name,cpu_milli,memory_mib,num_gpu,gpu_milli"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ["no header line; expected the columns name, cpu_milli, memory_mib"]),
        (HEADER, ["the list has no pods"]),
        ("name,cpu,memory_mib\na,1,1", ["line 1: there is no column cpu_milli"]),
        ("name,name,cpu_milli,memory_mib\na,b,1,1", ["line 1: the column name appears 2 times"]),
        (f"{HEADER}\na,1,1,1", ["line 2: expected 5 columns as in the first line, found 4"]),
        (f"{HEADER}\na,x,1,1,1", ["line 2, column cpu_milli: expected a whole number from 0, found 'x'"]),
        (f"{HEADER}\n\na,,1,1,1", ["line 3, column cpu_milli: expected a whole number from 0, found nothing"]),
        (f"{HEADER}\na,-1,1,1,1", ["line 2, column cpu_milli: expected a whole number from 0, found '-1'"]),
        (f"{HEADER}\na,nan,1,1,1", ["line 2, column cpu_milli: expected a whole number from 0, found nothing"]),
        (f"{HEADER}\na,1,1,1,0", ["line 2, column gpu_milli: expected a whole number from 1 to 1000, found '0'"]),
        (f"{HEADER}\na,inf,1,1,1", ["line 2, column cpu_milli: expected a whole number from 0, found 'inf'"]),
        (f"{HEADER}\na,1,1,1,1001", ["line 2, column gpu_milli: expected a whole number from 1 to 1000, found '1001'"]),
        (f"{HEADER}\na,1,1,1e9,1", ["line 2, column num_gpu: expected a whole number from 0 to 256, found '1e9'"]),
        (f'{HEADER}\n"a,1,1,1,1', ["line 2: not CSV: unexpected end of data"]),
        (
            f"{HEADER}\na,x,1,1,1\nb,1,y,1,1",
            [
                "line 2, column cpu_milli: expected a whole number from 0, found 'x'",
                "line 3, column memory_mib: expected a whole number from 0, found 'y'",
            ],
        ),
    ],
)  # fmt: skip
def test_errors_have_their_line(text: str, expected: list[str]) -> None:
    assert problems(text) == expected


def test_nodes_have_names_and_each_its_own() -> None:
    text = "sn,cpu_milli,memory_mib\nn,1,1\nn,1,1\n,1,1\n"
    assert problems(text, nodes=True) == [
        "line 3, column name: a second node of the name 'n'",
        "line 4, column name: a node needs a name",
    ]


def test_swapped_lists_are_reported() -> None:
    assert problems("sn,cpu_milli,memory_mib,gpu,model\nn,1,1,1,T4") == [
        "line 1: expected a list of pods, this is one of nodes"
    ]
    assert problems(f"{HEADER}\na,1,1,1,1", nodes=True) == ["line 1: expected a list of nodes, this is one of pods"]


def test_of_many_problems_the_first_twenty_are_reported() -> None:
    assert len(problems(HEADER + "\na,x,1,1,1" * 500)) == 20
