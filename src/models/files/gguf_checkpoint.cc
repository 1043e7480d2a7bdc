// A GGUF file as a checkpoint: its metadata as config.json would have it, its tensors under Hugging Face's names, which
// each family's row gives. Facts from the GGUF specification (ggml repository, docs/gguf.md) and from files that
// llama.cpp writes.
#include <span>

#include "formats/gguf.h"
#include "models/checkpoint/checkpoint.h"
#include "models/checkpoint/gguf_keys.h"
#include "models/checkpoint/model_tokenizer.h"
#include "models/checkpoint/weight_reader.h"
#include "models/registry.h"

namespace redline {
namespace {

// Maximum number of elements of a list of rope factors.
constexpr int64_t kMaxFrequencies = 4096;

/// Reads the keys that files of most families have.
void read_common_keys(GgufKeyReader& keys) {
  keys.integer("block_count", "num_hidden_layers");
  keys.integer("embedding_length", "hidden_size");
  keys.integer("feed_forward_length", "intermediate_size");
  keys.integer("attention.head_count", "num_attention_heads");
  keys.integer("attention.head_count_kv", "num_key_value_heads");
  keys.integer("attention.key_length", "head_dim");
  keys.integer("context_length", "max_position_embeddings");
  keys.integer("vocab_size", "vocab_size");
  keys.integer("attention.sliding_window", "sliding_window");
  keys.integer("pooling_type", "pooling_type");
  keys.number("attention.layer_norm_rms_epsilon", "rms_norm_eps");
  // Families have two names for it in config.json.
  keys.number("attention.layer_norm_epsilon", "layer_norm_eps");
  keys.number("attention.layer_norm_epsilon", "norm_epsilon");
  keys.number("rope.freq_base", "rope_theta");
}

Status read_gguf_config(const GgufFile& file, const std::string& arch, const GgufNames& names, nlohmann::json& config) {
  GgufKeyReader keys(file, arch, names.is_recurrent, config);
  read_common_keys(keys);
  if (names.read_keys) names.read_keys(keys);
  REDLINE_TRY(keys.status());
  constexpr std::pair<const char*, const char*> kNeeded[] = {{"block_count", "num_hidden_layers"},
                                                             {"embedding_length", "hidden_size"},
                                                             {"feed_forward_length", "intermediate_size"},
                                                             {"attention.head_count", "num_attention_heads"}};
  for (const auto& [key, name] : std::span(kNeeded).first(names.is_recurrent ? 2 : 4))
    if (!config.contains(name) || config[name] == 0)
      return invalid_argument("{}: {}.{} is {}", file.path(), arch, key, config.contains(name) ? "0" : "missing");
  // Files of qwen state neither the first layer with a window nor whether it is used, and no published model uses it:
  // use_sliding_window stays unset.
  if (config.contains("sliding_window") && config["sliding_window"] == 0) config.erase("sliding_window");

  // llama.cpp's reading: a factor without a type is linear (older files spell it scale_linear), a factor of 0 means
  // none.
  nlohmann::json scaling = nlohmann::json::object();
  struct Key {
    const char *gguf, *hf;
  };
  static constexpr Key kScaling[] = {{"rope.scale_linear", "factor"},
                                     {"rope.scaling.factor", "factor"},
                                     {"rope.scaling.attn_factor", "attention_multiplier"},
                                     {"rope.scaling.yarn_attn_factor", "attention_multiplier"},
                                     {"rope.scaling.yarn_log_multiplier", "log_multiplier"},
                                     {"rope.scaling.original_context_length", "original_max_position_embeddings"},
                                     {"rope.scaling.yarn_beta_fast", "beta_fast"},
                                     {"rope.scaling.yarn_beta_slow", "beta_slow"}};
  for (const Key& key : kScaling)
    if (const GgufValue* value = file.find(arch + "." + key.gguf)) {
      if (auto whole = value->as_int()) scaling[key.hf] = *whole;
      else if (auto number = value->as_double()) scaling[key.hf] = *number;
    }
  std::string type = "linear";
  if (const GgufValue* value = file.find(arch + ".rope.scaling.type"); value && value->as_string())
    type = *value->as_string();
  const bool scales = scaling.contains("factor") && scaling["factor"] != 0;
  if (type != "none" && (scales || type != "linear")) {
    scaling["rope_type"] = type;
    config["rope_scaling"] = scaling;
  }
  const auto read_factors = [&](const char* name) -> Result<nlohmann::json> {
    const GgufTensor* factors = file.tensor(name);
    if (!factors || !factors->view.data) return nlohmann::json();
    if (factors->view.num_elements() > kMaxFrequencies)
      return invalid_argument("{}: {} has {} elements, expected half the head size", file.path(), name,
                              factors->view.num_elements());
    std::vector<float> values(static_cast<size_t>(factors->view.num_elements()));
    unpack_row(factors->view.dtype, factors->view.data, values.data(), factors->view.num_elements());
    return nlohmann::json(values);
  };
  REDLINE_ASSIGN(const nlohmann::json factors, read_factors("rope_freqs.weight"));
  if (!factors.is_null()) config["rope_freq_factors"] = factors;
  REDLINE_ASSIGN(const nlohmann::json beyond, read_factors("rope_factors_long.weight"));
  if (!beyond.is_null()) {
    REDLINE_ASSIGN(const nlohmann::json within, read_factors("rope_factors_short.weight"));
    if (scaling.contains("attention_multiplier")) scaling["attention_factor"] = scaling["attention_multiplier"];
    scaling.update({{"rope_type", "longrope"}, {"long_factor", beyond}, {"short_factor", within}});
    config["rope_scaling"] = scaling;
  }
  // Set explicitly, because defaults of families are those of config.json.
  if (!config.contains("num_key_value_heads") && config.contains("num_attention_heads"))
    config["num_key_value_heads"] = config["num_attention_heads"];
  if (!config.contains("head_dim") && config.contains("hidden_size") && config.contains("num_attention_heads")) {
    const int64_t heads = config["num_attention_heads"].get<int64_t>(), width = config["hidden_size"].get<int64_t>();
    if (heads > 0 && width % heads == 0) config["head_dim"] = width / heads;
  }
  const GgufValue* rotary = file.find(arch + ".rope.dimension_count");
  if (rotary && rotary->as_int() && config.contains("head_dim")) {
    const int64_t head_dim = config["head_dim"].get<int64_t>();
    if (*rotary->as_int() < 2 || *rotary->as_int() > head_dim)
      return invalid_argument("{}: {}.rope.dimension_count is {}, expected 2 to the head size {}", file.path(), arch,
                              *rotary->as_int(), head_dim);
    // The offset keeps the truncated product with head_dim from being one too small.
    if (head_dim > 0 && *rotary->as_int() != head_dim)
      config["partial_rotary_factor"] = (static_cast<double>(*rotary->as_int()) + 1e-6) / static_cast<double>(head_dim);
  }
  return {};
}

}  // namespace

std::string Checkpoint::file_name(const std::string& name) const {
  if (gguf_names) return gguf_names->to_gguf(name);
  constexpr std::string_view kModel = "model.";
  return name.starts_with(kModel) ? stored_prefix + name.substr(kModel.size()) : name;
}

namespace {

nlohmann::json to_json(const FillInTokens& t) {
  return {{"prefix", t.prefix}, {"suffix", t.suffix},         {"middle", t.middle},
          {"pad", t.pad},       {"repository", t.repository}, {"file", t.file}};
}

}  // namespace

Status checkpoint_from_gguf(const GgufFile& file, Checkpoint& checkpoint) {
  const GgufValue* arch_value = file.find("general.architecture");
  if (!arch_value || !arch_value->as_string())
    return invalid_argument("{}: general.architecture is missing: not a language model", file.path());
  const std::string arch(*arch_value->as_string());
  const GgufValue* experts = file.find(arch + ".expert_count");
  const bool has_experts = experts && experts->as_int() && *experts->as_int() > 0;
  REDLINE_ASSIGN(const GgufFamily family, find_gguf_family(arch, has_experts).within(file.path()));
  const GgufNames& names = *family.names;
  REDLINE_TRY(file.require_readable());
  checkpoint.format = "gguf";
  checkpoint.gguf_names = &names;
  checkpoint.tensors_tell_biases = true;
  checkpoint.config = {{"model_type", family.model_type}};
  REDLINE_TRY(read_gguf_config(file, arch, names, checkpoint.config));
  // In GGUF a missing window means none; in config.json that depends on the family.
  nlohmann::json& window = checkpoint.config["sliding_window"];
  if (window.is_number_integer()) checkpoint.sliding_window = window.get<int64_t>();
  checkpoint.generation = nlohmann::json::object();
  for (const auto& [gguf, hf] : kGgufSampling)
    if (const GgufValue* value = file.find(gguf))
      if (auto number = value->as_double()) checkpoint.generation[std::string(hf)] = *number;
  REDLINE_ASSIGN(const FillInTokens fill_in, read_gguf_fill_in_tokens(file));
  checkpoint.generation["fill_in_tokens"] = to_json(fill_in);

  const int64_t head_dim = checkpoint.config.value("head_dim", int64_t{0});
  const auto rotary_dim =
      static_cast<int64_t>(static_cast<double>(head_dim) * checkpoint.config.value("partial_rotary_factor", 1.0));
  const bool interleaved = names.interleaves_rope;
  std::vector<std::string> unknown;
  for (const GgufTensor& tensor : file.tensors()) {
    if (tensor.name.starts_with("rope_f")) continue;  // rope_freqs, rope_factors_long: part of the config
    const std::string name = names.to_hf(tensor.name);
    if (name.empty()) {
      unknown.push_back(tensor.name);
      continue;
    }
    WeightSource source;
    source.view = tensor.view;
    source.file = file.files()[static_cast<size_t>(tensor.part)];
    if (interleaved && head_dim > 0 && rotary_dim % 2 == 0 &&
        (name.find(".q_proj.") != std::string::npos || name.find(".k_proj.") != std::string::npos) &&
        !tensor.view.shape.empty() && tensor.view.shape[0] % head_dim == 0)
      source.source_row = undo_interleave(head_dim, rotary_dim);
    checkpoint.tensors.emplace(name, std::move(source));
  }
  if (!unknown.empty())
    return unsupported("{}: tensor {}{} is not part of a supported {} model", file.path(), unknown[0],
                       and_more(unknown), arch);
  const auto& tensors = checkpoint.tensors;
  checkpoint.config["tie_word_embeddings"] = !tensors.count(names.to_hf("output.weight"));
  if (auto embed = tensors.find(names.to_hf("token_embd.weight"));
      embed != tensors.end() && !embed->second.view.shape.empty())
    checkpoint.config["vocab_size"] = embed->second.view.shape[0];

  checkpoint.chat_template = chat_template_from_gguf(file);
  auto vocab = read_gguf_vocab(file);
  if (!vocab.ok()) {
    checkpoint.tokenizer_status = std::move(vocab).status();
    return {};
  }
  auto tokenizer = tokenizer_from_gguf(std::move(vocab).value());
  if (tokenizer.ok()) checkpoint.tokenizer = std::move(tokenizer).value();
  else checkpoint.tokenizer_status = std::move(tokenizer).status().within(file.path());
  return {};
}

}  // namespace redline
