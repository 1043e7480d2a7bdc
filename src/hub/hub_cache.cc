#include "hub/hub_cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>
#include <thread>
#include <utility>

#include "base/ascii.h"
#include "base/mapped_file.h"
#include "base/output_file.h"

namespace redline {
namespace {

namespace fs = std::filesystem;

/// Returns the folder of a repository in the cache: "models--owner--name".
std::string folder_name(const std::string& repository) {
  std::string name = "models--" + repository;
  if (const size_t slash = name.find('/'); slash != std::string::npos) name.replace(slash, 1, "--");
  return name;
}

/// Returns "owner/name" for a folder of the cache; "" if it is not the folder of a model.
std::string repository_of(const std::string& folder) {
  constexpr std::string_view kPrefix = "models--";
  if (!folder.starts_with(kPrefix)) return "";
  std::string name = folder.substr(kPrefix.size());
  if (const size_t cut = name.find("--"); cut != std::string::npos) name.replace(cut, 2, "/");
  return parse_hub_name("hf:" + name).ok() ? name : "";
}

std::vector<std::string> entries_of(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    names.push_back(at->path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

bool is_commit(std::string_view text) {
  constexpr size_t kDigits = 40;
  return text.size() == kDigits && std::all_of(text.begin(), text.end(), [](char c) { return hex_digit(c) >= 0; });
}

/// Sets the numbers of files and bytes of a choice, and the time at which the newest file was written.
void measure(const fs::path& snapshot, const FileChoice& choice, LocalModel& model) {
  for (const HubFile& file : choice.files) {
    struct stat info;
    if (::stat((snapshot / file.path).c_str(), &info) != 0) continue;
    ++model.files;
    model.bytes += info.st_size;
    model.modified = std::max<int64_t>(model.modified, info.st_mtime);
  }
}

LocalModel describe(const HubName& name, const std::string& snapshot, const FileChoice& choice) {
  LocalModel model{.name = name, .kind = choice.kind, .path = {}, .commit = {}};
  model.commit = fs::path(snapshot).filename().string();
  model.path = choice.model.empty() ? snapshot : (fs::path(snapshot) / choice.model).string();
  measure(snapshot, choice, model);
  return model;
}

/// Returns the blob of a file in a snapshot; the file itself if the cache has no links.
fs::path blob_of(const fs::path& path) {
  std::error_code error;
  const fs::path target = fs::canonical(path, error);
  return error ? path : target;
}

/// Removes folders that are empty, from `folder` up to `top`, which stays.
void remove_empty(fs::path folder, const fs::path& top) {
  std::error_code error;
  while (folder != top && folder.native().size() > top.native().size() && fs::is_empty(folder, error) && !error) {
    fs::remove(folder, error);
    folder = folder.parent_path();
  }
}

}  // namespace

std::string HubCache::repository_folder(const std::string& repository) const {
  return (fs::path(folder_) / folder_name(repository)).string();
}
std::string HubCache::blob_path(const std::string& repository, const std::string& etag) const {
  return fmt::format("{}/blobs/{}", repository_folder(repository), etag);
}
std::string HubCache::lock_path(const std::string& repository, const std::string& etag) const {
  return fmt::format("{}/.locks/{}/{}.lock", folder_, folder_name(repository), etag);
}
std::string HubCache::snapshot_folder(const std::string& repository, const std::string& commit) const {
  return fmt::format("{}/snapshots/{}", repository_folder(repository), commit);
}

std::string HubCache::commit_of(const HubName& name) const {
  if (is_commit(name.revision)) return name.revision;
  const Result<std::string> text =
      read_text_file(fmt::format("{}/refs/{}", repository_folder(name.repository), name.revision));
  return text.ok() && is_commit(*text) ? *text : "";
}

Status HubCache::set_commit(const HubName& name, const std::string& commit) const {
  if (is_commit(name.revision) || commit_of(name) == commit) return {};
  const std::string path = fmt::format("{}/refs/{}", repository_folder(name.repository), name.revision);
  REDLINE_TRY(create_folder(fs::path(path).parent_path().string()));
  return write_file(path, commit);
}

Status HubCache::link(const std::string& repository, const std::string& commit, const HubFile& file) const {
  const fs::path path = fs::path(snapshot_folder(repository, commit)) / file.path;
  const fs::path blob = blob_path(repository, file.etag);
  REDLINE_TRY(create_folder(path.parent_path().string()));
  const fs::path target = fs::path(blob).lexically_relative(path.parent_path());
  std::error_code error;
  if (fs::read_symlink(path, error) == target) return {};
  // The link is made under another name first, so that readers find either the old file or the new one.
  const fs::path temporary = fmt::format("{}.{}.new", path.string(), ::getpid());
  fs::remove(temporary, error);
  fs::create_symlink(target, temporary, error);
  if (error) fs::create_hard_link(blob, temporary, error);
  if (error) fs::copy_file(blob, temporary, error);
  if (!error) fs::rename(temporary, path, error);
  if (error) {
    const std::string reason = error.message();
    fs::remove(temporary, error);
    return io("{}: cannot be created: {}", path.string(), reason);
  }
  return {};
}

std::vector<HubFile> HubCache::files_of(const std::string& snapshot) const {
  std::vector<HubFile> files;
  std::error_code error;
  for (fs::recursive_directory_iterator at(snapshot, error), end; !error && at != end; at.increment(error)) {
    std::error_code none;
    if (!fs::is_regular_file(at->path(), none)) continue;  // a link that leads nowhere is not a file either
    files.push_back({at->path().lexically_relative(snapshot).string(), -1, ""});
  }
  std::sort(files.begin(), files.end(), [](const HubFile& a, const HubFile& b) { return a.path < b.path; });
  return files;
}

Result<LocalModel> HubCache::find(const HubName& name) const {
  const std::string commit = commit_of(name);
  const std::string snapshot = snapshot_folder(name.repository, commit);
  std::error_code error;
  if (commit.empty() || !fs::is_directory(snapshot, error)) return not_found("{}: is not in {}", name.text(), folder_);
  const Result<FileChoice> choice = choose_files(files_of(snapshot), name.selection);
  if (!choice.ok())
    return not_found("{}: the files in {} are not a complete model: {}", name.text(), snapshot,
                     choice.status().message());
  return describe(name, snapshot, *choice);
}

std::vector<LocalModel> HubCache::list() const {
  std::vector<LocalModel> models;
  for (const std::string& folder : entries_of(folder_)) {
    const std::string repository = repository_of(folder);
    if (repository.empty()) continue;
    const fs::path root = fs::path(folder_) / folder;
    // Revisions by commit. "main" wins over other names. Commits without a name are listed only if there is nothing
    // else.
    std::map<std::string, std::string> revisions;
    std::error_code error;
    for (fs::recursive_directory_iterator at(root / "refs", error), end; !error && at != end; at.increment(error)) {
      if (!at->is_regular_file(error)) continue;
      const std::string revision = at->path().lexically_relative(root / "refs").string();
      const std::string commit = commit_of({repository, revision, ""});
      std::string& known = revisions[commit];
      if (!commit.empty() && known != "main") known = revision;
    }
    revisions.erase("");
    if (revisions.empty())
      for (const std::string& commit : entries_of(root / "snapshots")) revisions[commit] = commit;
    for (const auto& [commit, revision] : revisions) {
      const std::string snapshot = snapshot_folder(repository, commit);
      const std::vector<HubFile> files = files_of(snapshot);
      const HubName name{repository, revision, ""};
      const auto choice = choose_files(files, "");
      if (choice.ok() && choice->kind != HubKind::kGguf) models.push_back(describe(name, snapshot, *choice));
      std::set<std::string> seen;
      for (const HubFile& file : files) {
        const auto gguf =
            file.path.ends_with(".gguf") ? choose_files(files, file.path) : Result<FileChoice>(not_found(""));
        if (!gguf.ok() || !seen.insert(gguf->model).second) continue;
        HubName selected = name;
        // The selection is the quantization if it leads to this file, and otherwise the file.
        selected.selection = quantization_of(gguf->model);
        const auto by_tag = choose_files(files, selected.selection.empty() ? gguf->model : selected.selection);
        if (selected.selection.empty() || !by_tag.ok() || by_tag->model != gguf->model)
          selected.selection = gguf->model;
        models.push_back(describe(selected, snapshot, *gguf));
      }
    }
  }
  return models;
}

Result<int64_t> HubCache::remove(const HubName& name) const {
  const fs::path root = repository_folder(name.repository);
  std::error_code error;
  if (!fs::is_directory(root, error)) return not_found("{}: is not in {}", name.text(), folder_);
  const fs::path locks = fs::path(lock_path(name.repository, "x")).parent_path();
  for (const std::string& lock : entries_of(locks))
    if (is_locked((locks / lock).string())) return io("{}: another process is fetching files of it", name.text());

  std::vector<fs::path> paths;  // paths of the snapshot's files that are removed
  const bool is_all = name.selection.empty() && name.revision == "main";
  if (!is_all) {
    const std::string snapshot = snapshot_folder(name.repository, commit_of(name));
    REDLINE_TRY(find(name));
    REDLINE_ASSIGN(const FileChoice choice, choose_files(files_of(snapshot), name.selection));
    for (const HubFile& file : choice.files) paths.push_back(fs::path(snapshot) / file.path);
  }
  std::set<fs::path> blobs;
  for (const fs::path& path : paths) blobs.insert(blob_of(path));
  int64_t freed = 0;
  const auto take_off = [&](const fs::path& path) -> Status {
    struct stat info;
    if (::lstat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) && info.st_nlink == 1)
      freed += int64_t{info.st_blocks} * 512;
    if (::unlink(path.c_str()) != 0 && errno != ENOENT)
      return io("{}: cannot be removed: {}", path.string(), std::strerror(errno));
    return {};
  };
  for (const fs::path& path : paths) {
    REDLINE_TRY(take_off(path));
    remove_empty(path.parent_path(), root / "snapshots");
  }
  // Blobs to which another snapshot, or another model of this snapshot, still links are kept.
  std::set<fs::path> needed;
  for (fs::recursive_directory_iterator at(root / "snapshots", error), end; !error && at != end && !is_all;
       at.increment(error))
    if (at->is_symlink(error)) needed.insert(blob_of(at->path()));
  for (const fs::path& blob : blobs)
    if (!needed.contains(blob)) REDLINE_TRY(take_off(blob));
  const bool is_empty = is_all || entries_of(root / "snapshots").empty();
  if (!is_empty) return freed;
  for (fs::recursive_directory_iterator at(root, error), end; !error && at != end; at.increment(error)) {
    struct stat info;
    if (::lstat(at->path().c_str(), &info) == 0 && S_ISREG(info.st_mode)) freed += int64_t{info.st_blocks} * 512;
  }
  fs::remove_all(root, error);
  if (error) return io("{}: cannot be removed: {}", root.string(), error.message());
  fs::remove_all(locks, error);
  return freed;
}

Result<FileLock> FileLock::acquire(const std::string& path, const std::function<bool()>& while_waiting) {
  REDLINE_TRY(create_folder(fs::path(path).parent_path().string()));
  for (;;) {
    FileLock lock(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
    if (lock.fd_ < 0) return io("{}: cannot be created: {}", path, std::strerror(errno));
    while (::flock(lock.fd_, LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK && errno != EINTR) return io("{}: cannot be locked: {}", path, std::strerror(errno));
      if (!while_waiting()) return cancelled("stopped while another process fetches this file");
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    // The holder before this one may have removed the file. Then the lock of the removed file protects nothing.
    struct stat ours, there;
    if (::fstat(lock.fd_, &ours) == 0 && ::stat(path.c_str(), &there) == 0 && ours.st_ino == there.st_ino) return lock;
  }
}

FileLock::~FileLock() {
  if (fd_ >= 0) ::close(fd_);
}

bool is_locked(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return false;
  const bool is_free = ::flock(fd, LOCK_EX | LOCK_NB) == 0;
  ::close(fd);
  return !is_free;
}

}  // namespace redline
