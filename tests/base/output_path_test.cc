#include "base/output_path.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "support/temporary_folder.h"

namespace redline {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using testing::TemporaryFolder;

TEST(OutputPath, NewNamesAndFilesAreThemselves) {
  const TemporaryFolder folder;
  EXPECT_EQ(output_path("new.npy").value(), "new.npy");
  const fs::path file = fs::canonical(folder.path()) / "a";
  std::ofstream(file) << "x";
  EXPECT_EQ(output_path(file.string()).value(), file.string());
}

TEST(OutputPath, LinksAreFollowed) {
  const TemporaryFolder folder;
  const fs::path file = fs::canonical(folder.path()) / "a";
  std::ofstream(file) << "x";
  fs::create_symlink("a", fs::path(folder.path()) / "link");
  EXPECT_EQ(output_path((fs::path(folder.path()) / "link").string()).value(), file.string());
}

TEST(OutputPath, FoldersDevicesAndPipesAreRefused) {
  const TemporaryFolder folder;
  const std::string pipe = (fs::path(folder.path()) / "pipe").string();
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(output_path(pipe).status().code(), Code::invalid_argument);
  EXPECT_THAT(output_path("/dev/full").status().message(), HasSubstr("/dev/full: is not a regular file"));
  EXPECT_THAT(output_path("/").status().message(), HasSubstr("is a folder"));
  EXPECT_THAT(output_path("").status().message(), HasSubstr("empty"));
}

}  // namespace
}  // namespace redline
