#include "models/checkpoint_to_gguf.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "models/gguf_names.h"
#include "models/model_tokenizer.h"
#include "models/registry.h"
#include "models/rope_config.h"

namespace redline {
namespace {

/// ggml's LLAMA_FTYPE for files that are mostly of this type.
uint32_t file_type(DType type) { return type == DType::kF32 ? 0 : type == DType::kF16 ? 1 : 32; }

// The model card --------------------------------------------------------------------------------------------------------

/// The scalars at the head of README.md ("license: mit" between two lines "---"), as Hugging Face's model cards have them.
std::map<std::string, std::string> read_model_card(const std::string& folder) {
  std::map<std::string, std::string> card;
  const auto text = read_text_file(folder + "/README.md");
  if (!text.ok()) return card;
  std::string_view rest = *text;
  if (!rest.starts_with("---\n")) return card;
  rest.remove_prefix(4);
  while (!rest.empty() && !rest.starts_with("---")) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    const size_t colon = line.find(": ");
    if (colon == std::string_view::npos || colon == 0 || line[0] == ' ' || line[0] == '#') continue;
    std::string_view value = line.substr(colon + 2);
    if (value.size() >= 2 && (value.front() == '"' || value.front() == '\'') && value.back() == value.front())
      value = value.substr(1, value.size() - 2);
    if (!value.empty()) card.emplace(line.substr(0, colon), value);
  }
  return card;
}

/// "7.3M", "135M", "1.2B": two digits at least.
std::string size_label(int64_t parameters) {
  const auto count = static_cast<double>(parameters);
  const auto [unit, suffix] = count > 1e12  ? std::pair{1e12, "T"}
                              : count > 1e9 ? std::pair{1e9, "B"}
                              : count > 1e6 ? std::pair{1e6, "M"}
                                            : std::pair{1e3, "K"};
  return fmt::format("{:.{}f}{}", count / unit, count / unit < 9.5 ? 1 : 0, suffix);
}

void set_general(const Checkpoint& checkpoint, int64_t parameters, DType type, GgufWriter& writer) {
  const auto card = read_model_card(checkpoint.path);
  const auto text = [&](const char* key, std::initializer_list<const char*> names, std::string otherwise) {
    for (const char* name : names)
      if (const auto at = card.find(name); at != card.end()) otherwise = at->second;
    if (!otherwise.empty()) writer.set(key, otherwise);
  };
  std::filesystem::path folder = std::filesystem::path(checkpoint.path).lexically_normal();
  if (!folder.has_filename()) folder = folder.parent_path();
  writer.set("general.type", "model");
  text("general.name", {"model_name", "name"}, folder.filename().string());
  text("general.description", {"model_description", "description"}, "");
  text("general.size_label", {"model_size_label", "size_label"}, size_label(parameters));
  text("general.license", {"license"}, "");
  writer.set_u32("general.file_type", file_type(type));
  writer.set_u32("general.quantization_version", 2);  // of ggml's block formats
  nlohmann::json generation = checkpoint.generation;
  if (generation.contains("do_sample")) {  // keys that such a file leaves out have transformers' defaults
    const nlohmann::json defaults = {{"temperature", 1.0}, {"top_p", 1.0}, {"top_k", 50}};
    for (const auto& [name, value] : defaults.items())
      if (!generation.contains(name)) generation[name] = value;
    if (generation["do_sample"] == false) generation["temperature"] = 0.0;
  }
  for (const auto& [key, name] : kGgufSampling) {
    const auto at = generation.find(name);
    if (at == generation.end() || !at->is_number()) continue;
    if (at->is_number_integer()) writer.set_i32(std::string(key), at->get<int32_t>());
    else writer.set_f32(std::string(key), at->get<float>());
  }
}

// Settings --------------------------------------------------------------------------------------------------------------

void add_factors(const char* name, const std::vector<float>& factors, GgufWriter& writer) {
  if (factors.empty()) return;
  writer.add_tensor(name, {DType::kF32, {static_cast<int64_t>(factors.size())}, nullptr},
                    [factors](int64_t, int64_t, uint8_t* out) -> Status {
                      std::memcpy(out, factors.data(), factors.size() * sizeof(float));
                      return {};
                    });
}

/// unsupported: something that files of the family do not state differs from what llama.cpp takes for granted.
Status check_unstated(const ModelFamily& family, const DecoderConfig& c) {
  const int64_t every = family.gguf.window_every;
  const int64_t window = *std::max_element(c.window.begin(), c.window.end());
  for (int64_t i = 0; i < c.num_layers; ++i)
    if (c.window[static_cast<size_t>(i)] != (every == 1 || (every > 1 && (i + 1) % every != 0) ? window : 0))
      return unsupported("GGUF has no key for the sliding windows of {}", family.model_type);
  constexpr int64_t kUnrotatedEvery = 4;  // of SmolLM3
  for (size_t i = 0; i < c.unrotated.size(); ++i)
    if (c.unrotated[i] != ((i + 1) % kUnrotatedEvery == 0))
      return unsupported("GGUF has no key for the layers without rope of {}", family.model_type);
  if (c.window_rope && family.gguf.window_rope_base > 0) {
    REDLINE_ASSIGN(const RopeTableAttrs assumed,
                   read_rope_config({{"rope_theta", family.gguf.window_rope_base}}, c.head_dim, c.max_positions));
    if (c.window_rope->inverse_frequencies != assumed.inverse_frequencies)
      return unsupported("GGUF has no key for the rope of layers with a window of {}", family.model_type);
  }
  bool states_scale = false;
  if (family.gguf_numbers)
    family.gguf_numbers(c, [&](std::string_view key, double) { states_scale |= key == "attention.scale"; });
  if (c.attention_scale > 0 && !states_scale &&
      c.attention_scale != static_cast<float>(1 / std::sqrt(static_cast<double>(c.head_dim))))
    return unsupported("GGUF has no key for the attention scale of {}", family.model_type);
  return {};
}

Status set_architecture(const Checkpoint& checkpoint, const ModelFamily& family, std::string_view arch,
                        const DecoderConfig& c, GgufWriter& writer) {
  const auto set = [&](std::string_view key, int64_t value) {
    writer.set_u32(fmt::format("{}.{}", arch, key), static_cast<uint32_t>(value));
  };
  const auto set_number = [&](std::string_view key, double value) {
    writer.set_f32(fmt::format("{}.{}", arch, key), static_cast<float>(value));
  };
  REDLINE_TRY(check_unstated(family, c));
  nlohmann::json config = rope_of_layer_type(
      family.common_config ? family.common_config(checkpoint.config) : checkpoint.config, "full_attention");
  const bool has_rope = !c.rope.inverse_frequencies.empty();
  const bool is_partial = c.rope.inverse_frequencies.size() * 2 != static_cast<size_t>(c.head_dim);
  if (is_partial && has_rope)  // a family's default included
    config["partial_rotary_factor"] =
        (static_cast<double>(2 * c.rope.inverse_frequencies.size()) + 1e-6) / static_cast<double>(c.head_dim);
  GgufRope rope;
  if (has_rope) {
    REDLINE_ASSIGN(const RopeTableAttrs stated, read_rope_config(config, c.head_dim, c.max_positions));
    if (stated.inverse_frequencies != c.rope.inverse_frequencies)
      return unsupported("config: rope_theta is missing, which GGUF files state");
    REDLINE_ASSIGN(rope, read_gguf_rope(config, c.head_dim, c.max_positions));
  }
  set("vocab_size", c.vocab_size);
  set("context_length", c.max_positions);
  set("embedding_length", c.hidden_size);
  set("block_count", c.num_layers);
  set("feed_forward_length", c.intermediate_size);
  set("attention.head_count", c.num_heads);
  set("attention.head_count_kv", c.num_kv_heads);
  set("attention.key_length", c.head_dim);
  set("attention.value_length", c.head_dim);
  set_number(c.norm.layer ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon",
             double{c.rms_norm_eps});
  if (family.gguf_numbers) family.gguf_numbers(c, set_number);
  if (const int64_t window = *std::max_element(c.window.begin(), c.window.end()); window > 0)
    set("attention.sliding_window", window);
  if (const auto parallel = config.find("use_parallel_residual"); parallel != config.end() && parallel->is_boolean())
    writer.set_bool(fmt::format("{}.use_parallel_residual", arch), parallel->get<bool>());
  if (!has_rope) return {};
  set("rope.dimension_count", rope.rotary_dim);
  set_number("rope.freq_base", rope.base);
  if (!rope.scaling.empty()) {
    writer.set(fmt::format("{}.rope.scaling.type", arch), rope.scaling);
    set_number("rope.scaling.factor", rope.factor);
  }
  if (rope.original_context > 0) set("rope.scaling.original_context_length", rope.original_context);
  if (rope.attention_multiplier != 1) set_number("rope.scaling.yarn_attn_factor", rope.attention_multiplier);
  if (rope.beta_fast) set_number("rope.scaling.yarn_beta_fast", *rope.beta_fast);
  if (rope.beta_slow) set_number("rope.scaling.yarn_beta_slow", *rope.beta_slow);
  if (rope.attention_factor) set_number("rope.scaling.attn_factor", *rope.attention_factor);
  add_factors("rope_freqs.weight", rope.divisors, writer);
  add_factors("rope_factors_long.weight", rope.beyond, writer);
  add_factors("rope_factors_short.weight", rope.within, writer);
  return {};
}

Status set_vocabulary(const Checkpoint& checkpoint, int64_t vocab_size, GgufWriter& writer) {
  REDLINE_ASSIGN(GgufVocab vocab, vocab_from_folder(checkpoint.path));
  const auto rows = static_cast<size_t>(vocab_size);
  if (vocab.tokens.size() > rows)
    return invalid_argument("{}: the tokenizer has {} tokens, the model {}", checkpoint.path, vocab.tokens.size(),
                            rows);
  // Embeddings are often padded; GGUF has a name for each row.
  for (size_t id = vocab.tokens.size(); id < rows; ++id) {
    vocab.tokens.push_back(fmt::format("[PAD{}]", id));
    vocab.token_types.push_back(5);  // unused
    if (!vocab.scores.empty()) vocab.scores.push_back(-1000.0f);
  }
  const auto named = [&](const char* key, int32_t& id) {
    const std::vector<int32_t> ids = read_token_ids(checkpoint.config, key);
    if (id < 0 && !ids.empty() && ids.front() < vocab_size) id = ids.front();
  };
  named("bos_token_id", vocab.bos);
  named("eos_token_id", vocab.eos);
  named("pad_token_id", vocab.pad);
  set_gguf_vocab(vocab, writer);
  return {};
}

// Tensors ---------------------------------------------------------------------------------------------------------------

/// Rows of float, float16 or bfloat16 as rows of another of these types.
Status convert_row(const WeightSource& source, const uint8_t* row, DType type, int64_t elements, uint8_t* out) {
  if (source.view.dtype == type) {
    std::memcpy(out, row, static_cast<size_t>(row_bytes(type, elements)));
    return {};
  }
  std::vector<float> values(static_cast<size_t>(elements));
  unpack_row(source.view.dtype, row, values.data(), elements);
  for (size_t i = 0; i < values.size(); ++i) {
    if (type == DType::kF32) {
      std::memcpy(out + 4 * i, &values[i], 4);
      continue;
    }
    const uint16_t half = type == DType::kF16 ? f32_to_f16(values[i]) : f32_to_bf16(values[i]);
    constexpr uint16_t kInfinity = 0x7C00;
    if (type == DType::kF16 && (half & kInfinity) == kInfinity && std::isfinite(values[i]))
      return invalid_argument("{} overflows f16; use --type bf16 or f32", values[i]);
    std::memcpy(out + 2 * i, &half, 2);
  }
  return {};
}

/// `offset` is added to the elements of a vector, which becomes float32.
void add_tensor(const std::string& name, const WeightSource& source, DType type, const GgufForm& form, float offset,
                GgufWriter& writer) {
  std::vector<int64_t> shape = source.view.shape;
  if (form.is_transposed) std::swap(shape.front(), shape.back());
  const int64_t columns = shape.back();
  const bool is_vector = shape.size() == 1;
  const auto fill = [source, type, form, columns, is_vector, offset](int64_t begin, int64_t end,
                                                                     uint8_t* out) -> Status {
    const auto* data = static_cast<const uint8_t*>(source.view.data);
    const int64_t in_bytes = row_bytes(source.view.dtype, is_vector ? 1 : columns);
    const int64_t out_bytes = row_bytes(type, is_vector ? 1 : columns);
    if (is_vector) end = columns;
    if (is_vector && offset != 0) {
      std::vector<float> values(static_cast<size_t>(columns));
      unpack_row(source.view.dtype, data, values.data(), columns);
      for (float& value : values) value += offset;
      std::memcpy(out, values.data(), values.size() * sizeof(float));
      return {};
    }
    std::vector<uint8_t> column(form.is_transposed ? static_cast<size_t>(in_bytes) : 0);
    for (int64_t row = begin; row < end; ++row) {
      const uint8_t* from = data + (form.stored_row ? form.stored_row(row) : row) * in_bytes;
      if (form.is_transposed) {  // a column of the checkpoint's matrix
        const int64_t bytes = row_bytes(source.view.dtype, 1), stride = source.view.shape.back() * bytes;
        for (int64_t k = 0; k < columns; ++k)
          std::memcpy(column.data() + k * bytes, data + k * stride + row * bytes, static_cast<size_t>(bytes));
        from = column.data();
      }
      REDLINE_TRY(convert_row(source, from, type, is_vector ? 1 : columns, out + (row - begin) * out_bytes));
    }
    return {};
  };
  writer.add_tensor(name, {type, shape, nullptr}, fill);
}

/// Sort key: embedding, layers by number, norm and output.
int64_t written_place_of(const std::string& gguf_name) {
  if (gguf_name.starts_with("token_embd")) return -1;
  return gguf_name.starts_with("blk.") ? std::atoll(gguf_name.c_str() + 4) : INT64_MAX;
}

}  // namespace

Status checkpoint_to_gguf(const Checkpoint& checkpoint, const GgufExport& options, GgufWriter& writer) {
  if (checkpoint.format != "safetensors")
    return unsupported("{}: a {} checkpoint; only Hugging Face folders are converted", checkpoint.path,
                       checkpoint.format);
  // Checks every setting and tensor, and fills in what the family's config leaves out.
  REDLINE_ASSIGN(const LanguageModel model, build_language_model(checkpoint));
  REDLINE_ASSIGN(const ModelFamily* family, find_model_family(checkpoint));
  const GgufNames& names = family->gguf;
  const DecoderConfig& c = model.config;
  // Their experts would become one tensor; weights of a recurrence are stored otherwise.
  if (names.has_experts || names.is_recurrent)
    return unsupported("{}: {} models are not converted yet", checkpoint.path, family->model_type);
  const std::string arch(names.export_architecture.empty() ? names.architecture : names.export_architecture);

  struct Written {
    std::string name;
    const WeightSource* source;
    GgufForm form;
  };
  std::vector<Written> tensors;
  std::map<DType, int64_t> bytes_of;
  int64_t parameters = 0;
  // Some releases have the names of the module inside, without its prefix.
  const std::string_view layers = names.hf_layers;
  const std::string outer(layers.ends_with(c.names.layers) ? layers.substr(0, layers.size() - c.names.layers.size())
                                                           : "");
  for (const auto& [name, source] : checkpoint.tensors) {
    if (name.ends_with("rotary_emb.inv_freq") || (c.tie_word_embeddings && name == c.names.head + ".weight")) continue;
    GgufForm form = family->gguf_form ? family->gguf_form(checkpoint, c, name) : GgufForm{};
    if (form.is_left_out) continue;
    if (dtype_info(source.view.dtype).gguf_type < 0 || source.source_row)
      return unsupported("{}: tensor {} is {}, a type that GGUF lacks", checkpoint.path, name,
                         dtype_info(source.view.dtype).name);
    tensors.push_back({names.to_gguf(outer + name), &source, std::move(form)});
    parameters += source.view.num_elements();
    if (source.view.shape.size() > 1) bytes_of[source.view.dtype] += source.view.bytes();
  }
  std::stable_sort(tensors.begin(), tensors.end(), [](const Written& a, const Written& b) {
    return written_place_of(a.name) < written_place_of(b.name);
  });
  const auto most = std::max_element(bytes_of.begin(), bytes_of.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  const DType type = options.type.value_or(most == bytes_of.end() ? DType::kF32 : most->first);

  writer.set("general.architecture", arch);
  set_general(checkpoint, parameters, type, writer);
  REDLINE_TRY(set_architecture(checkpoint, *family, arch, c, writer).within(checkpoint.path));
  if (options.has_tokenizer) REDLINE_TRY(set_vocabulary(checkpoint, c.vocab_size, writer));
  else writer.set("tokenizer.ggml.model", "none");

  const int64_t rotary_dim = 2 * static_cast<int64_t>(c.rope.inverse_frequencies.size());
  for (const auto& [name, source, form] : tensors) {
    const bool rotates = name.find(".attn_q.") != std::string::npos || name.find(".attn_k.") != std::string::npos;
    const bool is_vector = source->view.shape.size() == 1, stays_f32 = is_vector || name == "position_embd.weight";
    add_tensor(name, *source, stays_f32 ? DType::kF32 : options.type.value_or(source->view.dtype),
               rotates && names.interleaves_rope ? GgufForm{do_interleave(c.head_dim, rotary_dim)} : form,
               c.norm.plus_one && is_vector && name.ends_with("norm.weight") ? 1.0f : 0.0f, writer);
  }
  return {};
}

}  // namespace redline
