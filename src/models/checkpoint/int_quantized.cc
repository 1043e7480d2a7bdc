// Checkpoints of compressed-tensors' "int-quantized" W8A8, as vLLM and llm-compressor write them.

#include <fmt/ranges.h>

#include <cmath>
#include <cstring>

#include "models/checkpoint/quantized_checkpoint.h"
#include "tensor/blocks/w8a8.h"

namespace redline {
namespace {

using nlohmann::json;

/// Returns the first setting that differs from W8A8, or "".
std::string difference(const json& group) {
  struct Row {
    const char *part, *key, *wanted;
  };
  constexpr Row kRows[] = {
      {"weights", "num_bits", "8"},
      {"weights", "type", "int"},
      {"weights", "symmetric", "true"},
      {"weights", "strategy", "channel"},
      {"weights", "dynamic", "false"},
      {"input_activations", "num_bits", "8"},
      {"input_activations", "type", "int"},
      {"input_activations", "symmetric", "true"},
      {"input_activations", "dynamic", "true"},
      {"input_activations", "strategy", "token"},
  };
  for (const Row& row : kRows) {
    const auto part = group.find(row.part);
    if (part == group.end() || !part->is_object()) return fmt::format("no \"{}\"", row.part);
    const std::string is = setting_text(*part, row.key);
    const bool left_out =
        is == "nothing" && std::string_view(row.key) == "dynamic" && std::string_view(row.wanted) == "false";
    if (is != row.wanted && !left_out) return fmt::format("{}.{} is {}, not {}", row.part, row.key, is, row.wanted);
  }
  const auto output = group.find("output_activations");
  return output == group.end() || output->is_null() ? "" : "output_activations are rounded";
}

Status check_scheme(const json& config) {
  REDLINE_ASSIGN(const json groups, config_groups(config));
  for (const auto& [name, group] : groups.items()) {
    if (!group.is_object()) return unsupported("{} is not an object", name);
    if (const auto own = group.find("format"); own != group.end() && !own->is_null() && *own != "int-quantized")
      return unsupported("{}: format is {}", name, setting_text(group, "format"));
    if (const std::string why = difference(group); !why.empty()) return unsupported("{}: {}", name, why);
  }
  return {};
}

/// Combines codes and scales, which are separate tensors in the file, to rows of w8a8.
Status join(const std::string& name, WeightSource& codes, const WeightSource& scales) {
  const TensorView &view = codes.view, &scale_view = scales.view;
  if (view.shape.size() != 2)
    return unsupported("tensor {}: int8 with {} axes; {}", name, view.shape.size(), kQuantizedCheckpoints);
  const int64_t rows = view.shape[0], cols = view.shape[1];
  if (cols % blocks::W8A8::kElements != 0)
    return unsupported("tensor {}: rows of {} elements; they are read in multiples of {}", name, cols,
                       blocks::W8A8::kElements);
  const bool fits =
      (scale_view.shape == std::vector<int64_t>{rows, 1} || scale_view.shape == std::vector<int64_t>{rows}) &&
      dtype_info(scale_view.dtype).is_float;
  if (!fits)
    return invalid_argument("tensor {}_scale is {} [{}]; a float for each of {} rows is expected", name,
                            dtype_info(scale_view.dtype).name, fmt::join(scale_view.shape, ", "), rows);
  std::vector<float> values(static_cast<size_t>(rows));
  unpack_row(scale_view.dtype, scale_view.data, values.data(), rows);
  for (const float value : values)
    if (!std::isfinite(value)) return invalid_argument("tensor {}_scale holds {}", name, value);
  const int64_t bytes = row_bytes(DType::kW8A8, cols);
  REDLINE_ASSIGN(auto made, MappedFile::make(name, rows * bytes, [&](uint8_t* target) {
                   const auto* source = static_cast<const uint8_t*>(view.data);
                   for (int64_t r = 0; r < rows; ++r, target += bytes, source += cols) {
                     std::memcpy(target, source, static_cast<size_t>(cols));
                     std::memcpy(target + cols, &values[static_cast<size_t>(r)], sizeof(float));
                   }
                 }));
  if (codes.file) codes.file->release(static_cast<const uint8_t*>(view.data) - codes.file->data(), view.bytes());
  codes.file = std::move(made);
  codes.view = {DType::kW8A8, view.shape, codes.file->data()};
  return {};
}

/// Reads the matrices: every NAME.weight of int8 [N, K] and its NAME.weight_scale [N, 1] of a float type become one
/// w8a8 matrix (tensor/blocks/w8a8.h). Activations are quantized dynamically, with one scale for every 1024 elements of
/// a token instead of one per token, which is no coarser. Modules of the "ignore" list keep their float weights. The
/// file pages of a weight are released once it is read.
/// invalid_argument: a matrix without its scales, or scales that are not finite or of another shape. out_of_memory.
Status read_matrices(Checkpoint& checkpoint) {
  std::vector<std::string> used;
  for (auto& [name, source] : checkpoint.tensors) {
    if (source.view.dtype != DType::kI8) continue;
    const auto scales = checkpoint.tensors.find(name + "_scale");
    if (!name.ends_with(".weight") || scales == checkpoint.tensors.end())
      return invalid_argument("tensor {} is int8 and has no scales", name);
    if (checkpoint.tensors.count(name + "_zero_point") > 0)
      return unsupported("tensor {} has zero points; {}", name, kQuantizedCheckpoints);
    REDLINE_TRY(join(name, source, scales->second));
    used.push_back(scales->first);
  }
  for (const std::string& name : used) checkpoint.tensors.erase(name);
  return {};
}

}  // namespace

Result<QuantizedReader> int_quantized_reader(const json& config) {
  REDLINE_TRY(check_scheme(config));
  return QuantizedReader{"compressed-tensors int-quantized W8A8", {"I8"}, read_matrices};
}

}  // namespace redline
