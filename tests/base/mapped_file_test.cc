#include "base/mapped_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

namespace redline {
namespace {

class MappedFileTest : public ::testing::Test {
 protected:
  MappedFileTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "redline-test-XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
  }
  ~MappedFileTest() override { std::filesystem::remove_all(folder_); }
  std::string file(const std::string& name, const std::string& text) const {
    const std::string path = (folder_ / name).string();
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }
  std::filesystem::path folder_;
};

TEST_F(MappedFileTest, MapsWhatIsThere) {
  const std::string text(100000, 'x');
  auto mapped = MappedFile::open(file("a", text));
  ASSERT_TRUE(mapped.ok()) << mapped.status().to_string();
  EXPECT_EQ((*mapped)->size(), 100000);
  EXPECT_EQ((*mapped)->text(), text);
  (*mapped)->release(0, 100000);  // a hint: the bytes stay readable
  (*mapped)->release(5000, int64_t{1} << 60);
  (*mapped)->release(-1, 10);
  (*mapped)->release(1 << 20, 10);
  EXPECT_EQ((*mapped)->text(), text);

  auto empty = MappedFile::open(file("empty", ""));
  ASSERT_TRUE(empty.ok());
  EXPECT_EQ((*empty)->size(), 0);
  EXPECT_TRUE((*empty)->text().empty());
  EXPECT_EQ(MappedFile::from_bytes("name", "abc")->text(), "abc");
}

TEST_F(MappedFileTest, KnowsOneFileUnderTwoNames) {
  const std::string path = file("a", "same");
  const std::string other = file("b", "same");
  std::filesystem::create_symlink(path, folder_ / "link");
  const auto open = [](const std::string& name) { return MappedFile::open(name).value(); };
  EXPECT_TRUE(open(path)->same_file(*open((folder_ / "link").string())));
  EXPECT_FALSE(open(path)->same_file(*open(other)));
  EXPECT_FALSE(MappedFile::from_bytes("x", "a")->same_file(*MappedFile::from_bytes("x", "a")));
}

TEST_F(MappedFileTest, MakesPiecesWhenTheyAreNeeded) {
  constexpr int64_t kPiece = 10000, kSize = 95000;
  std::atomic<int> made = 0, released = 0;
  MappedFile::Maker maker;
  maker.piece = kPiece;
  maker.fill = [&](int64_t begin, int64_t end, uint8_t* out) {
    ++made;
    for (int64_t i = begin; i < end; ++i) out[i - begin] = static_cast<uint8_t>(i % 251);
  };
  maker.release = [&](int64_t begin, int64_t end) {
    EXPECT_LT(begin, end);
    ++released;
  };
  maker.identity = 7;
  const auto file = MappedFile::make_lazily("lazy", kSize, maker).value();
  EXPECT_EQ(file->identity(), 7u);
  const auto is_whole = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      if (file->data()[i] != i % 251) return false;
    return true;
  };
  EXPECT_EQ(made, 0);
  file->need(kPiece - 1, 2);
  EXPECT_EQ(made, 2);
  EXPECT_TRUE(is_whole(0, 2 * kPiece));
  file->need(0, 2 * kPiece);
  EXPECT_EQ(made, 2);
  file->need(kSize - 1, int64_t{1} << 60);
  EXPECT_EQ(made, 3);
  EXPECT_TRUE(is_whole(9 * kPiece, kSize));
  file->need(-1, 10), file->need(kSize, 10), file->need(0, 0);
  EXPECT_EQ(made, 3);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      file->need(0, kSize);
      EXPECT_TRUE(is_whole(0, kSize));
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(made, 10);
  // Pieces that are released in part stay.
  file->release(kPiece / 2, 2 * kPiece);
  EXPECT_EQ(released, 1);
  EXPECT_TRUE(is_whole(0, kPiece) && is_whole(2 * kPiece, kSize));
  file->need(0, kSize);
  EXPECT_EQ(made, 11);
  file->release(0, int64_t{1} << 60);
  file->need(0, kSize);
  EXPECT_EQ(made, 21);
  EXPECT_TRUE(is_whole(0, kSize));
  EXPECT_EQ(MappedFile::make_lazily("empty", 0, maker).value()->size(), 0);
}

TEST_F(MappedFileTest, PiecesSurviveThreadsThatReleaseOthers) {
  constexpr int64_t kPiece = 5000, kSize = 16 * kPiece;
  MappedFile::Maker maker;
  maker.piece = kPiece;
  maker.fill = [&](int64_t begin, int64_t end, uint8_t* out) {
    for (int64_t i = begin; i < end; ++i) out[i - begin] = static_cast<uint8_t>(i % 251 + 1);
  };
  const auto file = MappedFile::make_lazily("lazy", kSize, maker).value();
  // Ranges that overlap; no byte is read while another thread may release it.
  for (int round = 0; round < 50; ++round) {
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&, t] {
        for (int i = 0; i < 20; ++i) {
          file->need(t * kPiece, (8 + t) * kPiece);
          file->release((t + i % 3) * kPiece, 6 * kPiece);
        }
      });
    for (std::thread& thread : threads) thread.join();
    file->need(0, kSize);
    for (int64_t i = 0; i < kSize; ++i) ASSERT_EQ(file->data()[i], i % 251 + 1) << i << " in round " << round;
  }
}

TEST_F(MappedFileTest, SaysWhatIsWrong) {
  const auto check = [](const std::string& path, Code code, const std::string& text) {
    for (const Status& status : {MappedFile::open(path).status(), read_text_file(path).status()}) {
      EXPECT_EQ(status.code(), code) << status.to_string();
      EXPECT_NE(status.message().find(text), std::string::npos) << status.to_string();
    }
  };
  const std::string missing = (folder_ / "missing").string();
  check(missing, Code::not_found, missing + ": no such file");
  check(file("a", "") + "/inside", Code::not_found, "no such file");
  check(folder_.string(), Code::invalid_argument, "is a folder");
  check("/dev/null", Code::invalid_argument, "not a regular file");
  const std::string pipe = (folder_ / "pipe").string();
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  check(pipe, Code::invalid_argument, "not a regular file");  // and does not wait for a writer
  std::filesystem::create_symlink(folder_ / "loop", folder_ / "loop");
  check((folder_ / "loop").string(), Code::io, "loop: cannot open: ");
  check(std::string("a\0b", 3), Code::invalid_argument, "zero byte");
  if (geteuid() != 0) {
    const std::string secret = file("secret", "x");
    std::filesystem::permissions(secret, std::filesystem::perms::none);
    check(secret, Code::io, "Permission denied");
  }
}

TEST_F(MappedFileTest, ReadsSmallTextFilesWhole) {
  const std::string text = "line\n\xff" + std::string(70000, 'z');
  EXPECT_EQ(*read_text_file(file("t", text)), text);
  EXPECT_EQ(*read_text_file(file("e", "")), "");
  const Status large = read_text_file(file("l", "12345"), 4).status();
  EXPECT_EQ(large.code(), Code::invalid_argument);
  EXPECT_NE(large.message().find("has 5 bytes, at most 4"), std::string::npos);
}

}  // namespace
}  // namespace redline
