#include "text/bpe.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "text/unicode.h"

namespace redline {
namespace {

void add_symbol(std::vector<MergeSymbol>& symbols, size_t begin, size_t bytes, int32_t id, bool frozen = false) {
  const auto place = static_cast<int32_t>(symbols.size());
  if (place > 0) symbols.back().next = place;
  symbols.push_back({static_cast<uint32_t>(begin), static_cast<uint32_t>(bytes), place - 1, -1, id, frozen});
}

uint64_t pair_key(int32_t left, int32_t right) {
  return (static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32) | static_cast<uint32_t>(right);
}
size_t pair_slot(uint64_t pair, size_t mask) { return ((pair * 0x9E3779B97F4A7C15ull) >> 20) & mask; }

/// Merges the symbols of a piece, in windows if it has more bytes than one window has symbols. append: as for
/// merge_in_windows(); put(begin, bytes, id) appends the ids of a token.
template <class Append, class Choose, class Put>
void merge_piece(size_t size, size_t window, const Append& append, const Choose& choose, const Put& put,
                 EncodeWork& work, std::vector<TokenId>& ids) {
  const size_t before = ids.size();
  if (size > window) {
    const auto emit = [&](const MergedToken& token) {
      put(token.begin, token.bytes, token.id);
      return work.has_room(ids.size());
    };
    if (merge_in_windows(size, window, append, choose, emit, work)) return;
    ids.resize(before);
  }
  thread_local std::vector<MergeSymbol> symbols;
  symbols.clear();
  append(0, size, SIZE_MAX, symbols);
  if (!work.add(size) || symbols.empty()) return;
  merge_symbols(symbols, choose);
  for (int32_t i = 0; i >= 0; i = symbols[i].next) put(symbols[i].begin, symbols[i].bytes, symbols[i].id);
  constexpr size_t kKept = size_t{1} << 16;
  if (symbols.capacity() > kKept) symbols = {};
}

bool has_all(const std::array<TokenId, 256>& byte_ids) {
  return std::all_of(byte_ids.begin(), byte_ids.end(), [](TokenId id) { return id >= 0; });
}

}  // namespace

int64_t piece_bytes(std::string_view piece, bool spells_bytes) {
  const auto continues = [](char c) { return (static_cast<uint8_t>(c) & 0xC0) == 0x80; };
  return std::ssize(piece) - (spells_bytes ? std::count_if(piece.begin(), piece.end(), continues) : 0);
}

BpeModel::BpeModel(const Vocabulary& vocabulary, BpeOptions options)
    : vocabulary_(vocabulary), options_(std::move(options)), byte_ids_(find_byte_tokens(vocabulary)) {
  for (uint32_t c = 0; c < small_char_ids_.size(); ++c) {
    std::string text;
    append_utf8(text, c);
    const TokenId id = vocabulary.find(text);
    small_char_ids_[c] = vocabulary.is_plain(id) ? id : -1;
  }
}

int32_t BpeModel::intern(std::string_view text, uint64_t hash) {
  const TokenId id = vocabulary_.index.find(vocabulary_.pieces, text, hash);
  if (vocabulary_.is_plain(id)) return id;
  const int32_t known = extra_index_.find(extra_, text, hash);
  if (known >= 0) return static_cast<int32_t>(vocabulary_.size()) + known;
  extra_.emplace_back(text);
  extra_index_.insert(extra_, static_cast<TokenId>(extra_.size() - 1));
  return static_cast<int32_t>(vocabulary_.size() + static_cast<int64_t>(extra_.size()) - 1);
}

bool BpeModel::add_merge(int32_t left, int32_t right, uint32_t rank, int32_t id) {
  const uint64_t pair = pair_key(left, right);
  const size_t mask = merges_.size() - 1;
  size_t slot = pair_slot(pair, mask);
  for (; merges_[slot].id >= 0; slot = (slot + 1) & mask) {
    if (merges_[slot].pair == pair) return false;
  }
  merges_[slot] = {pair, rank, id};
  return true;
}

const BpeModel::Merge* BpeModel::find_merge(int32_t left, int32_t right) const {
  const uint64_t pair = pair_key(left, right);
  const size_t mask = merges_.size() - 1;
  for (size_t slot = pair_slot(pair, mask); merges_[slot].id >= 0; slot = (slot + 1) & mask) {
    if (merges_[slot].pair == pair) return &merges_[slot];
  }
  return nullptr;
}

Result<std::unique_ptr<TokenModel>> BpeModel::make(
    const Vocabulary& vocabulary, BpeOptions options,
    const std::vector<std::pair<std::string_view, std::string_view>>& merges) {
  std::unique_ptr<BpeModel> model(new BpeModel(vocabulary, std::move(options)));
  size_t slots = 64;
  while (slots < merges.size() * 2) slots *= 2;
  model->merges_.resize(slots);
  // Each merge needs three lookups in a vocabulary larger than the cache: process groups so that the cache misses
  // overlap.
  constexpr size_t kGroup = 16, kTexts = 3 * kGroup;
  std::string joined[kGroup];
  std::string_view texts[kTexts];
  uint64_t hashes[kTexts];
  int32_t ids[kTexts];
  const PieceIndex& index = vocabulary.index;
  for (size_t begin = 0; begin < merges.size(); begin += kGroup) {
    const size_t n = std::min(kGroup, merges.size() - begin);
    for (size_t i = 0; i < n; ++i) {
      const auto& [left, right] = merges[begin + i];
      if (left.empty() || right.empty())
        return invalid_argument("merge {} (\"{}\" \"{}\") has an empty side", begin + i, left, right);
      const std::string& prefix = model->options_.continuing_prefix;
      if (!right.starts_with(prefix))
        return invalid_argument("merge {} (\"{}\" \"{}\"): the right side does not begin with \"{}\"", begin + i, left,
                                right, prefix);
      joined[i].assign(left).append(right.substr(prefix.size()));
      texts[3 * i] = left;
      texts[3 * i + 1] = right;
      texts[3 * i + 2] = joined[i];
    }
    for (size_t t = 0; t < 3 * n; ++t) index.prefetch(hashes[t] = PieceIndex::hash(texts[t]));
    for (size_t t = 0; t < 3 * n; ++t) index.prefetch_piece(vocabulary.pieces, hashes[t]);
    // Interning in this order gives every text a single id, whether it is a token or not.
    for (size_t t = 0; t < 3 * n; ++t) {
      ids[t] = model->intern(texts[t], hashes[t]);
      if (model->options_.refuses_unknown_merges && ids[t] >= vocabulary.size() &&
          index.find(vocabulary.pieces, texts[t], hashes[t]) < 0)
        return invalid_argument("merge {} (\"{}\" \"{}\"): \"{}\" is not in the vocabulary", begin + t / 3,
                                texts[t - t % 3], texts[t - t % 3 + 1], texts[t]);
      if (t % 3 == 1) __builtin_prefetch(&model->merges_[pair_slot(pair_key(ids[t - 1], ids[t]), slots - 1)]);
    }
    for (size_t i = 0; i < n; ++i)
      model->add_merge(ids[3 * i], ids[3 * i + 1], static_cast<uint32_t>(begin + i), ids[3 * i + 2]);
  }
  return std::unique_ptr<TokenModel>(std::move(model));
}

int32_t BpeModel::char_id(std::string_view character) const {
  const TokenId id = vocabulary_.find(character);
  if (vocabulary_.is_plain(id)) return id;
  const int32_t extra = extra_index_.find(extra_, character);
  return extra < 0 ? -1 : static_cast<int32_t>(vocabulary_.size()) + extra;
}

size_t BpeModel::append_symbols(std::string_view piece, size_t begin, size_t end, size_t most,
                                std::vector<MergeSymbol>& symbols) const {
  bool last_is_unk = false;
  const auto add_symbol = [&](std::vector<MergeSymbol>& all, size_t place, size_t bytes, int32_t id) {
    redline::add_symbol(all, place - begin, bytes, id);
  };
  size_t pos = begin;
  while (pos < end) {
    const Utf8Char c = utf8_at(piece, pos);
    const bool ends_word = !options_.end_of_word.empty() && pos + c.bytes == piece.size();
    const bool continues = !options_.continuing_prefix.empty() && pos > 0;
    const auto spelled = [&] {
      return std::string(continues ? options_.continuing_prefix : "")
          .append(piece.substr(pos, c.bytes))
          .append(ends_word ? options_.end_of_word : "");
    };
    const int32_t id = !c.valid                 ? -1
                       : ends_word || continues ? char_id(spelled())
                       : c.value < small_char_ids_.size() && small_char_ids_[c.value] >= 0
                           ? small_char_ids_[c.value]
                           : char_id(piece.substr(pos, c.bytes));
    // A run of unknown characters is one symbol, so a window may end only after the run.
    if (symbols.size() >= most && !(last_is_unk && options_.fuse_unk && id < 0)) break;
    bool bytes_known = options_.byte_fallback && id < 0;
    for (size_t i = 0; i < c.bytes && bytes_known; ++i)
      bytes_known = byte_ids_[static_cast<uint8_t>(piece[pos + i])] >= 0;
    if (id >= 0) {
      add_symbol(symbols, pos, c.bytes, id);
    } else if (bytes_known) {
      for (size_t i = 0; i < c.bytes && pos + i < end; ++i)  // a token border may lie within a character
        add_symbol(symbols, pos + i, 1, byte_ids_[static_cast<uint8_t>(piece[pos + i])]);
    } else if (options_.unk >= 0) {
      if (last_is_unk && options_.fuse_unk) {
        symbols.back().bytes += c.bytes;
      } else {
        add_symbol(symbols, pos, c.bytes, options_.unk);
      }
    } else if (options_.unknown_separates) {
      add_symbol(symbols, pos, c.bytes, -1);
    }
    last_is_unk = id < 0 && !bytes_known && options_.unk >= 0;
    pos += c.bytes;
  }
  return pos;
}

void BpeModel::encode(std::string_view piece, EncodeWork& work, std::vector<TokenId>& ids) const {
  if (options_.ignore_merges || (options_.whole_newlines && piece.find_first_not_of('\n') == std::string_view::npos)) {
    const TokenId whole = vocabulary_.find(piece);
    if (vocabulary_.is_plain(whole)) {
      work.add(piece.size());
      ids.push_back(whole);
      return;
    }
  }
  const auto append = [&](size_t begin, size_t end, size_t most, std::vector<MergeSymbol>& symbols) {
    return append_symbols(piece, begin, end, most, symbols);
  };
  const auto choose = [&](const MergeSymbol& a, const MergeSymbol& b) {
    const Merge* merge = find_merge(a.id, b.id);
    return merge ? MergeChoice{true, merge->rank, merge->id} : MergeChoice{};
  };
  merge_piece(
      piece.size(), window, append, choose, [&](size_t, size_t, int32_t id) { put(id, ids); }, work, ids);
}

void BpeModel::put(int32_t id, std::vector<TokenId>& ids) const {
  if (id < 0) return;
  if (id < vocabulary_.size()) return ids.push_back(id);
  // An intermediate merge result that is not a token: emit those of its characters that are.
  const std::string_view text = extra_[static_cast<size_t>(id - vocabulary_.size())];
  for (size_t pos = 0; pos < text.size();) {
    const Utf8Char c = utf8_at(text, pos);
    const TokenId one = vocabulary_.find(text.substr(pos, c.bytes));
    if (vocabulary_.is_plain(one)) {
      ids.push_back(one);
    } else if (options_.unk >= 0) {
      ids.push_back(options_.unk);
    }
    pos += c.bytes;
  }
}

int64_t BpeModel::max_token_bytes(bool spells_bytes) const {
  bool knows_all = options_.byte_fallback && has_all(byte_ids_);
  if (!knows_all && spells_bytes) {
    knows_all = true;
    for (int b = 0; b < 256; ++b) {
      std::string spelled;
      append_byte_spelling(spelled, static_cast<uint8_t>(b));
      knows_all = knows_all && vocabulary_.is_plain(vocabulary_.find(spelled));
    }
  }
  if (!knows_all && (options_.unk < 0 || options_.fuse_unk)) return 0;
  constexpr int64_t kCharBytes = 4;
  int64_t most = kCharBytes;
  for (const std::string& piece : vocabulary_.pieces) most = std::max(most, piece_bytes(piece, spells_bytes));
  return most;
}

Result<std::unique_ptr<TokenModel>> SpmModel::make(const Vocabulary& vocabulary, const std::vector<float>& scores,
                                                   Options options) {
  std::unique_ptr<SpmModel> model(new SpmModel(vocabulary));
  model->options_ = options;
  const auto num = static_cast<size_t>(vocabulary.size());
  if (scores.size() != num) return invalid_argument("{} scores for {} tokens", scores.size(), num);
  const auto score = [&](TokenId id) { return std::isnan(scores[id]) ? -HUGE_VALF : scores[id]; };
  std::vector<TokenId> order(num);
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](TokenId a, TokenId b) { return score(a) > score(b); });
  model->ranks_.resize(num);
  for (size_t i = 0, rank = 0; i < num; ++i) {
    if (i > 0 && score(order[i]) != score(order[i - 1])) ++rank;
    model->ranks_[order[i]] = static_cast<uint32_t>(rank);
  }
  for (size_t i = 0; i < num; ++i) {
    const auto id = static_cast<TokenId>(i);
    const std::string& piece = vocabulary.pieces[i];
    if (piece.empty() || !vocabulary.is_plain(id)) continue;
    model->mergeable_.insert(vocabulary.pieces, id);
    model->max_bytes_ = std::max(model->max_bytes_, piece.size());
    if (options.match_user_defined && vocabulary.types[i] == TokenType::user_defined) {
      REDLINE_TRY(model->user_defined_.insert(piece, id).within(fmt::format("token {}", id)));
    }
  }
  model->byte_ids_ = find_byte_tokens(vocabulary);
  return std::unique_ptr<TokenModel>(std::move(model));
}

size_t SpmModel::append_symbols(std::string_view piece, size_t begin, size_t end, size_t most,
                                std::vector<MergeSymbol>& symbols) const {
  size_t pos = begin;
  while (pos < end && symbols.size() < most) {
    const PrefixMatcher::Match match = user_defined_.longest_at(piece, pos);
    if (match.value >= 0) {
      add_symbol(symbols, pos - begin, match.bytes, match.value, true);
      pos += match.bytes;
    } else {
      const Utf8Char c = utf8_at(piece, pos);
      add_symbol(symbols, pos - begin, c.bytes, mergeable_.find(vocabulary_.pieces, piece.substr(pos, c.bytes)));
      pos += c.bytes;
    }
  }
  return pos;
}

void SpmModel::encode(std::string_view piece, EncodeWork& work, std::vector<TokenId>& ids) const {
  size_t base = 0;  // offset in `piece` of the window, from which the symbols count their positions
  const auto append = [&](size_t begin, size_t end, size_t most, std::vector<MergeSymbol>& symbols) {
    base = begin;
    return append_symbols(piece, begin, end, most, symbols);
  };
  const auto choose = [&](const MergeSymbol& a, const MergeSymbol& b) {
    const size_t bytes = size_t{a.bytes} + b.bytes;
    if (bytes > max_bytes_) return MergeChoice{};
    const TokenId id = mergeable_.find(vocabulary_.pieces, piece.substr(base + a.begin, bytes));
    return id < 0 ? MergeChoice{} : MergeChoice{true, ranks_[id], id};
  };
  const auto put_token = [&](size_t begin, size_t bytes, int32_t id) { put(piece.substr(begin, bytes), id, ids); };
  merge_piece(piece.size(), window, append, choose, put_token, work, ids);
}

int64_t SpmModel::max_token_bytes(bool spells_bytes) const {
  if (!has_all(byte_ids_)) return 0;
  constexpr int64_t kCharBytes = 4;
  int64_t most = kCharBytes;
  for (const std::string& piece : vocabulary_.pieces) most = std::max(most, piece_bytes(piece, spells_bytes));
  return most;
}

void SpmModel::put(std::string_view text, TokenId id, std::vector<TokenId>& ids) const {
  if (id >= 0) {
    if (options_.split_unused && vocabulary_.types[id] == TokenType::unused) {
      put_unused(text, ids);
    } else {
      ids.push_back(id);
    }
    return;
  }
  for (const char c : text) {
    if (byte_ids_[static_cast<uint8_t>(c)] < 0) {
      if (options_.unk >= 0 && (ids.empty() || ids.back() != options_.unk)) ids.push_back(options_.unk);
      return;
    }
  }
  for (const char c : text) ids.push_back(byte_ids_[static_cast<uint8_t>(c)]);
}

void SpmModel::put_unused(std::string_view text, std::vector<TokenId>& ids) const {
  // Repeats the merges of this piece, but bars the unused whole. Merging the characters again with unused results
  // allowed would otherwise give the same piece.
  std::vector<MergeSymbol> symbols;
  for (size_t pos = 0; pos < text.size();) {
    const Utf8Char c = utf8_at(text, pos);
    add_symbol(symbols, pos, c.bytes, mergeable_.find(vocabulary_.pieces, text.substr(pos, c.bytes)));
    pos += c.bytes;
  }
  merge_symbols(symbols, [&](const MergeSymbol& a, const MergeSymbol& b) {
    const TokenId id = mergeable_.find(vocabulary_.pieces, text.substr(a.begin, size_t{a.bytes} + b.bytes));
    return id < 0 || size_t{a.bytes} + b.bytes == text.size() ? MergeChoice{} : MergeChoice{true, ranks_[id], id};
  });
  for (int32_t i = 0; i >= 0; i = symbols[i].next) {
    const std::string_view part = text.substr(symbols[i].begin, symbols[i].bytes);
    // Parts are strictly shorter; a single unused character is kept.
    const bool again =
        symbols[i].id >= 0 && vocabulary_.types[symbols[i].id] == TokenType::unused && part.size() < text.size();
    if (again) {
      put_unused(part, ids);
    } else if (symbols[i].id >= 0) {
      ids.push_back(symbols[i].id);
    } else {
      put(part, -1, ids);
    }
  }
}

}  // namespace redline
