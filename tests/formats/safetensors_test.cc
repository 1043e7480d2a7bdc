// The safetensors reader: real files, sharded folders, and files that lie.
#include "formats/safetensors.h"

#include <gmock/gmock.h>

#include <random>

#include "formats/format_test_files.h"
#include "formats/json_scanner.h"
#include "support/heap_meter.h"

namespace redline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string with_header(const std::string& header, size_t data_bytes = 64) {
  return u64(header.size()) + header + std::string(data_bytes, '\x3c');
}
std::string entry(const std::string& name, const std::string& type, const std::string& shape, int64_t begin,
                  int64_t end) {
  return fmt::format(R"("{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", name, type, shape, begin, end);
}
std::string object(const std::vector<std::string>& entries) { return fmt::format("{{{}}}", fmt::join(entries, ",")); }

Status safetensors_parse_error(const std::string& bytes) {
  auto files = SafetensorsFiles::from_parts({memory_file(bytes)});
  EXPECT_FALSE(files.ok());
  if (!files.ok()) {
    EXPECT_THAT(files.status().message(), StartsWith("x.bin: "));
  }
  return files.status();
}
#define EXPECT_SAFETENSORS_REFUSED(bytes, text) EXPECT_THAT(safetensors_parse_error(bytes).message(), HasSubstr(text))

TEST(Safetensors, ReadsTypesShapesAndScalars) {
  const std::string header = R"({"__metadata__":{"format":"pt","long":")" + std::string(100000, 'm') + R"("}, )" +
                             entry("w", "F32", "2,3", 0, 24) + "," + entry("h", "F16", "4", 24, 32) + "," +
                             entry("b", "BF16", "1,1,2", 32, 36) + "," + entry("scalar", "F32", "", 36, 40) + "," +
                             entry("i", "I64", "1", 40, 48) + "," + entry("none", "F32", "0,7", 48, 48) + "," +
                             entry("odd", "NEW_TYPE", "3", 48, 50) + "," +
                             entry(R"(\u00e9\ud83d\ude00\n)", "U8", "1", 63, 64) + "}   ";
  auto files = SafetensorsFiles::from_parts({memory_file(with_header(header))});
  ASSERT_TRUE(files.ok()) << files.status().to_string();
  ASSERT_EQ(files->tensors().size(), 8u);
  const SafetensorsTensor* w = files->tensor("w");
  ASSERT_NE(w, nullptr);
  EXPECT_EQ(w->view.dtype, DType::kF32);
  EXPECT_THAT(w->view.shape, ElementsAre(2, 3));
  EXPECT_EQ(w->bytes, 24);
  EXPECT_EQ(w->file_offset, static_cast<int64_t>(8 + header.size()));
  EXPECT_EQ(files->tensor("h")->view.dtype, DType::kF16);
  EXPECT_EQ(files->tensor("b")->view.dtype, DType::kBF16);
  EXPECT_EQ(files->tensor("scalar")->view.num_elements(), 1);
  EXPECT_EQ(files->tensor("none")->view.num_elements(), 0);
  EXPECT_EQ(files->tensor("i")->view.data, nullptr);
  EXPECT_EQ(files->tensor("i")->type_name, "I64");
  EXPECT_EQ(files->tensor("odd")->bytes, 2);
  EXPECT_NE(files->tensor("é😀\n"), nullptr);
  EXPECT_EQ(files->tensor("x"), nullptr);
  EXPECT_EQ(files->require_readable().code(), Code::unsupported);
  EXPECT_THAT(files->require_readable().message(), HasSubstr("tensor \"i\" has type \"I64\""));
}

TEST(Safetensors, TruncatedAtEveryByte) {
  const std::string whole =
      with_header(object({entry("a", "F32", "4", 0, 16), entry("b", "F16", "8,3", 16, 64), R"("__metadata__":{})"}));
  ASSERT_TRUE(SafetensorsFiles::from_parts({memory_file(whole)}).ok());
  for (size_t length = 0; length < whole.size(); ++length)
    EXPECT_FALSE(SafetensorsFiles::from_parts({memory_file(whole.substr(0, length))}).ok()) << "cut at " << length;
}

TEST(Safetensors, MutatedBytesNeverCrash) {
  const std::string whole = with_header(
      object({entry("a", "F32", "4", 0, 16), entry("b", "F16", "8,3", 16, 64), R"("__metadata__":{"k":"v"})"}));
  std::mt19937 random(7);
  for (size_t at = 0; at < whole.size() - 64; ++at) {
    for (int round = 0; round < 24; ++round) {
      std::string bytes = whole;
      bytes[at] = static_cast<char>(round < 8 ? "\x00\xff{}[]\",9"[round] : random());
      auto files = SafetensorsFiles::from_parts({memory_file(bytes)});
      if (!files.ok()) continue;
      for (const auto& tensor : files->tensors()) {
        EXPECT_LE(tensor.file_offset + tensor.bytes, static_cast<int64_t>(bytes.size()));
        if (tensor.view.data != nullptr) {
          EXPECT_EQ(tensor.view.bytes(), tensor.bytes);
        }
      }
    }
  }
}

TEST(SafetensorsHostile, OneByOne) {
  EXPECT_SAFETENSORS_REFUSED("", "header length needs 8 bytes, 0 are left");
  EXPECT_SAFETENSORS_REFUSED(u64(1000) + "{}", "a header of 1000 bytes, the file has 2");
  EXPECT_SAFETENSORS_REFUSED(u64(~uint64_t{0}) + "{}", "a header of 18446744073709551615 bytes");
  EXPECT_SAFETENSORS_REFUSED("GGUF" + u32(3) + u64(1), "looks like a GGUF file");
  EXPECT_SAFETENSORS_REFUSED(with_header("[]"), "at byte 8: expected '{'");
  EXPECT_SAFETENSORS_REFUSED(with_header("{}x"), "more text after");
  EXPECT_SAFETENSORS_REFUSED(with_header("{\"a\":1}"), "expected '{'");
  EXPECT_SAFETENSORS_REFUSED(with_header("{\"a\":{}}"), "dtype, shape and two data_offsets");
  EXPECT_SAFETENSORS_REFUSED(with_header(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}})"),
                             "two data_offsets");
  EXPECT_SAFETENSORS_REFUSED(with_header(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":1}})"),
                             "\"x\" is unknown or duplicate");
  EXPECT_SAFETENSORS_REFUSED(with_header(R"({"a":{"dtype":"F32","dtype":"F32"}})"), "duplicate");
  EXPECT_SAFETENSORS_REFUSED(with_header(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})"), "at least 0");
  EXPECT_SAFETENSORS_REFUSED(with_header(R"({"a":{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}})"),
                             "not a whole number");
  EXPECT_SAFETENSORS_REFUSED(
      with_header(R"({"a":{"dtype":"F32","shape":[99999999999999999999],"data_offsets":[0,4]}})"),
      "not a whole number below 2^63");
  EXPECT_SAFETENSORS_REFUSED(with_header(object({entry("a", "F32", "1,1,1,1,1,1,1,1,1", 0, 4)})),
                             "more than 8 numbers");
  EXPECT_SAFETENSORS_REFUSED(with_header(object({entry("a", "F32", "3", 0, 16)})),
                             "shape [3] of F32 takes 12 bytes, data_offsets give 16");
  EXPECT_SAFETENSORS_REFUSED(with_header(object({entry("a", "F4", "3", 0, 1)})), "takes 1 bytes");
  EXPECT_SAFETENSORS_REFUSED(with_header(object({entry("a", "F32", "9223372036854775807,2", 0, 4)})), "overflows");
  EXPECT_SAFETENSORS_REFUSED(with_header(object({entry("a", "F32", "17", 0, 68)})),
                             "0 to 68 do not lie in the 64 bytes of data");
  EXPECT_SAFETENSORS_REFUSED(with_header(object({entry("a", "F32", "1", 8, 4)})), "8 to 4 do not lie");
  EXPECT_SAFETENSORS_REFUSED(with_header(object({entry("a", "F32", "2", 0, 8), entry("b", "F32", "1", 4, 8)})),
                             "tensors \"a\" and \"b\" overlap");
  EXPECT_SAFETENSORS_REFUSED(
      with_header(object({entry("a", "U8", "8", 0, 8), entry("e", "U8", "0", 4, 4), entry("b", "U8", "4", 4, 8)})),
      "overlap");
  EXPECT_SAFETENSORS_REFUSED(with_header(object({entry("a", "F32", "1", 0, 4), entry("a", "F32", "1", 4, 8)})),
                             "duplicate tensor \"a\"");
  EXPECT_SAFETENSORS_REFUSED(with_header(object({entry("", "F32", "1", 0, 4)})), "an empty name");
  EXPECT_SAFETENSORS_REFUSED(with_header(object({entry(std::string(5000, 'n'), "F32", "1", 0, 4)})),
                             "a name of 5000 bytes");
  EXPECT_SAFETENSORS_REFUSED(with_header(std::string(1000000, '[')), "expected '{'");
  EXPECT_SAFETENSORS_REFUSED(with_header("{\"__metadata__\":" + std::string(1000000, '[')),
                             "JSON nested more than 64 deep");
  EXPECT_SAFETENSORS_REFUSED(with_header("{\"a\\x\":1}"), "a wrong escape");
  EXPECT_SAFETENSORS_REFUSED(with_header("{\"a\\ud8"), "a wrong escape");
  EXPECT_SAFETENSORS_REFUSED(with_header("{\"abc"), "the JSON text ends inside a string");
}

TEST(SafetensorsHostile, MemoryStaysBelowTheFile) {
  std::vector<std::pair<std::string, std::string>> headers;
  std::vector<std::string> entries;
  for (int i = 0; i < 100000; ++i) entries.push_back(entry(std::to_string(i), "U8", "0", 0, 0));
  headers.emplace_back("empty tensors", object(entries));
  entries.clear();
  for (int i = 0; i < 1000; ++i) entries.push_back(entry(fmt::format("{:0>4096}", i), "U8", "0", 0, 0));
  headers.emplace_back("long names", object(entries));
  headers.emplace_back("long metadata", "{\"__metadata__\":{\"k\":\"" + std::string(8 << 20, 'x') + "\"}}");
  headers.emplace_back("escapes", "{\"__metadata__\":{\"k\":\"" + std::string(8 << 20, '\\') + "\"}}");
  headers.emplace_back("long number", "{\"__metadata__\":" + std::string(8 << 20, '9') + "}");
  headers.emplace_back("long name", "{\"" + std::string(8 << 20, '9') + "\":{}}");
  entries.assign(1 << 20, "\"\":{}");
  headers.emplace_back("not tensors", object(entries));
  for (const auto& [name, header] : headers) {
    auto file = memory_file(with_header(header));
    const HeapMeter meter;
    auto parsed = SafetensorsFiles::from_parts({file});
    EXPECT_LE(meter.peak_growth(), file->size() + (int64_t{1} << 20)) << name << ": " << file->size() << " bytes";
  }
}

TEST(SafetensorsFolder, OneFileOrAnIndex) {
  TestFolder folder;
  const auto fails = [&] {
    auto files = SafetensorsFiles::open_folder(folder / "");
    EXPECT_FALSE(files.ok());
    return files.status().to_string();
  };
  const auto index = [&](const std::string& text) { put_file(folder / "model.safetensors.index.json", text); };
  EXPECT_THAT(fails(), HasSubstr("neither model.safetensors nor model.safetensors.index.json"));

  put_file(folder / "one.safetensors",
           with_header(object({entry("a", "F32", "1", 0, 4), entry("b", "F32", "1", 4, 8)})));
  index(R"({"metadata":{"total_size":12},"weight_map":{"a":"one.safetensors","b":"one.safetensors",)"
        R"("c":"two.safetensors"}})");
  EXPECT_THAT(fails(), HasSubstr("incomplete: two.safetensors is missing, which model.safetensors.index.json names"));
  put_file(folder / "two.safetensors",
           with_header(object({entry("c", "F32", "1", 0, 4), entry("d", "F32", "1", 4, 8)})));
  auto files = SafetensorsFiles::open_folder(folder / "");
  ASSERT_TRUE(files.ok()) << files.status().to_string();
  EXPECT_EQ(files->files().size(), 2u);
  EXPECT_EQ(files->tensor("c")->part, 1);

  index(R"({"weight_map":{"a":"two.safetensors"}})");
  EXPECT_THAT(fails(), HasSubstr("tensor \"a\" should be in \"two.safetensors\", it is in no file"));
  index(R"({"weight_map":{"c":"one.safetensors","a":"two.safetensors"}})");
  EXPECT_THAT(fails(), HasSubstr("should be in \"one.safetensors\", it is in \"two.safetensors\""));
  index(R"({"weight_map":{"a":"one.safetensors","a":"one.safetensors"}})");
  EXPECT_THAT(fails(), HasSubstr("duplicate tensor \"a\""));
  for (const char* name :
       {"../one.safetensors", "/etc/passwd", "x/one.safetensors", "..", ".", "", "x\\\\y", "x\\u0000y"}) {
    index(fmt::format(R"({{"weight_map":{{"a":"{}"}}}})", name));
    EXPECT_THAT(fails(), HasSubstr("is not the name of a file in the index's own folder")) << name;
  }
  index("{}");
  EXPECT_THAT(fails(), HasSubstr("no \"weight_map\""));
  index(R"({"weight_map":{}})");
  EXPECT_THAT(fails(), HasSubstr("is empty"));
  index(R"({"weight_map":{},"weight_map":{}})");
  EXPECT_THAT(fails(), HasSubstr("duplicate"));
  index(R"({"weight_map":)" + std::string(1000000, '['));
  EXPECT_THAT(fails(), HasSubstr("expected '{'"));
  index(R"({"x":)" + std::string(1000000, '['));
  EXPECT_THAT(fails(), HasSubstr("nested more than"));
  put_file(folder / "two.safetensors", with_header(object({entry("a", "F32", "1", 0, 4)})));
  index(R"({"weight_map":{"b":"one.safetensors","a":"two.safetensors"}})");
  EXPECT_THAT(fails(), HasSubstr("duplicate tensor \"a\", first in "));
  std::filesystem::remove(folder / "two.safetensors");
  std::filesystem::create_symlink(folder / "two.safetensors", folder / "two.safetensors");
  EXPECT_THAT(fails(), HasSubstr("symbolic links"));

  put_file(folder / "model.safetensors", with_header(object({entry("alone", "F32", "1", 0, 4)})));
  EXPECT_NE(SafetensorsFiles::open_folder(folder / "")->tensor("alone"), nullptr);
}

TEST(Safetensors, TheBundledModel) {
  auto files = SafetensorsFiles::open_folder(REDLINE_SOURCE_DIR "/assets/redline-tales");
  ASSERT_TRUE(files.ok()) << files.status().to_string();
  EXPECT_TRUE(files->require_readable().ok());
  EXPECT_NE(files->tensor("model.embed_tokens.weight"), nullptr);
}

TEST(JsonScanner, SkipsWhatIsValidAndNothingElse) {
  const std::string path = "x.json";
  const auto accepts = [&](std::string_view text) {
    JsonScanner json(path, text);
    return json.skip().ok() && json.end().ok();
  };
  for (const char* good : {"0", "-0.5e+10", "1E5", "true", "false", "null", "\"\"", "\"a\\u00e9\\\"\"", "[]", "{}",
                           " [ 1 , 2 ] ", "{\"a\":[],\"b\":{\"c\":[[],{}]}}", "[[[]],[]]", "[{},{}]", "{\"\":null}"})
    EXPECT_TRUE(accepts(good)) << good;
  for (const char* bad :
       {"",         "-",          "01",    "1.",        ".5", "1e",   "+1",     "tru",   "nul",  "\"",
        "\"\\\"",   "\"\\q\"",    "[",     "]",         "[1", "[1,]", "[,1]",   "[1 2]", "{",    "{\"a\"}",
        "{\"a\":}", "{\"a\":1,}", "{a:1}", "{\"a\":1]", "[}", "1 2",  "\"\n\"", "{,}",   "{1:2}"})
    EXPECT_FALSE(accepts(bad)) << bad;
}

}  // namespace
}  // namespace redline
