// Converts the tokenizer of a Hugging Face folder to tokenizer.ggml.*; the counterpart of gguf_tokenizer.cc. The
// meaning of the keys follows the GGUF specification and the files that llama.cpp's converter writes.
#include <filesystem>
#include <set>
#include <unordered_map>

#include "base/mapped_file.h"
#include "text/gguf_vocab.h"
#include "text/hf_config.h"
#include "text/json_reader.h"
#include "text/normalizer.h"
#include "text/pre_tokenizer.h"

namespace redline {
namespace {

constexpr int kMaxDepth = 16;  // greatest depth of nested Sequences

int32_t number_of(TokenType type) { return static_cast<int32_t>(type); }

/// Sets pieces and types by id; common to both kinds of tokenizer.json.
void set_tokens(const Tokenizer& tokenizer, const Json& json, const HfConfig& config, GgufVocab& vocab) {
  std::set<std::string, std::less<>> plain;  // non-special added tokens
  if (const Json* added = member(json, "added_tokens"); added && added->is_array())
    for (const Json& token : *added)
      if (!optional_bool(token, "special").value_or(false)) plain.insert(string_or(token, "content", ""));
  for (const auto& [id, token] : config.added_tokens)
    if (!token.special) plain.insert(token.content);
  for (TokenId id = 0; id < tokenizer.vocab_size(); ++id) {
    std::string piece = tokenizer.piece(id);
    TokenType type = TokenType::normal;
    if (piece.empty()) {  // a gap in the ids
      piece = fmt::format("[PAD{}]", id);
      type = TokenType::unused;
    } else if (tokenizer.is_special(id)) {
      type = id == vocab.unk && vocab.model == "llama" ? TokenType::unknown : TokenType::control;
    } else if (plain.count(piece)) {
      type = TokenType::user_defined;
    } else if (vocab.model == "llama" && byte_of_piece(piece) >= 0) {
      type = TokenType::byte;
    }
    vocab.tokens.push_back(std::move(piece));
    vocab.token_types.push_back(number_of(type));
  }
}

/// Returns model.merges as pairs. The tokenizer was loaded before, so each entry is "a b" or ["a", "b"].
std::vector<std::pair<std::string, std::string>> read_gguf_merges(const Json& model) {
  std::vector<std::pair<std::string, std::string>> merges;
  for (const Json& merge : model["merges"]) {
    if (merge.is_array()) {
      merges.emplace_back(merge[0].get<std::string>(), merge[1].get<std::string>());
      continue;
    }
    const auto text = merge.get<std::string>();
    const size_t space = text.find(' ');
    merges.emplace_back(text.substr(0, space), text.substr(space + 1));
  }
  return merges;
}

// Byte-level BPE: GGUF's "gpt2" ---------------------------------------------------------------------------------------

Status unnamed(std::string_view what) { return unsupported("{}: GGUF has no name for this pre-tokenizer", what); }

/// Appends the split patterns in order. unsupported: a step that no named pre-tokenizer has.
Status read_patterns(const Json& step, std::vector<std::string>& patterns, int depth = 0) {
  if (depth > kMaxDepth) return invalid_argument("pre_tokenizer: nested deeper than {}", kMaxDepth);
  const std::string type = string_or(step, "type", "");
  if (type == "Sequence") {
    for (const Json& one : step["pretokenizers"]) REDLINE_TRY(read_patterns(one, patterns, depth + 1));
  } else if (type == "ByteLevel") {
    if (optional_bool(step, "add_prefix_space").value_or(true))
      return unnamed("pre_tokenizer ByteLevel with add_prefix_space");
    if (optional_bool(step, "use_regex").value_or(true)) patterns.emplace_back(kGpt2Pattern);
  } else if (type == "Digits") {
    patterns.emplace_back(optional_bool(step, "individual_digits").value_or(false) ? "\\p{N}" : "\\p{N}+");
  } else if (type == "Split") {
    const Json* pattern = member(step, "pattern");
    const std::string regex = pattern ? string_or(*pattern, "Regex", "") : "";
    const std::string behavior = string_or(step, "behavior", "");
    // "Removed" with invert keeps the matches and drops the rest. It equals "Isolated" here, because published patterns
    // match everything.
    const bool inverted = optional_bool(step, "invert").value_or(false);
    if (regex.empty() || behavior != (inverted ? "Removed" : "Isolated"))
      return unnamed(fmt::format("pre_tokenizer Split {}", spell(step)));
    patterns.push_back(regex);
  } else {
    return unnamed(fmt::format("pre_tokenizer of type \"{}\"", type));
  }
  return {};
}

Status fill_byte_level(const Json& json, GgufVocab& vocab) {
  const Json& model = json["model"];
  const Json* normalizer = member(json, "normalizer");
  // llama.cpp omits NFC, and so do the published GGUF files of Qwen2.
  if (normalizer && string_or(*normalizer, "type", "") != "NFC")
    return unsupported("normalizer of type \"{}\"; GGUF's byte-level tokenizers have none",
                       string_or(*normalizer, "type", "?"));
  std::vector<std::string> patterns;
  const Json* pre = member(json, "pre_tokenizer");
  if (!pre) return unnamed("no pre_tokenizer");
  REDLINE_TRY(read_patterns(*pre, patterns));
  const bool ignore_merges = optional_bool(model, "ignore_merges").value_or(false);
  vocab.pre = name_of_pre_tokenizer(patterns, ignore_merges);
  if (vocab.pre.empty())
    return unnamed(fmt::format("pre_tokenizer with {} pattern{}{}{}", patterns.size(), patterns.size() == 1 ? "" : "s",
                               patterns.empty() ? "" : ", the first of them " + patterns.front(),
                               ignore_merges ? ", and ignore_merges" : ""));
  for (const auto& [left, right] : read_gguf_merges(model)) vocab.merges.push_back(fmt::format("{} {}", left, right));
  return {};
}

// SentencePiece's BPE as tokenizer.json spells it: GGUF's "llama" -----------------------------------------------------

/// Returns true if a space is prepended. Requires that spaces become U+2581. unsupported: any other normalization.
Result<bool> adds_space_prefix(const Json& json) {
  const Status other = unsupported(
      "normalizer or pre_tokenizer that GGUF's \"llama\" tokenizer does not have: it only marks spaces by U+2581");
  bool marks = false, prefix = false;
  const auto read = [&](const Json& step) {
    const std::string type = string_or(step, "type", "");
    if (type == "Prepend" && string_or(step, "prepend", "") == kSpaceMark) {
      prefix = true;
    } else if (type == "Replace" && member(step, "pattern") && string_or(step["pattern"], "String", "") == " " &&
               string_or(step, "content", "") == kSpaceMark) {
      marks = true;
    } else if (type == "Metaspace" && string_or(step, "replacement", kSpaceMark) == kSpaceMark) {
      marks = true;
      const bool add = optional_bool(step, "add_prefix_space").value_or(true);
      prefix = prefix || string_or(step, "prepend_scheme", add ? "always" : "never") != "never";
    } else {
      return false;
    }
    return true;
  };
  for (const auto& [part, list] : {std::pair{"normalizer", "normalizers"}, {"pre_tokenizer", "pretokenizers"}}) {
    const Json* step = member(json, part);
    if (!step) continue;
    if (string_or(*step, "type", "") != "Sequence") {
      if (!read(*step)) return other;
      continue;
    }
    for (const Json& one : (*step)[list])
      if (!read(one)) return other;
  }
  if (!marks) return other;
  return prefix;
}

/// Sets scores so that merging the best-scored pair, as SentencePiece does, follows the order of the merge list:
/// earlier results score higher. unsupported: a list that scores cannot express.
Status set_scores(const Json& model, const Tokenizer& tokenizer, GgufVocab& vocab) {
  const auto different = [](std::string_view piece) {
    return unsupported(
        "model.merges cannot be expressed as scores (see \"{}\"), the only order that GGUF's \"llama\" tokenizer "
        "has; put the tokenizer.model into the folder of tokenizer.json",
        piece);
  };
  std::unordered_map<std::string, size_t> ways;  // number of ways to form a piece
  std::string last;
  vocab.scores.assign(vocab.tokens.size(), 0.0f);
  for (const auto& [left, right] : read_gguf_merges(model)) {
    const std::string piece = left + right;
    if (piece != last && ways.count(piece)) return different(piece);
    if (piece != last) vocab.scores[static_cast<size_t>(tokenizer.find(piece))] = -static_cast<float>(ways.size());
    ++ways[piece];
    last = piece;
  }
  for (size_t id = 0; id < vocab.tokens.size(); ++id) {
    const std::string& piece = vocab.tokens[id];
    if (vocab.token_types[id] != number_of(TokenType::normal)) continue;
    size_t splits = 0;
    for (size_t at = 1; at < piece.size(); ++at) {
      if ((static_cast<uint8_t>(piece[at]) & 0xC0) == 0x80) continue;  // inside a character
      const TokenId left = tokenizer.find(piece.substr(0, at)), right = tokenizer.find(piece.substr(at));
      const auto is_normal = [&](TokenId part) {
        return part >= 0 && vocab.token_types[static_cast<size_t>(part)] == number_of(TokenType::normal);
      };
      splits += is_normal(left) && is_normal(right);
    }
    const auto made = ways.find(piece);
    if (splits != (made == ways.end() ? 0 : made->second)) return different(piece);
  }
  return {};
}

// Special tokens and templates ----------------------------------------------------------------------------------------

Status set_special_tokens(const Tokenizer& tokenizer, const HfConfig& config, GgufVocab& vocab) {
  vocab.bos = tokenizer.bos();
  vocab.pad = config.pad_token.empty() ? -1 : tokenizer.find(config.pad_token);
  if (!config.eos_token.empty()) vocab.eos = tokenizer.find(config.eos_token);
  // Additional end tokens: GGUF has keys for the end of a turn and the end of a message.
  for (const int64_t stop : config.stop_ids) {
    const auto id = static_cast<TokenId>(stop);
    if (stop < 0 || stop >= tokenizer.vocab_size() || id == vocab.eos || id == vocab.eot || id == vocab.eom) continue;
    int32_t& free = vocab.eos < 0                         ? vocab.eos
                    : tokenizer.piece(id) == "<|eom_id|>" ? vocab.eom
                    : vocab.eot < 0                       ? vocab.eot
                                                          : vocab.eom;
    if (free >= 0)
      return unsupported("generation_config.json lists more than three end tokens; GGUF has keys for eos, eot and eom");
    free = id;
  }
  const std::vector<TokenId>&prefix = tokenizer.prefix(), &suffix = tokenizer.suffix();
  vocab.add_bos = !prefix.empty();
  vocab.add_eos = !suffix.empty();
  if ((*vocab.add_bos && prefix != std::vector<TokenId>{vocab.bos}) ||
      (*vocab.add_eos && suffix != std::vector<TokenId>{vocab.eos}))
    return unsupported("the post_processor adds other tokens than BOS and EOS, and GGUF has flags for these two only");
  return {};
}

}  // namespace

Result<ChatTemplates> chat_templates_from_folder(const std::string& path) {
  const std::filesystem::path folder(path);
  const auto read = [&](const char* name, std::string& text) -> Status {
    std::error_code error;
    if (!std::filesystem::exists(folder / name, error)) return {};
    REDLINE_ASSIGN(text, read_text_file((folder / name).string()));
    return {};
  };
  std::string jinja, config;
  ChatTemplates templates;
  REDLINE_TRY(read("chat_template.jinja", jinja));
  REDLINE_TRY(read("tokenizer_config.json", config));
  if (!config.empty()) {
    REDLINE_ASSIGN(const Json json, parse_json(config, (folder / "tokenizer_config.json").string()));
    const Json* found = member(json, "chat_template");
    if (found && found->is_string()) templates.emplace_back("", found->get<std::string>());
    if (found && found->is_array())
      for (const Json& one : *found) {
        const std::string name = string_or(one, "name", "default");
        templates.emplace_back(name == "default" ? "" : name, string_or(one, "template", ""));
      }
  }
  if (!jinja.empty()) {
    std::erase_if(templates, [](const auto& one) { return one.first.empty(); });
    templates.emplace_back("", std::move(jinja));
  }
  return templates;
}

Result<GgufVocab> vocab_from_folder(const std::string& folder) {
  const std::filesystem::path root(folder);
  std::error_code error;
  REDLINE_ASSIGN(const HfConfig config, read_hf_configs(folder));
  REDLINE_ASSIGN(const std::unique_ptr<Tokenizer> tokenizer, tokenizer_from_folder(folder));
  GgufVocab vocab;
  const std::string model_path = (root / "tokenizer.model").string(), json_path = (root / "tokenizer.json").string();
  Json json;
  if (std::filesystem::exists(json_path, error)) {
    REDLINE_ASSIGN(const std::string text, read_text_file(json_path));
    REDLINE_ASSIGN(json, parse_json(text, json_path));
  }
  const Json* model = member(json, "model");
  const Json* decoder = member(json, "decoder");
  const bool is_bpe = model && member(*model, "merges");
  if (is_bpe && decoder && string_or(*decoder, "type", "") == "ByteLevel" &&
      string_or(*model, "end_of_word_suffix", "").empty()) {
    vocab.model = "gpt2";
    set_tokens(*tokenizer, json, config, vocab);
    REDLINE_TRY(fill_byte_level(json, vocab).within(json_path));
  } else if (std::filesystem::exists(model_path, error)) {
    REDLINE_ASSIGN(const std::string bytes, read_text_file(model_path));
    REDLINE_ASSIGN(vocab, vocab_from_sentencepiece(bytes, config).within(model_path));
  } else if (is_bpe && optional_bool(*model, "byte_fallback").value_or(false)) {
    vocab.model = "llama";
    vocab.pre = "default";
    vocab.unk = tokenizer->find(string_or(*model, "unk_token", ""));
    set_tokens(*tokenizer, json, config, vocab);
    REDLINE_ASSIGN(vocab.add_space_prefix, adds_space_prefix(json).within(json_path));
    REDLINE_TRY(set_scores(*model, *tokenizer, vocab).within(json_path));
  } else {
    return unsupported("{}: a tokenizer of kind \"{}\"; Redline writes byte-level BPE and SentencePiece BPE to GGUF",
                       folder, tokenizer->kind());
  }
  REDLINE_TRY(set_special_tokens(*tokenizer, config, vocab).within(folder));
  REDLINE_ASSIGN(vocab.chat_templates, chat_templates_from_folder(folder));
  return vocab;
}

}  // namespace redline
