// The GGUF reader and writer on good files: every value type, real models, splits.
#include "formats/gguf.h"

#include <gmock/gmock.h>
#include <sys/resource.h>

#include <csignal>

#include "formats/format_test_files.h"
#include "formats/gguf_writer.h"

namespace redline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

GgufFile parse_gguf(const std::string& bytes) {
  auto file = GgufFile::from_parts({memory_file(bytes)});
  EXPECT_TRUE(file.ok()) << file.status().to_string();
  return file.ok() ? std::move(file).value() : GgufFile();
}

TEST(Gguf, EveryScalarType) {
  RawGguf raw_file;
  raw_file.keys = {kv("u8", 0, raw(uint8_t{250})),
                   kv("i8", 1, raw(int8_t{-7})),
                   kv("u16", 2, raw(uint16_t{65000})),
                   kv("i16", 3, raw(int16_t{-32000})),
                   kv("u32", 4, raw(uint32_t{4000000000u})),
                   kv("i32", 5, raw(int32_t{-2000000000})),
                   kv("f32", 6, raw(1.5f)),
                   kv("bool", 7, raw(uint8_t{1})),
                   kv("string", 8, counted("a\"b\n")),
                   kv("u64", 10, raw(uint64_t{1} << 63)),
                   kv("i64", 11, raw(int64_t{-1} << 62)),
                   kv("f64", 12, raw(0.1))};
  for (const uint32_t version : {2u, 3u}) {
    raw_file.version = version;
    const GgufFile file = parse_gguf(raw_file.bytes());
    EXPECT_EQ(file.version(), version);
    ASSERT_EQ(file.metadata().size(), 12u);
    EXPECT_EQ(file.find("u8")->as_int(), 250);
    EXPECT_EQ(file.find("i8")->as_int(), -7);
    EXPECT_EQ(file.find("u16")->as_int(), 65000);
    EXPECT_EQ(file.find("i16")->as_int(), -32000);
    EXPECT_EQ(file.find("u32")->as_int(), 4000000000);
    EXPECT_EQ(file.find("i32")->as_int(), -2000000000);
    EXPECT_EQ(file.find("i32")->as_double(), -2e9);
    EXPECT_EQ(file.find("f32")->as_double(), 1.5);
    EXPECT_EQ(file.find("f32")->as_int(), std::nullopt);
    EXPECT_EQ(file.find("bool")->as_bool(), true);
    EXPECT_EQ(file.find("bool")->as_int(), std::nullopt);
    EXPECT_EQ(file.find("string")->as_string(), "a\"b\n");
    EXPECT_EQ(file.find("string")->as_double(), std::nullopt);
    EXPECT_EQ(file.find("string")->to_string(), R"("a\"b\x0a")");
    EXPECT_EQ(file.find("u64")->as_int(), std::nullopt);  // beyond int64
    EXPECT_EQ(file.find("u64")->as_double(), 9223372036854775808.0);
    EXPECT_EQ(file.find("u64")->to_string(), "9223372036854775808");
    EXPECT_EQ(file.find("i64")->as_int(), int64_t{-1} << 62);
    EXPECT_EQ(file.find("f64")->as_double(), 0.1);
    EXPECT_EQ(file.find("f64")->to_string(), "0.1");
    EXPECT_EQ(file.find("f65"), nullptr);
  }
}

TEST(Gguf, Arrays) {
  RawGguf raw_file;
  const std::string inner = u32(3) + u64(2) + raw(int16_t{1}) + raw(int16_t{-2});  // [i16: 1, -2]
  raw_file.keys = {kv("strings", 9, u32(8) + u64(3) + counted("one") + counted("") + counted("three")),
                   kv("bytes", 9, u32(0) + u64(3) + "\x01\x02\xff"),
                   kv("floats", 9, u32(6) + u64(2) + raw(0.5f) + raw(-1.0f)),
                   kv("bools", 9, u32(7) + u64(2) + std::string("\x01\x00", 2)),
                   kv("empty", 9, u32(8) + u64(0)),
                   kv("nested", 9, u32(9) + u64(2) + inner + inner),
                   kv("u64s", 9, u32(10) + u64(1) + u64(~uint64_t{0}))};
  const GgufFile file = parse_gguf(raw_file.bytes());
  ASSERT_EQ(file.metadata().size(), 7u);
  const auto strings = file.find("strings")->as_strings();
  ASSERT_TRUE(strings);
  EXPECT_EQ(strings->size(), 3u);
  EXPECT_THAT(strings->to_vector(), ElementsAre("one", "", "three"));
  EXPECT_EQ(file.find("strings")->as_ints(), std::nullopt);
  EXPECT_EQ(file.find("strings")->to_string(), R"([3 strings: "one", "", "three"])");
  EXPECT_EQ(file.find("strings")->to_string(20), R"([3 strings: "one", "", ...])");
  EXPECT_THAT(*file.find("bytes")->as_ints(), ElementsAre(1, 2, 255));
  EXPECT_EQ(file.find("bytes")->int_at(2), 255);
  EXPECT_EQ(file.find("bytes")->int_at(3), std::nullopt);
  EXPECT_THAT(*file.find("floats")->as_doubles(), ElementsAre(0.5, -1.0));
  EXPECT_EQ(file.find("floats")->as_ints(), std::nullopt);
  EXPECT_EQ(file.find("floats")->double_at(1), -1.0);
  EXPECT_THAT(*file.find("bools")->as_ints(), ElementsAre(1, 0));
  EXPECT_TRUE(file.find("empty")->as_strings()->empty());
  EXPECT_EQ(file.find("u64s")->as_ints(), std::nullopt);
  const auto nested = file.find("nested")->as_array();
  ASSERT_TRUE(nested && nested->size() == 2);
  EXPECT_THAT(*(*nested)[1].as_ints(), ElementsAre(1, -2));
  EXPECT_EQ(file.find("nested")->to_string(), "[2 arrays: [2 i16s: 1, -2], [2 i16s: 1, -2]]");
}

TEST(Gguf, WriterRoundTrip) {
  const std::vector<float> a = {1, 2, 3, 4, 5, 6};
  std::vector<uint8_t> q(34 * 2, 7);
  GgufWriter writer;
  writer.set("text", "first");
  writer.set("text", "second");
  writer.set_u32("n", 7);
  writer.set_f32("f", 0.25f);
  writer.set_bool("b", true);
  writer.set_strings("s", {"x", "", "yy"});
  writer.set_f32s("fs", {1, -2});
  writer.set_i32s("is", {3, -4});
  writer.set_payload("nested", GgufType::kArray, u32(9) + u64(1) + u32(10) + u64(1) + u64(5));
  writer.add_tensor("a", {DType::kF32, {2, 3}, a.data()});
  writer.add_tensor("q", {DType::kQ8_0, {2, 32}, q.data()});

  TestFolder folder;
  ASSERT_TRUE(writer.write(folder / "m.gguf").ok());
  auto opened = GgufFile::open(folder / "m.gguf");
  ASSERT_TRUE(opened.ok()) << opened.status().to_string();
  const GgufFile& file = *opened;
  EXPECT_EQ(file.metadata().size(), 8u);
  EXPECT_EQ(file.metadata()[0].first, "text");
  EXPECT_EQ(file.find("text")->as_string(), "second");
  EXPECT_EQ(file.find("n")->as_int(), 7);
  EXPECT_EQ(file.find("f")->as_double(), 0.25);
  EXPECT_EQ(file.find("b")->as_bool(), true);
  EXPECT_THAT(file.find("s")->as_strings()->to_vector(), ElementsAre("x", "", "yy"));
  EXPECT_THAT(*file.find("fs")->as_doubles(), ElementsAre(1, -2));
  EXPECT_THAT(*file.find("is")->as_ints(), ElementsAre(3, -4));
  const GgufTensor* tensor = file.tensor("a");
  ASSERT_NE(tensor, nullptr);
  EXPECT_THAT(tensor->view.shape, ElementsAre(2, 3));
  EXPECT_EQ(tensor->file_offset % 32, 0);
  EXPECT_EQ(std::memcmp(tensor->view.data, a.data(), 24), 0);
  EXPECT_EQ(file.tensor("q")->bytes, 68);
  EXPECT_EQ(std::memcmp(file.tensor("q")->view.data, q.data(), q.size()), 0);
  EXPECT_EQ(file.tensor("z"), nullptr);
  EXPECT_TRUE(file.require_readable().ok());

  // Every value copied into a second writer gives the same bytes.
  GgufWriter again;
  for (const auto& [key, value] : file.metadata()) again.set_value(key, value);
  for (const GgufTensor& t : file.tensors()) again.add_tensor(t.name, t.view);
  EXPECT_EQ(*again.to_bytes(), *writer.to_bytes());
}

TEST(Gguf, WriterRefusesWhatTheFormatCannotHold) {
  const float one = 1;
  const auto refused = [&](const std::string& name, const TensorView& view) {
    GgufWriter writer;
    writer.add_tensor(name, view);
    const auto bytes = writer.to_bytes();
    EXPECT_FALSE(bytes.ok());
    return bytes.status().message();
  };
  EXPECT_THAT(refused("", {DType::kF32, {1}, &one}), HasSubstr("1 to 63 bytes"));
  EXPECT_THAT(refused(std::string(64, 'n'), {DType::kF32, {1}, &one}), HasSubstr("1 to 63 bytes"));
  EXPECT_THAT(refused("t", {DType::kF32, {}, &one}), HasSubstr("0 dimensions"));
  EXPECT_THAT(refused("t", {DType::kF32, {1, 1, 1, 1, 1}, &one}), HasSubstr("5 dimensions"));
  EXPECT_THAT(refused("t", {DType::kF32, {0}, &one}), HasSubstr("size 0"));
  EXPECT_THAT(refused("t", {DType::kQ4_0, {33}, &one}), HasSubstr("multiple of 32"));
  EXPECT_THAT(refused("t", {DType::kF32, {1}, nullptr}), HasSubstr("no data"));
  GgufWriter twice;
  twice.add_tensor("t", {DType::kF32, {1}, &one});
  twice.add_tensor("t", {DType::kF32, {1}, &one});
  EXPECT_THAT(twice.to_bytes().status().message(), HasSubstr("twice"));
  const Status status = GgufWriter().write("/nowhere/at/all.gguf");
  EXPECT_EQ(status.code(), Code::io);
  EXPECT_THAT(status.message(), HasSubstr("/nowhere/at/all.gguf: cannot be written: No such file"));
}

TEST(Gguf, WriterLeavesNothingBehindWhenItFails) {
  TestFolder folder;
  const auto num_files = [&] { return std::distance(std::filesystem::directory_iterator(folder / ""), {}); };
  std::filesystem::create_directory(folder / "m.gguf");  // in the way
  EXPECT_THAT(GgufWriter().write(folder / "m.gguf").message(), HasSubstr("m.gguf: is a folder, expected"));
  EXPECT_EQ(num_files(), 1);

  // A limit on the size of files stands for a full disk: both fail in write or close.
  const std::vector<float> weights(1 << 16, 1.0f);
  GgufWriter writer;
  writer.add_tensor("w", {DType::kF32, {1 << 16}, weights.data()});
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  for (const rlim_t most : {rlim_t{0}, rlim_t{100}, rlim_t{5000}, rlim_t{100000}}) {
    const rlimit small{most, before.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
    const Status status = writer.write(folder / "w.gguf");
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
    EXPECT_EQ(status.code(), Code::io) << most;
    EXPECT_THAT(status.message(), HasSubstr("w.gguf: writing failed")) << most;
    EXPECT_EQ(num_files(), 1);
  }
  std::signal(SIGXFSZ, old_handler);
  EXPECT_TRUE(writer.write(folder / "w.gguf").ok());
  EXPECT_EQ(num_files(), 2);
}

TEST(Gguf, UnreadTypesAreListed) {
  RawGguf raw_file;
  raw_file.tensors = {tensor_info("blk.0.x", {256}, 19, 0), tensor_info("new", {256}, 77, 64)};  // IQ1_S, not in ggml
  raw_file.data = std::string(96, '\0');
  const GgufFile file = parse_gguf(raw_file.bytes());
  ASSERT_EQ(file.tensors().size(), 2u);
  EXPECT_EQ(file.tensors()[0].view.data, nullptr);
  EXPECT_EQ(file.tensors()[0].bytes, 50);
  EXPECT_EQ(file.tensors()[1].view.data, nullptr);
  const Status status = file.require_readable();
  EXPECT_EQ(status.code(), Code::unsupported);
  EXPECT_THAT(status.message(), HasSubstr("tensor \"blk.0.x\" has type "));
  EXPECT_THAT(status.message(), ::testing::ContainsRegex("[iI][qQ]1_[sS]"));
}

std::string split_part(int number, int count, const std::string& tensor, int total) {
  RawGguf file;
  file.keys = {kv("split.no", 2, raw(uint16_t(number))), kv("split.count", 2, raw(uint16_t(count))),
               kv("split.tensors.count", 5, raw(int32_t(total)))};
  if (number == 0) file.keys.push_back(kv("general.name", 8, counted("whole")));
  file.tensors = {tensor_info(tensor, {2}, 0, 0)};
  file.data = raw(float(number)) + raw(float(number) + 0.5f);
  return file.bytes();
}

TEST(GgufSplit, AnyPartOpensAll) {
  TestFolder folder;
  put_file(folder / "m-00001-of-00002.gguf", split_part(0, 2, "a", 2));
  put_file(folder / "m-00002-of-00002.gguf", split_part(1, 2, "b", 2));
  for (const auto* name : {"m-00001-of-00002.gguf", "m-00002-of-00002.gguf"}) {
    auto file = GgufFile::open(folder / name);
    ASSERT_TRUE(file.ok()) << file.status().to_string();
    EXPECT_EQ(file->files().size(), 2u);
    EXPECT_EQ(file->find("general.name")->as_string(), "whole");
    EXPECT_EQ(file->tensor("b")->part, 1);
    EXPECT_EQ(static_cast<const float*>(file->tensor("b")->view.data)[1], 1.5f);
    EXPECT_EQ(static_cast<const float*>(file->tensor("a")->view.data)[1], 0.5f);
  }
}

TEST(GgufSplit, WhatGoesWrong) {
  TestFolder folder;
  const auto fails = [&](const std::string& name) {
    auto file = GgufFile::open(folder / name);
    EXPECT_FALSE(file.ok());
    return file.status().to_string();
  };
  put_file(folder / "m-00001-of-00002.gguf", split_part(0, 2, "a", 2));
  EXPECT_THAT(fails("m-00001-of-00002.gguf"), HasSubstr("not_found: part 2 of 2 of a split model: "));
  EXPECT_THAT(fails("m-00001-of-00002.gguf"), HasSubstr("m-00002-of-00002.gguf: no such file"));

  std::filesystem::create_symlink(folder / "m-00002-of-00002.gguf", folder / "m-00002-of-00002.gguf");
  EXPECT_THAT(fails("m-00001-of-00002.gguf"), HasSubstr("symbolic links"));  // ELOOP
  std::filesystem::remove(folder / "m-00002-of-00002.gguf");
  std::filesystem::create_symlink(folder / "m-00001-of-00002.gguf", folder / "m-00002-of-00002.gguf");
  EXPECT_THAT(fails("m-00001-of-00002.gguf"), HasSubstr("split.no is 0, expected 1"));
  std::filesystem::remove(folder / "m-00002-of-00002.gguf");

  const auto second = [&](const std::string& bytes) { put_file(folder / "m-00002-of-00002.gguf", bytes); };
  second(split_part(1, 3, "b", 2));
  EXPECT_THAT(fails("m-00001-of-00002.gguf"), HasSubstr("split.count is 3, expected 2"));
  second(split_part(1, 2, "b", 3));
  EXPECT_THAT(fails("m-00001-of-00002.gguf"), HasSubstr("split.tensors.count is 3, the 2 parts hold 2 tensors"));
  second(split_part(1, 2, "a", 2));
  EXPECT_THAT(fails("m-00001-of-00002.gguf"), HasSubstr("duplicate tensor \"a\", first in "));
  second("");
  EXPECT_THAT(fails("m-00001-of-00002.gguf"), HasSubstr("the file is empty"));

  put_file(folder / "renamed.gguf", split_part(0, 2, "a", 2));
  EXPECT_THAT(fails("renamed.gguf"), HasSubstr("does not end in -00001-of-00002.gguf"));
  put_file(folder / "m-00001-of-00003.gguf", split_part(0, 2, "a", 2));
  EXPECT_THAT(fails("m-00001-of-00003.gguf"), HasSubstr("part 1 of 2 by its metadata, part 1 of 3 by its name"));
  put_file(folder / "m-00001-of-60000.gguf", split_part(0, 60000, "a", 2));
  EXPECT_THAT(fails("m-00001-of-60000.gguf"), HasSubstr("make no sense"));
}

TEST(GgufReal, Files) {
  REDLINE_NEEDS_SHARED("models/gguf-real");
  for (const char* folder : {"/models/gguf-real", "/models/quant-vectors", "/models/ggml-vocab"}) {
    if (!std::filesystem::exists(REDLINE_SHARED_DIR + std::string(folder))) continue;
    for (const auto& entry : std::filesystem::directory_iterator(REDLINE_SHARED_DIR + std::string(folder))) {
      if (entry.path().extension() != ".gguf") continue;
      SCOPED_TRACE(entry.path().string());
      auto file = GgufFile::open(entry.path().string());
      ASSERT_TRUE(file.ok()) << file.status().to_string();
      EXPECT_TRUE(file->find("general.architecture")->as_string().has_value());
      EXPECT_TRUE(file->require_readable().ok()) << file->require_readable().to_string();
      for (const auto& [key, value] : file->metadata()) EXPECT_FALSE(value.to_string().empty());
      if (entry.path().filename() != "stories260K-F32.gguf") continue;
      EXPECT_EQ(file->tensors().size(), 47u);
      EXPECT_EQ(file->find("llama.block_count")->as_int(), 5);
      EXPECT_EQ(file->tensor("blk.0.attn_q.weight")->file_offset, 145760);
      EXPECT_THAT(file->tensor("blk.0.ffn_gate.weight")->view.shape, ElementsAre(172, 64));
    }
  }
}

}  // namespace
}  // namespace redline
