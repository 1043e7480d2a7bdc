// Attention of sequences of different lengths in the rows of one value (joint_attention.h, PackedSequences).
#include <cstring>

#include "graph/ops/joint_attention.h"
#include "graph/ops/linear.h"
#include "support/op_formula.h"
#include "support/prepared.h"

namespace redline::test {
namespace {

struct PackedAttentionCase {
  std::vector<int64_t> lengths;
  int64_t heads = 2, head_dim = 32, window = 0;
  bool causal = false, product = false;

  int64_t width() const { return heads * head_dim; }
  int64_t rows() const {
    int64_t sum = 0;
    for (const int64_t n : lengths) sum += n;
    return sum;
  }
};

std::string packed_attention_name_of(const PackedAttentionCase& c) {
  return fmt::format("lengths {}, {} heads of {}, window {}{}{}", fmt::join(c.lengths, " "), c.heads, c.head_dim,
                     c.window, c.causal ? ", causal" : "", c.product ? ", product" : "");
}

SymbolValues packed_attention_sizes_of(const PackedAttentionCase& c) {
  SymbolValues s;
  s[Symbol::kTokens] = c.rows();
  s[Symbol::kSequences] = static_cast<int64_t>(c.lengths.size());
  return s;
}

Graph packed_attention_graph_of(const PackedAttentionCase& c) {
  const Dim rows(Symbol::kTokens);
  Numbers n(7);
  GraphBuilder g("test");
  const PackedSequences s = {g.input("offsets", DType::kI32, {Dim(Symbol::kSequences) + Dim(1)}), rows,
                             Symbol::kSequences};
  const auto input = [&](const char* name) { return g.input(name, DType::kF32, {rows, c.width()}); };
  const Value q = input("q"), k = input("k"), v = input("v");
  const float scale = 1 / std::sqrt(static_cast<float>(c.head_dim));
  Value y = joint_attention(g, q, s, pack_kv(g, k, v, s, c.heads, c.head_dim),
                            {c.heads, c.head_dim, scale, c.causal, c.window});
  if (c.product) y = linear(g, y, g.weight("w", n.weight({32, c.width()}, 1)));
  g.output("y", y);
  auto graph = g.finish();
  EXPECT_TRUE(graph.ok()) << graph.status().to_string();
  return std::move(graph).value();
}

std::map<std::string, HostTensor> packed_attention_inputs_of(const PackedAttentionCase& c) {
  Numbers n(static_cast<uint64_t>(c.rows()) + 3);
  std::map<std::string, HostTensor> in;
  for (const char* name : {"q", "k", "v"}) in[name] = matrix(n, c.rows(), c.width());
  std::vector<int64_t> offsets = {0};
  for (const int64_t length : c.lengths) offsets.push_back(offsets.back() + length);
  in["offsets"] = integers(offsets);
  return in;
}

/// Row t and head h: the mean of the values of the rows that it sees, by the softmax of q . k / sqrt(head_dim).
std::vector<double> packed_attention_formula(const PackedAttentionCase& c,
                                             const std::map<std::string, HostTensor>& in) {
  std::vector<double> y(static_cast<size_t>(c.rows() * c.width()));
  int64_t first = 0;
  for (const int64_t length : c.lengths) {
    for (int64_t t = 0; t < length; ++t) {
      const int64_t begin = c.window > 0 ? std::max<int64_t>(0, t - c.window) : 0;
      const int64_t end = c.causal ? t + 1 : c.window > 0 ? std::min(length, t + c.window + 1) : length;
      for (int64_t head = 0; head < c.width(); head += c.head_dim) {
        std::vector<double> weights;
        double sum = 0;
        for (int64_t p = begin; p < end; ++p) {
          double dot = 0;
          for (int64_t d = head; d < head + c.head_dim; ++d)
            dot += in.at("q").row(first + t)[d] * in.at("k").row(first + p)[d];
          weights.push_back(std::exp(dot * static_cast<double>(1 / std::sqrt(static_cast<float>(c.head_dim)))));
          sum += weights.back();
        }
        for (int64_t p = begin; p < end; ++p)
          for (int64_t d = head; d < head + c.head_dim; ++d)
            y[static_cast<size_t>((first + t) * c.width() + d)] +=
                weights[static_cast<size_t>(p - begin)] / sum * in.at("v").row(first + p)[d];
      }
    }
    first += length;
  }
  return y;
}

std::vector<float> run_packed_attention(const PackedAttentionCase& c, int workers, KvFormat format, bool exact) {
  CpuCompileOptions options;
  options.pack_kv_format = format;
  options.exact_f32 = exact;
  SymbolValues bounds = packed_attention_sizes_of(c);
  for (int64_t& bound : bounds.value) bound += 5;
  Compiled compiled = Compiled::make(packed_attention_graph_of(c), workers, bounds, options);
  StepContext step;
  step.sizes = packed_attention_sizes_of(c);
  for (int again = 0; again < 2; ++again) {
    for (const auto& [name, tensor] : packed_attention_inputs_of(c)) compiled.put(name.c_str(), tensor);
    EXPECT_TRUE(compiled.executor->step(step).ok());
  }
  return compiled.get("y", c.rows() * (c.product ? 32 : c.width()));
}

double packed_attention_relative_error(const std::vector<float>& got, const std::vector<double>& want) {
  double error = 0, all = 1e-30;
  for (size_t i = 0; i < got.size(); ++i) {
    error += std::pow(static_cast<double>(got[i]) - want[i], 2);
    all += want[i] * want[i];
    if (std::isnan(got[i])) return INFINITY;
  }
  return std::sqrt(error / all);
}

void check_packed_attention(const PackedAttentionCase& c) {
  SCOPED_TRACE(packed_attention_name_of(c));
  const std::vector<double> want = packed_attention_formula(c, packed_attention_inputs_of(c));
  auto interpreter = Interpreter::make(packed_attention_graph_of(c));
  ASSERT_TRUE(interpreter.ok());
  auto expected = interpreter->run(packed_attention_inputs_of(c), packed_attention_sizes_of(c));
  ASSERT_TRUE(expected.ok()) << expected.status().to_string();
  EXPECT_LE(error_of((*expected)["y"].data, want), kReferenceError);
  // As joint_attention_test.cc derives them.
  const double exact = 6e-8 * (8 + 2 * std::sqrt(static_cast<double>(c.head_dim + c.rows())));
  const Graph graph = packed_attention_graph_of(c);
  if (const auto got = run_emulated(graph, packed_attention_sizes_of(c), packed_attention_sizes_of(c),
                                    packed_attention_inputs_of(c), std::ssize(want), c.rows() < 100)) {
    EXPECT_LE(packed_attention_relative_error(*got, want), exact) << "emulated";
  }
  for (const auto& [format, is_exact, bound] : {std::tuple{KvFormat::kF16, true, exact},
                                                {KvFormat::kF16, false, 0x1p-8},
                                                {KvFormat::kBF16, false, 1.75 * 0x1p-8}}) {
    const std::vector<float> one = run_packed_attention(c, 1, format, is_exact);
    ASSERT_EQ(one.size(), want.size());
    EXPECT_LE(packed_attention_relative_error(one, want), bound);
    for (const int workers : {2, 5})
      EXPECT_EQ(one, run_packed_attention(c, workers, format, is_exact)) << workers << " workers";
  }
}

}  // namespace

TEST(PackedAttention, EachSequenceSeesItself) {
  for (const auto& lengths : std::vector<std::vector<int64_t>>{
           {1}, {33}, {1, 1}, {5, 31, 32, 33, 64, 1}, {257, 3, 100}, {0, 4, 0, 0, 7, 0}, {}, {0}})
    for (const bool causal : {false, true}) check_packed_attention({.lengths = lengths, .causal = causal});
  for (const int64_t head_dim : {1, 7, 16, 64, 80, 128})
    check_packed_attention({.lengths = {9, 41, 20}, .heads = 3, .head_dim = head_dim});
}

TEST(PackedAttention, AWindowCountsBothWays) {
  for (const int64_t window : {1, 2, 31, 32, 64, 1000})
    check_packed_attention({.lengths = {1, 40, 200, 65}, .heads = 3, .head_dim = 24, .window = window});
}

// The result of a sequence does not depend on the other sequences, nor on where its rows begin.
TEST(PackedAttention, BitsDoNotDependOnTheOtherSequences) {
  PackedAttentionCase all = {.lengths = {3, 70, 1, 33, 129}, .heads = 2, .head_dim = 32};
  for (const int64_t window : {int64_t{0}, int64_t{5}})
    for (const KvFormat format : {KvFormat::kF16, KvFormat::kBF16}) {
      all.window = window;
      const std::vector<float> packed = run_packed_attention(all, 2, format, false);
      const auto in = packed_attention_inputs_of(all);
      int64_t first = 0;
      for (const int64_t length : all.lengths) {
        const PackedAttentionCase alone = {.lengths = {length}, .heads = 2, .head_dim = 32, .window = window};
        CpuCompileOptions options;
        options.pack_kv_format = format;
        Compiled compiled =
            Compiled::make(packed_attention_graph_of(alone), 3, packed_attention_sizes_of(alone), options);
        StepContext step;
        step.sizes = packed_attention_sizes_of(alone);
        for (const char* name : {"q", "k", "v"}) {
          HostTensor part = in.at(name);
          part.shape[0] = length;
          part.data.assign(in.at(name).row(first), in.at(name).row(first) + length * alone.width());
          compiled.put(name, part);
        }
        compiled.put("offsets", integers({0, length}));
        ASSERT_TRUE(compiled.executor->step(step).ok());
        const std::vector<float> got = compiled.get("y", length * alone.width());
        EXPECT_EQ(std::memcmp(got.data(), packed.data() + first * alone.width(), got.size() * sizeof(float)), 0)
            << length << " rows from " << first;
        first += length;
      }
    }
}

TEST(PackedAttention, StoresWhatProductsRead) {
  for (const auto& [heads, head_dim] : {std::pair<int64_t, int64_t>{12, 32}, {3, 32}, {8, 40}}) {
    std::vector<SymbolValues> steps;
    for (const int64_t rows : {4, 20, 37, 101}) {
      steps.emplace_back();
      steps.back()[Symbol::kTokens] = rows;
      steps.back()[Symbol::kSequences] = 3;
    }
    const Dim rows(Symbol::kTokens);
    const int64_t width = heads * head_dim;
    expect_prepares(
        [&, heads = heads, head_dim = head_dim](GraphBuilder& g, Numbers&) {
          const auto input = [&](const char* name) { return g.input(name, DType::kF32, {rows, width}); };
          const PackedSequences s = {g.input("offsets", DType::kI32, {Dim(Symbol::kSequences) + Dim(1)}), rows,
                                     Symbol::kSequences};
          const Value q = input("q"), k = input("k"), v = input("v");
          return joint_attention(g, q, s, pack_kv(g, k, v, s, heads, head_dim), {heads, head_dim, 0.1f, false, 6});
        },
        [&](Numbers& n, const SymbolValues& now) {
          const int64_t count = now[Symbol::kTokens];
          return std::map<std::string, HostTensor>{{"q", matrix(n, count, width)},
                                                   {"k", matrix(n, count, width)},
                                                   {"v", matrix(n, count, width)},
                                                   {"offsets", integers({0, 1, count - 2, count})}};
        },
        steps);
  }
}

TEST(PackedAttention, WhatDoesNotFitIsRefused) {
  const Dim rows(Symbol::kTokens), count(Symbol::kSequences);
  const auto message = [&](const Dim& offsets, int64_t width, JointAttentionAttrs attrs) {
    GraphBuilder g("test");
    const PackedSequences s = {g.input("offsets", DType::kI32, {offsets}), rows, count};
    const Value x = g.input("x", DType::kF32, {rows, width});
    joint_attention(g, x, s, pack_kv(g, x, x, s, 3, 16), attrs);
    return g.finish().status().message();
  };
  EXPECT_EQ(message(count, 48, {3, 16, 1}), "pack_kv: offsets offsets are [sequences], not i32 [sequences + 1]");
  EXPECT_EQ(message(count + Dim(1), 47, {3, 16, 1}), "pack_kv: x is [tokens, 47], not f32 [tokens, 48]");
  EXPECT_EQ(message(count + Dim(1), 48, {3, 16, 1, true, 4}), "joint_attention: a window of 4 and causal");
}

}  // namespace redline::test
