// Pages of the prefix cache on disk: what is evicted from memory, or was stored by an engine before, is read back instead
// of computed again.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <list>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/error.h"

namespace redline {

struct PageStoreOptions {
  std::string folder;
  int64_t max_bytes = 0;  ///< of the files of all models in the folder
  /// Of everything besides tokens and key that the contents of a page depend on: weights, format, kernels.
  uint64_t identity = 0;
  std::vector<int64_t> page_bytes;  ///< by state group
  /// Called, by any thread, when a file cannot be used or written. The engine goes on without it.
  std::function<void(const std::string&)> on_notice;
};

/// A file per page, which states the whole text up to its last token: hashes only name files. Files are written beside
/// their name and renamed, by a thread of their own; the ones used least recently go when the limit is reached. Several
/// engines may share a folder. Thread-safe.
class PageStore {
 public:
  /// io: the folder cannot be created, or is not writable.
  static Result<std::unique_ptr<PageStore>> open(PageStoreOptions options);
  /// Writes what is queued.
  ~PageStore();
  PageStore(const PageStore&) = delete;
  PageStore& operator=(const PageStore&) = delete;

  /// Names the text that ends with `tokens` after the text named `parent`; 0 is the beginning.
  uint64_t name(uint64_t parent, const std::string& key, std::span<const int32_t> tokens) const;
  bool has(uint64_t name) const;
  /// Queues the page of each state group, nullptr where the text has none; the bytes are copied. `tokens` is the whole
  /// text. False: it is there already, or too much is queued.
  bool write(uint64_t name, const std::string& key, std::span<const int32_t> tokens,
             std::span<const uint8_t* const> pages);
  /// Fills the pages of a text from its file: `place(g)` is called for each state group that has one. False, after a notice
  /// unless there is no such file: it is not that of this text, or broken, and some pages may have been written.
  bool read(uint64_t name, const std::string& key, std::span<const int32_t> tokens,
            const std::function<uint8_t*(size_t g)>& place);
  /// Waits until nothing is queued.
  void flush();

  int64_t num_files() const;
  int64_t bytes() const;

 private:
  struct Job {
    uint64_t name;
    std::vector<uint8_t> file;
  };
  struct Entry {
    int64_t bytes;
    std::list<std::string>::iterator use;
  };
  explicit PageStore(PageStoreOptions options) : options_(std::move(options)) {}
  std::string file_name(uint64_t name) const;
  void list_folder();
  void write_queued();
  Status write_file(const Job& job);
  void add(const std::string& file, int64_t bytes);
  void forget(const std::string& file);
  void notice(const std::string& text) const;

  PageStoreOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::list<std::string> uses_;  ///< file names, least recently used first
  std::unordered_map<std::string, Entry> files_;
  int64_t bytes_ = 0;
  std::deque<Job> queue_;
  std::unordered_map<uint64_t, bool> queued_;
  int64_t queued_bytes_ = 0;
  bool stops_ = false, is_failing_ = false;
  std::thread thread_;
};

}  // namespace redline
