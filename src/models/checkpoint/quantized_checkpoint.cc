#include "models/checkpoint/quantized_checkpoint.h"

namespace redline {

using nlohmann::json;

std::string setting_text(const json& object, const char* key) {
  const auto at = object.is_object() ? object.find(key) : object.end();
  std::string text = !object.is_object() || at == object.end() ? "nothing"
                     : at->is_string()                         ? at->get<std::string>()
                                                               : at->dump();
  constexpr size_t kMax = 64;
  text.resize(std::min(text.size(), kMax));
  return text;
}

Result<json> config_groups(const json& config) {
  if (const auto cache = config.find("kv_cache_scheme"); cache != config.end() && !cache->is_null() && !cache->empty())
    return unsupported("it has a kv_cache_scheme");
  if (const auto sparsity = config.find("sparsity_config"); sparsity != config.end() && sparsity->is_object() &&
                                                            !sparsity->empty() &&
                                                            setting_text(*sparsity, "format") != "dense")
    return unsupported("its weights are sparse");
  const auto groups = config.find("config_groups");
  if (groups == config.end() || !groups->is_object() || groups->empty()) return unsupported("no \"config_groups\"");
  return *groups;
}

std::optional<int64_t> read_group_size(const json& value) {
  if (!value.is_number_integer()) return std::nullopt;
  // Unsigned numbers beyond int64 are not sizes either.
  if (value.is_number_unsigned() && value.get<uint64_t>() > INT32_MAX) return std::nullopt;
  const auto size = value.get<int64_t>();
  if (size == 0 || size < -1 || size > INT32_MAX) return std::nullopt;
  return std::max<int64_t>(size, 0);
}

std::string group_text(int64_t group_size) {
  return group_size > 0 ? fmt::format("groups of {}", group_size) : "channels";
}

std::vector<std::string> modules_with(const Checkpoint& checkpoint, std::string_view suffix) {
  std::vector<std::string> modules;
  for (const auto& [name, source] : checkpoint.tensors)
    if (name.size() > suffix.size() + 1 && name.ends_with(suffix) && name[name.size() - suffix.size() - 1] == '.')
      modules.push_back(name.substr(0, name.size() - suffix.size() - 1));
  return modules;
}

Result<QuantizedReader> find_quantized_reader(const Checkpoint& checkpoint) {
  const auto config = checkpoint.config.find("quantization_config");
  if (config == checkpoint.config.end() || config->is_null()) return QuantizedReader{};
  const auto find = [&]() -> Result<QuantizedReader> {
    if (!config->is_object()) return unsupported("no object");
    const std::string method = setting_text(*config, "quant_method"), format = setting_text(*config, "format");
    // Blocks and scales of gpt-oss's experts (models/text/gpt_oss.cc).
    if (method == "mxfp4") return QuantizedReader{"MXFP4", {"U8"}, nullptr};
    if (method == "gptq") return gptq_reader(*config);
    if (method == "awq") return awq_reader(*config);
    if (method != "compressed-tensors") return unsupported("quant_method is {}", method);
    if (format == "pack-quantized") return pack_quantized_reader(*config);
    if (format == "int-quantized") return int_quantized_reader(*config);
    return unsupported("format is {}", format);
  };
  Result<QuantizedReader> reader = find();
  if (reader.ok()) return reader;
  return Status(reader.status().code(), fmt::format("{}/config.json: quantization_config: {}; {}", checkpoint.path,
                                                    reader.status().message(), kQuantizedCheckpoints));
}

}  // namespace redline
