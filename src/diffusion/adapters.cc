#include "diffusion/adapters.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "formats/safetensors.h"
#include "models/weight_examiner.h"
#include "models/image_registry.h"

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

/// Names of diffusers and of original files, which may be row ranges of fused matrices; each also in kohya's spelling.
std::vector<AdapterName> names_of(const AdapterSite& site) {
  std::string own = site.weight;
  if (own.ends_with(".weight")) own.resize(own.size() - 7);
  own = without_any(own, kTextModel);
  std::vector<AdapterName> names = {{own}, {underscored(own)}};
  for (const StoredModule& stored : find_stored_modules(own)) {
    const int64_t first = stored.first * site.out_features / stored.count;
    names.insert(names.end(), {{stored.name, first}, {underscored(stored.name), first}});
  }
  for (AdapterName& name : names) name.in_weight_order = true;
  return names;
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
      float alpha = 0;
      unpack_row(tensor.view.dtype, tensor.view.data, &alpha, 1);
      if (!std::isfinite(alpha)) return invalid_argument("{}: {} is {}", path, tensor.name, alpha);
      alphas[{component, module}] = static_cast<double>(alpha);
      continue;
    }
    if (const auto broken = find_not_finite(WeightSource{.view = tensor.view}))
      return invalid_argument("{}: tensor {} {}", path, tensor.name, *broken);
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

NetworkAdapters::NetworkAdapters(AdapterSites sites, std::span<const std::string> idle_modules)
    : AdapterBank(std::move(sites), names_of) {
  for (const std::string& module : idle_modules) {
    ignore(module);
    ignore(underscored(module));
  }
}

Status NetworkAdapters::set(NamedWeights adapters) {
  REDLINE_ASSIGN(active_, select(adapters));
  ++version_;
  return {};
}

std::vector<AdapterSegment> NetworkAdapters::segments() const {
  if (active_.empty()) return {};
  return {{.unit = Symbol::kBatch, .row_begin = 0, .row_end = INT64_MAX, .adapters = active_}};
}

}  // namespace redline
