// Packed weights kept in a file: whole, damaged, in the making, made by two at once, made by one that is killed.
#include "backends/cpu/weight_cache.h"

#include <gmock/gmock.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

#include "graph/program.h"
#include "support/temporary_folder.h"
#include "tensor/packed_weight.h"

namespace redline::test {
namespace {

namespace fs = std::filesystem;

/// A "model" of three matrices in a file, and the region that they are packed into.
class WeightCacheTest : public ::testing::Test {
 protected:
  static constexpr int64_t kRows[] = {1000, 33, 4096}, kCols = 512;

  void SetUp() override {
    options_.cache = {folder_.path() + "/cache", int64_t{1} << 30};
    options_.min_bytes = 1;
    options_.kernels = "test";
    write_model(1);
  }

  void write_model(uint32_t seed) {
    std::mt19937 random(seed);
    std::string bytes;
    for (const int64_t rows : kRows)
      for (int64_t i = 0; i < rows * kCols; ++i) bytes += static_cast<char>(random());
    // Q8_0 has 34 bytes for 32 elements; plain bytes will do: packing only moves them.
    bytes.resize(bytes.size() * 34 / 32, 'x');
    std::ofstream(model_path(), std::ios::binary) << bytes;
    file_ = MappedFile::open(model_path()).value();
    values_.clear();
    values_.reserve(3);
    int64_t at = 0;
    for (const int64_t rows : kRows) {
      ValueInfo value;
      value.name = fmt::format("weight.{}", values_.size());
      value.kind = ValueKind::kWeight;
      value.weight.view = {DType::kQ8_0, {rows, kCols}, file_->data() + at};
      value.weight.file = file_;
      at += rows * row_bytes(DType::kQ8_0, kCols);
      values_.push_back(std::move(value));
    }
  }

  std::string model_path() const { return folder_.path() + "/model.gguf"; }

  std::vector<PackedWeight> weights() const {
    std::vector<PackedWeight> list;
    int64_t at = 0;
    for (const ValueInfo& value : values_) {
      const int64_t bytes = packed_bytes(DType::kQ8_0, value.weight.view.shape[0], kCols);
      list.push_back({&value, at, bytes});
      at += (bytes + 4095) / 4096 * 4096;
    }
    return list;
  }
  WeightCache cache() const { return {options_, weights()}; }
  std::string path() const { return cache_path(options_.cache.folder, cache().name()); }

  AlignedBuffer region() const {
    const PackedWeight last = weights().back();
    return AlignedBuffer::make(last.offset + last.bytes).value();
  }
  AlignedBuffer packed() const {
    AlignedBuffer buffer = region();
    for (const PackedWeight& w : weights())
      pack_row_panels(w.value->weight.view, 0, (w.value->weight.view.shape[0] + 15) / 16,
                      static_cast<uint8_t*>(buffer.data()) + w.offset);
    return buffer;
  }
  bool store(const AlignedBuffer& from) const {
    const auto writer = cache().store(from.data());
    return writer && writer->wait();
  }
  /// Loads from the cache and expects the bytes that packing gives. Returns false if nothing was loaded.
  bool loads() {
    const AlignedBuffer want = packed(), got = region();
    if (!cache().load(got.data(), team_)) return false;
    EXPECT_EQ(std::memcmp(want.data(), got.data(), static_cast<size_t>(want.size())), 0);
    return true;
  }
  size_t num_files() const {
    std::error_code error;
    size_t n = 0;
    for (fs::directory_iterator at(options_.cache.folder, error), end; !error && at != end; ++at) ++n;
    return n;
  }

  testing::TemporaryFolder folder_;
  WeightCacheOptions options_;
  WorkerTeam team_{2};
  std::shared_ptr<MappedFile> file_;
  std::vector<ValueInfo> values_;
};

TEST_F(WeightCacheTest, GivesBackWhatWasPacked) {
  EXPECT_FALSE(loads());
  EXPECT_TRUE(store(packed()));
  EXPECT_TRUE(loads());
  EXPECT_EQ(num_files(), 1u);
  EXPECT_THAT(fs::path(path()).filename().string(), ::testing::StartsWith("model-"));
}

TEST_F(WeightCacheTest, WhatIsTooSmallOrTurnedOffOrOfNoFileIsNotKept) {
  options_.min_bytes = int64_t{64} << 20;
  EXPECT_FALSE(cache().enabled());
  options_.min_bytes = 1;
  options_.cache.max_bytes = 1000;
  EXPECT_FALSE(cache().enabled());
  options_.cache.max_bytes = int64_t{1} << 30;
  EXPECT_TRUE(cache().enabled());
  values_[1].weight.file = MappedFile::from_bytes("memory", "x");
  EXPECT_FALSE(cache().enabled());
  values_[1].weight.file = file_;
  options_.cache.folder.clear();
  EXPECT_FALSE(cache().enabled());
  EXPECT_EQ(cache().store(nullptr), nullptr);
}

TEST_F(WeightCacheTest, AnotherModelOrInstructionSetHasAnotherName) {
  const std::string first = cache().name();
  options_.kernels = "other";
  const std::string second = cache().name();
  write_model(2);
  const std::string third = cache().name();
  EXPECT_NE(first, second);
  EXPECT_NE(second, third);
  EXPECT_NE(first, third);
}

TEST_F(WeightCacheTest, ACutOrDamagedFileIsRemovedAndCanBeMadeAgain) {
  const auto whole = [&] { return static_cast<int64_t>(fs::file_size(path())); };
  const std::pair<const char*, std::function<void()>> damages[] = {
      {"empty", [&] { fs::resize_file(path(), 0); }},
      {"head only", [&] { fs::resize_file(path(), 20); }},
      {"one byte short", [&] { fs::resize_file(path(), static_cast<uintmax_t>(whole() - 1)); }},
      {"one byte long", [&] { fs::resize_file(path(), static_cast<uintmax_t>(whole() + 1)); }},
      {"magic", [&] { std::fstream(path(), std::ios::in | std::ios::out).put('X'); }},
      {"version", [&] { std::fstream(path(), std::ios::in | std::ios::out).seekp(8).put('\x7f'); }},
      {"table", [&] { std::fstream(path(), std::ios::in | std::ios::out).seekp(60).put('\x7f'); }},
      {"contents", [&] {
         std::fstream file(path(), std::ios::in | std::ios::out);
         file.seekp(2 << 20);
         for (int i = 0; i < 4 << 20; ++i) file.put(0);  // as of blocks that were never written
       }}};
  for (const auto& [what, damage] : damages) {
    SCOPED_TRACE(what);
    ASSERT_TRUE(store(packed()));
    ASSERT_TRUE(loads());
    damage();
    EXPECT_FALSE(loads());
    EXPECT_FALSE(fs::exists(path()));
  }
}

TEST_F(WeightCacheTest, AChangedOrderOfPackingIsFoundByTheRowPanels) {
  AlignedBuffer buffer = packed();
  auto* bytes = static_cast<uint8_t*>(buffer.data());
  for (int64_t i = 0; i + 1 < buffer.size(); i += 2) std::swap(bytes[i], bytes[i + 1]);
  ASSERT_TRUE(store(buffer));
  EXPECT_FALSE(loads());
}

TEST_F(WeightCacheTest, ALinkOrAFolderInItsPlaceIsNotFollowed) {
  ASSERT_TRUE(store(packed()));
  const std::string elsewhere = folder_.path() + "/elsewhere";
  fs::rename(path(), elsewhere);
  fs::create_symlink(elsewhere, path());
  EXPECT_FALSE(loads());
  fs::remove(path());
  fs::create_directory(path());
  EXPECT_FALSE(loads());
  EXPECT_FALSE(store(packed()));  // a folder cannot be replaced by a file
}

TEST_F(WeightCacheTest, LeastRecentlyUsedFilesMakeRoom) {
  ASSERT_TRUE(store(packed()));
  const std::string first = path();
  const int64_t bytes = list_cache(options_.cache.folder)[0].bytes;
  options_.cache.max_bytes = bytes * 5 / 2 + (2 << 20);  // two, and what a file may take at most before its data
  options_.kernels = "second";
  ASSERT_TRUE(store(packed()));
  const std::string second = path();
  options_.kernels = "test";
  ASSERT_TRUE(loads());  // the first is now the more recently used
  options_.kernels = "third";
  ASSERT_TRUE(store(packed()));
  EXPECT_TRUE(fs::exists(first));
  EXPECT_FALSE(fs::exists(second));
  EXPECT_TRUE(fs::exists(path()));
  EXPECT_GT(clear_cache(options_.cache.folder), 0);
  EXPECT_EQ(num_files(), 0u);
}

TEST_F(WeightCacheTest, AFileInUseMayBeRemoved) {
  ASSERT_TRUE(store(packed()));
  const AlignedBuffer want = packed(), got = region();
  ASSERT_TRUE(cache().load(got.data(), team_));
  clear_cache(options_.cache.folder);
  EXPECT_EQ(std::memcmp(want.data(), got.data(), static_cast<size_t>(want.size())), 0);
}

TEST_F(WeightCacheTest, AWriterThatCannotWriteGivesUp) {
  std::ofstream(folder_.path() + "/file") << "x";
  options_.cache.folder = folder_.path() + "/file/cache";
  EXPECT_EQ(cache().store(packed().data()), nullptr);
}

/// Runs `body` in a process of its own. Threads do not survive a fork: the child has to make what it needs.
template <class Body>
pid_t in_child(Body&& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body() ? 0 : 1);
  return child;
}

TEST_F(WeightCacheTest, ProcessesThatWriteTheSameFileAtOnceLeaveAWholeOne) {
  const AlignedBuffer buffer = packed();
  std::vector<pid_t> children;
  for (int i = 0; i < 6; ++i)
    children.push_back(in_child([&] {
      bool ok = true;
      for (int round = 0; round < 5; ++round) ok = store(buffer) && ok;
      return ok;
    }));
  for (int round = 0; round < 20; ++round) {
    const AlignedBuffer got = region();
    // Whatever is there at any time is whole.
    if (cache().load(got.data(), team_)) {
      EXPECT_EQ(std::memcmp(buffer.data(), got.data(), static_cast<size_t>(buffer.size())), 0);
    }
  }
  for (const pid_t child : children) {
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  EXPECT_TRUE(loads());
  EXPECT_EQ(num_files(), 1u);
}

TEST_F(WeightCacheTest, AKilledWriterLeavesNothingThatIsRead) {
  const AlignedBuffer buffer = packed();
  std::mt19937 random(1);
  size_t unfinished = 0;
  for (int round = 0; round < 12; ++round) {
    const pid_t child = in_child([&] {
      while (true) store(buffer);
      return true;
    });
    usleep(static_cast<useconds_t>(1000 + random() % 15000));
    kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status));
    unfinished = std::max(unfinished, num_files());
    loads();  // compares when a file is there
    EXPECT_EQ(fs::exists(path()), loads());
  }
  RecordProperty("max_files", static_cast<int>(unfinished));
  ASSERT_TRUE(store(buffer));  // and sweeps what the dead have left
  EXPECT_TRUE(loads());
  EXPECT_EQ(num_files(), 1u);
}

}  // namespace
}  // namespace redline::test
