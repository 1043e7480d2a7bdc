// The merge loop shared by both kinds of BPE.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

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

/// merge_symbols() without a heap: for the few symbols of a word, looking at every pair again is faster.
constexpr size_t kFewSymbols = 24;
template <class Choose>
void merge_few_symbols(std::vector<MergeSymbol>& symbols, Choose&& choose) {
  MergeChoice choices[kFewSymbols];  // of a symbol and the next one
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
    uint32_t bytes;  // of both: a candidate with another sum is stale
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
  if (heap.capacity() > (size_t{1} << 16)) heap.shrink_to_fit();
}

}  // namespace redline
