#include "backends/cpu/weight_cache.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <random>
#include <system_error>
#include <thread>

#include "base/descriptor.h"
#include "tensor/packed_weight.h"

namespace redline {
namespace {

// Increment when files of the previous version must no longer be read.
constexpr uint32_t kVersion = 1;
constexpr char kMagic[8] = {'R', 'L', 'P', 'A', 'C', 'K', 'E', 'D'};
// The weights begin at a multiple of it, so that huge pages of the region are huge pages of the file.
constexpr int64_t kHugePage = 2 << 20;
constexpr int64_t kChunk = 16 << 20;
// Maximum time that an exiting program waits for the writer of the file.
constexpr std::chrono::seconds kGrace{3};

struct Header {
  char magic[8];
  uint32_t version;
  uint32_t table_bytes;     // size of the table that follows
  uint64_t table_checksum;  // checksum of the table
  int64_t region_bytes;
};

uint64_t checksum(std::string_view bytes) {  // FNV-1a
  uint64_t h = 0xCBF29CE484222325ull;
  for (const char c : bytes) h = (h ^ static_cast<uint8_t>(c)) * 0x100000001B3ull;
  return h;
}

int64_t round_up(int64_t value, int64_t step) { return (value + step - 1) / step * step; }

/// Returns the offset of the weights in the file, which follow header and table.
int64_t data_offset(const std::string& table) {
  return round_up(static_cast<int64_t>(sizeof(Header) + table.size()), kHugePage);
}

int64_t num_row_panels(const PackedWeight& w) {
  return (w.value->weight.view.shape[0] + kRowPanelRows - 1) / kRowPanelRows;
}

class Writer final : public WeightCacheWriter {
 public:
  /// `head`: header and table; `offset`: offset of the weights in the file.
  Writer(CacheWriter file, std::string head, int64_t offset, const void* region, int64_t bytes)
      : file_(std::move(file)), head_(std::move(head)), offset_(offset), region_(static_cast<const uint8_t*>(region)),
        bytes_(bytes) {
    try {
      thread_ = std::thread([this] {
        const bool ok = run();
        std::lock_guard lock(mutex_);
        is_written_ = ok;
        is_done_ = true;
        changed_.notify_all();
      });
    } catch (const std::system_error&) {  // no thread: nothing is cached
      is_done_ = true;
    }
  }
  ~Writer() override {
    {
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, kGrace, [&] { return is_done_; });
    }
    is_cancelled_.store(true);
    if (thread_.joinable()) thread_.join();
  }
  bool wait() override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return is_done_; });
    return is_written_;
  }

 private:
  bool run() {
    if (!file_.write(head_.data(), static_cast<int64_t>(head_.size()), 0).ok()) return false;
    for (int64_t begin = 0; begin < bytes_; begin += kChunk) {
      if (is_cancelled_.load()) return false;
      const int64_t n = std::min(kChunk, bytes_ - begin);
      if (!file_.write(region_ + begin, n, offset_ + begin).ok()) return false;
      file_.flush(offset_ + begin, n);
    }
    return file_.commit().ok();
  }

  CacheWriter file_;
  std::string head_;
  int64_t offset_;
  const uint8_t* region_;
  int64_t bytes_;
  std::atomic<bool> is_cancelled_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_done_ = false, is_written_ = false;
  std::thread thread_;
};

}  // namespace

WeightCache::WeightCache(WeightCacheOptions options, std::vector<PackedWeight> weights)
    : options_(std::move(options)), weights_(std::move(weights)) {
  enabled_ = !options_.cache.folder.empty() && !weights_.empty();
  for (const PackedWeight& w : weights_) {
    bytes_ = std::max(bytes_, w.offset + w.bytes);
    enabled_ = enabled_ && w.value->weight.file && w.value->weight.file->identity() != 0;
  }
  enabled_ = enabled_ && bytes_ >= options_.min_bytes && bytes_ <= options_.cache.max_bytes;
  if (!enabled_) return;
  const std::filesystem::path model = weights_[0].value->weight.file->path();
  std::string stem = (model.extension() == ".gguf" ? model.stem() : model.parent_path().filename()).string();
  stem.resize(std::min<size_t>(stem.size(), 100));
  name_ = fmt::format("{}-{:016x}", stem, checksum(table()));
}

std::string WeightCache::table() const {
  std::string text = fmt::format("{} {}\n", kVersion, options_.kernels);
  for (const PackedWeight& w : weights_)
    text += fmt::format("{} {} {}x{} at {}+{} of {:x}\n", w.value->name, dtype_info(w.value->weight.view.dtype).name,
                        w.value->weight.view.shape[0], w.value->weight.view.shape[1], w.offset, w.bytes,
                        w.value->weight.file->identity());
  return text;
}

bool WeightCache::check_row_panels(const uint8_t* region, WorkerTeam& team) const {
  std::atomic<bool> is_same{true};
  const uint32_t seed = std::random_device()();
  team.parallel_for(static_cast<int64_t>(weights_.size()), 1, [&](int64_t begin, int64_t end) {
    std::vector<uint8_t> expected;
    for (int64_t i = begin; i < end; ++i) {
      const PackedWeight& w = weights_[static_cast<size_t>(i)];
      const int64_t row_panels = num_row_panels(w);
      if (row_panels == 0 || w.bytes == 0) continue;
      const int64_t row_panel_bytes = w.bytes / row_panels;
      const int64_t row_panel = (seed + i * 7919) % row_panels;
      expected.assign(static_cast<size_t>(row_panel_bytes), 0);
      const auto& source_row = w.value->weight.source_row;
      TensorView rows = w.value->weight.view;
      rows.shape[0] = std::min(kRowPanelRows, rows.shape[0] - row_panel * kRowPanelRows);
      w.value->weight.need_rows(row_panel * kRowPanelRows, rows.shape[0]);
      pack_row_panels(rows, 0, 1, expected.data(), [&](int64_t n) {
        return source_row ? source_row(row_panel * kRowPanelRows + n) : row_panel * kRowPanelRows + n;
      });
      if (std::memcmp(expected.data(), region + w.offset + row_panel * row_panel_bytes, expected.size()) != 0)
        is_same = false;
      // Only this row panel is needed, but the system may have mapped many pages around it.
      if (w.value->weight.is_shared) continue;
      const MappedFile& file = *w.value->weight.file;
      file.release(static_cast<const uint8_t*>(w.value->weight.view.data) - file.data(), w.value->weight.view.bytes());
    }
  });
  return is_same;
}

bool WeightCache::load(void* region, WorkerTeam& team) const {
  if (!enabled_) return false;
  const std::string path = cache_path(options_.cache.folder, name_);
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  struct stat info;
  // Accept only files owned by the user: their contents determine what the model computes.
  if (file.get() < 0 || ::fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode) || info.st_uid != ::geteuid())
    return false;
  const std::string want = table();
  std::string got(want.size(), '\0');
  Header header{};
  const auto table_size = static_cast<ssize_t>(want.size());
  const bool is_whole = ::pread(file.get(), &header, sizeof header, 0) == static_cast<ssize_t>(sizeof header) &&
                        std::memcmp(header.magic, kMagic, sizeof kMagic) == 0 && header.version == kVersion &&
                        header.table_bytes == want.size() && header.table_checksum == checksum(want) &&
                        header.region_bytes == bytes_ && info.st_size == data_offset(want) + bytes_ &&
                        ::pread(file.get(), got.data(), got.size(), sizeof header) == table_size && got == want;
  if (!is_whole) {
    ::unlink(path.c_str());
    return false;
  }
  const int64_t page = ::sysconf(_SC_PAGESIZE), mapped = round_up(bytes_, page);
  void* own = region;
  // Mapped elsewhere first: the region stays intact until the file is validated.
  void* place = ::mmap(nullptr, static_cast<size_t>(mapped), PROT_READ, MAP_SHARED, file.get(), data_offset(want));
  if (place == MAP_FAILED) return false;
  const bool is_true = check_row_panels(static_cast<const uint8_t*>(place), team);
  ::munmap(place, static_cast<size_t>(mapped));
  if (!is_true) {
    ::unlink(path.c_str());
    return false;
  }
  place = ::mmap(own, static_cast<size_t>(mapped), PROT_READ, MAP_SHARED | MAP_FIXED, file.get(), data_offset(want));
  if (place == MAP_FAILED) return false;
  ::madvise(place, static_cast<size_t>(mapped), MADV_HUGEPAGE);
#ifdef MADV_POPULATE_READ
  // Fault in all pages at once and in parallel, unless that would evict pages just read. Older kernels fault page by
  // page.
  if (mapped / page < ::sysconf(_SC_PHYS_PAGES) / 4 * 3)
    team.parallel_for((mapped + kChunk - 1) / kChunk, 1, [&](int64_t begin, int64_t end) {
      const int64_t first = begin * kChunk;
      ::madvise(static_cast<uint8_t*>(place) + first, static_cast<size_t>(std::min(end * kChunk, mapped) - first),
                MADV_POPULATE_READ);
    });
#endif
  mark_used(options_.cache.folder, file.get());
  return true;
}

std::unique_ptr<WeightCacheWriter> WeightCache::store(const void* region) const {
  if (!enabled_) return nullptr;
  auto file = CacheWriter::create(options_.cache.folder, name_);
  const std::string text = table();
  const int64_t offset = data_offset(text);
  if (!file.ok() || !make_cache_room(options_.cache, offset + bytes_)) return nullptr;
  Header header{};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.version = kVersion;
  header.table_bytes = static_cast<uint32_t>(text.size());
  header.table_checksum = checksum(text);
  header.region_bytes = bytes_;
  std::string head(reinterpret_cast<const char*>(&header), sizeof header);
  head += text;
  try {
    return std::make_unique<Writer>(std::move(file).value(), std::move(head), offset, region, bytes_);
  } catch (const std::exception&) {  // no thread can be created
    return nullptr;
  }
}

}  // namespace redline
