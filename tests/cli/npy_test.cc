#include "cli/npy.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

namespace redline::cli {
namespace {

std::string slurp(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(Npy, HeaderAndValues) {
  const std::string path = testing::TempDir() + "redline_npy_test.npy";
  {
    auto writer = NpyWriter::create(path, 3, 2);
    ASSERT_TRUE(writer.ok()) << writer.status().to_string();
    const float rows[] = {1, 2, 3, 4, 5, 6};
    ASSERT_TRUE(writer->append(std::span(rows, 2)).ok());
    EXPECT_FALSE(std::filesystem::exists(path)) << "half a file under the final name";
    ASSERT_TRUE(writer->append(std::span(rows + 2, 4)).ok());
    ASSERT_TRUE(writer->close().ok());
  }
  const std::string bytes = slurp(path);
  ASSERT_EQ(bytes.substr(0, 8), std::string("\x93NUMPY\x01\x00", 8));
  const size_t header = static_cast<uint8_t>(bytes[8]) + 256 * static_cast<uint8_t>(bytes[9]);
  EXPECT_EQ((10 + header) % 64, 0u);
  EXPECT_EQ(bytes.substr(10, 58), "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2), ");
  EXPECT_EQ(bytes[10 + header - 1], '\n');
  ASSERT_EQ(bytes.size(), 10 + header + 24);
  float last = 0;
  std::memcpy(&last, bytes.data() + bytes.size() - 4, 4);
  EXPECT_EQ(last, 6);
  std::filesystem::remove(path);
}

TEST(Npy, LeavesNothingWhenItIsNotClosed) {
  const std::string folder = testing::TempDir() + "redline_npy_folder";
  std::filesystem::create_directory(folder);
  {
    auto writer = NpyWriter::create(folder + "/x.npy", 2, 1);
    const float value = 1;
    ASSERT_TRUE(writer->append(std::span(&value, 1)).ok());
    EXPECT_EQ(writer->close().code(), Code::internal);
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder));
  std::filesystem::remove_all(folder);
}

TEST(Npy, Errors) {
  const auto missing = NpyWriter::create("/nonexistent-folder/x.npy", 1, 1);
  EXPECT_EQ(missing.status().code(), Code::io);
  EXPECT_NE(missing.status().message().find("/nonexistent-folder/x.npy: cannot be written"), std::string::npos);
  auto writer = NpyWriter::create(testing::TempDir() + "redline_npy_errors.npy", 1, 2);
  const float values[4] = {};
  EXPECT_EQ(writer->append(std::span(values, 1)).code(), Code::internal);
  EXPECT_EQ(writer->append(std::span(values, 4)).code(), Code::internal);
}

}  // namespace
}  // namespace redline::cli
