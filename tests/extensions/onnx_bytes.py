"""Models in the ONNX format, written by hand: protobuf with the field numbers of onnx.proto."""

from __future__ import annotations

FLOAT, INT64, BOOL = 1, 7, 9


def varint(value: int) -> bytes:
    """Return a number as protobuf writes it."""
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def field(number: int, value: bytes | str | int) -> bytes:
    """Return one field of a message."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    content = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(content)) + content


def tensor(kind: int, raw: bytes, dims: tuple[int, ...] = (), name: str = "", more: bytes = b"") -> bytes:
    """Return a TensorProto."""
    return b"".join(field(1, dim) for dim in dims) + field(2, kind) + field(8, name) + field(9, raw) + more


def elsewhere(name: str, location: str, dims: tuple[int, ...]) -> bytes:
    """Return a TensorProto of floats whose data are in another file."""
    entry = field(13, field(1, "location") + field(2, location))
    return b"".join(field(1, dim) for dim in dims) + field(2, FLOAT) + field(8, name) + entry + field(14, 1)


def value(name: str, kind: int, shape: tuple[int | str, ...] = ()) -> bytes:
    """Return a ValueInfoProto."""
    dims = b"".join(field(1, field(2, dim) if isinstance(dim, str) else field(1, dim)) for dim in shape)
    return field(1, name) + field(2, field(1, field(1, kind) + field(2, dims)))


def node(kind: str, inputs: list[str], outputs: list[str], *attributes: bytes) -> bytes:
    """Return a NodeProto."""
    ends = b"".join(field(1, each) for each in inputs) + b"".join(field(2, each) for each in outputs)
    return ends + field(4, kind) + b"".join(field(5, each) for each in attributes)


def integer(name: str, number: int) -> bytes:
    """Return an AttributeProto that is a number."""
    return field(1, name) + field(20, 2) + field(3, number)


def of_tensor(name: str, content: bytes) -> bytes:
    """Return an AttributeProto that is a tensor."""
    return field(1, name) + field(20, 4) + field(5, content)


def of_graph(name: str, content: bytes) -> bytes:
    """Return an AttributeProto that is a graph."""
    return field(1, name) + field(20, 5) + field(6, content)


def graph(nodes: list[bytes], inputs: list[bytes], outputs: list[bytes], tensors: list[bytes] = []) -> bytes:  # noqa: B006
    """Return a GraphProto."""
    parts = [*(field(1, each) for each in nodes), field(2, "g"), *(field(5, each) for each in tensors)]
    return b"".join([*parts, *(field(11, each) for each in inputs), *(field(12, each) for each in outputs)])


def model(content: bytes, more: bytes = b"") -> bytes:
    """Return a ModelProto of operators of version 13."""
    return field(1, 8) + field(7, content) + field(8, field(2, 13)) + more


ROWS = value("x", FLOAT, ("rows", 1))
RESULT = value("y", FLOAT, ("rows", 1))


def counting() -> bytes:
    """Return a model of one input: the largest value of all rows says how often it loops, `y = x + rounds`."""
    body = graph(
        [node("Identity", ["go"], ["on"]), node("Add", ["sum", "one"], ["more"])],
        [value("round", INT64), value("go", BOOL), value("sum", FLOAT)],
        [value("on", BOOL), value("more", FLOAT)],
        [tensor(FLOAT, b"\0\0\x80?", name="one")],
    )
    nodes = [
        node("ReduceMax", ["x"], ["most"], integer("keepdims", 0)),
        node("Cast", ["most"], ["rounds"], integer("to", INT64)),
        node("Loop", ["rounds", "", "zero"], ["total"], of_graph("body", body)),
        node("Add", ["x", "total"], ["y"]),
    ]
    return model(graph(nodes, [ROWS], [RESULT], [tensor(FLOAT, b"\0\0\0\0", name="zero")]))


def growing() -> bytes:
    """Return a model of one input: the largest value says how many bytes it takes, `y = x + 0`."""
    nodes = [
        node("ReduceMax", ["x"], ["most"], integer("keepdims", 1)),
        node("Cast", ["most"], ["size"], integer("to", INT64)),
        node("Reshape", ["size", "flat"], ["shape"]),
        node("ConstantOfShape", ["shape"], ["large"]),
        node("ReduceSum", ["large"], ["nothing"], integer("keepdims", 0)),
        node("Add", ["x", "nothing"], ["y"]),
    ]
    return model(graph(nodes, [ROWS], [RESULT], [tensor(INT64, (1).to_bytes(8, "little"), (1,), "flat")]))


def of_values(content: bytes, *, place: str = "initializer") -> bytes:
    """Return a model `y = x * w`, with a tensor `w` at a place of the file."""
    times = node("Mul", ["x", "w"], ["y"])
    match place:
        case "initializer":
            return model(graph([times], [ROWS], [RESULT], [content]))
        case "constant":
            return model(graph([node("Constant", [], ["w"], of_tensor("value", content)), times], [ROWS], [RESULT]))
        case "branch":
            inner = graph([node("Identity", ["w"], ["z"])], [], [value("z", FLOAT, (1,))], [content])
            choice = node("If", ["yes"], ["w"], of_graph("then_branch", inner), of_graph("else_branch", inner))
            return model(graph([choice, times], [ROWS], [RESULT], [tensor(BOOL, b"\1", name="yes")]))
        case "twice":
            return model(graph([times], [ROWS], [RESULT]), field(7, field(5, content)))
        case _:
            raise AssertionError(place)
