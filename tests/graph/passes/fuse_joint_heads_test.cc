#include "graph/ops/joint_attention.h"
#include "graph/ops/linear.h"
#include "graph/ops/rms_norm.h"
#include "graph/ops/rope.h"
#include "graph/pass.h"
#include "support/graph_harness.h"

namespace redline::test {
namespace {

struct Case {
  int64_t batch, text, image;
  int64_t heads, head_dim, rotary;  ///< rotary 0: no rope
  bool has_norm, product;
};

// Queries of the image see keys of text and image; the text's are neither normalized nor rotated.
Graph graph_of(const Case& c, Numbers& n) {
  const Dim batch(Symbol::kBatch), text(Symbol::kTextTokens), image(Symbol::kImageTokens);
  const int64_t width = c.heads * c.head_dim;
  GraphBuilder g("test");
  const Value table = g.input("table", DType::kF32, {batch * image, std::max<int64_t>(c.rotary, 2)});
  auto stepped = [&](const char* name) {
    Value x = g.input(name, DType::kF32, {batch * image, width});
    if (c.has_norm) x = rms_norm(g, x, g.weight(std::string(name) + "_norm", n.weight({c.head_dim})), {1e-3f});
    return c.rotary > 0 ? rope(g, x, table, {c.head_dim}) : x;
  };
  const Value q = stepped("q"), k = stepped("k");
  const KeySegment text_keys = {g.input("text.k", DType::kF32, {batch * text, width}),
                                g.input("text.v", DType::kF32, {batch * text, width}), text};
  const Value v = g.input("v", DType::kF32, {batch * image, width});
  const Value keys = pack_kv(g, {text_keys, {k, v, image}}, batch, c.heads, c.head_dim);
  const float scale = 1 / std::sqrt(static_cast<float>(c.head_dim));
  Value y = joint_attention(g, q, batch, image, keys, {c.heads, c.head_dim, scale});
  if (c.product) y = linear(g, y, g.weight("w", n.weight({32, width}, 0.1f)));
  g.output("y", y);
  auto graph = g.finish();
  EXPECT_TRUE(graph.ok()) << graph.status().to_string();
  return std::move(graph).value();
}

std::map<std::string, HostTensor> inputs_of(const Case& c) {
  Numbers n(3);
  const int64_t width = c.heads * c.head_dim;
  std::map<std::string, HostTensor> in;
  for (const char* name : {"q", "k", "v"}) in[name] = matrix(n, c.batch * c.image, width);
  for (const char* name : {"text.k", "text.v"}) in[name] = matrix(n, c.batch * c.text, width);
  in["table"] = matrix(n, c.batch * c.image, std::max<int64_t>(c.rotary, 2));
  return in;
}

std::vector<float> run(Graph graph, const Case& c, int workers, KvFormat format) {
  CpuCompileOptions options;
  options.pack_kv_format = format;
  SymbolValues bounds = image_sizes(c.batch, c.image, c.text);
  for (int64_t& bound : bounds.value) bound += 5;
  Compiled compiled = Compiled::make(std::move(graph), workers, bounds, options);
  StepContext step;
  step.sizes = image_sizes(c.batch, c.image, c.text);
  for (int again = 0; again < 2; ++again) {
    for (const auto& [name, tensor] : inputs_of(c)) compiled.put(name.c_str(), tensor);
    EXPECT_TRUE(compiled.executor->step(step).ok());
  }
  return compiled.get("y", c.batch * c.image * (c.product ? 32 : c.heads * c.head_dim));
}

}  // namespace

TEST(FuseJointHeads, TheFusedGraphEqualsTheComposedOne) {
  for (const Case& c : {Case{1, 3, 70, 2, 64, 64, true, true}, Case{2, 37, 33, 3, 40, 0, true, false},
                        Case{2, 5, 31, 2, 24, 16, false, false}, Case{1, 0, 1, 4, 128, 128, true, true}}) {
    SCOPED_TRACE(fmt::format("batch {}, {} + {}, {} heads of {}, rotary {}, norm {}, product {}", c.batch, c.text,
                             c.image, c.heads, c.head_dim, c.rotary, c.has_norm, c.product));
    Numbers numbers(5);
    const Graph composed = graph_of(c, numbers);
    Graph fused = composed;
    ASSERT_TRUE(run_pass("fuse_joint_heads", fused).ok());
    ASSERT_TRUE(fused.check().ok());
    for (const OpDef* gone : {&kRope, &kRmsNorm}) EXPECT_EQ(count(fused, *gone), 0);
    Graph again = fused;
    ASSERT_TRUE(run_pass("fuse_joint_heads", again).ok());
    EXPECT_EQ(again.ops.size(), fused.ops.size());

    const SymbolValues sizes = image_sizes(c.batch, c.image, c.text);
    const HostTensor want = Interpreter::make(composed)->run(inputs_of(c), sizes).value().at("y");
    const HostTensor same = Interpreter::make(fused)->run(inputs_of(c), sizes).value().at("y");
    ASSERT_EQ(want.data.size(), same.data.size());
    for (size_t i = 0; i < want.data.size(); ++i) ASSERT_NEAR(want.data[i], same.data[i], 1e-12);

    // Kernels and rows are the same, and so are all bits.
    for (KvFormat format : {KvFormat::kF32, KvFormat::kF16, KvFormat::kBF16}) {
      const std::vector<float> one = run(composed, c, 1, format);
      for (int workers : {1, 2, 5}) {
        const std::vector<float> y = run(fused, c, workers, format);
        EXPECT_TRUE(std::memcmp(one.data(), y.data(), y.size() * sizeof(float)) == 0)
            << workers << " workers, format " << static_cast<int>(format);
      }
    }
  }
}

TEST(FuseJointHeads, WhatOthersReadStays) {
  const Dim batch(Symbol::kBatch), image(Symbol::kImageTokens);
  GraphBuilder g("test");
  Numbers n(5);
  const Value x = g.input("x", DType::kF32, {batch * image, 32});
  const Value shared = rms_norm(g, x, g.weight("norm", n.weight({16})), {1e-3f});
  const Value whole = rms_norm(g, x, g.weight("whole", n.weight({32})), {1e-3f});  // of a row, not of a head
  const Value keys = pack_kv(g, {{shared, whole, image}}, batch, 2, 16);
  g.output("y", joint_attention(g, shared, batch, image, keys, {2, 16, 0.25f}));
  g.output("z", joint_attention(g, whole, batch, image, keys, {2, 16, 0.25f}));
  Graph graph = std::move(g.finish()).value();
  ASSERT_TRUE(run_pass("fuse_joint_heads", graph).ok());
  EXPECT_EQ(count(graph, kRmsNorm), 2);
}

}  // namespace redline::test
