// compressed-tensors' int-quantized W8A8: a golden folder's matrices rounded to int8 here, written as such a checkpoint
// writes them, against the same values as float32.
#include <cstring>

#include "support/golden.h"
#include "support/safetensors_file.h"
#include "support/temporary_folder.h"
#include "tensor/dtype.h"

namespace redline::testing {
namespace {

using nlohmann::json;

json scheme() {
  return json::parse(R"({
    "config_groups": {"group_0": {
      "input_activations": {"actorder": null, "block_structure": null, "dynamic": true, "group_size": null,
      "num_bits": 8,
                            "observer": null, "observer_kwargs": {}, "strategy": "token", "symmetric": true,
                            "type": "int"},
      "output_activations": null,
      "targets": ["Linear"],
      "weights": {"actorder": null, "block_structure": null, "dynamic": false, "group_size": null, "num_bits": 8,
                  "observer": "minmax", "observer_kwargs": {}, "strategy": "channel", "symmetric": true,
                  "type": "int"}}},
    "format": "int-quantized", "global_compression_ratio": 1.5, "ignore": ["lm_head"], "kv_cache_scheme": null,
    "quant_method": "compressed-tensors", "quantization_status": "compressed"})");
}

using IntQuantizedWeights = SafetensorsFile;

/// Two checkpoints of the same values: `codes` int-quantized, `plain` float32.
struct Pair {
  json config;
  IntQuantizedWeights codes, plain;
};
Pair make_pair() {
  const std::string source = golden_root() + "/llama_hd128";
  Pair pair;
  pair.config = read_json(source + "/config.json");
  const IntQuantizedWeights stored = IntQuantizedWeights::read(source + "/model.safetensors");
  for (const auto& [name, entry] : stored.header.items()) {
    if (name == "__metadata__") continue;
    const auto shape = entry["shape"].get<std::vector<int64_t>>();
    int64_t count = 1;
    for (const int64_t n : shape) count *= n;
    const char* raw = stored.bytes_of(name);
    std::vector<float> values(static_cast<size_t>(count));
    for (size_t i = 0; i < values.size(); ++i) {
      uint16_t half;
      std::memcpy(&half, raw + 2 * i, 2);
      values[i] = bf16_to_f32(half);
    }
    // Rows of 48 are not whole blocks; as lm_head they are left out.
    const bool rounds = name.ends_with("_proj.weight") && shape[1] % 32 == 0;
    if (rounds) {
      std::vector<int8_t> codes(values.size());
      std::vector<uint16_t> scales;
      for (int64_t r = 0; r < shape[0]; ++r) {
        float* row = values.data() + r * shape[1];
        float most = 0;
        for (int64_t i = 0; i < shape[1]; ++i) most = std::max(most, std::abs(row[i]));
        scales.push_back(f32_to_bf16(most / 127));
        const float scale = bf16_to_f32(scales.back());
        for (int64_t i = 0; i < shape[1]; ++i) {
          const float code = std::clamp(std::nearbyint(row[i] / scale), -128.0f, 127.0f);
          codes[static_cast<size_t>(r * shape[1] + i)] = static_cast<int8_t>(code);
          row[i] = scale * code;
        }
      }
      pair.codes.add(name, "I8", shape, codes.data(), codes.size());
      pair.codes.add(name + "_scale", "BF16", {shape[0], 1}, scales.data(), 2 * scales.size());
    } else {
      pair.codes.add(name, "BF16", shape, raw, static_cast<size_t>(2 * count));
    }
    pair.plain.add(name, "F32", shape, values.data(), 4 * values.size());
  }
  return pair;
}

std::string write_folder(const TemporaryFolder& folder, const json& config, const IntQuantizedWeights& weights) {
  std::ofstream(folder.path() + "/config.json") << config.dump();
  weights.write(folder.path() + "/model.safetensors");
  return folder.path();
}

std::vector<float> logits_of(const std::string& path, ComputeType dtype, bool interpret) {
  TextEngineOptions options;
  options.threads = 2;
  options.dtype = dtype;
  options.use_interpreter = interpret;
  options.context = 64;
  auto engine = open_engine(path, options);
  if (!engine) return {};
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < 37; ++i) tokens.push_back(i * 7 % 64);
  return all_logits(*engine, tokens);
}

TEST(IntQuantized, EqualsItsValuesInFloat32) {
  const Pair pair = make_pair();
  const TemporaryFolder codes_folder, plain_folder;
  json config = pair.config;
  config["quantization_config"] = scheme();
  const std::string codes = write_folder(codes_folder, config, pair.codes);
  const std::string plain = write_folder(plain_folder, pair.config, pair.plain);
  EXPECT_EQ(logits_of(codes, ComputeType::kAuto, true), logits_of(plain, ComputeType::kAuto, true));
  // Both add equal products in the same order: the code times its scale is the value.
  EXPECT_EQ(logits_of(codes, ComputeType::kF32, false), logits_of(plain, ComputeType::kF32, false));
  // x is rounded to its row's largest over 254, and rows are up to 256 elements: docs/numerics.md's bound of 8 bits.
  const std::vector<float> want = logits_of(plain, ComputeType::kAuto, true),
                           got = logits_of(codes, ComputeType::kAuto, false);
  ASSERT_EQ(got.size(), want.size());
  const Difference d = difference(got.data(), want.data(), 37, 64);
  EXPECT_LE(d.worst_row, 9.5e-2);
  EXPECT_LE(d.rms, 5.3e-2);
  RecordProperty("rms_error", fmt::format("{:.2e}", d.rms));
}

TEST(IntQuantized, OtherSchemesAreRefused) {
  const Pair pair = make_pair();
  const auto open = [&](const std::function<void(json & scheme, IntQuantizedWeights & weights)>& change) {
    const TemporaryFolder folder;
    json config = pair.config, quantization = scheme();
    IntQuantizedWeights weights = pair.codes;
    change(quantization, weights);
    config["quantization_config"] = quantization;
    return TextEngine::open(write_folder(folder, config, weights), {}).status().message();
  };
  const auto contains = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  const auto group = [](json& s) -> json& { return s["config_groups"]["group_0"]; };
  struct Row {
    const char* expected;
    std::function<void(json&, IntQuantizedWeights&)> change;
  };
  const std::vector<Row> rows = {
      {"quant_method is bitsandbytes", [](json& s, IntQuantizedWeights&) { s["quant_method"] = "bitsandbytes"; }},
      {"format is float-quantized", [](json& s, IntQuantizedWeights&) { s["format"] = "float-quantized"; }},
      {"weights.num_bits is 4", [&](json& s, IntQuantizedWeights&) { group(s)["weights"]["num_bits"] = 4; }},
      {"weights.strategy is tensor",
       [&](json& s, IntQuantizedWeights&) { group(s)["weights"]["strategy"] = "tensor"; }},
      {"weights.symmetric is false", [&](json& s, IntQuantizedWeights&) { group(s)["weights"]["symmetric"] = false; }},
      {"input_activations.dynamic is false",
       [&](json& s, IntQuantizedWeights&) { group(s)["input_activations"]["dynamic"] = false; }},
      {"no \"input_activations\"", [&](json& s, IntQuantizedWeights&) { group(s)["input_activations"] = nullptr; }},
      {"it has a kv_cache_scheme",
       [](json& s, IntQuantizedWeights&) {
         s["kv_cache_scheme"] = {{"num_bits", 8}};
       }},
      {"no \"config_groups\"", [](json& s, IntQuantizedWeights&) { s.erase("config_groups"); }},
      {"no object", [](json& s, IntQuantizedWeights&) { s = "int8"; }},
      {"is int8 and has no scales",
       [](json&, IntQuantizedWeights& w) { w.header.erase("model.layers.0.self_attn.q_proj.weight_scale"); }},
      {"a float for each of 256 rows is expected",
       [](json&, IntQuantizedWeights& w) {
         w.header["model.layers.0.self_attn.q_proj.weight_scale"] =
             w.header["model.layers.0.self_attn.k_proj.weight_scale"];
         w.header.erase("model.layers.0.self_attn.k_proj.weight_scale");
         w.header.erase("model.layers.0.self_attn.k_proj.weight");
       }},
      {"scale holds",
       [](json&, IntQuantizedWeights& w) {
         const auto at = w.header["model.layers.0.self_attn.q_proj.weight_scale"]["data_offsets"][0].get<size_t>();
         w.data[at] = '\x80', w.data[at + 1] = '\x7f';
       }},
  };
  for (const Row& row : rows) {
    const std::string message = open(row.change);
    EXPECT_TRUE(contains(message, row.expected)) << row.expected << ": " << message;
  }
  EXPECT_TRUE(contains(open(rows[0].change), "int-quantized W8A8")) << "it says what is read";
  // Without the section int8 tensors stay what nobody reads.
  const TemporaryFolder folder;
  EXPECT_TRUE(
      contains(TextEngine::open(write_folder(folder, pair.config, pair.codes), {}).status().message(), "has type I8"));
}

}  // namespace
}  // namespace redline::testing
