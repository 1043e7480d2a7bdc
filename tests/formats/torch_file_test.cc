#include "formats/torch_file.h"

#include <gmock/gmock.h>

#include "format_test_files.h"
#include "formats/pickle.h"

namespace redline {
namespace {

using ::testing::HasSubstr;

std::string u16(uint64_t value) { return raw(static_cast<uint16_t>(value)); }

/// A zip archive, byte by byte.
struct RawZip {
  struct Member {
    std::string name, data;
    uint16_t method = 0, flags = 0;
    uint32_t more = 0;    // sizes declared beyond those that are there
    std::string padding;  // extra field of the local header alone, as PyTorch aligns data
  };
  std::vector<Member> members;
  std::string comment;
  bool is_zip64 = false;

  std::string bytes() const {
    std::string out, directory;
    for (const Member& m : members) {
      const uint64_t size = m.data.size() + m.more, at = out.size();
      out += u32(0x04034b50) + u16(20) + u16(m.flags) + u16(m.method) + u32(0) + u32(0) + u32(size) + u32(size) +
             u16(m.name.size()) + u16(m.padding.size()) + m.name + m.padding + m.data;
      const std::string extra =
          is_zip64 ? u16(0x9999) + u16(2) + "ab" + u16(1) + u16(24) + u64(size) + u64(size) + u64(at) : "";
      const auto field = [&](uint64_t value) { return u32(is_zip64 ? 0xffffffffu : value); };
      directory += u32(0x02014b50) + u16(20) + u16(20) + u16(m.flags) + u16(m.method) + u32(0) + u32(0) + field(size) +
                   field(size) + u16(m.name.size()) + u16(extra.size()) + u16(0) + u16(0) + u16(0) + u32(0) +
                   field(at) + m.name + extra;
    }
    const uint64_t at = out.size(), end64 = at + directory.size();
    out += directory;
    if (is_zip64)
      out += u32(0x06064b50) + u64(44) + u16(45) + u16(45) + u32(0) + u32(0) + u64(members.size()) +
             u64(members.size()) + u64(directory.size()) + u64(at) + u32(0x07064b50) + u32(0) + u64(end64) + u32(1);
    const auto field = [&](uint64_t value) { return u32(is_zip64 ? 0xffffffffu : value); };
    return out + u32(0x06054b50) + u16(0) + u16(0) + u16(is_zip64 ? 0xffff : members.size()) +
           u16(is_zip64 ? 0xffff : members.size()) + field(directory.size()) + field(at) + u16(comment.size()) +
           comment;
  }
};

std::string text(std::string_view s) { return "X" + u32(s.size()) + std::string(s); }
std::string torch_file_number(int64_t n) { return "J" + u32(static_cast<uint64_t>(n)); }
std::string tuple(const std::vector<int64_t>& numbers) {
  std::string out = "(";
  for (const int64_t n : numbers) out += torch_file_number(n);
  return out + "t";
}

struct RawTensor {
  std::string name = "w", storage = "HalfStorage", key = "0";
  int64_t elements = 6, offset = 0;
  std::vector<int64_t> shape = {2, 3}, strides = {3, 1};
  std::string function = "ctorch._utils\n_rebuild_tensor_v2\n";

  std::string value() const {
    return function + "((" + text("storage") + "ctorch\n" + storage + "\n" + text(key) + text("cpu") +
           torch_file_number(elements) + "tQ" + torch_file_number(offset) + tuple(shape) + tuple(strides) + "\x89" +
           "ccollections\nOrderedDict\n)RtR";
  }
};

std::string dictionary(const std::string& items) {
  return "\x80\x02"
         "ccollections\nOrderedDict\n)R(" +
         items + "u.";
}
std::string dictionary(const std::vector<RawTensor>& tensors) {
  std::string items;
  for (const RawTensor& t : tensors) items += text(t.name) + t.value();
  return dictionary(items);
}

RawZip archive(const std::string& pickle, const std::string& data = std::string(12, '\x3c')) {
  return {{{"x/data.pkl", pickle}, {"x/byteorder", "little"}, {"x/data/0", data, 0, 0, 0, "FB\x3\0zzz"}}, {}, false};
}
Result<TorchFile> open(const std::string& bytes) { return TorchFile::from_file(memory_file(bytes)); }
std::string failure(const std::string& bytes) {
  const auto file = open(bytes);
  EXPECT_FALSE(file.ok());
  return file.ok() ? "" : file.status().message();
}
std::string failure(const RawTensor& tensor) { return failure(archive(dictionary({tensor})).bytes()); }

TEST(TorchFile, ReadsTensorsOfADictionary) {
  for (const bool is_zip64 : {false, true})
    for (const char* comment : {"", "PK\x05\x06 is not the end"}) {
      RawZip zip = archive(dictionary(
          {RawTensor(), {"b", "HalfStorage", "0", 6, 3, {3}, {1}}, {"n", "LongStorage", "0", 1, 0, {}, {}}}));
      zip.is_zip64 = is_zip64;
      zip.comment = comment;
      const std::string bytes = zip.bytes();
      const auto file = open(bytes);
      ASSERT_TRUE(file.ok()) << file.status().message();
      ASSERT_EQ(file->tensors().size(), 3u);
      const TorchTensor &w = file->tensors()[0], &b = file->tensors()[1], &n = file->tensors()[2];
      EXPECT_EQ(w.name, "w");
      EXPECT_EQ(w.view.dtype, DType::kF16);
      EXPECT_EQ(w.view.shape, (std::vector<int64_t>{2, 3}));
      EXPECT_EQ(std::memcmp(w.view.data, std::string(12, '\x3c').data(), 12), 0);
      EXPECT_EQ(static_cast<const uint8_t*>(b.view.data) - static_cast<const uint8_t*>(w.view.data), 6);
      EXPECT_EQ(n.type_name, "LongStorage");
      EXPECT_EQ(n.view.data, nullptr);
    }
}

TEST(TorchFile, ReadsWhatStandsAroundTheTensors) {
  const std::string inner = "}(" + text("w") + RawTensor().value() + "u";
  // A training checkpoint: plain values, then the state; attributes on the dictionary.
  const std::string outer = "\x80\x02}(" + text("epoch") + "K\x05" + text("lr") + "G" + std::string(8, '\0') +
                            text("state_dict") + inner + "u}" + text("_metadata") + "Nsb.";
  auto file = open(archive(outer).bytes());
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file->tensors().size(), 1u);
  // A parameter, a value that is left out, protocol 4, a tensor remembered and shared.
  const std::string items = text("p") + "ctorch._utils\n_rebuild_parameter\n(" + RawTensor().value() + "\x94\x88N" +
                            "tR" +
                            "\x8c\x05steps"
                            "\x8a\x02\xff\xff" +
                            text("again") + "h" + std::string(1, '\0');
  file = open(archive("\x80\x04\x95" + u64(1) + "}(" + items + "u.").bytes());
  ASSERT_TRUE(file.ok()) << file.status().message();
  ASSERT_EQ(file->tensors().size(), 2u);
  EXPECT_EQ(file->tensors()[1].view.data, file->tensors()[0].view.data);
  EXPECT_EQ(open(archive(dictionary(std::vector<RawTensor>())).bytes())->tensors().size(), 0u);
}

TEST(TorchFile, TakesTensorsWithoutElementsAndAxesOfOne) {
  const auto file = open(archive(dictionary({{"a", "FloatStorage", "0", 3, 0, {3, 1}, {1, 7}},
                                             {"b", "FloatStorage", "0", 3, 3, {0, 5}, {9, 9}},
                                             {"c", "BFloat16Storage", "0", 6, 5, {}, {}}}))
                             .bytes());
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file->tensors()[1].view.num_elements(), 0);
}

TEST(TorchFile, NeverCallsAnything) {
  EXPECT_THAT(failure(archive(dictionary(text("w") + "cos\nsystem\n(" + text("true") + "tR")).bytes()),
              HasSubstr("\"os\".\"system\""));
  EXPECT_THAT(failure(archive("\x80\x02"
                              "cbuiltins\neval\n(" +
                              text("1") + "tR.")
                          .bytes()),
              HasSubstr("eval"));
  RawTensor sparse;
  sparse.function = "ctorch._utils\n_rebuild_sparse_tensor\n";
  EXPECT_THAT(failure(sparse), HasSubstr("_rebuild_sparse_tensor"));
}

TEST(TorchFile, NamesWhatIsWrongWithATensor) {
  EXPECT_THAT(failure(RawTensor{"w", "HalfStorage", "7"}), HasSubstr("\"7\" is not in the file"));
  EXPECT_THAT(failure(RawTensor{"w", "HalfStorage", "0", 7}), HasSubstr("7 elements has 12 bytes"));
  EXPECT_THAT(failure(RawTensor{"w", "FloatStorage", "0", 6}), HasSubstr("6 elements has 12 bytes"));
  EXPECT_THAT(failure(RawTensor{"w", "HalfStorage", "0", 6, 1}), HasSubstr("6 elements from 1"));
  EXPECT_THAT(failure(RawTensor{"w", "HalfStorage", "0", 6, -1}), HasSubstr("not described"));
  EXPECT_THAT(failure(RawTensor{"w", "HalfStorage", "0", 6, 0, {3, 2}, {1, 3}}), HasSubstr("not dense"));
  EXPECT_THAT(failure(RawTensor{"w", "HalfStorage", "0", 6, 0, {6}, {1, 1}}), HasSubstr("1 axes and 2 strides"));
  EXPECT_THAT(failure(RawTensor{"w", "HalfStorage", "0", 6, 0, {-6}, {1}}), HasSubstr("not a whole number"));
  EXPECT_THAT(
      failure(RawTensor{"w", "HalfStorage", "0", 6, 0, {1, 1, 1, 1, 1, 1, 1, 1, 1}, {1, 1, 1, 1, 1, 1, 1, 1, 1}}),
      HasSubstr("its sizes are"));
  const int64_t huge = int64_t{1} << 30;
  EXPECT_FALSE(failure(RawTensor{"w", "HalfStorage", "0", 6, 0, {huge, huge, huge}, {huge, huge, 1}}).empty());
  EXPECT_THAT(failure(archive(dictionary({RawTensor(), RawTensor()})).bytes()), HasSubstr("duplicate"));
}

TEST(TorchFile, RefusesOtherArchives) {
  EXPECT_THAT(failure(""), HasSubstr("too few"));
  EXPECT_THAT(failure(std::string(100, 'x')), HasSubstr("no end record"));
  EXPECT_THAT(failure("\x80\x02\x8a\x0al\xfc\x9c\x46\xf9"), HasSubstr("before 1.6"));
  RawZip zip = archive(dictionary({RawTensor()}));
  zip.members[0].name = "x/other.pkl";
  EXPECT_THAT(failure(zip.bytes()), HasSubstr("without data.pkl"));
  zip = archive(dictionary({RawTensor()}));
  zip.members[1].data = "big";
  EXPECT_THAT(failure(zip.bytes()), HasSubstr("little-endian"));
  for (int member : {0, 2}) {
    zip = archive(dictionary({RawTensor()}));
    zip.members[static_cast<size_t>(member)].method = 8;
    EXPECT_THAT(failure(zip.bytes()), HasSubstr("compressed"));
    zip.members[static_cast<size_t>(member)].method = 0;
    zip.members[static_cast<size_t>(member)].flags = 1;
    EXPECT_THAT(failure(zip.bytes()), HasSubstr("encrypted"));
    zip.members[static_cast<size_t>(member)].flags = 0;
    zip.members[static_cast<size_t>(member)].more = 1 << 20;
    EXPECT_THAT(failure(zip.bytes()), HasSubstr("beyond the end"));
  }
  zip = archive(dictionary({RawTensor()}));
  zip.members.push_back(zip.members[2]);
  EXPECT_THAT(failure(zip.bytes()), HasSubstr("duplicate"));
}

TEST(TorchFile, RefusesPicklesThatMakeNoSense) {
  const auto pickle = [](const std::string& bytes) { return failure(archive("\x80\x02" + bytes).bytes()); };
  EXPECT_THAT(pickle(""), HasSubstr("ends early"));
  EXPECT_THAT(pickle("."), HasSubstr("0 values"));
  EXPECT_THAT(pickle("NN."), HasSubstr("2 values"));
  EXPECT_THAT(pickle("K\x01."), HasSubstr("not a dictionary"));
  EXPECT_THAT(pickle("]."), HasSubstr("a list, not a dictionary"));
  EXPECT_THAT(pickle("R."), HasSubstr("arguments"));
  EXPECT_THAT(pickle("t."), HasSubstr("no mark"));
  EXPECT_THAT(pickle("(u."), HasSubstr("nothing to add to"));
  EXPECT_THAT(pickle("}(Nu."), HasSubstr("no value"));
  EXPECT_THAT(pickle("](NNu."), HasSubstr("not a dictionary"));
  EXPECT_THAT(pickle("}(NQ"), HasSubstr("ends early"));
  EXPECT_THAT(pickle("(\x85."), HasSubstr("1 values are wanted"));
  EXPECT_THAT(pickle("h\x05."), HasSubstr("remembered as 5"));
  EXPECT_THAT(pickle("}r\xff\xff\xff\xff."), HasSubstr("remembers"));
  EXPECT_THAT(pickle("X\xff\xff\xff\x7f"
                     "abc"),
              HasSubstr("ends early"));
  EXPECT_THAT(pickle("cmodule without an end"), HasSubstr("ends early"));
  EXPECT_THAT(pickle("\x8a\x09" + std::string(9, '\1') + "."), HasSubstr("9 bytes"));
  EXPECT_THAT(pickle("NN\x93."), HasSubstr("not text"));
  EXPECT_THAT(pickle("b."), HasSubstr("nothing is left"));
  EXPECT_THAT(pickle("Nb."), HasSubstr("attributes"));
  EXPECT_THAT(pickle("I12\n."), HasSubstr("opcode 0x49"));
  EXPECT_THAT(pickle("\x80\x09."), HasSubstr("protocol 9"));
}

TEST(TorchFile, EveryPrefixAndEveryDamagedByteIsAnAnswer) {
  RawZip zip = archive(dictionary({RawTensor(), {"b", "HalfStorage", "0", 6, 3, {3}, {1}}}));
  for (const bool is_zip64 : {false, true}) {
    zip.is_zip64 = is_zip64;
    const std::string whole = zip.bytes();
    for (size_t n = 0; n < whole.size(); ++n) EXPECT_FALSE(open(whole.substr(0, n)).ok()) << n;
    for (size_t i = 0; i < whole.size(); ++i)
      for (const int change : {0x01, 0x80, 0xff}) {
        std::string bytes = whole;
        bytes[i] = static_cast<char>(bytes[i] ^ change);
        const auto file = open(bytes);
        if (!file.ok()) continue;
        for (const TorchTensor& tensor : file->tensors()) {
          if (!tensor.view.data) continue;
          // Within the file, whatever the damage: an address sanitizer sees the rest.
          const auto* data = static_cast<const uint8_t*>(tensor.view.data);
          ASSERT_LE(data + tensor.view.bytes() - file->file()->data(), file->file()->size());
          ASSERT_GE(data, file->file()->data());
        }
      }
  }
}

TEST(TorchFile, ABombOfValuesStopsEarly) {
  const std::string many(Pickle::kMaxValues + 10, ')');
  EXPECT_THAT(failure(archive("\x80\x02" + many + ".").bytes()), HasSubstr("more than"));
  const std::string large(static_cast<size_t>(Pickle::kMaxBytes) + 1, 'N');
  EXPECT_THAT(failure(archive(large).bytes()), HasSubstr("at most"));
}

}  // namespace
}  // namespace redline
