// GPTQ, AWQ and compressed-tensors' pack-quantized: random models rounded and packed here as the formats are described,
// against the same values as float32.
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>

#include "formats/gguf_writer.h"
#include "graph/weight_range.h"
#include "models/checkpoint/checkpoint.h"
#include "models/files/checkpoint_to_gguf.h"
#include "support/golden.h"
#include "support/rounded_checkpoint.h"
#include "support/temporary_folder.h"
#include "support/test_device.h"
#include "support/text_adapter_files.h"
#include "tensor/dtype.h"

namespace redline::testing::grouped {
namespace {

using nlohmann::json;

// Models --------------------------------------------------------------------------------------------------------------

constexpr int64_t kHidden = 128, kInner = 192, kHeads = 4, kKvHeads = 2, kHeadDim = 32, kVocab = 64, kLayers = 2;

struct Model {
  json config;
  SafetensorsFile rounded, plain;  // the same values
  std::map<std::string, Rounded> matrices;
};

Model make_model(const Case& c) {
  Model m;
  m.config = {{"model_type", c.has_bias ? "qwen2" : "llama"},
              {"architectures", {c.has_bias ? "Qwen2ForCausalLM" : "LlamaForCausalLM"}},
              {"vocab_size", kVocab},
              {"hidden_size", kHidden},
              {"intermediate_size", kInner},
              {"num_hidden_layers", kLayers},
              {"num_attention_heads", kHeads},
              {"num_key_value_heads", kKvHeads},
              {"head_dim", kHeadDim},
              {"max_position_embeddings", 128},
              {"rms_norm_eps", 1e-5},
              {"rope_theta", 10000.0},
              {"hidden_act", "silu"},
              {"tie_word_embeddings", c.is_tied}};
  std::mt19937 random(7);
  const auto normal = [&](int64_t count, double deviation, double mean = 0) {
    std::normal_distribution<double> numbers(mean, deviation);
    std::vector<float> values(static_cast<size_t>(count));
    for (float& value : values) value = bf16_to_f32(f32_to_bf16(static_cast<float>(numbers(random))));
    return values;
  };
  const auto add = [&](const std::string& name, const std::vector<int64_t>& shape, const std::vector<float>& values) {
    m.plain.add(name, "F32", shape, values.data(), 4 * values.size());
    m.rounded.add(name, "F32", shape, values.data(), 4 * values.size());
  };
  std::map<int64_t, std::vector<int32_t>> orders;  // of the inputs, as checkpoints have them for all that read one
  const auto add_linear = [&](const std::string& module, int64_t rows, int64_t cols, bool has_bias, bool own_order) {
    std::vector<float> values = normal(rows * cols, 1.3 / std::sqrt(static_cast<double>(cols)));
    std::vector<int32_t>& order = orders[own_order ? -static_cast<int64_t>(orders.size()) : cols];
    if (order.empty()) {
      order.resize(static_cast<size_t>(cols));
      std::iota(order.begin(), order.end(), 0);
      std::shuffle(order.begin(), order.end(), random);
    }
    const Rounded r = round_matrix(values, rows, cols, c.how, order);
    for (int64_t n = 0; n < rows; ++n)
      for (int64_t k = 0; k < cols; ++k) values[static_cast<size_t>(n * cols + k)] = static_cast<float>(r.value(n, k));
    m.plain.add(module + ".weight", "F32", {rows, cols}, values.data(), 4 * values.size());
    if (c.format == Format::kAwq) write_awq(m.rounded, module, r, c.how);
    else if (c.format == Format::kPacked) write_packed(m.rounded, module, r, c.how);
    else write_gptq(m.rounded, module, r, c.how, c.format == Format::kGptqV2);
    if (has_bias) add(module + ".bias", {rows}, normal(rows, 0.3));
    m.matrices[module + ".weight"] = r;
  };
  add("model.embed_tokens.weight", {kVocab, kHidden}, normal(kVocab * kHidden, 1));
  for (int64_t i = 0; i < kLayers; ++i) {
    const std::string layer = fmt::format("model.layers.{}.", i);
    for (const char* norm : {"input_layernorm.weight", "post_attention_layernorm.weight"})
      add(layer + norm, {kHidden}, normal(kHidden, 0.3, 1));
    add_linear(layer + "self_attn.q_proj", kHeads * kHeadDim, kHidden, c.has_bias, false);
    add_linear(layer + "self_attn.k_proj", kKvHeads * kHeadDim, kHidden, c.has_bias, false);
    add_linear(layer + "self_attn.v_proj", kKvHeads * kHeadDim, kHidden, c.has_bias, i == 1);
    add_linear(layer + "self_attn.o_proj", kHidden, kHeads * kHeadDim, false, true);
    add_linear(layer + "mlp.gate_proj", kInner, kHidden, false, false);
    add_linear(layer + "mlp.up_proj", kInner, kHidden, false, false);
    add_linear(layer + "mlp.down_proj", kHidden, kInner, false, false);
  }
  add("model.norm.weight", {kHidden}, normal(kHidden, 0.3, 1));
  if (!c.is_tied) add("lm_head.weight", {kVocab, kHidden}, normal(kVocab * kHidden, 0.1));
  return m;
}

std::string write_folder(const TemporaryFolder& folder, const json& config, const SafetensorsFile& weights) {
  std::ofstream(folder.path() + "/config.json") << config.dump();
  weights.write(folder.path() + "/model.safetensors");
  return folder.path();
}

json with_quantization(const Model& m, const Case& c) {
  json config = m.config;
  config["quantization_config"] = quantization_config(c);
  return config;
}

constexpr int64_t kTokens = 37;

std::vector<float> logits_of(const std::string& path, ComputeType dtype, bool interpret,
                             const std::string& device = "") {
  TextEngineOptions options;
  options.threads = 2;
  options.dtype = dtype;
  options.use_interpreter = interpret;
  options.context = 64;
  if (!device.empty()) options.device = device;
  auto engine = open_engine(path, options);
  if (!engine) return {};
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < kTokens; ++i) tokens.push_back(i * 7 % kVocab);
  return all_logits(*engine, tokens);
}

constexpr Case kCases[] = {
    {"GptqV1", Format::kGptq, {}, DType::kQ4_0},
    {"GptqV1Asymmetric", Format::kGptq, {.is_symmetric = false}, DType::kQ5_0},
    {"GptqV2Asymmetric64", Format::kGptqV2, {.group_size = 64, .is_symmetric = false}, DType::kQ5_0, true},
    {"GptqActOrder", Format::kGptq, {.group_size = 64, .has_order = true}, DType::kQ4_0},
    {"GptqActOrderAsymmetric", Format::kGptqV2, {.is_symmetric = false, .has_order = true}, DType::kQ5_0, true},
    {"Gptq8", Format::kGptq, {.bits = 8}, DType::kQ8_0},
    {"Gptq2", Format::kGptq, {.bits = 2, .is_symmetric = false}, DType::kQ4_0},
    {"GptqChannelsBf16", Format::kGptq, {.group_size = 0, .scale_type = "BF16"}, DType::kQ4_0},
    {"Awq", Format::kAwq, {.group_size = 64, .is_symmetric = false}, DType::kQ5_0, true, true},
    {"AwqSymmetric", Format::kAwq, {}, DType::kQ4_0},
    {"Packed", Format::kPacked, {.group_size = 64, .scale_type = "BF16"}, DType::kQ4_0},
    {"PackedAsymmetric", Format::kPacked, {.is_symmetric = false}, DType::kQ5_0},
    {"PackedChannels8", Format::kPacked, {.bits = 8, .group_size = 0, .scale_type = "BF16"}, DType::kQ8_0, true},
    {"Packed2Asymmetric", Format::kPacked, {.bits = 2, .is_symmetric = false}, DType::kQ4_0},
    {"PackedActOrder", Format::kPacked, {.has_order = true}, DType::kQ4_0},
};

class Grouped : public ::testing::TestWithParam<Case> {};

TEST_P(Grouped, EveryElementIsExact) {
  const Model m = make_model(GetParam());
  const TemporaryFolder folder;
  const auto checkpoint = Checkpoint::open(write_folder(folder, with_quantization(m, GetParam()), m.rounded));
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().to_string();
  EXPECT_NE(checkpoint->quantization, "");
  std::set<uint64_t> identities;
  bool is_smallest = true;
  for (const auto& [name, r] : m.matrices) {
    ASSERT_TRUE(checkpoint->tensors.count(name)) << name;
    const WeightSource& source = checkpoint->tensors.at(name);
    is_smallest &= source.view.dtype == GetParam().type;
    ASSERT_EQ(source.view.shape, (std::vector<int64_t>{r.rows, r.cols}));
    EXPECT_NE(source.file->identity(), 0u);
    identities.insert(source.file->identity());
    const auto expect_exact = [&] {
      std::vector<float> row(static_cast<size_t>(r.cols));
      const auto* data = static_cast<const uint8_t*>(source.view.data);
      for (int64_t n = 0; n < r.rows; ++n) {
        unpack_row(source.view.dtype, data + n * row_bytes(source.view.dtype, r.cols), row.data(), r.cols);
        for (int64_t k = 0; k < r.cols; ++k)
          ASSERT_EQ(double{row[static_cast<size_t>(k)]},
                    r.value(n, source.columns ? (*source.columns)[static_cast<size_t>(k)] : k))
              << name << " " << n << " " << k;
      }
    };
    source.need_rows(r.rows - 1, 1);
    source.need_all();
    expect_exact();
    source.file->release(0, source.view.bytes());
    source.need_all();
    expect_exact();
    EXPECT_EQ(source.columns != nullptr, GetParam().how.has_order) << name;
    // Parts for ranks are as exact. Columns in another order are not divided.
    for (const WeightRange& range :
         {WeightRange{r.rows / 4, r.rows / 2, 0, r.cols}, WeightRange{0, r.rows, r.cols / 2, r.cols / 2}}) {
      const Result<WeightSource> part = take_range(name, source, range);
      if (range.cols < r.cols && source.columns) {
        EXPECT_EQ(part.status().code(), Code::unsupported) << part.status().message();
        continue;
      }
      ASSERT_TRUE(part.ok()) << part.status().to_string();
      part->need_all();
      std::vector<float> row(static_cast<size_t>(range.cols));
      for (int64_t n = 0; n < range.rows; ++n) {
        unpack_row(part->view.dtype,
                   static_cast<const uint8_t*>(part->view.data) + n * row_bytes(part->view.dtype, range.cols),
                   row.data(), range.cols);
        for (int64_t k = 0; k < range.cols; ++k) {
          const int64_t from = source.columns ? (*source.columns)[static_cast<size_t>(k)] : range.col_begin + k;
          ASSERT_EQ(double{row[static_cast<size_t>(k)]}, r.value(range.row_begin + n, from))
              << name << range.to_string();
        }
      }
    }
  }
  EXPECT_TRUE(is_smallest);
  EXPECT_EQ(identities.size(), m.matrices.size());
}

TEST_P(Grouped, EqualsItsValuesInFloat32) {
  const Model m = make_model(GetParam());
  const TemporaryFolder rounded_folder, plain_folder;
  const std::string rounded = write_folder(rounded_folder, with_quantization(m, GetParam()), m.rounded);
  const std::string plain = write_folder(plain_folder, m.config, m.plain);
  const std::vector<float> want = logits_of(plain, ComputeType::kAuto, true);
  ASSERT_EQ(want.size(), static_cast<size_t>(kTokens * kVocab));
  const auto compare = [&](const std::vector<float>& got) {
    EXPECT_EQ(got.size(), want.size());
    return got.size() == want.size() ? difference(got.data(), want.data(), kTokens, kVocab)
                                     : Difference{INFINITY, INFINITY, INFINITY, INFINITY};
  };
  // Both compute with equal values in float64; act-order adds their products in another order, and logits are rounded
  // to float32 once.
  if (GetParam().how.has_order) EXPECT_LE(compare(logits_of(rounded, ComputeType::kAuto, true)).worst_row, 2.4e-7);
  else EXPECT_EQ(logits_of(rounded, ComputeType::kAuto, true), want);
  // docs/numerics.md: float32 sums of exact weights; activations in 8 bits.
  for (const std::string& device : {std::string(), std::string(test::test_device())}) {
    EXPECT_LE(compare(logits_of(rounded, ComputeType::kF32, false, device)).worst_row, 2e-5) << device;
    const Difference d = compare(logits_of(rounded, ComputeType::kAuto, false, device));
    EXPECT_LE(d.worst_row, 9.5e-2) << device;
    EXPECT_LE(d.rms, 5.3e-2) << device;
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, Grouped, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(GroupedCheckpoints, Float32ScalesAreRoundedToFloat16) {
  const Case c = {"", Format::kPacked, {.is_symmetric = false, .scale_type = "F32"}, DType::kQ5_0};
  const Model m = make_model(c);
  const TemporaryFolder folder;
  const auto checkpoint = Checkpoint::open(write_folder(folder, with_quantization(m, c), m.rounded));
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().to_string();
  const auto& [name, r] = *m.matrices.begin();
  const WeightSource& source = checkpoint->tensors.at(name);
  source.need_all();
  std::vector<float> row(static_cast<size_t>(r.cols));
  for (int64_t n = 0; n < r.rows; ++n) {
    unpack_row(source.view.dtype,
               static_cast<const uint8_t*>(source.view.data) + n * row_bytes(source.view.dtype, r.cols), row.data(),
               r.cols);
    for (int64_t k = 0; k < r.cols; ++k)
      ASSERT_NEAR(double{row[static_cast<size_t>(k)]}, r.value(n, k), 0x1p-11 * std::abs(r.value(n, k)));
  }
}

TEST(GroupedCheckpoints, VersionsOfOneFileAreCachedApart) {
  const Case v1 = {"", Format::kGptq, {.is_symmetric = false}, DType::kQ5_0};
  Case v2 = v1;
  v2.format = Format::kGptqV2;
  const Model m = make_model(v1);
  const TemporaryFolder folder;
  const auto identity = [&](const Case& c) {
    std::ofstream(folder.path() + "/config.json") << with_quantization(m, c).dump();
    const auto checkpoint = Checkpoint::open(folder.path());
    EXPECT_TRUE(checkpoint.ok()) << checkpoint.status().to_string();
    return checkpoint.ok() ? checkpoint->tensors.at(m.matrices.begin()->first).file->identity() : 0;
  };
  write_folder(folder, m.config, m.rounded);
  EXPECT_NE(identity(v1), identity(v2));
  EXPECT_EQ(identity(v1), identity(v1));
}

TEST(GroupedCheckpoints, BecomeGgufFiles) {
  for (const bool has_order : {false, true}) {
    const Case c = {"", Format::kGptq, {.has_order = has_order}, DType::kQ4_0};
    const Model m = make_model(c);
    const TemporaryFolder folder, plain_folder, out;
    const auto checkpoint = Checkpoint::open(write_folder(folder, with_quantization(m, c), m.rounded));
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().to_string();
    GgufExport options;
    options.has_tokenizer = false;
    // Without an order the blocks are written as they are; columns that are put back in theirs are floats.
    if (has_order) options.type = DType::kF32;
    GgufWriter writer;
    ASSERT_TRUE(checkpoint_to_gguf(*checkpoint, options, writer).ok());
    const std::string path = out.path() + "/model.gguf";
    ASSERT_TRUE(writer.write(path).ok());
    const std::string plain = write_folder(plain_folder, m.config, m.plain);
    const std::vector<float> want = logits_of(plain, ComputeType::kAuto, true),
                             got = logits_of(path, ComputeType::kAuto, true);
    ASSERT_EQ(got.size(), want.size());
    EXPECT_LE(difference(got.data(), want.data(), kTokens, kVocab).worst_row, 2.4e-7) << has_order;
    const auto gguf = Checkpoint::open(path);
    ASSERT_TRUE(gguf.ok());
    EXPECT_EQ(gguf->tensors.at("model.layers.0.mlp.up_proj.weight").view.dtype, has_order ? DType::kF32 : DType::kQ4_0);
  }
}

TEST(GroupedCheckpoints, AdaptersReadColumnsInTheirOwnOrder) {
  const Case c = {"", Format::kGptq, {.has_order = true}, DType::kQ4_0};
  const Model m = make_model(c);
  const TemporaryFolder folder, plain_folder, adapters;
  const std::string rounded = write_folder(folder, with_quantization(m, c), m.rounded);
  const std::string plain = write_folder(plain_folder, m.config, m.plain);
  const auto checkpoint = Checkpoint::open(plain);
  ASSERT_TRUE(checkpoint.ok());
  TextAdapter::random(*checkpoint, kAllProjections, 4, 3).write_peft(adapters.path() + "/a");
  const auto tokens_of = [&](const std::string& path, bool interpret) {
    TextEngineOptions options;
    options.threads = 2;
    options.dtype = ComputeType::kF32;
    options.use_interpreter = interpret;
    options.context = 64;
    options.max_adapter_rank = 4;
    const auto engine = open_engine(path, options);
    EXPECT_TRUE(engine && engine->load_adapter("a", adapters.path() + "/a").ok());
    GenerateRequest request;
    request.prompt = {1, 7, 14, 21, 28};
    request.max_tokens = 16;
    request.sampling.temperature = 0;
    request.ignore_stop_tokens = true;
    const auto base = engine->generate(request);
    request.adapters = {{"a", 1.0}};
    const auto with = engine->generate(request);
    EXPECT_TRUE(base.ok() && with.ok());
    if (!base.ok() || !with.ok()) return std::vector<int32_t>();
    EXPECT_NE(base->tokens, with->tokens);
    return with->tokens;
  };
  const std::vector<int32_t> want = tokens_of(plain, true);
  EXPECT_EQ(want.size(), 16u);
  EXPECT_EQ(tokens_of(rounded, true), want);
  EXPECT_EQ(tokens_of(rounded, false), want);
}

// Refusals ------------------------------------------------------------------------------------------------------------

std::string message_of(const Case& c, const std::function<void(json& quantization, SafetensorsFile& weights)>& change) {
  const Model m = make_model(c);
  const TemporaryFolder folder;
  json config = with_quantization(m, c);
  SafetensorsFile weights = m.rounded;
  change(config["quantization_config"], weights);
  return TextEngine::open(write_folder(folder, config, weights), {}).status().message();
}

constexpr Case kGptqCase = {"", Format::kGptq, {.has_order = true}, DType::kQ4_0};
constexpr Case kAwqCase = {"", Format::kAwq, {.is_symmetric = false}, DType::kQ5_0};
constexpr Case kPackedCase = {"", Format::kPacked, {.is_symmetric = false}, DType::kQ5_0};
const std::string kUp = "model.layers.0.mlp.up_proj.";

TEST(GroupedCheckpoints, OthersAreRefusedByName) {
  using Change = std::function<void(json&, SafetensorsFile&)>;
  struct Row {
    const Case* from;
    const char* expected;
    Change change;
  };
  const auto set = [](const char* key, json value) -> Change {
    return [=](json& q, SafetensorsFile&) { q[key] = value; };
  };
  const auto weights = [](const char* key, json value) -> Change {
    return [=](json& q, SafetensorsFile&) { q["config_groups"]["group_0"]["weights"][key] = value; };
  };
  const auto drop = [](const char* part) -> Change {
    return [=](json&, SafetensorsFile& w) { w.header.erase(kUp + part); };
  };
  const auto shape = [](const char* part, json value) -> Change {
    return [=](json&, SafetensorsFile& w) { w.header[kUp + part]["shape"] = value; };
  };
  const auto type = [](const char* part, const char* name) -> Change {
    return [=](json&, SafetensorsFile& w) { w.header[kUp + part]["dtype"] = name; };
  };
  const auto word = [](const char* part, uint32_t value) -> Change {
    return [=](json&, SafetensorsFile& w) {
      std::memcpy(w.data.data() + w.header[kUp + part]["data_offsets"][0].get<size_t>(), &value, 4);
    };
  };
  const std::vector<Row> rows = {
      {&kGptqCase, "quant_method is bitsandbytes", set("quant_method", "bitsandbytes")},
      {&kGptqCase, "bits is 3", set("bits", 3)},
      {&kGptqCase, "group_size is 0", set("group_size", 0)},
      {&kGptqCase, "group_size is x", set("group_size", "x")},
      {&kGptqCase, "checkpoint_format is marlin", set("checkpoint_format", "marlin")},
      {&kGptqCase, "pack_dtype is int64", set("pack_dtype", "int64")},
      {&kGptqCase, "up_proj.g_idx is missing", drop("g_idx")},
      {&kGptqCase, "up_proj.scales is missing", drop("scales")},
      {&kGptqCase, "up_proj.qzeros is missing", drop("qzeros")},
      {&kGptqCase, "up_proj.qzeros is i32 [24, 4]; i32 [4, 24] is expected", shape("qzeros", {24, 4})},
      {&kGptqCase, "up_proj.scales is f16 [192, 4]; f16, bf16 or f32 [any, 192] is expected",
       shape("scales", {192, 4})},
      {&kGptqCase, "up_proj.scales has type I16", type("scales", "I16")},
      {&kGptqCase, "up_proj.qweight is f32", type("qweight", "F32")},
      {&kGptqCase, "up_proj.g_idx holds group 4 for column 0", word("g_idx", 4)},
      {&kGptqCase, "up_proj.g_idx holds group -1 for column 0", word("g_idx", UINT32_MAX)},
      {&kGptqCase, "columns; Redline reads groups of multiples of 32",
       [](json&, SafetensorsFile& w) {
         const size_t at = w.header[kUp + "g_idx"]["data_offsets"][0].get<size_t>();
         int32_t first;
         std::memcpy(&first, w.data.data() + at, 4);
         first = (first + 1) % 4;
         std::memcpy(w.data.data() + at, &first, 4);
       }},
      {&kGptqCase, "up_proj.scales holds nan", word("scales", 0x7E007E00)},
      {&kGptqCase, "up_proj.scales holds inf", word("scales", 0x7C007C00)},
      {&kAwqCase, "bits is 8", set("bits", 8)},
      {&kAwqCase, "version is gemv", set("version", "GEMV")},
      {&kAwqCase, "zero_point is false", set("zero_point", false)},
      {&kAwqCase, "group_size is nothing", [](json& q, SafetensorsFile&) { q.erase("group_size"); }},
      {&kAwqCase, "up_proj.qzeros is missing", drop("qzeros")},
      {&kAwqCase, "down_proj.scales is f16 [6, 128]; f16, bf16 or f32 [3, 128] is expected", set("group_size", 64)},
      {&kPackedCase, "format is float-quantized", set("format", "float-quantized")},
      {&kPackedCase, "it has a kv_cache_scheme", set("kv_cache_scheme", {{"num_bits", 8}})},
      {&kPackedCase, "its weights are sparse", set("sparsity_config", {{"format", "sparse-24-bitmask"}})},
      {&kPackedCase, "no \"config_groups\"", set("config_groups", nullptr)},
      {&kPackedCase, "weights.num_bits is 3", weights("num_bits", 3)},
      {&kPackedCase, "weights.type is float", weights("type", "float")},
      {&kPackedCase, "weights.strategy is tensor", weights("strategy", "tensor")},
      {&kPackedCase, "weights.dynamic is true", weights("dynamic", true)},
      {&kPackedCase, "weights.group_size is null", weights("group_size", nullptr)},
      {&kPackedCase, "input_activations are rounded",
       [](json& q, SafetensorsFile&) {
         q["config_groups"]["group_0"]["input_activations"] = {{"num_bits", 8}};
       }},
      {&kPackedCase, "no scheme of config_groups has these", weights("group_size", 64)},
      {&kPackedCase, "up_proj.weight_zero_point is missing", drop("weight_zero_point")},
      {&kPackedCase, "up_proj.weight_scale is missing", drop("weight_scale")},
      {&kPackedCase, "up_proj.weight_shape is missing", drop("weight_shape")},
      {&kPackedCase, "up_proj.weight_shape holds [0, 128]", word("weight_shape", 0)},
      {&kPackedCase, "up_proj.weight_packed is i32 [192, 16]; i32 [7, any] is expected", word("weight_shape", 7)},
      {&kPackedCase, "up_proj.weight_zero_point is i32 [4, 24]", shape("weight_zero_point", {4, 24})},
  };
  for (const Row& row : rows) {
    const std::string message = message_of(*row.from, row.change);
    EXPECT_NE(message.find(row.expected), std::string::npos) << row.expected << ": " << message;
  }
  const Case small = {"", Format::kAwq, {.group_size = 16, .is_symmetric = false}, DType::kQ5_0};
  EXPECT_NE(message_of(small, [](json&, SafetensorsFile&) {}).find("in groups of 16; Redline reads multiples of 32"),
            std::string::npos);
  const Case eight = {"", Format::kGptqV2, {.bits = 8, .is_symmetric = false}, DType::kQ8_0};
  EXPECT_NE(message_of(eight, [](json&, SafetensorsFile&) {}).find("8 bits with zero points"), std::string::npos);
  EXPECT_NE(message_of(kGptqCase, set("quant_method", "x")).find("Redline reads GPTQ"), std::string::npos);
}

TEST(GroupedCheckpoints, DamagedFilesGiveErrors) {
  // Nothing is read beyond the file, whatever the header says: for the address sanitizer.
  std::mt19937 random(11);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); };
  const char* kTypes[] = {"I32", "I64", "F16", "BF16", "F32", "I8", "U8"};
  const int64_t kSizes[] = {0, 1, 2, 3, 4, 16, 24, 32, 128, 192, 1 << 20};
  for (const Case* c : {&kGptqCase, &kAwqCase, &kPackedCase}) {
    const Model m = make_model(*c);
    for (int i = 0; i < 60; ++i) {
      const TemporaryFolder folder;
      SafetensorsFile weights = m.rounded;
      auto entry = weights.header.begin();
      std::advance(entry, below(static_cast<int64_t>(weights.header.size())));
      json& tensor = *entry;
      const size_t begin = tensor["data_offsets"][0].get<size_t>(), end = tensor["data_offsets"][1].get<size_t>();
      switch (below(4)) {
        case 0: tensor["dtype"] = kTypes[below(7)]; break;
        case 1: tensor["shape"][0] = kSizes[below(11)]; break;
        case 2: weights.data.resize(static_cast<size_t>(below(static_cast<int64_t>(weights.data.size())))); break;
        default:
          for (size_t at = begin; at < end; at += 1 + static_cast<size_t>(below(64)))
            weights.data[at] = static_cast<char>(below(256));
      }
      const auto checkpoint = Checkpoint::open(write_folder(folder, with_quantization(m, *c), weights));
      if (!checkpoint.ok()) {
        EXPECT_NE(checkpoint.status().message(), "");
        continue;
      }
      for (const auto& [name, source] : checkpoint->tensors) source.need_all();
    }
  }
}

}  // namespace
}  // namespace redline::testing::grouped
