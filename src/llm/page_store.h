// Stores pages of the prefix cache on disk. Pages that were evicted from memory, or stored by an earlier engine, are
// read back instead of computed again.
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
#include "redline/prompt.h"

namespace redline {

struct PageStoreOptions {
  std::string folder;
  int64_t max_bytes = 0;  ///< maximum bytes of the files of all models in the folder
  /// Hash of everything that the contents of a page depend on besides contents and key: weights, format, kernels.
  uint64_t identity = 0;
  std::vector<int64_t> page_bytes;  ///< bytes of a page, by state group
  /// Called by any thread when a file cannot be used or written. The engine continues without it.
  std::function<void(const std::string&)> on_notice;
  int64_t max_queued_bytes = int64_t{256} << 20;  ///< maximum bytes of pages that wait to be written
};

/// Name of a page: two hashes of the key and all contents of a text up to the end of the page. {} names the beginning
/// of every text.
struct PageName {
  uint64_t a = 0, b = 0;
  bool is_beginning() const { return a == 0 && b == 0; }
  friend bool operator==(const PageName&, const PageName&) = default;
};

/// One page of a text with a key.
struct PageOfText {
  PageName name, parent;  ///< names of the text up to the end of this page, and up to its beginning
  std::span<const ContentKey> contents;
};

/// Stores each page in a file, which has the page's content keys, its name and the name of its predecessor. A page is
/// stored only after its predecessors, so that every file can be reached. A background thread writes files under a
/// temporary name and renames them. When the limit of the folder is reached, the least recently used files are removed.
/// Thread-safe.
class PageStore {
 public:
  /// io: the folder cannot be created, or is not writable.
  static Result<std::unique_ptr<PageStore>> open(PageStoreOptions options);
  /// Writes the queued pages.
  ~PageStore();
  PageStore(const PageStore&) = delete;
  PageStore& operator=(const PageStore&) = delete;

  PageOfText page(const PageName& parent, const std::string& key, std::span<const ContentKey> contents) const;
  /// Returns true if the page is stored or queued, as far as this store knows: another engine may have removed it.
  bool has(const PageName& name) const;
  /// Queues one page per state group, nullptr for groups without one; the bytes are copied. Returns false if too much
  /// is queued or the preceding page is not stored. Then the following pages cannot be stored either.
  bool write(const PageOfText& page, const std::string& key, std::span<const uint8_t* const> pages);
  /// Returns a mask whose bit g is set if the file has the page of state group g. Returns nullopt if there is no file,
  /// or, after a notice, if the file is damaged or of another text.
  std::optional<uint64_t> groups(const PageOfText& page, const std::string& key);
  /// Reads the pages of `groups`, a mask of pages that the file has, to the addresses `place(g)`. Returns false in the
  /// cases of groups(), or if an address is null; some pages may have been written then.
  bool read(const PageOfText& page, const std::string& key, uint64_t groups,
            const std::function<uint8_t*(size_t g)>& place);
  /// Marks the pages of a text as used, so that they are removed last, and the first page after the others. Has no
  /// effect if too much is queued.
  void use(std::span<const PageName> names);
  /// Waits until nothing is queued.
  void flush();

  /// Returns the number of files of this model that this store has seen.
  int64_t num_files() const;
  /// Returns the bytes of the folder at this store's last write.
  int64_t bytes() const;

 private:
  struct Hash {
    size_t operator()(const PageName& name) const { return name.a; }
  };
  using Names = std::unordered_set<PageName, Hash>;
  /// A file that is not written yet. The writing thread fills in checksums; it does not change key, contents and pages.
  struct Queued {
    std::shared_ptr<std::vector<uint8_t>> file;
    uint64_t groups = 0;
  };
  struct Job {
    PageName name, parent;
    Queued page;
    std::vector<std::string> uses;  ///< file names to mark as used, if the job is not a page
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
  PageFolder folder_;  ///< used only by the writing thread
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
