#include <limits>

#include "formats/onnx.h"
#include "formats/onnx_parser.h"

namespace redline {
namespace {

struct OnnxTypeRow {
  std::string_view name;
  int bits;  // of an element in raw_data
  bool is_float, is_integer, is_signed;
};
// The element types, indexed by the number of TensorProto.DataType.
constexpr OnnxTypeRow kOnnxTypes[kNumOnnxTypes] = {
    {"undefined", 0, false, false, false},    {"float", 32, true, false, true},
    {"uint8", 8, false, true, false},         {"int8", 8, false, true, true},
    {"uint16", 16, false, true, false},       {"int16", 16, false, true, true},
    {"int32", 32, false, true, true},         {"int64", 64, false, true, true},
    {"string", 0, false, false, false},       {"bool", 8, false, false, false},
    {"float16", 16, true, false, true},       {"double", 64, true, false, true},
    {"uint32", 32, false, true, false},       {"uint64", 64, false, true, false},
    {"complex64", 64, false, false, true},    {"complex128", 128, false, false, true},
    {"bfloat16", 16, true, false, true},      {"float8e4m3fn", 8, true, false, true},
    {"float8e4m3fnuz", 8, true, false, true}, {"float8e5m2", 8, true, false, true},
    {"float8e5m2fnuz", 8, true, false, true}, {"uint4", 4, false, true, false},
    {"int4", 4, false, true, true},           {"float4e2m1", 4, true, false, true},
    {"float8e8m0", 8, true, false, false},    {"uint2", 2, false, true, false},
    {"int2", 2, false, true, true},           {"float6e2m3", 6, true, false, true},
    {"float6e3m2", 6, true, false, true},
};
const OnnxTypeRow& type_row(OnnxType type) { return kOnnxTypes[static_cast<size_t>(type)]; }

enum OnnxTensorField : uint32_t {
  kDims = 1,
  kDataType = 2,
  kSegment = 3,
  kFloatData = 4,
  kInt32Data = 5,
  kStringData = 6,
  kInt64Data = 7,
  kTensorName = 8,
  kRawData = 9,
  kDoubleData = 10,
  kUint64Data = 11,
  kExternalData = 13,
  kDataLocation = 14,
};

/// A repeated field of TensorProto that can store elements.
struct ElementField {
  uint32_t number;
  OnnxTensor::Storage storage;
  ProtoWire wire;
  std::string_view name;
};
constexpr ElementField kElementFields[] = {
    {kFloatData, OnnxTensor::Storage::kFloats, ProtoWire::kFixed32, "float_data"},
    {kInt32Data, OnnxTensor::Storage::kInt32s, ProtoWire::kVarint, "int32_data"},
    {kInt64Data, OnnxTensor::Storage::kInt64s, ProtoWire::kVarint, "int64_data"},
    {kDoubleData, OnnxTensor::Storage::kDoubles, ProtoWire::kFixed64, "double_data"},
    {kUint64Data, OnnxTensor::Storage::kUint64s, ProtoWire::kVarint, "uint64_data"},
};
const ElementField* element_field(uint32_t number) {
  for (const ElementField& field : kElementFields)
    if (field.number == number) return &field;
  return nullptr;
}
const ElementField* element_field(OnnxTensor::Storage storage) {
  for (const ElementField& field : kElementFields)
    if (field.storage == storage) return &field;
  return nullptr;
}

/// Returns the typed field that stores elements of a type which are not in raw_data.
OnnxTensor::Storage storage_of(OnnxType type) {
  using Storage = OnnxTensor::Storage;
  switch (type) {
    case OnnxType::kFloat:
    case OnnxType::kComplex64: return Storage::kFloats;
    case OnnxType::kDouble:
    case OnnxType::kComplex128: return Storage::kDoubles;
    case OnnxType::kInt64: return Storage::kInt64s;
    case OnnxType::kUint32:
    case OnnxType::kUint64: return Storage::kUint64s;
    case OnnxType::kString: return Storage::kStrings;
    default: return Storage::kInt32s;
  }
}

/// Returns how many numbers the field storage_of(type) has for `elements` elements.
int64_t numbers_of(OnnxType type, int64_t elements) {
  if (type == OnnxType::kComplex64 || type == OnnxType::kComplex128) return 2 * elements;
  const int bits = type_row(type).bits;
  return bits == 4 || bits == 2 ? (elements * bits + 7) / 8 : elements;  // one number is a byte of two or four elements
}

/// Returns true if a number of int32_data is the bit pattern of an element, or of a byte that several elements share.
bool fits(OnnxType type, int64_t value) {
  const OnnxTypeRow& row = type_row(type);
  if (type == OnnxType::kBool) return value == 0 || value == 1;
  if (row.bits == 6) return value >= 0 && value < 64;
  if (row.bits < 8) return value >= -128 && value <= 255;
  const int64_t limit = int64_t{1} << (row.bits - (row.is_integer && row.is_signed ? 1 : 0));
  return value < limit && value >= (row.is_integer && row.is_signed ? -limit : 0);
}

bool checked_elements(const std::vector<int64_t>& shape, int64_t& elements) {
  constexpr int64_t kMaxElements = (int64_t{1} << 56) - 1;  // bits of the largest type still fit int64
  elements = 1;
  bool is_empty = false;
  for (const int64_t size : shape) {
    if (size < 0) return false;
    if (size == 0) is_empty = true;
    else if (elements > kMaxElements / size) return false;
    else elements *= size;
  }
  if (is_empty) elements = 0;
  return true;
}

/// Decodes one entry of external_data.
Status read_external_entry(const OnnxMessage& in, OnnxTensor& tensor) {
  std::string_view key, value;
  REDLINE_TRY(in.for_each([&](const ProtoField& field) -> Status {
    if (field.number == 1) return in.text(field, key);
    if (field.number == 2) return in.text(field, value);
    return {};
  }));
  if (key == "location") {
    tensor.location = value;
    return {};
  }
  if (key != "offset" && key != "length") return {};
  int64_t number = 0;
  bool is_number = !value.empty() && value.size() <= 18;
  for (const char c : value) {
    is_number = is_number && c >= '0' && c <= '9';
    if (is_number) number = number * 10 + (c - '0');
  }
  if (!is_number) return in.error_at(in.offset(), "{} is {}, not a number of bytes", key, in_quotes(value));
  (key == "offset" ? tensor.external_offset : tensor.external_bytes) = number;
  return {};
}

}  // namespace

std::string_view onnx_type_name(OnnxType type) { return type_row(type).name; }
int onnx_type_bits(OnnxType type) { return type_row(type).bits; }
bool is_onnx_float(OnnxType type) { return type_row(type).is_float; }
bool is_onnx_integer(OnnxType type) { return type_row(type).is_integer; }

int64_t OnnxTensor::num_elements() const {
  int64_t elements = 0;
  return checked_elements(shape, elements) ? elements : 0;
}

int64_t OnnxTensor::bytes() const {
  if (type != OnnxType::kString) return (num_elements() * onnx_type_bits(type) + 7) / 8;
  int64_t sum = 0;
  if (const auto texts = onnx_tensor_strings(*this); texts.ok())
    for (const std::string_view text : *texts) sum += static_cast<int64_t>(text.size());
  return sum;
}

Status read_onnx_tensor(const OnnxMessage& in, std::string_view bytes, OnnxTensor& tensor) {
  tensor.message = bytes;
  tensor.message_offset = in.offset();
  int64_t type = 0, location = 0, strings = 0, numbers = 0;
  uint64_t type_at = in.offset();
  bool has_raw = false, has_entries = false;
  const ElementField* typed = nullptr;
  int chunks = 0;
  REDLINE_TRY(in.for_each([&](const ProtoField& field) -> Status {
    switch (field.number) {
      case kDims:
        return in.numbers(field, ProtoWire::kVarint, [&](uint64_t size) -> Status {
          if (tensor.shape.size() == OnnxFile::kMaxRank)
            return in.error_at(field.offset, "more than {} axes", OnnxFile::kMaxRank);
          REDLINE_TRY(in.spend(1, sizeof(int64_t)));
          tensor.shape.push_back(static_cast<int64_t>(size));
          return {};
        });
      case kDataType: type_at = field.offset; return in.number(field, type);
      case kSegment: return in.error_at(field.offset, "the tensor is split into segments, which are not read");
      case kStringData: ++strings; return in.expect(field, ProtoWire::kBytes, "text");
      case kTensorName: return in.text(field, tensor.name);
      case kRawData: has_raw = true; return in.text(field, tensor.dense);
      case kExternalData: {
        has_entries = true;
        REDLINE_ASSIGN(const OnnxMessage entry, in.message(field, "external_data"));
        return read_external_entry(entry, tensor);
      }
      case kDataLocation: return in.number(field, location);
      default: break;
    }
    const ElementField* elements = element_field(field.number);
    if (elements == nullptr) return {};
    if (typed != nullptr && typed != elements)
      return in.error_at(field.offset, "both {} and {} have elements", typed->name, elements->name);
    typed = elements;
    ++chunks;
    if (field.wire == ProtoWire::kBytes && elements->wire != ProtoWire::kVarint) tensor.dense = field.bytes;
    return in.numbers(field, elements->wire, [&](uint64_t) { return ++numbers, Status(); });
  }));

  const auto wrong = [&](const std::string& reason) {
    return in.error_at(in.offset(), "tensor {}: {}", in_quotes(tensor.name), reason);
  };
  if (type <= 0 || type >= kNumOnnxTypes)
    return in.error_at(type_at, "tensor {}: its type is {}; types are numbers from 1 to {}", in_quotes(tensor.name),
                       type, kNumOnnxTypes - 1);
  tensor.type = static_cast<OnnxType>(type);
  int64_t elements = 0;
  if (!checked_elements(tensor.shape, elements))
    return wrong(fmt::format("its sizes [{}] are negative or their product overflows", fmt::join(tensor.shape, ", ")));
  if (location != 0) {
    tensor.storage = OnnxTensor::Storage::kExternal;
    tensor.dense = {};
    if (location != 1) return wrong(fmt::format("its data_location is {}, expected 0 or 1", location));
    if (tensor.type == OnnxType::kString) return wrong("strings cannot be external");
    if (!has_entries || tensor.location.empty()) return wrong("its elements are external and no location is given");
    if (has_raw || typed != nullptr) return wrong("its elements are both external and in the file");
    if (tensor.external_bytes >= 0 && tensor.external_bytes != tensor.bytes())
      return wrong(fmt::format("its shape [{}] of {} has {} bytes, its external length is {}",
                               fmt::join(tensor.shape, ", "), onnx_type_name(tensor.type), tensor.bytes(),
                               tensor.external_bytes));
    return {};
  }
  if (static_cast<int>(has_raw) + static_cast<int>(typed != nullptr) + static_cast<int>(strings > 0) > 1)
    return wrong("several fields have its elements");
  if (tensor.type == OnnxType::kString) {
    if (has_raw || typed != nullptr) return wrong("the elements of a tensor of strings belong in string_data");
    tensor.storage = OnnxTensor::Storage::kStrings;
    if (strings != elements) return wrong(fmt::format("its shape has {} elements, it has {}", elements, strings));
    return {};
  }
  if (strings > 0) return wrong(fmt::format("it has strings, its type is {}", onnx_type_name(tensor.type)));
  if (typed == nullptr) {
    if (static_cast<int64_t>(tensor.dense.size()) != tensor.bytes())
      return wrong(fmt::format("its shape [{}] of {} needs {} bytes, it has {}", fmt::join(tensor.shape, ", "),
                               onnx_type_name(tensor.type), tensor.bytes(), tensor.dense.size()));
    return {};
  }
  tensor.storage = typed->storage;
  if (chunks > 1) tensor.dense = {};
  if (typed->storage != storage_of(tensor.type))
    return wrong(fmt::format("{} has its elements, its type {} belongs in another field", typed->name,
                             onnx_type_name(tensor.type)));
  if (numbers != numbers_of(tensor.type, elements))
    return wrong(fmt::format("its shape [{}] of {} needs {} numbers, {} has {}", fmt::join(tensor.shape, ", "),
                             onnx_type_name(tensor.type), numbers_of(tensor.type, elements), typed->name, numbers));
  if (typed->storage == OnnxTensor::Storage::kInt32s || tensor.type == OnnxType::kUint32)
    REDLINE_TRY(in.for_each([&](const ProtoField& field) -> Status {
      if (field.number != typed->number) return {};
      return in.numbers(field, typed->wire, [&](uint64_t value) -> Status {
        if (tensor.type == OnnxType::kUint32 ? value >> 32 == 0 : fits(tensor.type, static_cast<int64_t>(value)))
          return {};
        return in.error_at(field.offset, "tensor {}: {} is out of the range of {}", in_quotes(tensor.name),
                           static_cast<int64_t>(value), onnx_type_name(tensor.type));
      });
    }));
  return {};
}

Result<std::string_view> onnx_tensor_bytes(const OnnxTensor& tensor, std::string& buffer) {
  if (tensor.type == OnnxType::kString)
    return invalid_argument("tensor {}: has strings, expected numbers", in_quotes(tensor.name));
  const auto bytes = static_cast<size_t>(tensor.bytes());
  if (tensor.dense.size() == bytes) return tensor.dense;
  const ElementField* typed = element_field(tensor.storage);
  if (typed == nullptr)
    return invalid_argument("tensor {}: its elements are in {}, which was not opened", in_quotes(tensor.name),
                            in_quotes(tensor.location));
  const int bits = onnx_type_bits(tensor.type);
  const size_t width = tensor.storage == OnnxTensor::Storage::kInt32s ? static_cast<size_t>(std::max(bits, 8)) / 8
                       : tensor.type == OnnxType::kUint32 || typed->wire == ProtoWire::kFixed32 ? sizeof(uint32_t)
                                                                                                : sizeof(uint64_t);
  buffer.assign(bytes, '\0');
  size_t at = 0;  // bytes; of 6-bit elements, bits
  ListBudget none(0);
  static const std::string kNoPath;
  const OnnxMessage in(ProtoReader(kNoPath, tensor.message, tensor.message_offset), "TensorProto", none);
  REDLINE_TRY(in.for_each([&](const ProtoField& field) -> Status {
    if (field.number != typed->number) return {};
    return in.numbers(field, typed->wire, [&](uint64_t value) -> Status {
      if (bits == 6) {
        for (size_t bit = 0; bit < 6; ++bit, ++at)
          buffer[at / 8] = static_cast<char>(buffer[at / 8] | ((value >> bit & 1) << (at % 8)));
        return {};
      }
      REDLINE_CHECK(at + width <= bytes);  // the numbers were counted
      std::memcpy(buffer.data() + at, &value, width);
      at += width;
      return {};
    });
  }));
  return std::string_view(buffer);
}

Result<std::vector<std::string_view>> onnx_tensor_strings(const OnnxTensor& tensor) {
  std::vector<std::string_view> texts;
  if (tensor.type != OnnxType::kString)
    return invalid_argument("tensor {}: is of {}, not of strings", in_quotes(tensor.name), onnx_type_name(tensor.type));
  ListBudget none(0);
  static const std::string kNoPath;
  const OnnxMessage in(ProtoReader(kNoPath, tensor.message, tensor.message_offset), "TensorProto", none);
  REDLINE_TRY(in.for_each([&](const ProtoField& field) -> Status {
    if (field.number == kStringData) texts.push_back(field.bytes);
    return {};
  }));
  return texts;
}

}  // namespace redline
