// Convolutions of one to three axes: against a formula of this file, against PyTorch, and in chunks against the whole.
// The compiled op runs on every instruction set, also on the paths of CPUs with a tile unit or fast bfloat16 dots.
// over 600 lines: all tests share the random cases and the formula.
#include "graph/ops/convolution.h"

#include "backends/tiles/tile_lowering.h"
#include "graph/ops/add.h"
#include "graph/ops/conv2d.h"
#include "graph/ops/linear.h"
#include "graph/pass.h"
#include "support/isa_test.h"
#include "support/npz.h"
#include "support/op_formula.h"
#include "support/prepared.h"
#include "support/random_weight.h"
#include "support/sequences.h"

namespace redline::test {
namespace {

using Sizes = std::vector<int64_t>;

/// A convolution and the sizes of one step.
struct ConvolutionCase {
  std::vector<ConvAxis> axes;
  int64_t in, out;
  Sizes sizes;
  int64_t groups = 1, batch = 1;
  bool is_transposed = false;
  Sizes upsampled = {};  ///< with `upsample`: sizes of the output
  bool has_bias = true, has_item_bias = false, has_residual = false;
  DType type = DType::kF32;

  ConvolutionAttrs attrs() const {
    return {.axes = axes, .groups = groups, .is_transposed = is_transposed, .upsample = !upsampled.empty()};
  }
  Sizes out_sizes() const {
    Sizes sizes_out = upsampled;
    for (size_t i = 0; i < axes.size() && upsampled.empty(); ++i)
      sizes_out.push_back(convolved_size(axes[i], is_transposed, sizes[i]));
    return sizes_out;
  }
  int64_t taps() const {
    int64_t n = 1;
    for (const ConvAxis& a : axes) n *= a.kernel;
    return n;
  }
  Sizes weight_shape() const {
    Sizes shape = is_transposed ? Sizes{in, out / groups} : Sizes{out, in / groups};
    for (const ConvAxis& a : axes) shape.push_back(a.kernel);
    return shape;
  }
  std::string text() const {
    std::string s = fmt::format("{} to {} channels, {} groups{}, batch {}, {}", in, out, groups,
                                is_transposed ? ", transposed" : "", batch, dtype_info(type).name);
    for (size_t i = 0; i < axes.size(); ++i) {
      const ConvAxis& a = axes[i];
      s += fmt::format("; size {} kernel {} /{} dilation {} pad {} {} kind {} output padding {}", sizes[i], a.kernel,
                       a.stride, a.dilation, a.pad_before, a.pad_after, static_cast<int>(a.padding), a.output_padding);
    }
    return s + (upsampled.empty() ? "" : fmt::format("; upsampled to {}", fmt::join(upsampled, "x")));
  }
};

// Every size is a symbol: those of the input, then those of the output that are not polynomials of them.
const Symbol kInSymbols[] = {Symbol::kImageTokens, testing::kHeight, testing::kWidth};
const Symbol kOutSymbols[] = {Symbol::kTextTokens, extent_symbol("height/2"), extent_symbol("width/2")};

SymbolValues sizes_of(const ConvolutionCase& c) {
  SymbolValues s;
  s[Symbol::kBatch] = c.batch;
  const Sizes out = c.out_sizes();
  for (size_t i = 0; i < c.axes.size(); ++i) {
    s[kInSymbols[i]] = c.sizes[i];
    s[kOutSymbols[i]] = out[i];
  }
  return s;
}

/// The weight of a case, in its type.
struct CaseWeight {
  std::unique_ptr<testing::RandomWeight> stored;

  WeightSource source(Numbers& n, const ConvolutionCase& c) {
    const Sizes shape = c.weight_shape();
    WeightSource weight = n.weight(shape, 1.0f);
    if (c.type == DType::kF32) return weight;
    stored = std::make_unique<testing::RandomWeight>(c.type, shape[0], weight.view.num_elements() / shape[0], 5);
    weight.view = stored->view();
    weight.view.shape = shape;
    return weight;
  }
};

std::vector<Dim> in_dims(const ConvolutionCase& c) {
  return {std::begin(kInSymbols), std::begin(kInSymbols) + std::ssize(c.axes)};
}
std::vector<Dim> out_dims(const ConvolutionCase& c) {
  std::vector<Dim> dims;
  for (size_t i = 0; i < c.axes.size(); ++i) {
    const auto size = convolved_size(c.axes[i], c.is_transposed, Dim(kInSymbols[i]));
    dims.push_back(size && c.upsampled.empty() ? *size : Dim(kOutSymbols[i]));
  }
  return dims;
}

void build_case(GraphBuilder& g, Numbers& n, const ConvolutionCase& c, CaseWeight& weight, Value leading = {}) {
  const std::vector<Dim> in = in_dims(c), out = out_dims(c);
  const Value x = g.input("x", DType::kF32, {kBatch * num_elements(in), c.in});
  const Value w = g.weight("w", weight.source(n, c));
  ConvolutionInputs inputs;
  inputs.leading = leading;
  if (c.has_bias) inputs.bias = g.weight("b", n.weight({c.out}));
  if (c.has_item_bias) inputs.item_bias = g.input("items", DType::kF32, {kBatch, c.out});
  Value rest;
  if (c.has_residual) rest = g.input("rest", DType::kF32, {kBatch * num_elements(out), c.out});
  const Value y = convolution(g, {x, in}, kBatch, w, c.attrs(), inputs, out).value;
  g.output("y", c.has_residual ? add(g, y, rest) : y);
}

Graph graph_of(const ConvolutionCase& c, Numbers& n, CaseWeight& weight) {
  GraphBuilder g("test");
  build_case(g, n, c, weight);
  auto graph = g.finish();
  EXPECT_TRUE(graph.ok()) << graph.status().to_string();
  return graph.ok() ? std::move(graph).value() : Graph();
}

std::map<std::string, HostTensor> inputs_of(const ConvolutionCase& c, Numbers& n) {
  const auto product = [](const Sizes& sizes) {
    int64_t rows = 1;
    for (const int64_t size : sizes) rows *= size;
    return rows;
  };
  std::map<std::string, HostTensor> in = {{"x", matrix(n, c.batch * product(c.sizes), c.in)}};
  if (c.has_item_bias) in["items"] = matrix(n, c.batch, c.out);
  if (c.has_residual) in["rest"] = matrix(n, c.batch * product(c.out_sizes()), c.out);
  return in;
}

/// Positions of an axis as a list, which is padded element by element: index of an input, or -1 for zero.
std::deque<int64_t> padded_axis(int64_t size, int64_t before, int64_t after, ConvPadding padding) {
  std::deque<int64_t> all;
  for (int64_t i = 0; i < size; ++i) all.push_back(i);
  const auto next = [&](int64_t outside, bool at_end) -> int64_t {  // `outside`: 1 for the first beyond the end
    if (size == 0 || padding == ConvPadding::kZeros) return -1;
    if (padding == ConvPadding::kReplicate) return at_end ? size - 1 : 0;
    int64_t at = at_end ? size - 1 : 0, step = at_end ? -1 : 1;
    if (padding == ConvPadding::kCircular) at = at_end ? -1 : size, step = -step;
    for (; outside > 0; --outside) {
      if (size == 1) return 0;
      if (padding == ConvPadding::kReflect && (at + step < 0 || at + step >= size)) step = -step;
      at += step;
      if (padding == ConvPadding::kCircular) at = (at + size) % size;
    }
    return at;
  };
  for (int64_t i = 1; i <= before; ++i) all.push_front(next(i, false));
  for (int64_t i = 1; i <= after; ++i) all.push_back(next(i, true));
  return all;
}

/// The convolution by its definition: the axes of the input become lists of positions, resized, padded, or for a
/// transposed convolution with zeros between them and the kernel mirrored, and the kernel slides over the lists.
std::vector<double> convolve(const ConvolutionCase& c, const HostTensor& x, const HostTensor& w, const double* bias) {
  std::vector<std::deque<int64_t>> lists;
  const Sizes out = c.out_sizes();
  for (size_t i = 0; i < c.axes.size(); ++i) {
    const ConvAxis& a = c.axes[i];
    std::deque<int64_t> list;
    if (c.is_transposed) {
      for (int64_t p = 0; p < c.sizes[i]; ++p) {
        if (p > 0) list.insert(list.end(), static_cast<size_t>(a.stride - 1), -1);
        list.push_back(p);
      }
      for (int64_t p = 0; p < a.reach(); ++p) list.push_front(-1);
      for (int64_t p = 0; p < a.reach() + a.output_padding; ++p) list.push_back(-1);
      list.erase(list.begin(), list.begin() + std::min<int64_t>(a.pad_before, std::ssize(list)));
    } else {
      list = padded_axis(c.upsampled.empty() ? c.sizes[i] : c.upsampled[i], a.pad_before, a.pad_after, a.padding);
      for (int64_t& p : list)
        if (p >= 0 && !c.upsampled.empty()) p = p * c.sizes[i] / c.upsampled[i];
    }
    lists.push_back(std::move(list));
  }
  const size_t n_axes = c.axes.size();
  const int64_t taps = c.taps(), c_in = c.in / c.groups, c_out = c.out / c.groups;
  int64_t pixels = 1, in_pixels = 1;
  for (size_t i = 0; i < n_axes; ++i) pixels *= out[i], in_pixels *= c.sizes[i];
  std::vector<double> y;
  for (int64_t row = 0; row < c.batch * pixels; ++row) {
    std::vector<double> sums(static_cast<size_t>(c.out));
    for (int64_t n = 0; bias != nullptr && n < c.out; ++n) sums[static_cast<size_t>(n)] = bias[n];
    for (int64_t tap = 0; tap < taps; ++tap) {
      int64_t rest = row % pixels, rest_tap = tap, pixel = 0, scale = 1;
      bool is_zero = false;
      for (size_t i = n_axes; i-- > 0;) {
        const ConvAxis& a = c.axes[i];
        const int64_t at = rest % out[i], j = rest_tap % a.kernel;
        rest /= out[i];
        rest_tap /= a.kernel;
        const int64_t position =
            c.is_transposed ? at + (a.kernel - 1 - j) * a.dilation : at * a.stride + j * a.dilation;
        const int64_t index = position < std::ssize(lists[i]) ? lists[i][static_cast<size_t>(position)] : int64_t{-1};
        is_zero |= index < 0;
        pixel += index * scale;
        scale *= c.sizes[i];
      }
      if (is_zero) continue;
      const double* from = x.row(row / pixels * in_pixels + pixel);
      for (int64_t n = 0; n < c.out; ++n)
        for (int64_t k = 0; k < c_in; ++k) {
          const int64_t channel = n / c_out * c_in + k;
          sums[static_cast<size_t>(n)] +=
              from[channel] * (c.is_transposed ? w.row(channel)[n % c_out * taps + tap] : w.row(n)[k * taps + tap]);
        }
    }
    y.insert(y.end(), sums.begin(), sums.end());
  }
  return y;
}

std::vector<double> formula_of(const ConvolutionCase& c, const std::map<std::string, HostTensor>& in,
                               const Graph& graph) {
  std::map<std::string, HostTensor> all = in;
  for (const ValueInfo& value : graph.values)
    if (value.kind == ValueKind::kWeight) all[value.name] = unpacked(value.weight.view);
  std::vector<double> y = convolve(c, all.at("x"), all.at("w"), c.has_bias ? all.at("b").data.data() : nullptr);
  for (size_t i = 0; i < y.size(); ++i) {
    const size_t n = i % static_cast<size_t>(c.out);
    if (c.has_item_bias)
      y[i] += all.at("items").data[i / (y.size() / static_cast<size_t>(c.batch)) * static_cast<size_t>(c.out) + n];
    if (c.has_residual) y[i] += all.at("rest").data[i];
  }
  return y;
}

/// Kernel tables: of each instruction set that this machine has, and with the paths of other CPUs over the highest.
const std::vector<std::pair<std::string, CpuKernels>>& tables() {
  static const auto all = [] {
    std::vector<std::pair<std::string, CpuKernels>> found;
    int count = 0;
    const CpuIsa* isas = cpu_isas(&count);
    std::string highest;
    for (int i = 0; i < count; ++i) {
      // These sets replace no kernel that a convolution uses.
      if (!isas[i].supported() || std::string_view(isas[i].name).ends_with("_fp16")) continue;
      found.emplace_back(isas[i].name, cpu_kernels_for(isas[i].name).value());
      if (std::string_view(isas[i].name) == "avx2" || std::string_view(isas[i].name) == "avx512")
        highest = isas[i].name;
    }
    if (highest.empty()) highest = isas[0].name;
    for (const char* suffix : {"+tiles", "+bf16_dot"})
      found.emplace_back(highest + suffix, cpu_kernels_for(highest + suffix).value());
    return found;
  }();
  return all;
}

// A sum of n random terms loses at most n roundings of partial sums, which stay below the largest result.
double convolution_tolerance(const ConvolutionCase& c) {
  return static_cast<double>(c.in / c.groups * c.taps() + 8) * 6e-8;
}

std::vector<float> run_compiled(Compiled& compiled, const std::map<std::string, HostTensor>& in,
                                const StepContext& step, size_t count) {
  for (const auto& [name, tensor] : in) compiled.put(name.c_str(), tensor);
  EXPECT_TRUE(compiled.executor->step(step).ok());
  return compiled.get("y", static_cast<int64_t>(count));
}

/// Compares the reference, and the compiled op of every instruction set on 1, 2 and 5 workers, with the formula.
/// `tolerance` is for options that round activations; 0: all are exact in float32.
void expect_convolution(const ConvolutionCase& c, double tolerance = 0, bool all_tables = true) {
  SCOPED_TRACE(c.text());
  Numbers numbers(7), input_numbers(3);
  CaseWeight weight;
  const Graph graph = graph_of(c, numbers, weight);
  ASSERT_FALSE(graph.ops.empty());
  const auto in = inputs_of(c, input_numbers);
  const SymbolValues now = sizes_of(c);
  const std::vector<double> want = formula_of(c, in, graph);
  auto reference = Interpreter::make(graph);
  ASSERT_TRUE(reference.ok());
  auto expected = reference->run(in, now);
  ASSERT_TRUE(expected.ok()) << expected.status().to_string();
  EXPECT_LE(error_of((*expected)["y"].data, want), kReferenceError) << "the reference";
  Graph fused = graph;
  ASSERT_TRUE(run_passes(fused).ok());
  for (const auto& [name, kernels] : tables()) {
    if (!all_tables && name != tables().front().first && name != tables().back().first) continue;
    SCOPED_TRACE(name);
    std::vector<float> first;
    for (const int workers : {1, 2, 5}) {
      CpuCompileOptions options;
      options.kernels = &kernels;
      options.exact_f32 = tolerance == 0;
      Compiled compiled = Compiled::make(fused, workers, now, options);
      StepContext step;
      step.sizes = now;
      for (int again = 0; again < 2; ++again) {
        const std::vector<float> got = run_compiled(compiled, in, step, want.size());
        EXPECT_LE(error_of(got, want), tolerance > 0 ? tolerance : convolution_tolerance(c)) << workers << " workers";
        if (first.empty()) first = got;
        EXPECT_TRUE(first.empty() || std::memcmp(first.data(), got.data(), got.size() * sizeof(float)) == 0)
            << workers << " workers give other bits than one";
      }
    }
  }
}

ConvAxis axis_of(int64_t kernel, int64_t stride = 1, int64_t dilation = 1, int64_t before = 0, int64_t after = 0,
                 ConvPadding padding = ConvPadding::kZeros) {
  return {.kernel = kernel,
          .stride = stride,
          .dilation = dilation,
          .pad_before = before,
          .pad_after = after,
          .padding = padding};
}
ConvAxis same(int64_t kernel, ConvPadding padding = ConvPadding::kZeros) {
  return axis_of(kernel, 1, 1, kernel / 2, kernel / 2, padding);
}

/// A random convolution that is valid, with sizes from 0 on.
ConvolutionCase random_case(Numbers& n) {
  ConvolutionCase c = {};
  const int64_t num_axes = 1 + n.below(3);
  c.is_transposed = n.below(3) == 0;
  const bool upsamples = !c.is_transposed && n.below(6) == 0;
  for (int64_t i = 0; i < num_axes; ++i) {
    const int64_t largest = num_axes == 1 ? 40 : num_axes == 2 ? 12 : 6;
    ConvAxis a = axis_of(1 + n.below(num_axes == 1 ? 7 : 4), 1 + n.below(3), 1 + n.below(2));
    c.sizes.push_back(n.below(12) == 0 ? n.below(2) : 1 + n.below(largest));
    if (upsamples) a.stride = 1;
    a.pad_before = n.below(a.reach() + 1);
    a.pad_after = n.below(a.reach() + 1);
    if (c.is_transposed) a.output_padding = n.below(a.stride);
    else a.padding = static_cast<ConvPadding>(n.below(4));
    // Sizes that are polynomials of their symbols must not fall below zero.
    if (convolved_size(a, c.is_transposed, c.sizes.back()) < 1) {
      a.pad_before = c.is_transposed ? 0 : a.reach();
      a.pad_after = 0;
      c.sizes.back() = std::max<int64_t>(1, c.sizes.back());
    }
    if (upsamples) {
      a.pad_after = a.reach() - a.pad_before;
      c.upsampled.push_back(1 + n.below(largest));
    }
    c.axes.push_back(a);
  }
  c.groups = n.below(2) == 0 ? 1 : 1 + n.below(5);
  const int64_t widths[] = {1, 2, 3, 5, 16, 17, 32};
  c.in = c.groups * widths[n.below(7)];
  c.out = c.groups * widths[n.below(7)];
  if (n.below(4) == 0) c.in = c.out = c.groups = 1 + n.below(40);  // depthwise
  c.batch = 1 + n.below(3);
  c.has_bias = n.below(2) == 0;
  c.has_item_bias = n.below(4) == 0;
  c.has_residual = n.below(3) == 0;
  return c;
}

}  // namespace

TEST(ConvolutionOp, OfRandomAttributesEqualsTheDefinition) {
  Numbers n(20261130);
  for (int i = 0; i < 150 && !HasFailure(); ++i) expect_convolution(random_case(n), 0, i < 40);
}

TEST(ConvolutionOp, DepthwiseOfAllWidths) {
  for (const int64_t channels : {1, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 67}) {
    expect_convolution({{same(3), same(3)}, channels, channels, {5, 19}, channels, 2});
    expect_convolution({{axis_of(4, 1, 1, 3)}, channels, channels, {29}, channels, 1});
  }
  ConvolutionCase real = {{axis_of(5, 2, 1, 2, 2), axis_of(5, 2, 1, 2, 2)}, 96, 96, {28, 28}, 96, 1};
  real.has_residual = real.has_item_bias = true;
  expect_convolution(real);
  expect_convolution({{same(3), same(3), same(3)}, 24, 24, {3, 9, 17}, 24, 2});
  for (const DType type : {DType::kBF16, DType::kF16}) {
    real.type = type;
    expect_convolution(real);
  }
}

TEST(ConvolutionOp, TransposedOfEveryRank) {
  for (const int64_t groups : {1, 2, 8}) {
    ConvolutionCase one = {
        {{.kernel = 16, .stride = 8, .pad_before = 4, .pad_after = 4}}, 8, 16, {13}, groups, 2, true};
    one.has_residual = true;
    expect_convolution(one);
    const ConvAxis twice = {.kernel = 4, .stride = 2, .pad_before = 1, .pad_after = 1};
    expect_convolution({{twice, twice}, 8, 8, {5, 7}, groups, 2, true});
    // A kernel below the stride: some outputs have no tap at all.
    expect_convolution({{{.kernel = 1, .stride = 3, .output_padding = 2}, twice}, 8, 8, {4, 3}, groups, 1, true});
    expect_convolution(
        {{{.kernel = 3, .stride = 2, .dilation = 2, .pad_before = 1, .output_padding = 1}, twice, same(3)},
         8,
         8,
         {3, 3, 4},
         groups,
         1,
         true});
  }
}

TEST(ConvolutionOp, ThreeByThreeByThreeOfRealChannels) {
  ConvolutionCase c = {{causal_axis(3), same(3), same(3)}, 96, 96, {3, 6, 7}, 1, 1};
  c.has_residual = true;
  expect_convolution(c);
  c.axes = {causal_axis(3, 2), same(1), same(1)};
  c.sizes = {4, 5, 6};
  expect_convolution(c);
}

TEST(ConvolutionOp, FramesWithoutNeighboursAreItems) {
  ConvolutionCase c = {{axis_of(1), same(3), same(3)}, 32, 24, {3, 6, 7}, 1, 2};
  c.has_residual = true;
  expect_convolution(c);
  c.has_item_bias = true;
  expect_convolution(c);
  c.axes = {axis_of(1), axis_of(3, 2, 1, 0, 1), axis_of(3, 2, 1, 0, 1)};
  expect_convolution(c);
  c.has_item_bias = false;
  c.type = DType::kBF16;
  expect_convolution(c, 0x1p-8);
}

TEST(ConvolutionOp, TakesEveryPlainTypeAndRoundsPatches) {
  for (const DType type : {DType::kF16, DType::kBF16})
    for (const int64_t in : {5, 32})
      for (const bool is_transposed : {false, true}) {
        ConvolutionCase c = {{axis_of(3, 2, 1, 1, 1), axis_of(5, 1, 1, 2, 2)}, in, 24, {9, 8}, 1, 2, is_transposed};
        c.type = type;
        expect_convolution(c);
        // As in conv2d_test.cc: two errors of 2^-9 of each term.
        expect_convolution(c, 0x1p-8);
      }
}

TEST(ConvolutionOp, TakesBlockTypes) {
  for (const DType type : {DType::kQ8_0, DType::kQ4_0, DType::kQ4_K})
    for (const int64_t groups : {1, 2}) {
      ConvolutionCase c = {{same(2), axis_of(4, 2, 1, 1, 1)}, 64 * groups, 24 * groups, {6, 9}, groups, 1};
      c.type = type;
      expect_convolution(c);
      // Activations are rounded to eight bits: half a step of 1/127 of the largest of a group, in random sums.
      expect_convolution(c, 0x1p-6);
    }
}

TEST(ConvolutionOp, EqualsPyTorch) {
  auto read = testing::read_npz(std::string(REDLINE_SOURCE_DIR) + "/tests/golden/convolution.npz");
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  const auto& arrays = read.value();
  int cases = 0;
  for (; arrays.count(fmt::format("{}.attrs", cases)) > 0; ++cases) {
    const auto array = [&](const char* name) -> const testing::NpyArray& {
      return arrays.at(fmt::format("{}.{}", cases, name));
    };
    const std::vector<double>& a = array("attrs").values;
    const auto number = [&](size_t i) { return static_cast<int64_t>(a[i]); };
    ConvolutionCase c = {};
    c.is_transposed = number(0) != 0;
    c.groups = number(1);
    c.batch = number(2);
    c.in = number(3);
    c.out = number(4);
    for (size_t i = 5; i < a.size(); i += 8) {
      c.sizes.push_back(number(i));
      c.axes.push_back({number(i + 1), number(i + 2), number(i + 3), number(i + 4), number(i + 5),
                        static_cast<ConvPadding>(number(i + 6)), number(i + 7)});
    }
    SCOPED_TRACE(c.text());
    const auto floats = [](const testing::NpyArray& from) {
      return std::vector<float>(from.values.begin(), from.values.end());
    };
    const std::vector<float> w = floats(array("w")), b = floats(array("b"));
    GraphBuilder g("test");
    WeightSource weight, bias;
    weight.view = {DType::kF32, c.weight_shape(), w.data()};
    bias.view = {DType::kF32, {c.out}, b.data()};
    const Value x = g.input("x", DType::kF32, {kBatch * num_elements(in_dims(c)), c.in});
    g.output("y", convolution(g, {x, in_dims(c)}, kBatch, g.weight("w", weight), c.attrs(),
                              {.bias = g.weight("b", bias)}, out_dims(c))
                      .value);
    auto graph = g.finish();
    ASSERT_TRUE(graph.ok()) << graph.status().to_string();
    const std::vector<double>& want = array("y").values;
    const HostTensor input = {{std::ssize(array("x").values) / c.in, c.in}, array("x").values};
    Interpreter reference = std::move(Interpreter::make(*graph)).value();
    auto expected = reference.run({{"x", input}}, sizes_of(c));
    ASSERT_TRUE(expected.ok()) << expected.status().to_string();
    EXPECT_LE(error_of((*expected)["y"].data, want), kReferenceError);
    Compiled compiled = Compiled::make(std::move(graph).value(), 2, sizes_of(c));
    StepContext step;
    step.sizes = sizes_of(c);
    EXPECT_LE(error_of(run_compiled(compiled, {{"x", input}}, step, want.size()), want), convolution_tolerance(c));
  }
  EXPECT_EQ(cases, 17);
}

namespace {

/// A convolution in chunks of so many positions of the first axis.
struct Chunked {
  ConvolutionCase c;  ///< of the whole
  DType type = DType::kF32;

  Graph graph(Numbers& n, CaseWeight& weight) const {
    GraphBuilder g("test");
    int64_t elements = c.axes[0].pad_before * c.in;
    for (size_t i = 1; i < c.sizes.size(); ++i) elements *= c.sizes[i];
    const Value leading = g.state("leading", {.kind = StateKind::kRecurrent, .elements = elements});
    build_case(g, n, c, weight, leading);
    auto graph = g.finish();
    EXPECT_TRUE(graph.ok()) << graph.status().to_string();
    return std::move(graph).value();
  }
  ConvolutionCase chunk(int64_t positions) const {
    ConvolutionCase part = c;
    part.sizes[0] = positions;
    return part;
  }
  /// Positions [begin, begin + count) of the first axis of every item.
  HostTensor part(const HostTensor& all, const Sizes& sizes, int64_t begin, int64_t count) const {
    int64_t inner = 1;
    for (size_t i = 1; i < sizes.size(); ++i) inner *= sizes[i];
    HostTensor some = {{c.batch * count * inner, all.cols()}, {}};
    for (int64_t item = 0; item < c.batch; ++item) {
      const double* from = all.row((item * sizes[0] + begin) * inner);
      some.data.insert(some.data.end(), from, from + count * inner * all.cols());
    }
    return some;
  }
  /// Runs chunks with run(step, input of the chunk, number of outputs), which returns the output; returns the whole.
  template <class Run>
  std::vector<double> run(TestSequences& sequences, const HostTensor& x, const Sizes& chunks, const Run& run) const {
    const Sizes out = c.out_sizes();
    int64_t inner = c.out;
    for (size_t i = 1; i < out.size(); ++i) inner *= out[i];
    std::vector<std::vector<double>> items(static_cast<size_t>(c.batch));
    int64_t begin = 0;
    for (const int64_t count : chunks) {
      const ConvolutionCase now = chunk(count);
      StepContext step = sequences.begin(Sizes(static_cast<size_t>(c.batch), count));
      step.sizes = sizes_of(now);
      const int64_t size = now.out_sizes()[0] * inner;
      const std::vector<double> y = run(step, part(x, c.sizes, begin, count), c.batch * size);
      for (int64_t item = 0; item < c.batch; ++item)
        items[static_cast<size_t>(item)].insert(items[static_cast<size_t>(item)].end(), y.begin() + item * size,
                                                y.begin() + (item + 1) * size);
      sequences.commit();
      begin += count;
    }
    std::vector<double> all;
    for (const auto& item : items) all.insert(all.end(), item.begin(), item.end());
    return all;
  }
};

constexpr int64_t kConvolutionPages = 24;

/// The whole and all cuts of it have the same bits, on every instruction set, for each number of workers; and the whole
/// is the formula.
void expect_chunks(const Chunked& chunked, const std::vector<Sizes>& cuts, bool exact_f32 = true) {
  const ConvolutionCase& c = chunked.c;
  SCOPED_TRACE(c.text());
  Numbers numbers(7), input_numbers(3);
  CaseWeight weight;
  const Graph graph = chunked.graph(numbers, weight);
  const HostTensor x = inputs_of(c, input_numbers)["x"];
  const std::vector<double> want = formula_of(c, {{"x", x}}, graph);
  const auto count = static_cast<size_t>(c.batch);
  for (const Sizes& cut : cuts) {
    Interpreter reference = std::move(Interpreter::make(graph)).value();
    auto runner = make_interpreter_runner(reference.graph(), sizes_of(c));
    TestSequences sequences(reference.states(), (*runner)->make_state_memory(Sizes{kConvolutionPages}).value(),
                            kConvolutionPages, count, {});
    const auto y = chunked.run(sequences, x, cut, [&](const StepContext& step, const HostTensor& part, int64_t) {
      auto out = reference.run({{"x", part}}, step);
      EXPECT_TRUE(out.ok()) << out.status().to_string();
      return out.ok() ? (*out)["y"].data : std::vector<double>();
    });
    EXPECT_LE(error_of(y, want), kReferenceError)
        << "the reference in chunks of " << fmt::format("{}", fmt::join(cut, ", "));
  }
  for (const auto& [name, kernels] : tables()) {
    SCOPED_TRACE(name);
    std::vector<double> whole;
    for (const Sizes& cut : cuts)
      for (const int workers : {1, 3}) {
        CpuCompileOptions options;
        options.kernels = &kernels;
        options.exact_f32 = exact_f32;
        Compiled compiled = Compiled::make(graph, workers, sizes_of(c), options);
        TestSequences sequences(compiled.program->states,
                                compiled.executor->make_state_memory(Sizes{kConvolutionPages}).value(),
                                kConvolutionPages, count, {});
        const auto y = chunked.run(sequences, x, cut, [&](const StepContext& step, const HostTensor& part, int64_t n) {
          const auto got = run_compiled(compiled, {{"x", part}}, step, static_cast<size_t>(n));
          return std::vector<double>(got.begin(), got.end());
        });
        EXPECT_LE(error_of(y, want), exact_f32 ? convolution_tolerance(c) : 0x1p-8);
        if (whole.empty()) whole = y;
        EXPECT_EQ(y, whole) << "chunks of " << fmt::format("{}", fmt::join(cut, ", ")) << ", " << workers << " workers";
      }
  }
}

}  // namespace

TEST(ConvolutionOp, ChunksHaveTheBitsOfTheWhole) {
  const std::vector<Sizes> cuts = {{9}, {1, 4, 4}, {1, 1, 1, 6}, {8, 1}, {3, 3, 3}};
  for (const ConvPadding padding : {ConvPadding::kZeros, ConvPadding::kReplicate}) {
    // A causal convolution of a video autoencoder, and its temporal one; 1-d as in audio; depthwise; dilated.
    expect_chunks({{{causal_axis(3, 1, 1, padding), same(3, padding), same(3, padding)}, 32, 20, {9, 4, 5}, 1, 2}},
                  cuts);
    expect_chunks({{{causal_axis(3, 1, 1, padding), axis_of(1), axis_of(1)}, 6, 12, {9, 4, 5}, 1, 1}}, cuts);
    expect_chunks({{{causal_axis(7, 1, 2, padding)}, 5, 18, {9}, 1, 3}}, cuts);
    expect_chunks({{{causal_axis(4, 1, 1, padding), same(3)}, 18, 18, {9, 11}, 18, 2}}, cuts);
  }
  // With a stride chunks are multiples of it.
  const std::vector<Sizes> even = {{12}, {2, 4, 6}, {2, 2, 8}, {10, 2}};
  expect_chunks({{{causal_axis(3, 2), axis_of(1), axis_of(1)}, 8, 8, {12, 3, 5}, 1, 1}}, even);
  expect_chunks({{{causal_axis(7, 2)}, 17, 17, {12}, 17, 2}}, even);
  expect_chunks({{{axis_of(4, 2, 1, 3)}, 4, 6, {12}, 2, 2}}, even);
}

TEST(ConvolutionOp, ChunksRoundedToBFloat16HaveTheBitsOfTheWhole) {
  Chunked chunked = {{{causal_axis(3), same(3), same(3)}, 32, 20, {9, 4, 5}, 1, 2}};
  chunked.c.type = DType::kBF16;
  expect_chunks(chunked, {{9}, {1, 4, 4}, {1, 1, 1, 6}}, false);
}

TEST(ConvolutionOp, ShapeRule) {
  const ConvAxis a = {.kernel = 3, .stride = 2, .dilation = 2, .pad_before = 1, .pad_after = 2};
  EXPECT_EQ(convolved_size(a, false, 10), 5);  // floor((10 + 3 - 4 - 1) / 2) + 1
  EXPECT_EQ(convolved_size(a, false, 1), 0);
  EXPECT_EQ(convolved_size(a, true, 10), 20);  // 9 * 2 - 3 + 4 + 1
  EXPECT_EQ(convolved_size(a, true, 0), 0);
  EXPECT_EQ(convolved_size(a, false, Dim(10)), Dim(5));
  EXPECT_EQ(convolved_size(a, false, kH), std::nullopt);
  EXPECT_EQ(convolved_size(a, true, kH), kH * Dim(2));
  EXPECT_EQ(convolved_size(same(3), false, kH), kH);
  EXPECT_EQ(causal_axis(3, 2).pad_before, 1);
  EXPECT_EQ(causal_axis(4, 1, 3).pad_before, 9);
  EXPECT_EQ(convolved_size(causal_axis(5, 4), false, 12), 3);
}

TEST(ConvolutionOp, IsLinearWithoutNeighbours) {
  Numbers n;
  GraphBuilder g("test");
  const Value x = g.input("x", DType::kF32, {kBatch * kImage * kH * kW, 8});
  g.output("y", convolution(g, {x, {kImage, kH, kW}}, kBatch, g.weight("w", n.weight({4, 8, 1, 1, 1})),
                            {.axes = {axis_of(1), axis_of(1), axis_of(1)}})
                    .value);
  const Graph graph = std::move(g.finish()).value();
  EXPECT_EQ(count(graph, kLinear), 1);
  EXPECT_EQ(count(graph, kConvolution), 0);
}

TEST(ConvolutionOp, CountsTwoOperationsATapAndChannel) {
  for (const bool is_transposed : {false, true}) {
    const ConvolutionCase c = {{axis_of(3, 2, 1, 1, 1), axis_of(5)}, 8, 12, {9, 8}, 4, 2, is_transposed};
    Numbers n;
    CaseWeight weight;
    const Sizes out = c.out_sizes();
    const int64_t pixels = is_transposed ? 9 * 8 : out[0] * out[1];
    EXPECT_EQ(graph_of(c, n, weight).flops().eval(sizes_of(c)), 2 * (2 * pixels) * 15 * 8 * 12 / 4);
  }
}

TEST(ConvolutionOp, NamesWhatDoesNotFit) {
  const auto message = [](const std::function<void(GraphBuilder&, Numbers&, Value x)>& build) {
    Numbers n;
    GraphBuilder g("test");
    build(g, n, g.input("x", DType::kF32, {kBatch * kH, 8}));
    auto graph = g.finish();
    EXPECT_FALSE(graph.ok());
    return graph.ok() ? "" : graph.status().message();
  };
  const auto expect_message = [&](const char* words, ConvolutionAttrs attrs, const Sizes& weight = {4, 8, 3},
                                  std::vector<Dim> out = {}) {
    const std::string text = message([&](GraphBuilder& g, Numbers& n, Value x) {
      convolution(g, {x, {kH}}, kBatch, g.weight("w", n.weight(weight)), attrs, {}, out);
    });
    EXPECT_NE(text.find(words), std::string::npos) << text;
  };
  expect_message("w is f32 [4, 8, 5], expected [out, 8, 3]", {.axes = {same(3)}}, {4, 8, 5});
  expect_message("expected [out, 8 / 2 groups, 3]", {.axes = {same(3)}, .groups = 2});
  expect_message("expected [8, out / 2 groups, 3]", {.axes = {same(3)}, .groups = 2, .is_transposed = true});
  expect_message("8 channels in 3 groups", {.axes = {same(3)}, .groups = 3});
  expect_message("1 sizes and 2 axes", {.axes = {same(3), same(3)}});
  expect_message("dilation 0", {.axes = {axis_of(3, 1, 0)}});
  expect_message("pads with zeros only", {.axes = {same(3, ConvPadding::kReflect)}, .is_transposed = true}, {8, 4, 3});
  expect_message("output padding of 1", {.axes = {{.kernel = 3, .output_padding = 1}}});
  expect_message("pass the sizes of the output", {.axes = {axis_of(3, 2)}});
  expect_message("of size height becomes height, not height + 1", {.axes = {same(3)}}, {4, 8, 3}, {kH + Dim(1)});
  expect_message("cannot have stride 2", {.axes = {axis_of(3, 2)}, .upsample = true});
  expect_message("needs a padding of 2 in sum, not 1 and 0", {.axes = {axis_of(3, 1, 1, 1)}, .upsample = true});
  const auto with_state = [&](const ConvAxis& axis, StateAttrs state) {
    return message([&](GraphBuilder& g, Numbers& n, Value x) {
      convolution(g, {x, {kH}}, kBatch, g.weight("w", n.weight({4, 8, 3})), {.axes = {axis}},
                  {.leading = g.state("s", state)}, {kH});
    });
  };
  const StateAttrs recurrent = {.kind = StateKind::kRecurrent, .elements = 16};
  EXPECT_NE(with_state(causal_axis(3), {}).find("s is no recurrent state"), std::string::npos);
  EXPECT_NE(with_state(same(3), recurrent).find("padded by 2 to 2 before and 0 after"), std::string::npos);
  EXPECT_NE(with_state(causal_axis(3, 1, 1, ConvPadding::kReflect), recurrent).find("begins with zeros"),
            std::string::npos);
}

TEST(ConvolutionOp, RefusesAStateThatIsTooSmall) {
  Numbers n;
  GraphBuilder g("test");
  const Value x = g.input("x", DType::kF32, {kBatch * kImage * kH, 4}),
              leading = g.state("s", {.kind = StateKind::kRecurrent, .elements = 2 * 4 * 5});
  g.output("y", convolution(g, {x, {kImage, kH}}, kBatch, g.weight("w", n.weight({4, 4, 3, 3})),
                            {.axes = {causal_axis(3), same(3)}}, {.leading = leading})
                    .value);
  const Graph graph = std::move(g.finish()).value();
  CpuCompileOptions options;
  options.kernels = cpu_kernels().value();
  options.bounds[Symbol::kBatch] = options.bounds[Symbol::kImageTokens] = 1;
  options.bounds[testing::kHeight] = 6;
  const auto program = compile_cpu(graph, options, *shared_team(1, *options.kernels));
  ASSERT_FALSE(program.ok());
  EXPECT_NE(program.status().message().find("state s has 40 elements; 2 positions of the largest size need 48"),
            std::string::npos)
      << program.status().message();
}

TEST(ConvolutionOp, TileDevicesNameWhatTheyDoNotCompute) {
  const ConvolutionCase cases[] = {{{same(3), same(3), same(3)}, 8, 8, {3, 4, 5}},
                                   {{same(3), same(3)}, 8, 8, {4, 5}, 8},
                                   {{same(3), same(5)}, 8, 8, {4, 5}},
                                   {{same(3, ConvPadding::kReflect), same(3, ConvPadding::kReflect)}, 8, 8, {4, 5}},
                                   {{same(3), same(3)}, 8, 8, {4, 5}, 1, 1, true}};
  for (const ConvolutionCase& c : cases) {
    SCOPED_TRACE(c.text());
    Numbers n;
    CaseWeight weight;
    const TileCompiled compiled = TileCompiled::make(graph_of(c, n, weight), sizes_of(c));
    ASSERT_FALSE(compiled.status.ok());
    EXPECT_NE(compiled.status.message().find("this device computes convolutions of two axes"), std::string::npos)
        << compiled.status.message();
  }
}

}  // namespace redline::test
