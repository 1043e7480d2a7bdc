// Checkpoints of compressed-tensors' "pack-quantized", as llm-compressor and vLLM write them. The tensors of a module
// with K inputs and N outputs, where a word has P = 32 / bits values, the first in its lowest bits:
//
//   weight_packed      [N, K / P]             i32; codes of consecutive inputs, plus 2^(bits - 1)
//   weight_scale       [N, groups]            float
//   weight_zero_point  [ceil(N / P), groups]  i32; zero points of consecutive outputs, plus 2^(bits - 1). Symmetric
//                                             schemes have none
//   weight_shape       [2]                    i64; N, K
//   weight_g_idx       [K]                    i32; the group of each input, where the actorder is "group"
#include <algorithm>
#include <cstring>

#include "models/checkpoint/grouped_weight.h"
#include "models/checkpoint/quantized_checkpoint.h"

namespace redline {
namespace {

using nlohmann::json;

/// A quantization scheme of "config_groups".
struct Scheme {
  int bits = 4;
  int64_t group_size = 0;  ///< 0: channels
  bool is_symmetric = true;
};

Result<Scheme> read_scheme(const std::string& name, const json& group) {
  const auto weights = group.is_object() ? group.find("weights") : group.end();
  if (!group.is_object() || weights == group.end() || !weights->is_object())
    return unsupported("{}: no \"weights\"", name);
  const auto differs = [&](const char* key) {
    return unsupported("{}: weights.{} is {}", name, key, setting_text(*weights, key));
  };
  Scheme scheme;
  const std::string bits = setting_text(*weights, "num_bits"), strategy = setting_text(*weights, "strategy");
  // Versions of compressed-tensors differ in the words of other numbers of bits.
  if (bits != "2" && bits != "4" && bits != "8") return differs("num_bits");
  scheme.bits = bits[0] - '0';
  if (setting_text(*weights, "type") != "int") return differs("type");
  if (setting_text(*weights, "dynamic") == "true") return differs("dynamic");
  scheme.is_symmetric = setting_text(*weights, "symmetric") != "false";
  if (strategy == "group") {
    const auto group = weights->find("group_size");
    const auto size = group == weights->end() ? std::nullopt : read_group_size(*group);
    if (size.value_or(0) == 0) return differs("group_size");
    scheme.group_size = *size;
  } else if (strategy != "channel") {
    return differs("strategy");
  }
  for (const char* key : {"input_activations", "output_activations"})
    if (const auto at = group.find(key); at != group.end() && !at->is_null())
      return unsupported("{}: {} are rounded", name, key);
  if (const auto format = group.find("format");
      format != group.end() && !format->is_null() && *format != "pack-quantized")
    return unsupported("{}: format is {}", name, setting_text(group, "format"));
  return scheme;
}

/// Reads N and K.
Result<std::pair<int64_t, int64_t>> read_shape(const Checkpoint& checkpoint, const std::string& name) {
  REDLINE_ASSIGN(const WeightSource* shape, find_integers(checkpoint, name,
                                                          checkpoint.tensors.count(name) > 0 &&
                                                                  checkpoint.tensors.at(name).view.dtype == DType::kI32
                                                              ? DType::kI32
                                                              : DType::kI64,
                                                          {2}));
  if (!shape) return invalid_argument("tensor {} is missing", name);
  int64_t sizes[2];
  for (int i = 0; i < 2; ++i) {
    const auto* data = static_cast<const uint8_t*>(shape->view.data);
    if (shape->view.dtype == DType::kI64) {
      std::memcpy(&sizes[i], data + 8 * i, 8);
      continue;
    }
    int32_t size;
    std::memcpy(&size, data + 4 * i, 4);
    sizes[i] = size;
  }
  constexpr int64_t kMax = int64_t{1} << 31;
  if (sizes[0] < 1 || sizes[1] < 1 || sizes[0] > kMax || sizes[1] > kMax)
    return invalid_argument("tensor {} holds [{}, {}], which is no matrix", name, sizes[0], sizes[1]);
  return std::pair(sizes[0], sizes[1]);
}

Status read_module(Checkpoint& checkpoint, const std::vector<Scheme>& schemes, const std::string& module,
                   ColumnOrders& orders) {
  const auto name = [&](const char* part) { return fmt::format("{}.{}", module, part); };
  GroupedWeight w;
  w.name = name("weight");
  REDLINE_ASSIGN(const auto shape, read_shape(checkpoint, name("weight_shape")));
  const int64_t rows = w.rows = shape.first, cols = w.cols = shape.second;
  REDLINE_ASSIGN(const WeightSource* codes, find_integers(checkpoint, name("weight_packed"), DType::kI32, {rows, -1}));
  w.scales_name = name("weight_scale");
  REDLINE_ASSIGN(w.scales, find_floats(checkpoint, w.scales_name, {rows, -1}));
  if (!w.scales) return invalid_argument("tensor {} is missing; {} has codes", w.scales_name, name("weight_packed"));
  w.has_scales_by_row = true;
  w.groups = w.scales->view.shape[1];
  const int64_t words = codes->view.shape[1];
  // Selects the scheme by the sizes of the tensors, because the file names modules by patterns.
  const auto fits = [&](const Scheme& s) {
    const int64_t per = 32 / s.bits, size = s.group_size > 0 ? s.group_size : cols;
    return (cols + per - 1) / per == words && (cols + size - 1) / size == w.groups;
  };
  const bool has_zeros = checkpoint.tensors.count(name("weight_zero_point")) > 0;
  auto scheme = std::find_if(schemes.begin(), schemes.end(),
                             [&](const Scheme& s) { return fits(s) && s.is_symmetric != has_zeros; });
  if (scheme == schemes.end()) scheme = std::find_if(schemes.begin(), schemes.end(), fits);
  if (scheme == schemes.end())
    return invalid_argument(
        "tensor {} is [{}, {}] and {} has {} groups for [{}, {}]; no scheme of config_groups has these",
        name("weight_packed"), rows, words, w.scales_name, w.groups, rows, cols);
  w.group_size = scheme->group_size > 0 ? scheme->group_size : cols;
  w.codes.words = static_cast<const uint8_t*>(codes->view.data);
  w.codes.bits = scheme->bits;
  w.codes.along_k = true;
  w.codes.n_stride = words;
  w.codes.set_places_in_order();
  w.from = {codes, w.scales};
  const int64_t per = 32 / scheme->bits;
  REDLINE_ASSIGN(const WeightSource* zeros,
                 find_integers(checkpoint, name("weight_zero_point"), DType::kI32, {(rows + per - 1) / per, w.groups}));
  if (!zeros && !scheme->is_symmetric)
    return invalid_argument("tensor {} is missing, and the scheme is not symmetric", name("weight_zero_point"));
  if (zeros) {
    w.zeros.emplace();
    w.zeros->words = static_cast<const uint8_t*>(zeros->view.data);
    w.zeros->bits = scheme->bits;
    w.zeros->along_k = false;
    w.zeros->n_stride = w.groups;
    w.zeros->set_places_in_order();
    w.from.push_back(zeros);
  }
  w.g_idx_name = name("weight_g_idx");
  REDLINE_ASSIGN(w.g_idx, find_integers(checkpoint, w.g_idx_name, DType::kI32, {cols}));
  if (w.g_idx) w.from.push_back(w.g_idx);
  REDLINE_ASSIGN(WeightSource made, make_grouped_weight(w, orders));
  for (const char* part : {"weight_packed", "weight_scale", "weight_zero_point", "weight_shape", "weight_g_idx"})
    checkpoint.tensors.erase(name(part));
  checkpoint.tensors[w.name] = std::move(made);
  return {};
}

}  // namespace

Result<QuantizedReader> pack_quantized_reader(const json& config) {
  REDLINE_ASSIGN(const json groups, config_groups(config));
  std::vector<Scheme> schemes;
  for (const auto& [name, group] : groups.items()) {
    REDLINE_ASSIGN(const Scheme scheme, read_scheme(name, group));
    schemes.push_back(scheme);
  }
  QuantizedReader reader;
  reader.name = "compressed-tensors pack-quantized";
  for (const Scheme& s : schemes)
    reader.name +=
        fmt::format(", {} bits, {}{}", s.bits, group_text(s.group_size), s.is_symmetric ? "" : ", asymmetric");
  reader.types = {"I32", "I64"};
  reader.read = [schemes](Checkpoint& checkpoint) -> Status {
    ColumnOrders orders;
    for (const std::string& module : modules_with(checkpoint, "weight_packed"))
      REDLINE_TRY(read_module(checkpoint, schemes, module, orders));
    return {};
  };
  return reader;
}

}  // namespace redline
