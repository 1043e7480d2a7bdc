// gpt-oss: a mixture of experts with a clamped SwiGLU, MXFP4 weights that stay packed, a sink logit per head, and
// windows in every other layer (OpenAI 2025, arXiv:2508.10925).
#include <cmath>
#include <cstring>

#include "models/blocks/moe.h"
#include "models/blocks/rope_config.h"
#include "models/text/llama.h"

namespace redline {
namespace {

constexpr int64_t kMxfp4Block = 32;  // elements of an MXFP4 block
constexpr int64_t kBlockBytes = 17;  // an exponent, then pairs of codes
constexpr int64_t kCodeBytes = kBlockBytes - 1;

/// Converts a block of the file to Redline's layout: a byte of the file has elements 2 i and 2 i + 1, a byte of Redline
/// elements i and i + 16.
void convert_block(const uint8_t* codes, uint8_t scale, uint8_t* out) {
  const auto code = [&](int64_t i) { return codes[i / 2] >> (i % 2 * 4) & 15; };
  out[0] = scale;
  for (int64_t i = 0; i < kCodeBytes; ++i) out[1 + i] = static_cast<uint8_t>(code(i) | code(i + kCodeBytes) << 4);
}

/// Layout of the experts' tensors in published folders: `rows` rows for each expert, of which a matrix has every
/// `stride`-th row from `first` on (gate and up alternate).
struct Part {
  std::string name;
  int64_t experts, rows, cols, first, stride;
  int64_t own_rows() const { return rows / stride; }
};

/// Reads a matrix from NAME_blocks [experts, rows, cols / 32, 16] and NAME_scales [experts, rows, cols / 32].
Value take_fp4(LayerBuilder& b, const Part& p, int64_t expert, const std::string& own) {
  GraphBuilder& g = b.graph();
  if (p.cols % kMxfp4Block != 0)
    return g.fail(unsupported("{}_blocks: rows of {} elements, not whole blocks of {}", p.name, p.cols, kMxfp4Block));
  const int64_t blocks = p.cols / kMxfp4Block;
  auto codes = b.weights().find(p.name + "_blocks", {p.experts, p.rows, blocks, kCodeBytes});
  if (!codes.ok()) return g.fail(std::move(codes).status());
  auto scales = b.weights().find(p.name + "_scales", {p.experts, p.rows, blocks});
  if (!scales.ok()) return g.fail(std::move(scales).status());
  if (codes->view.dtype != DType::kI8 || scales->view.dtype != DType::kI8)
    return g.fail(invalid_argument("{}_blocks and {}_scales must be of type U8", p.name, p.name));
  const auto* from = static_cast<const uint8_t*>(codes->view.data);
  const auto* exponents = static_cast<const uint8_t*>(scales->view.data);
  auto made = MappedFile::make(own, p.own_rows() * blocks * kBlockBytes, [&](uint8_t* to) {
    for (int64_t row = 0; row < p.own_rows(); ++row)
      for (int64_t i = 0; i < blocks; ++i, to += kBlockBytes) {
        const int64_t at = (expert * p.rows + p.first + row * p.stride) * blocks + i;
        convert_block(from + at * kCodeBytes, exponents[at], to);
      }
  });
  if (!made.ok()) return g.fail(std::move(made).status());
  WeightSource source;
  source.file = std::move(made).value();
  source.view = {DType::kMXFP4, {p.own_rows(), p.cols}, source.file->data()};
  return g.weight(own, std::move(source));
}

/// Reads a matrix from NAME [experts, cols, rows] of a float type.
Value take_transposed(LayerBuilder& b, const Part& p, int64_t expert, const std::string& own) {
  return b.weights().take_made(
      p.name, own, {p.experts, p.cols, p.rows}, {p.own_rows(), p.cols}, [&](const TensorView& from, uint8_t* to) {
        const auto size = static_cast<size_t>(row_bytes(from.dtype, 1));
        const auto* data =
            static_cast<const uint8_t*>(from.data) + static_cast<size_t>(expert * p.cols * p.rows) * size;
        for (int64_t row = 0; row < p.own_rows(); ++row)
          for (int64_t col = 0; col < p.cols; ++col, to += size)
            std::memcpy(to, data + static_cast<size_t>(col * p.rows + p.first + row * p.stride) * size, size);
      });
}

/// Reads the elements of a part from NAME_bias [experts, rows].
Value take_bias(LayerBuilder& b, const Part& p, const std::string& own) {
  return b.weights().take_made(
      p.name + "_bias", own, {p.experts, p.rows}, {p.experts, p.own_rows()}, [&](const TensorView& from, uint8_t* to) {
        const auto size = static_cast<size_t>(row_bytes(from.dtype, 1));
        for (int64_t i = 0; i < p.experts * p.own_rows(); ++i, to += size)
          std::memcpy(to, static_cast<const uint8_t*>(from.data) + static_cast<size_t>(p.first + i * p.stride) * size,
                      size);
      });
}

ExpertWeights take_experts_of(LayerBuilder& b, const MoeConfig& c) {
  WeightReader& w = b.weights();
  const int64_t count = c.router.num_experts, inner = c.intermediate_size, hidden = b.config().hidden_size;
  const std::string experts = b.scope() + "mlp.experts.";
  ExpertWeights e;
  if (w.has(experts + "gate_proj.weight")) {  // GGUF
    e = take_experts(b, c);
    e.gate_bias = w.take(experts + "gate_proj.bias", {count, inner});
    e.up_bias = w.take(experts + "up_proj.bias", {count, inner});
    e.down_bias = w.take(experts + "down_proj.bias", {count, hidden});
    return e;
  }
  const auto take = [&](const Part& p, const char* part, std::vector<Value>& matrices, Value& bias) {
    const bool is_fp4 = w.has(p.name + "_blocks");
    for (int64_t i = 0; i < count; ++i) {
      const std::string own = fmt::format("{}{}.{}.weight", experts, i, part);
      matrices.push_back(is_fp4 ? take_fp4(b, p, i, own) : take_transposed(b, p, i, own));
      if (!matrices.back().valid()) return;
    }
    bias = take_bias(b, p, fmt::format("{}{}.bias", experts, part));
  };
  take({experts + "gate_up_proj", count, 2 * inner, hidden, 0, 2}, "gate_proj", e.gate, e.gate_bias);
  take({experts + "gate_up_proj", count, 2 * inner, hidden, 1, 2}, "up_proj", e.up, e.up_bias);
  take({experts + "down_proj", count, hidden, inner, 0, 1}, "down_proj", e.down, e.down_bias);
  return e;
}

/// Returns config.json with its defaults filled in.
nlohmann::json complete_config(const nlohmann::json& stored) {
  nlohmann::json config = with_rope_theta(stored, 150000);
  const auto is_set = [&](const char* key) { return config.contains(key) && config[key].is_object(); };
  if (!is_set("rope_scaling") && !is_set("rope_parameters"))
    config["rope_scaling"] = {{"rope_type", "yarn"}, {"factor", 32.0},    {"beta_fast", 32.0},
                              {"beta_slow", 1.0},    {"truncate", false}, {"original_max_position_embeddings", 4096}};
  return config;
}

Result<LanguageModel> build_gpt_oss(const Checkpoint& checkpoint, const DecoderOutputs& outputs) {
  const bool is_gguf = checkpoint.gguf_names != nullptr;
  nlohmann::json config = is_gguf ? with_rope_theta(checkpoint.config, 150000) : complete_config(checkpoint.config);
  // The published models interpolate without rounding the bounds of yarn's ramp, which GGUF has no key for.
  if (is_gguf && config.contains("rope_scaling") && config["rope_scaling"].is_object())
    config["rope_scaling"]["truncate"] = false;
  if (!config.contains("sliding_window")) config["sliding_window"] = 128;
  REDLINE_ASSIGN(DecoderConfig c,
                 read_decoder_config(
                     config, {.head_dim = 64, .num_kv_heads = 8, .max_positions = 131072, .norm_eps_value = 1e-5}));
  constexpr int64_t kFullEvery = 2;
  REDLINE_ASSIGN(c.window, read_alternating_windows(config, c.num_layers, kFullEvery));
  ConfigReader r(checkpoint.config);
  MoeConfig moe = read_moe_config(r, true);
  moe.has_router_bias = true;
  moe.activation = Activation::kQuickGelu;  // x sigmoid(1.702 x)
  moe.limit = static_cast<float>(r.number("swiglu_limit", 1e-6, 1e6, 7.0));
  constexpr double kAlpha = 1.702;
  if (r.number("swiglu_alpha", 0, 1e6, kAlpha) != kAlpha)
    r.fail(unsupported("config: swiglu_alpha other than {}", kAlpha));
  const bool bias = r.boolean("attention_bias", true);
  REDLINE_TRY(r.status());
  MoeNames names;
  names.router = "mlp.router";

  LayerParts parts;
  parts.mixer = [&](LayerBuilder& b, int64_t, Value h) {
    const int64_t q_size = c.num_heads * c.head_dim, kv_size = c.num_kv_heads * c.head_dim;
    const Value q = b.rotate(b.project(h, "self_attn.q_proj", q_size, c.hidden_size, bias));
    const Value k = b.rotate(b.project(h, "self_attn.k_proj", kv_size, c.hidden_size, bias));
    const Value v = b.project(h, "self_attn.v_proj", kv_size, c.hidden_size, bias);
    const std::string sinks = b.scope() + "self_attn.sinks";
    const Value of_heads =
        b.weights().take(b.weights().has(sinks + ".weight") ? sinks + ".weight" : sinks, {c.num_heads});
    return b.project(b.attend(q, k, v, {.sinks = of_heads}), "self_attn.o_proj", c.hidden_size, q_size, bias);
  };
  parts.mlp = [&](LayerBuilder& b, int64_t, Value x) { return moe_block(b, x, moe, names, take_experts_of(b, moe)); };
  return build_llama_decoder("gpt_oss", c, checkpoint, outputs, {}, parts);
}

/// Returns the GGUF form of float experts: matrices transposed, and gate and up, whose rows alternate, separated.
GgufForm float_part(const std::string& name, const std::vector<int64_t>& shape, int64_t first, int64_t stride) {
  const int64_t cols = shape[1], rows = shape[2], own = rows / stride;
  GgufForm form;
  form.name = name;
  form.shape = {shape[0], own, cols};
  form.stored_element = [=](int64_t row, int64_t column) {
    return (row / own * cols + column) * rows + first + row % own * stride;
  };
  return form;
}

/// Returns the GGUF form of MXFP4 experts, whose codes do not change.
GgufForm fp4_part(const std::string& name, const WeightSource& codes, const WeightSource& scales, int64_t first,
                  int64_t stride) {
  const std::vector<int64_t>& shape = codes.view.shape;
  const int64_t rows = shape[1], blocks = shape[2], own = rows / stride;
  GgufForm form;
  form.name = name;
  form.type = DType::kMXFP4;
  form.shape = {shape[0], own, blocks * kMxfp4Block};
  form.fill = [=](int64_t begin, int64_t end, uint8_t* out) -> Status {
    const auto *from = static_cast<const uint8_t*>(codes.view.data),
               *exponents = static_cast<const uint8_t*>(scales.view.data);
    for (int64_t row = begin; row < end; ++row)
      for (int64_t i = 0; i < blocks; ++i, out += kBlockBytes) {
        const int64_t at = (row / own * rows + first + row % own * stride) * blocks + i;
        convert_block(from + at * kCodeBytes, exponents[at], out);
      }
    return {};
  };
  return form;
}

std::vector<GgufForm> gpt_oss_gguf_parts(const Checkpoint& checkpoint, const DecoderConfig&, std::string_view name) {
  if (name.ends_with(".sinks")) return {{.name = std::string(name) + ".weight"}};
  const size_t at = name.find(".experts.");
  if (at == std::string_view::npos) return {{}};
  const std::string stem(name.substr(0, at + 9));
  const bool is_down = name.find("down_proj", at) != std::string_view::npos;
  const std::vector<int64_t>& shape = checkpoint.tensors.at(std::string(name)).view.shape;
  const auto each = [&](const std::string& suffix, const auto& part) -> std::vector<GgufForm> {
    if (is_down) return {part(stem + "down_proj" + suffix, 0, 1)};
    return {part(stem + "gate_proj" + suffix, 0, 2), part(stem + "up_proj" + suffix, 1, 2)};
  };
  if (name.ends_with("_scales")) return {};  // written together with their codes
  if (name.ends_with("_blocks")) {
    const std::string scales = std::string(name.substr(0, name.rfind('_'))) + "_scales";
    return each(".weight", [&](const std::string& own, int64_t first, int64_t stride) {
      return fp4_part(own, checkpoint.tensors.at(std::string(name)), checkpoint.tensors.at(scales), first, stride);
    });
  }
  if (!name.ends_with("_bias"))
    return each(".weight", [&](const std::string& own, int64_t first, int64_t stride) {
      return float_part(own, shape, first, stride);
    });
  return each(".bias", [&](const std::string& own, int64_t first, int64_t stride) {
    GgufForm form;
    form.name = own;
    form.shape = {shape[0], shape[1] / stride};
    form.stored_element = [rows = shape[1], first, stride](int64_t row, int64_t column) {
      return row * rows + first + column * stride;
    };
    return form;
  });
}

Status set_gpt_oss_keys(const Checkpoint& checkpoint, const DecoderConfig&, const GgufKeys& set) {
  ConfigReader r(checkpoint.config);
  constexpr double kLimit = 7;
  if (r.number("swiglu_limit", 1e-6, 1e6, kLimit) != kLimit)
    return unsupported("GGUF has no key for swiglu_limit of gpt_oss");
  set_moe_keys(read_moe_config(r, true), set);
  return r.status();
}

constexpr GgufName kGptOssGgufLayer[] = {{"attn_norm", "input_layernorm"},
                                         {"attn_q", "self_attn.q_proj"},
                                         {"attn_k", "self_attn.k_proj"},
                                         {"attn_v", "self_attn.v_proj"},
                                         {"attn_output", "self_attn.o_proj"},
                                         {"attn_sinks", "self_attn.sinks"},
                                         {"post_attention_norm", "post_attention_layernorm"},
                                         {"ffn_gate_inp", "mlp.router"},
                                         {"ffn_gate_exps", "mlp.experts.gate_proj"},
                                         {"ffn_up_exps", "mlp.experts.up_proj"},
                                         {"ffn_down_exps", "mlp.experts.down_proj"}};

}  // namespace

extern const ModelFamily kGptOssFamily = {
    .model_type = "gpt_oss",
    .architecture = "GptOssForCausalLM",
    .gguf = {.architecture = "gpt-oss",
             .top = kLlamaGgufTop,
             .layer = kGptOssGgufLayer,
             .window_every = 2,
             .has_experts = true,
             .read_keys = read_moe_keys},
    .build = build_gpt_oss,
    .common_config = complete_config,
    .gguf_parts = gpt_oss_gguf_parts,
    .gguf_keys = set_gpt_oss_keys,
    .gguf_truncates_yarn = false,
};

}  // namespace redline
