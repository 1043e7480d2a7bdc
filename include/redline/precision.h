// The types of a network's weights and arithmetic: language, image and embedding models.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "redline/status.h"

namespace redline {

/// Types of weights and arithmetic.
enum class Precision : uint8_t {
  kAuto,  ///< weights as stored, the fastest arithmetic for their type, float32 accumulation
  kF32,   ///< float32 throughout
  kBF16,  ///< matrices rounded to bfloat16
  kQ8,    ///< matrices quantized to 8 bits: w8a8 on CPUs with int8 tiles, else q8_0
  kQ8_0,  ///< matrices quantized to 8 bits in blocks of 32
  kW8A8,  ///< matrices quantized to 8 bits with one scale per row; activations are quantized too
};
/// Returns "auto", "f32", "bf16", "q8", "q8_0" or "w8a8".
std::string_view precision_name(Precision precision);
/// Parses "auto", "f32", "bf16", "q8", "q8_0" or "w8a8". invalid_argument: another name.
Result<Precision> precision_from_name(std::string_view name);

/// The conversion of a language model's weights when it is opened with a Precision.
struct WeightConversion {
  std::string type;  ///< "bf16", "q8_0" or "w8a8"; "": the weights are as stored
  /// Number of converted matrices per pair of types: "q8_0 x112 to w8a8". The output matrix of a model becomes q8_0 in
  /// place of w8a8. Empty: all matrices had the type.
  std::vector<std::string> changed;
  std::vector<std::string>
      kept;  ///< number of matrices that keep their type, and why: "q4_k x96 (not wider than w8a8)"
  /// Root mean square of the change of the converted weights relative to that of the weights, estimated from 32 rows of
  /// each matrix.
  double relative_error = 0;
  /// Returns all of it in one sentence; "" if the weights are as stored.
  std::string text() const;
};

}  // namespace redline
