#include "diffusion/adapters.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "formats/safetensors.h"
#include "models/convert_weights.h"
#include "models/flux_file.h"
#include "models/unet_names.h"
#include "tensor/packed_weight.h"

namespace redline {
namespace {

/// Suffixes of tensor names, and the factor that each stands for.
struct Suffix {
  std::string_view text;
  enum Kind : uint8_t { kDown, kUp, kAlpha } kind;
};
constexpr Suffix kSuffixes[] = {
    {".lora_A.weight", Suffix::kDown},
    {".lora_B.weight", Suffix::kUp},
    {".lora_A.default.weight", Suffix::kDown},
    {".lora_B.default.weight", Suffix::kUp},
    {".lora_down.weight", Suffix::kDown},
    {".lora_up.weight", Suffix::kUp},
    {".lora.down.weight", Suffix::kDown},
    {".lora.up.weight", Suffix::kUp},
    {"_lora.down.weight", Suffix::kDown},
    {"_lora.up.weight", Suffix::kUp},
    {".lora_linear_layer.down.weight", Suffix::kDown},
    {".lora_linear_layer.up.weight", Suffix::kUp},
    {".alpha", Suffix::kAlpha},
};
/// Prefixes of the network's own names.
constexpr std::string_view kPrefixes[] = {"base_model.model.", "diffusion_model.", "transformer.", "unet.",
                                          "lora_transformer_", "lora_unet_"};

/// Prefixes of text encoders, by component. kohya's trainers number CLIP-L, CLIP-G and T5 even when some are missing.
constexpr std::pair<std::string_view, std::string_view> kEncoderPrefixes[] = {
    {"text_encoder.", "text_encoder"}, {"text_encoder_2.", "text_encoder_2"}, {"text_encoder_3.", "text_encoder_3"},
    {"lora_te_", "text_encoder"},      {"lora_te1_", "text_encoder"},         {"lora_te2_", "text_encoder_2"},
    {"lora_te3_", "text_encoder_3"},
};
/// Prefix of CLIP's text model, in the files of some versions of transformers only.
constexpr std::string_view kTextModel[] = {"text_model.", "text_model_"};

std::string_view without_any(std::string_view name, std::span<const std::string_view> prefixes) {
  for (bool again = true; again;) {
    again = false;
    for (const std::string_view prefix : prefixes)
      if (name.starts_with(prefix)) name.remove_prefix(prefix.size()), again = true;
  }
  return name;
}

/// Removes the prefix and returns the component that it names; "" for the denoiser.
std::string_view take_component(std::string_view& name) {
  for (const auto& [prefix, component] : kEncoderPrefixes)
    if (name.starts_with(prefix)) {
      name = without_any(name.substr(prefix.size()), kTextModel);
      return component;
    }
  name = without_any(name, kPrefixes);
  return {};
}

/// "attn1.processor.to_out" in the oldest files of diffusers is "attn1.to_out.0".
std::string without_processor(std::string name) {
  constexpr std::string_view kProcessor = ".processor.";
  const size_t at = name.find(kProcessor);
  if (at == std::string::npos) return name;
  name.replace(at, kProcessor.size(), ".");
  return name.ends_with(".to_out") ? name + ".0" : name;
}

/// kohya's files replace the dots of a name by underscores.
std::string underscored(std::string name) {
  std::replace(name.begin(), name.end(), '.', '_');
  return name;
}

std::vector<float> values_of(const TensorView& view) {
  std::vector<float> values(static_cast<size_t>(view.num_elements()));
  unpack_row(view.dtype, view.data, values.data(), view.num_elements());
  return values;
}

/// Row-major values of `shape`, two or four axes, packed as `type`.
std::vector<uint8_t> pack(const std::vector<float>& values, const std::vector<int64_t>& shape, DType type,
                          const std::function<int64_t(int64_t)>& source_row) {
  const auto [rows, cols] = packed_matrix({type, shape, nullptr});
  const int64_t bytes = row_bytes(type, cols);
  std::vector<uint8_t> rounded(static_cast<size_t>(rows * bytes));
  for (int64_t r = 0; r < rows; ++r) round_row(type, values.data() + r * cols, cols, rounded.data() + r * bytes);
  std::vector<uint8_t> packed(static_cast<size_t>(packed_bytes(type, rows, cols)));
  pack_strips({type, shape, rounded.data()}, 0, (rows + kStripRows - 1) / kStripRows, packed.data(), source_row);
  return packed;
}

}  // namespace

Result<AdapterFile> AdapterFile::open(const std::string& path) {
  REDLINE_ASSIGN(const SafetensorsFiles files, SafetensorsFiles::open_file(path));
  AdapterFile adapter;
  adapter.file = files.files()[0];
  std::map<std::pair<std::string, std::string>, double> alphas;  // by component and module
  for (const SafetensorsTensor& tensor : files.tensors()) {
    const auto suffix = std::find_if(std::begin(kSuffixes), std::end(kSuffixes),
                                     [&](const Suffix& s) { return tensor.name.ends_with(s.text); });
    std::string_view spelled = tensor.name;
    spelled = spelled.substr(0, spelled.rfind(suffix == std::end(kSuffixes) ? std::string_view(".") : suffix->text));
    const std::string component(take_component(spelled));
    const std::string module = without_processor(std::string(spelled));
    if (suffix == std::end(kSuffixes))
      return unsupported(
          "{}: tensor {} belongs to no LoRA pair (lora_A/lora_B or lora_down/lora_up); LoHa, LoKr, DoRA and a "
          "lora_mid between the two are not supported",
          path, tensor.name);
    if (!tensor.view.data) return unsupported("{}: tensor {} has type {}", path, tensor.name, tensor.type_name);
    if (suffix->kind == Suffix::kAlpha) {
      if (tensor.view.num_elements() != 1) return invalid_argument("{}: {} is not a single number", path, tensor.name);
      alphas[{component, module}] = static_cast<double>(values_of(tensor.view)[0]);
      continue;
    }
    TensorView view = tensor.view;
    // A linear layer stored as a 1x1 convolution.
    if (view.shape.size() == 4 && view.shape[2] == 1 && view.shape[3] == 1) view.shape.resize(2);
    const bool is_kernel = suffix->kind == Suffix::kDown && view.shape.size() == 4 && view.shape[2] == view.shape[3];
    if (view.shape.size() != 2 && !is_kernel)
      return unsupported(
          "{}: {} is [{}]; a pair is [rank, in] and [out, rank], of a convolution [rank, in, kernel, kernel] and [out, "
          "rank, 1, 1]",
          path, tensor.name, fmt::join(view.shape, ", "));
    AdapterMatrix& matrix = adapter.networks[component][module];
    (suffix->kind == Suffix::kDown ? matrix.down : matrix.up) = view;
  }
  if (adapter.networks.empty()) return invalid_argument("{}: holds no LoRA pair", path);
  for (auto& [component, matrices] : adapter.networks)
    for (auto& [module, matrix] : matrices) {
      if (!matrix.down.data || !matrix.up.data)
        return invalid_argument("{}: {} has only one of its two matrices", path, module);
      const int64_t rank = matrix.down.shape[0];
      if (rank < 1 || matrix.up.shape[1] != rank)
        return invalid_argument("{}: {}: down is [{}], up is [{}]: the ranks differ", path, module,
                                fmt::join(matrix.down.shape, ", "), fmt::join(matrix.up.shape, ", "));
      adapter.max_rank = std::max(adapter.max_rank, rank);
      if (const auto alpha = alphas.find({component, module}); alpha != alphas.end())
        matrix.scale = alpha->second / static_cast<double>(rank);
    }
  return adapter;
}

Status AdapterBank::load(const std::string& name, const AdapterMatrices& matrices, bool plain) {
  if (adapters_.count(name)) return invalid_argument("there is an adapter \"{}\" already", name);
  std::map<size_t, Packed> packed;
  std::set<std::string> used;
  for (size_t i = 0; i < slots_.size(); ++i) {
    const AdapterSlot& slot = *slots_[i];
    std::string own = slot.weight;
    if (own.ends_with(".weight")) own.resize(own.size() - 7);
    own = without_any(own, kTextModel);
    // Accepted names: diffusers', the original UNet's, or a row range of a fused FLUX matrix; each also in kohya's
    // spelling.
    const FluxStoredModule stored = find_stored_module(own);
    std::vector<std::string> names = {own, underscored(own), stored.name, underscored(stored.name)};
    for (const std::string& sgm : unet_stored_modules(own)) names.insert(names.end(), {sgm, underscored(sgm)});
    auto at = matrices.end();
    bool is_part = false;
    for (const std::string& name_of : names) {
      if (at != matrices.end()) break;
      at = matrices.find(name_of);
      is_part = at != matrices.end() && !stored.name.empty() &&
                (name_of == stored.name || name_of == underscored(stored.name));
    }
    if (at == matrices.end()) continue;
    used.insert(at->first);
    const auto& [module, matrix] = *at;
    const int64_t rank = matrix.down.shape[0];
    const int64_t skip = is_part ? stored.first * slot.out_features / stored.count : 0;
    const bool fits =
        is_part ? matrix.up.shape[0] >= skip + slot.out_features : matrix.up.shape[0] == slot.out_features;
    const std::vector<int64_t> down_shape = slot.down_shape(rank);
    if (matrix.down.shape != down_shape || !fits)
      return invalid_argument("adapter \"{}\": {} is [{}, {}] x [{}], the network has room for [{}, {}] x [{}]", name,
                              module, matrix.up.shape[0], rank, fmt::join(matrix.down.shape, ", "), slot.out_features,
                              rank, fmt::join(down_shape, ", "));
    if (rank > slot.max_rank)
      return invalid_argument("adapter \"{}\": {} has rank {}, the engine was opened for {}; raise max_adapter_rank",
                              name, module, rank, slot.max_rank);
    Packed& p = packed[i];
    const std::vector<float> down = values_of(matrix.down), all = values_of(matrix.up);
    const std::vector<float> up(all.begin() + skip * rank, all.begin() + (skip + slot.out_features) * rank);
    p.down = pack(down, down_shape, slot.down_type, {});
    p.up = pack(up, {slot.out_features, rank}, slot.up_type, slot.source_row);
    p.part = {rank, p.down.data(), p.up.data(), static_cast<float>(matrix.scale), nullptr, nullptr};
    if (!plain) continue;
    p.plain_down = down;
    for (int64_t n = 0; n < slot.out_features; ++n) {
      const auto row = up.begin() + (slot.source_row ? slot.source_row(n) : n) * rank;
      p.plain_up.insert(p.plain_up.end(), row, row + rank);
    }
    p.part.plain_down = p.plain_down.data();
    p.part.plain_up = p.plain_up.data();
  }
  for (const auto& [module, matrix] : matrices)
    if (!used.contains(module))
      return invalid_argument(
          "adapter \"{}\": the network has no {}{}; is it a LoRA of this model?", name, module,
          matrices.size() - used.size() > 1 ? fmt::format(" (nor {} others)", matrices.size() - used.size() - 1) : "");
  adapters_.emplace(name, std::move(packed));
  return {};
}

Result<AdapterBank::Parts> AdapterBank::parts(std::span<const std::pair<std::string, double>> adapters) const {
  Parts parts(slots_.size());
  for (const auto& [name, weight] : adapters) {
    const auto at = adapters_.find(name);
    if (at == adapters_.end()) return not_found("there is no adapter \"{}\"", name);
    for (const auto& [slot, packed] : at->second) {
      parts[slot].push_back(packed.part);
      parts[slot].back().scale *= static_cast<float>(weight);
    }
  }
  for (size_t i = 0; i < slots_.size(); ++i) {
    int64_t rank = 0;
    for (const AdapterPart& part : parts[i]) rank += part.rank;
    if (rank > slots_[i]->max_rank)
      return invalid_argument("the adapters have rank {} together at {}, the engine was opened for {}", rank,
                              slots_[i]->weight, slots_[i]->max_rank);
  }
  return parts;
}

Status AdapterBank::set(std::span<const std::pair<std::string, double>> adapters) {
  REDLINE_ASSIGN(Parts parts, this->parts(adapters));
  for (size_t i = 0; i < slots_.size(); ++i) slots_[i]->parts = std::move(parts[i]);
  ++version_;
  return {};
}

}  // namespace redline
