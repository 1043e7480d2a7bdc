// Which type each tensor of a quantized model gets: the named mixes of llama.cpp's quantizer (llama-quant.cpp), by its
// rules.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/gguf_names.h"
#include "tensor/dtype.h"

namespace redline {

/// A mix has a type for most matrices, and higher precision for sensitive ones.
struct QuantizeMix {
  std::string_view name;  ///< "Q4_K_M"
  DType type;
  uint32_t file_type;  ///< ggml's LLAMA_FTYPE, general.file_type
};
/// In the order of help texts.
const std::vector<QuantizeMix>& quantize_mixes();
/// In any case of letters; "Q4_K" is Q4_K_M as in llama.cpp. not_found: the message lists the mixes.
Result<QuantizeMix> find_quantize_mix(std::string_view name);

/// By general.architecture; those of Redline's families have them in their row.
QuantizeTraits find_quantize_traits(std::string_view architecture);

/// Model properties that the rules use.
struct QuantizeFacts {
  QuantizeTraits traits;
  int64_t num_layers = 0, num_heads = 0, num_kv_heads = 0, num_experts = 0;
  int64_t num_attention_values = 0;  ///< attn_v, attn_qkv and attn_kv_b tensors
  bool has_output = false;           ///< a matrix of its own makes the logits
  bool has_imatrix = false;
};

/// Types of the tensors of one model. Call in the order of layers and names: some rules count tensors.
class QuantizeRules {
 public:
  QuantizeRules(const QuantizeMix& mix, const QuantizeFacts& facts) : mix_(mix), facts_(facts) {}
  /// Whether a tensor is quantized at all: matrices named ".weight" that are not norm, router, position or small
  /// parameter.
  static bool quantizes(std::string_view name, size_t axes);
  DType type_of(const std::string& name, size_t axes);

 private:
  bool is(std::string_view mix) const { return mix_.name == mix; }
  DType mixed_value_type() const;
  DType value_type();
  DType down_type(const std::string& name);
  DType attention_output_type() const;
  DType joint_type() const;

  QuantizeMix mix_;
  QuantizeFacts facts_;
  int64_t values_ = 0, downs_ = 0;  ///< tensors so far
};

/// The type for rows that `type` does not divide: llama.cpp's, or F16 where that does not fit either.
DType fallback_type(DType type, int64_t columns);

}  // namespace redline
