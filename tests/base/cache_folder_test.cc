// Which file of the cache was used last, however close together the uses are.
#include "base/cache_folder.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "base/descriptor.h"
#include "support/temporary_folder.h"

namespace redline {
namespace {

class CacheFolder : public ::testing::Test {
 protected:
  void make(const std::string& name) {
    auto writer = CacheWriter::create(folder_.path(), name);
    ASSERT_TRUE(writer.ok()) << writer.status().to_string();
    ASSERT_TRUE(writer->write("x", 1, 0).ok());
    ASSERT_TRUE(writer->commit().ok());
  }
  void use(const std::string& name) {
    const Descriptor file(::open(cache_path(folder_.path(), name).c_str(), O_RDONLY));
    mark_used(folder_.path(), file.get());
  }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const CacheFile& file : list_cache(folder_.path())) {
      const std::string name = file.path.substr(file.path.rfind('/') + 1);
      names.push_back(name.substr(0, name.find('.')));
    }
    return names;
  }
  testing::TemporaryFolder folder_;
};

// Faster than the clock that a file system stamps its files with: the order must not depend on it.
TEST_F(CacheFolder, UsesInQuickSuccessionKeepTheirOrder) {
  for (int round = 0; round < 50; ++round) {
    make("b");
    make("a");
    EXPECT_EQ(names(), (std::vector<std::string>{"b", "a"}));
    use("b");
    EXPECT_EQ(names(), (std::vector<std::string>{"a", "b"}));
    use("a");
    EXPECT_EQ(names(), (std::vector<std::string>{"b", "a"}));
  }
}

TEST_F(CacheFolder, AFileFromTheFutureDoesNotStayTheNewest) {
  make("old");
  make("future");
  const std::string path = cache_path(folder_.path(), "future");
  const struct timespec times[2] = {{.tv_sec = 0, .tv_nsec = UTIME_OMIT}, {.tv_sec = 4'000'000'000, .tv_nsec = 0}};
  ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  use("old");
  EXPECT_EQ(names(), (std::vector<std::string>{"future", "old"}));
}

}  // namespace
}  // namespace redline
