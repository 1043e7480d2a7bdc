// GPTQ checkpoints, as AutoGPTQ and GPTQModel write them (Frantar et al. 2022, arXiv:2210.17323). The tensors of a
// module with K inputs and N outputs:
//
//   qweight  [K bits / 32, N]       i32; a word has the codes of consecutive inputs, the first in its lowest bits
//   qzeros   [groups, N bits / 32]  i32; a word has the zero points of consecutive outputs. Format "gptq" subtracts 1
//                                   from each of them, in whole words; "gptq_v2" does not
//   scales   [groups, N]            float
//   g_idx    [K]                    i32; the group of each input. In act-order it is not sorted
#include "models/checkpoint/grouped_weight.h"
#include "models/checkpoint/quantized_checkpoint.h"

namespace redline {
namespace {

struct Gptq {
  int bits = 4;
  int64_t group_size = 0;  ///< 0: channels
  bool is_v2 = false;
  bool has_order = false;  ///< desc_act
};

Status read_module(Checkpoint& checkpoint, const Gptq& config, const std::string& module, ColumnOrders& orders) {
  const auto name = [&](const char* part) { return fmt::format("{}.{}", module, part); };
  REDLINE_ASSIGN(const WeightSource* qweight, find_integers(checkpoint, name("qweight"), DType::kI32, {-1, -1}));
  const int64_t words = qweight->view.shape[0], rows = qweight->view.shape[1];
  GroupedWeight w;
  w.name = name("weight");
  w.rows = rows;
  // Modules may have other numbers of bits than the settings ("dynamic"); the number then follows from g_idx.
  int bits = config.bits;
  if (const auto g_idx = checkpoint.tensors.find(name("g_idx")); g_idx != checkpoint.tensors.end()) {
    const TensorView& view = g_idx->second.view;
    for (const int other : {2, 4, 8})
      if (view.shape.size() == 1 && words * (32 / other) == view.shape[0]) bits = other;
  }
  w.codes.bits = bits;
  w.cols = words * (32 / bits);
  for (const DType type : {DType::kI32, DType::kI64}) {
    auto g_idx = find_integers(checkpoint, name("g_idx"), type, {w.cols});
    if (!g_idx.ok() && type == DType::kI32 && checkpoint.tensors.at(name("g_idx")).view.dtype == DType::kI64) continue;
    REDLINE_ASSIGN(w.g_idx, std::move(g_idx));
    break;
  }
  w.g_idx_name = name("g_idx");
  if (!w.g_idx && config.has_order) return invalid_argument("tensor {} is missing, and desc_act is true", w.g_idx_name);
  w.scales_name = name("scales");
  REDLINE_ASSIGN(w.scales, find_floats(checkpoint, w.scales_name, {-1, rows}));
  if (!w.scales) return invalid_argument("tensor {} is missing; {} has codes", w.scales_name, name("qweight"));
  w.groups = w.scales->view.shape[0];
  w.group_size = config.group_size > 0 ? config.group_size : w.cols;
  if (!w.g_idx && (w.cols + w.group_size - 1) / w.group_size != w.groups)
    return invalid_argument("tensor {} has {} groups; {} inputs in {} are {}", w.scales_name, w.groups, w.cols,
                            group_text(config.group_size), (w.cols + w.group_size - 1) / w.group_size);
  const int64_t per = 32 / bits;
  if (rows % per != 0)
    return invalid_argument("tensor {} has {} outputs, not a multiple of {}", name("qweight"), rows, per);
  REDLINE_ASSIGN(const WeightSource* qzeros,
                 find_integers(checkpoint, name("qzeros"), DType::kI32, {w.groups, rows / per}));
  if (!qzeros) return invalid_argument("tensor {} is missing; {} has codes", name("qzeros"), name("qweight"));

  w.codes.words = static_cast<const uint8_t*>(qweight->view.data);
  w.codes.along_k = true;
  w.codes.k_stride = rows;
  w.codes.set_places_in_order();
  w.zeros.emplace();
  w.zeros->words = static_cast<const uint8_t*>(qzeros->view.data);
  w.zeros->bits = bits;
  w.zeros->along_k = false;
  w.zeros->k_stride = rows / per;
  w.zeros->set_places_in_order();
  for (int64_t i = 0; !config.is_v2 && i < per; ++i) w.zeros->added |= 1u << (bits * i);
  w.from = {qweight, qzeros, w.scales};
  if (w.g_idx) w.from.push_back(w.g_idx);
  REDLINE_ASSIGN(WeightSource made, make_grouped_weight(w, orders));
  for (const char* part : {"qweight", "qzeros", "scales", "g_idx"}) checkpoint.tensors.erase(name(part));
  checkpoint.tensors[w.name] = std::move(made);
  return {};
}

}  // namespace

Result<QuantizedReader> gptq_reader(const nlohmann::json& config) {
  Gptq gptq;
  const std::string bits = setting_text(config, "bits");
  if (bits != "2" && bits != "4" && bits != "8") return unsupported("bits is {}", bits);
  gptq.bits = bits[0] - '0';
  const auto group = config.find("group_size");
  if (group != config.end() && !group->is_null()) {
    const auto size = read_group_size(*group);
    if (!size) return unsupported("group_size is {}", setting_text(config, "group_size"));
    gptq.group_size = *size;
  }
  std::string format = setting_text(config, "checkpoint_format");
  if (format == "nothing") format = setting_text(config, "format");
  if (format != "nothing" && format != "null" && format != "gptq" && format != "gptq_v2")
    return unsupported("checkpoint_format is {}", format);
  gptq.is_v2 = format == "gptq_v2";
  gptq.has_order = setting_text(config, "desc_act") == "true";
  if (const std::string pack = setting_text(config, "pack_dtype");
      pack != "nothing" && pack != "int32" && pack != "null")
    return unsupported("pack_dtype is {}", pack);
  QuantizedReader reader;
  reader.name = fmt::format("GPTQ{}, {} bits, {}{}", gptq.is_v2 ? " v2" : "", gptq.bits, group_text(gptq.group_size),
                            gptq.has_order ? ", act-order" : "");
  reader.types = {"I32", "I64"};
  reader.read = [gptq](Checkpoint& checkpoint) -> Status {
    ColumnOrders orders;
    for (const std::string& module : modules_with(checkpoint, "qweight"))
      REDLINE_TRY(read_module(checkpoint, gptq, module, orders));
    checkpoint.tensors_tell_biases = true;  // some writers add biases of zeros
    return {};
  };
  return reader;
}

}  // namespace redline
