#include "text/pipeline_tokenizer.h"

#include <algorithm>
#include <iterator>
#include <optional>

#include "text/piece_cache.h"
#include "text/piece_scanner.h"

namespace redline {
namespace {

// End-of-generation tokens, as listed in llama.cpp's vocabulary loader.
constexpr std::string_view kStopNames[] = {"<|eot_id|>",
                                           "<|im_end|>",
                                           "<|end|>",
                                           "<|return|>",
                                           "<|call|>",
                                           "<|flush|>",
                                           "<|calls|>",
                                           "<end_of_turn>",
                                           "<|endoftext|>",
                                           "</s>",
                                           "<|eom_id|>",
                                           "<EOT>",
                                           "_<EOT>",
                                           "[EOT]",
                                           "[EOS]",
                                           "<|end_of_text|>",
                                           "<end_of_utterance>",
                                           "<eos>",
                                           "<turn|>",
                                           "<|tool_response>",
                                           "<｜end▁of▁sentence｜>",
                                           "[e~["};

/// Decodes one word piece by the rules of the tokenizers package.
std::string decode_word_piece(const DecodeRules& rules, std::string_view piece) {
  const bool continues =
      rules.word_prefix.empty() ? piece.starts_with(rules.continuing) : !piece.starts_with(rules.word_prefix);
  piece.remove_prefix(continues ? rules.continuing.size() : rules.word_prefix.size());
  std::string text(continues ? "" : " ");
  text += piece;
  if (!rules.cleans_spaces) return text;
  constexpr std::pair<const char*, const char*> kCleanups[] = {
      {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},   {" n't", "n't"},
      {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& [from, to] : kCleanups) text = replace_all(text, from, to);
  return text;
}

std::string decode_step(const ReplaceText& step, std::string_view piece) {
  return replace_all(piece, step.from, step.to);
}
std::string decode_step(const ReplaceRegex& step, std::string_view piece) {
  return replace_regex(piece, step.from, step.to);
}
std::string decode_step(const StripContent& step, std::string_view piece) {
  for (int64_t i = 0; i < step.start && piece.starts_with(step.content); ++i) piece.remove_prefix(step.content.size());
  for (int64_t i = 0; i < step.stop && piece.ends_with(step.content); ++i) piece.remove_suffix(step.content.size());
  return std::string(piece);
}

class PipelineTokenizer final : public Tokenizer {
 public:
  explicit PipelineTokenizer(TokenizerParts parts)
      : parts_(std::move(parts)), splits_bytes_(parts_.pre_tokenizer.splits_bytes()),
        regex_(parts_.pre_tokenizer.only_regex()) {
    if (regex_ != nullptr) scanner_ = PieceScanner::of(regex_->pattern());
  }

  using Tokenizer::encode;
  void encode(std::string_view text, EncodeOptions options, EncodeWork& work,
              std::vector<TokenId>& ids) const override {
    if (options.add_special) ids.insert(ids.end(), parts_.prefix.begin(), parts_.prefix.end());
    const auto goes_on = [&] { return work.has_room(ids.size()) && !work.is_cancelled(); };
    parts_.added_before.for_each_part(text, options.parse_special, work, [&](MarkedText part) {
      if (part.id >= 0) {
        ids.push_back(part.id);
        return goes_on();
      }
      const bool at_start = part.text.data() == text.data();
      if (parts_.normalizer.empty() && parts_.added_after.empty()) {
        encode_plain(part.text, at_start, work, ids);
        return goes_on();
      }
      const std::string normalized = parts_.normalizer.apply(part.text, at_start, work);
      if (work.is_stopped()) return false;
      parts_.added_after.for_each_part(normalized, options.parse_special, work, [&](MarkedText piece) {
        if (piece.id >= 0) ids.push_back(piece.id);
        else encode_plain(piece.text, at_start && piece.text.data() == normalized.data(), work, ids);
        return goes_on();
      });
      return goes_on();
    });
    if (options.add_special) ids.insert(ids.end(), parts_.suffix.begin(), parts_.suffix.end());
    work.has_room(ids.size());
  }

  int64_t max_token_bytes() const override { return max_token_bytes_; }

  std::string token_bytes(TokenId id, bool special) const override {
    const Vocabulary& v = *parts_.vocabulary;
    const DecodeRules& rules = parts_.decode;
    if (!v.has(id)) return "";
    const std::string& piece = v.pieces[id];
    if (rules.separated) return v.is_special(id) && !special ? "" : " " + piece;
    if (v.is_special(id)) return special ? (rules.word_pieces ? " " + piece : piece) : "";
    if (v.types[id] == TokenType::user_defined && rules.keep_user_defined) return piece;
    if (rules.byte_tokens) {
      const int byte = byte_of_piece(piece);
      if (byte >= 0 && v.types[id] == TokenType::byte) return std::string(1, static_cast<char>(byte));
    }
    if (rules.word_pieces) return decode_word_piece(rules, piece);
    std::string bytes;
    if (!rules.end_of_word.empty() && piece.ends_with(rules.end_of_word)) {
      const std::string_view word = std::string_view(piece).substr(0, piece.size() - rules.end_of_word.size());
      if (!unspell_bytes(word, bytes)) bytes = word;
      return bytes += ' ';
    }
    if (rules.byte_level) {
      if (!unspell_bytes(piece, bytes)) bytes = piece;
      return bytes;
    }
    bytes = piece;
    for (const DecodeStep& step : rules.steps)
      bytes = std::visit([&](const auto& s) { return decode_step(s, bytes); }, step);
    return bytes;
  }

  std::string decode(const std::vector<TokenId>& ids, bool special) const override {
    std::string bytes;
    bool at_start = true;
    for (const TokenId id : ids) {
      std::string one = token_bytes(id, special);
      if (one.empty()) continue;
      if (at_start && parts_.decode.drop_prefix_space && one.front() == ' ') one.erase(0, 1);
      // Leading control tokens shown as text do not end the prefix-space rule: the text begins after them.
      at_start =
          at_start && !parts_.decode.word_pieces && !parts_.decode.separated && parts_.vocabulary->is_special(id);
      bytes += one;
    }
    const bool drops_space = !parts_.decode.end_of_word.empty() || parts_.decode.drop_suffix_space;
    if (drops_space && bytes.ends_with(' ')) bytes.pop_back();
    return repair_utf8(bytes);
  }

  int64_t vocab_size() const override { return parts_.vocabulary->size(); }
  TokenId bos() const override { return parts_.bos; }
  bool adds_bos() const override {
    return parts_.bos >= 0 && !parts_.prefix.empty() && parts_.prefix.front() == parts_.bos;
  }
  const std::vector<TokenId>& prefix() const override { return parts_.prefix; }
  const std::vector<TokenId>& suffix() const override { return parts_.suffix; }
  const PairTemplate& pair() const override { return parts_.pair; }
  TokenId pad() const override { return parts_.pad; }
  int64_t max_tokens() const override { return parts_.max_tokens; }
  const std::vector<TokenId>& stop_tokens() const override { return parts_.stop_tokens; }
  std::string piece(TokenId id) const override {
    return parts_.vocabulary->has(id) ? parts_.vocabulary->pieces[id] : "";
  }
  TokenId find(std::string_view piece) const override { return parts_.vocabulary->find(piece); }
  std::string_view kind() const override { return parts_.kind; }
  std::string_view pre_tokenizer() const override { return parts_.pre_tokenizer_name; }
  bool is_special(TokenId id) const override { return parts_.vocabulary->is_special(id); }
  bool drops_prefix_space() const override { return parts_.decode.drop_prefix_space; }

 private:
  /// Encodes a piece of a byte-level vocabulary. The model reads its bytes spelled in the byte alphabet.
  void encode_bytes(std::string_view piece, EncodeWork& work, std::vector<TokenId>& ids) const {
    thread_local std::string spelled;
    spelled.clear();
    for (const char byte : piece) append_byte_spelling(spelled, static_cast<uint8_t>(byte));
    parts_.model->encode(spelled, work, ids);
    constexpr size_t kKept = size_t{1} << 18;
    if (spelled.capacity() > kKept) spelled = {};
  }

  /// Calls visit(piece) for all pieces of well-formed text until it returns false. Returns false if the expression
  /// leaves a gap, which the expressions of published tokenizers do not.
  template <class Visit>
  bool scan(std::string_view text, const Visit& visit) const {
    const char* const end = text.data() + text.size();
    for (size_t pos = 0; pos < text.size();) {
      size_t bytes = scanner_->match(text.data() + pos, end);
      if (bytes == 0) bytes = regex_->match_at(text, pos) - pos;
      if (bytes == 0) return false;
      if (!visit(text.substr(pos, bytes))) return true;
      pos += bytes;
    }
    return true;
  }

  /// Encodes a long text for a byte-level vocabulary, with a cache of pieces.
  void encode_long(std::string_view text, EncodeWork& work, std::vector<TokenId>& ids) const {
    PieceCache& cache = PieceCache::of_thread(owner_);
    const size_t before = ids.size();
    constexpr size_t kBytesPerToken = 4, kMaxReserved = size_t{1} << 20;
    ids.reserve(before + std::min(text.size() / kBytesPerToken, kMaxReserved));
    const char* const end = text.data() + text.size();
    const auto add = [&](std::string_view piece) {
      const auto encode = [&](std::string_view p) { encode_bytes(p, work, ids); };
      if (piece.size() > PieceCache::kMaxBytes) encode(piece);
      else cache.append(piece, end, ids, encode);
      return work.add(piece.size()) && work.has_room(ids.size());
    };
    if (scanner_ && is_utf8(text)) {
      if (scan(text, add)) return;
      ids.resize(before);
    }
    parts_.pre_tokenizer.split(text, work, add);
  }

  void encode_plain(std::string_view text, bool at_start, EncodeWork& work, std::vector<TokenId>& ids) const {
    if (splits_bytes_ && text.size() >= PieceCache::kWorthBytes) return encode_long(text, work, ids);
    parts_.pre_tokenizer.apply(text, at_start, work, [&](std::string_view piece) {
      parts_.model->encode(piece, work, ids);
      return work.has_room(ids.size()) && !work.is_cancelled();
    });
  }

  /// Returns the maximum number of bytes of text that one token can stand for; 0: there is no limit. The model's tokens
  /// have a maximum, and the steps before the model may shorten the text.
  static int64_t max_token_bytes_of(const TokenizerParts& parts) {
    if (!parts.pre_tokenizer.keeps_text() || parts.added_before.strips() || parts.added_after.strips()) return 0;
    return parts.normalizer.max_shrink() * parts.model->max_token_bytes(parts.decode.byte_level);
  }

  TokenizerParts parts_;
  const bool splits_bytes_;
  const Regex* const regex_;  ///< the only expression of parts_.pre_tokenizer, or nullptr
  std::optional<PieceScanner> scanner_;
  const uint64_t owner_ = PieceCache::next_owner();
  const int64_t max_token_bytes_ = max_token_bytes_of(parts_);
};

}  // namespace

void EncodeWork::end_slices() {
  for (; pending_ >= kSliceBytes && !is_cancelled_; pending_ -= kSliceBytes)
    is_cancelled_ = on_slice_ && !on_slice_(static_cast<int64_t>(kSliceBytes));
}

bool is_known_stop(std::string_view piece) {
  return std::find(std::begin(kStopNames), std::end(kStopNames), piece) != std::end(kStopNames);
}

void TokenizerParts::add_stop(TokenId id) {
  if (vocabulary->has(id) && std::find(stop_tokens.begin(), stop_tokens.end(), id) == stop_tokens.end())
    stop_tokens.push_back(id);
}

void TokenizerParts::add_known_stops() {
  for (const std::string_view name : kStopNames) {
    const TokenId id = vocabulary->find(name);
    if (vocabulary->is_special(id)) add_stop(id);
  }
  // In harmony-style vocabularies <|end|> ends a message, not the turn; in Gemma 4, </s> is an ordinary tag.
  const auto stops = [&](std::string_view name) {
    const TokenId id = vocabulary->find(name);
    return id >= 0 && std::find(stop_tokens.begin(), stop_tokens.end(), id) != stop_tokens.end();
  };
  const bool calls = stops("<|call|>") || stops("<|calls|>");
  if (calls && (stops("<|return|>") || stops("<|flush|>"))) std::erase(stop_tokens, vocabulary->find("<|end|>"));
  if (stops("<|tool_response>")) std::erase(stop_tokens, vocabulary->find("</s>"));
}

std::unique_ptr<Tokenizer> make_tokenizer(TokenizerParts parts) {
  std::sort(parts.stop_tokens.begin(), parts.stop_tokens.end());
  return std::make_unique<PipelineTokenizer>(std::move(parts));
}

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, bool at_start, bool special)
    : tokenizer_(&tokenizer), at_start_(at_start), special_(special) {}

std::string StreamDecoder::push(TokenId id) {
  std::string bytes = tokenizer_->token_bytes(id, special_);
  if (bytes.empty()) return "";
  if (at_start_ && tokenizer_->drops_prefix_space() && bytes.front() == ' ') bytes.erase(0, 1);
  at_start_ = false;
  pending_ += bytes;
  const size_t held = incomplete_utf8_tail(pending_);
  std::string text = repair_utf8(std::string_view(pending_).substr(0, pending_.size() - held));
  pending_.erase(0, pending_.size() - held);
  return text;
}

std::string StreamDecoder::finish() {
  std::string text = repair_utf8(pending_);
  pending_.clear();
  return text;
}

}  // namespace redline
