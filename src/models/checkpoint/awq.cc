// AWQ checkpoints of version "gemm", as AutoAWQ writes them (Lin et al. 2023, arXiv:2306.00978). The tensors of a
// module with K inputs and N outputs:
//
//   qweight  [K, N / 8]       i32; a word has the codes of 8 consecutive outputs, in the order 0, 2, 4, 6, 1, 3, 5, 7
//   qzeros   [groups, N / 8]  i32; the zero points of the outputs, in the same order
//   scales   [groups, N]      float
#include "models/checkpoint/grouped_weight.h"
#include "models/checkpoint/quantized_checkpoint.h"

namespace redline {
namespace {

constexpr int64_t kPerWord = 8;
constexpr int kBits = 4;

PackedInts packed(const WeightSource& source) {
  PackedInts ints;
  ints.words = static_cast<const uint8_t*>(source.view.data);
  ints.bits = kBits;
  ints.along_k = false;
  ints.k_stride = source.view.shape[1];
  constexpr int kOrder[kPerWord] = {0, 2, 4, 6, 1, 3, 5, 7};
  for (int i = 0; i < kPerWord; ++i) ints.places[static_cast<size_t>(kOrder[i])] = static_cast<uint8_t>(kBits * i);
  return ints;
}

Status read_module(Checkpoint& checkpoint, int64_t group_size, const std::string& module, ColumnOrders& orders) {
  const auto name = [&](const char* part) { return fmt::format("{}.{}", module, part); };
  REDLINE_ASSIGN(const WeightSource* qweight, find_integers(checkpoint, name("qweight"), DType::kI32, {-1, -1}));
  GroupedWeight w;
  w.name = name("weight");
  w.cols = qweight->view.shape[0];
  w.rows = qweight->view.shape[1] * kPerWord;
  w.group_size = group_size > 0 ? group_size : w.cols;
  w.groups = (w.cols + w.group_size - 1) / w.group_size;
  w.scales_name = name("scales");
  REDLINE_ASSIGN(w.scales, find_floats(checkpoint, w.scales_name, {w.groups, w.rows}));
  REDLINE_ASSIGN(const WeightSource* qzeros,
                 find_integers(checkpoint, name("qzeros"), DType::kI32, {w.groups, w.rows / kPerWord}));
  if (!w.scales || !qzeros)
    return invalid_argument("tensor {} is missing; {} has codes", w.scales ? name("qzeros") : w.scales_name,
                            name("qweight"));
  w.codes = packed(*qweight);
  w.zeros = packed(*qzeros);
  w.from = {qweight, qzeros, w.scales};
  REDLINE_ASSIGN(WeightSource made, make_grouped_weight(w, orders));
  for (const char* part : {"qweight", "qzeros", "scales"}) checkpoint.tensors.erase(name(part));
  checkpoint.tensors[w.name] = std::move(made);
  return {};
}

}  // namespace

Result<QuantizedReader> awq_reader(const nlohmann::json& config) {
  const char* const bits_key = config.contains("bits") ? "bits" : "w_bit";
  if (const std::string bits = setting_text(config, bits_key); bits != "4")
    return unsupported("{} is {}", bits_key, bits);
  std::string version = setting_text(config, config.contains("version") ? "version" : "format");
  for (char& c : version) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  if (version != "nothing" && version != "gemm") return unsupported("version is {}", version);
  if (const std::string zero = setting_text(config, "zero_point"); zero == "false")
    return unsupported("zero_point is {}", zero);
  const char* const group_key = config.contains("group_size") ? "group_size" : "q_group_size";
  const auto group = config.find(group_key);
  const auto size = group == config.end() ? std::nullopt : read_group_size(*group);
  if (!size) return unsupported("{} is {}", group_key, setting_text(config, group_key));
  const int64_t group_size = *size;
  QuantizedReader reader;
  reader.name = fmt::format("AWQ, {} bits, {}", kBits, group_text(group_size));
  reader.types = {"I32"};
  reader.read = [group_size](Checkpoint& checkpoint) -> Status {
    ColumnOrders orders;
    for (const std::string& module : modules_with(checkpoint, "qweight"))
      REDLINE_TRY(read_module(checkpoint, group_size, module, orders));
    return {};
  };
  return reader;
}

}  // namespace redline
