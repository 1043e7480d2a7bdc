#include "llm/page_store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>

#include "base/cache_folder.h"
#include "base/hash.h"
#include "base/mapped_file.h"
#include "base/output_file.h"

namespace redline {
namespace {

constexpr char kMagic[8] = {'R', 'L', 'P', 'A', 'G', 'E', 'S', '1'};
/// Pages that wait to be written; more are not kept.
constexpr int64_t kMaxQueuedBytes = int64_t{256} << 20;

struct Header {
  char magic[8];
  uint64_t identity, name;
  uint64_t checksum;  ///< of everything behind the header
  uint64_t groups;    ///< bit g: the page of state group g is there
  uint32_t key_bytes, num_tokens;
  uint64_t file_bytes;
};
static_assert(sizeof(Header) == 56);

int64_t padded(int64_t bytes) { return (bytes + 7) / 8 * 8; }

/// The header's bytes are followed by the key, the tokens and the pages, each padded to 8 bytes.
struct Layout {
  int64_t key, tokens, pages, end;
  Layout(int64_t key_bytes, int64_t num_tokens, uint64_t groups, std::span<const int64_t> page_bytes) {
    key = sizeof(Header);
    tokens = key + padded(key_bytes);
    pages = end = tokens + padded(4 * num_tokens);
    for (size_t g = 0; g < page_bytes.size(); ++g)
      if (groups >> g & 1) end += padded(page_bytes[g]);
  }
};

uint64_t checksum(const uint8_t* file, int64_t bytes) {
  return hash_bytes(0, file + sizeof(Header), static_cast<size_t>(bytes) - sizeof(Header));
}

}  // namespace

Result<std::unique_ptr<PageStore>> PageStore::open(PageStoreOptions options) {
  REDLINE_CHECK(options.page_bytes.size() <= 64);
  REDLINE_TRY(create_folder(options.folder));
  std::unique_ptr<PageStore> store(new PageStore(std::move(options)));
  // Also removes what killed writers have left.
  make_cache_room({store->options_.folder, store->options_.max_bytes}, 0);
  store->list_folder();
  try {
    store->thread_ = std::thread([s = store.get()] { s->write_queued(); });
  } catch (const std::system_error& error) {
    return out_of_memory("no thread for the pages in {}: {}", store->options_.folder, error.what());
  }
  return store;
}

PageStore::~PageStore() {
  {
    std::lock_guard lock(mutex_);
    stops_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void PageStore::notice(const std::string& text) const {
  if (options_.on_notice) options_.on_notice(text);
}

uint64_t PageStore::name(uint64_t parent, const std::string& key, std::span<const int32_t> tokens) const {
  uint64_t hash = parent != 0 ? parent : hash_bytes(options_.identity, key.data(), key.size());
  hash = hash_bytes(hash, tokens.data(), tokens.size_bytes());
  return hash != 0 ? hash : 1;
}

std::string PageStore::file_name(uint64_t name) const {
  return fmt::format("pages-{:016x}-{:016x}", options_.identity, name);
}

void PageStore::list_folder() {
  for (const CacheFile& file : list_cache(options_.folder)) {
    const std::string name = file.path.substr(options_.folder.size() + 1);
    add(name.substr(0, name.find('.')), file.bytes);
  }
}

// The caller holds the mutex, or nobody else knows the store.
void PageStore::add(const std::string& file, int64_t bytes) {
  forget(file);
  files_[file] = {bytes, uses_.insert(uses_.end(), file)};
  bytes_ += bytes;
}

void PageStore::forget(const std::string& file) {
  const auto at = files_.find(file);
  if (at == files_.end()) return;
  bytes_ -= at->second.bytes;
  uses_.erase(at->second.use);
  files_.erase(at);
}

bool PageStore::has(uint64_t name) const {
  std::lock_guard lock(mutex_);
  return files_.contains(file_name(name));
}

bool PageStore::write(uint64_t name, const std::string& key, std::span<const int32_t> tokens,
                      std::span<const uint8_t* const> pages) {
  uint64_t groups = 0;
  for (size_t g = 0; g < pages.size(); ++g) groups |= uint64_t{pages[g] != nullptr} << g;
  const Layout at(std::ssize(key), std::ssize(tokens), groups, options_.page_bytes);
  {
    std::lock_guard lock(mutex_);
    if (queued_.contains(name) || files_.contains(file_name(name)) || queued_bytes_ + at.end > kMaxQueuedBytes)
      return false;
  }
  Job job{name, std::vector<uint8_t>(static_cast<size_t>(at.end))};
  uint8_t* file = job.file.data();
  std::memcpy(file + at.key, key.data(), key.size());
  std::memcpy(file + at.tokens, tokens.data(), tokens.size_bytes());
  int64_t place = at.pages;
  for (size_t g = 0; g < pages.size(); ++g) {
    if (!pages[g]) continue;
    std::memcpy(file + place, pages[g], static_cast<size_t>(options_.page_bytes[g]));
    place += padded(options_.page_bytes[g]);
  }
  Header header{};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.identity = options_.identity;
  header.name = name;
  header.groups = groups;
  header.key_bytes = static_cast<uint32_t>(key.size());
  header.num_tokens = static_cast<uint32_t>(tokens.size());
  header.file_bytes = static_cast<uint64_t>(at.end);
  std::memcpy(file, &header, sizeof header);  // the checksum is added by the writing thread
  {
    std::lock_guard lock(mutex_);
    queued_bytes_ += at.end;
    queued_[name] = true;
    queue_.push_back(std::move(job));
  }
  changed_.notify_all();
  return true;
}

void PageStore::write_queued() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stops_ || !queue_.empty(); });
    if (queue_.empty()) return;
    Job job = std::move(queue_.front());
    queue_.pop_front();
    const auto bytes = static_cast<int64_t>(job.file.size());
    std::vector<std::string> evicted;
    while (bytes_ + bytes > options_.max_bytes && !uses_.empty()) {
      evicted.push_back(uses_.front());
      forget(evicted.back());
    }
    const bool fits = bytes_ + bytes <= options_.max_bytes;
    lock.unlock();
    for (const std::string& file : evicted) ::unlink(cache_path(options_.folder, file).c_str());
    Status status = fits ? write_file(job) : Status();
    if (!status.ok() && !is_failing_)
      notice(fmt::format("pages of the prefix cache are not kept on disk: {}", status.message()));
    is_failing_ = !status.ok();
    lock.lock();
    if (fits && status.ok()) add(file_name(job.name), bytes);
    queued_bytes_ -= bytes;
    queued_.erase(job.name);
    changed_.notify_all();
  }
}

Status PageStore::write_file(const Job& job) {
  auto* file = const_cast<uint8_t*>(job.file.data());
  const auto bytes = static_cast<int64_t>(job.file.size());
  const uint64_t sum = checksum(file, bytes);
  std::memcpy(file + offsetof(Header, checksum), &sum, sizeof sum);
  REDLINE_ASSIGN(CacheWriter writer, CacheWriter::create(options_.folder, file_name(job.name)));
  REDLINE_TRY(writer.write(file, bytes, 0));
  return writer.commit(false);
}

bool PageStore::read(uint64_t name, const std::string& key, std::span<const int32_t> tokens,
                     const std::function<uint8_t*(size_t g)>& place) {
  const std::string file = file_name(name), path = cache_path(options_.folder, file);
  const auto mapped = MappedFile::open(path);
  if (!mapped.ok()) {  // evicted by another engine
    if (mapped.status().code() != Code::not_found) notice(mapped.status().message());
    std::lock_guard lock(mutex_);
    forget(file);
    return false;
  }
  const MappedFile& m = **mapped;
  const auto check = [&]() -> Status {
    Header header;
    if (m.size() < static_cast<int64_t>(sizeof header)) return invalid_argument("{} bytes are no header", m.size());
    std::memcpy(&header, m.data(), sizeof header);
    if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0) return invalid_argument("it does not hold pages");
    if (header.identity != options_.identity || header.name != name)
      return invalid_argument("it is of another model or text than its name says");
    const auto num_groups = options_.page_bytes.size();
    if (num_groups < 64 && header.groups >> num_groups != 0) return invalid_argument("it has too many state groups");
    const Layout at(header.key_bytes, header.num_tokens, header.groups, options_.page_bytes);
    if (header.file_bytes != static_cast<uint64_t>(at.end) || m.size() != at.end)
      return invalid_argument("it has {} bytes instead of {}", m.size(), at.end);
    if (header.checksum != checksum(m.data(), m.size())) return invalid_argument("its checksum is wrong");
    if (header.key_bytes != key.size() || std::memcmp(m.data() + at.key, key.data(), key.size()) != 0 ||
        header.num_tokens != tokens.size() ||
        std::memcmp(m.data() + at.tokens, tokens.data(), tokens.size_bytes()) != 0)
      return invalid_argument("it is of another text");
    int64_t from = at.pages;
    for (size_t g = 0; g < num_groups; ++g) {
      if (!(header.groups >> g & 1)) continue;
      uint8_t* to = place(g);
      if (!to) return out_of_memory("there is no free page for it");
      std::memcpy(to, m.data() + from, static_cast<size_t>(options_.page_bytes[g]));
      from += padded(options_.page_bytes[g]);
    }
    return {};
  };
  const Status status = check();
  std::lock_guard lock(mutex_);
  if (status.ok()) {
    if (const auto at = files_.find(file); at != files_.end()) uses_.splice(uses_.end(), uses_, at->second.use);
    ::utimensat(AT_FDCWD, path.c_str(), nullptr, 0);
    return true;
  }
  if (status.code() == Code::out_of_memory) return false;
  notice(fmt::format("{}: ignored and removed: {}", path, status.message()));
  ::unlink(path.c_str());
  forget(file);
  return false;
}

void PageStore::flush() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return queue_.empty() && queued_.empty(); });
}

int64_t PageStore::num_files() const {
  std::lock_guard lock(mutex_);
  return std::ssize(files_);
}

int64_t PageStore::bytes() const {
  std::lock_guard lock(mutex_);
  return bytes_;
}

}  // namespace redline
