// Reader for ONNX files: ModelProto in the wire format of Protocol Buffers, and files of external data beside it.
// Format: https://github.com/onnx/onnx/blob/main/docs/IR.md, onnx.proto of IR version 14.
//
// The reader gives the contents of the file and checks that they are well formed: lengths, types, shapes and the bytes
// of tensors. What the graph means (names, order, operators) is checked in models/onnx.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_file.h"

namespace redline {

/// TensorProto.DataType.
enum class OnnxType : uint8_t {
  kUndefined = 0,
  kFloat = 1,
  kUint8 = 2,
  kInt8 = 3,
  kUint16 = 4,
  kInt16 = 5,
  kInt32 = 6,
  kInt64 = 7,
  kString = 8,
  kBool = 9,
  kFloat16 = 10,
  kDouble = 11,
  kUint32 = 12,
  kUint64 = 13,
  kComplex64 = 14,
  kComplex128 = 15,
  kBfloat16 = 16,
  kFloat8E4M3FN = 17,
  kFloat8E4M3FNUZ = 18,
  kFloat8E5M2 = 19,
  kFloat8E5M2FNUZ = 20,
  kUint4 = 21,
  kInt4 = 22,
  kFloat4E2M1 = 23,
  kFloat8E8M0 = 24,
  kUint2 = 25,
  kInt2 = 26,
  kFloat6E2M3 = 27,
  kFloat6E3M2 = 28,
};
inline constexpr int kNumOnnxTypes = 29;
/// Returns the name in the specification: "float", "int64", "float8e4m3fn"; "undefined" for kUndefined.
std::string_view onnx_type_name(OnnxType type);
/// Returns the bits of an element in raw_data; 0 for strings and kUndefined.
int onnx_type_bits(OnnxType type);
/// Returns true for float, float16, bfloat16, double and the types of 8, 6 and 4 bits that are floating point.
bool is_onnx_float(OnnxType type);
/// Returns true for signed and unsigned integers of any width, not for bool.
bool is_onnx_integer(OnnxType type);

/// A tensor of a file: TensorProto. Its elements are not copied; onnx_tensor_bytes() returns them densely.
struct OnnxTensor {
  /// The field that holds the elements.
  enum class Storage : uint8_t { kRaw, kFloats, kInt32s, kInt64s, kDoubles, kUint64s, kStrings, kExternal };

  std::string_view name;
  OnnxType type = OnnxType::kUndefined;
  Storage storage = Storage::kRaw;
  std::vector<int64_t> shape;  ///< outermost first; {} is a scalar
  /// The elements in the form of raw_data, if the file stores them so: as raw_data, as external data, or in one packed
  /// field of numbers of fixed width. Otherwise empty.
  std::string_view dense;
  std::string_view message;     ///< the whole TensorProto
  uint64_t message_offset = 0;  ///< offset of `message` in the file
  // External data. `location` is a path relative to the model's folder.
  std::string_view location;
  int64_t external_offset = 0, external_bytes = -1;  ///< bytes -1: not stated

  int64_t num_elements() const;
  /// Returns the bytes of the elements in raw_data: several elements of 4 or 2 bits share a byte. For strings, the
  /// bytes of their texts.
  int64_t bytes() const;
};

/// Size of an axis in a declared shape: a number, or a name ("batch"), or neither.
struct OnnxDim {
  int64_t value = -1;  ///< -1: not a number
  std::string_view param;
};

/// TypeProto. The element types of sequences and optional values are not kept.
struct OnnxValueType {
  enum class Kind : uint8_t { kNone, kTensor, kSparseTensor, kSequence, kMap, kOptional, kOpaque };
  Kind kind = Kind::kNone;
  OnnxType element = OnnxType::kUndefined;
  bool has_shape = false;  ///< false: even the number of axes is unknown
  std::vector<OnnxDim> shape;
};

/// A named value with its declared type: inputs, outputs, value_info.
struct OnnxValueInfo {
  std::string_view name;
  OnnxValueType type;
};

struct OnnxGraph;

/// AttributeProto. Only the members of its kind are set.
struct OnnxAttribute {
  enum class Kind : uint8_t {
    kUndefined = 0,
    kFloat = 1,
    kInt = 2,
    kString = 3,
    kTensor = 4,
    kGraph = 5,
    kFloats = 6,
    kInts = 7,
    kStrings = 8,
    kTensors = 9,
    kGraphs = 10,
    kSparseTensor = 11,
    kSparseTensors = 12,
    kType = 13,
    kTypes = 14,
  };
  std::string_view name;
  std::string_view ref_name;  ///< in the body of a function: name of the function's attribute that gives the value
  Kind kind = Kind::kUndefined;
  float f = 0;
  int64_t i = 0;
  std::string_view s;
  std::vector<float> floats;
  std::vector<int64_t> ints;
  std::vector<std::string_view> strings;
  std::vector<OnnxTensor> tensors;  ///< one for kTensor
  std::vector<OnnxGraph> graphs;    ///< one for kGraph
};
/// Returns the name in the specification: "INT", "GRAPH".
std::string_view onnx_attribute_kind_name(OnnxAttribute::Kind kind);

/// NodeProto. An empty input or output is an optional one that is left out.
struct OnnxNode {
  std::string_view name, op_type;
  std::string_view domain;  ///< domain of the operator; "" and "ai.onnx" are equal
  std::string_view overload;
  std::vector<std::string_view> inputs, outputs;
  std::vector<OnnxAttribute> attributes;
  uint64_t offset = 0;  ///< offset of the message in the file

  /// nullptr: the node has no such attribute.
  const OnnxAttribute* attribute(std::string_view attribute_name) const;
};

/// SparseTensorProto: an initializer with most elements zero.
struct OnnxSparseTensor {
  OnnxTensor values;   ///< [number of nonzero elements]; its name is the initializer's
  OnnxTensor indices;  ///< int64, [number of nonzero elements] or [number of nonzero elements, rank]
  std::vector<int64_t> shape;
};

/// GraphProto.
struct OnnxGraph {
  std::string_view name;
  std::vector<OnnxNode> nodes;
  std::vector<OnnxTensor> initializers;
  std::vector<OnnxSparseTensor> sparse_initializers;
  std::vector<OnnxValueInfo> inputs, outputs, value_info;
};

struct OnnxOpset {
  std::string_view domain;
  int64_t version = 0;
};

/// FunctionProto: an operator that the model file defines by nodes.
struct OnnxFunction {
  std::string_view name, domain, overload;
  std::vector<std::string_view> inputs, outputs;
  std::vector<std::string_view> attributes;             ///< names of attributes without a default
  std::vector<OnnxAttribute> attributes_with_defaults;  ///< attribute_proto
  std::vector<OnnxNode> nodes;
  std::vector<OnnxOpset> opsets;
};

struct OnnxMetadata {
  std::string_view key, value;
};

/// ModelProto, with the mapped files that store it. All texts and elements are views into these files.
class OnnxFile {
 public:
  /// Opens a model and maps its external data. Memory for the parsed structure stays below the size of the file, plus
  /// seven times that size or 64 MiB, whichever is less, plus 1 MiB; the elements of tensors are not copied. Errors
  /// state the path, the byte offset or the name of the tensor, and the reason.
  ///
  /// External data must lie in the folder of `path`, or, if `path` is a link, in the folder of the file that it links
  /// to (the Hugging Face cache keeps models as links). invalid_argument: a location is absolute, has a ".." or leads
  /// out of the folder through a link. not_found: a file of external data is missing.
  static Result<OnnxFile> open(const std::string& path);
  /// Parses a mapped file. External data is not opened: `dense` is empty for external tensors.
  static Result<OnnxFile> from_file(std::shared_ptr<MappedFile> file);

  /// Returns true if the bytes begin like a ModelProto: a version, then fields of the message. Used to detect the
  /// format of a file.
  static bool looks_like(std::string_view beginning);

  int64_t ir_version = 0, model_version = 0;
  std::string_view producer_name, producer_version, domain;
  std::vector<OnnxOpset> opsets;
  std::vector<OnnxMetadata> metadata;
  std::vector<OnnxFunction> functions;
  OnnxGraph graph;

  /// Returns the model's file, then those of external data in the order of first use.
  const std::vector<std::shared_ptr<MappedFile>>& files() const { return files_; }

  static constexpr int kMaxDepth = 32;        ///< nesting of graphs in attributes of nodes
  static constexpr size_t kMaxRank = 64;      ///< axes of a tensor
  static constexpr size_t kMaxFiles = 4096;   ///< files of external data
  static constexpr int64_t kMaxVersion = 14;  ///< IR version of the newest specification that is read

 private:
  Status map_external(const std::string& path);
  std::vector<std::shared_ptr<MappedFile>> files_;
};

/// Returns the elements of a tensor as raw_data has them: dense, little-endian, row-major. They are a view into the
/// file where possible, else they are decoded into `buffer`. invalid_argument: the tensor has strings, which raw_data
/// cannot store, or external data that was not mapped.
Result<std::string_view> onnx_tensor_bytes(const OnnxTensor& tensor, std::string& buffer);
/// Returns the texts of a tensor of strings.
Result<std::vector<std::string_view>> onnx_tensor_strings(const OnnxTensor& tensor);

}  // namespace redline
