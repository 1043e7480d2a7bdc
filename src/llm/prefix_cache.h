// State that requests with the same beginning share: a radix tree over pages of tokens.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "graph/adapters.h"
#include "llm/page_store.h"
#include "llm/scheduler.h"
#include "llm/state_pool.h"
#include "redline/text.h"

namespace redline {

/// What the state of a prefix depends on besides its tokens, and the salt that keeps requests apart.
class PrefixKey {
 public:
  PrefixKey() = default;
  PrefixKey(std::span<const WeightedAdapter> adapters, std::string salt);
  friend bool operator<(const PrefixKey& a, const PrefixKey& b);
  const std::string& salt() const { return salt_; }
  uint64_t hash() const;
  /// The same in every process that has loaded the same adapters; nullopt: an adapter's contents are unknown.
  std::optional<std::string> text() const;
  /// Whether one of the adapters was unloaded and is no longer in use.
  bool is_expired() const;

 private:
  /// weak_ptr: an adapter that is loaded again under the same name is another one, even at the same address.
  std::vector<std::pair<std::weak_ptr<const Adapter>, float>> adapters_;
  std::string salt_;
};

struct PrefixRestored {
  int64_t length = 0;
  CacheMiss miss = CacheMiss::kNotStored;  ///< why it is not longer
};

/// A node of the tree is one page of kKvPageTokens tokens, or fewer at the end of a text, with its pages of all groups
/// of the pool and, for recurrent groups, the state after its last token. A sequence that starts from a prefix shares
/// these pages, so paths in use are locked by the references to their pages; it copies a page that it writes to.
///
/// When the pool needs a page of the layers that keep every position, the leaf goes that was used least recently and
/// that no sequence holds. Pages of sliding windows and recurrent states are evicted one by one, least recently used
/// first; a prefix can then be restored only where the window before its end is complete, or where a recurrent state is
/// stored.
///
/// Called by the thread that runs the steps, with the stepper's mutex held.
class PrefixCache final : public PageReclaimer {
 public:
  /// `pool` must outlive the cache. `max_unused_pages`: as in trim(). With `disk`, whole pages are also written there
  /// as they are stored, and reloaded after eviction; not for recurrent states.
  explicit PrefixCache(StatePool& pool, int64_t max_unused_pages = INT64_MAX,
                       std::unique_ptr<PageStore> disk = nullptr);
  ~PrefixCache() override;
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;

  /// The longest stored prefix of `tokens`.
  PrefixMatch find(const PrefixKey& key, std::span<const int32_t> tokens) const;
  /// Gives `state`, which is new, the state of the longest stored prefix of `tokens`.
  PrefixRestored restore(const PrefixKey& key, std::span<const int32_t> tokens, SequenceState& state);
  /// Stores the whole pages of a sequence with these tokens; what is stored already takes the place of its own pages.
  /// `is_final`: the sequence writes no more, so that its last page, which may be partly filled, is stored too.
  void store(const PrefixKey& key, std::span<const int32_t> tokens, SequenceState& state, bool is_final);

  void reclaim(size_t g) override;
  /// Evicts until at most max_unused_pages, of the group that StatePool::free_tokens() counts, are held by the cache
  /// alone: written memory is not released automatically.
  void trim();
  /// Drops everything. Sequences keep the pages that they hold.
  void clear();
  int64_t num_nodes() const { return num_nodes_; }
  PageStore* disk() { return disk_.get(); }

 private:
  struct Node;
  /// Children in the order of their tokens: the neighbours of a text share the most tokens with it.
  struct ByTokens {
    using is_transparent = void;
    static std::span<const int32_t> tokens(const std::unique_ptr<Node>& node);
    static std::span<const int32_t> tokens(std::span<const int32_t> tokens) { return tokens; }
    template <class A, class B>
    bool operator()(const A& a, const B& b) const {
      const std::span<const int32_t> x = tokens(a), y = tokens(b);
      return std::lexicographical_compare(x.begin(), x.end(), y.begin(), y.end());
    }
  };
  using Children = std::set<std::unique_ptr<Node>, ByTokens>;
  struct Node {
    Node* parent = nullptr;
    std::vector<int32_t> tokens;
    std::vector<int32_t> pages;  ///< by group; -1: none
    Children children;
    int64_t end = 0;        ///< position after its last token
    uint64_t hash = 0;      ///< of all tokens up to there, and the key
    uint64_t last_use = 0;  ///< of its page of the layers that keep every position
    std::vector<uint64_t> page_use;
    uint64_t id = 0;
    PageName disk_name;      ///< of a whole page that was to be kept on disk
    bool is_pinned = false;  ///< in use by load(), although it may hold no page
  };
  /// Least recently used first. Of a text, pages of windows go from its beginning.
  struct Use {
    uint64_t last_use, id;
    Node* node;
    friend bool operator<(const Use& a, const Use& b) {
      return a.last_use != b.last_use ? a.last_use < b.last_use : a.id < b.id;
    }
  };
  /// The nodes that hold a beginning of a text; of the last one, perhaps only a beginning of its page.
  struct Path {
    std::vector<Node*> nodes;
    int64_t length = 0;
  };

  Path match(const Node& root, std::span<const int32_t> tokens) const;
  /// Cuts a path to the longest part whose state can be restored.
  void cut_to_restorable(Path& path, const Node& root, std::span<const int32_t> tokens) const;
  bool has_windows(const Path& path) const;
  CacheMiss miss(const PrefixKey& key, std::span<const int32_t> tokens, const Path& found, const Path& restored) const;
  bool was_evicted(const PrefixKey& key, std::span<const int32_t> tokens, const Path& path) const;
  bool has_other_adapters(const PrefixKey& key, std::span<const int32_t> tokens, int64_t length) const;
  const Node* find_root(const PrefixKey& key) const;
  bool is_recurrent(size_t g) const { return pool_.group(g).kind == StateKind::kRecurrent; }
  bool keeps_all(size_t g) const { return g == whole_group_; }

  Node& root_of(const PrefixKey& key);
  Node& add(Node& parent, std::span<const int32_t> tokens);
  /// The child for this page of a text, new or with tokens that begin it.
  Node& child_for(Node& parent, std::span<const int32_t> tokens);
  /// Adds the pages of a text that are on disk and not in the tree, if they help to restore it.
  void load(const PrefixKey& key, std::span<const int32_t> tokens);
  struct PagesOnDisk;
  /// Where load() reads to: the longest text whose state can be restored.
  int64_t restorable_pages(const PagesOnDisk& pages, int64_t least) const;
  /// The node is a whole page. False: what follows it cannot be kept on disk.
  bool save(Node& node, const std::string& key);
  /// First page that the next token reads after `length` tokens.
  int64_t first_read_page(size_t g, int64_t length) const {
    return keeps_all(g) ? 0 : std::max<int64_t>(0, length - pool_.group(g).window + 1) / kKvPageTokens;
  }
  /// A page for the disk to read: its address, or that of a copy on the host. nullptr: the device has failed.
  const uint8_t* read_page(size_t g, int32_t page);
  /// Where the disk may write a page, which put_page() then completes. False: the device has failed.
  uint8_t* place_of(size_t g, int32_t page);
  bool put_page(size_t g, int32_t page);
  uint8_t* page_at(size_t g, int32_t page) const {
    return pool_.memory().pages(g) + int64_t{page} * pool_.group(g).page_bytes;
  }
  /// Takes the pages of a sequence that the node lacks, and gives it those that it has.
  void share_pages(Node& node, SequenceState& state);
  void hold(Node& node, size_t g, int32_t page);
  void release(Node& node, size_t g);
  void use(Node& node, size_t g);
  void use(Node& node);
  static bool is_useless(const Node& node);
  /// Removes a leaf, and its ancestors that are useless without it. Returns the parent of the last one.
  Node& remove(Node& leaf);
  void remove_below(Node& node);
  void drop_expired();
  /// Evicts one or more pages of the group; some may be shared.
  void evict(size_t g);
  void remember(uint64_t hash);
  bool remembers(uint64_t hash) const;

  StatePool& pool_;
  std::unique_ptr<PageStore> disk_;
  std::vector<std::vector<uint8_t>> host_pages_;  ///< by group: the copy of a page that lies on a device
  int64_t max_unused_pages_;
  size_t whole_group_;  ///< keeps every position; num_groups(): there is none
  bool has_recurrent_ = false;
  std::map<PrefixKey, std::unique_ptr<Node>> roots_;
  std::set<Use> leaves_;
  std::vector<std::set<Use>> held_;  ///< by group, except whole_group_: the nodes with a page
  uint64_t now_ = 0, next_id_ = 0;
  int64_t num_nodes_ = 0;
  /// Of removed nodes: hashes up to the first and the last token, each at a place of its own until another one takes
  /// it.
  std::vector<uint64_t> evicted_;
};

}  // namespace redline
