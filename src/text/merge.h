// The merge loop that both kinds of BPE share.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace redline {

/// A stretch of text on its way to becoming a token; a doubly linked list inside a vector.
struct MergeSymbol {
  uint32_t begin = 0, bytes = 0;  ///< bytes == 0: swallowed by the symbol before it
  int32_t prev = -1, next = -1;
  int32_t id = -1;      ///< token so far; what -1 means is the model's business
  bool frozen = false;  ///< never merged (user-defined tokens)
};

struct MergeChoice {
  bool found = false;
  uint32_t rank = 0;  ///< lowest first
  int32_t id = -1;    ///< what the pair becomes
};

/// Repeatedly merges the adjacent pair of lowest rank, leftmost first, until no pair can be merged: n log n in the
/// number of symbols. choose(left, right) -> MergeChoice. The symbols must be linked in order.
template <class Choose>
void merge_symbols(std::vector<MergeSymbol>& symbols, Choose&& choose) {
  struct Candidate {
    uint64_t key;    // rank, then place
    uint32_t bytes;  // of both together: a candidate with another sum is out of date
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
    // A symbol only grows, and its right neighbour only moves away or grows: equal sums mean the same two symbols.
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
