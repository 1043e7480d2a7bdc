// Reads a damaged file of the prefix cache on disk. Each pair of bytes after the first is an offset in a valid file and
// the byte to write there. The first byte chooses whether the header's checksum is repaired and whether the size of the
// file changes.
#include <cstring>

#include "base/cache_folder.h"
#include "base/hash.h"
#include "fuzz_file.h"
#include "llm/page_store.h"

using namespace redline;

namespace {

constexpr int64_t kPageBytes[] = {16, 24};
constexpr ContentKey kTokens[] = {5, 6, 7};
// Offsets of the header's checksum, mask of state groups, key size and number of tokens; and the size of the header.
constexpr size_t kChecksum = 48, kGroups = 56, kKeyBytes = 64, kNumTokens = 68, kHeaderBytes = 80;

/// A page store with one page.
struct Store {
  FuzzFolder folder;
  std::unique_ptr<PageStore> pages;
  PageOfText page;
  std::string name, valid;  ///< name and valid bytes of the page's file

  Store() {
    auto opened = PageStore::open({folder.path(), 1 << 20, 7, {std::begin(kPageBytes), std::end(kPageBytes)}, {}});
    require(opened.ok());
    pages = std::move(opened).value();
    page = pages->page({}, "key", kTokens);
    const uint8_t first[16] = {1}, second[24] = {2};
    const uint8_t* const both[] = {first, second};
    require(pages->write(page, "key", both));
    pages->flush();
    for (const CacheFile& file : list_cache(folder.path())) name = std::filesystem::path(file.path).filename();
    valid = read_text_file(folder.path() + "/" + name).value();
    require(valid.size() == kHeaderBytes + 16 + 8 + 16 + 16 + 24);
  }
};

/// Returns the 32-bit number at an offset.
uint32_t number_at(const std::string& bytes, size_t at) {
  uint32_t value = 0;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

/// Sets the checksum of the header, unless the metadata that it covers exceeds the file.
void repair_checksum(std::string& file) {
  if (file.size() < kHeaderBytes) return;
  const auto padded = [](uint64_t bytes) { return (bytes + 7) / 8 * 8; };
  const uint64_t end = kHeaderBytes + 8 * static_cast<uint64_t>(__builtin_popcount(number_at(file, kGroups))) +
                       padded(number_at(file, kKeyBytes)) + padded(uint64_t{4} * number_at(file, kNumTokens));
  if (end > file.size()) return;
  const uint64_t sum = hash_bytes(0, file.data() + kHeaderBytes, end - kHeaderBytes);
  std::memcpy(file.data() + kChecksum, &sum, sizeof sum);
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static Store store;
  if (size == 0) return 0;
  std::string file = store.valid;
  for (size_t i = 1; i + 1 < size; i += 2)
    if (data[i] < file.size()) file[data[i]] = static_cast<char>(data[i + 1]);
  if (data[0] & 1) repair_checksum(file);
  if (data[0] & 2) file.resize(data[0] * size_t{5} / 2 % (file.size() + 32));
  store.folder.write(store.name, file);
  const auto groups = store.pages->groups(store.page, "key");
  store.folder.write(store.name, file);  // again: groups() removes an invalid file
  for (const uint64_t wanted : {uint64_t{1}, uint64_t{2}, uint64_t{3}}) {
    uint8_t place[2][24] = {};
    const bool is_read =
        store.pages->read(store.page, "key", wanted, [&](size_t g) { return g < 2 ? place[g] : nullptr; });
    if (!is_read) continue;
    require(groups.has_value() && (wanted & ~*groups) == 0);
    for (size_t g = 0; g < 2; ++g)
      if (wanted >> g & 1) touch(place[g], kPageBytes[g]);
  }
  return 0;
}
