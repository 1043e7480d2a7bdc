#include "models/files/text_adapter.h"

#include <fmt/ranges.h>
#include <sys/stat.h>

#include "formats/gguf.h"
#include "formats/safetensors.h"
#include "formats/torch_file.h"
#include "graph/adapter_sites.h"
#include "models/checkpoint/config_reader.h"
#include "models/checkpoint/lora_config.h"
#include "models/checkpoint/weight_examiner.h"
#include "text/json_reader.h"

namespace redline {
namespace {

// PEFT
// -------------------------------------------------------------------------------------------------------------------

/// Members of adapter_config.json with which the adapter is more than low-rank factors of linear layers.
constexpr std::pair<const char*, const char*> kRefused[] = {
    {"use_dora", "DoRA"},
    {"use_qalora", "QALoRA"},
    {"use_bdlora", "BD-LoRA"},
    {"lora_bias", "biases of the factors"},
    {"modules_to_save", "fully trained modules"},
    {"trainable_token_indices", "trained token embeddings"},
    {"target_parameters", "parameters that are not linear layers"},
    {"layer_replication", "replicated layers"},
    {"alora_invocation_tokens", "activated LoRA"},
    {"arrow_config", "Arrow routing"},
    {"monteclora_config", "MonteCLoRA"},
    {"kasa_config", "KaSA"},
};
/// Values of init_lora_weights by which the base weights change: the factors belong to other weights than the model's.
constexpr std::string_view kInitsOfBase[] = {"pissa", "olora", "loftq", "corda", "lora_ga"};

/// Returns false if a member is missing, null, false, or empty.
bool is_set(const Json& config, const char* key) {
  const Json* value = member(config, key);
  if (value == nullptr) return false;
  if (value->is_boolean()) return value->get<bool>();
  return !((value->is_array() || value->is_object() || value->is_string()) && value->empty());
}

/// Refuses settings for more than scaled factors of linear layers, and returns the scales.
Result<LoraConfig> read_peft_config(const Json& config) {
  ConfigReader r(config);
  const std::string type = r.text("peft_type", ""), bias = r.text("bias", "none");
  REDLINE_TRY(r.status());
  REDLINE_ASSIGN(LoraConfig lora, LoraConfig::read(config));
  if (type != "LORA") return unsupported("peft_type is \"{}\"; only LORA is supported", type);
  if (bias != "none") return unsupported("bias is \"{}\"; adapters with biases are not supported", bias);
  for (const auto& [key, what] : kRefused)
    if (is_set(config, key)) return unsupported("{} is set; {} are not supported", key, what);
  if (const Json* init = member(config, "init_lora_weights"); init != nullptr && init->is_string())
    for (const std::string_view name : kInitsOfBase)
      if (init->get_ref<const std::string&>().starts_with(name))
        return unsupported(
            "init_lora_weights is \"{}\", which changes the base weights; convert the adapter with PEFT's "
            "path_initial_model_for_weight_conversion",
            init->get_ref<const std::string&>());
  return lora;
}

/// A tensor of a file in any format.
struct AdapterTensor {
  std::string name, type_name;
  TensorView view;
};

/// Collects factors by module and completes them.
class Pairs {
 public:
  Pairs(const std::string& path, TextAdapterFile& adapter) : path_(path), adapter_(adapter) {}

  Status add(const std::string& module, bool is_down, const AdapterTensor& tensor) {
    if (!tensor.view.data) return unsupported("{}: tensor {} has type {}", path_, tensor.name, tensor.type_name);
    if (tensor.view.shape.size() != 2)
      return unsupported("{}: tensor {} is [{}], expected a matrix", path_, tensor.name,
                         fmt::join(tensor.view.shape, ", "));
    if (const auto broken = find_not_finite(WeightSource{.view = tensor.view}))
      return invalid_argument("{}: tensor {} {}", path_, tensor.name, *broken);
    AdapterMatrix& matrix = adapter_.matrices[module];
    (is_down ? matrix.down : matrix.up) = tensor.view;
    return {};
  }
  /// Checks that every module has both factors, and sets the scale of each to scale(module, rank), a Result<double>.
  template <class Scale>
  Status finish(const Scale& scale) {
    if (adapter_.matrices.empty()) return invalid_argument("{}: holds no LoRA pair", path_);
    for (auto& [module, matrix] : adapter_.matrices) {
      if (!matrix.down.data || !matrix.up.data)
        return invalid_argument("{}: {} has only one of its two matrices", path_, module);
      const int64_t rank = matrix.down.shape[matrix.is_down_transposed ? 1 : 0];
      if (rank < 1 || rank > LoraConfig::kMaxRank || matrix.rank() != rank)
        return invalid_argument("{}: {}: A is [{}], B is [{}]: the ranks differ", path_, module,
                                fmt::join(matrix.down.shape, ", "), fmt::join(matrix.up.shape, ", "));
      REDLINE_ASSIGN(matrix.scale, scale(module, rank).within(path_));
      adapter_.max_rank = std::max(adapter_.max_rank, rank);
    }
    return {};
  }

 private:
  const std::string& path_;
  TextAdapterFile& adapter_;
};

bool exists(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0;
}

Result<std::vector<AdapterTensor>> read_adapter_tensors(const std::string& path, TextAdapterFile& adapter) {
  std::vector<AdapterTensor> tensors;
  if (path.ends_with(".bin")) {
    REDLINE_ASSIGN(const TorchFile file, TorchFile::open(path));
    for (const TorchTensor& tensor : file.tensors()) tensors.push_back({tensor.name, tensor.type_name, tensor.view});
    adapter.file = file.file();
    return tensors;
  }
  REDLINE_ASSIGN(const SafetensorsFiles files, SafetensorsFiles::open_file(path));
  for (const SafetensorsTensor& tensor : files.tensors())
    tensors.push_back({tensor.name, tensor.type_name, tensor.view});
  adapter.file = files.files()[0];
  return tensors;
}

/// Returns the part of a tensor's name before its suffix. is_down: it is the first factor.
std::string peft_module(std::string_view name, bool& is_down) {
  constexpr std::string_view kPrefix = "base_model.model.";
  for (const auto& [suffix, down] : {std::pair{".lora_A.weight", true},
                                     {".lora_B.weight", false},
                                     {".lora_A.default.weight", true},
                                     {".lora_B.default.weight", false},
                                     {".lora_embedding_A", true},
                                     {".lora_embedding_B", false},
                                     {".lora_embedding_A.default", true},
                                     {".lora_embedding_B.default", false}}) {
    if (!name.ends_with(suffix)) continue;
    name.remove_suffix(std::string_view(suffix).size());
    if (name.starts_with(kPrefix)) name.remove_prefix(kPrefix.size());
    is_down = down;
    return std::string(name);
  }
  return "";
}

Result<TextAdapterFile> open_peft(const std::string& folder, const std::string& weights) {
  TextAdapterFile adapter;
  const std::string config_path = folder + "/adapter_config.json";
  auto text = read_text_file(config_path);
  if (!text.ok() && text.status().code() == Code::not_found)
    return not_found("{} has no adapter_config.json: not an adapter in PEFT's format", folder);
  REDLINE_TRY(text);
  REDLINE_ASSIGN(const Json json, parse_json_object(*text, config_path));
  REDLINE_ASSIGN(const LoraConfig config, read_peft_config(json).within(config_path));
  std::string path = weights;
  for (const char* name : {"/adapter_model.safetensors", "/adapter_model.bin"})
    if (path.empty() && exists(folder + name)) path = folder + name;
  if (path.empty()) return not_found("{} has no adapter_model.safetensors", folder);
  REDLINE_ASSIGN(const std::vector<AdapterTensor> tensors, read_adapter_tensors(path, adapter));
  Pairs pairs(path, adapter);
  for (const AdapterTensor& tensor : tensors) {
    bool is_down = false;
    const std::string module = peft_module(tensor.name, is_down);
    if (module.empty())
      return unsupported("{}: tensor {} belongs to no LoRA pair (lora_A and lora_B)", path, tensor.name);
    REDLINE_TRY(pairs.add(module, is_down, tensor));
  }
  REDLINE_TRY(pairs.finish(
      [&](const std::string& module, int64_t rank) { return config.scale(module, rank, "adapter_config.json"); }));
  return adapter;
}

// GGUF
// -------------------------------------------------------------------------------------------------------------------

Result<TextAdapterFile> open_gguf(const std::string& path) {
  TextAdapterFile adapter;
  REDLINE_ASSIGN(const GgufFile file, GgufFile::open(path));
  const auto text = [&](const char* key) -> std::string {
    const GgufValue* value = file.find(key);
    return value && value->as_string() ? std::string(*value->as_string()) : "";
  };
  if (text("general.type") != "adapter")
    return invalid_argument("{}: general.type is \"{}\", not \"adapter\"", path, text("general.type"));
  if (text("adapter.type") != "lora")
    return unsupported("{}: adapter.type is \"{}\"; only lora is supported", path, text("adapter.type"));
  if (file.find("adapter.alora.invocation_tokens"))
    return unsupported("{}: adapter.alora.invocation_tokens is set; activated LoRA is not supported", path);
  if (file.files().size() != 1) return unsupported("{}: an adapter in several files", path);
  adapter.is_gguf = true;
  adapter.architecture = text("general.architecture");
  adapter.file = file.files()[0];
  // llama.cpp: without alpha the factors are not scaled.
  const GgufValue* stored = file.find("adapter.lora.alpha");
  const std::optional<double> alpha = stored ? stored->as_double() : std::optional<double>(0.0);
  if (!alpha) return invalid_argument("{}: adapter.lora.alpha is not a number", path);
  Pairs pairs(path, adapter);
  for (const GgufTensor& tensor : file.tensors()) {
    const std::string_view name = tensor.name;
    const bool is_down = name.ends_with(".lora_a"), is_up = name.ends_with(".lora_b");
    if (!is_down && !is_up)
      return unsupported("{}: tensor {} belongs to no LoRA pair (lora_a and lora_b)", path, tensor.name);
    const std::string weight(name.substr(0, name.rfind('.')));
    REDLINE_TRY(pairs.add(weight, is_down, {tensor.name, std::string(gguf_type_name(tensor.gguf_type)), tensor.view}));
    if (weight == "token_embd.weight") adapter.matrices[weight].is_down_transposed = true;
  }
  REDLINE_TRY(pairs.finish([&](const std::string&, int64_t rank) -> Result<double> {
    return *alpha != 0 ? *alpha / static_cast<double>(rank) : 1.0;
  }));
  return adapter;
}

}  // namespace

Result<TextAdapterFile> TextAdapterFile::open(const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0) return not_found("adapter {}: no such file or folder", path);
  const auto opened = [&]() -> Result<TextAdapterFile> {
    if (S_ISDIR(info.st_mode)) return open_peft(path, "");
    if (!path.ends_with(".safetensors") && !path.ends_with(".bin")) return open_gguf(path);
    const size_t slash = path.rfind('/');
    return open_peft(slash == std::string::npos ? "." : path.substr(0, slash), path);
  };
  REDLINE_ASSIGN(TextAdapterFile adapter, opened());
  adapter.path = path;
  return adapter;
}

Result<AdapterMatrices> TextAdapterFile::for_model(const ModelFamily& family, const DecoderConfig& config) const {
  const auto undo_rope_order = [&](const std::string& module, AdapterMatrix& matrix) {
    if (module.ends_with(".q_proj") || module.ends_with(".k_proj"))
      matrix.up_row =
          undo_interleave(config.head_dim, 2 * static_cast<int64_t>(config.rope.inverse_frequencies.size()));
  };
  if (!is_gguf) {
    AdapterMatrices ordered = matrices;
    if (config.interleaved_rope)
      for (auto& [module, matrix] : ordered) undo_rope_order(module, matrix);
    return ordered;
  }
  const GgufNames& names = family.gguf;
  if (architecture != names.architecture && architecture != names.export_architecture)
    return invalid_argument("{}: an adapter of {} models, this one is {}", path, architecture, names.architecture);
  AdapterMatrices renamed;
  for (const auto& [weight, matrix] : matrices) {
    constexpr std::string_view kWeight = ".weight";
    std::string module = names.to_hf(weight);
    if (!module.ends_with(kWeight))
      return invalid_argument("{}: {} is not a weight of a {} model", path, weight, family.model_type);
    module.resize(module.size() - kWeight.size());
    AdapterMatrix& of_module = renamed[module] = matrix;
    if (names.interleaves_rope || config.interleaved_rope) undo_rope_order(module, of_module);
  }
  return renamed;
}

AdapterBank make_text_adapter_bank(Graph& graph, int64_t max_rank) {
  // Names are chosen by op, because the matrix of lm_head may be that of the embedding.
  const auto names = [](const AdapterSite& site) -> std::vector<AdapterName> {
    const std::string& name = site.is_lookup ? site.weight : site.op;
    return {{name.substr(0, name.rfind('.'))}};
  };
  AdapterSites sites = add_adapter_sites(graph, max_rank, [](const std::string&) { return true; });
  const AdapterSites lookups = add_lookup_sites(graph, max_rank, sites.size());
  sites.insert(sites.end(), lookups.begin(), lookups.end());
  return {std::move(sites), names};
}

}  // namespace redline
