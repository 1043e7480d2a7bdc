#include "hub/pull.h"

#include <sys/statvfs.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <mutex>
#include <new>
#include <numeric>
#include <system_error>
#include <thread>

#include "base/output_file.h"
#include "base/progress.h"
#include "hub/blob_download.h"
#include "hub/hub_http.h"
#include "hub/revision.h"

namespace redline {
namespace {

constexpr int kTries = 3;  ///< number of tries of a request to the Hub
/// limit in bytes for one file and for all together, whatever a Hub reports
constexpr int64_t kMaxBytes = int64_t{1} << 60;

/// Asks for the size and etag of a file for which the list has none.
Status look_up(HubFile& file, const HubName& name, const std::string& commit, const HubSettings& settings,
               HubHttp& http) {
  const std::string what = fmt::format("hf:{}:{}", name.repository, file.path);
  HttpRequest request{.url = fmt::format("{}/{}/resolve/{}/{}", settings.endpoint, name.repository, commit,
                                         url_encoded(file.path, true)),
                      .is_head = true,
                      .follows_redirects = false,
                      .on_body = {}};
  HttpAnswer answer;
  constexpr int kMaxMoves = 5;
  for (int moves = 0; moves < kMaxMoves; ++moves) {
    answer = http.send_again(request, kTries);
    const std::string location = answer.header("location");
    const bool is_moved = answer.status >= 300 && answer.status < 400;
    // A redirect within the Hub leads to a renamed repository and is followed. A redirect to another host leads to the
    // storage of large files, which reports less, and is not followed.
    if (!is_moved || !location.starts_with('/')) break;
    request.url = settings.endpoint + location;
  }
  if (!answer.failure.empty() || answer.status < 200 || answer.status >= 400)
    return hub_error(answer, settings, name.repository, what);
  std::string etag = answer.header("x-linked-etag"), size = answer.header("x-linked-size");
  if (etag.empty()) etag = answer.header("etag");
  if (size.empty()) size = answer.header("content-length");
  if (etag.starts_with("W/")) etag = etag.substr(2);
  etag.erase(std::remove(etag.begin(), etag.end(), '"'), etag.end());
  file.etag = etag;
  if (answer.status >= 300 && answer.header("location").starts_with('/'))
    return io("{}: {} moves it more than {} times", what, settings.endpoint, kMaxMoves);
  const auto read = std::from_chars(size.data(), size.data() + size.size(), file.bytes);
  const bool has_size = read.ec == std::errc() && read.ptr == size.data() + size.size() && file.bytes >= 0;
  if (!is_etag(etag) || !has_size)
    return io("{}: {} reports neither its size nor its checksum", what, settings.endpoint);
  return {};
}

Result<Revision> ask_revision(const HubName& name, const HubSettings& settings, HubHttp& http) {
  const HttpRequest request{.url = fmt::format("{}/api/models/{}/revision/{}?blobs=true", settings.endpoint,
                                               name.repository, url_encoded(name.revision, false)),
                            .on_body = {}};
  const HttpAnswer answer = http.send_again(request, kTries);
  if (!answer.failure.empty() || answer.status != 200) return hub_error(answer, settings, name.repository, name.text());
  return read_revision(answer.body, name, settings.endpoint);
}

/// Checks that the file system takes the names, with the ending that a file has while it is written.
Status check_file_names(const std::vector<HubFile>& files, const HubName& name) {
  constexpr size_t kLongest = 240;
  for (const HubFile& file : files)
    for (size_t begin = 0; begin <= file.path.size();) {
      const size_t end = std::min(file.path.find('/', begin), file.path.size());
      if (end - begin > kLongest)
        return io("hf:{}: a file has the name \"{}\"; file systems take up to {} bytes", name.repository,
                  shortened(file.path), kLongest);
      begin = end + 1;
    }
  return {};
}

Status check_room(const HubCache& cache, int64_t bytes) {
  REDLINE_TRY(create_folder(cache.folder()));
  struct statvfs info;
  if (::statvfs(cache.folder().c_str(), &info) != 0) return {};
  const auto free = static_cast<double>(info.f_bavail) * static_cast<double>(info.f_frsize);
  if (static_cast<double>(bytes) <= free) return {};
  return io("{}: {:.2f} GB are needed, and {:.2f} GB are free; HF_HUB_CACHE names another folder for models",
            cache.folder(), static_cast<double>(bytes) / 1e9, free / 1e9);
}

/// Fetches files on several threads, the largest first.
Status fetch_all(const std::vector<HubFile>& files, const std::string& label, int64_t missing, const BlobDownload& base,
                 const PullOptions& options, std::atomic<int64_t>& fetched) {
  std::vector<const HubFile*> queue;
  queue.reserve(files.size());
  for (const HubFile& file : files) queue.push_back(&file);
  std::stable_sort(queue.begin(), queue.end(), [](auto* a, auto* b) { return a->bytes > b->bytes; });
  Progress progress(label, std::max<int64_t>(missing, 1), ProgressOptions{.unit = "byte"});
  std::atomic<size_t> next = 0;
  std::atomic<bool> has_failed = false;
  std::mutex mutex;
  Status first_failure;
  const auto work = [&] {
    HubHttp http(base.settings, [&] { return has_failed || (options.is_cancelled && options.is_cancelled()); });
    for (size_t i = next++; i < queue.size() && !http.is_cancelled(); i = next++) {
      BlobDownload download = base;
      download.file = *queue[i];
      download.on_bytes = [&](int64_t bytes) {
        fetched += bytes;
        progress.advance(bytes);
      };
      download.on_notice = [&](const std::string& text) {
        const std::scoped_lock lock(mutex);
        if (options.on_notice) options.on_notice(text);
      };
      Status status;
      try {
        status = download_blob(download, http);
      } catch (const std::bad_alloc&) {  // an exception that leaves the thread would end the program
        status = out_of_memory("{}: there is not enough memory for the download", queue[i]->path);
      }
      if (status.ok()) continue;
      const std::scoped_lock lock(mutex);
      if (!has_failed.exchange(true)) first_failure = std::move(status);
    }
  };
  const size_t num_threads =
      std::clamp<size_t>(static_cast<size_t>(options.jobs), 1, std::max<size_t>(queue.size(), 1));
  std::vector<std::thread> threads;
  threads.reserve(num_threads);
  try {
    for (size_t i = 0; i < num_threads; ++i) threads.emplace_back(work);
  } catch (const std::system_error&) {  // no more threads can start; the running ones take all files
    if (threads.empty()) work();
  }
  for (std::thread& thread : threads) thread.join();
  if (first_failure.ok() && options.is_cancelled && options.is_cancelled())
    return cancelled("stopped; the next pull resumes from here");
  return first_failure;
}

}  // namespace

Result<PullResult> pull_model(const HubName& name, const HubSettings& settings, const PullOptions& options) {
  if (settings.is_offline)
    return io("{}: HF_HUB_OFFLINE is set, so nothing is fetched from {}", name.text(), settings.endpoint);
  const HubCache cache(settings.cache_folder);
  HubHttp http(settings, options.is_cancelled);
  REDLINE_ASSIGN(const Revision revision, ask_revision(name, settings, http));
  Result<FileChoice> choice = choose_files(revision.files, name.selection);
  if (!choice.ok())
    return Status(choice.status().code(), fmt::format("hf:{} {}", name.repository, choice.status().message()));
  REDLINE_TRY(check_file_names(choice->files, name));
  PullResult result;
  for (HubFile& file : choice->files) {
    if (file.bytes < 0 || file.etag.empty()) REDLINE_TRY(look_up(file, name, revision.commit, settings, http));
    file.bytes = std::min(file.bytes, kMaxBytes);
    result.missing_bytes +=
        std::min(file.bytes - bytes_in_cache(cache, name.repository, file), kMaxBytes - result.missing_bytes);
  }
  result.files = choice->files;
  result.model.name = name;
  result.model.kind = choice->kind;
  result.model.commit = revision.commit;
  result.model.files = std::ssize(choice->files);
  for (const HubFile& file : choice->files) result.model.bytes += std::min(file.bytes, kMaxBytes - result.model.bytes);
  const std::string snapshot = cache.snapshot_folder(name.repository, revision.commit);
  result.model.path = choice->model.empty() ? snapshot : fmt::format("{}/{}", snapshot, choice->model);
  if (options.is_dry_run) return result;

  REDLINE_TRY(check_room(cache, result.missing_bytes));
  const BlobDownload base{cache, settings, name.repository, revision.commit, {}, {}, {}};
  std::atomic<int64_t> fetched = 0;
  REDLINE_TRY(fetch_all(choice->files, "pulling " + name.text(), result.missing_bytes, base, options, fetched));
  result.fetched_bytes = fetched;
  for (const HubFile& file : choice->files) REDLINE_TRY(cache.link(name.repository, revision.commit, file));
  REDLINE_TRY(cache.set_commit(name, revision.commit));
  return result;
}

}  // namespace redline
