#include "formats/onnx.h"

#include <gmock/gmock.h>

#include "format_test_files.h"
#include "formats/onnx_parser.h"
#include "support/heap_meter.h"
#include "support/onnx_bytes.h"

namespace redline::onnx_bytes {  // its writers of fields before those of other tests
namespace {

using ::testing::HasSubstr;

const std::string kOnnxFixtures = std::string(REDLINE_SOURCE_DIR) + "/tests/formats/onnx/";

std::string with_tensor(const std::string& proto) { return model(bytes(5, proto)); }
std::string with_node(const std::string& proto) { return model(bytes(1, proto)); }
std::string with_attribute(const std::string& attribute) { return with_node(bytes(4, "Op") + bytes(5, attribute)); }

Result<OnnxFile> open_bytes(const std::string& text) { return OnnxFile::from_file(memory_file(text)); }
std::string failure_of(const std::string& text) {
  const auto file = open_bytes(text);
  EXPECT_FALSE(file.ok());
  return file.ok() ? "" : file.status().message();
}
std::string dense(const OnnxTensor& from) {
  std::string buffer;
  const auto view = onnx_tensor_bytes(from, buffer);
  EXPECT_TRUE(view.ok()) << view.status().message();
  return view.ok() ? std::string(*view) : "";
}

TEST(Onnx, TypedFieldsEqualRawData) {
  const auto file = OnnxFile::open(kOnnxFixtures + "types.onnx");
  ASSERT_TRUE(file.ok()) << file.status().message();
  const std::vector<OnnxTensor>& tensors = file->graph.initializers;
  ASSERT_EQ(tensors.size(), 2u * (kNumOnnxTypes - 2));  // all but undefined and string
  for (size_t i = 0; i < tensors.size(); i += 2) {
    const OnnxTensor &typed = tensors[i], &plain = tensors[i + 1];
    EXPECT_EQ(typed.name, onnx_type_name(typed.type));
    EXPECT_EQ(plain.storage, OnnxTensor::Storage::kRaw);
    EXPECT_NE(typed.storage, OnnxTensor::Storage::kRaw);
    EXPECT_EQ(dense(typed), dense(plain)) << typed.name;
    EXPECT_EQ(std::ssize(dense(plain)), (15 * onnx_type_bits(typed.type) + 7) / 8);
  }
}

TEST(Onnx, ReadsGraphsFunctionsAndMetadata) {
  const auto file = OnnxFile::open(kOnnxFixtures + "graphs.onnx");
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file->ir_version, 9);
  EXPECT_EQ(file->producer_name, "make_onnx");
  ASSERT_EQ(file->opsets.size(), 2u);
  EXPECT_EQ(file->opsets[1].domain, "mine");
  EXPECT_EQ(file->metadata[0].key, "author");
  const OnnxGraph& graph = file->graph;
  ASSERT_EQ(graph.nodes.size(), 4u);
  EXPECT_EQ(graph.nodes[1].inputs, (std::vector<std::string_view>{"count", "", "x"}));
  const OnnxAttribute* then = graph.nodes[0].attribute("then_branch");
  ASSERT_NE(then, nullptr);
  const OnnxNode& nested = then->graphs.at(0).nodes.at(0);
  EXPECT_EQ(nested.name, "nested");
  const OnnxTensor& deep = nested.attribute("else_branch")->graphs.at(0).initializers.at(0);
  EXPECT_EQ(dense(deep), raw(1.0f) + raw(2.0f));
  EXPECT_EQ(graph.nodes[3].attribute("alpha")->f, 0.25f);
  EXPECT_EQ(graph.nodes[2].attribute("allowzero")->kind, OnnxAttribute::Kind::kInt);
  const OnnxValueInfo& x = graph.inputs.at(0);
  ASSERT_EQ(x.type.shape.size(), 3u);
  EXPECT_EQ(x.type.shape[0].param, "batch");
  EXPECT_EQ(x.type.shape[1].value, 3);
  EXPECT_EQ(x.type.shape[2].value, -1);
  EXPECT_TRUE(graph.inputs[1].type.has_shape);
  EXPECT_FALSE(graph.outputs[0].type.has_shape);
  EXPECT_EQ(graph.sparse_initializers.at(0).shape, (std::vector<int64_t>{2, 3}));
  const auto words = onnx_tensor_strings(graph.initializers.at(2));
  ASSERT_TRUE(words.ok());
  EXPECT_EQ(*words, (std::vector<std::string_view>{"one", "", "\xc3\xa9"}));
  ASSERT_EQ(file->functions.size(), 1u);
  EXPECT_EQ(file->functions[0].nodes.size(), 2u);
  EXPECT_EQ(file->functions[0].attributes, (std::vector<std::string_view>{"unused"}));
}

TEST(Onnx, MapsExternalData) {
  const auto file = OnnxFile::open(kOnnxFixtures + "external.onnx");
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file->files().size(), 2u);
  EXPECT_EQ(dense(file->graph.initializers[0]).substr(0, 8), raw(0.0f) + raw(1.0f));
  EXPECT_EQ(dense(file->graph.initializers[1]), u64(0) + u64(1) + u64(2) + u64(3));
  // Without the folder the structure is there, the elements are not.
  const auto mapped = MappedFile::open(kOnnxFixtures + "external.onnx");
  ASSERT_TRUE(mapped.ok());
  const auto alone = OnnxFile::from_file(*mapped);
  ASSERT_TRUE(alone.ok());
  std::string buffer;
  EXPECT_THAT(onnx_tensor_bytes(alone->graph.initializers[0], buffer).status().message(), HasSubstr("external.bin"));
}

TEST(Onnx, ExternalDataStaysInTheFolder) {
  const TestFolder folder, outside;
  put_file(outside / "secret", std::string(64, 's'));
  put_file(folder / "inside", std::string(64, 'i'));
  std::filesystem::create_directory(folder / "sub");
  put_file(folder / "sub/deep", std::string(64, 'd'));
  std::filesystem::create_symlink(outside / "secret", folder / "link");
  std::filesystem::create_symlink(outside / "", folder / "folder");
  std::filesystem::create_symlink("sub/deep", folder / "near");
  const auto open = [&](const std::string& location, const std::string& more = "") {
    put_file(folder / "m.onnx",
             with_tensor(tensor(OnnxType::kFloat, {2}, number(14, 1) + external("location", location) + more)));
    const auto file = OnnxFile::open(folder / "m.onnx");
    return file.ok() ? "ok" : file.status().message();
  };
  EXPECT_EQ(open("inside"), "ok");
  EXPECT_EQ(open("./inside"), "ok");
  EXPECT_EQ(open("sub/deep"), "ok");
  EXPECT_EQ(open("near"), "ok");
  EXPECT_THAT(open("link"), HasSubstr("outside of the model's folder"));
  EXPECT_THAT(open("folder/secret"), HasSubstr("outside of the model's folder"));
  EXPECT_THAT(open("../" + std::filesystem::path(outside / "secret").parent_path().filename().string() + "/secret"),
              HasSubstr("leaves the model's folder"));
  EXPECT_THAT(open("sub/../inside"), HasSubstr("leaves the model's folder"));
  EXPECT_THAT(open(outside / "secret"), HasSubstr("absolute path"));
  EXPECT_THAT(open("absent"), HasSubstr("no such file"));
  EXPECT_THAT(open("sub"), HasSubstr("is a folder"));
  EXPECT_THAT(open(std::string("inside\0x", 8)), HasSubstr("zero byte"));
  EXPECT_EQ(open("inside", external("offset", "56") + external("length", "8")), "ok");
  EXPECT_THAT(open("inside", external("offset", "60")), HasSubstr("needs 8 bytes from 60"));
  EXPECT_THAT(open("inside", external("length", "9")), HasSubstr("external length is 9"));
  EXPECT_THAT(open("inside", external("offset", "-4")), HasSubstr("not a number of bytes"));
  EXPECT_THAT(open("inside", external("offset", "9223372036854775807")), HasSubstr("not a number of bytes"));
  EXPECT_THAT(open("inside", bytes(9, "12345678")), HasSubstr("both external and in the file"));
  EXPECT_THAT(open(""), HasSubstr("no location"));

  // The cache of the Hub: a folder of links to blobs, which lie together.
  const TestFolder hub;
  std::filesystem::create_directory(hub / "blobs");
  std::filesystem::create_directory(hub / "snapshot");
  put_file(hub / "blobs/1", with_tensor(tensor(OnnxType::kFloat, {2}, number(14, 1) + external("location", "data"))));
  put_file(hub / "blobs/2", std::string(8, '2'));
  std::filesystem::create_symlink("../blobs/1", hub / "snapshot/m.onnx");
  std::filesystem::create_symlink("../blobs/2", hub / "snapshot/data");
  EXPECT_TRUE(OnnxFile::open(hub / "snapshot/m.onnx").ok());
}

TEST(Onnx, NumbersArePackedOrNot) {
  const std::string unpacked = f32(4, 1) + f32(4, 2);
  const std::string packed = bytes(4, raw(1.0f) + raw(2.0f));
  const std::string pieces = bytes(4, raw(1.0f)) + bytes(4, raw(2.0f));
  for (const std::string& data : {unpacked, packed, pieces}) {
    const auto file = open_bytes(with_tensor(tensor(OnnxType::kFloat, {2}, data)));
    ASSERT_TRUE(file.ok()) << file.status().message();
    EXPECT_EQ(dense(file->graph.initializers[0]), raw(1.0f) + raw(2.0f));
  }
  const std::string ints = bytes(1, "axes") + number(20, 7);
  for (const std::string& data : {number(8, 3) + number(8, ~uint64_t{0}), bytes(8, varint(3) + varint(~uint64_t{0}))}) {
    const auto file = open_bytes(with_attribute(ints + data));
    ASSERT_TRUE(file.ok()) << file.status().message();
    EXPECT_EQ(file->graph.nodes[0].attributes[0].ints, (std::vector<int64_t>{3, -1}));
  }
  // The kind of an attribute of IR version 1 is that of its field; zero is left out by some writers.
  auto file = open_bytes(with_attribute(bytes(1, "a") + f32(2, 0.5f)));
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(file->graph.nodes[0].attributes[0].kind, OnnxAttribute::Kind::kFloat);
  file = open_bytes(with_attribute(bytes(1, "a") + number(20, 2)));
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(file->graph.nodes[0].attributes[0].i, 0);
}

TEST(Onnx, NamesWhatIsWrongWithATensor) {
  const auto wrong = [](OnnxType type, const std::vector<uint64_t>& sizes, const std::string& data) {
    return failure_of(with_tensor(tensor(type, sizes, data)));
  };
  EXPECT_THAT(wrong(OnnxType::kFloat, {3}, bytes(9, "12345678")), HasSubstr("needs 12 bytes, it has 8"));
  EXPECT_THAT(wrong(OnnxType::kFloat, {3}, ""), HasSubstr("needs 12 bytes, it has 0"));
  EXPECT_THAT(wrong(OnnxType::kFloat, {3}, f32(4, 1)), HasSubstr("needs 3 numbers, float_data has 1"));
  EXPECT_THAT(wrong(OnnxType::kInt4, {3}, number(5, 1)), HasSubstr("needs 2 numbers"));
  EXPECT_THAT(wrong(OnnxType::kFloat, {1}, number(5, 1)), HasSubstr("belongs in another field"));
  EXPECT_THAT(wrong(OnnxType::kUint8, {1}, number(5, 256)), HasSubstr("256 is out of the range of uint8"));
  EXPECT_THAT(wrong(OnnxType::kInt8, {1}, number(5, 128)), HasSubstr("out of the range of int8"));
  EXPECT_THAT(wrong(OnnxType::kBool, {1}, number(5, 2)), HasSubstr("out of the range of bool"));
  EXPECT_THAT(wrong(OnnxType::kFloat6E2M3, {1}, number(5, 64)), HasSubstr("out of the range"));
  EXPECT_THAT(wrong(OnnxType::kUint32, {1}, number(11, uint64_t{1} << 32)), HasSubstr("out of the range of uint32"));
  EXPECT_THAT(wrong(OnnxType::kFloat, {~uint64_t{0}}, ""), HasSubstr("[-1] are negative"));
  EXPECT_THAT(wrong(OnnxType::kFloat, {1u << 30, 1u << 30}, ""), HasSubstr("overflows"));
  EXPECT_THAT(wrong(OnnxType::kFloat, {1}, f32(4, 1) + bytes(9, "1234")), HasSubstr("several fields"));
  EXPECT_THAT(wrong(OnnxType::kFloat, {1}, f32(4, 1) + number(5, 1)), HasSubstr("both float_data and int32_data"));
  EXPECT_THAT(wrong(OnnxType::kString, {2}, bytes(6, "a")), HasSubstr("has 2 elements, it has 1"));
  EXPECT_THAT(wrong(OnnxType::kFloat, {1}, bytes(6, "a")), HasSubstr("it has strings"));
  EXPECT_THAT(wrong(OnnxType::kFloat, {1}, bytes(3, "")), HasSubstr("segments"));
  EXPECT_THAT(wrong(OnnxType::kFloat, std::vector<uint64_t>(65, 1), bytes(9, "1234")), HasSubstr("more than 64 axes"));
  EXPECT_THAT(failure_of(with_tensor(number(2, 99))), HasSubstr("its type is 99"));
  EXPECT_THAT(failure_of(with_tensor("")), HasSubstr("its type is 0"));
  EXPECT_THAT(wrong(OnnxType::kFloat, {1}, bytes(4, "123")), HasSubstr("not a multiple of 4"));
  EXPECT_THAT(wrong(OnnxType::kFloat, {1}, number(4, 1)), HasSubstr("wire type 0"));
  // A product of zero hides an overflow; nothing is wrong with it.
  EXPECT_TRUE(open_bytes(with_tensor(tensor(OnnxType::kFloat, {0, 1u << 30}, ""))).ok());
}

TEST(Onnx, NamesWhatIsWrongWithAMessage) {
  EXPECT_THAT(failure_of(""), HasSubstr("no graph"));
  EXPECT_THAT(failure_of(bytes(7, "") + bytes(7, "")), HasSubstr("2 graphs"));
  EXPECT_THAT(failure_of(model("").substr(0, 3)), HasSubstr("ends early"));
  EXPECT_THAT(failure_of(std::string(1, '\0')), HasSubstr("not a field number"));
  EXPECT_THAT(failure_of(varint(7 << 3 | 3)), HasSubstr("wire type 3"));
  EXPECT_THAT(failure_of(number(7, 1)), HasSubstr("wire type 0, expected a message"));
  EXPECT_THAT(failure_of(bytes(1, "x") + bytes(7, "")), HasSubstr("expected a number"));
  EXPECT_THAT(failure_of(number(1, ~uint64_t{0} >> 1) + varint(7 << 3 | 2) + varint(~uint64_t{0})),
              HasSubstr("ends early"));
  EXPECT_THAT(failure_of(std::string(11, '\xff')), HasSubstr("more than ten bytes"));
  EXPECT_THAT(failure_of(with_attribute(number(20, 99))), HasSubstr("unknown type 99"));
  EXPECT_THAT(failure_of(with_attribute(bytes(1, "a") + number(20, 4) + number(3, 1))),
              HasSubstr("declared as TENSOR and has INT"));
  EXPECT_THAT(failure_of(with_attribute(bytes(6, "") + bytes(6, ""))), HasSubstr("more than one value"));
  const std::string tensor_type = bytes(1, number(1, 1));
  EXPECT_THAT(failure_of(model(bytes(11, bytes(2, tensor_type + tensor_type)))), HasSubstr("two types"));
  EXPECT_THAT(failure_of(model(bytes(11, bytes(2, bytes(1, number(1, 77)))))), HasSubstr("77 is not a type"));
  const std::string values = tensor(OnnxType::kFloat, {1}, f32(4, 1));
  EXPECT_THAT(failure_of(model(bytes(15, bytes(1, values)))), HasSubstr("no values or no indices"));
  EXPECT_THAT(failure_of(model(bytes(15, bytes(1, values) + bytes(2, values) + number(3, 4)))),
              HasSubstr("expected int64 of [1] or [1, 1]"));
}

TEST(Onnx, GraphsNestAsDeepAsTheLimit) {
  const auto nested = [](int depth) {
    std::string graph;
    for (int i = 0; i < depth; ++i) graph = bytes(1, bytes(4, "If") + bytes(5, bytes(1, "b") + bytes(6, graph)));
    return model(graph);
  };
  EXPECT_TRUE(open_bytes(nested(OnnxFile::kMaxDepth)).ok());
  EXPECT_THAT(failure_of(nested(OnnxFile::kMaxDepth + 1)), HasSubstr("nested more than 32 deep"));
  EXPECT_FALSE(open_bytes(nested(10000)).ok());
}

TEST(Onnx, EveryPrefixAndEveryDamagedByteIsAnAnswer) {
  for (const char* name : {"types.onnx", "graphs.onnx"}) {
    const auto whole = MappedFile::open(kOnnxFixtures + name);
    ASSERT_TRUE(whole.ok());
    const std::string text((*whole)->text());
    for (size_t n = 0; n < text.size(); ++n) {
      const auto file = open_bytes(text.substr(0, n));
      EXPECT_TRUE(file.ok() || !file.status().message().empty());
    }
    for (size_t i = 0; i < text.size(); ++i)
      for (const int change : {0x01, 0x80, 0xff}) {
        std::string damaged = text;
        damaged[i] = static_cast<char>(damaged[i] ^ change);
        auto file = open_bytes(damaged);
        if (!file.ok()) continue;
        ASSERT_TRUE(for_each_onnx_tensor(file->graph, [](const OnnxTensor& t) -> Status {
                      std::string buffer;
                      if (t.type == OnnxType::kString) return onnx_tensor_strings(t).status();
                      if (t.storage == OnnxTensor::Storage::kExternal) return {};
                      return onnx_tensor_bytes(t, buffer).status();
                    }).ok());
      }
  }
}

TEST(Onnx, MemoryIsBoundedByTheSizeOfTheFile) {
  constexpr size_t kMiB = size_t{1} << 20;
  const auto peak = [](const std::string& text) {
    const auto file = memory_file(text);
    const HeapMeter meter;
    const auto read = OnnxFile::from_file(file);
    return std::pair(meter.peak_growth(), read.ok());
  };
  const auto repeated = [](const std::string& piece, size_t count) {
    std::string text;
    for (size_t i = 0; i < count; ++i) text += piece;
    return text;
  };
  // Two bytes each that want a structure of a hundred and more.
  for (const std::string& graph :
       {repeated(bytes(1, ""), kMiB / 2), repeated(bytes(11, ""), kMiB / 2),
        bytes(1, repeated(bytes(5, number(20, 2)), kMiB / 4)), bytes(1, repeated(bytes(1, ""), kMiB / 2))}) {
    const auto [bytes_held, is_read] = peak(model(graph));
    EXPECT_LE(bytes_held, static_cast<int64_t>(9 * kMiB + 65536)) << graph.size();
  }
  // Elements are not copied.
  const auto [bytes_held, is_read] =
      peak(with_tensor(tensor(OnnxType::kInt64, {4 * kMiB}, bytes(7, std::string(4 * kMiB, '\1')))));
  EXPECT_TRUE(is_read);
  EXPECT_LE(bytes_held, 65536);
}

TEST(Onnx, IsToldFromOtherFormats) {
  EXPECT_TRUE(OnnxFile::looks_like(model("")));
  EXPECT_TRUE(OnnxFile::looks_like(model(std::string(1000, 'x')).substr(0, 20)));
  EXPECT_TRUE(OnnxFile::looks_like(bytes(2, "pytorch") + opset(9) + bytes(7, "")));
  for (const std::string& other : {std::string(), std::string("GGUF\3\0\0\0", 8), std::string("PK\3\4abcd"),
                                   std::string("\x08\x00\x00\x00\x10\x00\x00\x00", 8), u64(100) + "{\"a\":1}"})
    EXPECT_FALSE(OnnxFile::looks_like(other)) << other;
}

}  // namespace
}  // namespace redline::onnx_bytes
