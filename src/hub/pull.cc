#include "hub/pull.h"

#include <sys/statvfs.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <new>
#include <nlohmann/json.hpp>
#include <numeric>
#include <system_error>
#include <thread>

#include "base/ascii.h"
#include "base/output_file.h"
#include "base/progress.h"
#include "hub/blob_download.h"
#include "hub/hub_http.h"

namespace redline {
namespace {

using Json = nlohmann::json;
constexpr int kTries = 3;  ///< of a question to the Hub

/// The Hub's description of a revision.
struct Revision {
  std::string commit;
  std::vector<HubFile> files;
};

std::string text_at(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}
int64_t number_at(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_number_integer() ? found->get<int64_t>() : -1;
}

bool is_hex(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return hex_digit(c) >= 0; });
}

/// A name that may be given to a blob: a checksum, or an opaque word of a server that has none.
bool is_etag(const std::string& text) {
  return !text.empty() && text.size() <= 128 && text[0] != '.' && std::all_of(text.begin(), text.end(), [](char c) {
    return hex_digit(c) >= 0 || (c >= 'g' && c <= 'z') || (c >= 'G' && c <= 'Z') || c == '-' || c == '_' || c == '.';
  });
}

Result<Revision> read_revision(const std::string& body, const HubName& name, const HubSettings& settings) {
  const auto bad = [&](std::string_view what) {
    return io("{}: the answer of {} is not that of a Hub: {}", name.text(), settings.endpoint, what);
  };
  const Json json = Json::parse(body, nullptr, false);
  if (!json.is_object()) return bad("no JSON object");
  Revision revision{.commit = text_at(json, "sha"), .files = {}};
  constexpr size_t kCommitDigits = 40;
  if (!is_hex(revision.commit) || revision.commit.size() != kCommitDigits) return bad("no commit (sha)");
  const auto siblings = json.find("siblings");
  if (siblings == json.end() || !siblings->is_array()) return bad("no list of files (siblings)");
  for (const Json& sibling : *siblings) {
    if (!sibling.is_object()) return bad("a file that is not an object");
    HubFile file{
        .path = text_at(sibling, "rfilename"), .bytes = number_at(sibling, "size"), .etag = text_at(sibling, "blobId")};
    if (const auto lfs = sibling.find("lfs"); lfs != sibling.end() && lfs->is_object()) {
      file.etag = text_at(*lfs, "sha256");
      if (number_at(*lfs, "size") >= 0) file.bytes = number_at(*lfs, "size");
    }
    if (!is_safe_path(file.path)) return bad(fmt::format("a file \"{}\"", file.path));
    if (!is_etag(file.etag)) file.etag.clear();
    revision.files.push_back(std::move(file));
  }
  return revision;
}

/// Size and etag of a file for which the list has none.
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
    // A renamed repository is at another place of the Hub; the storage of large files is elsewhere, and reports less.
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
  const Json bytes = Json::parse(size, nullptr, false);
  if (!is_etag(etag) || !bytes.is_number_unsigned())
    return io("{}: {} reports neither its size nor its checksum", what, settings.endpoint);
  file.bytes = bytes.get<int64_t>();
  return {};
}

Result<Revision> ask_revision(const HubName& name, const HubSettings& settings, HubHttp& http) {
  const HttpRequest request{.url = fmt::format("{}/api/models/{}/revision/{}?blobs=true", settings.endpoint,
                                               name.repository, url_encoded(name.revision, false)),
                            .on_body = {}};
  const HttpAnswer answer = http.send_again(request, kTries);
  if (!answer.failure.empty() || answer.status != 200) return hub_error(answer, settings, name.repository, name.text());
  return read_revision(answer.body, name, settings);
}

Status check_room(const HubCache& cache, int64_t bytes) {
  REDLINE_TRY(create_folder(cache.folder()));
  struct statvfs info;
  if (::statvfs(cache.folder().c_str(), &info) != 0) return {};
  const auto free = static_cast<double>(info.f_bavail) * static_cast<double>(info.f_frsize);
  if (static_cast<double>(bytes) <= free) return {};
  return io("{}: {:.2f} GB are needed, and {:.2f} GB are free; HF_HUB_CACHE says where models are kept", cache.folder(),
            static_cast<double>(bytes) / 1e9, free / 1e9);
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
      } catch (const std::bad_alloc&) {  // it would end the thread, and with it the program
        status = out_of_memory("{}: memory does not suffice for the download", queue[i]->path);
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
  } catch (const std::system_error&) {  // no more threads; those that there are take all files
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
  PullResult result;
  for (HubFile& file : choice->files) {
    if (file.bytes < 0 || file.etag.empty()) REDLINE_TRY(look_up(file, name, revision.commit, settings, http));
    result.missing_bytes += file.bytes - bytes_in_cache(cache, name.repository, file);
  }
  result.files = choice->files;
  result.model.name = name;
  result.model.kind = choice->kind;
  result.model.commit = revision.commit;
  result.model.files = std::ssize(choice->files);
  for (const HubFile& file : choice->files) result.model.bytes += file.bytes;
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
