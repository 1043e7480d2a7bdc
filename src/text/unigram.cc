#include "text/unigram.h"

#include <algorithm>

#include "text/unicode.h"

namespace redline {
namespace {

constexpr double kUnknownPenalty = 10;
// Memory is one node per byte; longer texts are split at a character boundary.
constexpr size_t kMaxChunkBytes = size_t{1} << 24;

}  // namespace

UnigramModel::UnigramModel(const Vocabulary& vocabulary, std::vector<double> scores, UnigramOptions options)
    : scores_(std::move(scores)), options_(options), byte_ids_(find_byte_tokens(vocabulary)) {}

Result<std::unique_ptr<TokenModel>> UnigramModel::make(const Vocabulary& vocabulary, std::vector<double> scores,
                                                       UnigramOptions options) {
  std::unique_ptr<UnigramModel> model(new UnigramModel(vocabulary, std::move(scores), options));
  const auto num = std::min(vocabulary.size(), static_cast<int64_t>(model->scores_.size()));
  for (TokenId id = 0; id < num; ++id) {
    const auto i = static_cast<size_t>(id);
    if (vocabulary.pieces[i].empty() || !vocabulary.is_plain(id) || vocabulary.types[i] == TokenType::unused) continue;
    REDLINE_TRY(model->pieces_.insert(vocabulary.pieces[i], id).within(fmt::format("token {}", id)));
  }
  return std::unique_ptr<TokenModel>(std::move(model));
}

void UnigramModel::encode(std::string_view piece, std::vector<TokenId>& ids) const {
  while (piece.size() > kMaxChunkBytes) {
    size_t cut = kMaxChunkBytes;
    while (cut > kMaxChunkBytes - 4 && (static_cast<uint8_t>(piece[cut]) & 0xC0) == 0x80) --cut;
    encode_chunk(piece.substr(0, cut), ids);
    piece.remove_prefix(cut);
  }
  if (!piece.empty()) encode_chunk(piece, ids);
}

void UnigramModel::encode_chunk(std::string_view text, std::vector<TokenId>& ids) const {
  struct Node {
    double score = 0;
    int64_t begin = -1;  ///< start of the piece that ends here on the best path
    TokenId id = -1;     ///< -1: unknown
  };
  thread_local std::vector<Node> nodes;
  nodes.assign(text.size() + 1, {});
  const auto offer = [&](size_t from, size_t to, double score, TokenId id) {
    const double sum = options_.float_sums ? static_cast<float>(score) + static_cast<float>(nodes[from].score)
                                           : score + nodes[from].score;
    Node& node = nodes[to];
    if (node.begin < 0 || sum > node.score) node = {sum, static_cast<int64_t>(from), id};
  };
  for (size_t pos = 0; pos < text.size();) {
    const size_t char_bytes = utf8_at(text, pos).bytes;
    bool char_known = false;
    pieces_.for_each_at(text, pos, [&](PrefixMatcher::Match match) {
      offer(pos, pos + match.bytes, scores_[static_cast<size_t>(match.value)], match.value);
      char_known = char_known || match.bytes == char_bytes;
    });
    if (!char_known) offer(pos, pos + char_bytes, options_.min_score - kUnknownPenalty, -1);
    pos += char_bytes;
  }
  struct Piece {
    size_t begin, end;
    TokenId id;
  };
  thread_local std::vector<Piece> pieces;  // last to first
  pieces.clear();
  for (size_t end = text.size(); end > 0;) {
    const auto begin = static_cast<size_t>(nodes[end].begin);
    if (nodes[end].id < 0 && !pieces.empty() && pieces.back().id < 0) pieces.back().begin = begin;
    else pieces.push_back({begin, end, nodes[end].id});
    end = begin;
  }
  for (auto piece = pieces.rbegin(); piece != pieces.rend(); ++piece) {
    if (piece->id >= 0) ids.push_back(piece->id);
    else put_unknown(text.substr(piece->begin, piece->end - piece->begin), ids);
  }
  constexpr size_t kKept = size_t{1} << 16;
  if (nodes.capacity() > kKept) nodes = {};
  if (pieces.capacity() > kKept) pieces = {};
}

void UnigramModel::put_unknown(std::string_view text, std::vector<TokenId>& ids) const {
  const auto byte_id = [&](char c) { return byte_ids_[static_cast<uint8_t>(c)]; };
  if (options_.byte_fallback && std::all_of(text.begin(), text.end(), [&](char c) { return byte_id(c) >= 0; })) {
    for (const char c : text) ids.push_back(byte_id(c));
  } else if (options_.unk >= 0) {
    ids.push_back(options_.unk);
  }
}

}  // namespace redline
