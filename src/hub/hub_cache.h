// The folder in which huggingface_hub and Redline keep what they have fetched:
//
//   models--OWNER--NAME/blobs/ETAG                 the files, by their checksums
//   models--OWNER--NAME/snapshots/COMMIT/PATH      links to them
//   models--OWNER--NAME/refs/REVISION              the commit of a branch or tag
//   .locks/models--OWNER--NAME/ETAG.lock           held while a blob is written
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "hub/file_choice.h"
#include "hub/hub_name.h"

namespace redline {

/// A model that is in the cache as a whole.
struct LocalModel {
  HubName name;  ///< that opens it: with the quantization or file if it is not a folder
  HubKind kind = HubKind::kFolder;
  std::string path;    ///< what commands take as MODEL
  std::string commit;  ///< of its snapshot
  int64_t files = 0, bytes = 0;
  int64_t modified = 0;  ///< seconds since 1970: when its newest file was fetched
};

class HubCache {
 public:
  explicit HubCache(std::string folder) : folder_(std::move(folder)) {}

  const std::string& folder() const { return folder_; }
  std::string repository_folder(const std::string& repository) const;
  std::string blob_path(const std::string& repository, const std::string& etag) const;
  std::string lock_path(const std::string& repository, const std::string& etag) const;
  std::string snapshot_folder(const std::string& repository, const std::string& commit) const;

  /// The commit that a revision had when it was last looked up; "": unknown.
  std::string commit_of(const HubName& name) const;
  /// Remembers it. io: it cannot be written.
  Status set_commit(const HubName& name, const std::string& commit) const;

  /// Makes `path` of a snapshot a link to a blob, as huggingface_hub does; where the file system has no links, the file
  /// itself.
  Status link(const std::string& repository, const std::string& commit, const HubFile& file) const;

  /// The model that the name opens. not_found: it is not there, or not as a whole; the message says which.
  Result<LocalModel> find(const HubName& name) const;
  /// All models, in the order of their names. Snapshots of older commits are left out, unless they are all there is.
  std::vector<LocalModel> list() const;

  /// Removes a model and the blobs that nothing else in its repository needs; with the last one also the folder of the
  /// repository. Returns the bytes that are freed. Processes that have a file open keep it.
  /// not_found: as find(). io: another process is fetching files of it, or something cannot be removed.
  Result<int64_t> remove(const HubName& name) const;

 private:
  std::vector<HubFile> files_of(const std::string& snapshot) const;
  std::string folder_;
};

/// A file whose lock is held: by flock(), as huggingface_hub does it.
class FileLock {
 public:
  /// Waits, calling `while_waiting` every tenth of a second; false ends the wait. cancelled: that. io: the file cannot
  /// be created.
  static Result<FileLock> acquire(const std::string& path, const std::function<bool()>& while_waiting);
  FileLock(FileLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileLock& operator=(FileLock&&) = delete;
  ~FileLock();

 private:
  explicit FileLock(int fd) : fd_(fd) {}
  int fd_;
};

/// Whether some process holds the lock.
bool is_locked(const std::string& path);

}  // namespace redline
