// Matrices that are converted when a language model is opened: bytes, reasons, logits, and the cache of packed weights.
#include "models/checkpoint/convert_graph.h"

#include <gmock/gmock.h>

#include <cstring>
#include <set>

#include "backends/cpu/weight_cache.h"
#include "graph/ops/linear.h"
#include "graph/program.h"
#include "models/files/random_model.h"
#include "models/registry.h"
#include "support/golden.h"
#include "support/safetensors_file.h"
#include "support/temporary_folder.h"
#include "support/test_device.h"
#include "tensor/dtype.h"
#include "tensor/packed_weight.h"

namespace redline::testing {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

// ---- The reference: a matrix rounded here ----

/// Rounds rows to W8A8, one scale per row, and checks in float64 that no value has moved by more than half a step. The
/// codes are those of round_row(), because values between two codes may go to either.
void round_to_w8a8(std::vector<float>& values, int64_t rows, std::vector<int8_t>& codes, std::vector<float>& scales) {
  const int64_t cols = std::ssize(values) / rows;
  std::vector<uint8_t> row(static_cast<size_t>(row_bytes(DType::kW8A8, cols)));
  for (int64_t r = 0; r < rows; ++r) {
    float* const from = values.data() + r * cols;
    double most = 0;
    for (int64_t i = 0; i < cols; ++i) most = std::max(most, std::abs(double{from[i]}));
    round_row(DType::kW8A8, from, cols, row.data());
    float scale;
    std::memcpy(&scale, row.data() + cols, sizeof(scale));
    EXPECT_NEAR(scale, most / 127, most * 0x1p-23);
    scales.push_back(scale);
    for (int64_t i = 0; i < cols; ++i) {
      codes.push_back(static_cast<int8_t>(row[static_cast<size_t>(i)]));
      const float rounded = scale * static_cast<float>(codes.back());
      EXPECT_LE(std::abs(double{rounded} - double{from[i]}), most / 254 + most * 0x1p-22);
      from[i] = rounded;
    }
  }
}

/// Rounds values to Q8_0: the same for every 32 elements, with a scale in float16, 2^-11 of which each of 127 steps may
/// move by.
void round_to_q8_0(std::vector<float>& values) {
  std::vector<uint8_t> blocks(static_cast<size_t>(row_bytes(DType::kQ8_0, std::ssize(values))));
  std::vector<float> rounded(values.size());
  round_row(DType::kQ8_0, values.data(), std::ssize(values), blocks.data());
  unpack_row(DType::kQ8_0, blocks.data(), rounded.data(), std::ssize(values));
  for (size_t block = 0; block < values.size(); block += 32) {
    double most = 0;
    for (size_t i = block; i < block + 32; ++i) most = std::max(most, std::abs(double{values[i]}));
    for (size_t i = block; i < block + 32; ++i)
      EXPECT_LE(std::abs(double{rounded[i]} - double{values[i]}), most / 254 + most * 0x1p-10);
  }
  values = rounded;
}

std::vector<float> bf16_values(const char* bytes, size_t count) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) {
    uint16_t half;
    std::memcpy(&half, bytes + 2 * i, 2);
    values[i] = bf16_to_f32(half);
  }
  return values;
}

/// Two checkpoints with the values of a golden folder as w8a8 converts them: `plain` in float32; `codes` as
/// compressed-tensors stores W8A8, with the output matrix in bf16 as before.
struct Rounded {
  json config;
  SafetensorsFile plain, codes;
  int64_t matrices = 0;
};
Rounded round_golden(const std::string& folder) {
  Rounded r;
  r.config = read_json(folder + "/config.json");
  const SafetensorsFile stored = SafetensorsFile::read(folder + "/model.safetensors");
  for (const auto& [name, entry] : stored.header.items()) {
    if (name == "__metadata__") continue;
    const auto shape = entry["shape"].get<std::vector<int64_t>>();
    size_t count = 1;
    for (const int64_t n : shape) count *= static_cast<size_t>(n);
    std::vector<float> values = bf16_values(stored.bytes_of(name), count);
    if (name.ends_with("_proj.weight") && shape[1] % 32 == 0) {
      std::vector<int8_t> codes;
      std::vector<float> scales;
      round_to_w8a8(values, shape[0], codes, scales);
      r.codes.add(name, "I8", shape, codes.data(), codes.size());
      r.codes.add(name + "_scale", "F32", {shape[0], 1}, scales.data(), 4 * scales.size());
      ++r.matrices;
    } else {
      r.codes.add(name, "BF16", shape, stored.bytes_of(name), 2 * count);
      if (name == "lm_head.weight") round_to_q8_0(values);
    }
    r.plain.add(name, "F32", shape, values.data(), 4 * values.size());
  }
  return r;
}

std::string write_folder(const TemporaryFolder& folder, const json& config, const SafetensorsFile& weights) {
  std::ofstream(folder.path() + "/config.json") << config.dump();
  weights.write(folder.path() + "/model.safetensors");
  return folder.path();
}

json with_scheme(json config) {
  config["quantization_config"] = json::parse(R"({
    "config_groups": {"group_0": {
      "input_activations": {"dynamic": true, "num_bits": 8, "strategy": "token", "symmetric": true, "type": "int"},
      "output_activations": null, "targets": ["Linear"],
      "weights": {"dynamic": false, "num_bits": 8, "strategy": "channel", "symmetric": true, "type": "int"}}},
    "format": "int-quantized", "ignore": ["lm_head"], "kv_cache_scheme": null, "quant_method": "compressed-tensors",
    "quantization_status": "compressed"})");
  return config;
}

TextEngineOptions options_of(Precision dtype, bool interpret = false, const std::string& device = "cpu") {
  TextEngineOptions options;
  options.threads = 2;
  options.dtype = dtype;
  options.use_interpreter = interpret;
  options.context = 64;
  if (!interpret) options.device = device;
  return options;
}

std::vector<float> logits_of(const std::string& path, const TextEngineOptions& options) {
  auto engine = open_engine(path, options);
  if (!engine) return {};
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < 37; ++i) tokens.push_back(i * 7 % 60);
  return all_logits(*engine, tokens);
}

Result<Graph> graph_of(const std::string& path) {
  REDLINE_ASSIGN(Checkpoint checkpoint, Checkpoint::open(path));
  REDLINE_ASSIGN(LanguageModel model, build_language_model(checkpoint));
  return std::move(model.graph);
}

// ---- Bytes ----

/// A chain of products whose weights are in memory: a, b and c convert, `odd` has rows of 33 elements, and out is the
/// output.
struct Chain {
  std::vector<float> a = waves(160 * 96), b = waves(64 * 160), c = waves(33 * 64), odd = waves(64 * 33),
                     out = waves(7 * 64);

  static std::vector<float> waves(size_t n) {
    std::vector<float> values(n);
    for (size_t i = 0; i < n; ++i) values[i] = std::sin(static_cast<float>(i) * 0.37f) * 0.1f;
    return values;
  }
  static WeightSource source(const std::vector<float>& values, int64_t rows) {
    WeightSource w;
    w.file = MappedFile::from_bytes("m", {reinterpret_cast<const char*>(values.data()), 4 * values.size()});
    w.view = {DType::kF32, {rows, std::ssize(values) / rows}, w.file->data()};
    return w;
  }
  Graph graph() const {
    GraphBuilder g("chain");
    const Value x = g.input("x", DType::kF32, {Symbol::kTokens, Dim(96)});
    WeightSource reversed = source(a, 160);
    reversed.source_row = [](int64_t n) { return 159 - n; };
    Value y = linear(g, x, g.weight("a", reversed));
    y = linear(g, y, g.weight("b", source(b, 64)));
    y = linear(g, y, g.weight("c", source(c, 33)));
    y = linear(g, y, g.weight("odd", source(odd, 64)));
    g.output("y", linear(g, y, g.weight("out", source(out, 7))), PortRole::kLogits);
    auto graph = g.finish();
    EXPECT_TRUE(graph.ok()) << graph.status().message();
    return std::move(graph).value();
  }
};

const ValueInfo& value_of(const Graph& graph, const std::string& name) {
  return *std::find_if(graph.values.begin(), graph.values.end(), [&](const ValueInfo& v) { return v.name == name; });
}

std::vector<float> unpacked(const ValueInfo& value) {
  const TensorView& view = value.weight.view;
  const int64_t rows = view.shape[0], cols = view.shape[1], stride = row_bytes(view.dtype, cols);
  value.weight.need_all();
  std::vector<float> values(static_cast<size_t>(rows * cols));
  for (int64_t n = 0; n < rows; ++n)
    unpack_row(view.dtype, static_cast<const uint8_t*>(view.data) + n * stride, values.data() + n * cols, cols);
  return values;
}

TEST(ConvertGraph, RowsAreRoundedInTheOrderOfTheValue) {
  const Chain chain;
  Graph graph = chain.graph();
  const auto conversion = convert_graph_matrices(graph, Precision::kW8A8, Precision::kW8A8);
  ASSERT_TRUE(conversion.ok()) << conversion.status().message();
  EXPECT_EQ(conversion->type, "w8a8");
  EXPECT_THAT(conversion->changed, ElementsAre("f32 x3 to w8a8", "f32 x1 to q8_0"));
  EXPECT_THAT(conversion->kept, ElementsAre("f32 x1 (rows of 33 elements, not a multiple of 32)"));
  ASSERT_TRUE(graph.check().ok());
  std::vector<float> want;
  for (int64_t n = 159; n >= 0; --n) want.insert(want.end(), chain.a.begin() + n * 96, chain.a.begin() + (n + 1) * 96);
  double squares = 0, changes = 0;
  const auto expect_rounded = [&](const char* name, const std::vector<float>& values, int64_t rows) {
    std::vector<float> rounded = values, scales;
    std::vector<int8_t> codes;
    if (rows == 7) round_to_q8_0(rounded);
    else round_to_w8a8(rounded, rows, codes, scales);
    EXPECT_EQ(unpacked(value_of(graph, name)), rounded) << name;
    for (size_t i = 0; i < values.size(); ++i) {
      squares += double{values[i]} * double{values[i]};
      changes += (double{rounded[i]} - double{values[i]}) * (double{rounded[i]} - double{values[i]});
    }
  };
  expect_rounded("a", want, 160);
  expect_rounded("b", chain.b, 64);
  expect_rounded("c", chain.c, 33);
  expect_rounded("out", chain.out, 7);
  EXPECT_EQ(value_of(graph, "odd").dtype, DType::kF32);
  // 32 rows stand for all of a matrix. The waves differ little from row to row.
  EXPECT_NEAR(conversion->relative_error, std::sqrt(changes / squares), 0.1 * std::sqrt(changes / squares));
  EXPECT_THAT(conversion->text(), StartsWith("weights f32 x3 to w8a8, f32 x1 to q8_0; kept f32 x1 (rows of 33"));
  // Released rows are converted again.
  const ValueInfo& b = value_of(graph, "b");
  const std::vector<float> before = unpacked(b);
  b.weight.file->release(0, b.weight.file->size());
  EXPECT_EQ(unpacked(b), before);
}

TEST(ConvertGraph, EachTypeConvertsWiderOnes) {
  const Chain chain;
  Graph graph = chain.graph();
  EXPECT_EQ(convert_graph_matrices(graph, Precision::kAuto, Precision::kAuto)->type, "");
  EXPECT_EQ(convert_graph_matrices(graph, Precision::kF32, Precision::kF32)->text(), "");
  EXPECT_EQ(value_of(graph, "a").dtype, DType::kF32);
  // f32 to bf16, which has no blocks, then to q8_0, then to w8a8, which is no wider but faster.
  EXPECT_THAT(convert_graph_matrices(graph, Precision::kBF16, Precision::kBF16)->changed,
              ElementsAre("f32 x5 to bf16"));
  EXPECT_THAT(convert_graph_matrices(graph, Precision::kQ8_0, Precision::kQ8_0)->changed,
              ElementsAre("bf16 x4 to q8_0"));
  const auto last = convert_graph_matrices(graph, Precision::kW8A8, Precision::kW8A8);
  EXPECT_THAT(last->changed, ElementsAre("q8_0 x3 to w8a8"));
  EXPECT_THAT(last->kept, ElementsAre("bf16 x1 (rows of 33 elements, not a multiple of 32)", "q8_0 x1 (already q8_0)"));
  // A model that has the type is taken as it is; one that is narrower is refused.
  const auto again = convert_graph_matrices(graph, Precision::kW8A8, Precision::kW8A8);
  ASSERT_TRUE(again.ok());
  EXPECT_THAT(again->changed, IsEmpty());
  EXPECT_EQ(again->relative_error, 0);
  const Status narrow = convert_graph_matrices(graph, Precision::kQ8_0, Precision::kQ8).status();
  EXPECT_EQ(narrow.code(), Code::unsupported);
  EXPECT_EQ(narrow.message(),
            "dtype q8 (q8_0 on this device): no matrix of a layer can be converted: w8a8 x3 (not wider than q8_0), "
            "bf16 x1 (rows of 33 elements, not a multiple of 32), q8_0 x1 (already q8_0); dtype auto runs the model as "
            "it is");
}

// ---- Models ----

TEST(ConvertedModel, HasTheLogitsOfItsRoundedWeights) {
  for (const char* name : {"llama_one_kv_head", "llama_hd128", "mistral_window", "olmo2"}) {
    SCOPED_TRACE(name);
    const std::string golden = golden_root() + "/" + name;
    const Rounded rounded = round_golden(golden);
    ASSERT_GT(rounded.matrices, 0);
    const TemporaryFolder plain_folder, codes_folder;
    const std::string plain = write_folder(plain_folder, rounded.config, rounded.plain),
                      codes = write_folder(codes_folder, with_scheme(rounded.config), rounded.codes);
    const std::vector<float> want = logits_of(plain, options_of(Precision::kAuto, true));
    ASSERT_FALSE(want.empty());
    EXPECT_EQ(logits_of(golden, options_of(Precision::kW8A8, true)), want);
    for (const std::string& device : {std::string("cpu"), test::test_device()}) {
      SCOPED_TRACE(device);
      const std::vector<float> got = logits_of(golden, options_of(Precision::kW8A8, false, device));
      ASSERT_EQ(got.size(), want.size());
      // x is rounded to its largest over 254, and rows have fewer than 1024 elements: the bound of 8 bits that
      // docs/numerics.md derives.
      const Difference d = difference(got.data(), want.data(), 37, std::ssize(want) / 37);
      EXPECT_LE(d.worst_row, 9.5e-2);
      EXPECT_LE(d.rms, 5.3e-2);
      RecordProperty("rms_error", fmt::format("{:.2e}", d.rms));
      // A checkpoint that has the codes is the same model; its output matrix is converted as well.
      EXPECT_EQ(logits_of(codes, options_of(Precision::kW8A8, false, device)), got);
    }
    const auto engine = open_engine(codes, options_of(Precision::kW8A8));
    ASSERT_TRUE(engine);
    EXPECT_THAT(engine->info().conversion.changed, ElementsAre("bf16 x1 to q8_0"));
    EXPECT_THAT(engine->info().conversion.kept, ::testing::Contains(HasSubstr("(already w8a8)")));
  }
}

TEST(ConvertedModel, QuantizedFilesAreConvertedToo) {
  const std::string q8_0 = "random:tiny:q8_0";
  const auto open = [&](const std::string& path, const TextEngineOptions& options) {
    auto engine = TextEngine::open(path, options);
    EXPECT_TRUE(engine.ok()) << engine.status().message();
    return engine.ok() ? std::move(engine).value() : nullptr;
  };
  const auto reference = open(q8_0, options_of(Precision::kW8A8, true)),
             engine = open(q8_0, options_of(Precision::kW8A8));
  ASSERT_TRUE(reference && engine);
  EXPECT_THAT(engine->info().conversion.changed, ElementsAre(::testing::MatchesRegex("q8_0 x[0-9]+ to w8a8")));
  EXPECT_THAT(engine->info().weight_types, HasSubstr("w8a8 x"));
  EXPECT_GT(engine->info().conversion.relative_error, 1e-3);
  EXPECT_LT(engine->info().conversion.relative_error, 2e-2);
  const std::vector<int32_t> tokens = {1, 5, 9, 60, 3, 3, 17, 40, 22, 8, 31, 2};
  const std::vector<float> want = all_logits(*reference, tokens), got = all_logits(*engine, tokens);
  const Difference d = difference(got.data(), want.data(), std::ssize(tokens), std::ssize(want) / std::ssize(tokens));
  EXPECT_LE(d.worst_row, 9.5e-2);
  EXPECT_LE(d.rms, 5.3e-2);
  // q8_0 of a Q8_0 file is the file.
  const auto same = open(q8_0, options_of(Precision::kQ8_0)), stored = open(q8_0, options_of(Precision::kAuto));
  ASSERT_TRUE(same && stored);
  EXPECT_EQ(all_logits(*same, tokens), all_logits(*stored, tokens));
  EXPECT_THAT(same->info().conversion.changed, IsEmpty());
  for (const char* type : {"q4_0", "q4_k", "q6_k", "mxfp4"}) {
    const Status status = TextEngine::open(fmt::format("random:tiny:{}", type), options_of(Precision::kW8A8)).status();
    EXPECT_EQ(status.code(), Code::unsupported) << type;
    EXPECT_THAT(status.message(), HasSubstr("dtype w8a8: no matrix of a layer can be converted: ")) << type;
    EXPECT_THAT(status.message(), HasSubstr(fmt::format("{} x", type))) << type;
    EXPECT_THAT(status.message(), HasSubstr("(not wider than w8a8)")) << type;
  }
}

TEST(ConvertedModel, EveryFamilyRunsOrSaysWhyNot) {
  int64_t ran = 0;
  for (const std::string& name : golden_models()) {
    SCOPED_TRACE(name);
    const std::string path = golden_root() + "/" + name;
    const std::vector<int32_t> tokens = load_golden(golden_folder(name)).tokens;
    TextEngineOptions options = options_of(Precision::kW8A8), interpreted = options_of(Precision::kW8A8, true);
    options.context = interpreted.context = std::ssize(tokens);
    auto opened = TextEngine::open(path, options);
    if (!opened.ok()) {
      EXPECT_EQ(opened.status().code(), Code::unsupported);
      EXPECT_THAT(opened.status().message(), HasSubstr("dtype w8a8: no matrix of a layer can be converted: "));
      continue;
    }
    ++ran;
    const auto reference = open_engine(path, interpreted);
    ASSERT_TRUE(reference);
    const std::vector<float> want = all_logits(*reference, tokens), got = all_logits(**opened, tokens);
    ASSERT_EQ(got.size(), want.size());
    const Difference d = difference(got.data(), want.data(), std::ssize(tokens), std::ssize(want) / std::ssize(tokens));
    // Rounding x may change the choice of experts, after which logits differ by any amount.
    const auto& kept = (*opened)->info().conversion.kept;
    const bool has_router = std::any_of(kept.begin(), kept.end(), [](const std::string& text) {
      return text.find("choose or weigh experts") != std::string::npos;
    });
    if (has_router) EXPECT_TRUE(std::isfinite(d.rms));
    // The bound for two layers is 5.3e-2, and the errors of layers are independent.
    else EXPECT_LE(d.rms, 5.3e-2 * std::sqrt(std::max(2.0, static_cast<double>((*opened)->info().num_layers)) / 2));
  }
  EXPECT_GT(ran, 50);
}

TEST(ConvertedModel, RoutersKeepTheirType) {
  const auto engine = open_engine(golden_root() + "/qwen2_moe", options_of(Precision::kW8A8));
  ASSERT_TRUE(engine);
  EXPECT_THAT(engine->info().conversion.kept,
              ::testing::Contains(::testing::EndsWith("x4 (they choose or weigh experts)")));
}

// ---- The cache of packed weights ----

TEST(ConvertedModel, PackedWeightsAreCachedByType) {
  const std::string path = golden_root() + "/llama_gqa";
  const TemporaryFolder folder;
  WorkerTeam team(2);
  /// Packs every matrix of the model, or maps the file with what a former call has packed.
  struct Packed {
    std::string file;
    bool is_loaded = false;
    std::vector<uint8_t> bytes;
  };
  const auto pack = [&](Precision precision) {
    Packed packed;
    Graph graph = graph_of(path).value();
    EXPECT_TRUE(convert_graph_matrices(graph, precision, precision).ok());
    std::vector<PackedWeight> weights;
    int64_t at = 0;
    for (const ValueInfo& value : graph.values) {
      if (value.kind != ValueKind::kWeight || value.weight.view.shape.size() != 2) continue;
      weights.push_back({&value, at, packed_bytes(value.weight.view)});
      at += (weights.back().bytes + 4095) / 4096 * 4096;
    }
    const WeightCache cache({.cache = {folder.path(), int64_t{1} << 30}, .min_bytes = 1, .kernels = "test"}, weights);
    EXPECT_TRUE(cache.enabled());
    packed.file = cache.name();
    const AlignedBuffer region = AlignedBuffer::make(at).value();
    packed.is_loaded = cache.load(region.data(), team);
    if (!packed.is_loaded) {
      for (const PackedWeight& w : weights) {
        w.value->weight.need_all();
        pack_row_panels(w.value->weight.view, 0, (w.value->weight.view.shape[0] + 15) / 16,
                        static_cast<uint8_t*>(region.data()) + w.offset, w.value->weight.source_row);
      }
      const auto writer = cache.store(region.data());
      EXPECT_TRUE(writer && writer->wait());
    }
    for (const PackedWeight& w : weights) {
      const auto* begin = static_cast<const uint8_t*>(region.data()) + w.offset;
      packed.bytes.insert(packed.bytes.end(), begin, begin + w.bytes);
    }
    return packed;
  };
  constexpr Precision kTypes[] = {Precision::kAuto, Precision::kQ8_0, Precision::kW8A8};
  std::vector<Packed> first;
  for (const Precision type : kTypes) first.push_back(pack(type));
  std::set<std::string> files;
  for (size_t i = 0; i < std::size(kTypes); ++i) {
    EXPECT_FALSE(first[i].is_loaded);
    files.insert(first[i].file);
    const Packed second = pack(kTypes[i]);
    EXPECT_TRUE(second.is_loaded);
    EXPECT_EQ(second.file, first[i].file);
    EXPECT_EQ(second.bytes, first[i].bytes);
  }
  EXPECT_EQ(files.size(), std::size(kTypes));
}

}  // namespace
}  // namespace redline::testing
