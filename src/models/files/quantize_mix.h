// Chooses the type of each tensor of a quantized model: the named mixes of llama.cpp's quantizer (llama-quant.cpp),
// with its rules.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/checkpoint/gguf_names.h"
#include "tensor/dtype.h"

namespace redline {

/// A mix of types: one type for most matrices, and higher precision for sensitive ones.
struct QuantizeMix {
  std::string_view name;  ///< "Q4_K_M"
  DType type;
  uint32_t file_type;  ///< ggml's LLAMA_FTYPE, general.file_type
};
/// Returns all mixes, in the order of help texts.
const std::vector<QuantizeMix>& quantize_mixes();
/// Returns the mix of this name, in upper or lower case; "Q4_K" is Q4_K_M as in llama.cpp. not_found: the message lists
/// the mixes.
Result<QuantizeMix> find_quantize_mix(std::string_view name);

/// Returns the traits of a general.architecture: from its row for Redline's families, else from a list of other
/// architectures.
QuantizeTraits find_quantize_traits(std::string_view architecture);

/// Model properties that the rules use.
struct QuantizeFacts {
  QuantizeTraits traits;
  int64_t num_layers = 0, num_heads = 0, num_kv_heads = 0, num_experts = 0;
  int64_t num_attention_values = 0;  ///< attn_v, attn_qkv and attn_kv_b tensors
  bool has_output = false;           ///< the output matrix is not the embedding matrix
  bool has_imatrix = false;
};

/// Chooses the types of the tensors of one model. Call type_of() in the order of layers and names: some rules count
/// tensors.
class QuantizeRules {
 public:
  QuantizeRules(const QuantizeMix& mix, const QuantizeFacts& facts) : mix_(mix), facts_(facts) {}
  /// Returns true if a tensor is quantized at all: a matrix named ".weight" that is not a norm, router, position
  /// embedding or small parameter.
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
  int64_t values_ = 0, downs_ = 0;  ///< number of attn_v and of ffn_down tensors so far
};

/// Returns the type for rows that are not whole blocks of `type`: llama.cpp's fallback, or F16 if that does not fit
/// either.
DType fallback_type(DType type, int64_t columns);

}  // namespace redline
