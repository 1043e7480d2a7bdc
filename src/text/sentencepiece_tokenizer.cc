// SentencePiece's tokenizer.model: a protobuf message, with fields named as in sentencepiece_model.proto of
// google/sentencepiece.
#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstring>

#include "text/hf_config.h"
#include "text/pipeline_tokenizer.h"
#include "text/unigram.h"

namespace redline {
namespace {

constexpr size_t kMaxPieces = size_t{1} << 24;

/// A protobuf field: only the wire format needed here, with every length checked.
struct Field {
  uint32_t number = 0;
  uint32_t wire = 0;
  uint64_t value = 0;      ///< value of a field of wire type 0, 1 or 5
  std::string_view bytes;  ///< contents of a field of wire type 2
};

class Message {
 public:
  Message(std::string_view bytes, size_t file_offset) : bytes_(bytes), file_offset_(file_offset) {}

  bool at_end() const { return at_ == bytes_.size(); }
  size_t offset() const { return file_offset_ + at_; }
  /// Returns the file offset of `part`, a view into this message.
  size_t offset_of(std::string_view part) const {
    return file_offset_ + static_cast<size_t>(part.data() - bytes_.data());
  }

  Result<Field> next() {
    Field field;
    REDLINE_ASSIGN(const uint64_t tag, varint());
    field.number = static_cast<uint32_t>(tag >> 3);
    field.wire = static_cast<uint32_t>(tag & 7);
    if (field.number == 0 || (tag >> 3) > 0x1FFFFFFF)
      return invalid_argument("field number {} at byte {}", tag >> 3, offset());
    switch (field.wire) {
      case 0: {
        REDLINE_ASSIGN(field.value, varint());
        break;
      }
      case 1:
      case 5: {
        const size_t size = field.wire == 1 ? 8 : 4;
        if (bytes_.size() - at_ < size)
          return invalid_argument("ends at byte {} inside field {}", file_offset_ + bytes_.size(), field.number);
        std::memcpy(&field.value, bytes_.data() + at_, size);
        at_ += size;
        break;
      }
      case 2: {
        REDLINE_ASSIGN(const uint64_t size, varint());
        if (size > bytes_.size() - at_) {
          return invalid_argument("field {} at byte {} has {} bytes, {} are left", field.number, offset(), size,
                                  bytes_.size() - at_);
        }
        field.bytes = bytes_.substr(at_, static_cast<size_t>(size));
        at_ += static_cast<size_t>(size);
        break;
      }
      default:
        return invalid_argument("field {} at byte {} has wire type {}, expected 0, 1, 2 or 5", field.number, offset(),
                                field.wire);
    }
    return field;
  }

 private:
  Result<uint64_t> varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (at_ == bytes_.size()) return invalid_argument("ends at byte {} inside a number", offset());
      const auto byte = static_cast<uint8_t>(bytes_[at_++]);
      value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    return invalid_argument("a number of more than ten bytes ends at byte {}", offset());
  }

  std::string_view bytes_;
  size_t file_offset_;
  size_t at_ = 0;
};

struct ModelProto {
  std::vector<std::string> pieces;
  std::vector<float> scores;
  std::vector<TokenType> types;
  uint64_t model_type = 1;  // unigram, the default of the format
  int64_t bos = 1, eos = 2, unk = 0;
  bool whitespace_as_suffix = false, byte_fallback = false;
  bool add_dummy_prefix = true, remove_extra_whitespaces = true, escape_whitespaces = true;
  std::string_view charsmap;
  std::string normalizer_name;
};

Status read_piece(Message message, ModelProto& model) {
  std::string piece;
  float score = 0;
  uint64_t type = 1;
  while (!message.at_end()) {
    REDLINE_ASSIGN(const Field f, message.next());
    if (f.number == 1 && f.wire == 2) piece = f.bytes;
    if (f.number == 2 && f.wire == 5) std::memcpy(&score, &f.value, 4);
    if (f.number == 3 && f.wire == 0) type = f.value;
  }
  const size_t id = model.pieces.size();
  if (type < 1 || type > 6) return invalid_argument("piece {} has type {}, expected 1 to 6", id, type);
  if (std::isnan(score)) return invalid_argument("piece {} (\"{}\") has no number for a score", id, piece);
  if (piece.empty()) return invalid_argument("piece {} is empty", id);
  if (id >= kMaxPieces) return invalid_argument("more than {} pieces", kMaxPieces);
  model.pieces.push_back(std::move(piece));
  model.scores.push_back(score);
  model.types.push_back(static_cast<TokenType>(type));
  return {};
}

Status read_trainer(Message message, ModelProto& model) {
  while (!message.at_end()) {
    REDLINE_ASSIGN(const Field f, message.next());
    if (f.wire != 0) continue;
    const auto id = static_cast<int64_t>(f.value);
    if (f.number == 3) model.model_type = f.value;
    if (f.number == 35) model.byte_fallback = f.value != 0;
    if (f.number == 24) model.whitespace_as_suffix = f.value != 0;
    if (f.number == 40) model.unk = id;
    if (f.number == 41) model.bos = id;
    if (f.number == 42) model.eos = id;
  }
  return {};
}

Status read_normalizer_proto(Message message, ModelProto& model) {
  while (!message.at_end()) {
    REDLINE_ASSIGN(const Field f, message.next());
    if (f.number == 1 && f.wire == 2) model.normalizer_name = f.bytes;
    if (f.number == 2 && f.wire == 2) model.charsmap = f.bytes;
    if (f.wire != 0) continue;
    if (f.number == 3) model.add_dummy_prefix = f.value != 0;
    if (f.number == 4) model.remove_extra_whitespaces = f.value != 0;
    if (f.number == 5) model.escape_whitespaces = f.value != 0;
  }
  return {};
}

Result<ModelProto> read_model_proto(std::string_view bytes) {
  ModelProto model;
  Message message(bytes, 0);
  while (!message.at_end()) {
    REDLINE_ASSIGN(const Field f, message.next());
    if (f.wire != 2) continue;
    const Message part(f.bytes, message.offset_of(f.bytes));
    if (f.number == 1) REDLINE_TRY(read_piece(part, model));
    if (f.number == 2) REDLINE_TRY(read_trainer(part, model).within("trainer_spec"));
    if (f.number == 3) REDLINE_TRY(read_normalizer_proto(part, model).within("normalizer_spec"));
  }
  if (model.pieces.empty()) return invalid_argument("no pieces; is this a SentencePiece model?");
  return model;
}

/// Unigram scores as in sentencepiece: a user-defined piece wins over any combination of its parts.
Result<std::unique_ptr<TokenModel>> make_piece_unigram(const ModelProto& model, TokenId unk, const Vocabulary& v) {
  float lowest = FLT_MAX, highest = -FLT_MAX;
  for (size_t id = 0; id < model.scores.size(); ++id) {
    if (v.types[id] != TokenType::normal) continue;
    lowest = std::min(lowest, model.scores[id]);
    highest = std::max(highest, model.scores[id]);
  }
  std::vector<double> scores(model.scores.begin(), model.scores.end());
  for (size_t id = 0; id < scores.size(); ++id)
    if (v.types[id] == TokenType::user_defined) scores[id] = static_cast<float>(v.pieces[id].size()) * highest - 0.1;
  UnigramOptions options;
  options.unk = unk;
  options.byte_fallback = model.byte_fallback;
  options.min_score = lowest;
  options.float_sums = true;
  return UnigramModel::make(v, std::move(scores), options);
}

/// Appends the pieces that only tokenizer_config.json has to those of the model, and marks special tokens as it says.
Status add_config_tokens(const HfConfig& config, ModelProto& model) {
  const auto num = static_cast<int64_t>(model.pieces.size());
  for (const auto& [id, token] : config.added_tokens) {
    if (id > num + static_cast<int64_t>(config.added_tokens.size())) {
      return invalid_argument("tokenizer_config.json: added token {} (\"{}\") leaves a gap after the {} pieces", id,
                              token.content, num);
    }
    while (static_cast<int64_t>(model.pieces.size()) <= id) {
      model.pieces.emplace_back();
      model.types.push_back(TokenType::unused);
      model.scores.push_back(0);
    }
    const auto at = static_cast<size_t>(id);
    if (model.pieces[at].empty()) model.pieces[at] = token.content;
    if (model.types[at] == TokenType::unknown || model.types[at] == TokenType::byte) continue;
    model.types[at] = token.special ? TokenType::control : TokenType::user_defined;
  }
  return {};
}

Result<std::unique_ptr<Tokenizer>> build(std::string_view bytes, const HfConfig& config) {
  REDLINE_ASSIGN(ModelProto model, read_model_proto(bytes));
  constexpr std::string_view kTypes[] = {"", "unigram", "bpe", "word", "char"};
  // A character model has no merges: BPE gives the same ids.
  const bool unigram = model.model_type == 1;
  if (!unigram && model.model_type != 2 && model.model_type != 4) {
    return unsupported("SentencePiece model type {} ({}); Redline reads unigram, bpe and char", model.model_type,
                       model.model_type < 5 ? kTypes[model.model_type] : "unknown");
  }
  if (model.whitespace_as_suffix) return unsupported("treat_whitespace_as_suffix");
  TokenizerParts parts;
  Vocabulary& v = *parts.vocabulary;
  const auto num = static_cast<int64_t>(model.pieces.size());
  REDLINE_TRY(add_config_tokens(config, model));
  v.pieces = std::move(model.pieces);
  v.types = std::move(model.types);
  v.build_index();
  for (auto& [id, token] : config.added_tokens) {
    if (v.types[id] != TokenType::byte) REDLINE_TRY(parts.added_before.add(token));
  }
  for (int64_t id = 0; id < num; ++id) {
    if ((v.types[id] != TokenType::control && v.types[id] != TokenType::unknown) || config.added_tokens.count(id))
      continue;
    AddedToken token;
    token.id = static_cast<TokenId>(id);
    token.content = v.pieces[id];
    token.special = true;
    REDLINE_TRY(parts.added_before.add(std::move(token)));
  }

  SentencePieceNormalize normalize;
  normalize.add_dummy_prefix = config.add_prefix_space.value_or(model.add_dummy_prefix);
  normalize.remove_extra_whitespaces = model.remove_extra_whitespaces;
  normalize.escape_whitespaces = model.escape_whitespaces;
  normalize.dummy_prefix_at_start_only = config.legacy.has_value() && !*config.legacy;
  if (!model.charsmap.empty()) {
    REDLINE_ASSIGN(CharsMap map, CharsMap::parse(model.charsmap).within("normalizer_spec"));
    normalize.map = std::make_shared<const CharsMap>(std::move(map));
  }
  auto untouched = std::make_shared<PrefixMatcher>();
  for (int64_t id = 0; id < num; ++id) {
    if (v.types[id] == TokenType::user_defined) {
      REDLINE_TRY(untouched->insert(v.pieces[id], static_cast<int32_t>(id)).within(fmt::format("piece {}", id)));
    }
  }
  if (!untouched->empty()) normalize.untouched = std::move(untouched);
  const bool drop_prefix = normalize.add_dummy_prefix || normalize.remove_extra_whitespaces;
  parts.normalizer.add(std::move(normalize));

  const auto known = [&](int64_t id) { return id >= 0 && id < num ? static_cast<TokenId>(id) : -1; };
  if (unigram) {
    REDLINE_ASSIGN(parts.model, make_piece_unigram(model, known(model.unk), v));
  } else {
    SpmModel::Options options;
    options.unk = known(model.unk);
    options.match_user_defined = options.split_unused = true;
    REDLINE_ASSIGN(parts.model, SpmModel::make(v, model.scores, options));
  }
  parts.kind = unigram ? "unigram" : "spm";
  parts.decode.byte_tokens = true;
  parts.decode.keep_user_defined = false;
  parts.decode.steps = {ReplaceText{std::string(kSpaceMark), " "}};
  parts.decode.drop_prefix_space = drop_prefix;
  const auto named = [&](const std::string& piece, int64_t otherwise) {
    const TokenId id = piece.empty() ? -1 : v.find(piece);
    return id >= 0 ? id : known(otherwise);
  };
  parts.bos = named(config.bos_token, model.bos);
  const TokenId eos = named(config.eos_token, model.eos);
  // transformers' Llama tokenizer adds BOS unless configured otherwise.
  if (config.add_bos.value_or(true) && parts.bos >= 0) parts.prefix = {parts.bos};
  // T5's always adds EOS.
  const bool is_t5 = config.tokenizer_class.starts_with("T5Tokenizer");
  if (config.add_eos.value_or(is_t5) && eos >= 0) parts.suffix = {eos};
  const std::string pad = pad_token_of(config);
  parts.pad = pad.empty() ? -1 : v.find(pad);
  parts.max_tokens = config.max_tokens;
  parts.add_stop(eos);
  for (const int64_t id : config.stop_ids) parts.add_stop(known(id));
  parts.add_known_stops();
  return make_tokenizer(std::move(parts));
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> tokenizer_from_sentencepiece(std::string_view model_bytes, const HfConfig& config) {
  return build(model_bytes, config);
}

Result<GgufVocab> vocab_from_sentencepiece(std::string_view model_bytes, const HfConfig& config) {
  REDLINE_ASSIGN(ModelProto model, read_model_proto(model_bytes));
  if (model.model_type != 2)
    return unsupported("SentencePiece model type {}; GGUF's \"llama\" is BPE", model.model_type);
  if (model.whitespace_as_suffix) return unsupported("treat_whitespace_as_suffix");
  if (!model.charsmap.empty())
    return unsupported("normalizer \"{}\"; GGUF's \"llama\" tokenizer leaves characters as they are",
                       model.normalizer_name);
  REDLINE_TRY(add_config_tokens(config, model));
  GgufVocab vocab;
  vocab.model = "llama";
  vocab.pre = "default";
  vocab.tokens = std::move(model.pieces);
  vocab.scores = std::move(model.scores);
  for (const TokenType type : model.types) vocab.token_types.push_back(static_cast<int32_t>(type));
  const auto known = [&](int64_t id) {
    return id >= 0 && id < static_cast<int64_t>(vocab.tokens.size()) ? static_cast<int32_t>(id) : -1;
  };
  vocab.unk = known(model.unk);
  vocab.eos = known(model.eos);
  vocab.add_space_prefix = config.add_prefix_space.value_or(model.add_dummy_prefix);
  vocab.remove_extra_whitespaces = model.remove_extra_whitespaces;
  return vocab;
}

Result<std::unique_ptr<Tokenizer>> tokenizer_from_sentencepiece(std::string_view model_bytes,
                                                                std::string_view config_text) {
  REDLINE_ASSIGN(const HfConfig config, read_hf_config(config_text));
  return build(model_bytes, config);
}

}  // namespace redline
