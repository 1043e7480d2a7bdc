// Cache of the states that requests with equal prefixes share: a radix tree over pages of content keys.
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
#include "redline/prompt.h"
#include "redline/text.h"

namespace redline {

/// Key of a prefix besides its tokens: the adapters, which its state depends on, and the salt, which separates
/// requests.
class PrefixKey {
 public:
  PrefixKey() = default;
  PrefixKey(std::span<const WeightedAdapter> adapters, std::string salt);
  friend bool operator<(const PrefixKey& a, const PrefixKey& b);
  const std::string& salt() const { return salt_; }
  uint64_t hash() const;
  /// Returns a text that is equal in every process that has loaded the same adapters; nullopt if an adapter's contents
  /// are unknown.
  std::optional<std::string> text() const;
  /// Returns true if one of the adapters was unloaded and is no longer in use.
  bool is_expired() const;

 private:
  /// Adapters are weak pointers because an adapter that is loaded again under the same name is a different one, even at
  /// the same address.
  std::vector<std::pair<std::weak_ptr<const Adapter>, float>> adapters_;
  std::string salt_;
};

struct PrefixRestored {
  int64_t length = 0;
  CacheMiss miss = CacheMiss::kNotStored;  ///< why the restored prefix is not longer
};

/// A node of the tree holds the state of kKvPageTokens tokens, or of fewer at the end of a text: one page of each group
/// of the pool, which for a recurrent group is the state after the last token. A sequence that starts from a prefix
/// shares these pages and copies a page before it writes to it. Its references protect the pages from eviction.
///
/// When the pool needs a page of the layers that keep every position, the least recently used leaf that no sequence
/// holds is evicted. Pages of sliding windows and recurrent states are evicted one by one, least recently used first; a
/// prefix can then be restored only where the window before its end is complete, or where a recurrent state is stored.
///
/// Called by the thread that runs the steps, with the stepper's mutex held.
class PrefixCache final : public PageReclaimer {
 public:
  /// `pool` must outlive the cache. `max_unused_pages`: see trim(). With `disk`, whole pages are also written to disk
  /// when they are stored, and reloaded after eviction; recurrent states are not.
  explicit PrefixCache(StatePool& pool, int64_t max_unused_pages = INT64_MAX,
                       std::unique_ptr<PageStore> disk = nullptr);
  ~PrefixCache() override;
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;

  /// Returns the longest stored prefix of `contents`: the content keys of a text.
  PrefixMatch find(const PrefixKey& key, std::span<const ContentKey> contents) const;
  /// Sets `state`, which must be new, to the state of the longest stored prefix of `contents`.
  PrefixRestored restore(const PrefixKey& key, std::span<const ContentKey> contents, SequenceState& state);
  /// Stores the whole pages of a sequence with these contents. If equal pages are stored already, the sequence uses
  /// these instead of its own. `is_final`: the sequence writes no more, so its last, perhaps partly filled page is
  /// stored too.
  void store(const PrefixKey& key, std::span<const ContentKey> contents, SequenceState& state, bool is_final);

  void reclaim(size_t g) override;
  /// Evicts until the cache alone holds at most max_unused_pages of the group that StatePool::free_tokens() counts.
  /// Without this, pages that were written once would keep their memory.
  void trim();
  /// Removes all nodes. Sequences keep the pages that they hold.
  void clear();
  int64_t num_nodes() const { return num_nodes_; }
  PageStore* disk() { return disk_.get(); }

 private:
  struct Node;
  /// Orders children by their contents, so that the children next to a text share the most tokens with it.
  struct ByContents {
    using is_transparent = void;
    static std::span<const ContentKey> contents(const std::unique_ptr<Node>& node);
    static std::span<const ContentKey> contents(std::span<const ContentKey> contents) { return contents; }
    template <class A, class B>
    bool operator()(const A& a, const B& b) const {
      const std::span<const ContentKey> x = contents(a), y = contents(b);
      return std::lexicographical_compare(x.begin(), x.end(), y.begin(), y.end());
    }
  };
  using Children = std::set<std::unique_ptr<Node>, ByContents>;
  struct Node {
    Node* parent = nullptr;
    std::vector<ContentKey> contents;
    std::vector<int32_t> pages;  ///< page of each group; -1: none
    Children children;
    int64_t end = 0;        ///< position after the node's last token
    uint64_t hash = 0;      ///< hash of the key and all contents up to `end`
    uint64_t last_use = 0;  ///< last use of the page of the layers that keep every position
    std::vector<uint64_t> page_use;
    uint64_t id = 0;
    PageName disk_name;      ///< name of a whole page that save() has queued for the disk
    bool is_pinned = false;  ///< load() uses the node, although it may hold no page
  };
  /// Order of eviction: least recently used first. Within a text, pages of sliding windows are evicted from its
  /// beginning.
  struct Use {
    uint64_t last_use, id;
    Node* node;
    friend bool operator<(const Use& a, const Use& b) {
      return a.last_use != b.last_use ? a.last_use < b.last_use : a.id < b.id;
    }
  };
  /// The nodes that hold a prefix of a text. The prefix may end within the last node's page.
  struct Path {
    std::vector<Node*> nodes;
    int64_t length = 0;
  };

  Path match(const Node& root, std::span<const ContentKey> contents) const;
  /// Cuts a path to the longest part whose state can be restored.
  void cut_to_restorable(Path& path, const Node& root, std::span<const ContentKey> contents) const;
  bool has_windows(const Path& path) const;
  CacheMiss miss(const PrefixKey& key, std::span<const ContentKey> contents, const Path& found,
                 const Path& restored) const;
  bool was_evicted(const PrefixKey& key, std::span<const ContentKey> contents, const Path& path) const;
  bool has_other_adapters(const PrefixKey& key, std::span<const ContentKey> contents, int64_t length) const;
  const Node* find_root(const PrefixKey& key) const;
  bool is_recurrent(size_t g) const { return pool_.group(g).kind == StateKind::kRecurrent; }
  bool keeps_all(size_t g) const { return g == whole_group_; }

  Node& root_of(const PrefixKey& key);
  Node& add(Node& parent, std::span<const ContentKey> contents);
  /// Returns the child for a page of a text: a new one, or an existing one whose tokens the page begins with.
  Node& child_for(Node& parent, std::span<const ContentKey> contents);
  /// Adds the pages of a text that are on disk but not in the tree, if they make a longer prefix restorable.
  void load(const PrefixKey& key, std::span<const ContentKey> contents);
  struct PagesOnDisk;
  /// Returns the number of pages that load() reads: those of the longest prefix whose state can be restored.
  int64_t restorable_pages(const PagesOnDisk& pages, int64_t least) const;
  /// Writes a node, which must be a whole page, to the disk. Returns false if the following pages cannot be kept on
  /// disk.
  bool save(Node& node, const std::string& key);
  /// Returns the first page that the token after `length` tokens reads.
  int64_t first_read_page(size_t g, int64_t length) const {
    return keeps_all(g) ? 0 : std::max<int64_t>(0, length - pool_.group(g).window + 1) / kKvPageTokens;
  }
  /// Returns the address of a page's contents for writing to disk: the page itself, or a copy on the host. nullptr: the
  /// device has failed.
  const uint8_t* read_page(size_t g, int32_t page);
  /// Returns the address to which a page may be read from disk; nullptr: the device has failed. put_page() then
  /// completes the page; it returns false if the device has failed.
  uint8_t* place_of(size_t g, int32_t page);
  bool put_page(size_t g, int32_t page);
  uint8_t* page_at(size_t g, int32_t page) const {
    return pool_.memory().pages(g) + int64_t{page} * pool_.group(g).page_bytes;
  }
  /// Takes the pages that the node lacks from a sequence, and replaces the sequence's other pages by those of the node.
  void share_pages(Node& node, SequenceState& state);
  void hold(Node& node, size_t g, int32_t page);
  void release(Node& node, size_t g);
  void use(Node& node, size_t g);
  void use(Node& node);
  static bool is_useless(const Node& node);
  /// Removes a leaf and those ancestors that are useless without it. Returns the parent of the last removed node.
  Node& remove(Node& leaf);
  void remove_below(Node& node);
  void drop_expired();
  /// Evicts one or more pages of the group; some may be shared.
  void evict(size_t g);
  void remember(uint64_t hash);
  bool remembers(uint64_t hash) const;

  StatePool& pool_;
  std::unique_ptr<PageStore> disk_;
  std::vector<std::vector<uint8_t>> host_pages_;  ///< by group: buffer for the copy of a page that is on a device
  int64_t max_unused_pages_;
  size_t whole_group_;  ///< the group that keeps every position; num_groups(): none does
  bool has_recurrent_ = false;
  std::map<PrefixKey, std::unique_ptr<Node>> roots_;
  std::set<Use> leaves_;
  std::vector<std::set<Use>> held_;  ///< by group, except whole_group_: the nodes that hold a page
  uint64_t now_ = 0, next_id_ = 0;
  int64_t num_nodes_ = 0;
  /// Hashes of removed nodes, up to their first and their last token. A hash table without chains: a new hash
  /// overwrites the old one in its slot.
  std::vector<uint64_t> evicted_;
};

}  // namespace redline
