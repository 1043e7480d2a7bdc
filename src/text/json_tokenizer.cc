// tokenizer.json of Hugging Face tokenizers, with the semantics of that package. Unsupported parts are rejected by
// name.
#include <algorithm>

#include "base/base64.h"
#include "base/text_distance.h"
#include "text/json_tokenizer.h"
#include "text/pipeline_tokenizer.h"
#include "text/unigram.h"
#include "text/word_level.h"
#include "text/word_piece.h"

namespace redline {
namespace {

constexpr int kMaxSequenceDepth = 16;  // greatest depth of nested Sequences

Status unknown_type(std::string_view part, const Json& json, std::string_view known) {
  const std::string type = string_or(json, "type", "?");
  return unsupported("{} of type \"{}\"{}; known are {}", part, type, the_nearest(type, known), known);
}

/// Reads a pattern, which is {"String": "x"} or {"Regex": "x"}.
Result<std::variant<Regex, std::string>> read_pattern(const Json& json, const char* part) {
  const Json* pattern = member(json, "pattern");
  if (pattern && member(*pattern, "String")) return std::variant<Regex, std::string>(string_or(*pattern, "String", ""));
  if (pattern && member(*pattern, "Regex")) {
    REDLINE_ASSIGN(Regex regex, Regex::compile(string_or(*pattern, "Regex", "")));
    return std::variant<Regex, std::string>(std::move(regex));
  }
  return invalid_argument("{}: pattern must be {{\"String\": ...}} or {{\"Regex\": ...}}", part);
}

Status read_list(const Json& json, const char* key, const char* part, const Json*& list) {
  list = member(json, key);
  if (!list || !list->is_array()) return invalid_argument("{}: Sequence without the list \"{}\"", part, key);
  return {};
}

Status read_normalizer(const Json& json, Normalizer& normalizer, int depth = 0) {
  if (depth > kMaxSequenceDepth) return invalid_argument("normalizer: nested deeper than {}", kMaxSequenceDepth);
  const std::string type = string_or(json, "type", "");
  if (type == "Sequence") {
    const Json* list = nullptr;
    REDLINE_TRY(read_list(json, "normalizers", "normalizer", list));
    for (const Json& one : *list) REDLINE_TRY(read_normalizer(one, normalizer, depth + 1));
  } else if (type == "NFC") {
    normalizer.add(NormalizeForm{NormalForm::nfc});
  } else if (type == "NFD") {
    normalizer.add(NormalizeForm{NormalForm::nfd});
  } else if (type == "NFKC") {
    normalizer.add(NormalizeForm{NormalForm::nfkc});
  } else if (type == "NFKD") {
    normalizer.add(NormalizeForm{NormalForm::nfkd});
  } else if (type == "Lowercase") {
    normalizer.add(Lowercase{});
  } else if (type == "BertNormalizer") {
    const auto flag = [&](const char* key, bool otherwise) { return optional_bool(json, key).value_or(otherwise); };
    const bool lowercase = flag("lowercase", true);
    normalizer.add(BertNormalize{flag("clean_text", true), flag("handle_chinese_chars", true),
                                 flag("strip_accents", lowercase), lowercase});
  } else if (type == "StripAccents") {
    normalizer.add(StripAccents{});
  } else if (type == "Strip") {
    normalizer.add(StripSpace{optional_bool(json, "strip_left").value_or(true),
                              optional_bool(json, "strip_right").value_or(true)});
  } else if (type == "Prepend") {
    normalizer.add(PrependText{string_or(json, "prepend", "")});
  } else if (type == "ByteLevel") {
    normalizer.add(SpellBytes{});
  } else if (type == "Nmt") {
    normalizer.add(CleanControls{});
  } else if (type == "Precompiled") {
    const auto bytes = from_base64(string_or(json, "precompiled_charsmap", ""));
    if (!bytes) return invalid_argument("normalizer Precompiled: precompiled_charsmap is not base64");
    REDLINE_ASSIGN(CharsMap map, CharsMap::parse(*bytes).within("normalizer Precompiled"));
    normalizer.add(PrecompiledMap{std::make_shared<const CharsMap>(std::move(map))});
  } else if (type == "Replace") {
    REDLINE_ASSIGN(auto pattern, read_pattern(json, "normalizer Replace"));
    std::string content = string_or(json, "content", "");
    if (auto* regex = std::get_if<Regex>(&pattern)) {
      normalizer.add(ReplaceRegex{std::move(*regex), std::move(content)});
    } else {
      normalizer.add(ReplaceText{std::move(std::get<std::string>(pattern)), std::move(content)});
    }
  } else {
    return unknown_type("normalizer", json,
                        "Sequence, NFC, NFD, NFKC, NFKD, Lowercase, StripAccents, BertNormalizer, Strip, Prepend, "
                        "ByteLevel, Nmt, Precompiled, Replace");
  }
  return {};
}

Result<SplitBehavior> read_behavior(const Json& json, std::string_view otherwise) {
  const std::string name = string_or(json, "behavior", otherwise);
  if (name == "Isolated") return SplitBehavior::isolated;
  if (name == "Removed") return SplitBehavior::removed;
  if (name == "MergedWithPrevious") return SplitBehavior::merged_with_previous;
  if (name == "MergedWithNext") return SplitBehavior::merged_with_next;
  if (name == "Contiguous") return SplitBehavior::contiguous;
  return invalid_argument(
      "pre_tokenizer: behavior \"{}\"; known are Isolated, Removed, MergedWithPrevious, MergedWithNext, Contiguous",
      name);
}

/// Reads Metaspace's prepend_scheme, or add_prefix_space, which older files have in its place.
Result<MetaspaceStep::Prepend> read_prepend(const Json& json) {
  const bool prefix = optional_bool(json, "add_prefix_space").value_or(true);
  const std::string scheme = string_or(json, "prepend_scheme", prefix ? "always" : "never");
  if (scheme == "always") return MetaspaceStep::Prepend::always;
  if (scheme == "first") return MetaspaceStep::Prepend::first;
  if (scheme == "never") return MetaspaceStep::Prepend::never;
  return invalid_argument("Metaspace: prepend_scheme \"{}\"; known are always, first, never", scheme);
}

Status read_pre_tokenizer(const Json& json, PreTokenizer& pre, int depth = 0) {
  if (depth > kMaxSequenceDepth) return invalid_argument("pre_tokenizer: nested deeper than {}", kMaxSequenceDepth);
  const std::string type = string_or(json, "type", "");
  const auto add_regex = [&](std::string_view pattern, SplitBehavior behavior, bool invert) -> Status {
    REDLINE_ASSIGN(Regex regex, Regex::compile(pattern));
    pre.add(SplitStep{std::move(regex), behavior, invert});
    return {};
  };
  if (type == "Sequence") {
    const Json* list = nullptr;
    REDLINE_TRY(read_list(json, "pretokenizers", "pre_tokenizer", list));
    for (const Json& one : *list) REDLINE_TRY(read_pre_tokenizer(one, pre, depth + 1));
  } else if (type == "ByteLevel") {
    if (optional_bool(json, "add_prefix_space").value_or(true)) pre.add(PrefixSpaceStep{});
    if (optional_bool(json, "use_regex").value_or(true))
      REDLINE_TRY(add_regex(kGpt2Pattern, SplitBehavior::isolated, false));
    pre.add(ByteLevelStep{});
  } else if (type == "Split") {
    REDLINE_ASSIGN(auto pattern, read_pattern(json, "pre_tokenizer Split"));
    SplitStep step;
    step.invert = optional_bool(json, "invert").value_or(false);
    REDLINE_ASSIGN(step.behavior, read_behavior(json, ""));
    const auto* regex = std::get_if<Regex>(&pattern);
    const auto groups = regex ? digit_groups_of(regex->pattern()) : std::nullopt;
    if (groups && step.behavior == SplitBehavior::isolated && !step.invert) {
      pre.add(*groups);
    } else {
      std::visit([&](auto& p) { step.pattern = std::move(p); }, pattern);
      pre.add(std::move(step));
    }
  } else if (type == "Digits") {
    const bool single = optional_bool(json, "individual_digits").value_or(false);
    pre.add(SplitStep{is_numeric, single ? SplitBehavior::isolated : SplitBehavior::contiguous, false});
  } else if (type == "Punctuation") {
    REDLINE_ASSIGN(const SplitBehavior behavior, read_behavior(json, "Isolated"));
    pre.add(SplitStep{is_punctuation, behavior, false});
  } else if (type == "BertPreTokenizer") {
    pre.add(SplitStep{is_white_space, SplitBehavior::removed, false});
    pre.add(SplitStep{is_punctuation, SplitBehavior::isolated, false});
  } else if (type == "WhitespaceSplit") {
    pre.add(SplitStep{is_white_space, SplitBehavior::removed, false});
  } else if (type == "Whitespace") {
    // A pattern of Rust's regex crate, whose \w includes the joiners.
    REDLINE_TRY(add_regex(R"((?:(?![²³¹¼-¾])[\w\x{200c}\x{200d}])+|(?:[²³¹¼-¾]|[^\w\s\x{200c}\x{200d}])+)",
                          SplitBehavior::removed, true));
  } else if (type == "CharDelimiterSplit") {
    pre.add(SplitStep{string_or(json, "delimiter", ""), SplitBehavior::removed, false});
  } else if (type == "FixedLength") {
    const int64_t length = optional_int(json, "length").value_or(5);
    if (length < 1) return invalid_argument("pre_tokenizer FixedLength: length is {}, expected 1 or more", length);
    pre.add(FixedLengthStep{length});
  } else if (type == "Metaspace") {
    MetaspaceStep step;
    step.replacement = string_or(json, "replacement", kSpaceMark);
    if (step.replacement.empty()) return invalid_argument("pre_tokenizer Metaspace: empty replacement");
    REDLINE_ASSIGN(step.prepend, read_prepend(json));
    step.split = optional_bool(json, "split").value_or(true);
    pre.add(std::move(step));
  } else {
    return unknown_type(
        "pre_tokenizer", json,
        "Sequence, ByteLevel, Split, Digits, Punctuation, Whitespace, WhitespaceSplit, BertPreTokenizer, "
        "CharDelimiterSplit, FixedLength, Metaspace");
  }
  return {};
}

struct DecoderState {
  bool fused = false, ends_words = false;
};

Status read_decoder(const Json& json, DecodeRules& rules, DecoderState& state, int depth = 0) {
  if (depth > kMaxSequenceDepth) return invalid_argument("decoder: nested deeper than {}", kMaxSequenceDepth);
  const std::string type = string_or(json, "type", "");
  if (type == "Sequence") {
    const Json* list = nullptr;
    REDLINE_TRY(read_list(json, "decoders", "decoder", list));
    for (const Json& one : *list) REDLINE_TRY(read_decoder(one, rules, state, depth + 1));
  } else if (type == "ByteLevel") {
    rules.byte_level = true;
  } else if (type == "WordPiece") {
    rules.word_pieces = rules.drop_prefix_space = true;
    rules.cleans_spaces = optional_bool(json, "cleanup").value_or(true);
    rules.continuing = string_or(json, "prefix", "##");
  } else if (type == "ByteFallback") {
    rules.byte_tokens = true;
  } else if (type == "Fuse") {
    state.fused = true;
  } else if (type == "Metaspace") {
    REDLINE_ASSIGN(const MetaspaceStep::Prepend prepend, read_prepend(json));
    rules.steps.emplace_back(ReplaceText{string_or(json, "replacement", kSpaceMark), " "});
    rules.drop_prefix_space = prepend != MetaspaceStep::Prepend::never;
  } else if (type == "Replace") {
    REDLINE_ASSIGN(auto pattern, read_pattern(json, "decoder Replace"));
    std::string content = string_or(json, "content", "");
    if (auto* regex = std::get_if<Regex>(&pattern)) {
      rules.steps.emplace_back(ReplaceRegex{std::move(*regex), std::move(content)});
    } else {
      rules.steps.emplace_back(ReplaceText{std::move(std::get<std::string>(pattern)), std::move(content)});
    }
  } else if (type == "BPEDecoder") {
    rules.steps.emplace_back(ReplaceText{string_or(json, "suffix", "</w>"), " "});
    rules.drop_suffix_space = true;
    state.ends_words = true;
  } else if (type == "Strip") {
    const int64_t start = optional_int(json, "start").value_or(0), stop = optional_int(json, "stop").value_or(0);
    if (start == 0 && stop == 0) return {};
    std::string content = string_or(json, "content", " ");
    if (!state.fused) {
      rules.steps.emplace_back(StripContent{std::move(content), start, stop});
      return {};
    }
    if (start != 1 || stop != 0 || content != " ")
      return unsupported(
          "decoder Strip of {} at the start and {} at the end of a text, by \"{}\", after Fuse; known is one "
          "space at the start",
          start, stop, content);
    rules.drop_prefix_space = true;
  } else {
    return unknown_type("decoder", json,
                        "Sequence, ByteLevel, BPEDecoder, WordPiece, ByteFallback, Fuse, Metaspace, Replace, Strip");
  }
  return {};
}

/// One template of TemplateProcessing: the special tokens before, between and after its texts.
struct TemplateList {
  std::vector<std::vector<TokenId>> around = std::vector<std::vector<TokenId>>(1);
  int64_t last_type = 0;  ///< type id of the last text

  Status read(const Json& json, const char* key, const Vocabulary& v) {
    const Json* list = member(json, key);
    if (!list || !list->is_array())
      return invalid_argument("post_processor TemplateProcessing without the list \"{}\"", key);
    for (const Json& item : *list) {
      if (const Json* text = member(item, "Sequence")) {
        around.emplace_back();
        last_type = optional_int(*text, "type_id").value_or(0);
        continue;
      }
      const Json* special = member(item, "SpecialToken");
      const std::string name = special ? string_or(*special, "id", "") : "";
      const Json* table = member(json, "special_tokens");
      const Json* entry = table && special ? member(*table, name.c_str()) : nullptr;
      const Json* ids = entry ? member(*entry, "ids") : nullptr;
      if (!ids || !ids->is_array()) return invalid_argument("post_processor: special token \"{}\" has no ids", name);
      for (const Json& id : *ids) {
        const int64_t value = id.is_number_integer() ? id.get<int64_t>() : -1;
        if (value < 0 || value >= v.size())
          return invalid_argument("post_processor: special token \"{}\" has id {}, the vocabulary has {} tokens", name,
                                  spell(id), v.size());
        around.back().push_back(static_cast<TokenId>(value));
      }
    }
    return {};
  }
};

Status read_template(const Json& json, const Vocabulary& v, TokenizerParts& parts) {
  TemplateList single, pair;
  REDLINE_TRY(single.read(json, "single", v));
  if (single.around.size() > 2) return unsupported("post_processor TemplateProcessing that repeats the text");
  if (single.around.size() < 2) return unsupported("post_processor TemplateProcessing that leaves the text out");
  parts.prefix = std::move(single.around[0]);
  parts.suffix = std::move(single.around[1]);
  if (member(json, "pair")) REDLINE_TRY(pair.read(json, "pair", v));
  if (pair.around.size() == 3)
    parts.pair = {std::move(pair.around[0]), std::move(pair.around[1]), std::move(pair.around[2]), pair.last_type > 0};
  else parts.pair = {parts.prefix, {}, parts.suffix, false};
  return {};
}

/// Reads an end token, which is written ["</s>", 1].
Status read_end_token(const Json& json, const char* key, const Vocabulary& v, std::vector<TokenId>& ids) {
  const Json* pair = member(json, key);
  const bool well_formed = pair && pair->is_array() && pair->size() == 2 && (*pair)[1].is_number_integer();
  const int64_t id = well_formed ? (*pair)[1].get<int64_t>() : -1;
  if (id < 0 || id >= v.size())
    return invalid_argument("post_processor: {} is {}, expected a token and its id below {}", key,
                            pair ? spell(*pair) : "missing", v.size());
  ids = {static_cast<TokenId>(id)};
  return {};
}

Status read_post_processor(const Json& json, const Vocabulary& v, TokenizerParts& parts, int depth = 0) {
  if (depth > kMaxSequenceDepth) return invalid_argument("post_processor: nested deeper than {}", kMaxSequenceDepth);
  const std::string type = string_or(json, "type", "");
  if (type == "Sequence") {
    const Json* list = nullptr;
    REDLINE_TRY(read_list(json, "processors", "post_processor", list));
    for (const Json& one : *list) REDLINE_TRY(read_post_processor(one, v, parts, depth + 1));
  } else if (type == "TemplateProcessing") {
    REDLINE_TRY(read_template(json, v, parts));
  } else if (type == "RobertaProcessing" || type == "BertProcessing") {
    REDLINE_TRY(read_end_token(json, "cls", v, parts.prefix));
    REDLINE_TRY(read_end_token(json, "sep", v, parts.suffix));
    const bool is_bert = type == "BertProcessing";
    parts.pair = {parts.prefix, parts.suffix, parts.suffix, is_bert};
    if (!is_bert) parts.pair.middle.push_back(parts.suffix.front());
  } else if (type != "ByteLevel") {  // ByteLevel affects offsets only
    return unknown_type("post_processor", json,
                        "Sequence, TemplateProcessing, RobertaProcessing, BertProcessing, ByteLevel");
  }
  return {};
}

struct JsonModel {
  BpeOptions options;
  std::vector<std::pair<std::string_view, std::string_view>> merges;  ///< pieces to merge; views into the JSON
};

/// Reads Unigram's list of [piece, score].
Status read_scored_pieces(const Json& vocab, Vocabulary& v, std::vector<double>& scores) {
  for (const Json& entry : vocab) {
    const bool well_formed = entry.is_array() && entry.size() == 2 && entry[0].is_string() && entry[1].is_number();
    if (!well_formed)
      return invalid_argument("model.vocab[{}] is {}, expected [\"piece\", score]", v.size(), spell(entry));
    v.pieces.push_back(entry[0].get<std::string>());
    scores.push_back(entry[1].get<double>());
  }
  return {};
}

/// Reads the pieces of the model and the added tokens. `scores`: receives the scores of a Unigram model, by id.
Status read_vocabulary(const Json& model, const Json* added, const HfConfig& config, Vocabulary& v,
                       std::vector<double>* scores) {
  const Json* vocab = member(model, "vocab");
  if (!vocab || !(scores ? vocab->is_array() : vocab->is_object()))
    return invalid_argument("model.vocab is missing or no {}", scores ? "list" : "object");
  const size_t num_added = added && added->is_array() ? added->size() : 0;
  // Ids may have gaps, but a small file must not cause large allocations.
  const auto limit = static_cast<int64_t>(4 * (vocab->size() + num_added + config.added_tokens.size()) + 65536);
  const auto put = [&](std::string_view piece, int64_t id, std::string_view place) -> Status {
    if (id < 0 || id >= limit)
      return invalid_argument("{}: \"{}\" has id {}, expected 0 to {}", place, piece, id, limit - 1);
    if (id >= v.size()) v.pieces.resize(static_cast<size_t>(id) + 1);
    if (!v.pieces[id].empty() && v.pieces[id] != piece) {
      return invalid_argument("{}: id {} belongs to \"{}\" and to \"{}\"", place, id, v.pieces[id], piece);
    }
    v.pieces[id] = piece;
    return {};
  };
  if (scores) {
    REDLINE_TRY(read_scored_pieces(*vocab, v, *scores));
  } else {
    for (const auto& [piece, id] : vocab->items()) {
      if (!id.is_number_integer())
        return invalid_argument("model.vocab: \"{}\" has {} for an id", piece, id.type_name());
      if (!piece.empty()) REDLINE_TRY(put(piece, id.get<int64_t>(), "model.vocab"));
    }
  }
  v.build_index();
  const auto put_added = [&](const std::string& content, int64_t id, const char* place) -> Status {
    const TokenId known = v.find(content);  // a token of the model keeps the model's id
    return known >= 0 ? Status{} : put(content, id, place);
  };
  if (added) {
    if (!added->is_array()) return invalid_argument("added_tokens is {}, expected a list", added->type_name());
    for (const Json& token : *added) {
      const std::string content = string_or(token, "content", "");
      const auto id = optional_int(token, "id");
      if (content.empty() || !id) return invalid_argument("added_tokens: {} needs content and id", spell(token));
      REDLINE_TRY(put_added(content, *id, "added_tokens"));
    }
  }
  for (const auto& [id, token] : config.added_tokens) {
    if (!v.has(static_cast<TokenId>(id)) || v.pieces[id].empty())
      REDLINE_TRY(put_added(token.content, id, "tokenizer_config.json: added_tokens_decoder"));
  }
  v.build_index();
  return {};
}

Status read_added_tokens(const Json* added, const HfConfig& config, TokenizerParts& parts) {
  Vocabulary& v = *parts.vocabulary;
  std::vector<bool> seen(v.pieces.size());
  const auto put = [&](AddedToken token, bool normalized) -> Status {
    token.id = v.find(token.content);
    if (token.id < 0 || seen[token.id]) return {};
    seen[token.id] = true;
    v.types[token.id] = token.special ? TokenType::control : TokenType::user_defined;
    if (!normalized || parts.normalizer.empty()) return parts.added_before.add(std::move(token));
    token.content = parts.normalizer.apply(token.content, true);
    if (token.content.empty()) return {};
    return parts.added_after.add(std::move(token));
  };
  if (added) {
    for (const Json& json : *added) {
      AddedToken token;
      token.content = string_or(json, "content", "");
      token.special = optional_bool(json, "special").value_or(false);
      token.single_word = optional_bool(json, "single_word").value_or(false);
      token.lstrip = optional_bool(json, "lstrip").value_or(false);
      token.rstrip = optional_bool(json, "rstrip").value_or(false);
      const bool normalized = optional_bool(json, "normalized").value_or(!token.special);
      REDLINE_TRY(put(std::move(token), normalized));
    }
  }
  for (const auto& [id, token] : config.added_tokens) REDLINE_TRY(put(token, false));
  return {};
}

Status read_model(const Json& json, const Vocabulary& v, JsonModel& model) {
  const Json* unk = member(json, "unk_token");
  if (unk) {
    model.options.unk = v.find(string_or(json, "unk_token", ""));
    if (model.options.unk < 0)
      return invalid_argument("model.unk_token {} is not in the vocabulary",
                              unk->dump(-1, ' ', false, Json::error_handler_t::replace));
  }
  model.options.continuing_prefix = string_or(json, "continuing_subword_prefix", "");
  model.options.end_of_word = string_or(json, "end_of_word_suffix", "");
  if (const Json* dropout = member(json, "dropout"); dropout && dropout->is_number() && dropout->get<double>() != 0) {
    return unsupported("model.dropout {}: encoding would be random", dropout->get<double>());
  }
  model.options.fuse_unk = optional_bool(json, "fuse_unk").value_or(false);
  model.options.byte_fallback = optional_bool(json, "byte_fallback").value_or(false);
  if (model.options.byte_fallback && !model.options.continuing_prefix.empty())
    return unsupported("model.byte_fallback with model.continuing_subword_prefix \"{}\"",
                       model.options.continuing_prefix);
  model.options.ignore_merges = optional_bool(json, "ignore_merges").value_or(false);
  model.options.refuses_unknown_merges = true;
  const Json* merges = member(json, "merges");
  if (!merges || !merges->is_array()) return invalid_argument("model.merges is missing or no list");
  model.merges.reserve(merges->size());
  for (const Json& merge : *merges) {
    std::string_view left, right;
    if (merge.is_string()) {
      const std::string_view text = merge.get_ref<const std::string&>();
      const size_t space = text.find(' ');
      if (space != std::string_view::npos) {
        left = text.substr(0, space);
        right = text.substr(space + 1);
      }
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      left = merge[0].get_ref<const std::string&>();
      right = merge[1].get_ref<const std::string&>();
    }
    if (left.empty() || right.empty()) {
      return invalid_argument("model.merges[{}] is {}, expected \"a b\" or [\"a\", \"b\"]", model.merges.size(),
                              spell(merge));
    }
    model.merges.emplace_back(left, right);
  }
  return {};
}

/// Marks the types of the unknown and byte tokens.
void mark_model_tokens(TokenId unk, bool byte_fallback, Vocabulary& v) {
  for (size_t i = 0; i < v.pieces.size() && byte_fallback; ++i) {
    if (v.types[i] == TokenType::normal && byte_of_piece(v.pieces[i]) >= 0) v.types[i] = TokenType::byte;
  }
  if (unk >= 0 && v.types[static_cast<size_t>(unk)] == TokenType::normal)
    v.types[static_cast<size_t>(unk)] = TokenType::unknown;
}

/// Returns true for the tokenizer classes of transformers in which add_bos_token rebuilds the post-processor.
bool flags_decide(const HfConfig& config) {
  for (const char* name : {"Llama", "CodeLlama", "Gemma", "Cohere"}) {
    if (config.tokenizer_class.starts_with(name)) return true;
  }
  return false;
}

Result<std::unique_ptr<TokenModel>> make_bpe(const Json& json, Vocabulary& v) {
  JsonModel model;
  REDLINE_TRY(read_model(json, v, model));
  mark_model_tokens(model.options.unk, model.options.byte_fallback, v);
  return BpeModel::make(v, model.options, model.merges).within("model.merges");
}

Result<std::unique_ptr<TokenModel>> make_unigram(const Json& json, std::vector<double> scores, Vocabulary& v) {
  UnigramOptions options;
  if (member(json, "unk_id")) {
    const int64_t unk = optional_int(json, "unk_id").value_or(-1);
    if (unk < 0 || unk >= static_cast<int64_t>(scores.size()))
      return invalid_argument("model.unk_id is {}, the vocabulary has {} pieces", spell(json["unk_id"]), scores.size());
    options.unk = static_cast<TokenId>(unk);
  }
  options.byte_fallback = optional_bool(json, "byte_fallback").value_or(false);
  for (const double score : scores) options.min_score = std::min(options.min_score, score);
  mark_model_tokens(options.unk, options.byte_fallback, v);
  return UnigramModel::make(v, std::move(scores), options).within("model.vocab");
}

Result<std::unique_ptr<TokenModel>> make_word_piece(const Json& json, Vocabulary& v) {
  WordPieceOptions options;
  const std::string unk = string_or(json, "unk_token", "[UNK]");
  options.unk = v.find(unk);
  if (options.unk < 0) return invalid_argument("model.unk_token \"{}\" is not in the vocabulary", unk);
  options.continuing_prefix = string_or(json, "continuing_subword_prefix", "##");
  options.max_word_chars = optional_int(json, "max_input_chars_per_word").value_or(options.max_word_chars);
  mark_model_tokens(options.unk, false, v);
  return WordPieceModel::make(v, options).within("model.vocab");
}

Result<std::unique_ptr<TokenModel>> make_word_level(const Json& json, Vocabulary& v) {
  const std::string unk_token = string_or(json, "unk_token", "<unk>");
  std::vector<bool> is_word(v.pieces.size());
  for (const auto& [word, id] : json["vocab"].items()) is_word[id.get<size_t>()] = true;
  const TokenId unk = v.find(unk_token);
  if (unk < 0 || !is_word[static_cast<size_t>(unk)])
    return invalid_argument("model.unk_token \"{}\" is not in the vocabulary", unk_token);
  mark_model_tokens(unk, false, v);
  return std::unique_ptr<TokenModel>(std::make_unique<WordLevelModel>(v, std::move(is_word), unk));
}

/// Adds a special token that only tokenizer_config.json names: transformers matches it in the text, even if it is a
/// normal piece of the vocabulary ("!" of Stable Diffusion 2).
Status add_special(const std::string& content, TokenizerParts& parts) {
  Vocabulary& v = *parts.vocabulary;
  AddedToken token;
  token.content = content;
  token.id = v.find(content);
  token.special = true;
  if (token.id < 0 || v.is_special(token.id)) return {};
  v.types[static_cast<size_t>(token.id)] = TokenType::control;
  return parts.added_before.add(std::move(token));
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> tokenizer_from_json_object(const Json& json, const HfConfig& config) {
  const Json* model_json = member(json, "model");
  if (!model_json || !model_json->is_object()) return invalid_argument("tokenizer.json has no \"model\"");
  // Files from before the model had a type are BPE when they have merges.
  const std::string type = string_or(*model_json, "type", member(*model_json, "merges") ? "BPE" : "none");
  const bool unigram = type == "Unigram";
  const bool word_piece = type == "WordPiece", word_level = type == "WordLevel";
  if (type != "BPE" && !unigram && !word_piece && !word_level)
    return unsupported("model of type \"{}\"{}; Redline reads BPE, Unigram, WordPiece and WordLevel", type,
                       the_nearest(type, "BPE, Unigram, WordPiece, WordLevel"));
  TokenizerParts parts;
  Vocabulary& v = *parts.vocabulary;
  const Json* added = member(json, "added_tokens");
  std::vector<double> scores;
  REDLINE_TRY(read_vocabulary(*model_json, added, config, v, unigram ? &scores : nullptr));
  if (const Json* n = member(json, "normalizer")) REDLINE_TRY(read_normalizer(*n, parts.normalizer));
  if (const Json* p = member(json, "pre_tokenizer")) REDLINE_TRY(read_pre_tokenizer(*p, parts.pre_tokenizer));
  DecoderState state;
  if (const Json* d = member(json, "decoder")) REDLINE_TRY(read_decoder(*d, parts.decode, state));
  else parts.decode.separated = parts.decode.drop_prefix_space = true;
  if (!state.ends_words) parts.decode.end_of_word = string_or(*model_json, "end_of_word_suffix", "");
  REDLINE_TRY(read_added_tokens(added, config, parts));
  const std::string pad = pad_token_of(config);
  if (pads_texts(config)) REDLINE_TRY(add_special(pad, parts));
  REDLINE_ASSIGN(parts.model, unigram      ? make_unigram(*model_json, std::move(scores), v)
                              : word_piece ? make_word_piece(*model_json, v)
                              : word_level ? make_word_level(*model_json, v)
                                           : make_bpe(*model_json, v));
  if (const Json* p = member(json, "post_processor")) REDLINE_TRY(read_post_processor(*p, v, parts));
  parts.kind = unigram ? "unigram" : word_piece ? "wordpiece" : word_level ? "wordlevel" : "bpe";
  parts.pre_tokenizer_name = "tokenizer.json";
  parts.bos = config.bos_token.empty() ? -1 : v.find(config.bos_token);
  const TokenId eos = config.eos_token.empty() ? -1 : v.find(config.eos_token);
  if (parts.bos < 0 && !parts.prefix.empty()) parts.bos = parts.prefix.front();
  if (flags_decide(config)) {
    if (config.add_bos)
      parts.prefix = *config.add_bos && parts.bos >= 0 ? std::vector<TokenId>{parts.bos} : std::vector<TokenId>{};
    if (config.add_eos) parts.suffix = *config.add_eos && eos >= 0 ? std::vector<TokenId>{eos} : std::vector<TokenId>{};
  }
  parts.pad = pad.empty() ? -1 : v.find(pad);
  parts.max_tokens = config.max_tokens;
  parts.add_stop(eos);
  for (const int64_t id : config.stop_ids) {
    if (id >= 0 && id < v.size()) parts.add_stop(static_cast<TokenId>(id));
  }
  parts.add_known_stops();
  return make_tokenizer(std::move(parts));
}

Result<std::unique_ptr<Tokenizer>> tokenizer_from_json(std::string_view tokenizer_json, const HfConfig& config) {
  REDLINE_ASSIGN(const Json json, parse_json(tokenizer_json, "tokenizer.json"));
  return tokenizer_from_json_object(json, config);
}

Result<std::unique_ptr<Tokenizer>> tokenizer_from_json(std::string_view tokenizer_json, std::string_view config_text) {
  REDLINE_ASSIGN(const HfConfig config, read_hf_config(config_text));
  return tokenizer_from_json(tokenizer_json, config);
}

}  // namespace redline
