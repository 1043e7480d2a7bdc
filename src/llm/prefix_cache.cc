#include "llm/prefix_cache.h"

#include <bit>
#include <functional>

#include "base/hash.h"

namespace redline {
namespace {

constexpr size_t kRemembered = 1 << 15;

uint64_t mix(uint64_t hash, uint64_t value) { return hash_word(hash, value); }
uint64_t mix(uint64_t hash, std::span<const ContentKey> contents) {
  for (const ContentKey place : contents) hash = mix(hash, place);
  return hash;
}

int64_t common_length(std::span<const ContentKey> a, std::span<const ContentKey> b) {
  return std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
}

std::span<const ContentKey> page_of(std::span<const ContentKey> contents, int64_t begin) {
  return contents.subspan(static_cast<size_t>(begin),
                          static_cast<size_t>(std::min(kKvPageTokens, std::ssize(contents) - begin)));
}

}  // namespace

PrefixKey::PrefixKey(std::span<const WeightedAdapter> adapters, std::string salt) : salt_(std::move(salt)) {
  for (const WeightedAdapter& a : adapters) adapters_.emplace_back(a.adapter, a.weight);
}

bool operator<(const PrefixKey& a, const PrefixKey& b) {
  if (a.salt_ != b.salt_) return a.salt_ < b.salt_;
  return std::lexicographical_compare(a.adapters_.begin(), a.adapters_.end(), b.adapters_.begin(), b.adapters_.end(),
                                      [](const auto& x, const auto& y) {
                                        if (x.first.owner_before(y.first) || y.first.owner_before(x.first))
                                          return x.first.owner_before(y.first);
                                        return x.second < y.second;
                                      });
}

bool PrefixKey::is_expired() const {
  return std::any_of(adapters_.begin(), adapters_.end(), [](const auto& adapter) { return adapter.first.expired(); });
}

uint64_t PrefixKey::hash() const {
  uint64_t hash = std::hash<std::string>()(salt_);
  for (const auto& [adapter, weight] : adapters_) {
    hash = mix(hash, reinterpret_cast<uintptr_t>(adapter.lock().get()));
    hash = mix(hash, std::bit_cast<uint32_t>(weight));
  }
  return hash;
}

std::optional<std::string> PrefixKey::text() const {
  std::string text = fmt::format("{}:{}", salt_.size(), salt_);
  for (const auto& [weak, weight] : adapters_) {
    const std::shared_ptr<const Adapter> adapter = weak.lock();
    if (!adapter || adapter->identity == 0) return std::nullopt;
    text += fmt::format(";{:016x}*{:08x}", adapter->identity, std::bit_cast<uint32_t>(weight));
  }
  return text;
}

std::span<const ContentKey> PrefixCache::ByContents::contents(const std::unique_ptr<Node>& node) {
  return node->contents;
}

PrefixCache::PrefixCache(StatePool& pool, int64_t max_unused_pages, std::unique_ptr<PageStore> disk)
    : pool_(pool), disk_(std::move(disk)), host_pages_(pool.num_groups()), max_unused_pages_(max_unused_pages),
      whole_group_(pool.num_groups()), held_(pool.num_groups()) {
  for (size_t g = 0; g < pool.num_groups(); ++g) {
    if (is_recurrent(g)) has_recurrent_ = true;
    else if (pool.group(g).window == 0) whole_group_ = g;
  }
  if (has_recurrent_) disk_ = nullptr;
  pool_.set_reclaimer(this);
}

PrefixCache::~PrefixCache() {
  clear();
  pool_.set_reclaimer(nullptr);
}

// --- Finding ---

PrefixCache::Path PrefixCache::match(const Node& root, std::span<const ContentKey> contents) const {
  Path path;
  for (const Node* node = &root; path.length < std::ssize(contents);) {
    const std::span<const ContentKey> page = page_of(contents, path.length);
    Node* best = nullptr;
    int64_t most = 0;
    const auto consider = [&](Children::const_iterator child) {
      const int64_t common = common_length((*child)->contents, page);
      if (common <= most) return;
      most = common;
      best = child->get();
    };
    const auto next = node->children.lower_bound(page);
    if (next != node->children.end()) consider(next);
    if (next != node->children.begin()) consider(std::prev(next));
    if (!best) break;
    path.nodes.push_back(best);
    path.length += most;
    if (most < kKvPageTokens) break;
    node = best;
  }
  return path;
}

bool PrefixCache::has_windows(const Path& path) const {
  for (size_t g = 0; g < pool_.num_groups(); ++g) {
    if (is_recurrent(g) || keeps_all(g)) continue;
    for (auto i = static_cast<size_t>(first_read_page(g, path.length)); i < path.nodes.size(); ++i)
      if (path.nodes[i]->pages[g] < 0) return false;
  }
  return true;
}

void PrefixCache::cut_to_restorable(Path& path, const Node& root, std::span<const ContentKey> contents) const {
  const auto has_states = [&](const Node& node) {
    for (size_t g = 0; g < pool_.num_groups(); ++g)
      if (is_recurrent(g) && node.pages[g] < 0) return false;
    return true;
  };
  for (; !path.nodes.empty(); path.nodes.pop_back()) {
    const int64_t begin = (std::ssize(path.nodes) - 1) * kKvPageTokens;
    path.length = std::min(path.length, begin + kKvPageTokens);
    if (!has_recurrent_) {
      if (has_windows(path)) return;
      continue;
    }
    // The recurrent state of a node is the one after its last token.
    const Node& parent = path.nodes.size() > 1 ? *path.nodes[path.nodes.size() - 2] : root;
    for (int64_t n = path.length - begin; n > 0; --n) {
      const auto child = parent.children.find(page_of(contents, begin).first(static_cast<size_t>(n)));
      if (child == parent.children.end() || !has_states(**child)) continue;
      path.nodes.back() = child->get();
      path.length = begin + n;
      if (has_windows(path)) return;
    }
  }
  path.length = 0;
}

const PrefixCache::Node* PrefixCache::find_root(const PrefixKey& key) const {
  const auto root = roots_.find(key);
  return root == roots_.end() ? nullptr : root->second.get();
}

bool PrefixCache::was_evicted(const PrefixKey& key, std::span<const ContentKey> contents, const Path& path) const {
  const auto whole = static_cast<size_t>(path.length / kKvPageTokens);
  uint64_t hash = whole > 0 ? path.nodes[whole - 1]->hash : key.hash();
  int64_t position = static_cast<int64_t>(whole) * kKvPageTokens;
  for (const ContentKey place : page_of(contents, position)) {
    hash = mix(hash, place);
    if (++position > path.length && remembers(hash)) return true;
  }
  return false;
}

bool PrefixCache::has_other_adapters(const PrefixKey& key, std::span<const ContentKey> contents, int64_t length) const {
  const int64_t enough = std::min(std::ssize(contents), length + kKvPageTokens);
  return std::any_of(roots_.begin(), roots_.end(), [&](const auto& root) {
    return root.first.salt() == key.salt() && match(*root.second, contents).length >= enough;
  });
}

CacheMiss PrefixCache::miss(const PrefixKey& key, std::span<const ContentKey> contents, const Path& found,
                            const Path& restored) const {
  if (restored.length == std::ssize(contents)) return CacheMiss::kNone;
  if (restored.length < found.length) return has_windows(found) ? CacheMiss::kSnapshot : CacheMiss::kWindow;
  if (was_evicted(key, contents, found)) return CacheMiss::kEvicted;
  return has_other_adapters(key, contents, found.length) ? CacheMiss::kOtherAdapter : CacheMiss::kNotStored;
}

PrefixMatch PrefixCache::find(const PrefixKey& key, std::span<const ContentKey> contents) const {
  PrefixMatch result;
  const Node* root = find_root(key);
  if (!root) return result;
  Path path = match(*root, contents);
  cut_to_restorable(path, *root, contents);
  result.length = path.length;
  const size_t g = pool_.counted_group();
  for (size_t i = 0; i < path.nodes.size(); ++i) {
    const int32_t page = path.nodes[i]->pages[g];
    if (page >= 0 && pool_.is_stored_only(g, page))
      result.unused_tokens += std::min(kKvPageTokens, path.length - static_cast<int64_t>(i) * kKvPageTokens);
  }
  return result;
}

PrefixRestored PrefixCache::restore(const PrefixKey& key, std::span<const ContentKey> contents, SequenceState& state) {
  load(key, contents);
  Path found, restored;
  if (const Node* root = find_root(key)) {
    restored = found = match(*root, contents);
    cut_to_restorable(restored, *root, contents);
  }
  const PrefixRestored result{restored.length, miss(key, contents, found, restored)};
  if (restored.length == 0) return result;
  std::vector<std::vector<int32_t>> pages(pool_.num_groups());
  for (size_t g = 0; g < pages.size(); ++g) {
    if (is_recurrent(g)) pages[g] = {restored.nodes.back()->pages[g]};
    else
      for (const Node* node : restored.nodes) pages[g].push_back(node->pages[g]);
  }
  state.restore(restored.length, pages);
  ++now_;
  for (Node* node : restored.nodes) use(*node);
  for (size_t g = 0; g < pages.size(); ++g) {
    if (keeps_all(g)) continue;
    const int64_t window = is_recurrent(g) ? 1 : pool_.group(g).window;
    const int64_t first = std::max<int64_t>(0, restored.length - window) / kKvPageTokens;
    for (auto i = static_cast<size_t>(first); i < restored.nodes.size(); ++i) use(*restored.nodes[i], g);
  }
  return result;
}

// --- Storing ---

PrefixCache::Node& PrefixCache::root_of(const PrefixKey& key) {
  std::unique_ptr<Node>& root = roots_[key];
  if (!root) {
    root = std::make_unique<Node>();
    root->hash = key.hash();
  }
  return *root;
}

PrefixCache::Node& PrefixCache::add(Node& parent, std::span<const ContentKey> contents) {
  auto node = std::make_unique<Node>();
  node->parent = &parent;
  node->contents.assign(contents.begin(), contents.end());
  node->pages.assign(pool_.num_groups(), -1);
  node->page_use.assign(pool_.num_groups(), 0);
  node->end = parent.end + std::ssize(contents);
  node->hash = mix(parent.hash, contents);
  node->id = next_id_++;
  node->last_use = now_;
  Node& result = *node;
  if (parent.parent && parent.children.empty()) leaves_.erase({parent.last_use, parent.id, &parent});
  parent.children.insert(std::move(node));
  leaves_.insert({result.last_use, result.id, &result});
  ++num_nodes_;
  return result;
}

PrefixCache::Node& PrefixCache::child_for(Node& parent, std::span<const ContentKey> contents) {
  const auto next = parent.children.lower_bound(contents);
  if (next != parent.children.end() && common_length((*next)->contents, contents) == std::ssize(contents) &&
      (!has_recurrent_ || (*next)->contents.size() == contents.size()))
    return **next;
  // A page that was partly filled is extended, unless a recurrent state is stored at its end.
  if (next != parent.children.begin() && !has_recurrent_) {
    const auto before = std::prev(next);
    if (common_length((*before)->contents, contents) == std::ssize((*before)->contents)) {
      Node& node = **before;
      auto handle = parent.children.extract(before);
      for (size_t g = 0; g < pool_.num_groups(); ++g) release(node, g);
      node.contents.assign(contents.begin(), contents.end());
      node.end = parent.end + std::ssize(contents);
      node.hash = mix(parent.hash, contents);
      parent.children.insert(std::move(handle));
      return node;
    }
  }
  return add(parent, contents);
}

void PrefixCache::store(const PrefixKey& key, std::span<const ContentKey> contents, SequenceState& state,
                        bool is_final) {
  REDLINE_CHECK(std::ssize(contents) == state.length());
  const int64_t stop = is_final ? state.length() : state.length() / kKvPageTokens * kKvPageTokens;
  if (stop == 0) return;
  ++now_;
  const std::vector<int64_t> snapshots = is_final && has_recurrent_ ? state.snapshot_lengths() : std::vector<int64_t>();
  const std::optional<std::string> text = disk_ ? key.text() : std::nullopt;
  bool is_kept = text.has_value();
  std::vector<PageName> names;
  Node* node = &root_of(key);
  for (int64_t begin = 0; begin < stop; begin += kKvPageTokens) {
    const std::span<const ContentKey> page = page_of(contents.first(static_cast<size_t>(stop)), begin);
    const auto store_child = [&](std::span<const ContentKey> part) -> Node& {
      Node& child = child_for(*node, part);
      use(child);
      if (child.contents.size() == part.size()) share_pages(child, state);
      return child;
    };
    for (const int64_t length : snapshots)
      if (begin < length && length < begin + std::ssize(page))
        store_child(page.first(static_cast<size_t>(length - begin)));
    node = &store_child(page);
    is_kept = is_kept && std::ssize(page) == kKvPageTokens && save(*node, *text);
    if (is_kept) names.push_back(node->disk_name);
  }
  if (is_final && !names.empty()) disk_->use(names);
  // Without a group that keeps every position, the sequence may have had no page here.
  if (is_useless(*node)) remove(*node);
}

// A node without pages on the path to other nodes, such as one before a window, gets a file with its tokens only.
bool PrefixCache::save(Node& node, const std::string& key) {
  const PageOfText page = disk_->page(node.parent->disk_name, key, node.contents);
  node.disk_name = page.name;
  if (disk_->has(page.name)) return true;
  std::vector<const uint8_t*> pages(pool_.num_groups(), nullptr);
  for (size_t g = 0; g < pages.size(); ++g)
    if (node.pages[g] >= 0 && (pages[g] = read_page(g, node.pages[g])) == nullptr) return false;
  return disk_->write(page, key, pages);
}

const uint8_t* PrefixCache::read_page(size_t g, int32_t page) {
  uint8_t* const place = place_of(g, page);
  const bool is_there = pool_.memory().is_host_memory(g) || pool_.memory().download_page(g, page, place).ok();
  return is_there ? place : nullptr;
}

uint8_t* PrefixCache::place_of(size_t g, int32_t page) {
  if (pool_.memory().is_host_memory(g)) return page_at(g, page);
  host_pages_[g].resize(static_cast<size_t>(pool_.group(g).page_bytes));
  return host_pages_[g].data();
}

bool PrefixCache::put_page(size_t g, int32_t page) {
  return pool_.memory().is_host_memory(g) || pool_.memory().upload_page(g, page, host_pages_[g].data()).ok();
}

/// The whole pages of a text: first the pages in the tree, then the pages in files.
struct PrefixCache::PagesOnDisk {
  PageStore& disk;
  const std::string& key;
  std::span<Node* const> known;
  std::vector<PageOfText> pages;
  mutable std::vector<std::optional<uint64_t>> groups;  ///< groups whose pages the files have; unset: not read yet

  uint64_t groups_of(size_t i) const {
    if (!groups[i]) groups[i] = disk.groups(pages[i], key).value_or(0);
    return *groups[i];
  }
  bool is_in_tree(size_t i, size_t g) const { return i < known.size() && known[i]->pages[g] >= 0; }
  bool has(size_t i, size_t g) const { return is_in_tree(i, g) || (groups_of(i) >> g & 1); }
};

int64_t PrefixCache::restorable_pages(const PagesOnDisk& pages, int64_t least) const {
  const auto is_restorable = [&](int64_t count) {
    for (size_t g = 0; g < pool_.num_groups(); ++g) {
      if (keeps_all(g)) continue;
      for (int64_t i = first_read_page(g, count * kKvPageTokens); i < count; ++i)
        if (!pages.has(static_cast<size_t>(i), g)) return false;
    }
    return true;
  };
  int64_t count = std::ssize(pages.pages);
  while (count > least && !is_restorable(count)) --count;
  return count;
}

void PrefixCache::load(const PrefixKey& key, std::span<const ContentKey> contents) {
  if (!disk_) return;
  const int64_t num_whole = std::ssize(contents) / kKvPageTokens;
  const std::optional<std::string> text = key.text();
  if (!text) return;
  Path path;
  int64_t in_memory = 0;
  if (const Node* root = find_root(key)) {
    path = match(*root, contents);
    Path restorable = path;
    cut_to_restorable(restorable, *root, contents);
    in_memory = restorable.length / kKvPageTokens;
  }
  if (in_memory >= num_whole) return;
  path.nodes.resize(static_cast<size_t>(path.length / kKvPageTokens));
  PagesOnDisk on_disk{*disk_, *text, path.nodes, {}, {}};
  for (int64_t i = 0; i < num_whole; ++i) {
    const PageName parent = on_disk.pages.empty() ? PageName{} : on_disk.pages.back().name;
    const PageOfText page = disk_->page(parent, *text, page_of(contents, i * kKvPageTokens));
    std::optional<uint64_t> groups;
    if (i >= std::ssize(path.nodes)) {
      if (!disk_->has(page.name)) break;
      groups = disk_->groups(page, *text);
      if (!groups || (whole_group_ < pool_.num_groups() && !(*groups >> whole_group_ & 1))) break;
    }
    on_disk.pages.push_back(page);
    on_disk.groups.push_back(groups);
  }
  const int64_t count = restorable_pages(on_disk, in_memory);
  if (count == in_memory) return;
  // References keep the loaded pages from being evicted when a new page needs room.
  std::vector<std::pair<size_t, int32_t>> held;
  for (Node* node : path.nodes)
    for (size_t g = 0; g < pool_.num_groups(); ++g)
      if (node->pages[g] >= 0) {
        pool_.share(g, node->pages[g]);
        held.emplace_back(g, node->pages[g]);
      }
  Node* node = path.nodes.empty() ? nullptr : path.nodes.back();
  if (node) node->is_pinned = true;
  ++now_;
  std::vector<PageName> names;
  for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
    uint64_t wanted = 0;
    for (size_t g = 0; g < pool_.num_groups(); ++g)
      if (static_cast<int64_t>(i) >= first_read_page(g, count * kKvPageTokens) && !on_disk.is_in_tree(i, g))
        wanted |= uint64_t{1} << g;
    std::vector<int32_t> pages(pool_.num_groups(), -1);
    const auto place = [&](size_t g) -> uint8_t* {
      const std::optional<int32_t> page = pool_.take(g);
      if (!page) return nullptr;
      held.emplace_back(g, *page);
      pages[g] = *page;
      return place_of(g, *page);
    };
    if (wanted != 0 && !disk_->read(on_disk.pages[i], *text, wanted, place)) break;
    bool is_whole = true;
    for (size_t g = 0; g < pages.size(); ++g) is_whole = is_whole && (pages[g] < 0 || put_page(g, pages[g]));
    if (!is_whole) break;
    Node* to = i < path.nodes.size() ? path.nodes[i] : nullptr;
    if (!to) {
      // A root without children may have gone while pages were reclaimed.
      to = &child_for(node ? *node : root_of(key), on_disk.pages[i].contents);
      if (node) node->is_pinned = false;
      node = to;
      node->is_pinned = true;
      use(*node);
    }
    for (size_t g = 0; g < pages.size(); ++g)
      if (pages[g] >= 0 && to->pages[g] < 0) hold(*to, g, pages[g]);
    to->disk_name = on_disk.pages[i].name;
    names.push_back(to->disk_name);
  }
  if (node) node->is_pinned = false;
  if (node && is_useless(*node)) remove(*node);
  for (const auto& [g, page] : held) pool_.drop(g, page);
  disk_->use(names);
}

bool PrefixCache::is_useless(const Node& node) {
  return !node.is_pinned && node.children.empty() &&
         std::all_of(node.pages.begin(), node.pages.end(), [](int32_t page) { return page < 0; });
}

void PrefixCache::share_pages(Node& node, SequenceState& state) {
  const int64_t index = (node.end - 1) / kKvPageTokens;
  for (size_t g = 0; g < pool_.num_groups(); ++g) {
    const int32_t page = is_recurrent(g) ? state.recurrent_page_at(g, node.end) : state.page_at(g, index);
    if (page < 0) continue;
    if (node.pages[g] < 0) hold(node, g, page);
    else if (node.pages[g] != page && !is_recurrent(g)) state.replace_page(g, index, node.pages[g]);
    use(node, g);
  }
}

void PrefixCache::hold(Node& node, size_t g, int32_t page) {
  pool_.store(g, page);
  node.pages[g] = page;
  node.page_use[g] = now_;
  if (!keeps_all(g)) held_[g].insert({now_, node.id, &node});
}

void PrefixCache::release(Node& node, size_t g) {
  if (node.pages[g] < 0) return;
  pool_.drop_stored(g, node.pages[g]);
  node.pages[g] = -1;
  if (!keeps_all(g)) held_[g].erase({node.page_use[g], node.id, &node});
}

void PrefixCache::use(Node& node, size_t g) {
  if (keeps_all(g) || node.pages[g] < 0) return;
  held_[g].erase({node.page_use[g], node.id, &node});
  node.page_use[g] = now_;
  held_[g].insert({now_, node.id, &node});
}

void PrefixCache::use(Node& node) {
  const bool is_leaf = node.children.empty();
  if (is_leaf) leaves_.erase({node.last_use, node.id, &node});
  node.last_use = now_;
  if (is_leaf) leaves_.insert({now_, node.id, &node});
}

// --- Removing ---

PrefixCache::Node& PrefixCache::remove(Node& leaf) {
  Node* node = &leaf;
  do {
    Node* const parent = node->parent;
    leaves_.erase({node->last_use, node->id, node});
    for (size_t g = 0; g < pool_.num_groups(); ++g) release(*node, g);
    remember(node->hash);
    remember(mix(parent->hash, node->contents[0]));  // found by prompts that end within the page
    parent->children.erase(parent->children.find(std::span<const ContentKey>(node->contents)));
    --num_nodes_;
    if (parent->parent && parent->children.empty()) leaves_.insert({parent->last_use, parent->id, parent});
    node = parent;
  } while (node->parent && is_useless(*node));
  return *node;
}

// This is not recursive, because a text may have more nodes than the stack has frames.
void PrefixCache::remove_below(Node& root) {
  for (Node* node = &root;;) {
    while (!node->children.empty()) node = node->children.begin()->get();
    if (node == &root) return;
    node = &remove(*node);
  }
}

void PrefixCache::clear() {
  for (auto& [key, root] : roots_) remove_below(*root);
  roots_.clear();
}

void PrefixCache::drop_expired() {
  for (auto root = roots_.begin(); root != roots_.end();) {
    if (root->first.is_expired()) remove_below(*root->second);
    root = root->second->children.empty() ? roots_.erase(root) : std::next(root);
  }
}

void PrefixCache::reclaim(size_t g) {
  drop_expired();
  while (pool_.num_free(g) == 0) evict(g);
}

void PrefixCache::trim() {
  const size_t g = pool_.counted_group();
  while (pool_.num_stored_only(g) > max_unused_pages_) evict(g);
}

void PrefixCache::evict(size_t g) {
  const std::set<Use>& candidates = keeps_all(g) ? leaves_ : held_[g];
  const auto oldest = std::find_if(candidates.begin(), candidates.end(), [&](const Use& use) {
    return use.node->pages[g] >= 0 && pool_.is_stored_only(g, use.node->pages[g]);
  });
  REDLINE_CHECK(oldest != candidates.end());
  Node& node = *oldest->node;
  if (!keeps_all(g)) release(node, g);
  if (keeps_all(g) || is_useless(node)) remove(node);
}

void PrefixCache::remember(uint64_t hash) {
  if (evicted_.empty()) evicted_.resize(kRemembered);
  evicted_[hash % kRemembered] = hash;
}

bool PrefixCache::remembers(uint64_t hash) const { return !evicted_.empty() && evicted_[hash % kRemembered] == hash; }

}  // namespace redline
