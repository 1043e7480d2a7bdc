// A GGUF file as a checkpoint: its metadata as config.json would have it, its tensors under Hugging Face's names, which
// each family's row gives. Facts from the GGUF specification (ggml repository, docs/gguf.md) and from files that
// llama.cpp writes.
#include <algorithm>

#include "formats/gguf.h"
#include "models/checkpoint.h"
#include "models/model_tokenizer.h"
#include "models/registry.h"
#include "models/weight_reader.h"

namespace redline {
namespace {

// Maximum lengths of lists in a file that are read completely.
constexpr uint64_t kMaxGgufLayers = 4096;
constexpr int64_t kMaxFrequencies = 4096;

// Reads an integer that GGUF may store once or per layer; all layers must agree, but for zeros where `zeros` allows
// them.
Result<std::optional<int64_t>> one_integer(const GgufFile& file, const std::string& key, bool zeros = false) {
  const GgufValue* value = file.find(key);
  if (!value) return std::optional<int64_t>();
  if (auto single = value->as_int()) return single;
  // Check the limit before as_ints, which allocates eight bytes for each element.
  std::optional<std::vector<int64_t>> list;
  if (value->count <= kMaxGgufLayers) list = value->as_ints();
  if (!list || list->empty())
    return invalid_argument("{}: {} is {}, expected a whole number", file.path(), key, value->to_string());
  const int64_t value_of_all = zeros ? *std::max_element(list->begin(), list->end()) : list->front();
  for (int64_t other : *list)
    if (other != value_of_all && !(zeros && other == 0))
      return unsupported("{}: {} differs by layer ({} and {})", file.path(), key, value_of_all, other);
  return std::optional<int64_t>(value_of_all);
}

Status read_gguf_checkpoint_config(const GgufFile& file, const std::string& arch, const GgufNames& names,
                                   nlohmann::json& config) {
  struct Key {
    const char *gguf, *hf;
  };
  static constexpr Key kIntegers[] = {{"block_count", "num_hidden_layers"},
                                      {"embedding_length", "hidden_size"},
                                      {"feed_forward_length", "intermediate_size"},
                                      {"attention.head_count", "num_attention_heads"},
                                      {"attention.head_count_kv", "num_key_value_heads"},
                                      {"attention.key_length", "head_dim"},
                                      {"context_length", "max_position_embeddings"},
                                      {"vocab_size", "vocab_size"},
                                      {"attention.sliding_window", "sliding_window"},
                                      {"pooling_type", "pooling_type"},
                                      {"expert_count", "num_experts"},
                                      {"expert_used_count", "num_experts_per_tok"},
                                      {"expert_feed_forward_length", "moe_intermediate_size"},
                                      {"expert_shared_feed_forward_length", "shared_expert_intermediate_size"},
                                      {"expert_shared_count", "n_shared_experts"},
                                      {"expert_group_count", "n_group"},
                                      {"expert_group_used_count", "topk_group"},
                                      {"expert_gating_func", "expert_gating_func"},
                                      {"leading_dense_block_count", "first_k_dense_replace"},
                                      {"full_attention_interval", "full_attention_interval"},
                                      {"ssm.conv_kernel", "ssm_conv_kernel"},
                                      {"ssm.inner_size", "ssm_inner_size"},
                                      {"ssm.state_size", "ssm_state_size"},
                                      {"ssm.group_count", "ssm_group_count"},
                                      {"ssm.time_step_rank", "ssm_time_step_rank"},
                                      {"attention.q_lora_rank", "q_lora_rank"},
                                      {"attention.kv_lora_rank", "kv_lora_rank"},
                                      {"attention.value_length", "value_length"},
                                      {"rope.dimension_count", "qk_rope_head_dim"},
                                      {"attention.key_length_mla", "key_length_mla"},
                                      {"attention.value_length_mla", "v_head_dim"}};
  for (const Key& key : kIntegers) {
    // Layers with a recurrence instead of attention have no heads.
    REDLINE_ASSIGN(std::optional<int64_t> value, one_integer(file, arch + "." + key.gguf, names.is_recurrent));
    if (!value) continue;
    // Checked here because messages name the file's own keys. 0 key/value heads or window: not specified.
    if (*value < 0 || *value > INT32_MAX)
      return invalid_argument("{}: {}.{} is {}, expected a whole number up to {}", file.path(), arch, key.gguf, *value,
                              INT32_MAX);
    config[key.hf] = *value;
  }
  constexpr const char* kNeeded[] = {"block_count", "embedding_length", "feed_forward_length", "attention.head_count"};
  for (const char* key : std::span(kNeeded).first(names.is_recurrent ? 2 : 4))
    if (auto value = one_integer(file, fmt::format("{}.{}", arch, key)); !*value || **value < 1)
      return invalid_argument("{}: {}.{} is {}", file.path(), arch, key, *value ? "0" : "missing");
  // Some keys are listed twice, because families have different names for them in config.json.
  static constexpr Key kNumbers[] = {{"attention.layer_norm_rms_epsilon", "rms_norm_eps"},
                                     {"attention.layer_norm_epsilon", "layer_norm_eps"},
                                     {"attention.layer_norm_epsilon", "norm_epsilon"},
                                     {"attention.scale", "attention_multiplier"},
                                     {"attention.max_alibi_bias", "alibi_bias_max"},
                                     {"attention.clamp_kqv", "clip_qkv"},
                                     {"embedding_scale", "embedding_multiplier"},
                                     {"residual_scale", "residual_multiplier"},
                                     {"logit_scale", "logit_scale"},
                                     {"logit_scale", "logits_scaling"},
                                     {"final_logit_softcapping", "final_logit_softcapping"},
                                     {"attn_logit_softcapping", "attn_logit_softcapping"},
                                     {"expert_weights_scale", "routed_scaling_factor"},
                                     {"rope.freq_base_swa", "rope_local_base_freq"},
                                     {"rope.freq_base", "rope_theta"}};
  for (const Key& key : kNumbers)
    if (const GgufValue* value = file.find(arch + "." + key.gguf)) {
      auto number = value->as_double();
      if (!number)
        return invalid_argument("{}: {}.{} is {}, expected a number", file.path(), arch, key.gguf, value->to_string());
      // The file stores a float32; config.json has its decimal form.
      config[key.hf] = *number;
    }
  if (const GgufValue* value = file.find(arch + ".use_parallel_residual"); value && value->as_bool())
    config["use_parallel_residual"] = *value->as_bool();
  if (const GgufValue* value = file.find(arch + ".rope.scaling.finetuned"); value && value->as_bool())
    config["rope_finetuned"] = *value->as_bool();
  if (const GgufValue* value = file.find(arch + ".expert_weights_norm"); value && value->as_bool())
    config["norm_topk_prob"] = *value->as_bool();
  if (const GgufValue* pattern = file.find(arch + ".attention.sliding_window_pattern"); pattern && pattern->as_int())
    config["sliding_window_pattern"] = *pattern->as_int();
  // Files of qwen state neither the first layer with a window nor whether it is used, and no published model uses it:
  // use_sliding_window stays unset.
  if (config.contains("sliding_window") && config["sliding_window"] == 0) config.erase("sliding_window");

  // llama.cpp's reading: a factor without a type is linear (older files spell it scale_linear), a factor of 0 means
  // none.
  nlohmann::json scaling = nlohmann::json::object();
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
  return gguf_names ? gguf_names->to_gguf(name) : name;
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
  REDLINE_TRY(read_gguf_checkpoint_config(file, arch, names, checkpoint.config));
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
