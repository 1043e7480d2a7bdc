#include "redline/prompt.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/hash.h"

namespace redline {
namespace {

constexpr int32_t kMaxRelativePosition = 1 << 24;

bool are_finite(const float* values, int64_t count) {
  size_t broken = 0;  // a sum and no early exit: the loop is vectorized
  for (int64_t i = 0; i < count; ++i) broken += std::abs(values[i]) <= std::numeric_limits<float>::max() ? 0 : 1;
  return broken == 0;
}

Status check_rows(const EmbeddingRows& r) {
  if (r.rows < 1 || r.hidden_size < 1)
    return invalid_argument("embeddings of {} rows of {} numbers; both must be at least 1", r.rows, r.hidden_size);
  if (!r.values) return invalid_argument("embeddings: {} rows, and no values", r.rows);
  if (r.placeholder < 0) return invalid_argument("embeddings: placeholder {} is not a token", r.placeholder);
  if (r.media_offset < 0) return invalid_argument("embeddings: media_offset {} must not be negative", r.media_offset);
  if (r.axes < 1 || r.axes > Prompt::kMaxAxes)
    return invalid_argument("embeddings: positions on {} axes; 1 to {} are allowed", r.axes, Prompt::kMaxAxes);
  if (!r.positions.empty() && std::ssize(r.positions) != r.rows * r.axes)
    return invalid_argument("embeddings: {} positions; {} rows on {} axes need {}", r.positions.size(), r.rows, r.axes,
                            r.rows * r.axes);
  for (const int32_t position : r.positions)
    if (position < 0 || position > kMaxRelativePosition)
      return invalid_argument("embeddings: position {} is outside [0, {}]; positions count from where the rows begin",
                              position, kMaxRelativePosition);
  if (!are_finite(r.values.get(), r.rows * r.hidden_size))
    return invalid_argument("embeddings: a value is NaN or infinite");
  for (const auto& rows : r.layer_rows) {
    if (!rows) return invalid_argument("embeddings: layer_rows without values");
    if (!are_finite(rows.get(), r.rows * r.hidden_size))
      return invalid_argument("embeddings: a value of layer_rows is NaN or infinite");
  }
  return {};
}

uint64_t hash_of_values(const EmbeddingRows& r) {
  const auto bytes = static_cast<size_t>(r.rows * r.hidden_size) * sizeof(float);
  uint64_t hash = hash_bytes(static_cast<uint64_t>(r.hidden_size), r.values.get(), bytes);
  for (const auto& rows : r.layer_rows) hash = hash_bytes(hash, rows.get(), bytes);
  return hash;
}

/// The key of a row depends on its relative positions, because the state does. Absolute positions follow from the keys
/// of all places before it.
ContentKey key_of(const EmbeddingRows& r, int64_t row) {
  const uint64_t index = static_cast<uint64_t>(r.media_offset) + static_cast<uint64_t>(row);
  // The hash of the media is mixed first, so that media with neighbouring hashes have no keys in common.
  uint64_t hash = hash_word(hash_word(uint64_t{0}, r.media_hash), index);
  hash = hash_word(hash, r.layer_rows.size());
  if (!r.positions.empty()) {
    hash = hash_word(hash, static_cast<uint64_t>(row));  // positions count from where these rows begin
    for (int64_t axis = 0; axis < r.axes; ++axis)
      hash = hash_word(hash, static_cast<uint64_t>(r.positions[static_cast<size_t>(row * r.axes + axis)]) + 1);
  }
  return hash | kMediaKeyBit;
}

}  // namespace

EmbeddingRows EmbeddingRows::of(std::vector<float> values, int64_t hidden_size) {
  EmbeddingRows r;
  // Values that are no whole rows make no rows, which Prompt::append() refuses.
  r.rows = hidden_size > 0 && std::ssize(values) % hidden_size == 0 ? std::ssize(values) / hidden_size : 0;
  r.hidden_size = hidden_size;
  const auto owner = std::make_shared<const std::vector<float>>(std::move(values));
  r.values = std::shared_ptr<const float>(owner, owner->data());
  return r;
}

Prompt::Prompt(std::vector<int32_t> tokens) : tokens_(std::move(tokens)) {
  keys_.reserve(tokens_.size());
  for (const int32_t token : tokens_) keys_.push_back(token_key(token));
}

Prompt::Prompt(std::initializer_list<int32_t> tokens) : Prompt(std::vector<int32_t>(tokens)) {}

void Prompt::push_back(int32_t token) {
  tokens_.push_back(token);
  keys_.push_back(token_key(token));
}

void Prompt::append(std::span<const int32_t> tokens) {
  const std::vector<int32_t> more(tokens.begin(), tokens.end());  // they may be those of this prompt
  const size_t size = keys_.size() + more.size();
  // Room for the keys first: if it is lacking, nothing has changed.
  if (size > keys_.capacity()) keys_.reserve(std::max(size, 2 * keys_.capacity()));
  tokens_.insert(tokens_.end(), more.begin(), more.end());
  for (const int32_t token : more) keys_.push_back(token_key(token));
}

Status Prompt::append(EmbeddingRows rows) {
  REDLINE_TRY(check_rows(rows));
  auto placed = std::make_shared<Rows>();
  static_cast<EmbeddingRows&>(*placed) = std::move(rows);
  Rows& r = *placed;
  if (r.media_hash == 0) r.media_hash = hash_of_values(r);
  for (int64_t row = 0; row < r.rows; ++row) r.keys.push_back(key_of(r, row));
  int32_t largest = 0;
  for (size_t i = 0; i < r.positions.size(); ++i) {
    largest = std::max(largest, r.positions[i]);
    if ((i + 1) % static_cast<size_t>(r.axes) == 0) r.after.push_back(largest + 1);
  }
  const int64_t count = r.rows;
  add(std::move(placed), count);
  return {};
}

void Prompt::add(std::shared_ptr<const Rows> rows, int64_t count) {
  const auto begin = static_cast<int64_t>(size());
  tokens_.insert(tokens_.end(), static_cast<size_t>(count), rows->placeholder);
  keys_.insert(keys_.end(), rows->keys.begin(), rows->keys.begin() + count);
  const int64_t first_position =
      media_.empty()
          ? begin
          : media_.back().position_after(media_.back().end - media_.back().begin) + begin - media_.back().end;
  media_.push_back({begin, begin + count, first_position, std::move(rows)});
}

void Prompt::append_prompt(const Prompt& more) {
  const Prompt other = more;  // it may be this prompt
  int64_t place = 0;
  const auto tokens = std::span<const int32_t>(other.tokens_);
  for (const Media& media : other.media_) {
    append(tokens.subspan(static_cast<size_t>(place), static_cast<size_t>(media.begin - place)));
    add(media.rows, media.end - media.begin);
    place = media.end;
  }
  append(tokens.subspan(static_cast<size_t>(place)));
}

void Prompt::truncate(size_t size) {
  if (size >= this->size()) return;
  tokens_.resize(size);
  keys_.resize(size);
  const auto end = static_cast<int64_t>(size);
  while (!media_.empty() && media_.back().begin >= end) media_.pop_back();
  if (!media_.empty()) media_.back().end = std::min(media_.back().end, end);
}

int64_t Prompt::Media::position_after(int64_t count) const {
  if (count == 0 || rows->after.empty()) return first_position + count;
  return first_position + rows->after[static_cast<size_t>(count - 1)];
}

const PromptView::Media* PromptView::media_at(int64_t prompt_place) const {
  if (media_ == nullptr) return nullptr;
  const auto next = std::upper_bound(media_->begin(), media_->end(), prompt_place,
                                     [](int64_t place, const Media& media) { return place < media.begin; });
  return next == media_->begin() ? nullptr : &*std::prev(next);
}

PromptView PromptView::subview(size_t begin, size_t count) const {
  PromptView part = *this;
  part.tokens_ = tokens_.subspan(begin, count);
  part.begin_ += static_cast<int64_t>(begin);
  return part;
}

ContentKey PromptView::key(size_t place) const {
  const int64_t at = begin_ + static_cast<int64_t>(place);
  const Media* media = media_at(at);
  if (media == nullptr || at >= media->end) return token_key(tokens_[place]);
  return media->rows->keys[static_cast<size_t>(at - media->begin)];
}

bool operator==(const PromptView& a, const PromptView& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i)
    if (a.key(i) != b.key(i)) return false;
  return true;
}

int64_t PromptView::position(size_t place, int64_t axis) const {
  const int64_t at = begin_ + static_cast<int64_t>(place);
  const Media* media = media_at(at);
  if (media == nullptr || at >= media->end || media->rows->positions.empty()) return position_after(place);
  const int64_t row = at - media->begin;
  return media->first_position + media->rows->positions[static_cast<size_t>(row * media->rows->axes + axis)];
}

int64_t PromptView::position_after(size_t count) const {
  const int64_t at = begin_ + static_cast<int64_t>(count);
  const Media* media = media_at(at - 1);
  if (media == nullptr) return at;
  if (at <= media->end) return media->position_after(at - media->begin);
  return media->position_after(media->end - media->begin) + at - media->end;
}

void PromptView::copy_positions(int64_t axes, int64_t origin, int32_t* out) const {
  if (!has_positions()) {
    const int64_t first = empty() ? 0 : origin + position_after(0);
    for (int64_t i = 0; i < std::ssize(tokens_); ++i)
      for (int64_t axis = 0; axis < axes; ++axis) *out++ = static_cast<int32_t>(first + i);
    return;
  }
  for (size_t i = 0; i < size(); ++i)
    for (int64_t axis = 0; axis < axes; ++axis) *out++ = static_cast<int32_t>(origin + position(i, axis));
}

std::vector<PromptView::RowSpan> PromptView::row_spans() const {
  std::vector<RowSpan> spans;
  if (media_ == nullptr) return spans;
  const int64_t view_end = begin_ + std::ssize(tokens_);
  for (const Media& media : *media_) {
    const int64_t begin = std::max(media.begin, begin_), end = std::min(media.end, view_end);
    if (begin < end)
      spans.push_back({static_cast<size_t>(begin - begin_), begin - media.begin, end - begin, media.rows.get()});
  }
  return spans;
}

int64_t PromptView::num_rows() const {
  int64_t count = 0;
  for (const RowSpan& span : row_spans()) count += span.count;
  return count;
}

bool PromptView::has_positions() const {
  if (media_ == nullptr) return false;
  const std::vector<RowSpan> spans = row_spans();
  return std::any_of(spans.begin(), spans.end(), [](const RowSpan& span) { return !span.rows->positions.empty(); });
}

}  // namespace redline
