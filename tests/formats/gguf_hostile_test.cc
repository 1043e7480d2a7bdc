// GGUF files that lie: each refused with the path, the place and the reason, and never at the price of memory.
#include <gmock/gmock.h>

#include <random>

#include "formats/format_test_files.h"
#include "formats/gguf.h"
#include "support/heap_meter.h"

namespace redline {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

Status gguf_hostile_parse_error(const std::string& bytes) {
  auto file = GgufFile::from_parts({memory_file(bytes)});
  EXPECT_FALSE(file.ok());
  if (!file.ok()) {
    EXPECT_THAT(file.status().message(), StartsWith("x.bin: "));
  }
  return file.status();
}
#define EXPECT_GGUF_REFUSED(bytes, text) EXPECT_THAT(gguf_hostile_parse_error(bytes).message(), HasSubstr(text))

/// Two tensors, a few keys of every kind: small enough to try every truncation and many mutations.
RawGguf small_file() {
  RawGguf file;
  file.keys = {kv("general.architecture", 8, counted("llama")),
               kv("a.u8", 0, "\x01"),
               kv("a.f64", 12, raw(1.0)),
               kv("a.flag", 7, "\x01"),
               kv("general.alignment", 4, u32(32)),
               kv("a.names", 9, u32(8) + u64(2) + counted("x") + counted("yy")),
               kv("a.nested", 9, u32(9) + u64(1) + u32(7) + u64(2) + "\x01\x01")};
  file.tensors = {tensor_info("first", {32, 2}, 8, 0), tensor_info("second", {3}, 0, 96)};
  file.data = std::string(96, '\x11') + raw(1.0f) + raw(2.0f) + raw(3.0f);
  return file;
}

TEST(GgufHostile, TruncatedAtEveryByte) {
  const std::string whole = small_file().bytes();
  ASSERT_TRUE(GgufFile::from_parts({memory_file(whole)}).ok());
  for (size_t length = 0; length < whole.size(); ++length) {
    auto file = GgufFile::from_parts({memory_file(whole.substr(0, length))});
    EXPECT_FALSE(file.ok()) << "cut at " << length;
  }
}

TEST(GgufHostile, MutatedBytesNeverCrash) {
  const std::string whole = small_file().bytes();
  std::mt19937 random(20240501);
  for (size_t at = 0; at < whole.size() - 108; ++at) {
    for (int round = 0; round < 12; ++round) {
      std::string bytes = whole;
      bytes[at] = static_cast<char>(round < 4 ? "\x00\xff\x80\x7f"[round] : random());
      auto file = GgufFile::from_parts({memory_file(bytes)});
      if (!file.ok()) {
        EXPECT_FALSE(file.status().message().empty());
        continue;
      }
      for (const GgufTensor& tensor : file->tensors()) {  // what is promised may be read
        EXPECT_LE(tensor.file_offset + tensor.bytes, static_cast<int64_t>(bytes.size()));
        if (tensor.view.data != nullptr) {
          EXPECT_EQ(tensor.view.bytes(), tensor.bytes);
        }
      }
      for (const auto& [key, value] : file->metadata()) value.to_string();
    }
  }
}

TEST(GgufHostile, OtherKindsOfFile) {
  EXPECT_GGUF_REFUSED("", "the file is empty");
  EXPECT_GGUF_REFUSED(std::string("PK\x03\x04rest of it"), "looks like a zip archive");
  EXPECT_GGUF_REFUSED(u64(20) + "{\"a\":{\"dtype\":\"F32\"}", "looks like a safetensors file");
  EXPECT_GGUF_REFUSED("version https://git-lfs.github.com/spec/v1", "git lfs pull");
  EXPECT_GGUF_REFUSED("tjgg....", "from before GGUF");
  EXPECT_GGUF_REFUSED("<!DOCTYPE html>", "web page");
  EXPECT_GGUF_REFUSED("FUGG....", "big-endian");
  EXPECT_GGUF_REFUSED(
      "ab\x01\x02"
      "cd",
      R"(the magic is "ab\x01\x02")");
  RawGguf file = small_file();
  file.version = 1;
  EXPECT_EQ(gguf_hostile_parse_error(file.bytes()).code(), Code::unsupported);
  EXPECT_GGUF_REFUSED(file.bytes(), "GGUF version 1; Redline reads 2 and 3");
  file.version = 0x03000000;
  EXPECT_EQ(gguf_hostile_parse_error(file.bytes()).code(), Code::unsupported);
  EXPECT_GGUF_REFUSED(file.bytes(), "big-endian");
  file.version = 4;
  EXPECT_GGUF_REFUSED(file.bytes(), "GGUF version 4");
}

TEST(GgufHostile, AbsurdCountsAndLengths) {
  RawGguf file;
  for (const uint64_t many : {uint64_t{1000}, uint64_t{1} << 40, ~uint64_t{0} - 1}) {
    file = {};
    file.more_tensors = many;
    EXPECT_GGUF_REFUSED(file.bytes(), "tensors declared");
    file = {};
    file.more_keys = many;
    EXPECT_GGUF_REFUSED(file.bytes(), "metadata keys declared");
    for (const uint32_t type : {0u, 5u, 7u, 8u, 9u, 12u}) {
      file = {};
      file.keys = {kv("k", 9, u32(type) + u64(many))};
      EXPECT_GGUF_REFUSED(file.bytes(), "an array of " + std::to_string(many));
    }
    file.keys = {kv("k", 8, u64(many) + "abc")};
    EXPECT_GGUF_REFUSED(file.bytes(), "string needs " + std::to_string(many) + " bytes, 3 are left");
    file.keys = {u64(many) + "abcdefghijklmnop"};
    EXPECT_GGUF_REFUSED(file.bytes(), "metadata key needs");
  }
  file = {};
  file.keys = {kv(std::string(70000, 'k'), 0, "\x01")};
  EXPECT_GGUF_REFUSED(file.bytes(), "a metadata key of 70000 bytes");
  file = {};
  file.tensors = {tensor_info(std::string(2000, 't'), {1}, 0, 0)};
  file.data = raw(1.0f);
  EXPECT_GGUF_REFUSED(file.bytes(), "a tensor name of 2000 bytes");
}

TEST(GgufHostile, Metadata) {
  const auto with_key = [](const std::string& key) {
    RawGguf file;
    file.keys = {key};
    return file.bytes();
  };
  EXPECT_GGUF_REFUSED(with_key(kv("k", 13, "\x01")),
                      "at byte 33: metadata \"k\": unknown value type 13; expected 0 to 12");
  EXPECT_GGUF_REFUSED(with_key(kv("k", 9, u32(13) + u64(1) + "\x01")), "array element type 13");
  EXPECT_GGUF_REFUSED(with_key(kv("k", 7, "\x02")), "at byte 37: metadata \"k\": a bool is 0 or 1, this one is 2");
  EXPECT_GGUF_REFUSED(with_key(kv("k", 9, u32(7) + u64(2) + "\x01\x07")), "a bool is 0 or 1, this one is 7");
  EXPECT_GGUF_REFUSED(with_key(kv("", 4, u32(1))), "an empty metadata key");
  std::string nested = u32(0) + u64(1) + "\x01";
  for (int i = 0; i < 3; ++i) nested = u32(9) + u64(1) + nested;
  EXPECT_TRUE(GgufFile::from_parts({memory_file(with_key(kv("k", 9, nested)))}).ok());
  std::string deep;
  for (int i = 0; i < 100000; ++i) deep += u32(9) + u64(1);
  EXPECT_GGUF_REFUSED(with_key(kv("k", 9, deep)), "arrays nested more than 4 deep");

  RawGguf file;
  file.keys = {kv("twice", 0, "\x01"), kv("other", 0, "\x01"), kv("twice", 0, "\x01")};
  EXPECT_GGUF_REFUSED(file.bytes(), "duplicate metadata key \"twice\"");
  for (const uint32_t alignment : {0u, 3u, 48u}) {
    file.keys = {kv("general.alignment", 4, u32(alignment))};
    EXPECT_GGUF_REFUSED(file.bytes(), "expected a power of two");
  }
  file.keys = {kv("general.alignment", 11, raw(int64_t{-32}))};
  EXPECT_GGUF_REFUSED(file.bytes(), "general.alignment is -32");
  file.keys = {kv("general.alignment", 8, counted("big"))};
  EXPECT_GGUF_REFUSED(file.bytes(), "metadata general.alignment is \"big\", expected an integer");
  file = small_file();
  file.keys = {kv("general.alignment", 4, u32(1u << 30))};
  EXPECT_GGUF_REFUSED(file.bytes(), "multiple of the alignment");
  file.keys = {kv("split.count", 2, raw(uint16_t{3}))};
  EXPECT_GGUF_REFUSED(file.bytes(), "split.count is 3, expected 1");
}

TEST(GgufHostile, Tensors) {
  const auto with_tensors = [](std::vector<std::string> tensors, size_t data_bytes = 128) {
    RawGguf file;
    file.tensors = std::move(tensors);
    file.data = std::string(data_bytes, '\0');
    return file.bytes();
  };
  EXPECT_GGUF_REFUSED(with_tensors({tensor_info("t", {}, 0, 0) + std::string(64, 'x')}), "tensor \"t\": 0 dimensions");
  EXPECT_GGUF_REFUSED(with_tensors({tensor_info("t", {1, 1, 1, 1, 1}, 0, 0)}), "5 dimensions, expected 1 to 4");
  EXPECT_GGUF_REFUSED(with_tensors({tensor_info("t", {4, 0}, 0, 0)}), "dimension 1 has size 0");
  EXPECT_GGUF_REFUSED(with_tensors({tensor_info("t", {~uint64_t{0}}, 0, 0)}), "overflows at dimension 0");
  EXPECT_GGUF_REFUSED(with_tensors({tensor_info("t", {uint64_t{1} << 32, uint64_t{1} << 32}, 0, 0)}), "overflows");
  EXPECT_GGUF_REFUSED(with_tensors({tensor_info("t", {uint64_t{1} << 62}, 0, 0)}), "its size in bytes overflows");
  EXPECT_GGUF_REFUSED(with_tensors({tensor_info("t", {33}, 2, 0)}), "rows of 33 elements, type");
  EXPECT_GGUF_REFUSED(with_tensors({tensor_info("t", {32, 8}, 12, 0)}), "needs a multiple of 256");
  EXPECT_GGUF_REFUSED(with_tensors({tensor_info("t", {33}, 0, 0)}), "its 132 bytes at offset 0 end beyond the file");
  EXPECT_GGUF_REFUSED(with_tensors({tensor_info("t", {1}, 0, 128)}), "end beyond the file: the data has 128 bytes");
  EXPECT_GGUF_REFUSED(with_tensors({tensor_info("t", {1}, 0, 4096)}), "is beyond the end of the file");
  EXPECT_GGUF_REFUSED(with_tensors({tensor_info("t", {1}, 0, ~uint64_t{31})}), "is beyond the end of the file");
  EXPECT_GGUF_REFUSED(with_tensors({tensor_info("t", {1}, 0, 4)}), "offset 4 is not a multiple of the alignment 32");
  EXPECT_GGUF_REFUSED(with_tensors({tensor_info("", {1}, 0, 0) + "."}), "an empty tensor name");
  EXPECT_GGUF_REFUSED(with_tensors({tensor_info("a", {9}, 0, 0), tensor_info("b", {1}, 0, 32)}),
                      "tensors \"a\" and \"b\" overlap");
  EXPECT_GGUF_REFUSED(with_tensors({tensor_info("b", {1}, 0, 32), tensor_info("a", {9}, 0, 0)}), "overlap");
  EXPECT_GGUF_REFUSED(with_tensors({tensor_info("a", {1}, 99, 0), tensor_info("b", {1}, 99, 0)}), "overlap");
  EXPECT_GGUF_REFUSED(with_tensors({tensor_info("a", {1}, 0, 0), tensor_info("a", {1}, 0, 32)}),
                      "duplicate tensor \"a\"");
  EXPECT_GGUF_REFUSED(with_tensors({tensor_info("a\x1b[31m", {1}, 0, 4)}),
                      R"("a\x1b[31m")");  // no escape reaches a terminal
}

/// Opens `bytes` and says how far the heap grew at most, beside the file itself.
int64_t heap_growth(const std::string& bytes) {
  auto file = memory_file(bytes);
  const HeapMeter meter;
  auto parsed = GgufFile::from_parts({file});
  return meter.peak_growth();
}

TEST(GgufHostile, MemoryStaysBelowTheFile) {
  constexpr int64_t kConstant = int64_t{1} << 20;
  std::vector<std::pair<std::string, std::string>> files;
  RawGguf file;
  const uint64_t many = 1 << 20;
  file.keys = {kv("k", 9, u32(8) + u64(many) + std::string(8 * many, '\0'))};
  files.emplace_back("empty strings", file.bytes());
  file.keys = {kv("k", 9, u32(0) + u64(8 * many) + std::string(8 * many, '\1'))};
  files.emplace_back("bytes", file.bytes());
  std::string arrays;
  for (uint64_t i = 0; i < many / 2; ++i) arrays += u32(0) + u64(0);
  file.keys = {kv("k", 9, u32(9) + u64(many / 2) + arrays)};
  files.emplace_back("empty arrays", file.bytes());
  file.keys = {kv("k", 8, counted(std::string(8 * many, 'x')))};
  files.emplace_back("one string", file.bytes());
  file.keys.clear();
  for (uint64_t i = 0; i < many / 4; ++i) file.keys.push_back(kv(fmt::format("{:x}", i), 0, "\x01"));
  files.emplace_back("tiny keys", file.bytes());
  file.keys.clear();
  for (int i = 0; i < 200; ++i) file.keys.push_back(kv(fmt::format("{:0>65000}", i), 0, "\x01"));
  files.emplace_back("long keys", file.bytes());
  file.keys.clear();
  for (uint64_t i = 0; i < many / 8; ++i) file.tensors.push_back(tensor_info(fmt::format("{:x}", i), {1, 1}, 24, 0));
  file.data = "\x01";
  files.emplace_back("tiny tensors", file.bytes());
  for (const auto& [name, bytes] : files)
    EXPECT_LE(heap_growth(bytes), static_cast<int64_t>(bytes.size()) + kConstant)
        << name << ": " << bytes.size() << " bytes";
}

}  // namespace
}  // namespace redline
