#include "models/onnx/onnx_network.h"

#include <gmock/gmock.h>

#include "models/onnx/onnx_inference.h"
#include "support/onnx_bytes.h"

namespace redline {
namespace {

using namespace onnx_bytes;
using ::testing::HasSubstr;

Result<std::unique_ptr<OnnxNetwork>> network_of(const std::string& file) {
  REDLINE_ASSIGN(OnnxFile parsed, OnnxFile::from_file(MappedFile::from_bytes("x.onnx", file)));
  return OnnxNetwork::make(std::move(parsed));
}
std::string network_failure(const std::string& file) {
  const auto network = network_of(file);
  EXPECT_FALSE(network.ok());
  return network.ok() ? "" : network.status().message();
}
/// The type and shape of output 0 of a graph, as "float [batch, 3]", or the error.
std::string inferred(const std::string& graph, uint64_t version = 17) {
  const auto made = network_of(model(graph + output("y"), version));
  if (!made.ok()) return made.status().message();
  const OnnxNetwork& network = **made;
  const OnnxValue& y = network.values()[static_cast<size_t>(network.steps().outputs.at(0))];
  return std::string(onnx_type_name(y.type)) + " " + (y.shape ? network.sizes().text(*y.shape) : "unknown");
}
/// The paths of the steps of a network, those that are folded in brackets.
std::vector<std::string> paths(const OnnxNetwork& network) {
  std::vector<std::string> out;
  for (const OnnxStep& step : network.steps().steps) out.push_back(step.is_folded ? "[" + step.path + "]" : step.path);
  return out;
}

TEST(OnnxNetwork, PutsNodesInOrder) {
  const auto made = network_of(model(node("Relu", {"b"}, {"y"}, "last") + node("Neg", {"a"}, {"b"}, "second") +
                                     node("Abs", {"x"}, {"a"}) + input("x", {"n"}) + output("y")));
  ASSERT_TRUE(made.ok()) << made.status().message();
  EXPECT_EQ(paths(**made), (std::vector<std::string>{"node 2", "second", "last"}));
}

TEST(OnnxNetwork, NamesWhatIsWrongWithAGraph) {
  const std::string x = input("x", {"n"});
  EXPECT_THAT(network_failure(model(x + output("y") + node("Add", {"x", "b"}, {"a"}, "one") +
                                    node("Neg", {"a"}, {"b"}, "two") + node("Neg", {"x"}, {"y"}))),
              HasSubstr("the graph has a cycle: one <- two <- one"));
  EXPECT_THAT(network_failure(model(x + output("y") + node("Add", {"x", "other"}, {"y"}, "sum"))),
              HasSubstr("x.onnx: node sum (Add): input 1 \"other\" is not the output of a node"));
  EXPECT_THAT(network_failure(model(x + output("y") + node("Neg", {"x"}, {"y"}, "a") + node("Neg", {"x"}, {"y"}, "b"))),
              HasSubstr("node b (Neg): its output \"y\" is also one of node a"));
  EXPECT_THAT(network_failure(model(x + output("x") + node("Neg", {"x"}, {"x"}, "a"))), HasSubstr("cycle"));
  EXPECT_THAT(network_failure(model(x + x + output("x"))), HasSubstr("input \"x\": the name is defined twice"));
  EXPECT_THAT(network_failure(model(zeros("w", {1}) + zeros("w", {1}) + output("w"))),
              HasSubstr("\"w\": the name is defined twice"));
  EXPECT_THAT(network_failure(model(x + zeros("w", {1}) + output("w") + node("Neg", {"x"}, {"w"}, "a"))),
              HasSubstr("node a (Neg): output \"w\": the name is defined twice"));
  EXPECT_THAT(network_failure(model(x + output("z"))), HasSubstr("output \"z\" is not the output of a node"));
  EXPECT_THAT(network_failure(model(x)), HasSubstr("the graph has no outputs"));
  EXPECT_THAT(network_failure(model(x + output("y") + node("Add", {"x"}, {"y"}, "a"))),
              HasSubstr("node a (Add): has 1 inputs, expected 2"));
  EXPECT_THAT(network_failure(model(x + output("y") + node("Add", {"x", ""}, {"y"}, "a"))),
              HasSubstr("node a (Add): input 1 is left out"));
  EXPECT_THAT(network_failure(model(x + output("y") + node("Neg", {"x"}, {"y", "z"}, "a"))),
              HasSubstr("has 2 outputs, expected 1"));
  EXPECT_THAT(network_failure(model(x + output("y") + node("", {"x"}, {"y"}, "a"))), HasSubstr("it has no operator"));
  EXPECT_THAT(
      network_failure(model(x + output("y") +
                            node("Softmax", {"x"}, {"y"}, "a", int_attribute("axis", 0) + int_attribute("axis", 1)))),
      HasSubstr("attribute \"axis\" is given twice"));
  EXPECT_THAT(network_failure(model(bytes(11, bytes(1, "x")) + output("x"))), HasSubstr("input \"x\" has no type"));
}

TEST(OnnxNetwork, ChecksOpsets) {
  const std::string graph = input("x", {"n"}) + node("Neg", {"x"}, {"y"}) + output("y");
  for (const uint64_t version : {7u, 28u}) EXPECT_TRUE(network_of(model(graph, version)).ok()) << version;
  for (const uint64_t version : {6u, 29u})
    EXPECT_THAT(network_failure(model(graph, version)), HasSubstr("opsets 7 to 28 are read"));
  EXPECT_THAT(network_failure(number(1, 9) + bytes(7, graph)), HasSubstr("imports no opset"));
  EXPECT_THAT(network_failure(number(1, 9) + bytes(7, graph) + opset(1, "other")),
              HasSubstr("node 0 (Neg): the model imports no opset of the standard operators"));
  EXPECT_THAT(network_failure(model(graph, 17, opset(18))), HasSubstr("versions 17 and 18"));
  EXPECT_THAT(network_failure(number(1, 15) + bytes(7, graph) + opset(17)), HasSubstr("IR version is 15"));
  EXPECT_THAT(network_failure(model(input("x", {"n"}) + node("Gelu", {"x"}, {"y"}, "a") + output("y"), 19)),
              HasSubstr("node a (Gelu): is an operator of opset 20, the model imports 19"));
  EXPECT_THAT(network_failure(model(input("x", {"n"}) + node("Upsample", {"x"}, {"y"}, "a") + output("y"), 11)),
              HasSubstr("not an operator any more since opset 10"));
}

TEST(OnnxNetwork, AnInitializerOfAnInputIsItsValue) {
  const auto made = network_of(
      model(input("w", {"2"}) + input("x", {"2"}) + zeros("w", {2}) + node("Add", {"w", "x"}, {"y"}) + output("y")));
  ASSERT_TRUE(made.ok()) << made.status().message();
  ASSERT_EQ((*made)->steps().inputs.size(), 1u);
  EXPECT_EQ((*made)->values()[static_cast<size_t>((*made)->steps().inputs[0])].name, "x");
}

TEST(OnnxNetwork, ShapesOfConvolutionsAndPools) {
  const std::string x = input("x", {"batch", "3", "height", "64"}), w = zeros("w", {8, 3, 3, 3});
  const auto conv = [&](const std::string& attributes) {
    return inferred(x + w + node("Conv", {"x", "w"}, {"y"}, "conv", attributes));
  };
  EXPECT_EQ(conv(""), "float [batch, 8, height - 2, 62]");
  EXPECT_EQ(conv(ints_attribute("pads", {1, 1, 1, 1})), "float [batch, 8, height, 64]");
  EXPECT_EQ(conv(ints_attribute("pads", {1, 1, 1, 1}) + ints_attribute("strides", {2, 2})),
            "float [batch, 8, floor((height + 1)/2), 32]");
  EXPECT_EQ(conv(ints_attribute("dilations", {2, 3})), "float [batch, 8, height - 4, 58]");
  EXPECT_EQ(conv(text_attribute("auto_pad", "SAME_UPPER") + ints_attribute("strides", {2, 3})),
            "float [batch, 8, floor((height + 1)/2), 22]");
  EXPECT_THAT(conv(int_attribute("group", 3)),
              HasSubstr("node conv (Conv): its input [batch, 3, height, 64] has 3 channels"));
  EXPECT_THAT(conv(ints_attribute("pads", {1})), HasSubstr("pads has 1 numbers, expected 4"));
  EXPECT_THAT(conv(ints_attribute("strides", {0, 1})), HasSubstr("strides has the number 0"));
  EXPECT_THAT(conv(ints_attribute("dilations", {1, 40})), HasSubstr("the kernel covers 81"));
  EXPECT_THAT(inferred(input("x", {"1", "3"}) + w + node("Conv", {"x", "w"}, {"y"})), HasSubstr("2 axes"));
  const auto pool = [&](const std::string& attributes) {
    return inferred(x + node("MaxPool", {"x"}, {"y"}, "", ints_attribute("kernel_shape", {3, 3}) + attributes));
  };
  EXPECT_EQ(pool(ints_attribute("strides", {2, 2})), "float [batch, 3, floor((height + 1)/2) - 1, 31]");
  EXPECT_EQ(pool(ints_attribute("strides", {2, 2}) + int_attribute("ceil_mode", 1)),
            "float [batch, 3, floor(height/2), 32]");
  const auto up = [&](const std::string& attributes) {
    return inferred(x + zeros("w", {3, 4, 3, 3}) + node("ConvTranspose", {"x", "w"}, {"y"}, "", attributes));
  };
  EXPECT_EQ(up(""), "float [batch, 4, height + 2, 66]");
  EXPECT_EQ(up(ints_attribute("strides", {2, 2}) + ints_attribute("pads", {1, 1, 1, 1}) +
               ints_attribute("output_padding", {1, 1})),
            "float [batch, 4, height*2, 128]");
  EXPECT_EQ(inferred(x + node("GlobalAveragePool", {"x"}, {"y"})), "float [batch, 3, 1, 1]");
}

TEST(OnnxNetwork, ShapesOfProductsAndElementwise) {
  const auto two = [](const std::string& op, const std::vector<std::string>& a, const std::vector<std::string>& b,
                      const std::string& attributes = "") {
    return inferred(input("a", a) + input("b", b) + node(op, {"a", "b"}, {"y"}, "n", attributes));
  };
  EXPECT_EQ(two("MatMul", {"batch", "t", "64"}, {"64", "8"}), "float [batch, t, 8]");
  EXPECT_EQ(two("MatMul", {"64"}, {"batch", "64", "8"}), "float [batch, 8]");
  EXPECT_EQ(two("MatMul", {"64"}, {"64"}), "float []");
  EXPECT_EQ(two("MatMul", {"h", "t", "64"}, {"1", "64", "s"}), "float [h, t, s]");
  EXPECT_THAT(two("MatMul", {"t", "64"}, {"63", "8"}),
              HasSubstr("node n (MatMul): [t, 64] times [63, 8]: 64 columns, 63 rows"));
  EXPECT_EQ(two("Gemm", {"t", "64"}, {"8", "64"}, int_attribute("transB", 1)), "float [t, 8]");
  EXPECT_EQ(two("Add", {"batch", "1", "3"}, {"t", "1"}), "float [batch, t, 3]");
  EXPECT_EQ(two("Equal", {"n"}, {"n"}), "bool [n]");
  EXPECT_THAT(two("Add", {"4", "3"}, {"2", "3"}), HasSubstr("node n (Add): shapes [4, 3] and [2, 3] do not broadcast"));
  EXPECT_THAT(inferred(input("a", {"n"}) + input("b", {"n"}, OnnxType::kInt64) + node("Mul", {"a", "b"}, {"y"}, "n")),
              HasSubstr("node n (Mul): input 0 is of float, input 1 of int64"));
}

TEST(OnnxNetwork, ShapesAreComputed) {
  // These nodes are those that an exporter writes for x.view(x.shape[0], x.shape[1] * x.shape[2], -1).
  const std::string x = input("x", {"batch", "heads", "length", "64"});
  const auto size = [](const std::string& name, int64_t axis) {
    return node("Gather", {"shape", "at" + std::to_string(axis)}, {name}) +
           initializer(
               tensor(OnnxType::kInt64, {}, number(7, static_cast<uint64_t>(axis)), "at" + std::to_string(axis)));
  };
  const auto view = [&](const std::string& last) {
    return x + node("Shape", {"x"}, {"shape"}) + size("b", 0) + size("h", 1) + size("l", 2) +
           node("Mul", {"h", "l"}, {"hl"}) + ints_initializer("axes", {0}) + ints_initializer("last", {-1}) +
           node("Unsqueeze", {"b", "axes"}, {"b1"}) + node("Unsqueeze", {"hl", "axes"}, {"hl1"}) +
           node("Concat", {"b1", "hl1", last}, {"target"}, "", int_attribute("axis", 0)) +
           node("Reshape", {"x", "target"}, {"y"}, "view");
  };
  EXPECT_EQ(inferred(view("last")), "float [batch, heads*length, 64]");
  const auto made = network_of(model(view("last") + output("y")));
  ASSERT_TRUE(made.ok());
  int64_t left = 0;
  for (const OnnxStep& step : (*made)->steps().steps) left += step.is_folded ? 0 : 1;
  EXPECT_EQ(left, 1);  // the Reshape itself

  const auto reshape = [](const std::vector<std::string>& from, const std::vector<int64_t>& to) {
    return inferred(input("x", from) + ints_initializer("to", to) + node("Reshape", {"x", "to"}, {"y"}, "r"));
  };
  EXPECT_EQ(reshape({"n", "4", "6"}, {0, -1}), "float [n, 24]");
  EXPECT_EQ(reshape({"n", "4", "6"}, {-1, 8}), "float [n*3, 8]");
  EXPECT_EQ(reshape({"n", "5"}, {-1, 2}), "float [?1, 2]");
  EXPECT_THAT(reshape({"4", "6"}, {5, -1}), HasSubstr("node r (Reshape): 24 elements of [4, 6] do not divide into 5"));
  EXPECT_THAT(reshape({"4", "6"}, {5, 5}), HasSubstr("has 24 elements, its shape [5, 5] has 25"));
  EXPECT_THAT(reshape({"4", "6"}, {-1, -1}), HasSubstr("has -1 twice"));
  EXPECT_THAT(reshape({"4"}, {4, 0}), HasSubstr("copies axis 1 of a tensor of 1 axes"));

  // Expand with -1 for sizes that stay: Where(Equal(shape, -1), ones, shape).
  EXPECT_EQ(inferred(input("x", {"1", "n"}) + input("z", {"batch", "k"}) + node("Shape", {"z"}, {"s"}) +
                     ints_initializer("none", {-1, -1}) + ints_initializer("ones", {1, 1}) +
                     node("Equal", {"s", "none"}, {"is"}) + node("Where", {"is", "ones", "s"}, {"to"}) +
                     node("Expand", {"x", "to"}, {"y"})),
            "float [batch, ?1]");
}

TEST(OnnxNetwork, ShapesOfSlices) {
  const auto slice = [](const std::vector<int64_t>& start, const std::vector<int64_t>& end,
                        const std::vector<int64_t>& axes, const std::vector<int64_t>& steps) {
    return inferred(input("x", {"10", "n"}) + ints_initializer("s", start) + ints_initializer("e", end) +
                    ints_initializer("a", axes) + ints_initializer("t", steps) +
                    node("Slice", {"x", "s", "e", "a", "t"}, {"y"}, "cut"));
  };
  EXPECT_EQ(slice({2}, {7}, {0}, {2}), "float [3, n]");
  EXPECT_EQ(slice({-1}, {INT64_MIN}, {0}, {-3}), "float [4, n]");
  EXPECT_EQ(slice({0}, {INT64_MAX}, {1}, {1}), "float [10, n]");
  EXPECT_EQ(slice({5}, {2}, {0}, {1}), "float [0, n]");
  EXPECT_EQ(slice({0}, {8}, {1}, {1}), "float [10, min(8, n)]");
  EXPECT_EQ(slice({1}, {INT64_MAX}, {1}, {1}), "float [10, max(n - 1, 0)]");
  EXPECT_EQ(slice({0}, {-2}, {1}, {1}), "float [10, max(n - 2, 0)]");
  EXPECT_EQ(slice({-3}, {INT64_MAX}, {1}, {1}), "float [10, min(3, n)]");
  EXPECT_EQ(slice({1}, {4}, {1}, {1}), "float [10, ?1]");
  EXPECT_THAT(slice({0}, {1}, {2}, {1}), HasSubstr("axis 2 of a tensor of 2 axes"));
  EXPECT_THAT(slice({0}, {1}, {0}, {0}), HasSubstr("a step of 0"));
  EXPECT_THAT(slice({0, 1}, {1}, {0}, {1}), HasSubstr("2 starts, 1 ends"));
  EXPECT_EQ(inferred(input("x", {"n", "7"}) + node("Split", {"x"}, {"y", "z"}, "", int_attribute("axis", 1))),
            "float [n, 4]");
  EXPECT_EQ(inferred(input("a", {"n", "7"}) + input("b", {"n", "2"}) +
                     node("Concat", {"a", "b"}, {"y"}, "", int_attribute("axis", -1))),
            "float [n, 9]");
  EXPECT_EQ(inferred(input("a", {"n", "7"}) + input("b", {"m", "7"}) +
                     node("Concat", {"a", "b"}, {"y"}, "", int_attribute("axis", 0))),
            "float [n + m, 7]");
  EXPECT_THAT(inferred(input("a", {"n", "7"}) + input("b", {"n", "6"}) +
                       node("Concat", {"a", "b"}, {"y"}, "c", int_attribute("axis", 0))),
              HasSubstr("node c (Concat): input 1 has the shape [n, 6]"));
}

TEST(OnnxNetwork, ReductionsTakeAxesAsAttributeOrInput) {
  const std::string x = input("x", {"n", "4", "6"});
  EXPECT_EQ(inferred(x + node("ReduceMean", {"x"}, {"y"}, "", ints_attribute("axes", {-1})), 13), "float [n, 4, 1]");
  EXPECT_EQ(inferred(x + ints_initializer("a", {1, 2}) +
                         node("ReduceMean", {"x", "a"}, {"y"}, "", int_attribute("keepdims", 0)),
                     18),
            "float [n]");
  EXPECT_EQ(inferred(x + node("ReduceSum", {"x"}, {"y"}), 18), "float [1, 1, 1]");
  EXPECT_EQ(inferred(x + node("ReduceSum", {"x"}, {"y"}, "", int_attribute("noop_with_empty_axes", 1)), 18),
            "float [n, 4, 6]");
  EXPECT_THAT(inferred(x + node("ReduceMax", {"x"}, {"y"}, "m", ints_attribute("axes", {0, -3})), 13),
              HasSubstr("axis -3 is given twice"));
}

TEST(OnnxNetwork, OnlyTheChosenBranchIsLeft) {
  const auto branch = [](const std::string& op) { return node(op, {"x"}, {op}, "inside") + output(op); };
  const std::string both =
      graph_attribute("then_branch", branch("Abs")) + graph_attribute("else_branch", branch("Neg"));
  const std::string x = input("x", {"n"});
  // The condition: whether x has one axis.
  const std::string condition = node("Shape", {"x"}, {"s"}) + node("Size", {"s"}, {"rank"}) +
                                initializer(tensor(OnnxType::kInt64, {}, number(7, 1), "one")) +
                                node("Equal", {"rank", "one"}, {"flag"});
  const auto made = network_of(model(x + condition + node("If", {"flag"}, {"y"}, "choose", both) + output("y")));
  ASSERT_TRUE(made.ok()) << made.status().message();
  EXPECT_EQ(paths(**made).back(), "choose/then_branch/inside");
  EXPECT_EQ(inferred(x + condition + node("If", {"flag"}, {"y"}, "choose", both)), "float [n]");
  // Not known before it runs: both are there, and what they have in common is inferred.
  const auto open = network_of(
      model(x + input("flag", {}, OnnxType::kBool) + node("If", {"flag"}, {"y"}, "choose", both) + output("y")));
  ASSERT_TRUE(open.ok()) << open.status().message();
  ASSERT_EQ((*open)->steps().steps.size(), 1u);
  EXPECT_EQ((*open)->steps().steps[0].graphs[1].steps[0].path, "choose/else_branch/inside");
  EXPECT_THAT(network_failure(
                  model(x + input("flag", {}, OnnxType::kBool) + output("y") +
                        node("If", {"flag"}, {"y"}, "choose",
                             graph_attribute("then_branch", node("Abs", {"gone"}, {"a"}, "inside") + output("a"))))),
              HasSubstr("node choose/then_branch/inside (Abs): input 0 \"gone\""));
}

/// A FunctionProto in the fields of a model.
std::string function(const std::string& name, const std::vector<std::string>& inputs,
                     const std::vector<std::string>& outputs, const std::string& nodes) {
  std::string out = bytes(1, name) + bytes(10, "mine");
  for (const std::string& item : inputs) out += bytes(4, item);
  for (const std::string& item : outputs) out += bytes(5, item);
  return bytes(25, out + nodes + bytes(9, bytes(1, "") + number(2, 17)));
}
/// A node of a function: field 7 of FunctionProto, or a call in a graph.
std::string function_node(const std::string& graph_node) {
  return bytes(7, graph_node.substr(graph_node[1] < 0 ? 3 : 2));
}
std::string call(const std::string& name, const std::vector<std::string>& inputs, const std::string& attributes = "",
                 const std::string& out = "y") {
  return node(name, inputs, {out}, "call", bytes(7, "mine") + attributes);
}

TEST(OnnxNetwork, FunctionsAreInlined) {
  const std::string x = input("x", {"n", "4"});
  const std::string reference = bytes(5, bytes(1, "axis") + bytes(21, "where") + number(20, 2));
  const std::string body = function_node(node("Flatten", {"a"}, {"f"}, "inner", reference)) +
                           function_node(node("Clip", {"f", "low"}, {"r"}, "clip"));
  const std::string mine = function("Flat", {"a", "low"}, {"r"}, body);
  const auto made = network_of(model(x + call("Flat", {"x"}, int_attribute("where", 2)) + output("y"), 17, mine));
  ASSERT_TRUE(made.ok()) << made.status().message();
  EXPECT_EQ(paths(**made), (std::vector<std::string>{"call/inner", "call/clip"}));
  const OnnxNetwork& network = **made;
  EXPECT_EQ(network.sizes().text(*network.values()[static_cast<size_t>(network.steps().outputs[0])].shape), "[n*4, 1]");
  EXPECT_EQ(network.steps().steps[1].inputs, (std::vector<int32_t>{network.steps().steps[0].outputs[0], -1}));
  EXPECT_THAT(network_failure(model(x + call("Flat", {"x", "x", "x"}) + output("y"), 17, mine)),
              HasSubstr("has 3 inputs, the function has 2"));
  EXPECT_THAT(network_failure(model(x + call("Flat", {"x"}) + output("y"), 17, mine + mine)),
              HasSubstr("defined twice"));

  const std::string itself = function("Self", {"a"}, {"r"}, function_node(call("Self", {"a"}, "", "r")));
  EXPECT_THAT(network_failure(model(x + call("Self", {"x"}) + output("y"), 17, itself)),
              HasSubstr("the function calls itself"));
  // Every function calls the next one twice: 2^30 nodes in all.
  std::string bomb;
  for (int i = 0; i < 30; ++i) {
    const std::string next = "F" + std::to_string(i + 1);
    bomb += function("F" + std::to_string(i), {"a"}, {"r"},
                     function_node(call(next, {"a"}, "", "b")) + function_node(call(next, {"b"}, "", "r")));
  }
  bomb += function("F30", {"a"}, {"r"}, function_node(node("Neg", {"a"}, {"r"})));
  EXPECT_THAT(network_failure(model(x + call("F0", {"x"}) + output("y"), 17, bomb)),
              HasSubstr("more than 100000 nodes"));
}

TEST(OnnxNetwork, ShapesOfLoops) {
  const std::string body = bytes(11, value_info("i", OnnxType::kInt64, {})) +
                           bytes(11, value_info("c", OnnxType::kBool, {})) +
                           bytes(11, value_info("s", OnnxType::kFloat, {"n"})) + node("Identity", {"c"}, {"c2"}) +
                           node("Neg", {"s"}, {"s2"}) + output("c2") + output("s2");
  const std::string given = input("x", {"n"}) + ints_initializer("count", {3});
  EXPECT_EQ(inferred(given + node("Loop", {"count", "", "x"}, {"y"}, "loop", graph_attribute("body", body))),
            "float [n]");
  EXPECT_EQ(inferred(given + node("Loop", {"count", "", "x"}, {"z", "y"}, "loop",
                                  graph_attribute("body", body + output("s2")))),
            "float [?1, n]");
  EXPECT_THAT(inferred(given + node("Loop", {"count", ""}, {"y"}, "loop", graph_attribute("body", body))),
              HasSubstr("node loop (Loop): its body has 3 inputs, expected 2"));
  EXPECT_THAT(inferred(given + node("Loop", {"count", "", "count"}, {"y"}, "loop", graph_attribute("body", body))),
              HasSubstr("graph loop/body: input \"s\" is of float, it gets int64"));
  EXPECT_EQ(inferred(input("a", {"b", "t", "64"}) + input("w", {"64", "8"}) +
                     node("Einsum", {"a", "w"}, {"y"}, "e", text_attribute("equation", "bij, jk -> bik"))),
            "float [b, t, 8]");
  EXPECT_THAT(inferred(input("a", {"t", "64"}) + input("w", {"63", "8"}) +
                       node("Einsum", {"a", "w"}, {"y"}, "e", text_attribute("equation", "ij,jk->ik"))),
              HasSubstr("node e (Einsum): axis j of its equation ij,jk->ik has the sizes 64 and 63"));
}

TEST(OnnxNetwork, WarnsOfDeclarationsThatDiffer) {
  const auto made = network_of(model(input("x", {"2", "3"}) + node("Neg", {"x"}, {"y"}) +
                                     bytes(12, value_info("y", OnnxType::kFloat, {"2", "4"}))));
  ASSERT_TRUE(made.ok());
  ASSERT_EQ((*made)->warnings().size(), 1u);
  EXPECT_EQ((*made)->warnings()[0], "\"y\" has the shape [2, 3], the file declares [2, 4]");
}

TEST(OnnxNetwork, RefusesSizesThatOverflow) {
  const std::string huge = "1073741824";
  EXPECT_THAT(inferred(input("x", {huge, huge}) + input("z", {huge, "1", "1"}) + node("Add", {"x", "z"}, {"y"}, "n")),
              HasSubstr("node n (Add): the sizes [1073741824, 1073741824, 1073741824] of its output \"y\""));
  EXPECT_THAT(inferred(input("x", {"2"}) + ints_initializer("p", {-2, -2}) + node("Pad", {"x", "p"}, {"y"}, "n")),
              HasSubstr("negative"));
}

TEST(OnnxNetwork, BoundsAxesAndKnownElements) {
  EXPECT_THAT(network_failure(
                  model(bytes(11, value_info("x", OnnxType::kFloat, std::vector<std::string>(17, "1"))) + output("x"))),
              HasSubstr("input \"x\" has 17 axes, at most 16 are read"));
  // Each node makes 1,024 known elements; those that the bound leaves out are unknown, and nothing else changes.
  std::string graph = ints_initializer("s", {1024});
  const int count = static_cast<int>(OnnxNetwork::kMaxElements / OnnxElements::kMax) + 10;
  for (int i = 0; i < count; ++i) graph += node("ConstantOfShape", {"s"}, {"c" + std::to_string(i)});
  const auto made = network_of(model(graph + output("c0")));
  ASSERT_TRUE(made.ok()) << made.status().message();
  int known = 0;
  for (const OnnxValue& value : (*made)->values()) known += value.elements != nullptr ? 1 : 0;
  EXPECT_LT(known, count);
  EXPECT_GE(known, count - 12);
}

TEST(OnnxNetwork, ReadsTheFixtures) {
  const auto made = OnnxNetwork::open(std::string(REDLINE_SOURCE_DIR) + "/tests/formats/onnx/graphs.onnx");
  ASSERT_TRUE(made.ok()) << made.status().message();
  EXPECT_EQ((*made)->opset(), 20);
  const std::vector<OnnxStep>& steps = (*made)->steps().steps;
  ASSERT_EQ(steps.size(), 4u);
  ASSERT_EQ(steps[0].graphs.size(), 2u);
  const std::vector<OnnxStep>& plain = steps[0].graphs[0].steps;  // else_branch
  ASSERT_EQ(plain.size(), 2u);                                    // of the function
  EXPECT_EQ(plain[1].path, "choose/else_branch/plain/node 1");
}

// The elements of a list have the type of the first; those of another type would be read as it.
TEST(OnnxShapes, ConcatRefusesDifferingTypes) {
  EXPECT_THAT(inferred(ints_initializer("i", {1, 2}) + zeros("f", {1}) + ints_initializer("at", {2}) +
                       node("Concat", {"i", "f"}, {"c"}, "join", int_attribute("axis", 0)) +
                       node("Gather", {"c", "at"}, {"y"})),
              HasSubstr("node join (Concat): input 1 is of float, those before it of int64"));
}

// A kernel size comes from the weight, whose sizes a file may declare without having its elements.
TEST(OnnxShapes, HugeKernelsDoNotOverflow) {
  const std::string x = input("x", {"1", "1", "8"}), w = input("w", {"1", "1", "9223372036854775807"});
  const std::string graph = x + w + node("Conv", {"x", "w"}, {"y"}, "conv", ints_attribute("dilations", {2}));
  EXPECT_THAT(inferred(graph), ::testing::Not(HasSubstr("[1, 1, 8]")));
}

TEST(OnnxOps, FindsOperatorsByDomainAndName) {
  for (const char* name : {"Abs", "Xor", "Conv", "Where", "STFT", "LinearAttention"})
    EXPECT_NE(find_onnx_op("", name), nullptr) << name;
  EXPECT_EQ(find_onnx_op("", "Abd"), nullptr);
  EXPECT_EQ(find_onnx_op("ai.onnx.ml", "Abs"), nullptr);
  EXPECT_NE(find_onnx_op("com.microsoft", "MatMulNBits"), nullptr);
}

}  // namespace
}  // namespace redline
