#include "llm/page_store.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <system_error>

#include "base/cache_folder.h"
#include "base/hash.h"

namespace redline {
namespace {

// The eighth byte is the version. Files of pages with tokens alone have had version 2 from before there were other
// contents.
constexpr std::string_view kMagic = "RLPAGES";
constexpr char kTokens = '2', kContents = '3';

/// The content keys of a page in the form of its file, which its name also depends on.
class StoredContents {
 public:
  explicit StoredContents(std::span<const ContentKey> contents)
      : count_(std::ssize(contents)), has_tokens_only_(std::all_of(contents.begin(), contents.end(), is_token_key)) {
    for (const ContentKey place : contents) {
      const auto token = static_cast<uint32_t>(place);
      const auto* from =
          has_tokens_only_ ? reinterpret_cast<const uint8_t*>(&token) : reinterpret_cast<const uint8_t*>(&place);
      bytes_.insert(bytes_.end(), from, from + (has_tokens_only_ ? sizeof token : sizeof place));
    }
  }
  char version() const { return has_tokens_only_ ? kTokens : kContents; }
  int64_t count() const { return count_; }
  const std::vector<uint8_t>& bytes() const { return bytes_; }
  static int64_t bytes_of(char version, int64_t count) {
    return count * static_cast<int64_t>(version == kTokens ? sizeof(int32_t) : sizeof(ContentKey));
  }

 private:
  int64_t count_;
  bool has_tokens_only_;
  std::vector<uint8_t> bytes_;
};

struct Header {
  char magic[7], version;
  uint64_t identity;
  PageName name, parent;
  uint64_t checksum;          ///< checksum of the metadata between header and pages
  uint64_t groups;            ///< bit g: the file has the page of state group g
  uint32_t key_bytes, count;  ///< bytes of the key, number of contents
  uint64_t file_bytes;
};
static_assert(sizeof(Header) == 80);

int64_t padded(int64_t bytes) { return (bytes + 7) / 8 * 8; }

uint64_t checksum(const uint8_t* data, int64_t bytes) { return hash_bytes(0, data, static_cast<size_t>(bytes)); }

}  // namespace

/// The header's bytes are followed by the checksum of each page, the key, the contents and the pages, each padded to 8
/// bytes.
struct PageStore::Layout {
  uint64_t groups;
  int64_t key, contents, head_end, end;
  std::vector<int64_t> pages;  ///< offset of each group's page; 0: none
  Layout(int64_t key_bytes, int64_t content_bytes, uint64_t has, std::span<const int64_t> page_bytes) : groups(has) {
    key = int64_t{sizeof(Header)} + 8 * __builtin_popcountll(groups);
    contents = key + padded(key_bytes);
    end = head_end = contents + padded(content_bytes);
    for (size_t g = 0; g < page_bytes.size(); ++g) {
      pages.push_back(groups >> g & 1 ? end : 0);
      if (groups >> g & 1) end += padded(page_bytes[g]);
    }
  }
  Layout(const Header& header, std::span<const int64_t> page_bytes)
      : Layout(header.key_bytes, StoredContents::bytes_of(header.version, header.count), header.groups, page_bytes) {}
  /// Returns the offset of the checksum of a group's page.
  int64_t sum(size_t g) const {
    return int64_t{sizeof(Header)} + 8 * __builtin_popcountll(groups & ((uint64_t{1} << g) - 1));
  }
};

PageStore::PageStore(PageStoreOptions options, PageFolder folder)
    : options_(std::move(options)), folder_(std::move(folder)), bytes_(folder_.bytes()) {
  for (const std::string& file : folder_.names())
    if (const std::optional<PageName> name = name_of(file)) known_.insert(*name);
}

Result<std::unique_ptr<PageStore>> PageStore::open(PageStoreOptions options) {
  REDLINE_CHECK(options.page_bytes.size() <= 64);
  REDLINE_ASSIGN(PageFolder folder, PageFolder::open(options.folder, options.max_bytes));
  std::unique_ptr<PageStore> store(new PageStore(std::move(options), std::move(folder)));
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

PageOfText PageStore::page(const PageName& parent, const std::string& key, std::span<const ContentKey> contents) const {
  const StoredContents stored(contents);
  const auto hash = [&](uint64_t of_parent, uint64_t seed) {
    const uint64_t begin =
        parent.is_beginning() ? hash_bytes(options_.identity + seed, key.data(), key.size()) : of_parent;
    return hash_bytes(begin, stored.bytes().data(), stored.bytes().size());
  };
  constexpr uint64_t kSeed = 0x243f6a8885a308d3u;
  PageName name{hash(parent.a, 0), hash(parent.b, kSeed)};
  if (name.is_beginning()) name.b = 1;
  return {name, parent, contents};
}

std::string PageStore::file_name(const PageName& name) const {
  return fmt::format("pages-{:016x}-{:016x}{:016x}", options_.identity, name.a, name.b);
}

std::optional<PageName> PageStore::name_of(const std::string& file) const {
  constexpr size_t kDigits = 16;  // hexadecimal digits of 64 bits
  if (file.size() < 2 * kDigits) return std::nullopt;
  const char* at = file.data() + file.size() - 2 * kDigits;
  PageName name;
  std::from_chars(at, at + kDigits, name.a, 16);
  std::from_chars(at + kDigits, at + 2 * kDigits, name.b, 16);
  return file == file_name(name) ? std::optional(name) : std::nullopt;
}

bool PageStore::has(const PageName& name) const {
  std::lock_guard lock(mutex_);
  return queued_.contains(name) || known_.contains(name);
}

void PageStore::push(Job job) {
  {
    std::lock_guard lock(mutex_);
    queued_bytes_ += job.bytes();
    if (job.uses.empty()) queued_.emplace(job.name, job.page);
    queue_.push_back(std::move(job));
  }
  changed_.notify_all();
}

bool PageStore::write(const PageOfText& page, const std::string& key, std::span<const uint8_t* const> pages) {
  uint64_t groups = 0;
  for (size_t g = 0; g < pages.size(); ++g) groups |= uint64_t{pages[g] != nullptr} << g;
  const StoredContents stored(page.contents);
  const Layout at(std::ssize(key), std::ssize(stored.bytes()), groups, options_.page_bytes);
  {
    std::lock_guard lock(mutex_);
    const auto is_there = [&](const PageName& name) { return queued_.contains(name) || known_.contains(name); };
    if (is_there(page.name)) return true;
    if (queued_bytes_ + at.end > options_.max_queued_bytes) return false;
    if (!page.parent.is_beginning() && !is_there(page.parent)) return false;
  }
  Job job{page.name, page.parent, {std::make_shared<std::vector<uint8_t>>(static_cast<size_t>(at.end)), groups}, {}};
  uint8_t* file = job.page.file->data();
  std::copy(key.begin(), key.end(), file + at.key);
  std::copy(stored.bytes().begin(), stored.bytes().end(), file + at.contents);
  for (size_t g = 0; g < pages.size(); ++g)
    if (pages[g]) std::memcpy(file + at.pages[g], pages[g], static_cast<size_t>(options_.page_bytes[g]));
  Header header{};
  kMagic.copy(header.magic, kMagic.size());
  header.version = stored.version();
  header.identity = options_.identity;
  header.name = page.name;
  header.parent = page.parent;
  header.groups = groups;
  header.key_bytes = static_cast<uint32_t>(key.size());
  header.count = static_cast<uint32_t>(stored.count());
  header.file_bytes = static_cast<uint64_t>(at.end);
  std::memcpy(file, &header, sizeof header);  // the checksums are added by the writing thread
  push(std::move(job));
  return true;
}

void PageStore::use(std::span<const PageName> names) {
  Job job;
  for (const PageName& name : names) job.uses.push_back(file_name(name));
  {
    std::lock_guard lock(mutex_);
    if (names.empty() || queued_bytes_ + job.bytes() > options_.max_queued_bytes) return;
  }
  push(std::move(job));
}

void PageStore::write_queued() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stops_ || !queue_.empty(); });
    if (queue_.empty()) return;
    Job job = std::move(queue_.front());
    queue_.pop_front();
    is_writing_ = true;
    const bool is_reachable = job.parent.is_beginning() || known_.contains(job.parent);
    if (std::exchange(has_removed_, false)) folder_.count_again();
    lock.unlock();
    if (!job.uses.empty()) folder_.use(job.uses);
    else if (is_reachable) write_file(job);
    lock.lock();
    bytes_ = folder_.bytes();
    queued_bytes_ -= job.bytes();
    if (job.uses.empty()) queued_.erase(job.name);
    is_writing_ = false;
    changed_.notify_all();
  }
}

// Called by the writing thread, without the mutex.
void PageStore::write_file(Job& job) {
  uint8_t* file = job.page.file->data();
  Header header;
  std::memcpy(&header, file, sizeof header);
  const Layout at(header, options_.page_bytes);
  for (size_t g = 0; g < at.pages.size(); ++g) {
    if (at.pages[g] == 0) continue;
    const uint64_t sum = checksum(file + at.pages[g], options_.page_bytes[g]);
    std::memcpy(file + at.sum(g), &sum, sizeof sum);
  }
  header.checksum = checksum(file + sizeof header, at.head_end - int64_t{sizeof header});
  std::memcpy(file, &header, sizeof header);
  const std::string parent = job.parent.is_beginning() ? "" : file_name(job.parent);
  const Result<PageFolder::Added> added = folder_.add(file_name(job.name), parent, *job.page.file);
  if (!added.ok() && !is_failing_)
    notice(fmt::format("pages of the prefix cache are not kept on disk: {}", added.status().message()));
  is_failing_ = !added.ok();
  if (!added.ok()) return;
  std::lock_guard lock(mutex_);
  for (const std::string& evicted : added->evicted)
    if (const std::optional<PageName> name = name_of(evicted)) known_.erase(*name);
  if (added->is_there) known_.insert(job.name);
}

std::optional<PageStore::Queued> PageStore::find_queued(const PageName& name) const {
  std::lock_guard lock(mutex_);
  const auto at = queued_.find(name);
  return at == queued_.end() ? std::nullopt : std::optional(at->second);
}

std::shared_ptr<MappedFile> PageStore::open_file(const PageName& name) {
  auto file = MappedFile::open(cache_path(options_.folder, file_name(name)));
  if (file.ok()) return std::move(file).value();
  if (file.status().code() != Code::not_found) notice(file.status().message());
  std::lock_guard lock(mutex_);  // it was removed by another engine
  known_.erase(name);
  return nullptr;
}

void PageStore::remove(const PageName& name, const Status& why) {
  const std::string path = cache_path(options_.folder, file_name(name));
  notice(fmt::format("{}: ignored and removed: {}", path, why.message()));
  ::unlink(path.c_str());
  std::lock_guard lock(mutex_);
  known_.erase(name);
  has_removed_ = true;
}

Result<PageStore::Layout> PageStore::check_head(const MappedFile& file, const PageOfText& page,
                                                const std::string& key) const {
  Header header;
  if (file.size() < static_cast<int64_t>(sizeof header))
    return invalid_argument("truncated header: {} bytes", file.size());
  std::memcpy(&header, file.data(), sizeof header);
  if (std::string_view(header.magic, sizeof header.magic) != kMagic) return invalid_argument("not a page file");
  if (header.version != kTokens && header.version != kContents)
    return invalid_argument("version {} of the format; this program reads {} and {}",
                            static_cast<int>(header.version) - '0', kTokens, kContents);
  if (header.identity != options_.identity || header.name != page.name || header.parent != page.parent)
    return invalid_argument("contents do not match the file name");
  const auto num_groups = options_.page_bytes.size();
  if (num_groups < 64 && header.groups >> num_groups != 0) return invalid_argument("it has too many state groups");
  Layout at(header, options_.page_bytes);
  if (header.file_bytes != static_cast<uint64_t>(at.end) || file.size() != at.end)
    return invalid_argument("it has {} bytes instead of {}", file.size(), at.end);
  if (header.checksum != checksum(file.data() + sizeof header, at.head_end - int64_t{sizeof header}))
    return invalid_argument("its checksum is wrong");
  const StoredContents stored(page.contents);
  if (header.key_bytes != key.size() || std::memcmp(file.data() + at.key, key.data(), key.size()) != 0 ||
      header.version != stored.version() || header.count != stored.count() ||
      !std::equal(stored.bytes().begin(), stored.bytes().end(), file.data() + at.contents))
    return invalid_argument("it is of another text");
  return at;
}

std::optional<uint64_t> PageStore::groups(const PageOfText& page, const std::string& key) {
  if (const std::optional<Queued> queued = find_queued(page.name)) return queued->groups;
  const std::shared_ptr<MappedFile> file = open_file(page.name);
  if (!file) return std::nullopt;
  const Result<Layout> at = check_head(*file, page, key);
  if (at.ok()) return at->groups;
  remove(page.name, at.status());
  return std::nullopt;
}

bool PageStore::read(const PageOfText& page, const std::string& key, uint64_t groups,
                     const std::function<uint8_t*(size_t g)>& place) {
  if (const std::optional<Queued> queued = find_queued(page.name)) {
    const Layout at(std::ssize(key), std::ssize(StoredContents(page.contents).bytes()), queued->groups,
                    options_.page_bytes);
    if (at.end != std::ssize(*queued->file) || (groups & ~queued->groups) != 0) return false;
    for (size_t g = 0; g < options_.page_bytes.size(); ++g) {
      if (!(groups >> g & 1)) continue;
      uint8_t* const to = place(g);
      if (!to) return false;
      std::memcpy(to, queued->file->data() + at.pages[g], static_cast<size_t>(options_.page_bytes[g]));
    }
    return true;
  }
  const std::shared_ptr<MappedFile> file = open_file(page.name);
  if (!file) return false;
  Result<Layout> at = check_head(*file, page, key);
  for (size_t g = 0; at.ok() && g < options_.page_bytes.size(); ++g) {
    if (!(groups >> g & 1)) continue;
    if (at->pages[g] == 0) return false;  // another engine has rewritten the file
    const uint8_t* from = file->data() + at->pages[g];
    uint64_t sum;
    std::memcpy(&sum, file->data() + at->sum(g), sizeof sum);
    if (sum != checksum(from, options_.page_bytes[g])) {
      at = invalid_argument("the checksum of a page is wrong");
      break;
    }
    uint8_t* to = place(g);
    if (!to) return false;
    std::memcpy(to, from, static_cast<size_t>(options_.page_bytes[g]));
  }
  if (!at.ok()) remove(page.name, at.status());
  return at.ok();
}

void PageStore::flush() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return queue_.empty() && !is_writing_; });
}

int64_t PageStore::num_files() const {
  std::lock_guard lock(mutex_);
  return std::ssize(known_);
}

int64_t PageStore::bytes() const {
  std::lock_guard lock(mutex_);
  return bytes_;
}

}  // namespace redline
