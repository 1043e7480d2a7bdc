#include "models/int_quantized.h"

#include <fmt/ranges.h>

#include <cmath>
#include <cstring>

#include "tensor/blocks/w8a8.h"

namespace redline {
namespace {

using nlohmann::json;

constexpr std::string_view kWhatIsRead =
    "Redline reads compressed-tensors' int-quantized W8A8 (int8 weights, symmetric, a scale for each channel; "
    "activations int8, "
    "symmetric, dynamic, a scale for each token), GGUF files and float weights";

std::string text_of(const json& object, const char* key) {
  const auto at = object.is_object() ? object.find(key) : object.end();
  return !object.is_object() || at == object.end() ? "nothing" : at->is_string() ? at->get<std::string>() : at->dump();
}

/// The first setting that differs from W8A8, or "".
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
    const std::string is = text_of(*part, row.key);
    const bool left_out =
        is == "nothing" && std::string_view(row.key) == "dynamic" && std::string_view(row.wanted) == "false";
    if (is != row.wanted && !left_out)
      return fmt::format("{}.{} is {}, not {}", row.part, row.key, is.substr(0, 64), row.wanted);
  }
  const auto output = group.find("output_activations");
  return output == group.end() || output->is_null() ? "" : "output_activations are rounded";
}

Status check_scheme(const std::string& path, const json& config) {
  const auto refuse = [&](const std::string& why) {
    return unsupported("{}/config.json: quantization_config: {}; {}", path, why, kWhatIsRead);
  };
  if (!config.is_object()) return refuse("no object");
  if (const std::string method = text_of(config, "quant_method"); method != "compressed-tensors")
    return refuse(fmt::format("quant_method is {}", method.substr(0, 64)));
  if (const std::string format = text_of(config, "format"); format != "int-quantized")
    return refuse(fmt::format("format is {}", format.substr(0, 64)));
  for (const char* key : {"kv_cache_scheme"})
    if (const auto at = config.find(key); at != config.end() && !at->is_null() && !at->empty())
      return refuse(fmt::format("it has a {}", key));
  if (const auto sparsity = config.find("sparsity_config"); sparsity != config.end() && sparsity->is_object() &&
                                                            !sparsity->empty() &&
                                                            text_of(*sparsity, "format") != "dense")
    return refuse("its weights are sparse");
  const auto groups = config.find("config_groups");
  if (groups == config.end() || !groups->is_object() || groups->empty()) return refuse("no \"config_groups\"");
  for (const auto& [name, group] : groups->items()) {
    if (!group.is_object()) return refuse(fmt::format("{} is not an object", name));
    if (const auto own = group.find("format"); own != group.end() && !own->is_null() && *own != "int-quantized")
      return refuse(fmt::format("{}: format is {}", name, own->dump().substr(0, 64)));
    if (const std::string why = difference(group); !why.empty()) return refuse(fmt::format("{}: {}", name, why));
  }
  return {};
}

/// Combines codes and scales, which are separate tensors in the file, to rows of w8a8.
Status join(const std::string& name, WeightSource& codes, const WeightSource& scales) {
  const TensorView &view = codes.view, &scale_view = scales.view;
  if (view.shape.size() != 2)
    return unsupported("tensor {}: int8 with {} axes; {}", name, view.shape.size(), kWhatIsRead);
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

}  // namespace

Status check_int_quantized(const Checkpoint& checkpoint) {
  return check_scheme(checkpoint.path, checkpoint.config.at("quantization_config"));
}

Status read_int_quantized(Checkpoint& checkpoint) {
  std::vector<std::string> used;
  for (auto& [name, source] : checkpoint.tensors) {
    if (source.view.dtype != DType::kI8) continue;
    const auto scales = checkpoint.tensors.find(name + "_scale");
    if (!name.ends_with(".weight") || scales == checkpoint.tensors.end())
      return invalid_argument("{}: tensor {} is int8 and has no scales", checkpoint.path, name);
    if (checkpoint.tensors.count(name + "_zero_point") > 0)
      return unsupported("{}: tensor {} has zero points; {}", checkpoint.path, name, kWhatIsRead);
    REDLINE_TRY(join(name, source, scales->second).within(checkpoint.path));
    used.push_back(scales->first);
  }
  for (const std::string& name : used) checkpoint.tensors.erase(name);
  return {};
}

}  // namespace redline
