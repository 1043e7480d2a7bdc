#include "formats/npy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "support/temporary_folder.h"

namespace redline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::TemporaryFolder;

std::string npy_slurp(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

template <class T>
std::string npy_bytes_of(std::initializer_list<T> values) {
  std::string bytes(values.size() * sizeof(T), '\0');
  std::memcpy(bytes.data(), std::data(values), bytes.size());
  return bytes;
}

// Version 1 as NumPy writes it.
std::string file_of(const std::string& header, const std::string& values) {
  std::string bytes("\x93NUMPY\x01\x00", 8);
  bytes += static_cast<char>(header.size() & 0xff);
  bytes += static_cast<char>(header.size() >> 8);
  return bytes + header + values;
}
std::string file_of_type(const std::string& type, const std::string& shape, const std::string& values) {
  return file_of("{'descr': '" + type + "', 'fortran_order': False, 'shape': (" + shape + "), }  \n", values);
}

TEST(NpyWriter, HeaderAndValues) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/x.npy";
  {
    auto writer = NpyWriter::create(path, std::array<int64_t, 2>{3, 2});
    ASSERT_TRUE(writer.ok()) << writer.status().to_string();
    const float rows[] = {1, 2, 3, 4, 5, 6};
    ASSERT_TRUE(writer->append(std::span(rows, 2)).ok());
    EXPECT_FALSE(std::filesystem::exists(path)) << "half a file under the final name";
    ASSERT_TRUE(writer->append(std::span(rows + 2, 4)).ok());
    ASSERT_TRUE(writer->close().ok());
  }
  const std::string bytes = npy_slurp(path);
  ASSERT_EQ(bytes.substr(0, 8), std::string("\x93NUMPY\x01\x00", 8));
  const size_t header = static_cast<uint8_t>(bytes[8]) + 256 * static_cast<uint8_t>(bytes[9]);
  EXPECT_EQ((10 + header) % 64, 0u);
  EXPECT_EQ(bytes.substr(10, 60), "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2), } ");
  EXPECT_EQ(bytes[10 + header - 1], '\n');
  ASSERT_EQ(bytes.size(), 10 + header + 24);
  float last = 0;
  std::memcpy(&last, bytes.data() + bytes.size() - 4, 4);
  EXPECT_EQ(last, 6);
}

TEST(NpyWriter, AnyNumberOfDimensionsComesBack) {
  const TemporaryFolder folder;
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{}, {3}, {0, 4}, {2, 1, 3}, {1, 2, 1, 2, 1, 2}, {2, 3, 4, 5}}) {
    const std::string path = folder.path() + "/x.npy";
    int64_t count = 1;
    for (int64_t size : shape) count *= size;
    std::vector<float> values;
    for (int64_t i = 0; i < count; ++i) values.push_back(static_cast<float>(i) / 3);
    const Status written = write_npy(path, shape, values);
    ASSERT_TRUE(written.ok()) << written.to_string();
    const auto array = read_npy(path);
    ASSERT_TRUE(array.ok()) << array.status().to_string();
    EXPECT_EQ(array->shape, shape);
    EXPECT_EQ(array->values, values);
  }
  EXPECT_THAT(npy_slurp(folder.path() + "/x.npy"), HasSubstr("'shape': (2, 3, 4, 5), }"));
  ASSERT_TRUE(write_npy(folder.path() + "/one.npy", std::array<int64_t, 1>{1}, std::array{1.0f}).ok());
  EXPECT_THAT(npy_slurp(folder.path() + "/one.npy"), HasSubstr("'shape': (1,), }"));
}

TEST(NpyWriter, LeavesNothingWhenItIsNotClosed) {
  const TemporaryFolder folder;
  {
    auto writer = NpyWriter::create(folder.path() + "/x.npy", std::array<int64_t, 2>{2, 1});
    const float value = 1;
    ASSERT_TRUE(writer->append(std::span(&value, 1)).ok());
    EXPECT_EQ(writer->close().code(), Code::internal);
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(NpyWriter, Errors) {
  const TemporaryFolder folder;
  const std::array<int64_t, 2> shape = {1, 2};
  const auto missing = NpyWriter::create("/nonexistent-folder/x.npy", shape);
  EXPECT_EQ(missing.status().code(), Code::io);
  EXPECT_THAT(missing.status().message(), HasSubstr("/nonexistent-folder/x.npy: cannot be written"));
  auto writer = NpyWriter::create(folder.path() + "/x.npy", shape);
  const float values[3] = {};
  EXPECT_EQ(writer->append(values).code(), Code::internal);
  EXPECT_EQ(NpyWriter::create(folder.path() + "/y.npy", std::array<int64_t, 1>{-1}).status().code(), Code::internal);
}

TEST(ReadNpy, TypesBecomeFloat32) {
  auto array = parse_npy(file_of_type("<f4", "2,", npy_bytes_of<float>({1.5f, -2})), "x");
  ASSERT_TRUE(array.ok()) << array.status().to_string();
  EXPECT_THAT(array->values, ElementsAre(1.5f, -2));
  array = parse_npy(file_of_type("<f8", "1, 2", npy_bytes_of<double>({0.1, 1e300})), "x");
  ASSERT_TRUE(array.ok()) << array.status().to_string();
  EXPECT_THAT(array->values, ElementsAre(0.1f, std::numeric_limits<float>::infinity()));
  EXPECT_THAT(array->shape, ElementsAre(1, 2));
  array = parse_npy(file_of_type("<f2", "3L, ", npy_bytes_of<uint16_t>({0x3c00, 0xc000, 0x0001})), "x");
  ASSERT_TRUE(array.ok()) << array.status().to_string();
  EXPECT_THAT(array->values, ElementsAre(1, -2, 0x1p-24f));
  // Keys in another order, double quotes, the wide header of version 2.
  const std::string header = "{\"shape\": (), \"fortran_order\": True, \"descr\": \"<f4\"}\n";
  std::string wide("\x93NUMPY\x02\x00", 8);
  wide += npy_bytes_of<uint32_t>({static_cast<uint32_t>(header.size())}) + header + npy_bytes_of<float>({7});
  array = parse_npy(wide, "x");
  ASSERT_TRUE(array.ok()) << array.status().to_string();
  EXPECT_THAT(array->values, ElementsAre(7));
  EXPECT_TRUE(array->shape.empty());
}

TEST(ReadNpy, ErrorsSayWhatIsWrong) {
  const auto expect = [](const std::string& bytes, Code code, const std::string& words, int64_t most = 100) {
    const auto array = parse_npy(bytes, "noise.npy", most);
    ASSERT_FALSE(array.ok()) << words;
    EXPECT_EQ(array.status().code(), code) << array.status().to_string();
    EXPECT_THAT(array.status().message(), HasSubstr(words));
    EXPECT_THAT(array.status().message(), HasSubstr("noise.npy: "));
  };
  const std::string two = npy_bytes_of<float>({1, 2});
  expect("", Code::invalid_argument, "not a .npy file");
  expect("PK\x03\x04 and more bytes", Code::invalid_argument, "not a .npy file; it looks like a zip");
  expect(std::string("\x93NUMPY\x09\x00\x10\x00", 10), Code::unsupported, "version 9.0");
  expect(std::string("\x93NUMPY\x01\x00\x10\x00", 10), Code::invalid_argument, "ends early");
  expect(file_of_type(">f4", "2,", two), Code::unsupported, "values of type \">f4\"; save x.astype(\"<f4\")");
  expect(file_of_type("<i8", "1,", two), Code::unsupported, "values of type \"<i8\"");
  expect(file_of_type("<f4", "3,", two), Code::invalid_argument, "8 bytes of values, and its shape [3] of <f4 has 12");
  expect(file_of_type("<f4", "1,", two), Code::invalid_argument, "8 bytes of values");
  expect(file_of_type("<f4", "101,", two), Code::invalid_argument, "shape [101], expected at most 100 values");
  expect(file_of_type("<f4", "9000000000, 9000000000", two), Code::invalid_argument, "no memory holds");
  expect(file_of_type("<f4", "-1,", two), Code::invalid_argument, "something else than a size");
  expect(file_of_type("<f4", "a", two), Code::invalid_argument, "something else than a size");
  expect(file_of_type("<f4", "99999999999999999999", two), Code::invalid_argument, "something else than a size");
  std::string many;
  for (int i = 0; i < 40; ++i) many += "1, ";
  expect(file_of_type("<f4", many, two), Code::invalid_argument, "too many dimensions");
  expect(file_of("{'descr': '<f4', 'fortran_order': True, 'shape': (1, 2), }", two), Code::unsupported,
         "numpy.ascontiguousarray");
  expect(file_of("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,), }", two), Code::unsupported,
         "structured array");
  expect(file_of("{'descr': '<f4', 'fortran_order': Maybe}", two), Code::invalid_argument, "neither True nor False");
  expect(file_of("{'descr': '<f4'}", two), Code::invalid_argument, "lacks one of");
  expect(file_of("{'a': 1}", two), Code::invalid_argument, "unknown key \"a\"");
  expect(file_of("{'descr", two), Code::invalid_argument, "string without an end");
  expect(file_of("{", two), Code::invalid_argument, "lacks a string where one is expected");
  expect(file_of("[]", two), Code::invalid_argument, "does not begin with {");
  // Every cut of a good file is an error, never a crash.
  const std::string good = file_of_type("<f4", "2,", two);
  for (size_t size = 0; size < good.size(); ++size) EXPECT_FALSE(parse_npy(good.substr(0, size), "noise.npy").ok());
  EXPECT_EQ(read_npy("/nonexistent.npy").status().code(), Code::not_found);
}

}  // namespace
}  // namespace redline
