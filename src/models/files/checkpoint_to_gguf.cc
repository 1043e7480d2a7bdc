#include "models/files/checkpoint_to_gguf.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "models/blocks/rope_config.h"
#include "models/checkpoint/gguf_names.h"
#include "models/checkpoint/model_tokenizer.h"
#include "models/registry.h"

namespace redline {
namespace {

/// Returns ggml's LLAMA_FTYPE for files whose matrices mostly have this type.
uint32_t file_type(DType type) {
  switch (type) {
    case DType::kF32: return 0;
    case DType::kF16: return 1;
    case DType::kQ4_0: return 2;
    case DType::kQ8_0: return 7;
    case DType::kQ5_0: return 8;
    case DType::kMXFP4: return 38;
    default: return 32;  // bf16
  }
}

// The model card
// --------------------------------------------------------------------------------------------------------

/// Reads the scalars at the head of README.md ("license: mit" between two lines "---"), as in Hugging Face's model
/// cards.
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

/// Returns a number of parameters with at least two digits: "7.3M", "135M", "1.2B".
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
  if (generation.contains("do_sample")) {  // keys that such a file omits have transformers' defaults
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

// Settings
// --------------------------------------------------------------------------------------------------------------

void add_factors(const char* name, const std::vector<float>& factors, GgufWriter& writer) {
  if (factors.empty()) return;
  writer.add_tensor(name, {DType::kF32, {static_cast<int64_t>(factors.size())}, nullptr},
                    [factors](int64_t, int64_t, uint8_t* out) -> Status {
                      std::memcpy(out, factors.data(), factors.size() * sizeof(float));
                      return {};
                    });
}

/// Returns true if at least one layer uses rope.
bool has_rope(const DecoderConfig& c) {
  const bool none_rotates =
      !c.unrotated.empty() && std::find(c.unrotated.begin(), c.unrotated.end(), false) == c.unrotated.end();
  return !none_rotates && !c.rope.inverse_frequencies.empty();
}

/// Returns unsupported if a setting that files of the family do not store differs from llama.cpp's assumption.
Status check_unstated(const ModelFamily& family, const DecoderConfig& c) {
  const int64_t every = family.gguf.window_every;
  const int64_t window = *std::max_element(c.window.begin(), c.window.end());
  for (int64_t i = 0; i < c.num_layers; ++i)
    if (c.window[static_cast<size_t>(i)] != (every == 1 || (every > 1 && (i + 1) % every != 0) ? window : 0))
      return unsupported("GGUF has no key for the sliding windows of {}", family.model_type);
  constexpr int64_t kUnrotatedEvery = 4;  // SmolLM3's layers without rope: every fourth
  for (size_t i = 0; i < c.unrotated.size() && !(family.gguf_states_rope && !has_rope(c)); ++i)
    if (c.unrotated[i] != ((i + 1) % kUnrotatedEvery == 0))
      return unsupported("GGUF has no key for the layers without rope of {}", family.model_type);
  if (c.window_rope && family.gguf.window_rope_base > 0) {
    REDLINE_ASSIGN(const RopeTableAttrs assumed,
                   read_rope_config({{"rope_theta", family.gguf.window_rope_base}}, c.head_dim, c.max_positions));
    if (c.window_rope->inverse_frequencies != assumed.inverse_frequencies)
      return unsupported("GGUF has no key for the rope of layers with a window of {}", family.model_type);
  }
  if (!c.is_usual_activation)
    return unsupported("GGUF has no key for an activation of {} other than its usual one", family.model_type);
  bool states_scale = false;
  if (family.gguf_numbers)
    family.gguf_numbers(c, [&](std::string_view key, double) { states_scale |= key == "attention.scale"; });
  if (c.attention_scale > 0 && !states_scale && !family.gguf_implies_scale &&
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
  const bool is_partial = c.rope.inverse_frequencies.size() * 2 != static_cast<size_t>(c.head_dim);
  if (is_partial && has_rope(c))  // a family's default included
    config["partial_rotary_factor"] =
        (static_cast<double>(2 * c.rope.inverse_frequencies.size()) + 1e-6) / static_cast<double>(c.head_dim);
  GgufRope rope;
  if (has_rope(c)) {
    REDLINE_ASSIGN(const RopeTableAttrs stated, read_rope_config(config, c.head_dim, c.max_positions));
    if (stated.inverse_frequencies != c.rope.inverse_frequencies)
      return unsupported("config: rope_theta is missing, which GGUF files state");
    REDLINE_ASSIGN(rope, read_gguf_rope(config, c.head_dim, c.max_positions, family.gguf_truncates_yarn));
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
  if (!has_rope(c)) {
    // llama.cpp writes the base that a config names, although no layer rotates.
    if (const auto base = config.find("rope_theta"); base != config.end() && base->is_number())
      set_number("rope.freq_base", base->get<double>());
    return {};
  }
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

// Tensors
// ---------------------------------------------------------------------------------------------------------------

/// Converts a row of float, float16 or bfloat16 to another of these types.
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

/// A tensor to be written: the rows of `sources`, one after the other. Several sources are a tensor with one more axis.
struct WrittenTensor {
  std::string name;
  std::vector<const WeightSource*> sources;
  GgufForm form;

  std::vector<int64_t> shape() const {
    std::vector<int64_t> shape = form.shape.empty() ? sources.front()->view.shape : form.shape;
    if (form.is_transposed) std::swap(shape.front(), shape.back());
    if (sources.size() > 1) shape.insert(shape.begin(), std::ssize(sources));
    return shape;
  }
};

/// Writes rows of a WrittenTensor in another type.
struct RowWriter {
  WrittenTensor tensor;
  DType type;
  float offset;  ///< added to the elements of a vector, which becomes float32
  std::vector<int64_t> shape;
  std::shared_ptr<std::atomic<int64_t>> rows_done = std::make_shared<std::atomic<int64_t>>(0);

  const TensorView& view() const { return tensor.sources.front()->view; }
  Status convert(const uint8_t* row, int64_t elements, uint8_t* out) const {
    const GgufForm& form = tensor.form;
    if (!form.change && offset == 0) return convert_row(*tensor.sources.front(), row, type, elements, out);
    std::vector<float> values(static_cast<size_t>(elements));
    unpack_row(view().dtype, row, values.data(), elements);
    for (float& value : values) value = form.change ? form.change(value) : value + offset;
    WeightSource changed;
    changed.view.dtype = DType::kF32;
    return convert_row(changed, reinterpret_cast<const uint8_t*>(values.data()), type, elements, out);
  }
  /// Writes rows element by element.
  Status gather(const std::function<int64_t(int64_t)>& element, int64_t elements, uint8_t* out) const {
    const auto size = static_cast<size_t>(row_bytes(view().dtype, 1));
    const auto* data = static_cast<const uint8_t*>(view().data);
    std::vector<uint8_t> row(static_cast<size_t>(elements) * size);
    for (int64_t i = 0; i < elements; ++i)
      std::memcpy(row.data() + static_cast<size_t>(i) * size, data + static_cast<size_t>(element(i)) * size, size);
    return convert(row.data(), elements, out);
  }
  /// Writes a row whose columns are stored in another order than the tensor's.
  Status scatter(const uint8_t* row, const std::vector<int32_t>& order, uint8_t* out) const {
    const auto elements = static_cast<int64_t>(order.size());
    std::vector<float> stored(order.size()), values(order.size());
    unpack_row(view().dtype, row, stored.data(), elements);
    for (size_t k = 0; k < order.size(); ++k) values[static_cast<size_t>(order[k])] = stored[k];
    WeightSource in_order;
    in_order.view.dtype = DType::kF32;
    return convert_row(in_order, reinterpret_cast<const uint8_t*>(values.data()), type, elements, out);
  }
  /// Counts written rows, from several threads. After the last row the source is not read again, so its pages are
  /// released.
  void finish(int64_t rows) const {
    int64_t all = 1;
    for (size_t i = 0; i + 1 < shape.size(); ++i) all *= shape[i];
    if (rows_done->fetch_add(rows) + rows != all) return;
    rows_done->store(0);
    for (const WeightSource* source : tensor.sources)
      // The tensor was made by grouped_weight.cc, which can make it again.
      if (source->file && dtype_info(source->view.dtype).is_block)
        source->file->release(static_cast<const uint8_t*>(source->view.data) - source->file->data(),
                              source->view.bytes());
  }
  Status operator()(int64_t begin, int64_t end, uint8_t* out) const {
    const GgufForm& form = tensor.form;
    const int64_t columns = shape.back(), out_bytes = row_bytes(type, columns);
    if (shape.size() == 1)
      return gather([&](int64_t i) { return form.stored_row ? form.stored_row(i) : i; }, columns, out);
    const int64_t in_bytes = row_bytes(view().dtype, columns), rows = view().num_elements() / columns;
    for (int64_t row = begin; row < end; ++row, out += out_bytes) {
      if (form.is_transposed || form.stored_element) {
        const auto element = [&](int64_t column) {
          return form.stored_element ? form.stored_element(row, column) : column * view().shape.back() + row;
        };
        REDLINE_TRY(gather(element, columns, out));
        continue;
      }
      const int64_t stored = form.stored_row ? form.stored_row(row) : row;
      const WeightSource& source = *tensor.sources[static_cast<size_t>(stored / rows)];
      source.need_rows(stored % rows, 1);
      const auto* from = static_cast<const uint8_t*>(source.view.data) + stored % rows * in_bytes;
      REDLINE_TRY(source.columns ? scatter(from, *source.columns, out) : convert(from, columns, out));
    }
    finish(end - begin);
    return {};
  }
};

/// Returns the type of a matrix if the caller requests none: its own, or f16 if its columns are stored in another
/// order, because blocks cannot be kept when the columns are put back in order.
DType stored_type(const WeightSource& source) { return source.columns ? DType::kF16 : source.view.dtype; }

/// Returns true for a tensor that llama.cpp's converter leaves in float32, whatever the type of the file. Vectors,
/// which stay in float32 too, are not looked for here.
bool stays_f32(std::string_view gguf_name) {
  const size_t part = gguf_name.starts_with("blk.") ? gguf_name.find('.', 4) + 1 : 0;
  const std::string_view own = gguf_name.substr(part);
  for (const char* kept : {"position_embd.", "ffn_gate_inp", "exp_probs_b", "ssm_conv1d.", "shortconv.conv.", "ssm_a",
                           "ssm_d", "ssm_norm."})
    if (own.starts_with(kept) && !own.starts_with("ssm_alpha")) return true;
  return own.ends_with(".bias") || own.ends_with("_norm.weight");
}

/// Returns a name without the number of its expert, and the number; -1: the tensor is not that of one expert. An
/// example is "model.layers.0.mlp.experts.3.up_proj.weight", whose number is 3.
std::pair<std::string, int64_t> without_expert(const std::string& name) {
  constexpr std::string_view kExperts = ".experts.";
  const size_t at = name.find(kExperts);
  if (at == std::string::npos) return {name, -1};
  const size_t begin = at + kExperts.size(), end = name.find('.', begin);
  if (end == std::string::npos || end == begin || end - begin > 6 || name.find_first_not_of("0123456789", begin) != end)
    return {name, -1};
  return {name.substr(0, begin) + name.substr(end + 1), std::stoll(name.substr(begin, end - begin))};
}

/// Returns the sort key of a tensor: embedding, layers by number, norm and output.
int64_t written_place_of(const std::string& gguf_name) {
  if (gguf_name.starts_with("token_embd")) return -1;
  return gguf_name.starts_with("blk.") ? std::atoll(gguf_name.c_str() + 4) : INT64_MAX;
}

}  // namespace

Status checkpoint_to_gguf(const Checkpoint& checkpoint, const GgufExport& options, GgufWriter& writer) {
  if (checkpoint.format != "safetensors")
    return unsupported("{}: a {} checkpoint; only Hugging Face folders are converted", checkpoint.path,
                       checkpoint.format);
  // Checks every setting and tensor, and fills in the config's defaults.
  REDLINE_ASSIGN(const LanguageModel model, build_language_model(checkpoint));
  REDLINE_ASSIGN(const ModelFamily* family, find_model_family(checkpoint));
  const GgufNames& names = family->gguf;
  const DecoderConfig& c = model.config;
  if (names.architecture.empty() && names.export_architecture.empty())
    return unsupported("{}: GGUF has no architecture for {}", checkpoint.path, family->model_type);
  const std::string arch(family->gguf_architecture           ? family->gguf_architecture(checkpoint)
                         : names.export_architecture.empty() ? names.architecture
                                                             : names.export_architecture);

  std::map<std::string, std::map<int64_t, WrittenTensor>> tensors_of;  // by tensor name and number of the expert
  std::map<DType, int64_t> bytes_of;
  int64_t parameters = 0;
  // Some releases have the names of the inner module, without its prefix.
  const std::string_view layers = names.hf_layers;
  const std::string outer(layers.ends_with(c.names.layers) ? layers.substr(0, layers.size() - c.names.layers.size())
                                                           : "");
  for (const auto& [stored_name, source] : checkpoint.tensors) {
    if (stored_name.ends_with("rotary_emb.inv_freq") ||
        (c.tie_word_embeddings && stored_name == c.names.head + ".weight"))
      continue;
    std::vector<GgufForm> forms;
    if (family->gguf_parts) forms = family->gguf_parts(checkpoint, c, stored_name);
    else forms.push_back(family->gguf_form ? family->gguf_form(checkpoint, c, stored_name) : GgufForm{});
    std::erase_if(forms, [](const GgufForm& form) { return form.is_left_out; });
    if (forms.empty()) continue;
    const DType kept = forms.front().fill ? forms.front().type : stored_type(source);
    for (GgufForm& form : forms) {
      if (!form.fill && dtype_info(source.view.dtype).is_block &&
          (form.change || form.stored_element || form.is_transposed))
        return unsupported("{}: tensor {} is {}; GGUF files have its elements in another form, which only floats have",
                           checkpoint.path, stored_name, dtype_info(source.view.dtype).name);
      if (!form.fill && (dtype_info(source.view.dtype).gguf_type < 0 || source.source_row))
        return unsupported("{}: tensor {} is {}, a type that GGUF lacks", checkpoint.path, stored_name,
                           dtype_info(source.view.dtype).name);
      const auto [name, expert] = without_expert(form.name.empty() ? stored_name : form.name);
      const std::string written = names.to_gguf(outer + name);
      tensors_of[written].emplace(expert, WrittenTensor{written, {&source}, std::move(form)});
    }
    parameters += source.view.num_elements();
    if (source.view.shape.size() > 1) bytes_of[kept] += source.view.bytes();
  }
  std::vector<WrittenTensor> tensors;
  for (auto& [name, of_experts] : tensors_of) {
    WrittenTensor& tensor = tensors.emplace_back(std::move(of_experts.begin()->second));
    for (auto at = std::next(of_experts.begin()); at != of_experts.end(); ++at) {
      const TensorView &first = tensor.sources.front()->view, &view = at->second.sources.front()->view;
      if (view.dtype != first.dtype || view.shape != first.shape ||
          !at->second.sources.front()->columns != !tensor.sources.front()->columns)
        return unsupported("{}: the experts of {} differ in type or shape", checkpoint.path, name);
      tensor.sources.push_back(at->second.sources.front());
    }
  }
  std::stable_sort(tensors.begin(), tensors.end(), [](const WrittenTensor& a, const WrittenTensor& b) {
    return written_place_of(a.name) < written_place_of(b.name);
  });
  const auto most = std::max_element(bytes_of.begin(), bytes_of.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  const DType type = options.type.value_or(most == bytes_of.end() ? DType::kF32 : most->first);

  writer.set("general.architecture", arch);
  set_general(checkpoint, parameters, type, writer);
  REDLINE_TRY(set_architecture(checkpoint, *family, arch, c, writer).within(checkpoint.path));
  if (family->gguf_keys) {
    const auto key = [&](std::string_view name) { return fmt::format("{}.{}", arch, name); };
    const GgufKeys set = {
        .integer = [&](std::string_view name, int64_t n) { writer.set_u32(key(name), static_cast<uint32_t>(n)); },
        .number = [&](std::string_view name, double x) { writer.set_f32(key(name), static_cast<float>(x)); },
        .boolean = [&](std::string_view name, bool b) { writer.set_bool(key(name), b); },
        .integers = [&](std::string_view name, const std::vector<int32_t>& n) { writer.set_i32s(key(name), n); }};
    REDLINE_TRY(family->gguf_keys(checkpoint, c, set).within(checkpoint.path));
  }
  if (options.has_tokenizer) REDLINE_TRY(set_vocabulary(checkpoint, c.vocab_size, writer));
  else writer.set("tokenizer.ggml.model", "none");

  const int64_t rotary_dim = 2 * static_cast<int64_t>(c.rope.inverse_frequencies.size());
  for (WrittenTensor& tensor : tensors) {
    const std::string name = tensor.name;
    if (tensor.form.fill) {
      writer.add_tensor(name, {tensor.form.type, tensor.form.shape, nullptr}, tensor.form.fill);
      continue;
    }
    const bool rotates = name.find(".attn_q.") != std::string::npos || name.find(".attn_k.") != std::string::npos;
    if (rotates && names.interleaves_rope) tensor.form.stored_row = do_interleave(c.head_dim, rotary_dim);
    const std::vector<int64_t> shape = tensor.shape();
    const bool is_vector = shape.size() == 1;
    const DType stored = stored_type(*tensor.sources.front());
    const DType own = is_vector || stays_f32(name) ? DType::kF32 : options.type.value_or(stored);
    // The norm within a gated delta network has plain weights.
    const bool is_norm = is_vector && name.ends_with("norm.weight") && !name.ends_with(".ssm_norm.weight");
    const float offset = c.norm.plus_one && is_norm ? 1.0f : 0.0f;
    writer.add_tensor(name, {own, shape, nullptr}, RowWriter{std::move(tensor), own, offset, shape});
  }
  return {};
}

}  // namespace redline
