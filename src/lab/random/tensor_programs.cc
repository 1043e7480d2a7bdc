#include "lab/random/tensor_programs.h"

#include "graph/ops/linear.h"
#include "graph/ops/lstm.h"
#include "models/files/random_model.h"

namespace redline::lab {
namespace {

Result<Value> random_weight(GraphBuilder& g, const std::string& name, const std::vector<int64_t>& shape, DType type) {
  REDLINE_ASSIGN(WeightSource source, make_random_weight(name, shape, type));
  return g.weight(name, std::move(source));
}

Result<Value> products(GraphBuilder& g, Value x, const TensorProgram& program, int64_t columns, int64_t width,
                       DType type) {
  for (int64_t i = 0, in = columns; i < program.products; ++i) {
    const int64_t out = i + 1 < program.products || program.columns == 0 ? width : columns;
    REDLINE_ASSIGN(const Value weight, random_weight(g, fmt::format("product.{}.weight", i), {out, in}, type));
    x = linear(g, x, weight, {});
    in = out;
  }
  return x;
}

Result<Value> lstm_layers(GraphBuilder& g, Value x, const TensorProgram& program, int64_t columns, int64_t width,
                          DType type) {
  const LstmAttrs attrs = {.hidden_size = width, .dilation = program.dilation};
  StateAttrs state;
  state.kind = StateKind::kRecurrent;
  state.elements = attrs.state_elements();
  std::vector<LstmLayer> layers;
  for (int64_t l = 0; l < attrs.num_layers(); ++l) {
    const auto weight = [&](const char* name, const std::vector<int64_t>& shape) {
      return random_weight(g, fmt::format("{}_l{}", name, l), shape, type);
    };
    LstmLayer layer;
    REDLINE_ASSIGN(layer.weight_ih, weight("weight_ih", {4 * width, l == 0 ? columns : width}));
    REDLINE_ASSIGN(layer.weight_hh, weight("weight_hh", {4 * width, width}));
    REDLINE_ASSIGN(layer.bias_ih, weight("bias_ih", {4 * width}));
    REDLINE_ASSIGN(layer.bias_hh, weight("bias_hh", {4 * width}));
    layers.push_back(layer);
  }
  return lstm(g, x, layers, g.state("state", state), attrs);
}

}  // namespace

const std::vector<TensorProgram>& tensor_programs() {
  // The sizes are those of FractalTensor's benchmarks. They give no size for a matrix product, so gemm is a square one.
  static const std::vector<TensorProgram> kPrograms = {
      {"gemm", "a matrix product", 2048, 0, 0, 2048, {}, 1},
      {"b2b-gemm", "two matrix products in a row", 512, 64, 0, 8192, {}, 2},
      {"stacked-lstm", "an LSTM of 32 layers", 256, 0, 256, 64, std::vector<int64_t>(32, 1)},
      {"dilated-lstm", "an LSTM of 6 layers with dilations 1 to 32", 256, 0, 256, 50, {1, 2, 4, 8, 16, 32}},
  };
  return kPrograms;
}

const TensorProgram* find_tensor_program(std::string_view name) {
  for (const TensorProgram& program : tensor_programs())
    if (program.name == name) return &program;
  return nullptr;
}

Result<RandomNetwork> make_tensor_program(const TensorProgram& program, DType weights, int64_t width) {
  constexpr int64_t kUnit = 16;
  if (width == 0) width = program.width;
  if (width < kUnit || width > 8192 || width % kUnit != 0)
    return invalid_argument("side {} is not a multiple of {} in [{}, 8192]", width, kUnit, kUnit);
  const int64_t columns = program.columns == 0 ? width : program.columns;
  RandomNetwork network;
  network.name = program.name;
  network.weights = weights;
  GraphBuilder g(network.name);
  const Value x = g.input("x", DType::kF32, {Dim(Symbol::kTokens), Dim(columns)});
  REDLINE_ASSIGN(const Value y,
                 (program.dilation.empty() ? products : lstm_layers)(g, x, program, columns, width, weights));
  g.output("y", y);
  REDLINE_ASSIGN(network.graph, g.finish());
  const auto sizes_of = [](int64_t sequences, int64_t tokens) {
    SymbolValues sizes;
    sizes[Symbol::kTokens] = std::max<int64_t>(sequences, 1) * tokens;
    sizes[Symbol::kSequences] = sequences;
    return sizes;
  };
  network.sizes = sizes_of(program.sequences, program.tokens);
  network.check_sizes = sizes_of(std::min<int64_t>(program.sequences, 3), std::min<int64_t>(program.tokens, 19));
  const auto describe = [](const SymbolValues& sizes) {
    const int64_t tokens = sizes[Symbol::kTokens], sequences = sizes[Symbol::kSequences];
    return sequences == 0 ? fmt::format("{} rows", tokens)
                          : fmt::format("{} sequences of {} tokens", sequences, tokens / sequences);
  };
  network.about = fmt::format("{}, {} columns, {}", program.about, width, describe(network.sizes));
  network.check_about = describe(network.check_sizes);
  return network;
}

}  // namespace redline::lab
