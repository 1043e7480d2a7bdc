// The merge loop of both kinds of BPE.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "text/tokenizer.h"

namespace redline {

/// A span of text that is being merged; a node of a doubly linked list stored in a vector.
struct MergeSymbol {
  uint32_t begin = 0, bytes = 0;  ///< bytes == 0: merged into the symbol before it
  int32_t prev = -1, next = -1;
  int32_t id = -1;      ///< current token; the model defines the meaning of -1
  bool frozen = false;  ///< never merged (user-defined tokens)
};

struct MergeChoice {
  bool found = false;
  uint32_t rank = 0;  ///< lowest first
  int32_t id = -1;    ///< result of merging the pair
};

/// Limit of merge_few_symbols(), which is merge_symbols() without a heap: for the few symbols of a word, examining
/// every pair again is faster.
constexpr size_t kFewSymbols = 24;
template <class Choose>
void merge_few_symbols(std::vector<MergeSymbol>& symbols, Choose&& choose) {
  MergeChoice choices[kFewSymbols];  // of each symbol with the next one
  const auto consider = [&](int32_t left) {
    const MergeSymbol& a = symbols[left];
    const bool may_merge = a.next >= 0 && !a.frozen && !symbols[a.next].frozen;
    choices[left] = may_merge ? choose(a, symbols[a.next]) : MergeChoice{};
  };
  for (size_t i = 0; i < symbols.size(); ++i) consider(static_cast<int32_t>(i));
  for (;;) {
    int32_t best = -1;
    for (int32_t i = 0; i >= 0; i = symbols[i].next)
      if (choices[i].found && (best < 0 || choices[i].rank < choices[best].rank)) best = i;
    if (best < 0) return;
    MergeSymbol& left = symbols[best];
    MergeSymbol& right = symbols[left.next];
    left.bytes += right.bytes;
    left.id = choices[best].id;
    left.next = right.next;
    right.bytes = 0;
    if (left.next >= 0) symbols[left.next].prev = best;
    if (left.prev >= 0) consider(left.prev);
    consider(best);
  }
}

/// Repeatedly merges the adjacent pair of lowest rank, leftmost first, until no pair can be merged. O(n log n) in the
/// number of symbols. choose(left, right) -> MergeChoice. The symbols, at least one, must be linked in order.
template <class Choose>
void merge_symbols(std::vector<MergeSymbol>& symbols, Choose&& choose) {
  if (symbols.size() <= kFewSymbols) return merge_few_symbols(symbols, choose);
  struct Candidate {
    uint64_t key;    // rank, then position
    uint32_t bytes;  // sum of both symbols; if it differs now, the candidate is stale
    int32_t id;
  };
  const auto later = [](const Candidate& a, const Candidate& b) { return a.key > b.key; };
  thread_local std::vector<Candidate> heap;
  heap.clear();
  const auto consider = [&](int32_t left, bool in_heap) {
    if (left < 0) return;
    const MergeSymbol& a = symbols[left];
    if (a.next < 0) return;
    const MergeSymbol& b = symbols[a.next];
    if (a.frozen || b.frozen) return;
    const MergeChoice choice = choose(a, b);
    if (!choice.found) return;
    heap.push_back(
        {(static_cast<uint64_t>(choice.rank) << 32) | static_cast<uint32_t>(left), a.bytes + b.bytes, choice.id});
    if (in_heap) std::push_heap(heap.begin(), heap.end(), later);
  };
  for (size_t i = 0; i + 1 < symbols.size(); ++i) consider(static_cast<int32_t>(i), false);
  std::make_heap(heap.begin(), heap.end(), later);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), later);
    const Candidate best = heap.back();
    heap.pop_back();
    const auto place = static_cast<int32_t>(best.key & 0xFFFFFFFFu);
    MergeSymbol& left = symbols[place];
    // A symbol only grows, and its right neighbor only grows or moves away: equal sums imply the same two symbols.
    if (left.bytes == 0 || left.next < 0 || left.bytes + symbols[left.next].bytes != best.bytes) continue;
    MergeSymbol& right = symbols[left.next];
    left.bytes += right.bytes;
    left.id = best.id;
    left.next = right.next;
    right.bytes = 0;
    if (left.next >= 0) symbols[left.next].prev = place;
    consider(left.prev, true);
    consider(place, true);
  }
  if (heap.capacity() > (size_t{1} << 16)) {
    heap.clear();
    heap.shrink_to_fit();
  }
}

/// A token of the result: a merged symbol with its place in the text.
struct MergedToken {
  size_t begin = 0;
  uint32_t bytes = 0;
  int32_t id = -1;
};

/// Number of symbols in one window, which are at most 64 KiB of text if symbols are characters.
constexpr size_t kMergeWindow = size_t{1} << 14;

/// merge_symbols() for a text of `size` bytes, in memory that does not depend on the size.
///
/// append(begin, end, max_symbols, symbols) appends the symbols of the text from byte `begin` on, at most max_symbols
/// and not beyond `end`, with offsets relative to `begin`. It returns the offset after the last symbol. emit(token)
/// receives the tokens in order; returning false ends the call. merge_in_windows() returns false if a merge may span
/// more than a window; the emitted tokens are then wrong.
///
/// The result equals that of merging the whole text. A sequence of tokens is the result of merging a text if and only
/// if every two neighboring tokens are the result of merging their own text: the first merge that crosses the border
/// between two tokens would also occur in the text of these two alone, because all merges before it were inside of
/// tokens. So two windows can be joined at any token border where the last token of one and the first token of the
/// other are such a pair.
template <class Append, class Choose, class Emit>
bool merge_in_windows(size_t size, size_t window, const Append& append, const Choose& choose, const Emit& emit,
                      EncodeWork& work) {
  std::vector<MergeSymbol> symbols;
  const auto merge = [&](size_t begin, size_t end, size_t most, std::vector<MergedToken>& tokens) {
    symbols.clear();
    tokens.clear();
    const size_t to = append(begin, end, most, symbols);
    if (!symbols.empty()) {
      merge_symbols(symbols, choose);
      for (int32_t i = 0; i >= 0; i = symbols[i].next)
        tokens.push_back({begin + symbols[i].begin, symbols[i].bytes, symbols[i].id});
    }
    return to;
  };
  std::vector<MergedToken> pair;
  const auto are_neighbors = [&](const MergedToken& left, const MergedToken& right, size_t right_end) {
    merge(left.begin, right_end, SIZE_MAX, pair);
    return pair.size() == 2 && pair[0].bytes == left.bytes && pair[1].bytes == right.bytes;
  };
  std::vector<MergedToken> now, next;
  size_t now_end = merge(0, size, window, now);
  for (size_t counted = 0;;) {
    if (!work.add(now_end - counted)) return true;
    counted = now_end;
    if (now_end == size) {
      for (const MergedToken& token : now)
        if (!emit(token)) return true;
      return true;
    }
    // The end of the window merges without the text behind it: that part is merged again with the next window.
    bool is_joined = false;
    size_t next_end = 0;
    for (size_t kept = now.size() - now.size() / 8; kept > 0 && !is_joined; kept -= std::max<size_t>(1, kept / 4)) {
      if (kept == now.size()) continue;
      next_end = merge(now[kept].begin, size, window, next);
      if (next_end <= now_end || next.empty()) return false;
      const size_t second = next.size() > 1 ? next[1].begin : next_end;
      if (!are_neighbors(now[kept - 1], next[0], second)) continue;
      is_joined = true;
      now.resize(kept);
    }
    if (!is_joined) return false;
    for (const MergedToken& token : now)
      if (!emit(token)) return true;
    now.swap(next);
    now_end = next_end;
  }
}

}  // namespace redline
