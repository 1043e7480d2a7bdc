#include "text/rwkv.h"

#include <algorithm>
#include <charconv>

#include "base/ascii.h"
#include "text/unicode.h"

namespace redline {
namespace {

constexpr int64_t kMaxRwkvTokens = int64_t{1} << 24;
constexpr const char* kEndOfText = "<|endoftext|>";

/// Returns the value of `digits` hexadecimal digits at `pos`, or -1 if they are not there.
int64_t hex_at(std::string_view text, size_t pos, size_t digits) {
  if (pos + digits > text.size()) return -1;
  int64_t value = 0;
  for (const char c : text.substr(pos, digits)) {
    const int digit = hex_digit(c);
    if (digit < 0) return -1;
    value = value * 16 + digit;
  }
  return value;
}

}  // namespace

Result<std::unique_ptr<TokenModel>> LongestMatchModel::make(const Vocabulary& vocabulary, TokenId unk) {
  std::unique_ptr<LongestMatchModel> model(new LongestMatchModel(unk));
  int64_t single_bytes = 0;
  for (TokenId id = 0; id < vocabulary.size(); ++id) {
    const std::string& piece = vocabulary.pieces[static_cast<size_t>(id)];
    if (piece.empty() || !vocabulary.is_plain(id) || vocabulary.types[static_cast<size_t>(id)] == TokenType::unused)
      continue;
    REDLINE_TRY(model->tokens_.insert(piece, id).within(fmt::format("token {}", id)));
    model->max_bytes_ = std::max(model->max_bytes_, piece.size());
    single_bytes += vocabulary.find(piece) == id && piece.size() == 1 ? 1 : 0;
  }
  constexpr int64_t kNumBytes = 256;
  model->has_bytes_ = single_bytes == kNumBytes;
  return std::unique_ptr<TokenModel>(std::move(model));
}

int64_t LongestMatchModel::max_token_bytes(bool) const {
  return has_bytes_ || unk_ >= 0 ? static_cast<int64_t>(max_bytes_) : 0;
}

void LongestMatchModel::encode(std::string_view piece, EncodeWork& work, std::vector<TokenId>& ids) const {
  for (size_t pos = 0, last = 0; pos < piece.size(); last = pos) {
    const PrefixMatcher::Match match = tokens_.longest_at(piece, pos);
    if (match.value >= 0) ids.push_back(match.value);
    else if (unk_ >= 0) ids.push_back(unk_);
    pos += std::max<size_t>(match.bytes, 1);
    if (!work.add(pos - last) || !work.has_room(ids.size())) return;
  }
}

Status fill_rwkv(TokenizerParts& parts, TokenId unk) {
  parts.kind = "rwkv";
  REDLINE_ASSIGN(parts.model, LongestMatchModel::make(*parts.vocabulary, unk));
  return {};
}

Result<std::string> parse_python_literal(std::string_view text) {
  const auto bad = [&](const char* why) { return invalid_argument("the literal {} {}", text, why); };
  const bool is_bytes = text.starts_with('b');
  std::string_view body = text.substr(is_bytes ? 1 : 0);
  if (body.size() < 2 || (body.front() != '\'' && body.front() != '"') || body.back() != body.front())
    return bad("is not between quotes");
  body = body.substr(1, body.size() - 2);
  std::string out;
  for (size_t pos = 0; pos < body.size(); ++pos) {
    if (body[pos] != '\\') {
      out += body[pos];
      continue;
    }
    if (++pos == body.size()) return bad("ends in a backslash");
    constexpr std::string_view kNames = "ntrabfv\\'\"", kValues = "\n\t\r\a\b\f\v\\'\"";
    const char name = body[pos];
    if (const size_t at = kNames.find(name); at != std::string_view::npos) {
      out += kValues[at];
      continue;
    }
    const size_t digits = name == 'x' ? 2 : is_bytes ? 0 : name == 'u' ? 4 : name == 'U' ? 8 : 0;
    const int64_t value = digits > 0 ? hex_at(body, pos + 1, digits) : -1;
    constexpr int64_t kMaxCodePoint = 0x10FFFF;
    if (value < 0 || value > kMaxCodePoint) return bad("has an escape that is not known");
    if (is_bytes) out += static_cast<char>(value);
    else append_utf8(out, static_cast<uint32_t>(value));
    pos += digits;
  }
  return out;
}

std::string unescape_rwkv_token(std::string_view text) {
  std::string out;
  for (size_t pos = 0; pos < text.size(); ++pos) {
    if (text[pos] != '\\' || pos + 1 == text.size()) {
      out += text[pos];
      continue;
    }
    const char name = text[++pos];
    const int64_t byte = name == 'x' ? hex_at(text, pos + 1, 2) : -1;
    if (byte >= 0) pos += 2;
    out += byte >= 0 ? static_cast<char>(byte) : name == 'n' ? '\n' : name == 't' ? '\t' : name == 'r' ? '\r' : name;
  }
  return out;
}

Result<std::unique_ptr<Tokenizer>> tokenizer_from_rwkv_vocab(std::string_view text, const HfConfig& config) {
  TokenizerParts parts;
  Vocabulary& v = *parts.vocabulary;
  v.pieces.emplace_back(config.eos_token.empty() ? kEndOfText : config.eos_token);
  // Ids have no large gaps: a file of one line must not make a vocabulary of millions.
  const int64_t max_id = std::min(kMaxRwkvTokens - 1, std::ssize(text));
  for (int64_t number = 1; !text.empty(); ++number) {
    const size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    const size_t first = line.find(' '), last = line.rfind(' ');
    int64_t id = -1, bytes = -1;
    if (first == std::string_view::npos || last <= first)
      return invalid_argument("line {}: expected an id, a literal and a length", number);
    std::from_chars(line.data(), line.data() + first, id);
    std::from_chars(line.data() + last + 1, line.data() + line.size(), bytes);
    if (id < 1 || id > max_id) return invalid_argument("line {}: token {} is outside [1, {}]", number, id, max_id);
    REDLINE_ASSIGN(
        std::string piece,
        parse_python_literal(line.substr(first + 1, last - first - 1)).within(fmt::format("line {}", number)));
    if (std::ssize(piece) != bytes)
      return invalid_argument("line {}: token {} has {} bytes, the line says {}", number, id, piece.size(), bytes);
    if (v.size() <= id) v.pieces.resize(static_cast<size_t>(id) + 1);
    v.pieces[static_cast<size_t>(id)] = std::move(piece);
  }
  v.build_index();
  v.types[0] = TokenType::control;
  AddedToken ends;
  ends.id = 0;
  ends.content = v.pieces[0];
  ends.special = true;
  REDLINE_TRY(parts.added_before.add(std::move(ends)));
  REDLINE_TRY(fill_rwkv(parts, -1));
  parts.pre_tokenizer_name = "rwkv";
  parts.max_tokens = config.max_tokens;
  parts.add_stop(0);
  for (const int64_t id : config.stop_ids)
    if (id >= 0 && id < v.size()) parts.add_stop(static_cast<TokenId>(id));
  return make_tokenizer(std::move(parts));
}

}  // namespace redline
