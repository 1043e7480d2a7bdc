#include "text/unigram.h"

#include <algorithm>

#include "text/unicode.h"

namespace redline {
namespace {

constexpr double kUnknownPenalty = 10;
// A step of the best path has two parts: the bytes of its piece (kBytes), and a flag that the piece is an unknown
// character (kUnknown).
constexpr uint16_t kUnknown = 0x8000, kBytes = 0x7FFF;
static_assert(PrefixMatcher::kMaxBytes <= kBytes);

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
    model->max_bytes_ = std::max(model->max_bytes_, vocabulary.pieces[i].size());
  }
  return std::unique_ptr<TokenModel>(std::move(model));
}

TokenId UnigramModel::token_of(std::string_view text) const {
  TokenId id = -1;
  pieces_.for_each_at(text, 0, [&](PrefixMatcher::Match match) {
    if (match.bytes == text.size()) id = match.value;
  });
  return id;
}

// Two bytes for each byte of the text: the best path may be undecided up to the end of the text (a run of one letter),
// so its steps are kept for the whole text. Scores are kept only as far back as a piece reaches.
void UnigramModel::encode(std::string_view text, EncodeWork& work, std::vector<TokenId>& ids) const {
  constexpr size_t kMaxCharBytes = 4;
  size_t ring = 8;
  while (ring <= std::max(max_bytes_, kMaxCharBytes)) ring *= 2;
  thread_local std::vector<double> scores;   // score of the best path to each position, modulo the size of the ring
  thread_local std::vector<uint16_t> steps;  // the last step of the best path to a position; 0: none yet
  scores.assign(ring, 0);
  steps.assign(text.size() + 1, 0);
  const auto offer = [&](size_t from, size_t to, double score, bool is_unknown) {
    const double before = scores[from & (ring - 1)];
    const double sum = options_.float_sums ? static_cast<float>(score) + static_cast<float>(before) : score + before;
    double& best = scores[to & (ring - 1)];
    if (steps[to] != 0 && sum <= best) return;
    best = sum;
    steps[to] = static_cast<uint16_t>((to - from) | (is_unknown ? kUnknown : 0));
  };
  for (size_t pos = 0; pos < text.size();) {
    const size_t char_bytes = utf8_at(text, pos).bytes;
    if (!work.add(char_bytes)) return;
    bool char_known = false;
    pieces_.for_each_at(text, pos, [&](PrefixMatcher::Match match) {
      offer(pos, pos + match.bytes, scores_[static_cast<size_t>(match.value)], false);
      char_known = char_known || match.bytes == char_bytes;
    });
    if (!char_known) offer(pos, pos + char_bytes, options_.min_score - kUnknownPenalty, true);
    pos += char_bytes;
  }
  // Reverses the best path, so that each of its positions has the step that begins there.
  uint16_t step = steps[text.size()];
  for (size_t end = text.size(); end > 0;) {
    const size_t begin = end - (step & kBytes);
    std::swap(step, steps[begin]);
    end = begin;
  }
  for (size_t pos = 0; pos < text.size() && work.has_room(ids.size());) {
    const size_t begin = pos;
    if ((steps[pos] & kUnknown) == 0) {
      pos += steps[pos];
      ids.push_back(token_of(text.substr(begin, pos - begin)));
      continue;
    }
    while (pos < text.size() && (steps[pos] & kUnknown) != 0) pos += steps[pos] & kBytes;
    put_unknown(text.substr(begin, pos - begin), ids);
  }
  constexpr size_t kKept = size_t{1} << 18;
  if (steps.capacity() > kKept) steps = {};
}

int64_t UnigramModel::max_token_bytes(bool) const {
  constexpr size_t kMaxCharBytes = 4;
  const bool has_bytes =
      options_.byte_fallback && std::all_of(byte_ids_.begin(), byte_ids_.end(), [](TokenId id) { return id >= 0; });
  return has_bytes ? static_cast<int64_t>(std::max(max_bytes_, kMaxCharBytes)) : 0;
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
