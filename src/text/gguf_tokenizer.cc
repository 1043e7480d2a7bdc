// Tokenizers from GGUF metadata, including the metadata form of llama2.c's tokenizer.bin.
#include <cmath>
#include <cstring>

#include "base/text_distance.h"
#include "text/gguf_vocab.h"
#include "text/pipeline_tokenizer.h"
#include "text/rwkv.h"
#include "text/word_piece.h"

namespace redline {
namespace {

constexpr size_t kMaxGgufTokens = size_t{1} << 24;

Status fill_vocabulary(GgufVocab& gguf, TokenizerParts& parts) {
  const size_t num = gguf.tokens.size();
  if (num == 0) return invalid_argument("tokenizer.ggml.tokens is empty or missing");
  if (num > kMaxGgufTokens)
    return invalid_argument("tokenizer.ggml.tokens has {} entries, at most {} are allowed", num, kMaxGgufTokens);
  if (!gguf.token_types.empty() && gguf.token_types.size() != num) {
    return invalid_argument("tokenizer.ggml.token_type has {} entries, tokenizer.ggml.tokens has {}",
                            gguf.token_types.size(), num);
  }
  const std::pair<const char*, int32_t> ids[] = {{"bos", gguf.bos},      {"eos", gguf.eos},     {"eot", gguf.eot},
                                                 {"eom", gguf.eom},      {"unknown", gguf.unk}, {"cls", gguf.cls},
                                                 {"seperator", gguf.sep}};
  for (const auto& [name, id] : ids) {
    if (id < -1 || id >= static_cast<int64_t>(num)) {
      return invalid_argument("tokenizer.ggml.{}_token_id is {}, the vocabulary has {} tokens", name, id, num);
    }
  }
  Vocabulary& v = *parts.vocabulary;
  v.pieces = std::move(gguf.tokens);
  v.types.assign(num, TokenType::normal);
  for (size_t i = 0; i < gguf.token_types.size(); ++i) {
    const int32_t type = gguf.token_types[i];
    // ggml's type 0, "undefined", is treated as normal.
    if (type < 0 || type > 6) return invalid_argument("tokenizer.ggml.token_type[{}] is {}, expected 0 to 6", i, type);
    v.types[i] = type == 0 ? TokenType::normal : static_cast<TokenType>(type);
  }
  if (gguf.token_types.empty()) {
    for (const auto& [name, id] : ids) {
      if (id >= 0) v.types[id] = id == gguf.unk ? TokenType::unknown : TokenType::control;
    }
  }
  for (size_t i = 0; i < num; ++i) {
    const bool spm = gguf.model == "llama";
    if (spm && gguf.token_types.empty() && byte_of_piece(v.pieces[i]) >= 0) v.types[i] = TokenType::byte;
    // Some files mark end tokens as normal tokens. They become control tokens, because plain text must not become one.
    if (is_known_stop(v.pieces[i])) v.types[i] = TokenType::control;
  }
  v.build_index();
  // These tokens mark the channels of a harmony message, and output shows them. For <|end|> see add_known_stops().
  for (const char* name : {"<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"}) {
    const TokenId id = v.find(name);
    if (id >= 0) v.types[id] = TokenType::user_defined;
  }
  for (size_t i = 0; i < num; ++i) {
    const TokenType type = v.types[i];
    if (v.pieces[i].empty() ||
        (type != TokenType::control && type != TokenType::unknown && type != TokenType::user_defined))
      continue;
    if (v.find(v.pieces[i]) != static_cast<TokenId>(i)) continue;  // only the first of equal pieces is ever found
    AddedToken token;
    token.id = static_cast<TokenId>(i);
    token.content = v.pieces[i];
    token.special = type != TokenType::user_defined;
    REDLINE_TRY(parts.added_before.add(std::move(token)));
  }
  return {};
}

Status fill_spm(const GgufVocab& gguf, TokenizerParts& parts) {
  parts.kind = "spm";
  std::vector<float> scores = gguf.scores;
  if (scores.empty()) scores.assign(static_cast<size_t>(parts.vocabulary->size()), 0.0f);
  SentencePieceNormalize normalize;
  normalize.add_dummy_prefix = gguf.add_space_prefix.value_or(true);
  normalize.remove_extra_whitespaces = gguf.remove_extra_whitespaces.value_or(false);
  parts.normalizer.add(normalize);
  SpmModel::Options options;
  options.unk = gguf.unk;
  REDLINE_ASSIGN(parts.model, SpmModel::make(*parts.vocabulary, scores, options).within("tokenizer.ggml.scores"));
  parts.decode.byte_tokens = true;
  parts.decode.steps = {ReplaceText{std::string(kSpaceMark), " "}};
  parts.decode.drop_prefix_space = normalize.add_dummy_prefix;
  return {};
}

Status fill_bpe(const GgufVocab& gguf, TokenizerParts& parts, bool& add_bos) {
  parts.kind = "bpe";
  const std::string_view name = gguf.model == "gemma4" ? "gemma4"
                                : gguf.pre.empty()     ? "default"
                                                       : std::string_view(gguf.pre);
  REDLINE_ASSIGN(NamedPreTokenizer named, named_pre_tokenizer(name).within("tokenizer.ggml.pre"));
  parts.pre_tokenizer_name = name;
  add_bos = named.add_bos;
  if (gguf.merges.empty())
    return invalid_argument("tokenizer.ggml.merges is empty or missing, byte-pair encoding needs it");
  std::vector<std::pair<std::string_view, std::string_view>> merges;
  merges.reserve(gguf.merges.size());
  for (size_t i = 0; i < gguf.merges.size(); ++i) {
    const std::string_view merge = gguf.merges[i];
    const size_t space = merge.find(' ', 1);
    if (space == std::string_view::npos || space + 1 == merge.size()) {
      return invalid_argument("tokenizer.ggml.merges[{}] is \"{}\", expected two pieces with a space between", i,
                              merge);
    }
    merges.emplace_back(merge.substr(0, space), merge.substr(space + 1));
  }
  BpeOptions options;
  options.ignore_merges = named.ignore_merges;
  options.unknown_separates = true;
  if (named.spell_bytes) {
    parts.decode.byte_level = true;
  } else {
    options.byte_fallback = options.whole_newlines = true;
    parts.normalizer.add(ReplaceText{" ", std::string(kSpaceMark)});
    parts.decode.byte_tokens = true;
    parts.decode.steps = {ReplaceText{std::string(kSpaceMark), " "}};
    Vocabulary& v = *parts.vocabulary;
    for (size_t i = 0; i < v.pieces.size(); ++i) {
      if (v.types[i] == TokenType::normal && byte_of_piece(v.pieces[i]) >= 0) v.types[i] = TokenType::byte;
    }
  }
  parts.pre_tokenizer = std::move(named.steps);
  REDLINE_ASSIGN(parts.model, BpeModel::make(*parts.vocabulary, options, merges).within("tokenizer.ggml.merges"));
  return {};
}

/// BERT's tokens: llama.cpp stores pieces that begin a word with "▁" before them and the others without "##".
Status fill_word_pieces(GgufVocab& gguf, TokenizerParts& parts) {
  Vocabulary& v = *parts.vocabulary;
  parts.kind = "wordpiece";
  parts.pre_tokenizer_name = "bert";
  // Files without ids are BERT's own vocabulary, as llama.cpp assumes.
  if (gguf.cls < 0) gguf.cls = gguf.bos >= 0 ? gguf.bos : v.find("[CLS]");
  if (gguf.sep < 0) gguf.sep = gguf.eos >= 0 ? gguf.eos : v.find("[SEP]");
  WordPieceOptions options;
  options.unk = gguf.unk >= 0 ? gguf.unk : v.find("[UNK]");
  options.continuing_prefix.clear();
  options.word_prefix = kSpaceMark;
  if (options.unk < 0 || gguf.cls < 0 || gguf.sep < 0)
    return invalid_argument("tokenizer.ggml.model \"bert\" without the tokens [UNK], [CLS] and [SEP]");
  const bool lowercases = gguf.lowercase.value_or(true);
  parts.normalizer.add(BertNormalize{true, true, gguf.strip_accents.value_or(lowercases), lowercases});
  parts.pre_tokenizer.add(SplitStep{is_white_space, SplitBehavior::removed, false});
  parts.pre_tokenizer.add(SplitStep{is_punctuation, SplitBehavior::isolated, false});
  REDLINE_ASSIGN(parts.model, WordPieceModel::make(v, options).within("tokenizer.ggml.tokens"));
  parts.decode.word_pieces = parts.decode.cleans_spaces = parts.decode.drop_prefix_space = true;
  parts.decode.word_prefix = kSpaceMark;
  gguf.bos = gguf.cls;
  gguf.eos = gguf.sep;
  if (!gguf.add_eos) gguf.add_eos = gguf.add_sep.value_or(true);
  return {};
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> tokenizer_from_gguf(GgufVocab gguf) {
  const bool spm = gguf.model == "llama";
  const bool word_pieces = gguf.model == "bert", rwkv = gguf.model == "rwkv";
  if (!spm && !word_pieces && !rwkv && gguf.model != "gpt2" && gguf.model != "gemma4") {
    return unsupported(
        "tokenizer.ggml.model \"{}\" is unknown{}; known are llama (SentencePiece BPE), gpt2 (byte-level BPE), "
        "bert (WordPiece), rwkv, gemma4",
        gguf.model, the_nearest(gguf.model, "llama, gpt2, bert, rwkv, gemma4"));
  }
  const auto num = static_cast<int64_t>(gguf.tokens.size());
  if (spm) {
    // Files older than these keys use Llama's ids.
    if (gguf.unk < 0 && num > 2) gguf.unk = 0;
    if (gguf.bos < 0 && num > 2) gguf.bos = 1;
    if (gguf.eos < 0 && num > 2) gguf.eos = 2;
  }
  if (rwkv)
    for (std::string& token : gguf.tokens) token = unescape_rwkv_token(token);
  TokenizerParts parts;
  REDLINE_TRY(fill_vocabulary(gguf, parts));
  bool add_bos = !rwkv;
  if (rwkv) {
    REDLINE_TRY(fill_rwkv(parts, gguf.unk).within("tokenizer.ggml.tokens"));
  } else if (spm) {
    REDLINE_TRY(fill_spm(gguf, parts));
  } else if (word_pieces) {
    REDLINE_TRY(fill_word_pieces(gguf, parts));
  } else {
    REDLINE_TRY(fill_bpe(gguf, parts, add_bos));
  }
  parts.bos = gguf.bos;
  if (gguf.add_bos.value_or(add_bos) && gguf.bos >= 0) parts.prefix = {gguf.bos};
  if (gguf.add_eos.value_or(false) && gguf.eos >= 0) parts.suffix = {gguf.eos};
  const TokenId between = gguf.sep >= 0 ? gguf.sep : gguf.eos;
  parts.pair = {parts.prefix, {}, parts.suffix, word_pieces};
  if (!parts.suffix.empty()) parts.pair.middle = {between};
  if (!parts.suffix.empty() && !word_pieces) parts.pair.middle = {gguf.eos, between};  // RoBERTa's
  parts.add_known_stops();
  for (const TokenId id : {gguf.eos, gguf.eot, gguf.eom}) parts.add_stop(id);
  return make_tokenizer(std::move(parts));
}

Result<GgufVocab> vocab_from_llama2c(std::string_view bytes, int64_t vocab_size) {
  constexpr int64_t kHead = 4, kPerPiece = 8;
  if (vocab_size < 3 || vocab_size > static_cast<int64_t>(kMaxGgufTokens)) {
    return invalid_argument("tokenizer.bin: a vocabulary of {} tokens is requested, expected 3 to {}", vocab_size,
                            kMaxGgufTokens);
  }
  // Checked before the size is used for an allocation.
  if (static_cast<int64_t>(bytes.size()) < kHead + kPerPiece * vocab_size) {
    return invalid_argument(
        "tokenizer.bin: {} bytes cannot hold {} tokens; the file is truncated or belongs to another checkpoint",
        bytes.size(), vocab_size);
  }
  GgufVocab vocab;
  vocab.model = "llama";
  vocab.pre = "default";
  vocab.bos = 1;
  vocab.eos = 2;
  vocab.unk = 0;
  vocab.add_bos = true;
  vocab.add_eos = false;
  vocab.add_space_prefix = true;
  size_t at = kHead;  // skips the maximum token length
  for (int64_t id = 0; id < vocab_size; ++id) {
    float score = 0;
    int32_t length = 0;
    if (bytes.size() - at < kPerPiece) {
      return invalid_argument("tokenizer.bin: ends at byte {} inside token {} of {}", bytes.size(), id, vocab_size);
    }
    std::memcpy(&score, bytes.data() + at, 4);
    std::memcpy(&length, bytes.data() + at + 4, 4);
    at += kPerPiece;
    if (length < 0 || static_cast<size_t>(length) > bytes.size() - at) {
      return invalid_argument("tokenizer.bin: token {} at byte {} has {} bytes, {} are left", id, at - kPerPiece,
                              length, bytes.size() - at);
    }
    if (!std::isfinite(score))
      return invalid_argument("tokenizer.bin: token {} at byte {} has score {}", id, at - kPerPiece, score);
    std::string piece(bytes.substr(at, static_cast<size_t>(length)));
    at += static_cast<size_t>(length);
    int32_t type = 1;
    if (id == 0) {
      piece = "<unk>";
      type = 2;
    } else if (id <= 2) {
      piece = id == 1 ? "<s>" : "</s>";  // the file has "\n<s>\n"
      type = 3;
    } else if (byte_of_piece(piece) >= 0) {
      type = 6;
    } else {
      piece = replace_all(piece, " ", kSpaceMark);
    }
    vocab.tokens.push_back(std::move(piece));
    vocab.scores.push_back(score);
    vocab.token_types.push_back(type);
  }
  if (at != bytes.size()) {
    return invalid_argument(
        "tokenizer.bin: {} bytes follow the last of {} tokens; the file belongs to another checkpoint",
        bytes.size() - at, vocab_size);
  }
  return vocab;
}

}  // namespace redline
