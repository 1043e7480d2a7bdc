#include "llm/state_pool.h"

#include <algorithm>
#include <utility>

namespace redline {
StatePool::StatePool(const StatePlan& plan, std::span<const int64_t> num_pages, std::unique_ptr<StateMemory> memory)
    : memory_(std::move(memory)) {
  REDLINE_CHECK(num_pages.size() == plan.groups.size());
  for (size_t g = 0; g < plan.groups.size(); ++g)
    groups_.push_back(
        {&plan.groups[g], SlabAllocator(num_pages[g]), std::vector<Page>(static_cast<size_t>(num_pages[g]))});
  // At most one group keeps every position.
  for (size_t g = 0; g < groups_.size(); ++g)
    if (group(g).kind == StateKind::kKeyValue && capacity(g) * kKvPageTokens == capacity_tokens()) {
      counted_group_ = g;
      if (group(g).window == 0) break;
    }
}

std::optional<int32_t> StatePool::take(size_t g) {
  if (num_free(g) == 0 && num_stored_only(g) > 0) reclaimer_->reclaim(g);
  const std::optional<int64_t> page = groups_[g].pages.allocate();
  if (!page) return std::nullopt;
  Page& p = groups_[g].states[static_cast<size_t>(*page)];
  p.references = 1;
  p.was_free = false;
  if (!std::exchange(p.is_touched, true)) touched_bytes_.fetch_add(group(g).page_bytes, std::memory_order_relaxed);
  publish_counts(g);
  return static_cast<int32_t>(*page);
}

bool StatePool::give_back_unused() {
  bool has_more = false;
  for (size_t g = 0; g < groups_.size(); ++g) {
    std::vector<Page>& pages = groups_[g].states;
    // Adjacent pages are released together, because a page need not be a multiple of the system's pages.
    for (size_t begin = 0, end = 0; begin < pages.size(); begin = end + 1) {
      for (end = begin; end < pages.size(); ++end) {
        Page& p = pages[end];
        if (!p.is_touched || p.references > 0) break;
        if (std::exchange(p.was_free, true)) continue;
        has_more = true;
        break;
      }
      if (end == begin) continue;
      memory_->discard_pages(g, static_cast<int64_t>(begin), static_cast<int64_t>(end));
      for (size_t i = begin; i < end; ++i) pages[i].is_touched = pages[i].was_free = false;
      touched_bytes_.fetch_sub(static_cast<int64_t>(end - begin) * group(g).page_bytes, std::memory_order_relaxed);
    }
  }
  return has_more;
}

void StatePool::count(size_t g, int32_t page, int32_t references, int32_t stored) {
  Page& p = groups_[g].states[static_cast<size_t>(page)];
  groups_[g].stored_only -= is_stored_only(g, page);
  p.references += references;
  p.stored += stored;
  groups_[g].stored_only += is_stored_only(g, page);
  if (p.references == 0) groups_[g].pages.free(page);
  publish_counts(g);
}

void StatePool::publish_counts(size_t g) {
  if (g != counted_group_) return;
  used_pages_.store(capacity(g) - num_available(g), std::memory_order_relaxed);
  stored_pages_.store(num_stored_only(g), std::memory_order_relaxed);
}

bool StatePool::steps_drop_state() const {
  return std::any_of(groups_.begin(), groups_.end(),
                     [](const Group& g) { return g.group->kind == StateKind::kRecurrent || g.group->window > 0; });
}

bool StatePool::has_recurrent() const {
  return std::any_of(groups_.begin(), groups_.end(),
                     [](const Group& g) { return g.group->kind == StateKind::kRecurrent; });
}

int64_t StatePool::tokens(int64_t (StatePool::*pages)(size_t) const) const {
  int64_t whole = INT64_MAX, windows = INT64_MAX;
  for (size_t g = 0; g < groups_.size(); ++g) {
    if (group(g).kind != StateKind::kKeyValue) continue;
    int64_t& least = group(g).window == 0 ? whole : windows;
    least = std::min(least, (this->*pages)(g)*kKvPageTokens);
  }
  return whole != INT64_MAX ? whole : windows;
}

SequenceState::SequenceState(StatePool& pool) : pool_(pool), tables_(pool.num_groups()) {
  for (size_t g = 0; g < tables_.size(); ++g)
    if (is_recurrent(g)) {
      has_recurrent_ = true;
      tables_[g].pages = {-1, -1};
    }
}

SequenceState::~SequenceState() { truncate(0); }

int64_t SequenceState::missing_pages(size_t g, int64_t tokens) const {
  const Table& table = tables_[g];
  if (is_recurrent(g)) return (table.pages[0] < 0) + (table.pages[1] < 0);
  int64_t missing = kv_pages_for(length_ + tokens) - std::ssize(table.pages);
  // A shared page that the step would write to is copied.
  if (length_ % kKvPageTokens != 0 && pool_.is_shared(g, table.pages[static_cast<size_t>(length_ / kKvPageTokens)]))
    ++missing;
  return std::max<int64_t>(missing, 0);
}

void StatePool::apply(std::span<const PageChange> changes) {
  for (const PageChange& change : changes) {
    const auto g = static_cast<size_t>(change.group);
    if (change.copy_of == PageChange::kCleared) memory_->clear_page(g, change.page);
    else memory_->copy_page(g, change.copy_of, change.page);
  }
}

void SequenceState::reserve_pages(size_t g, int64_t tokens, std::vector<PageChange>& changes) {
  const auto group = static_cast<int32_t>(g);
  Table& table = tables_[g];
  if (is_recurrent(g)) {
    for (int32_t& page : table.pages)
      if (page < 0) page = *pool_.take(g);
    if (length_ == 0) changes.push_back({group, table.pages[0]});
    return;
  }
  if (length_ % kKvPageTokens != 0) {
    int32_t& last = table.pages[static_cast<size_t>(length_ / kKvPageTokens)];
    if (pool_.is_shared(g, last)) {
      const int32_t own = *pool_.take(g);
      changes.push_back({group, own, last});
      pool_.drop(g, last);
      last = own;
    }
  }
  while (std::ssize(table.pages) < kv_pages_for(length_ + tokens)) table.pages.push_back(*pool_.take(g));
}

Status SequenceState::check_pages(size_t g, int64_t tokens) const {
  const int64_t missing = missing_pages(g, tokens);
  if (missing <= pool_.num_available(g) && (missing == 0 || !pool_.has_fault(g))) return {};
  return out_of_memory("{}: {} more pages{} are needed, {} of {} are free",
                       is_recurrent(g) ? "recurrent state" : "key-value cache", missing,
                       is_recurrent(g) ? "" : fmt::format(" of {} tokens", kKvPageTokens), pool_.num_available(g),
                       pool_.capacity(g));
}

Status SequenceState::reserve(int64_t tokens) {
  std::vector<PageChange> changes;
  REDLINE_TRY(reserve(tokens, changes));
  pool_.apply(changes);
  return {};
}

Status SequenceState::reserve(int64_t tokens, std::vector<PageChange>& changes) {
  for (size_t g = 0; g < tables_.size(); ++g) REDLINE_TRY(check_pages(g, tokens));
  changes.reserve(changes.size() + tables_.size());  // before a page changes its owner: this may throw
  for (size_t g = 0; g < tables_.size(); ++g) {
    std::vector<int32_t>& pages = tables_[g].pages;
    const auto needed = static_cast<size_t>(is_recurrent(g) ? 2 : kv_pages_for(length_ + tokens));
    if (pages.capacity() < needed) pages.reserve(std::max(needed, 2 * pages.size()));
  }
  for (size_t g = 0; g < tables_.size(); ++g) reserve_pages(g, tokens, changes);
  return {};
}

int64_t SequenceState::room() const {
  const size_t g = pool_.counted_group();
  if (is_recurrent(g)) return INT64_MAX;
  const std::vector<int32_t>& pages = tables_[g].pages;
  if (length_ % kKvPageTokens != 0 && pool_.is_shared(g, pages[static_cast<size_t>(length_ / kKvPageTokens)])) return 0;
  return std::ssize(pages) * kKvPageTokens - length_;
}

Status SequenceState::check_room(int64_t tokens) const {
  for (size_t g = 0; g < tables_.size(); ++g)
    if (pool_.group(g).window == 0) REDLINE_TRY(check_pages(g, tokens));
  return {};
}

SequenceState::Snapshot SequenceState::current_snapshot() const {
  Snapshot now{length_, std::vector<int32_t>(tables_.size(), -1)};
  for (size_t g = 0; g < tables_.size(); ++g)
    if (is_recurrent(g)) {
      now.pages[g] = tables_[g].pages[0];
      pool_.share(g, now.pages[g]);
    }
  return now;
}

void SequenceState::commit(int64_t tokens) {
  if (has_recurrent_) {
    for (Snapshot& snapshot : before_last_) drop_snapshot(snapshot);
    before_last_.clear();
    if (length_ > 0) before_last_.push_back(current_snapshot());
  }
  length_ += tokens;
  for (size_t g = 0; g < tables_.size(); ++g) {
    Table& table = tables_[g];
    if (is_recurrent(g)) {
      pool_.drop(g, table.pages[0]);
      table.pages = {table.pages[1], -1};
      continue;
    }
    const int64_t window = pool_.group(g).window;
    if (window == 0) continue;
    const auto kept = static_cast<size_t>(std::max<int64_t>(0, length_ - window - kWindowSlack) / kKvPageTokens);
    for (; table.freed < kept; ++table.freed) {
      pool_.drop(g, table.pages[table.freed]);
      // Freed entries refer to page 0, a valid page: kernels may read up to 64 positions before the window, and mask
      // them.
      table.pages[table.freed] = 0;
    }
  }
}

void SequenceState::free_pages_beyond(size_t g, int64_t length) {
  Table& table = tables_[g];
  while (std::ssize(table.pages) > kv_pages_for(length)) {
    if (table.pages.size() > table.freed) pool_.drop(g, table.pages.back());
    table.pages.pop_back();
  }
  table.freed = std::min(table.freed, table.pages.size());
}

void SequenceState::rollback() {
  for (size_t g = 0; g < tables_.size(); ++g) {
    if (!is_recurrent(g)) {
      free_pages_beyond(g, length_);
      continue;
    }
    std::vector<int32_t>& pages = tables_[g].pages;
    for (const size_t i : {size_t{1}, size_t{0}}) {
      if (pages[i] < 0 || (i == 0 && length_ > 0)) continue;
      pool_.drop(g, pages[i]);
      pages[i] = -1;
    }
  }
}

int64_t SequenceState::restorable(int64_t length) const {
  int64_t at = std::clamp<int64_t>(length, 0, length_);
  if (has_recurrent_ && at < length_) {
    int64_t best = 0;
    for (const auto* list : {&before_last_, &snapshots_})
      for (const Snapshot& snapshot : *list)
        if (snapshot.length <= at) best = std::max(best, snapshot.length);
    at = best;
  }
  for (size_t g = 0; g < tables_.size(); ++g) {
    const int64_t window = pool_.group(g).window;
    if (window == 0 || is_recurrent(g)) continue;
    const int64_t first_read = std::max<int64_t>(0, at - window + 1) / kKvPageTokens;
    if (at > 0 && first_read < static_cast<int64_t>(tables_[g].freed)) return 0;
  }
  return at;
}

void SequenceState::restore_recurrent(int64_t length) {
  const Snapshot* from = nullptr;
  for (const auto* list : {&before_last_, &snapshots_})
    for (const Snapshot& snapshot : *list)
      if (snapshot.length == length) from = &snapshot;
  REDLINE_CHECK(from || length == 0);
  for (size_t g = 0; g < tables_.size(); ++g) {
    if (!is_recurrent(g)) continue;
    int32_t& page = tables_[g].pages[0];
    if (from) pool_.share(g, from->pages[g]);
    if (page >= 0) pool_.drop(g, page);
    page = from ? from->pages[g] : -1;
  }
}

int64_t SequenceState::truncate(int64_t length) {
  const int64_t kept = restorable(length);
  if (has_recurrent_ && kept < length_) {
    restore_recurrent(kept);
    for (auto* list : {&before_last_, &snapshots_})
      std::erase_if(*list, [&](Snapshot& s) {
        if (s.length <= kept && kept > 0) return false;
        drop_snapshot(s);
        return true;
      });
  }
  length_ = kept;
  for (size_t g = 0; g < tables_.size(); ++g)
    if (!is_recurrent(g)) free_pages_beyond(g, kept);
  rollback();
  return kept;
}

void SequenceState::drop_snapshot(Snapshot& snapshot) {
  for (size_t g = 0; g < tables_.size(); ++g)
    if (snapshot.pages[g] >= 0) pool_.drop(g, snapshot.pages[g]);
}

void SequenceState::snapshot() {
  if (!has_recurrent_ || length_ == 0) return;
  if (!snapshots_.empty() && snapshots_.back().length == length_) return;
  if (snapshots_.size() == kMaxSnapshots) {
    drop_snapshot(snapshots_.front());
    snapshots_.erase(snapshots_.begin());
  }
  snapshots_.push_back(current_snapshot());
}

void SequenceState::fork_into(SequenceState& copy) const {
  REDLINE_CHECK(&copy.pool_ == &pool_ && copy.length_ == 0);
  // Allocations that may throw come first, so that every counted reference has a holder.
  std::vector<Table> tables = tables_;
  std::vector<Snapshot> snapshots = snapshots_;
  std::vector<Snapshot> before_last = before_last_;
  const auto share_snapshot = [&](const Snapshot& s) {
    for (size_t g = 0; g < tables_.size(); ++g)
      if (s.pages[g] >= 0) pool_.share(g, s.pages[g]);
  };
  for (const auto* list : {&before_last_, &snapshots_})
    for (const Snapshot& s : *list) share_snapshot(s);
  for (size_t g = 0; g < tables_.size(); ++g)
    for (size_t i = tables_[g].freed; i < tables_[g].pages.size(); ++i)
      if (tables_[g].pages[i] >= 0) pool_.share(g, tables_[g].pages[i]);
  copy.length_ = length_;
  copy.tables_ = std::move(tables);
  copy.snapshots_ = std::move(snapshots);
  copy.before_last_ = std::move(before_last);
}

void SequenceState::restore(int64_t length, std::span<const std::vector<int32_t>> pages) {
  REDLINE_CHECK(length_ == 0 && pages.size() == tables_.size());
  length_ = length;
  for (size_t g = 0; g < tables_.size(); ++g) {
    Table& table = tables_[g];
    if (is_recurrent(g)) {
      table.pages = {pages[g].at(0), -1};
      pool_.share(g, table.pages[0]);
      continue;
    }
    REDLINE_CHECK(std::ssize(pages[g]) == kv_pages_for(length));
    table.pages = pages[g];
    const int64_t window = pool_.group(g).window;
    const auto kept =
        static_cast<size_t>(window == 0 ? 0 : std::max<int64_t>(0, length - window - kWindowSlack) / kKvPageTokens);
    table.freed = table.pages.size();
    while (table.freed > kept && table.pages[table.freed - 1] >= 0) pool_.share(g, table.pages[--table.freed]);
    std::fill_n(table.pages.begin(), table.freed, 0);
  }
  REDLINE_CHECK(has_recurrent_ || restorable(length) == length);
}

int32_t SequenceState::page_at(size_t g, int64_t index) const {
  const Table& table = tables_[g];
  const auto i = static_cast<size_t>(index);
  return i >= table.freed && i < table.pages.size() ? table.pages[i] : -1;
}

void SequenceState::replace_page(size_t g, int64_t index, int32_t page) {
  int32_t& own = tables_[g].pages[static_cast<size_t>(index)];
  pool_.share(g, page);
  pool_.drop(g, own);
  own = page;
}

int32_t SequenceState::recurrent_page_at(size_t g, int64_t length) const {
  if (length == length_ && length > 0) return tables_[g].pages[0];
  for (const auto* list : {&before_last_, &snapshots_})
    for (const Snapshot& snapshot : *list)
      if (snapshot.length == length) return snapshot.pages[g];
  return -1;
}

std::vector<int64_t> SequenceState::snapshot_lengths() const {
  std::vector<int64_t> lengths;
  for (const Snapshot& snapshot : snapshots_) lengths.push_back(snapshot.length);
  return lengths;
}

}  // namespace redline
