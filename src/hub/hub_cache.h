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

/// A model that is completely in the cache.
struct LocalModel {
  HubName name;  ///< name that opens the model, with the quantization or file if it is not a folder
  HubKind kind = HubKind::kFolder;
  std::string path;    ///< the argument MODEL of commands
  std::string commit;  ///< commit of the snapshot
  int64_t files = 0, bytes = 0;
  int64_t modified = 0;  ///< time when the newest file was fetched, in seconds since 1970
};

class HubCache {
 public:
  explicit HubCache(std::string folder) : folder_(std::move(folder)) {}

  const std::string& folder() const { return folder_; }
  std::string repository_folder(const std::string& repository) const;
  std::string blob_path(const std::string& repository, const std::string& etag) const;
  std::string lock_path(const std::string& repository, const std::string& etag) const;
  std::string snapshot_folder(const std::string& repository, const std::string& commit) const;

  /// Returns the commit that a revision had when it was last looked up; "": unknown.
  std::string commit_of(const HubName& name) const;
  /// Stores the commit of a revision. io: it cannot be written.
  Status set_commit(const HubName& name, const std::string& commit) const;

  /// Makes the file's path in a snapshot a link to its blob, as huggingface_hub does, or the file itself if the file
  /// system has no links.
  Status link(const std::string& repository, const std::string& commit, const HubFile& file) const;

  /// Returns the model that the name opens. not_found: it is not in the cache, or incomplete; the message says which.
  Result<LocalModel> find(const HubName& name) const;
  /// Returns all models, in the order of their names. Snapshots of older commits are omitted, unless there is no newer
  /// one.
  std::vector<LocalModel> list() const;

  /// Removes a model and the blobs that no other model in its repository needs. If it is the last model, also removes
  /// the folder of the repository. Returns the number of freed bytes. Processes that have a file open keep it.
  /// not_found: as find(). io: another process is fetching files of the model, or a file cannot be removed.
  Result<int64_t> remove(const HubName& name) const;

 private:
  std::vector<HubFile> files_of(const std::string& snapshot) const;
  std::string folder_;
};

/// Holds the lock of a file, by flock() as in huggingface_hub.
class FileLock {
 public:
  /// Waits for the lock. Calls `while_waiting` every tenth of a second; returning false ends the wait as `cancelled`.
  /// io: the file cannot be created.
  static Result<FileLock> acquire(const std::string& path, const std::function<bool()>& while_waiting);
  FileLock(FileLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileLock& operator=(FileLock&&) = delete;
  ~FileLock();

 private:
  explicit FileLock(int fd) : fd_(fd) {}
  int fd_;
};

/// Returns true if a process holds the lock.
bool is_locked(const std::string& path);

}  // namespace redline
