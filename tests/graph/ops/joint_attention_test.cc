#include "graph/ops/joint_attention.h"

#include "graph/ops/linear.h"
#include "support/op_formula.h"
#include "support/prepared.h"

namespace redline::test {
namespace {

/// One attention of `text` + `image` keys by queries of the image, or of the text where it is causal.
struct JointAttentionCase {
  int64_t batch = 1, text = 0, image = 1, queries = 1;
  int64_t heads = 2, head_dim = 64;
  bool causal = false;
  std::vector<int64_t> lengths;  ///< key_lengths of each item; empty: none
  bool product = false;          ///< a linear reads y, so that y is stored as products read it
};

SymbolValues joint_attention_sizes_of(const JointAttentionCase& c) {
  SymbolValues s;
  s[Symbol::kBatch] = c.batch;
  s[Symbol::kTextTokens] = c.text;
  s[Symbol::kImageTokens] = c.image;
  s[Symbol::kTokens] = c.queries;  // here: queries of an item
  return s;
}

Graph joint_attention_graph_of(const JointAttentionCase& c, Numbers& n) {
  const Dim batch(Symbol::kBatch), text(Symbol::kTextTokens), image(Symbol::kImageTokens), queries(Symbol::kTokens);
  const int64_t width = c.heads * c.head_dim;
  GraphBuilder g("test");
  const Value q = g.input("q", DType::kF32, {batch * queries, width});
  const KeySegment text_keys = {g.input("text.k", DType::kF32, {batch * text, width}),
                                g.input("text.v", DType::kF32, {batch * text, width}), text};
  const KeySegment image_keys = {g.input("image.k", DType::kF32, {batch * image, width}),
                                 g.input("image.v", DType::kF32, {batch * image, width}), image};
  const Value lengths = g.input("lengths", DType::kI32, {batch});
  const Value keys = pack_kv(g, {text_keys, image_keys}, batch, c.heads, c.head_dim);
  const float scale = 1 / std::sqrt(static_cast<float>(c.head_dim));
  Value y = joint_attention(g, q, batch, queries, keys, {c.heads, c.head_dim, scale, c.causal},
                            c.lengths.empty() ? Value{} : lengths);
  if (c.product) y = linear(g, y, g.weight("w", n.weight({32, width}, 1 / std::sqrt(static_cast<float>(width)))));
  g.output("y", y);
  auto graph = g.finish();
  EXPECT_TRUE(graph.ok()) << graph.status().to_string();
  return std::move(graph).value();
}

std::map<std::string, HostTensor> joint_attention_inputs_of(const JointAttentionCase& c) {
  Numbers n(static_cast<uint64_t>(c.queries + 100 * c.image) + 3);
  const int64_t width = c.heads * c.head_dim;
  std::map<std::string, HostTensor> in;
  in["q"] = matrix(n, c.batch * c.queries, width);
  for (const char* name : {"text.k", "text.v"}) in[name] = matrix(n, c.batch * c.text, width);
  for (const char* name : {"image.k", "image.v"}) in[name] = matrix(n, c.batch * c.image, width);
  in["lengths"] = integers(c.lengths.empty() ? std::vector<int64_t>(static_cast<size_t>(c.batch)) : c.lengths);
  return in;
}

std::vector<float> run_joint_attention(const JointAttentionCase& c, const std::map<std::string, HostTensor>& in,
                                       int workers, KvFormat format, bool exact) {
  Numbers n(7);
  CpuCompileOptions options;
  options.pack_kv_format = format;
  options.exact_f32 = exact;
  SymbolValues bounds = joint_attention_sizes_of(c);
  for (int64_t& bound : bounds.value) bound += 5;  // the packed value lies in memory made for more
  Compiled compiled = Compiled::make(joint_attention_graph_of(c, n), workers, bounds, options);
  StepContext step;
  step.sizes = joint_attention_sizes_of(c);
  for (int again = 0; again < 2; ++again) {  // counters must serve a second step; the first leaves its keys behind
    for (const auto& [name, tensor] : in) compiled.put(name.c_str(), tensor);
    EXPECT_TRUE(compiled.executor->step(step).ok());
  }
  return compiled.get("y", c.batch * c.queries * (c.product ? 32 : c.heads * c.head_dim));
}

std::string joint_attention_name_of(const JointAttentionCase& c) {
  return fmt::format("batch {}, keys {} + {}, queries {}, {} heads of {}{}{}, lengths {}", c.batch, c.text, c.image,
                     c.queries, c.heads, c.head_dim, c.causal ? ", causal" : "", c.product ? ", product" : "",
                     fmt::join(c.lengths, " "));
}

/// Root of the sum of squares of the error over that of the reference.
double joint_attention_relative_error(const std::vector<float>& got, const std::vector<double>& want) {
  double error = 0, all = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double difference = static_cast<double>(got[i]) - want[i];
    error += difference * difference;
    all += want[i] * want[i];
    if (std::isnan(got[i])) return INFINITY;
  }
  return all > 0 ? std::sqrt(error / all) : std::sqrt(error);
}

/// Row t of item i and head h: the mean of the values of its keys, text before image, by the softmax of q . k /
/// sqrt(head_dim). Causal rows see keys [0, t]; keys from the item's length on are not seen; no keys give zeros. A
/// product multiplies by w^T.
std::vector<double> joint_attention_formula(const JointAttentionCase& c, const Graph& graph,
                                            const std::map<std::string, HostTensor>& in) {
  const int64_t keys = c.text + c.image, width = c.heads * c.head_dim;
  const HostTensor &queries = in.at("q"), &text_k = in.at("text.k"), &image_k = in.at("image.k"),
                   &text_v = in.at("text.v"), &image_v = in.at("image.v");
  std::vector<double> y(static_cast<size_t>(c.batch * c.queries * width));
  for (int64_t row = 0; row < c.batch * c.queries; ++row) {
    const int64_t item = row / c.queries, t = row % c.queries;
    int64_t seen = c.lengths.empty() ? keys : std::clamp<int64_t>(c.lengths[static_cast<size_t>(item)], 0, keys);
    if (c.causal) seen = std::min(seen, t + 1);
    const auto key = [&](int64_t p, const HostTensor& text, const HostTensor& image) {
      return p < c.text ? text.row(item * c.text + p) : image.row(item * c.image + p - c.text);
    };
    std::vector<const double*> k, v;
    for (int64_t p = 0; p < seen; ++p) k.push_back(key(p, text_k, image_k)), v.push_back(key(p, text_v, image_v));
    for (int64_t begin = 0; begin < width; begin += c.head_dim) {
      std::vector<double> weights;
      double sum = 0, most = -INFINITY;
      for (const double* one : k) {
        double dot = 0;
        for (int64_t d = begin; d < begin + c.head_dim; ++d) dot += queries.row(row)[d] * one[d];
        weights.push_back(dot * static_cast<double>(1 / std::sqrt(static_cast<float>(c.head_dim))));
        most = std::max(most, weights.back());
      }
      for (double& weight : weights) sum += weight = std::exp(weight - most);
      for (size_t p = 0; p < v.size(); ++p)
        for (int64_t d = begin; d < begin + c.head_dim; ++d)
          y[static_cast<size_t>(row * width + d)] += weights[p] / sum * v[p][d];
    }
  }
  if (!c.product) return y;
  std::vector<double> products;
  for (const ValueInfo& value : graph.values) {
    if (value.name != "w") continue;
    const HostTensor w = unpacked(value.weight.view);
    for (int64_t row = 0; row < c.batch * c.queries; ++row)
      for (int64_t n = 0; n < w.rows(); ++n) {
        double sum = 0;
        for (int64_t d = 0; d < width; ++d) sum += y[static_cast<size_t>(row * width + d)] * w.row(n)[d];
        products.push_back(sum);
      }
  }
  return products;
}

/// Compares with the joint_attention_formula in each format of keys and values, on one and on several workers.
void check_joint_attention(const JointAttentionCase& c) {
  Numbers n(7);
  const Graph graph = joint_attention_graph_of(c, n);
  const std::map<std::string, HostTensor> in = joint_attention_inputs_of(c);
  const std::vector<double> want = joint_attention_formula(c, graph, in);
  auto interpreter = Interpreter::make(graph);
  ASSERT_TRUE(interpreter.ok());
  auto expected = interpreter->run(in, joint_attention_sizes_of(c));
  ASSERT_TRUE(expected.ok()) << expected.status().to_string();
  EXPECT_LE(error_of((*expected)["y"].data, want), kReferenceError) << joint_attention_name_of(c) << ", the reference";

  // Roundings of random sign. A score is a sum of head_dim products about as large as head_dim, scaled by its root: off
  // by a few e = 2^-24 of their size, 1; an output by as much of itself; both grow with the root of the terms at most.
  const double exact = 6e-8 * (8 + 2 * std::sqrt(static_cast<double>(c.head_dim + c.text + c.image)));
  // Weights and values in bfloat16 are off by 2^-9 of themselves each, so sums of random signs by 2^-8 of theirs; keys
  // in float16 move scores by 2^-12. A product by a matrix in bfloat16 adds the same once more for x and for the
  // matrix. Queries and keys in bfloat16 move a score by 2^-9 of its size, about 1, each: as much again as weights and
  // values; and weights there are off by half as much again as by rounding (docs/numerics.md).
  const double half = c.product ? 0x1p-7 : 0x1p-8, brain = 1.75 * half;
  // Blocks of the emulated device have up to 128 queries: one case has more.
  const bool is_large = c.queries > 150 && !(c.queries == 257 && c.text == 0);
  for (const bool is_exact : {true, false}) {
    if (is_large) continue;
    if (const auto got = run_emulated(graph, joint_attention_sizes_of(c), joint_attention_sizes_of(c),
                                      joint_attention_inputs_of(c), std::ssize(want), c.queries < 100, is_exact)) {
      EXPECT_LE(joint_attention_relative_error(*got, want), is_exact ? exact : brain)
          << joint_attention_name_of(c) << ", emulated" << (is_exact ? ", exact" : "");
    }
  }

  struct Way {
    KvFormat format;
    bool exact_f32;
    double tolerance;
  };
  for (const Way& way :
       {Way{KvFormat::kF16, true, exact}, Way{KvFormat::kF16, false, half}, Way{KvFormat::kBF16, false, brain}}) {
    const std::vector<float> one = run_joint_attention(c, in, 1, way.format, way.exact_f32);
    ASSERT_EQ(one.size(), want.size());
    EXPECT_LE(joint_attention_relative_error(one, want), way.tolerance)
        << joint_attention_name_of(c)
        << (way.exact_f32                  ? ", exact"
            : way.format == KvFormat::kF16 ? ", float16"
                                           : ", bfloat16");
    for (int workers : {2, 5}) {
      const std::vector<float> more = run_joint_attention(c, in, workers, way.format, way.exact_f32);
      EXPECT_TRUE(one.empty() || std::memcmp(one.data(), more.data(), one.size() * sizeof(float)) == 0)
          << joint_attention_name_of(c) << ": " << workers << " workers give other bits than one";
    }
  }
}

TEST(JointAttentionOp, TextAndImageInOneAttentionEqualTheFormula) {
  for (const int64_t image : {0, 1, 31, 32, 33, 67, 256, 257})
    for (const int64_t text : {0, 5, 32})
      check_joint_attention({.batch = 1, .text = text, .image = image, .queries = image});
}

TEST(JointAttentionOp, ItemsOfABatchSeeTheirOwnKeys) {
  for (const int64_t batch : {2, 3})
    for (const int64_t image : {1, 31, 33, 100})
      check_joint_attention({.batch = batch, .text = 7, .image = image, .queries = image, .heads = 3, .head_dim = 16});
}

TEST(JointAttentionOp, HeadsOfAllSizes) {
  for (const int64_t head_dim : {1, 2, 3, 15, 16, 17, 40, 64, 72, 80, 96, 127, 128, 160, 511, 512})
    for (const bool product : {false, true})
      check_joint_attention(
          {.batch = 2, .text = 9, .image = 41, .queries = 41, .heads = 3, .head_dim = head_dim, .product = product});
}

TEST(JointAttentionOp, QueriesAndKeysOfDifferentStreams) {
  for (const int64_t queries : {0, 1, 8, 9, 32, 70, 600})
    for (const int64_t keys : {1, 77, 300})
      check_joint_attention({.batch = 2, .text = 0, .image = keys, .queries = queries});
}

TEST(JointAttentionOp, CausalRowsSeeWhatComesBeforeThem) {
  for (const int64_t tokens : {1, 8, 31, 32, 33, 77, 257, 601})
    for (const bool product : {false, true})
      check_joint_attention({.batch = 2,
                             .image = tokens,
                             .queries = tokens,
                             .heads = 3,
                             .head_dim = 32,
                             .causal = true,
                             .product = product});
}

TEST(JointAttentionOp, KeysFromALengthOnAreNotSeen) {
  for (const bool causal : {false, true})
    for (const bool product : {false, true}) {
      check_joint_attention(
          {.batch = 3, .image = 77, .queries = 77, .causal = causal, .lengths = {0, 77, 1}, .product = product});
      check_joint_attention(
          {.batch = 3, .image = 300, .queries = 300, .causal = causal, .lengths = {37, 256, 299}, .product = product});
      check_joint_attention(
          {.batch = 2, .image = 40, .queries = 40, .causal = causal, .lengths = {-3, 1000}, .product = product});
    }
  check_joint_attention({.batch = 2, .text = 20, .image = 33, .queries = 50, .lengths = {11, 25}});
  check_joint_attention({.batch = 1, .image = 20, .queries = 50, .lengths = {0}});
}

TEST(JointAttentionOp, NoKeysGiveZeros) {
  check_joint_attention({.batch = 2, .text = 0, .image = 0, .queries = 5});
  check_joint_attention({.batch = 0, .text = 3, .image = 4, .queries = 5});
}

TEST(JointAttentionOp, StoresWhatProductsRead) {
  const Dim batch(Symbol::kBatch), text(Symbol::kTextTokens);
  for (const auto& [heads, head_dim] :
       {std::pair<int64_t, int64_t>{2, 64}, {8, 40}, {4, 72}, {3, 32}, {1, 512}, {12, 128}, {20, 72}}) {
    for (const bool causal : {false, true}) {
      const int64_t width = heads * head_dim;
      std::vector<SymbolValues> steps;
      for (const int64_t tokens : {1, 3, 20, 33, 100}) {
        steps.emplace_back();
        steps.back()[Symbol::kBatch] = 2;
        steps.back()[Symbol::kTextTokens] = tokens;
      }
      expect_prepares(
          [&](GraphBuilder& g, Numbers&) {
            const auto input = [&](const char* name) { return g.input(name, DType::kF32, {batch * text, width}); };
            const Value q = input("q"), k = input("k"), v = input("v"), l = g.input("lengths", DType::kI32, {batch});
            const Value keys = pack_kv(g, {{k, v, text}}, batch, heads, head_dim);
            return joint_attention(g, q, batch, text, keys, {heads, head_dim, 0.1f, causal}, l);
          },
          [&](Numbers& n, const SymbolValues& now) {
            const int64_t rows = 2 * now[Symbol::kTextTokens];
            return std::map<std::string, HostTensor>{{"q", matrix(n, rows, width)},
                                                     {"k", matrix(n, rows, width)},
                                                     {"v", matrix(n, rows, width)},
                                                     {"lengths", integers({3, 70})}};
          },
          steps);
    }
  }
}

// An image of 1024 x 1024 pixels and its text. The reference would take minutes: every 97th row by plain loops.
TEST(JointAttentionOp, AnImageOfRealSize) {
  const JointAttentionCase c = {.text = 512, .image = 4096, .queries = 4608, .heads = 1, .head_dim = 64};
  const auto in = joint_attention_inputs_of(c);
  const std::vector<float> got = run_joint_attention(c, in, 2, KvFormat::kF16, false),
                           brain = run_joint_attention(c, in, 2, KvFormat::kBF16, false);
  std::vector<float> some, some_brain;
  std::vector<double> want;
  const HostTensor& queries = in.at("q");
  const HostTensor* const sources[2][2] = {{&in.at("text.k"), &in.at("text.v")},
                                           {&in.at("image.k"), &in.at("image.v")}};
  auto key = [&](int64_t p, bool value) {
    const HostTensor& t = *sources[p < c.text ? 0 : 1][value ? 1 : 0];
    return t.row(p < c.text ? p : p - c.text);
  };
  for (int64_t t = 0; t < c.queries; t += 97) {
    std::vector<double> y(static_cast<size_t>(c.head_dim)), weight;
    double sum = 0;
    for (int64_t p = 0; p < c.text + c.image; ++p) {
      double dot = 0;
      for (int64_t d = 0; d < c.head_dim; ++d) dot += queries.row(t)[d] * key(p, false)[d];
      weight.push_back(std::exp(dot / 8));  // scores lie within ten of zero
      sum += weight.back();
    }
    for (int64_t p = 0; p < c.text + c.image; ++p)
      for (int64_t d = 0; d < c.head_dim; ++d)
        y[static_cast<size_t>(d)] += weight[static_cast<size_t>(p)] / sum * key(p, true)[d];
    want.insert(want.end(), y.begin(), y.end());
    some.insert(some.end(), got.begin() + t * c.head_dim, got.begin() + (t + 1) * c.head_dim);
    some_brain.insert(some_brain.end(), brain.begin() + t * c.head_dim, brain.begin() + (t + 1) * c.head_dim);
  }
  EXPECT_LE(joint_attention_relative_error(some, want), 0x1p-8);
  EXPECT_LE(joint_attention_relative_error(some_brain, want), 1.5 * 0x1p-8);
}

// No value grows with queries times keys.
TEST(JointAttentionOp, MemoryGrowsWithTheTokensOnly) {
  auto arena_bytes = [&](int64_t tokens) {
    Numbers n;
    const JointAttentionCase c = {.image = tokens, .queries = tokens, .heads = 1, .head_dim = 64};
    return Compiled::make(joint_attention_graph_of(c, n), 1, joint_attention_sizes_of(c)).program->arena_plan.bytes;
  };
  EXPECT_LT(arena_bytes(8192), 9 * arena_bytes(1024));
}

TEST(JointAttentionOp, WhatDoesNotFitIsRefused) {
  const Dim batch(Symbol::kBatch), tokens(Symbol::kImageTokens);
  auto message = [&](const std::function<void(GraphBuilder&, Value, Value)>& build) {
    GraphBuilder g("test");
    const Value x = g.input("x", DType::kF32, {batch * tokens, 48});
    build(g, x, pack_kv(g, {{x, x, tokens}}, batch, 3, 16));
    const auto graph = g.finish();
    EXPECT_EQ(graph.status().code(), Code::invalid_argument);
    return graph.status().message();
  };
  EXPECT_EQ(message([&](GraphBuilder& g, Value x, Value) {
              pack_kv(g, {{x, x, tokens}}, batch, 2, 16);
            }),
            "pack_kv: x is [batch*image_tokens, 48], not f32 [batch*image_tokens, 32]");
  EXPECT_EQ(message([&](GraphBuilder& g, Value, Value) { pack_kv(g, {}, batch, 3, 16); }),
            "pack_kv: no keys are given");
  EXPECT_EQ(message([&](GraphBuilder& g, Value x, Value) {
              pack_kv(g, {{x, x, tokens}}, batch, 1, 1000);
            }),
            "pack_kv: 1 heads of 1000 elements; heads have 1 to 512");
  EXPECT_EQ(message([&](GraphBuilder& g, Value x, Value keys) {
              joint_attention(g, x, batch, Symbol::kTextTokens, keys, {3, 16, 1});
            }),
            "joint_attention: x is [batch*image_tokens, 48], not f32 [batch*text_tokens, 48]");
  EXPECT_EQ(message([&](GraphBuilder& g, Value x, Value keys) {
              joint_attention(g, x, batch, tokens, keys, {2, 24, 1}, x);
            }),
            "joint_attention: x is [batch*image_tokens, 48], not i32 [batch]");
  EXPECT_EQ(message([&](GraphBuilder& g, Value x, Value) {
              joint_attention(g, x, batch, tokens, x, {3, 16, 1});
            }),
            "joint_attention: keys [batch*image_tokens, 48] are not 3 heads of 16 for each of batch, from pack_kv");
}

}  // namespace
}  // namespace redline::test
