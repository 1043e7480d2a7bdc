#include "models/files/random_model.h"

#include <cmath>
#include <cstring>
#include <new>
#include <numbers>

#include "base/text_distance.h"
#include "base/topology.h"
#include "base/worker_team.h"
#include "formats/gguf.h"
#include "formats/gguf_writer.h"
#include "models/checkpoint/convert_weights.h"

namespace redline {
namespace {

/// Positions in a block of the half-precision scale and of its offset field, with the multiple of the scale that
/// centres the values: unsigned codes have a nonzero mean.
struct ScaleFields {
  DType dtype;
  int scale, offset;
  float centre;
};
constexpr ScaleFields kScaleFields[] = {
    {DType::kQ4_0, 0, -1, 0},    {DType::kQ4_1, 0, 2, -7.5f},  {DType::kQ5_0, 0, -1, 0},   {DType::kQ5_1, 0, 2, -15.5f},
    {DType::kQ8_0, 0, -1, 0},    {DType::kQ2_K, 80, 82, 1.5f}, {DType::kQ3_K, 108, -1, 0}, {DType::kQ4_K, 0, 2, 7.5f},
    {DType::kQ5_K, 0, 2, 15.5f}, {DType::kQ6_K, 208, -1, 0},   {DType::kIQ4_NL, 0, -1, 0}, {DType::kIQ4_XS, 0, -1, 0},
    {DType::kIQ3_S, 0, -1, 0},   {DType::kTQ1_0, 52, -1, 0},   {DType::kTQ2_0, 64, -1, 0},
};
const ScaleFields* scale_fields(DType dtype) {
  for (const ScaleFields& row : kScaleFields)
    if (row.dtype == dtype) return &row;
  return nullptr;
}

/// SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014) as a function of
/// the counter, so that any part of a tensor can be generated independently.
uint64_t random_word(uint64_t counter) {
  uint64_t z = counter * 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}

void fill_random(uint8_t* target, int64_t bytes, uint64_t counter) {
  for (int64_t i = 0; i + 8 <= bytes; i += 8) {
    const uint64_t word = random_word(counter + static_cast<uint64_t>(i) / 8);
    std::memcpy(target + i, &word, 8);
  }
  const uint64_t last = random_word(counter + static_cast<uint64_t>(bytes) / 8);
  std::memcpy(target + bytes / 8 * 8, &last, static_cast<size_t>(bytes % 8));
}

void put_half(uint8_t* block, int offset, float value) {
  const uint16_t half = f32_to_f16(value);
  std::memcpy(block + offset, &half, 2);
}

/// Makes random blocks of a quantized type, whose values have about the standard deviation that the constructor gets.
class BlockMaker {
 public:
  BlockMaker(DType dtype, double deviation) : type_(dtype_info(dtype)), fields_(scale_fields(dtype)) {
    // The size of values with a scale of one is measured, not derived, so that no format needs its own rule.
    constexpr int kBlocks = 256;
    std::vector<uint8_t> blocks(static_cast<size_t>(type_.block_bytes) * kBlocks);
    std::vector<float> values(static_cast<size_t>(type_.block_elements) * kBlocks);
    fill(blocks.data(), kBlocks, uint64_t{1} << 60);
    unpack_row(dtype, blocks.data(), values.data(), static_cast<int64_t>(values.size()));
    double squares = 0;
    for (const float v : values) squares += double{v} * double{v};
    const double unit = std::sqrt(squares / static_cast<double>(values.size()));
    scale_ = static_cast<float>(deviation / unit);
    exponent_ = static_cast<uint8_t>(std::lround(128 + std::log2(deviation / unit)));
  }

  void fill(uint8_t* blocks, int64_t count, uint64_t counter) const {
    fill_random(blocks, count * type_.block_bytes, counter);
    for (int64_t b = 0; b < count; ++b) {
      uint8_t* block = blocks + b * type_.block_bytes;
      if (fields_ == nullptr) {  // MXFP4: its scale is an exponent byte
        block[0] = exponent_;
        continue;
      }
      // Random code bits vary the scale between 3/4 and 5/4.
      const uint8_t code = block[type_.block_bytes / 2];
      const float jitter = 0.75f + static_cast<float>(code) / 512.0f;
      put_half(block, fields_->scale, scale_ * jitter);
      if (fields_->offset >= 0) put_half(block, fields_->offset, scale_ * jitter * fields_->centre);
    }
  }

 private:
  const DTypeInfo& type_;
  const ScaleFields* fields_;
  float scale_ = 1.0f;
  uint8_t exponent_ = 128;
};

/// Fills a matrix on all workers. `counter`: the position at which its random numbers start.
void fill_matrix(WorkerTeam& team, const TensorView& view, uint8_t* target, uint64_t counter) {
  // Number of terms per output: the product of all axes but the first.
  const double deviation =
      std::sqrt(static_cast<double>(view.shape.front()) / static_cast<double>(view.num_elements()));
  const DTypeInfo& type = dtype_info(view.dtype);
  if (type.row_bytes > 0) {
    // Codes of eight random bits have a standard deviation of 256 / sqrt 12.
    const auto scale = static_cast<float>(deviation * std::numbers::sqrt3 / 128);
    const int64_t cols = view.shape.back(), row = row_bytes(view.dtype, cols);
    team.parallel_for(view.bytes() / row, 16, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        fill_random(target + r * row, cols, counter + static_cast<uint64_t>(r * ((cols + 7) / 8 + 1)));
        std::memcpy(target + r * row + cols, &scale, sizeof(scale));
      }
    });
    return;
  }
  if (type.is_block) {
    const BlockMaker maker(view.dtype, deviation);
    constexpr int64_t kGrain = 4096;
    team.parallel_for(view.bytes() / type.block_bytes, kGrain, [&](int64_t begin, int64_t end) {
      maker.fill(target + begin * type.block_bytes, end - begin,
                 counter + static_cast<uint64_t>(begin * type.block_bytes / 8));
    });
    return;
  }
  // Uniformly distributed values: a table maps 16 random bits to one.
  std::vector<float> table(65536);
  for (size_t i = 0; i < table.size(); ++i)
    table[i] = static_cast<float>((static_cast<double>(i) - 32767.5) / 32767.5 * std::numbers::sqrt3 * deviation);
  std::vector<uint16_t> halves(table.size());
  for (size_t i = 0; i < table.size(); ++i)
    halves[i] = view.dtype == DType::kF16 ? f32_to_f16(table[i]) : f32_to_bf16(table[i]);
  constexpr int64_t kGrain = 1 << 16;
  team.parallel_for(view.num_elements(), kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const uint64_t word = random_word(counter + static_cast<uint64_t>(i) / 4);
      const auto bits = static_cast<uint16_t>(word >> 16 * (i % 4));
      if (view.dtype == DType::kF32) std::memcpy(target + 4 * i, &table[bits], 4);
      else std::memcpy(target + 2 * i, &halves[bits], 2);
    }
  });
}

enum class Content : uint8_t { kMatrix, kOnes, kBias, kRopeFactors, kDecay };
struct PlannedTensor {
  std::string name;
  TensorView view;  ///< type and shape of the tensor, without data
  Content content;
};

/// Number of taps of Mamba-2's convolution.
constexpr int64_t kConvTaps = 4;

std::vector<PlannedTensor> plan_tensors(const RandomModelSpec& spec) {
  const RandomShape& s = *spec.shape;
  std::vector<PlannedTensor> tensors;
  const RandomFamily& family = *s.family;
  const DType dense = spec.dtype == DType::kMXFP4 ? family.beside_mxfp4 : spec.dtype;
  const auto matrix = [&](std::string name, int64_t rows, int64_t columns) {
    tensors.push_back({std::move(name) + ".weight", {dense, {rows, columns}, nullptr}, Content::kMatrix});
  };
  const auto vector = [&](std::string name, int64_t size, Content content) {
    tensors.push_back({std::move(name), {DType::kF32, {size}, nullptr}, content});
  };
  const int64_t q = s.num_heads * s.head_dim, kv = s.num_kv_heads * s.head_dim;
  matrix("token_embd", s.vocab_size, s.hidden_size);
  vector("output_norm.weight", s.hidden_size, Content::kOnes);
  if (!s.tied) matrix("output", s.vocab_size, s.hidden_size);
  if (s.llama3_factor > 0) vector("rope_freqs.weight", s.head_dim / 2, Content::kRopeFactors);
  for (int64_t i = 0; i < s.num_layers; ++i) {
    const std::string layer = fmt::format("blk.{}.", i);
    vector(layer + "attn_norm.weight", s.hidden_size, Content::kOnes);
    if (family.is_recurrent) {
      const int64_t inner = s.intermediate_size, channels = inner + 2 * s.state_size;
      const auto floats = [&](const char* name, std::vector<int64_t> shape, Content content) {
        tensors.push_back({layer + name, {DType::kF32, std::move(shape), nullptr}, content});
      };
      matrix(layer + "ssm_in", inner + channels + s.num_heads, s.hidden_size);
      floats("ssm_conv1d.weight", {channels, kConvTaps}, Content::kMatrix);
      floats("ssm_conv1d.bias", {channels}, Content::kBias);
      floats("ssm_dt.bias", {s.num_heads}, Content::kBias);
      floats("ssm_a", {s.num_heads, 1}, Content::kDecay);
      floats("ssm_d", {s.num_heads, 1}, Content::kOnes);
      floats("ssm_norm.weight", {1, inner}, Content::kOnes);
      matrix(layer + "ssm_out", s.hidden_size, inner);
      continue;
    }
    matrix(layer + "attn_q", q, s.hidden_size);
    matrix(layer + "attn_k", kv, s.hidden_size);
    matrix(layer + "attn_v", kv, s.hidden_size);
    matrix(layer + "attn_output", s.hidden_size, q);
    if (family.has_other_biases) vector(layer + "attn_output.bias", s.hidden_size, Content::kBias);
    if (family.has_sinks) vector(layer + "attn_sinks.weight", s.num_heads, Content::kBias);
    if (family.has_qkv_biases) {
      vector(layer + "attn_q.bias", q, Content::kBias);
      vector(layer + "attn_k.bias", kv, Content::kBias);
      vector(layer + "attn_v.bias", kv, Content::kBias);
    }
    if (family.has_head_norms) {
      vector(layer + "attn_q_norm.weight", s.head_dim, Content::kOnes);
      vector(layer + "attn_k_norm.weight", s.head_dim, Content::kOnes);
    }
    vector(fmt::format("{}{}.weight", layer, family.mlp_norm), s.hidden_size, Content::kOnes);
    if (s.num_experts > 0) {
      const auto experts = [&](const char* name, int64_t rows, int64_t columns) {
        tensors.push_back({layer + name, {spec.dtype, {s.num_experts, rows, columns}, nullptr}, Content::kMatrix});
      };
      tensors.push_back(
          {layer + "ffn_gate_inp.weight", {DType::kF32, {s.num_experts, s.hidden_size}, nullptr}, Content::kMatrix});
      experts("ffn_gate_exps.weight", s.intermediate_size, s.hidden_size);
      experts("ffn_up_exps.weight", s.intermediate_size, s.hidden_size);
      experts("ffn_down_exps.weight", s.hidden_size, s.intermediate_size);
      const auto biases = [&](const char* name, std::vector<int64_t> shape) {
        if (family.has_other_biases)
          tensors.push_back({layer + name, {DType::kF32, std::move(shape), nullptr}, Content::kBias});
      };
      biases("ffn_gate_inp.bias", {s.num_experts});
      biases("ffn_gate_exps.bias", {s.num_experts, s.intermediate_size});
      biases("ffn_up_exps.bias", {s.num_experts, s.intermediate_size});
      biases("ffn_down_exps.bias", {s.num_experts, s.hidden_size});
      continue;
    }
    matrix(layer + "ffn_gate", s.intermediate_size, s.hidden_size);
    matrix(layer + "ffn_up", s.intermediate_size, s.hidden_size);
    matrix(layer + "ffn_down", s.hidden_size, s.intermediate_size);
  }
  return tensors;
}

/// Returns a factor of Llama 3.1's rope scaling as stored in llama.cpp's files. The config's values are the factor of
/// the shape, 1, 4 and 8192.
float rope_factor(const RandomShape& s, int64_t i) {
  const double frequency =
      std::pow(double{s.rope_theta}, -2.0 * static_cast<double>(i) / static_cast<double>(s.head_dim));
  const double wave = 2 * std::numbers::pi / frequency;
  constexpr double kLow = 1, kHigh = 4, kOriginal = 8192;
  if (wave < kOriginal / kHigh) return 1.0f;
  if (wave > kOriginal / kLow) return s.llama3_factor;
  const double smooth = (kOriginal / wave - kLow) / (kHigh - kLow);
  return static_cast<float>(1.0 / ((1 - smooth) / double{s.llama3_factor} + smooth));
}

/// Fills a vector with ones, small biases, or decays with time constants from a few to thousands of tokens.
void fill_vector(const TensorView& view, Content content, uint8_t* target, uint64_t counter) {
  for (int64_t i = 0; i < view.num_elements(); ++i) {
    float value = 1.0f;
    if (content == Content::kBias)
      value = static_cast<float>(random_word(counter + static_cast<uint64_t>(i)) >> 40) * 0x1p-24f * 0.2f - 0.1f;
    if (content == Content::kDecay) value = -std::exp2(static_cast<float>(i % 12) - 12);
    std::memcpy(target + 4 * i, &value, 4);
  }
}

void fill_tensor(WorkerTeam& team, const RandomShape& shape, const PlannedTensor& tensor, uint8_t* target,
                 uint64_t counter) {
  if (tensor.content == Content::kMatrix) {
    TensorView rows = tensor.view;  // one matrix with the rows of all experts
    rows.shape = {rows.num_elements() / rows.shape.back(), rows.shape.back()};
    return fill_matrix(team, rows, target, counter);
  }
  if (tensor.content != Content::kRopeFactors) return fill_vector(tensor.view, tensor.content, target, counter);
  for (int64_t i = 0; i < tensor.view.num_elements(); ++i) {
    const float value = rope_factor(shape, i);
    std::memcpy(target + 4 * i, &value, 4);
  }
}

/// Writes a SentencePiece vocabulary, because it needs no merges: unknown, begin, end, 256 bytes, a space, then
/// numbered words.
void set_vocabulary(GgufWriter& writer, int64_t size) {
  enum : int32_t { kNormal = 1, kUnknown = 2, kControl = 3, kByte = 6 };  // ggml's numbers
  std::vector<std::string> tokens = {"<unk>", "<s>", "</s>"};
  std::vector<int32_t> types = {kUnknown, kControl, kControl};
  for (int byte = 0; byte < 256; ++byte) {
    tokens.push_back(fmt::format("<0x{:02X}>", byte));
    types.push_back(kByte);
  }
  for (auto i = static_cast<int64_t>(tokens.size()); i < size; ++i) {
    tokens.push_back(types.size() == 3 + 256 ? "\u2581" : fmt::format("\u2581w{}", i));
    types.push_back(kNormal);
  }
  writer.set("tokenizer.ggml.model", "llama");
  writer.set("tokenizer.ggml.pre", "default");
  writer.set_strings("tokenizer.ggml.tokens", tokens);
  writer.set_f32s("tokenizer.ggml.scores", std::vector<float>(tokens.size(), 0.0f));
  writer.set_i32s("tokenizer.ggml.token_type", types);
  writer.set_u32("tokenizer.ggml.bos_token_id", 1);
  writer.set_u32("tokenizer.ggml.eos_token_id", 2);
  writer.set_u32("tokenizer.ggml.unknown_token_id", 0);
  writer.set_bool("tokenizer.ggml.add_bos_token", true);
}

void set_metadata(GgufWriter& writer, const RandomModelSpec& spec) {
  const RandomShape& s = *spec.shape;
  const RandomFamily& family = *s.family;
  const std::string arch(family.architecture);
  const auto set = [&](std::string_view key, int64_t value) {
    writer.set_u32(fmt::format("{}.{}", arch, key), static_cast<uint32_t>(value));
  };
  writer.set("general.architecture", arch);
  writer.set("general.name", fmt::format("random {} {}", s.name, dtype_info(spec.dtype).name));
  writer.set_u32("general.quantization_version", 2);  // version of ggml's block formats
  set("context_length", s.context);
  set("embedding_length", s.hidden_size);
  set("block_count", s.num_layers);
  if (family.is_recurrent) {
    set("feed_forward_length", 0);
    set("attention.head_count", 0);
    set("ssm.conv_kernel", kConvTaps);
    set("ssm.inner_size", s.intermediate_size);
    set("ssm.state_size", s.state_size);
    set("ssm.time_step_rank", s.num_heads);
    set("ssm.group_count", 1);
    set("vocab_size", s.vocab_size);
    writer.set_f32(arch + ".attention.layer_norm_rms_epsilon", s.rms_norm_eps);
    return set_vocabulary(writer, s.vocab_size);
  }
  if (family.sliding_window > 0) set("attention.sliding_window", family.sliding_window);
  if (family.yarn_factor > 0) {
    writer.set(arch + ".rope.scaling.type", "yarn");
    writer.set_f32(arch + ".rope.scaling.factor", family.yarn_factor);
    set("rope.scaling.original_context_length", family.yarn_original_context);
  }
  set("feed_forward_length", s.intermediate_size);
  set("attention.head_count", s.num_heads);
  set("attention.head_count_kv", s.num_kv_heads);
  set("attention.key_length", s.head_dim);
  set("attention.value_length", s.head_dim);
  set("rope.dimension_count", s.head_dim);
  set("vocab_size", s.vocab_size);
  if (s.num_experts > 0) {
    set("expert_count", s.num_experts);
    set("expert_used_count", s.experts_per_token);
    set("expert_feed_forward_length", s.intermediate_size);
  }
  writer.set_f32(arch + ".rope.freq_base", s.rope_theta);
  writer.set_f32(arch + ".attention.layer_norm_rms_epsilon", s.rms_norm_eps);
  set_vocabulary(writer, s.vocab_size);
}

constexpr RandomFamily kLlama = {.architecture = "llama"}, kQwen2 = {.architecture = "qwen2", .has_qkv_biases = true},
                       kQwen3 = {.architecture = "qwen3", .has_head_norms = true},
                       kQwen3Moe = {.architecture = "qwen3moe", .has_head_norms = true},
                       kMamba2 = {.architecture = "mamba2", .is_recurrent = true};
// As gpt-oss is published: only its experts are in MXFP4.
constexpr RandomFamily kGptOss = {.architecture = "gpt-oss",
                                  .has_qkv_biases = true,
                                  .has_sinks = true,
                                  .has_other_biases = true,
                                  .mlp_norm = "post_attention_norm",
                                  .beside_mxfp4 = DType::kQ8_0,
                                  .sliding_window = 128,
                                  .yarn_factor = 32,
                                  .yarn_original_context = 4096};

}  // namespace

const std::vector<RandomShape>& random_shapes() {
  // name, family, layers, hidden, intermediate, heads, kv heads, head size, vocabulary, tied, context, theta,
  // eps, Llama 3's factor, experts and those of a token: from config.json of SmolLM2-135M, Llama-3.2-1B and 3B,
  // Llama-3.1-8B, Mistral-7B-v0.3, Qwen2.5, Qwen3-0.6B, Qwen3-30B-A3B, gpt-oss-20b, mamba2-130m and 1.3b; qwen3-moe-5b
  // is 8 layers of Qwen3-30B-A3B, gpt-oss-4b 4 of gpt-oss-20b. "tiny", "tiny-moe", "tiny-oss" and "tiny-mamba" are for
  // tests.
  static const std::vector<RandomShape> kShapes = {
      {"tiny", &kLlama, 2, 256, 512, 4, 2, 64, 512, true, 512, 10000, 1e-5f, 0},
      {"smollm-135m", &kLlama, 30, 576, 1536, 9, 3, 64, 49152, true, 8192, 100000, 1e-5f, 0},
      {"llama-1b", &kLlama, 16, 2048, 8192, 32, 8, 64, 128256, true, 131072, 500000, 1e-5f, 32},
      {"llama-3b", &kLlama, 28, 3072, 8192, 24, 8, 128, 128256, true, 131072, 500000, 1e-5f, 32},
      {"llama-8b", &kLlama, 32, 4096, 14336, 32, 8, 128, 128256, false, 131072, 500000, 1e-5f, 8},
      {"mistral-7b", &kLlama, 32, 4096, 14336, 32, 8, 128, 32768, false, 32768, 1000000, 1e-5f, 0},
      {"qwen-0.5b", &kQwen2, 24, 896, 4864, 14, 2, 64, 151936, true, 32768, 1000000, 1e-6f, 0},
      {"qwen-1.5b", &kQwen2, 28, 1536, 8960, 12, 2, 128, 151936, true, 32768, 1000000, 1e-6f, 0},
      {"qwen-3b", &kQwen2, 36, 2048, 11008, 16, 2, 128, 151936, true, 32768, 1000000, 1e-6f, 0},
      {"qwen-7b", &kQwen2, 28, 3584, 18944, 28, 4, 128, 152064, false, 32768, 1000000, 1e-6f, 0},
      {"qwen3-0.6b", &kQwen3, 28, 1024, 3072, 16, 8, 128, 151936, true, 40960, 1000000, 1e-6f, 0},
      {"tiny-moe", &kQwen3Moe, 2, 256, 256, 4, 2, 64, 512, false, 512, 10000, 1e-6f, 0, 6, 2},
      {"qwen3-moe-5b", &kQwen3Moe, 8, 2048, 768, 32, 4, 128, 151936, false, 40960, 1000000, 1e-6f, 0, 128, 8},
      {"qwen3-30b-a3b", &kQwen3Moe, 48, 2048, 768, 32, 4, 128, 151936, false, 40960, 1000000, 1e-6f, 0, 128, 8},
      {"tiny-oss", &kGptOss, 2, 64, 96, 4, 2, 64, 512, false, 512, 150000, 1e-5f, 0, 6, 2},
      {"gpt-oss-4b", &kGptOss, 4, 2880, 2880, 64, 8, 64, 201088, false, 131072, 150000, 1e-5f, 0, 32, 4},
      {"gpt-oss-20b", &kGptOss, 24, 2880, 2880, 64, 8, 64, 201088, false, 131072, 150000, 1e-5f, 0, 32, 4},
      {"tiny-mamba", &kMamba2, 2, 64, 128, 4, 4, 32, 512, true, 512, 0, 1e-5f, 0, 0, 0, 16},
      {"mamba2-130m", &kMamba2, 24, 768, 1536, 24, 24, 64, 50288, true, 1048576, 0, 1e-5f, 0, 0, 0, 128},
      {"mamba2-1.3b", &kMamba2, 48, 2048, 4096, 64, 64, 64, 50288, true, 1048576, 0, 1e-5f, 0, 0, 0, 128},
  };
  return kShapes;
}

Result<RandomModelSpec> parse_random_model(std::string_view name) {
  std::string_view rest = name;
  if (is_random_model(rest)) rest.remove_prefix(kRandomPrefix.size());
  const size_t colon = rest.find(':');
  const std::string_view shape_name = rest.substr(0, colon);
  std::vector<std::string_view> names;
  RandomModelSpec spec;
  for (const RandomShape& shape : random_shapes()) {
    names.push_back(shape.name);
    if (shape.name == shape_name) spec.shape = &shape;
  }
  if (spec.shape == nullptr) {
    return invalid_argument("random model \"{}\": no shape \"{}\"{}; shapes: {}", rest, shape_name,
                            did_you_mean(shape_name, names), fmt::join(names, ", "));
  }
  if (colon == std::string_view::npos)
    return invalid_argument("random model \"{}\": the type of its weights is missing, as in {}:q4_0", rest, shape_name);
  auto dtype = dtype_from_name(rest.substr(colon + 1));
  if (!dtype.ok()) return invalid_argument("random model \"{}\": {}", rest, dtype.status().message());
  spec.dtype = *dtype;
  const DTypeInfo& type = dtype_info(spec.dtype);
  const bool is_weight_type =
      type.is_block || spec.dtype == DType::kF32 || spec.dtype == DType::kF16 || spec.dtype == DType::kBF16;
  if (!is_weight_type)
    return invalid_argument("random model \"{}\": {} is not a type for weights; use f32, f16, bf16, q8_0, q4_0, ...",
                            rest, type.name);
  for (const int64_t k :
       {spec.shape->hidden_size, spec.shape->intermediate_size, spec.shape->num_heads * spec.shape->head_dim}) {
    if (k % type.block_elements != 0)
      return invalid_argument(
          "random model \"{}\": its rows of {} elements do not fill {}'s blocks of {}; use q4_0, q8_0 or another type "
          "with blocks of 32",
          rest, k, type.name, type.block_elements);
  }
  return spec;
}

int64_t count_parameters(const RandomModelSpec& spec) {
  int64_t count = 0;
  for (const PlannedTensor& tensor : plan_tensors(spec)) count += tensor.view.num_elements();
  return count;
}

Result<std::shared_ptr<MappedFile>> make_random_model(std::string_view name) {
  REDLINE_ASSIGN(const RandomModelSpec spec, parse_random_model(name));
  if (dtype_info(spec.dtype).gguf_type < 0)
    return unsupported("random model \"{}\": GGUF files hold no weights of type {}", name, dtype_info(spec.dtype).name);
  std::vector<PlannedTensor> tensors = plan_tensors(spec);
  GgufWriter writer;
  set_metadata(writer, spec);
  for (const PlannedTensor& tensor : tensors) writer.add_tensor(tensor.name, tensor.view);
  const std::string header = writer.header();
  auto bytes = static_cast<int64_t>(header.size());
  for (const PlannedTensor& tensor : tensors) bytes += GgufWriter::padded_bytes(tensor.view);
  std::string path(kRandomPrefix);
  path += fmt::format("{}:{}", spec.shape->name, dtype_info(spec.dtype).name);
  return MappedFile::make(std::move(path), bytes, [&](uint8_t* data) {
    std::copy(header.begin(), header.end(), data);
    WorkerTeam team(static_cast<int>(allowed_cpus().size()));
    auto offset = static_cast<int64_t>(header.size());
    uint64_t number = 0;
    for (const PlannedTensor& tensor : tensors) {
      fill_tensor(team, *spec.shape, tensor, data + offset, ++number << 36);
      offset += GgufWriter::padded_bytes(tensor.view);
    }
  });
}

Result<WeightSource> make_random_weight(const std::string& name, const std::vector<int64_t>& shape, DType dtype) {
  const bool is_vector = shape.size() < 2;
  WeightSource source;
  source.view = {is_vector ? DType::kF32 : dtype, shape, nullptr};
  const DTypeInfo& type = dtype_info(source.view.dtype);
  if (type.is_block && (shape.size() != 2 || shape.back() % type.block_elements != 0)) source.view.dtype = DType::kBF16;
  // The seed depends on the name only, so a tensor has the same numbers regardless of the tensors before it.
  uint64_t seed = 1;
  for (const char c : name) seed = random_word(seed ^ static_cast<unsigned char>(c));
  WorkerTeam team(static_cast<int>(allowed_cpus().size()));
  REDLINE_ASSIGN(auto made, MappedFile::make(name, source.view.bytes(), [&](uint8_t* target) {
                   if (!is_vector) return fill_matrix(team, source.view, target, seed);
                   fill_vector(source.view, name.ends_with("weight") ? Content::kOnes : Content::kBias, target, seed);
                 }));
  source.file = std::move(made);
  source.view.data = source.file->data();
  return source;
}

namespace {

/// Makes the model. For types that GGUF files cannot hold, its matrices are made in bf16 and then quantized.
Result<Checkpoint> open_random_model(const std::string& name) {
  REDLINE_ASSIGN(const RandomModelSpec spec, parse_random_model(name));
  const bool round = dtype_info(spec.dtype).gguf_type < 0;
  const DType stored = round ? DType::kBF16 : spec.dtype;
  REDLINE_ASSIGN(auto file, make_random_model(fmt::format("{}:{}", spec.shape->name, dtype_info(stored).name)));
  REDLINE_ASSIGN(Checkpoint checkpoint, Checkpoint::from_gguf(std::move(file)));
  checkpoint.path = name;
  if (round) REDLINE_TRY(convert_weights(checkpoint, spec.dtype, [](const std::string&) { return true; }));
  return checkpoint;
}

}  // namespace

extern const CheckpointOpener kRandomModelOpener = {
    .takes = [](const std::string& path) { return is_random_model(path); }, .open = open_random_model};

Status save_random_model(std::string_view name, const std::string& path) {
  REDLINE_ASSIGN(const auto image, make_random_model(name));
  return GgufWriter::write_bytes(path, image->text());
}

}  // namespace redline
