// The state of sequences: pages of every state group with reference counts, and the page tables of one sequence.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "backends/backend_memory.h"
#include "base/slab_allocator.h"
#include "graph/state.h"

namespace redline {

/// Positions that a sliding window keeps in addition to those that the next token reads, so that a sequence can be
/// truncated by as many.
inline constexpr int64_t kWindowSlack = 256;
/// Recurrent states of a text are stored at positions that are multiples of this, and at the last page border of a
/// prompt.
inline constexpr int64_t kStateTokens = 256;

struct PageChange;

/// Frees pages that only a cache holds.
class PageReclaimer {
 public:
  virtual ~PageReclaimer() = default;
  /// Frees at least one page of a group that has num_stored_only() > 0.
  virtual void reclaim(size_t g) = 0;
};

/// The pages of one engine, by state group. Not thread-safe, except for functions marked as such.
class StatePool {
 public:
  /// `memory` holds `num_pages` pages of each group of `plan`, which must outlive the pool.
  StatePool(const StatePlan& plan, std::span<const int64_t> num_pages, std::unique_ptr<StateMemory> memory);

  size_t num_groups() const { return groups_.size(); }
  const StateGroup& group(size_t g) const { return *groups_[g].group; }
  int64_t capacity(size_t g) const { return groups_[g].pages.capacity(); }
  int64_t num_free(size_t g) const { return groups_[g].pages.num_free(); }
  /// Returns the number of pages that only the prefix cache references (store()); the reclaimer frees them when they
  /// are needed.
  int64_t num_stored_only(size_t g) const { return groups_[g].stored_only; }
  int64_t num_available(size_t g) const { return num_free(g) + num_stored_only(g); }
  /// Sets the object that frees pages of the prefix cache. It must outlive the pool, or be reset to null after it has
  /// dropped its pages.
  void set_reclaimer(PageReclaimer* reclaimer) { reclaimer_ = reclaimer; }

  /// Allocates a page with one reference; nullopt: none is available.
  std::optional<int32_t> take(size_t g);
  void share(size_t g, int32_t page) { count(g, page, 1, 0); }
  /// Drops a reference; the last one frees the page.
  void drop(size_t g, int32_t page) { count(g, page, -1, 0); }
  /// Adds the prefix cache's reference.
  void store(size_t g, int32_t page) { count(g, page, 1, 1); }
  void drop_stored(size_t g, int32_t page) { count(g, page, -1, -1); }
  bool is_stored_only(size_t g, int32_t page) const {
    const Page& p = groups_[g].states[static_cast<size_t>(page)];
    return p.stored > 0 && p.stored == p.references;
  }
  bool is_shared(size_t g, int32_t page) const { return groups_[g].states[static_cast<size_t>(page)].references > 1; }
  StateMemory& memory() { return *memory_; }
  /// Makes the changes, in order.
  void apply(std::span<const PageChange> changes);
  /// Returns memory to the system: that of pages which are free and were free at the last call. Returns true if further
  /// free pages hold memory.
  bool give_back_unused();
  /// Returns the bytes of all pages that are backed by memory, because they were written since their memory was last
  /// released to the system. Thread-safe.
  int64_t touched_bytes() const { return touched_bytes_.load(std::memory_order_relaxed); }
  /// For tests of out-of-memory handling: sequences get no page when `fault(g)` returns true.
  void set_fault(std::function<bool(size_t g)> fault) { fault_ = std::move(fault); }
  bool has_fault(size_t g) const { return fault_ && fault_(g); }

  /// Returns true if a step may drop state that the sequence had before: pages that leave a window, earlier recurrent
  /// states.
  bool steps_drop_state() const;
  bool has_recurrent() const;

  /// Returns the number of tokens that fit in the available pages of the groups that keep every position, or of all
  /// groups if none does.
  int64_t free_tokens() const { return tokens(&StatePool::num_available); }
  int64_t capacity_tokens() const { return tokens(&StatePool::capacity); }
  /// Return the pages of the group that free_tokens() counts which sequences hold, and which only the prefix cache
  /// holds. Thread-safe.
  int64_t used_pages() const { return used_pages_.load(std::memory_order_relaxed); }
  int64_t stored_pages() const { return stored_pages_.load(std::memory_order_relaxed); }
  size_t counted_group() const { return counted_group_; }

 private:
  struct Page {
    int32_t references = 0, stored = 0;  ///< number of all references, and of those by store()
    bool is_touched = false;
    bool was_free = false;  ///< the page was free at the last give_back_unused(), and has been since
  };
  struct Group {
    const StateGroup* group;
    SlabAllocator pages;
    std::vector<Page> states;
    int64_t stored_only = 0;
  };
  void count(size_t g, int32_t page, int32_t references, int32_t stored);
  void publish_counts(size_t g);
  int64_t tokens(int64_t (StatePool::*pages)(size_t) const) const;
  std::vector<Group> groups_;
  std::unique_ptr<StateMemory> memory_;
  size_t counted_group_ = 0;  ///< the group that used_pages_ and stored_pages_ count
  std::atomic<int64_t> used_pages_{0}, stored_pages_{0}, touched_bytes_{0};
  PageReclaimer* reclaimer_ = nullptr;
  std::function<bool(size_t g)> fault_;
};

/// Returns page and offset of a position in the pages of a sequence, in the form of StateStep::slots.
inline int32_t kv_slot(const int32_t* pages, int64_t position) {
  return pages[position / kKvPageTokens] * static_cast<int32_t>(kKvPageTokens) +
         static_cast<int32_t>(position % kKvPageTokens);
}

/// A change of the contents of one page that a step needs before it runs.
struct PageChange {
  static constexpr int32_t kCleared = -1;
  int32_t group = 0;
  int32_t page = 0;
  int32_t copy_of = kCleared;  ///< the page whose contents `page` gets; kCleared: zeros
  friend bool operator==(const PageChange&, const PageChange&) = default;
};

/// The state of one sequence: its length, and its pages in every group. Keys and values lie in pages by position; pages
/// that have left the window of their group are freed. A recurrent state is one page: a step reads it and writes
/// another page, which then replaces it, so a failed step does not change the state.
class SequenceState {
 public:
  static constexpr size_t kMaxSnapshots = 4;

  explicit SequenceState(StatePool& pool);
  ~SequenceState();
  SequenceState(const SequenceState&) = delete;
  SequenceState& operator=(const SequenceState&) = delete;

  int64_t length() const { return length_; }
  /// Gives the sequence unshared pages to write `tokens` more tokens. out_of_memory (the message has both numbers): the
  /// pool has too few pages; nothing has changed.
  Status reserve(int64_t tokens);
  /// As reserve(), but leaves the contents of pages as they are: appends the changes to `changes`. The caller makes
  /// them once, with StatePool::apply(), before the step or before rollback().
  Status reserve(int64_t tokens, std::vector<PageChange>& changes);
  /// Checks that the groups that keep every position have pages for `tokens` more tokens, which may be too many for one
  /// step. out_of_memory: as reserve().
  Status check_room(int64_t tokens) const;
  /// Returns the number of tokens that can be appended without another page of the group that StatePool::free_tokens()
  /// counts.
  int64_t room() const;
  /// Adds `tokens` reserved tokens, which have been written, to the length.
  void commit(int64_t tokens);
  /// Returns the pages of reserved tokens; a copy of a shared page is kept.
  void rollback();
  /// Truncates the sequence to `length` tokens, or to the nearest earlier length whose state is still kept. Returns the
  /// new length.
  int64_t truncate(int64_t length);
  /// Saves the recurrent states at the current length for truncate(). Takes a page of each recurrent group; beyond
  /// kMaxSnapshots the oldest snapshot is dropped.
  void snapshot();
  /// Copies the state to `copy`, which must be new; the pages are shared.
  void fork_into(SequenceState& copy) const;

  /// Sets the state of a new sequence to that after `length` tokens. `pages` has, for each group, the pages of
  /// kKvPageTokens positions each, with -1 for those that a window no longer needs; or the page of the recurrent state.
  /// The pages are shared.
  void restore(int64_t length, std::span<const std::vector<int32_t>> pages);
  /// Returns the page of a kKeyValue group with the positions from index * kKvPageTokens on; -1: it has left the
  /// window.
  int32_t page_at(size_t g, int64_t index) const;
  /// Replaces a page by another one with the same contents.
  void replace_page(size_t g, int64_t index, int32_t page);
  /// Returns the page with the recurrent state after `length` tokens; -1: it is not kept.
  int32_t recurrent_page_at(size_t g, int64_t length) const;
  /// Returns the lengths of the snapshots, in order.
  std::vector<int64_t> snapshot_lengths() const;

  /// Returns the table for StateStep::pages, valid until the next call that changes the sequence.
  std::span<const int32_t> page_table(size_t g) const { return tables_[g].pages; }
  const int32_t* pages(size_t g) const { return tables_[g].pages.data(); }
  /// Returns page and offset of a position, in the form of StateStep::slots.
  int32_t slot(size_t g, int64_t position) const { return kv_slot(pages(g), position); }

 private:
  /// kKeyValue: pages by position; the first `freed` entries are no longer valid. kRecurrent: {state, next state}, -1
  /// where there is none.
  struct Table {
    std::vector<int32_t> pages;
    size_t freed = 0;
  };
  /// The recurrent states after `length` tokens, by group; -1 for other groups.
  struct Snapshot {
    int64_t length;
    std::vector<int32_t> pages;
  };
  bool is_recurrent(size_t g) const { return pool_.group(g).kind == StateKind::kRecurrent; }
  int64_t missing_pages(size_t g, int64_t tokens) const;
  Status check_pages(size_t g, int64_t tokens) const;
  void reserve_pages(size_t g, int64_t tokens, std::vector<PageChange>& changes);
  void free_pages_beyond(size_t g, int64_t length);
  /// Returns the largest length up to `length` whose state is kept.
  int64_t restorable(int64_t length) const;
  void restore_recurrent(int64_t length);
  void drop_snapshot(Snapshot& snapshot);
  Snapshot current_snapshot() const;

  StatePool& pool_;
  int64_t length_ = 0;
  std::vector<Table> tables_;
  bool has_recurrent_ = false;
  std::vector<Snapshot> snapshots_;    ///< snapshots in order of length
  std::vector<Snapshot> before_last_;  ///< states before the last committed step, if any
};

}  // namespace redline
