#include "models/files/quantize_mix.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>

#include "base/ascii.h"
#include "base/text_distance.h"
#include "models/registry.h"

namespace redline {
namespace {

/// Returns true for the first and the last eighth of the layers, and every third layer between them.
bool wants_more_bits(int64_t layer, int64_t layers) {
  return layer < layers / 8 || layer >= 7 * layers / 8 || (layer - layers / 8) % 3 == 2;
}

bool has(std::string_view name, std::string_view part) { return name.find(part) != std::string_view::npos; }

// Architectures of llama.cpp that Redline quantizes and does not run.
constexpr std::pair<std::string_view, QuantizeTraits> kOtherTraits[] = {{"deci", {.is_large_at_80_layers = true}},
                                                                        {"olmo", {.is_large_at_80_layers = true}}};

}  // namespace

QuantizeTraits find_quantize_traits(std::string_view architecture) {
  for (const auto& [name, traits] : kOtherTraits)
    if (name == architecture) return traits;
  const Result<GgufFamily> family = find_gguf_family(architecture);
  return family.ok() ? family->names->quantize : QuantizeTraits();
}

const std::vector<QuantizeMix>& quantize_mixes() {
  static const std::vector<QuantizeMix> mixes = {
      {"F32", DType::kF32, 0},      {"F16", DType::kF16, 1},          {"BF16", DType::kBF16, 32},
      {"Q8_0", DType::kQ8_0, 7},    {"Q6_K", DType::kQ6_K, 18},       {"Q5_K_M", DType::kQ5_K, 17},
      {"Q5_K_S", DType::kQ5_K, 16}, {"Q5_1", DType::kQ5_1, 9},        {"Q5_0", DType::kQ5_0, 8},
      {"Q4_K_M", DType::kQ4_K, 15}, {"Q4_K_S", DType::kQ4_K, 14},     {"Q4_1", DType::kQ4_1, 3},
      {"Q4_0", DType::kQ4_0, 2},    {"IQ4_NL", DType::kIQ4_NL, 25},   {"IQ4_XS", DType::kIQ4_XS, 30},
      {"Q3_K_L", DType::kQ3_K, 13}, {"Q3_K_M", DType::kQ3_K, 12},     {"Q3_K_S", DType::kQ3_K, 11},
      {"Q2_K", DType::kQ2_K, 10},   {"Q2_K_S", DType::kQ2_K, 21},     {"IQ3_M", DType::kIQ3_S, 27},
      {"IQ3_S", DType::kIQ3_S, 26}, {"MXFP4_MOE", DType::kMXFP4, 38}, {"MXFP4", DType::kMXFP4, 38},
      {"TQ1_0", DType::kTQ1_0, 36}, {"TQ2_0", DType::kTQ2_0, 37},
  };
  return mixes;
}

Result<QuantizeMix> find_quantize_mix(std::string_view name) {
  std::string wanted = ascii_lower(name.substr(0, 64));
  if (wanted == "q3_k" || wanted == "q4_k" || wanted == "q5_k") wanted += "_m";
  std::vector<std::string_view> names;
  names.reserve(quantize_mixes().size());
  for (const QuantizeMix& mix : quantize_mixes()) {
    if (ascii_lower(mix.name) == wanted) return mix;
    names.push_back(mix.name);
  }
  return not_found("unknown type \"{}\"{} (known: {})", name.substr(0, 64), did_you_mean(wanted, names),
                   fmt::join(names, ", "));
}

bool QuantizeRules::quantizes(std::string_view name, size_t axes) {
  // Suffixes of tensors that keep their type, because they are small or sensitive to quantization. "_norm" covers norms
  // of every kind.
  static constexpr std::string_view kKept[] = {"_norm.weight",
                                               "ffn_gate_inp.weight",
                                               "altup",
                                               "laurel",
                                               "per_layer_model_proj",
                                               "ssm_conv1d.weight",
                                               "shortconv.conv.weight",
                                               "time_mix_first.weight",
                                               "time_mix_w0.weight",
                                               "time_mix_w1.weight",
                                               "time_mix_w2.weight",
                                               "time_mix_v0.weight",
                                               "time_mix_v1.weight",
                                               "time_mix_v2.weight",
                                               "time_mix_a0.weight",
                                               "time_mix_a1.weight",
                                               "time_mix_a2.weight",
                                               "time_mix_g1.weight",
                                               "time_mix_g2.weight",
                                               "time_mix_decay_w1.weight",
                                               "time_mix_decay_w2.weight",
                                               "time_mix_lerp_fused.weight",
                                               "attn_rel_b.weight"};
  if (axes < 2 || !name.ends_with("weight") || name == "position_embd.weight" || name == "token_types.weight")
    return false;
  return std::none_of(std::begin(kKept), std::end(kKept), [&](std::string_view part) { return has(name, part); });
}

DType QuantizeRules::mixed_value_type() const {
  const bool is_shared = facts_.num_kv_heads > 0 && facts_.num_heads / facts_.num_kv_heads >= 4;
  if (is("Q2_K")) return is_shared ? DType::kQ4_K : DType::kQ3_K;
  if (is("IQ3_M") || (is_shared && (is("Q2_K_S") || is("IQ3_S")))) return DType::kQ4_K;
  if (is("Q3_K_M")) return values_ < 2 ? DType::kQ5_K : DType::kQ4_K;
  if (is("Q3_K_L") || (is_shared && (is("IQ4_NL") || is("IQ4_XS"))) || (is("Q4_K_S") && values_ < 4))
    return DType::kQ5_K;
  if ((is("Q4_K_M") || is("Q5_K_M")) && wants_more_bits(values_, facts_.num_attention_values)) return DType::kQ6_K;
  return mix_.type;
}

DType QuantizeRules::value_type() {
  DType type = mixed_value_type();
  // attn_v is small, because eight query heads share each of its heads.
  const bool is_large =
      facts_.traits.is_large_at_80_layers && facts_.num_layers == 80 && facts_.num_heads != facts_.num_kv_heads;
  if (is_large && (type == DType::kQ3_K || type == DType::kQ4_K)) type = DType::kQ5_K;
  if (facts_.num_experts == 8) type = DType::kQ8_0;
  ++values_;
  return type;
}

DType QuantizeRules::down_type(const std::string& name) {
  // Experts are not counted: their tensors may come in any order.
  int64_t layer = downs_++;
  if (facts_.num_experts > 1 && name.starts_with("blk.")) layer = std::atoll(name.c_str() + 4);
  const int64_t layers = facts_.num_layers;
  const bool is_coarse = facts_.traits.bears_coarse_layers, more = wants_more_bits(layer, layers);
  if (is("Q2_K")) return DType::kQ3_K;
  if (is("Q2_K_S")) return layer < layers / 8 ? DType::kQ4_K : mix_.type;
  if (is("Q3_K_M")) return layer < layers / 16 ? DType::kQ5_K : !is_coarse || more ? DType::kQ4_K : DType::kQ3_K;
  if (is("IQ3_M")) return layer < layers / 8 || (facts_.num_experts == 8 && more) ? DType::kQ4_K : mix_.type;
  if (is("Q3_K_L")) return is_coarse ? DType::kQ4_K : DType::kQ5_K;
  if (is("Q4_K_M") && is_coarse) return layer < layers / 16 ? DType::kQ6_K : more ? DType::kQ5_K : DType::kQ4_K;
  if (is("Q4_K_M") || is("Q5_K_M")) return more ? DType::kQ6_K : mix_.type;
  if (layer >= layers / 8) return mix_.type;
  if ((is("IQ4_NL") || is("IQ4_XS")) && !facts_.has_imatrix) return DType::kQ5_K;
  if (is("Q4_K_S") && !is_coarse) return DType::kQ5_K;
  // With an importance matrix, the first layers may become wrong in these types.
  if (is("Q4_0") && facts_.has_imatrix) return DType::kQ4_1;
  if (is("Q5_0") && facts_.has_imatrix) return DType::kQ5_1;
  return mix_.type;
}

DType QuantizeRules::attention_output_type() const {
  if (facts_.traits.bears_coarse_layers) return is("Q3_K_L") ? DType::kQ4_K : mix_.type;
  if (facts_.num_experts == 8) {
    for (const std::string_view name :
         {"Q2_K", "Q3_K_S", "Q3_K_M", "IQ4_NL", "Q4_K_S", "Q4_K_M", "IQ3_S", "IQ3_M", "IQ4_XS"})
      if (is(name)) return DType::kQ5_K;
    return mix_.type;
  }
  if (is("Q2_K")) return DType::kQ3_K;
  if (is("Q3_K_M") || is("IQ3_M")) return DType::kQ4_K;
  return is("Q3_K_L") ? DType::kQ5_K : mix_.type;
}

DType QuantizeRules::joint_type() const {
  if (is("Q3_K_M") || is("Q3_K_L") || is("IQ3_M")) return DType::kQ4_K;
  if (is("Q4_K_M")) return DType::kQ5_K;
  return is("Q5_K_M") ? DType::kQ6_K : mix_.type;
}

DType QuantizeRules::type_of(const std::string& name, size_t axes) {
  if (!dtype_info(mix_.type).is_block) return mix_.type;
  const bool is_embedding = name == "token_embd.weight";
  if (name == "output.weight" || (is_embedding && !facts_.has_output)) {
    if (mix_.type == DType::kMXFP4 || mix_.type == DType::kQ8_0 || facts_.traits.wants_fine_logits) return DType::kQ8_0;
    return DType::kQ6_K;
  }
  if (is("MXFP4_MOE")) return axes > 2 ? DType::kMXFP4 : DType::kQ8_0;
  if (is_embedding || name == "per_layer_token_embd.weight")
    return is("TQ1_0") || is("TQ2_0") ? DType::kQ4_K : is("MXFP4") ? DType::kQ8_0 : mix_.type;
  if (has(name, "attn_v.weight")) return value_type();
  if (has(name, "attn_k.weight")) return facts_.num_experts == 8 ? DType::kQ8_0 : mix_.type;
  if (has(name, "attn_q.weight")) return mix_.type;
  if (has(name, "ffn_down")) return down_type(name);
  if (has(name, "attn_output.weight")) return attention_output_type();
  if (has(name, "attn_qkv.weight")) return joint_type();
  return mix_.type;
}

DType fallback_type(DType type, int64_t columns) {
  const auto fits = [&](DType t) { return columns % dtype_info(t).block_elements == 0; };
  if (fits(type)) return type;
  DType next = DType::kF16;
  switch (type) {
    case DType::kTQ1_0:
    case DType::kTQ2_0:
    case DType::kQ2_K:
    case DType::kQ3_K: next = DType::kQ4_0; break;
    case DType::kIQ3_S:
    case DType::kIQ4_XS: next = DType::kIQ4_NL; break;
    case DType::kQ4_K: next = DType::kQ5_0; break;
    case DType::kQ5_K: next = DType::kQ5_1; break;
    case DType::kQ6_K: next = DType::kQ8_0; break;
    default: break;
  }
  return fits(next) ? next : DType::kF16;
}

}  // namespace redline
