#!/usr/bin/env python3
"""Writes the ONNX files of tests/formats/onnx_test.cc beside itself. Needs the packages onnx (1.23) and numpy.

  types.onnx      every type of elements, as raw_data and in its typed field: tensors NAME and NAME_raw hold the same
  graphs.onnx     an If and a Loop with graphs in them, a function, a sparse initializer, strings, metadata, named sizes
  function.onnx   a graph whose output is that of a function
  external.onnx   two tensors in external.bin, at offsets
"""
import pathlib

import numpy as np
import onnx
from onnx import TensorProto as T, helper as h

HERE = pathlib.Path(__file__).resolve().parent
SHAPE = [3, 5]  # 15 elements: sub-byte types end inside a byte


def raw_bytes(kind, codes, bits):
    """The codes of elements as raw_data stores them: `bits` each, the first in the lowest bits."""
    number = sum(int(code) << (bits * i) for i, code in enumerate(codes))
    return number.to_bytes((bits * len(codes) + 7) // 8, "little")


def types():
    """int32_data has the bit patterns of small floating-point types; 4- and 2-bit elements share its bytes."""
    codes = {T.FLOAT16: 16, T.BFLOAT16: 16, T.FLOAT8E4M3FN: 8, T.FLOAT8E4M3FNUZ: 8, T.FLOAT8E5M2: 8, T.FLOAT8E5M2FNUZ: 8,
             T.FLOAT8E8M0: 8, T.UINT4: 4, T.INT4: 4, T.FLOAT4E2M1: 4, T.UINT2: 2, T.INT2: 2, T.FLOAT6E2M3: 6,
             T.FLOAT6E3M2: 6, T.UINT8: 8, T.UINT16: 16, T.BOOL: 1}
    tensors = []

    def add(kind, raw, **typed):
        name = T.DataType.Name(kind).lower()
        for suffix, fields in (("", typed), ("_raw", {"raw_data": raw})):
            tensor = T(name=name + suffix, data_type=kind, dims=SHAPE)
            for field, value in fields.items():
                if field == "raw_data":
                    tensor.raw_data = value
                else:
                    getattr(tensor, field).extend(value)
            tensors.append(tensor)

    for kind, bits in codes.items():
        values = [(37 * i + 5) % (1 << bits) for i in range(15)]
        stored = 8 if kind == T.BOOL else bits
        raw = raw_bytes(kind, values, stored)
        add(kind, raw, int32_data=list(raw) if bits in (2, 4) else values)
    for kind, dtype in ((T.INT8, np.int8), (T.INT16, np.int16), (T.INT32, np.int32)):
        limits = np.iinfo(dtype)
        array = np.array([limits.min, limits.max, -1, 0, 1] * 3, dtype)
        add(kind, array.tobytes(), int32_data=array.tolist())
    array = np.array([-2**63, 2**63 - 1, -1, 0, 1] * 3, np.int64)
    add(T.INT64, array.tobytes(), int64_data=array.tolist())
    array = np.array([2**32 - 1, 0, 1, 2, 3] * 3, np.uint32)
    add(T.UINT32, array.tobytes(), uint64_data=array.tolist())
    array = np.array([2**64 - 1, 0, 1, 2, 3] * 3, np.uint64)
    add(T.UINT64, array.tobytes(), uint64_data=array.tolist())
    array = np.linspace(-1, 1, 15).astype(np.float32)
    add(T.FLOAT, array.tobytes(), float_data=array.tolist())
    array = np.linspace(-1, 1, 15)
    add(T.DOUBLE, array.tobytes(), double_data=array.tolist())
    array = np.linspace(-1, 1, 30).astype(np.float32)
    add(T.COMPLEX64, array.tobytes(), float_data=array.tolist())
    array = np.linspace(-1, 1, 30)
    add(T.COMPLEX128, array.tobytes(), double_data=array.tolist())
    graph = h.make_graph([], "types", [], [h.make_tensor_value_info("float", T.FLOAT, SHAPE)], initializer=tensors)
    return h.make_model(graph, opset_imports=[h.make_opsetid("", 26)], ir_version=14)


def graphs():
    i64 = lambda name, *values: h.make_tensor(name, T.INT64, [len(values)], values)
    inner = h.make_graph([h.make_node("Identity", ["deep"], ["inner_out"], name="inner")], "inner", [],
                         [h.make_tensor_value_info("inner_out", T.FLOAT, None)],
                         initializer=[h.make_tensor("deep", T.FLOAT, [2], [1, 2])])
    then = h.make_graph([h.make_node("If", ["flag"], ["then_out"], name="nested", then_branch=inner, else_branch=inner)],
                        "then", [], [h.make_tensor_value_info("then_out", T.FLOAT, None)])
    other = h.make_graph([h.make_node("mine.Double", ["x"], ["else_out"], domain="", name="plain")], "else", [],
                         [h.make_tensor_value_info("else_out", T.FLOAT, None)])
    other.node[0].op_type, other.node[0].domain = "Double", "mine"
    body = h.make_graph([h.make_node("Identity", ["keep"], ["keep_out"]), h.make_node("Add", ["state", "x"], ["state_out"])],
                        "body", [h.make_tensor_value_info("step", T.INT64, []), h.make_tensor_value_info("keep", T.BOOL, []),
                                 h.make_tensor_value_info("state", T.FLOAT, None)],
                        [h.make_tensor_value_info("keep_out", T.BOOL, []), h.make_tensor_value_info("state_out", T.FLOAT, None)])
    nodes = [h.make_node("If", ["flag"], ["chosen"], name="choose", then_branch=then, else_branch=other),
             h.make_node("Loop", ["count", "", "x"], ["looped"], name="loop", body=body),
             h.make_node("Reshape", ["looped", "shape"], ["y"], name="reshape", allowzero=0),
             h.make_node("LeakyRelu", ["y"], ["z"], alpha=0.25)]
    sparse = onnx.SparseTensorProto(values=h.make_tensor("sparse", T.FLOAT, [2], [3, 4]),
                                    indices=h.make_tensor("sparse_at", T.INT64, [2], [1, 5]), dims=[2, 3])
    graph = h.make_graph(nodes, "graphs",
                         [h.make_tensor_value_info("x", T.FLOAT, ["batch", 3, None]),
                          h.make_tensor_value_info("flag", T.BOOL, [])],
                         [h.make_tensor_value_info("z", T.FLOAT, None)],
                         initializer=[i64("count", 3), i64("shape", 0, -1),
                                      h.make_tensor("words", T.STRING, [3], ["one", "", "\u00e9"])],
                         value_info=[h.make_tensor_value_info("y", T.FLOAT, ["batch", "rest"])],
                         sparse_initializer=[sparse])
    model = h.make_model(graph, opset_imports=[h.make_opsetid("", 20), h.make_opsetid("mine", 1)], functions=[double()],
                         ir_version=9, producer_name="make_onnx", producer_version="1")
    model.metadata_props.add(key="author", value="nobody")
    return model


def double():
    return h.make_function("mine", "Double", ["a"], ["b"],
                           [h.make_node("Constant", [], ["two"], value_float=2.0), h.make_node("Mul", ["a", "two"], ["b"])],
                           [h.make_opsetid("", 20)], attributes=["unused"])


def function():
    graph = h.make_graph([h.make_node("Double", ["x"], ["y"], domain="mine", name="call")], "function",
                         [h.make_tensor_value_info("x", T.FLOAT, ["batch", 3])],
                         [h.make_tensor_value_info("y", T.FLOAT, None)])
    return h.make_model(graph, opset_imports=[h.make_opsetid("", 20), h.make_opsetid("mine", 1)], functions=[double()],
                        ir_version=9)


def external():
    tensors = []
    data = bytes(range(64)) + np.arange(6, dtype=np.float32).tobytes() + np.arange(4, dtype=np.int64).tobytes()
    for name, kind, dims, offset, length in (("a", T.FLOAT, [2, 3], 64, 24), ("b", T.INT64, [4], 88, None)):
        tensor = T(name=name, data_type=kind, dims=dims, data_location=T.EXTERNAL)
        for key, value in (("location", "external.bin"), ("offset", offset), ("length", length)):
            if value is not None:
                tensor.external_data.add(key=key, value=str(value))
        tensors.append(tensor)
    graph = h.make_graph([], "external", [], [h.make_tensor_value_info("a", T.FLOAT, [2, 3])], initializer=tensors)
    return h.make_model(graph, opset_imports=[h.make_opsetid("", 21)], ir_version=10), data


if __name__ == "__main__":
    (HERE / "types.onnx").write_bytes(types().SerializeToString())
    (HERE / "function.onnx").write_bytes(function().SerializeToString())
    (HERE / "graphs.onnx").write_bytes(graphs().SerializeToString())
    model, data = external()
    (HERE / "external.onnx").write_bytes(model.SerializeToString())
    (HERE / "external.bin").write_bytes(data)
