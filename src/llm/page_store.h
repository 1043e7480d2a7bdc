// Pages of the prefix cache on disk: what is evicted from memory, or was stored by an engine before, is read back
// instead of computed again.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/error.h"
#include "base/mapped_file.h"
#include "llm/page_folder.h"

namespace redline {

struct PageStoreOptions {
  std::string folder;
  int64_t max_bytes = 0;  ///< of the files of all models in the folder
  /// Of everything besides tokens and key that the contents of a page depend on: weights, format, kernels.
  uint64_t identity = 0;
  std::vector<int64_t> page_bytes;  ///< by state group
  /// Called by any thread when a file cannot be used or written. The engine continues without it.
  std::function<void(const std::string&)> on_notice;
  int64_t max_queued_bytes = int64_t{256} << 20;  ///< of pages that wait to be written
};

/// Two hashes of a text: its key and all its tokens. {} is the beginning of every text.
struct PageName {
  uint64_t a = 0, b = 0;
  bool is_beginning() const { return a == 0 && b == 0; }
  friend bool operator==(const PageName&, const PageName&) = default;
};

/// One page of a text with a key.
struct PageOfText {
  PageName name, parent;  ///< of the text with it, and before it
  std::span<const int32_t> tokens;
};

/// A file per page, which states its own tokens and the names of the text with it and before it. A page is kept only
/// after its predecessors, so that every file can be reached. Files are written under a temporary name and renamed, by
/// a thread of their own; the ones used least recently go when the limit of the folder is reached. Thread-safe.
class PageStore {
 public:
  /// io: the folder cannot be created, or is not writable.
  static Result<std::unique_ptr<PageStore>> open(PageStoreOptions options);
  /// Writes what is queued.
  ~PageStore();
  PageStore(const PageStore&) = delete;
  PageStore& operator=(const PageStore&) = delete;

  PageOfText page(const PageName& parent, const std::string& key, std::span<const int32_t> tokens) const;
  /// Whether the page is there or queued. Another engine may have removed it.
  bool has(const PageName& name) const;
  /// Queues the page of each state group, nullptr where the text has none; the bytes are copied. False: too much is
  /// queued, or the page before it is not there. What follows it can not be kept either then.
  bool write(const PageOfText& page, const std::string& key, std::span<const uint8_t* const> pages);
  /// Bit g: the file has the page of state group g. nullopt, after a notice unless there is no such file: it is not
  /// that of this text, or broken.
  std::optional<uint64_t> groups(const PageOfText& page, const std::string& key);
  /// Fills the pages of `groups`, which the file has, from it: `place(g)` is called for each. False: as groups(), or a
  /// place is null; some pages may have been written.
  bool read(const PageOfText& page, const std::string& key, uint64_t groups,
            const std::function<uint8_t*(size_t g)>& place);
  /// A text is used: its pages are the last to go, the first page after the others. Without effect if too much is
  /// queued.
  void use(std::span<const PageName> names);
  /// Waits until nothing is queued.
  void flush();

  /// Files of this model that this store has seen.
  int64_t num_files() const;
  /// Bytes of the folder at this store's last write.
  int64_t bytes() const;

 private:
  struct Hash {
    size_t operator()(const PageName& name) const { return name.a; }
  };
  using Names = std::unordered_set<PageName, Hash>;
  /// A file that is not written yet. The writing thread fills in checksums; the key, the tokens and the pages stay.
  struct Queued {
    std::shared_ptr<std::vector<uint8_t>> file;
    uint64_t groups = 0;
  };
  struct Job {
    PageName name, parent;
    Queued page;
    std::vector<std::string> uses;  ///< instead of a page
    int64_t bytes() const { return (page.file ? std::ssize(*page.file) : 0) + 64 * std::ssize(uses); }
  };
  struct Layout;
  PageStore(PageStoreOptions options, PageFolder folder);
  std::string file_name(const PageName& name) const;
  std::optional<PageName> name_of(const std::string& file) const;
  void push(Job job);
  void write_queued();
  void write_file(Job& job);
  Result<Layout> check_head(const MappedFile& file, const PageOfText& page, const std::string& key) const;
  std::shared_ptr<MappedFile> open_file(const PageName& name);
  std::optional<Queued> find_queued(const PageName& name) const;
  void remove(const PageName& name, const Status& why);
  void notice(const std::string& text) const;

  PageStoreOptions options_;
  PageFolder folder_;  ///< of the writing thread
  bool is_failing_ = false;
  mutable std::mutex mutex_;  ///< guards the members below
  std::condition_variable changed_;
  Names known_;
  std::unordered_map<PageName, Queued, Hash> queued_;
  std::deque<Job> queue_;
  int64_t queued_bytes_ = 0, bytes_ = 0;
  bool stops_ = false, is_writing_ = false, has_removed_ = false;
  std::thread thread_;
};

}  // namespace redline
