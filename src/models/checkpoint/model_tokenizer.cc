#include "models/checkpoint/model_tokenizer.h"

#include <filesystem>
#include <nlohmann/json.hpp>

namespace redline {
namespace {

constexpr std::string_view kPrefix = "tokenizer.ggml.";

/// Reads optional keys; keeps the first error.
class KeyReader {
 public:
  explicit KeyReader(const GgufFile& file) : file_(file) {}

  const GgufValue* find(std::string_view key) const { return file_.find(fmt::format("{}{}", kPrefix, key)); }
  void text(std::string_view key, std::string& field) {
    if (const GgufValue* v = find(key)) set(key, v, v->as_string(), "a string", field);
  }
  void id(std::string_view key, int32_t& field) {
    if (const GgufValue* v = find(key)) set(key, v, v->as_int(), "an integer", field);
  }
  void flag(std::string_view key, std::optional<bool>& field) {
    if (const GgufValue* v = find(key)) set(key, v, v->as_bool(), "a bool", field);
  }
  void strings(std::string_view key, std::vector<std::string>& field) {
    const GgufValue* v = find(key);
    if (!v) return;
    if (const auto list = v->as_strings()) {
      field = list->to_vector();
    } else {
      wrong(key, *v, "an array of strings");
    }
  }
  template <class T, class List>
  void numbers(std::string_view key, const GgufValue* v, const std::optional<List>& list, std::vector<T>& field) {
    if (!list) return wrong(key, *v, "an array of numbers");
    field.reserve(list->size());
    for (const auto number : *list) field.push_back(static_cast<T>(number));
  }

  Status status;

 private:
  template <class From, class To>
  void set(std::string_view key, const GgufValue* v, const std::optional<From>& value, const char* kind, To& field) {
    if (!value) return wrong(key, *v, kind);
    if constexpr (std::is_same_v<To, int32_t>) {
      // An id outside of any vocabulary means none; llama.cpp writes 2^32 - 1 for "no such token".
      field = *value >= 0 && *value <= INT32_MAX ? static_cast<int32_t>(*value) : -1;
    } else {
      field = To(*value);
    }
  }
  void wrong(std::string_view key, const GgufValue& v, const char* kind) {
    if (status.ok())
      status = invalid_argument("{}: {}{} is a {}, expected {}", file_.path(), kPrefix, key,
                                gguf_value_type_name(v.type), kind);
  }

  const GgufFile& file_;
};

}  // namespace

Result<GgufVocab> read_gguf_vocab(const GgufFile& file) {
  KeyReader keys(file);
  GgufVocab vocab;
  keys.text("model", vocab.model);
  const GgufValue* tokens = keys.find("tokens");
  if (vocab.model.empty() || vocab.model == "none" || !tokens)
    return not_found("{}: the file holds no tokenizer ({}model and {}tokens)", file.path(), kPrefix, kPrefix);
  keys.text("pre", vocab.pre);
  keys.strings("tokens", vocab.tokens);
  // Check lengths first: a list that does not match is never copied.
  for (const char* key : {"scores", "token_type"})
    if (const GgufValue* v = keys.find(key); v && v->count != tokens->count)
      return invalid_argument("{}: {}{} has {} entries for {} tokens", file.path(), kPrefix, key, v->count,
                              tokens->count);
  if (const GgufValue* v = keys.find("scores")) keys.numbers("scores", v, v->as_doubles(), vocab.scores);
  if (const GgufValue* v = keys.find("token_type")) keys.numbers("token_type", v, v->as_ints(), vocab.token_types);
  keys.strings("merges", vocab.merges);
  keys.id("bos_token_id", vocab.bos);
  keys.id("eos_token_id", vocab.eos);
  keys.id("eot_token_id", vocab.eot);
  keys.id("eom_token_id", vocab.eom);
  keys.id("unknown_token_id", vocab.unk);
  keys.id("padding_token_id", vocab.pad);
  keys.id("cls_token_id", vocab.cls);
  keys.id("seperator_token_id", vocab.sep);
  keys.flag("add_bos_token", vocab.add_bos);
  keys.flag("add_eos_token", vocab.add_eos);
  keys.flag("add_sep_token", vocab.add_sep);
  keys.flag("normalizer.lowercase", vocab.lowercase);
  keys.flag("normalizer.strip_accents", vocab.strip_accents);
  keys.flag("add_space_prefix", vocab.add_space_prefix);
  keys.flag("remove_extra_whitespaces", vocab.remove_extra_whitespaces);
  REDLINE_TRY(keys.status);
  return vocab;
}

Result<FillInTokens> read_gguf_fill_in_tokens(const GgufFile& file) {
  KeyReader keys(file);
  FillInTokens tokens;
  keys.id("prefix_token_id", tokens.prefix);
  keys.id("suffix_token_id", tokens.suffix);
  keys.id("middle_token_id", tokens.middle);
  keys.id("fim_pre_token_id", tokens.prefix);
  keys.id("fim_suf_token_id", tokens.suffix);
  keys.id("fim_mid_token_id", tokens.middle);
  keys.id("fim_pad_token_id", tokens.pad);
  keys.id("fim_rep_token_id", tokens.repository);
  keys.id("fim_sep_token_id", tokens.file);
  REDLINE_TRY(keys.status);
  return tokens;
}

void set_gguf_vocab(const GgufVocab& vocab, GgufWriter& writer) {
  const auto key = [](std::string_view name) { return fmt::format("{}{}", kPrefix, name); };
  writer.set(key("model"), vocab.model);
  writer.set(key("pre"), vocab.pre);
  writer.set_strings(key("tokens"), vocab.tokens);
  if (!vocab.scores.empty()) writer.set_f32s(key("scores"), vocab.scores);
  if (!vocab.token_types.empty()) writer.set_i32s(key("token_type"), vocab.token_types);
  if (!vocab.merges.empty()) writer.set_strings(key("merges"), vocab.merges);
  const std::pair<const char*, int32_t> ids[] = {{"bos_token_id", vocab.bos},     {"eos_token_id", vocab.eos},
                                                 {"eot_token_id", vocab.eot},     {"eom_token_id", vocab.eom},
                                                 {"unknown_token_id", vocab.unk}, {"padding_token_id", vocab.pad}};
  for (const auto& [name, id] : ids)
    if (id >= 0) writer.set_u32(key(name), static_cast<uint32_t>(id));
  const std::pair<const char*, std::optional<bool>> flags[] = {
      {"add_bos_token", vocab.add_bos},
      {"add_eos_token", vocab.add_eos},
      {"add_space_prefix", vocab.add_space_prefix},
      {"remove_extra_whitespaces", vocab.remove_extra_whitespaces}};
  for (const auto& [name, flag] : flags)
    if (flag) writer.set_bool(key(name), *flag);
  std::vector<std::string> named;
  for (const auto& [name, text] : vocab.chat_templates) {
    writer.set(name.empty() ? "tokenizer.chat_template" : fmt::format("tokenizer.chat_template.{}", name), text);
    if (!name.empty()) named.push_back(name);
  }
  if (!named.empty()) writer.set_strings("tokenizer.chat_templates", named);
}

Result<std::unique_ptr<Tokenizer>> load_tokenizer(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) return tokenizer_from_folder(path);
  REDLINE_ASSIGN(const GgufFile file, GgufFile::open(path));
  REDLINE_ASSIGN(GgufVocab vocab, read_gguf_vocab(file));
  return tokenizer_from_gguf(std::move(vocab)).within(path);
}

ChatTemplateSource chat_template_from_gguf(const GgufFile& file) {
  const auto text = [&](std::string_view key) {
    const GgufValue* value = file.find(key);
    return std::string(value ? value->as_string().value_or("") : "");
  };
  ChatTemplateSource source;
  source.text = text("tokenizer.chat_template");
  source.tool_use = text("tokenizer.chat_template.tool_use");
  if (source.text.empty()) source.text = source.tool_use;
  const GgufValue* tokens = file.find("tokenizer.ggml.tokens");
  const auto pieces = tokens ? tokens->as_strings() : std::nullopt;
  if (!pieces) return source;
  nlohmann::json special = nlohmann::json::object();
  const std::pair<const char*, const char*> names[] = {
      {"bos_token", "bos_token_id"},       {"eos_token", "eos_token_id"},     {"unk_token", "unknown_token_id"},
      {"sep_token", "seperator_token_id"}, {"pad_token", "padding_token_id"}, {"cls_token", "cls_token_id"},
      {"mask_token", "mask_token_id"}};
  std::vector<std::pair<int64_t, const char*>> wanted;
  for (const auto& [name, key] : names) {
    const GgufValue* value = file.find(fmt::format("{}{}", kPrefix, key));
    if (const auto id = value ? value->as_int() : std::nullopt) wanted.emplace_back(*id, name);
  }
  int64_t id = 0;
  for (const std::string_view piece : *pieces) {
    for (const auto& [wanted_id, name] : wanted)
      if (wanted_id == id) special[name] = piece;
    ++id;
  }
  source.special_tokens_json = special.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return source;
}

Result<ChatTemplateSource> load_chat_template_source(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) return chat_template_from_folder(path);
  REDLINE_ASSIGN(const GgufFile file, GgufFile::open(path));
  return chat_template_from_gguf(file);
}

Result<std::string> load_chat_template(const std::string& path) {
  REDLINE_ASSIGN(ChatTemplateSource source, load_chat_template_source(path));
  return std::move(source.text);
}

}  // namespace redline
