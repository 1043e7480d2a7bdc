// A prompt: tokens, and rows of embeddings that an image or audio encoder has computed. Lists of tokens convert to it.
//
//   redline::Prompt prompt = *engine->encode("Describe this image: ");
//   auto rows = redline::EmbeddingRows::of(std::move(values), engine->info().hidden_size);
//   if (redline::Status status = prompt.append(std::move(rows)); !status.ok()) return fail(status);
//   prompt.append(*engine->encode("\nAnswer:", false, false));
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <vector>

#include "redline/status.h"

namespace redline {

/// Identifies the content of one place of a prompt: a token id, or, with the highest bit set, a hash of a media and a
/// row. States of equal keys after equal keys are equal, so caches compare keys and nothing else. No media has the key
/// of a token. Places of different media have different keys, up to collisions of a hash of 63 bits.
using ContentKey = uint64_t;
inline constexpr ContentKey kMediaKeyBit = ContentKey{1} << 63;
inline constexpr ContentKey token_key(int32_t token) { return static_cast<uint32_t>(token); }
inline constexpr bool is_token_key(ContentKey key) { return (key & kMediaKeyBit) == 0; }

/// Rows of embeddings of an image, a sound or a video, or of a part of one. They take the place of token embeddings:
/// the first layer reads them (after a factor of the embeddings, before learned positions are added).
struct EmbeddingRows {
  std::shared_ptr<const float> values;  ///< [rows, hidden_size], dense and finite
  int64_t rows = 0, hidden_size = 0;
  /// Hash of the contents of the media that `values` were computed from. 0: a hash of `values` and `layer_rows`, which
  /// is fast and not secure: if clients must not learn of each other's media, give the first 64 bits of a cryptographic
  /// hash, or separate them by GenerateRequest::cache_salt.
  uint64_t media_hash = 0;
  int64_t media_offset = 0;  ///< index in the media of the first row
  int32_t placeholder = 0;   ///< token id that stands for the rows in Prompt::tokens()
  /// Positions by axis, [rows, axes], relative to the position at which the rows begin: time, height and width of an
  /// image in M-RoPE (Qwen2-VL, arXiv:2409.12191). The next token comes after the largest of them. Empty: the rows
  /// follow one another like tokens, on all axes.
  std::vector<int32_t> positions = {};
  int64_t axes = 1;
  /// Rows [rows, hidden_size] that are added to the hidden states after the layers for which the model has such an
  /// input, in order (DeepStack of Qwen3-VL, arXiv:2406.04334). Empty: nothing is added.
  std::vector<std::shared_ptr<const float>> layer_rows = {};

  /// Takes `values`, whole rows of `hidden_size`.
  static EmbeddingRows of(std::vector<float> values, int64_t hidden_size);
};

class PromptView;

/// Spans of tokens and of embedding rows, in order. A place of the prompt is a token or a row. Each place has a content
/// key and a position on every axis. Positions of tokens are consecutive, and the same on all axes. Copies share the
/// rows.
class Prompt {
 public:
  Prompt() = default;
  Prompt(std::vector<int32_t> tokens);  // NOLINT(google-explicit-constructor): a list converts
  Prompt(std::initializer_list<int32_t> tokens);
  explicit Prompt(std::span<const int32_t> tokens) { append(tokens); }

  void push_back(int32_t token);
  void append(std::span<const int32_t> tokens);
  /// invalid_argument: no rows, a hidden_size below 1, a value that is not finite, a negative placeholder or offset,
  /// positions that are not `axes` numbers per row, are negative or larger than 2^24, or axes outside [1, kMaxAxes].
  Status append(EmbeddingRows rows);
  void append_prompt(const Prompt& more);
  /// Drops the places from `size` on.
  void truncate(size_t size);

  static constexpr int64_t kMaxAxes = 4;
  size_t size() const { return tokens_.size(); }
  bool empty() const { return tokens_.empty(); }
  /// Returns a token for each place: rows have their placeholder.
  const std::vector<int32_t>& tokens() const { return tokens_; }
  std::span<const ContentKey> keys() const { return keys_; }
  bool has_embeddings() const { return !media_.empty(); }
  /// Prompts are equal if their keys are.
  friend bool operator==(const Prompt& a, const Prompt& b) { return a.keys_ == b.keys_; }

 private:
  friend class PromptView;
  /// EmbeddingRows with their keys.
  struct Rows : EmbeddingRows {
    std::vector<ContentKey> keys;
    /// [rows]: relative position of a token after each row; empty if `positions` is empty
    std::vector<int32_t> after;
  };
  /// The places [begin, end) of the prompt, which have the first rows of `rows`.
  struct Media {
    int64_t begin, end;
    int64_t first_position;
    std::shared_ptr<const Rows> rows;
    /// Returns the position of a token after `count` of the rows.
    int64_t position_after(int64_t count) const;
  };
  void add(std::shared_ptr<const Rows> rows, int64_t count);

  std::vector<int32_t> tokens_;
  std::vector<ContentKey> keys_;
  std::vector<Media> media_;  ///< in order
};

/// A part of a prompt, or a list of tokens. It refers to the prompt, which must outlive it and not change.
class PromptView {
 public:
  PromptView() = default;
  PromptView(const Prompt& prompt) : tokens_(prompt.tokens_) {  // NOLINT(google-explicit-constructor)
    if (!prompt.media_.empty()) media_ = &prompt.media_;
  }
  /// Tokens alone: a vector, an array or a span.
  template <class Tokens>
  requires std::convertible_to<const Tokens&, std::span<const int32_t>> PromptView(const Tokens& tokens)
      : tokens_(tokens) {}  // NOLINT(google-explicit-constructor)
  PromptView(const int32_t* tokens, size_t count) : tokens_(tokens, count) {}

  size_t size() const { return tokens_.size(); }
  bool empty() const { return tokens_.empty(); }
  /// Returns the `count` places from `begin` on.
  PromptView subview(size_t begin, size_t count) const;
  std::span<const int32_t> tokens() const { return tokens_; }
  ContentKey key(size_t place) const;
  friend bool operator==(const PromptView& a, const PromptView& b);

  /// Returns the position on an axis of a place of the view, counted from the beginning of the whole prompt.
  int64_t position(size_t place, int64_t axis = 0) const;
  /// Returns the position of a token after the first `count` places; with 0, that at which the view begins.
  int64_t position_after(size_t count) const;
  /// Writes the positions of all places, plus `origin`: [size, axes].
  void copy_positions(int64_t axes, int64_t origin, int32_t* out) const;

  /// A span of rows in the view: `count` rows of `rows` from `first_row` on, at the places from `place` on.
  struct RowSpan {
    size_t place;
    int64_t first_row, count;
    const EmbeddingRows* rows;
  };
  std::vector<RowSpan> row_spans() const;
  int64_t num_rows() const;
  /// Returns true if some of the rows have positions of their own.
  bool has_positions() const;

 private:
  using Media = Prompt::Media;
  /// Returns the media that has the place of the prompt, or the last one before it; nullptr: there is none.
  const Media* media_at(int64_t prompt_place) const;

  std::span<const int32_t> tokens_;
  int64_t begin_ = 0;                          ///< place of the prompt that is the first of the view
  const std::vector<Media>* media_ = nullptr;  ///< nullptr: tokens only
};

}  // namespace redline
