#include "formats/onnx.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>

#include "formats/onnx_parser.h"

namespace redline {
namespace {

constexpr std::string_view kAttributeKinds[] = {
    "UNDEFINED", "FLOAT",   "INT",    "STRING",        "TENSOR",         "GRAPH",      "FLOATS",     "INTS",
    "STRINGS",   "TENSORS", "GRAPHS", "SPARSE_TENSOR", "SPARSE_TENSORS", "TYPE_PROTO", "TYPE_PROTOS"};

/// Builds an OnnxFile from the messages of a file. Every list is counted first and allocated once, within a budget.
class OnnxReader {
 public:
  explicit OnnxReader(const MappedFile& file)
      : file_(file), budget_(static_cast<uint64_t>(file.size() + std::min(7 * file.size(), kMaxStructure))) {}

  Status read(OnnxFile& out) {
    const ProtoReader all(file_.path(), file_.text());
    const OnnxMessage in(all, "ModelProto", budget_);
    REDLINE_ASSIGN(const Counts counts, count(in));
    if (counts[7] == 0) return in.error_at(0, "the model has no graph");
    if (counts[7] > 1) return in.error_at(0, "the model has {} graphs", counts[7]);
    REDLINE_TRY(in.reserve(out.opsets, counts[8]));
    REDLINE_TRY(in.reserve(out.metadata, counts[14]));
    REDLINE_TRY(in.reserve(out.functions, counts[25]));
    return in.for_each([&](const ProtoField& field) -> Status {
      switch (field.number) {
        case 1: return in.number(field, out.ir_version);
        case 2: return in.text(field, out.producer_name);
        case 3: return in.text(field, out.producer_version);
        case 4: return in.text(field, out.domain);
        case 5: return in.number(field, out.model_version);
        case 7: {
          REDLINE_ASSIGN(const OnnxMessage graph, in.message(field, "GraphProto"));
          return read_graph(graph, 0, out.graph);
        }
        case 8: return add(in, field, "OperatorSetIdProto", out.opsets, &OnnxReader::read_opset);
        case 14: return add(in, field, "StringStringEntryProto", out.metadata, &OnnxReader::read_metadata);
        case 25: return add(in, field, "FunctionProto", out.functions, &OnnxReader::read_function);
        default: return {};
      }
    });
  }

 private:
  static constexpr int64_t kMaxStructure = int64_t{64} << 20;
  using Counts = std::array<uint32_t, 32>;

  /// Counts the fields of a message by number.
  static Result<Counts> count(const OnnxMessage& in) {
    Counts counts{};
    REDLINE_TRY(in.for_each([&](const ProtoField& field) -> Status {
      if (field.number < counts.size()) ++counts[field.number];
      return {};
    }));
    return counts;
  }

  /// Reads a message into a new element of a list.
  template <class T>
  Status add(const OnnxMessage& in, const ProtoField& field, const char* name, std::vector<T>& list,
             Status (OnnxReader::*read)(const OnnxMessage&, T&)) {
    REDLINE_ASSIGN(const OnnxMessage message, in.message(field, name));
    return (this->*read)(message, list.emplace_back());
  }
  static Status add_text(const OnnxMessage& in, const ProtoField& field, std::vector<std::string_view>& list) {
    return in.text(field, list.emplace_back());
  }
  static Status add_tensor(const OnnxMessage& in, const ProtoField& field, std::vector<OnnxTensor>& list) {
    REDLINE_ASSIGN(const OnnxMessage message, in.message(field, "TensorProto"));
    return read_onnx_tensor(message, field.bytes, list.emplace_back());
  }

  Status read_opset(const OnnxMessage& in, OnnxOpset& out) {
    return in.for_each([&](const ProtoField& field) -> Status {
      if (field.number == 1) return in.text(field, out.domain);
      if (field.number == 2) return in.number(field, out.version);
      return {};
    });
  }

  Status read_metadata(const OnnxMessage& in, OnnxMetadata& out) {
    return in.for_each([&](const ProtoField& field) -> Status {
      if (field.number == 1) return in.text(field, out.key);
      if (field.number == 2) return in.text(field, out.value);
      return {};
    });
  }

  Status read_dim(const OnnxMessage& in, OnnxDim& out) {
    return in.for_each([&](const ProtoField& field) -> Status {
      if (field.number == 1) {
        REDLINE_TRY(in.number(field, out.value));
        out.param = {};
        if (out.value < 0) out.value = -1;  // some exporters write an unknown size so
      }
      if (field.number == 2) {
        REDLINE_TRY(in.text(field, out.param));
        out.value = -1;
      }
      return {};
    });
  }

  Status read_shape(const OnnxMessage& in, OnnxValueType& out) {
    out.has_shape = true;
    REDLINE_ASSIGN(const Counts counts, count(in));
    if (counts[1] > OnnxFile::kMaxRank)
      return in.error_at(in.offset(), "{} axes, at most {} are read", counts[1], OnnxFile::kMaxRank);
    REDLINE_TRY(in.reserve(out.shape, counts[1]));
    return in.for_each([&](const ProtoField& field) -> Status {
      if (field.number != 1) return {};
      return add(in, field, "TensorShapeProto.Dimension", out.shape, &OnnxReader::read_dim);
    });
  }

  Status read_tensor_type(const OnnxMessage& in, OnnxValueType& out) {
    return in.for_each([&](const ProtoField& field) -> Status {
      if (field.number == 1) {
        int64_t type = 0;
        REDLINE_TRY(in.number(field, type));
        if (type < 0 || type >= kNumOnnxTypes) return in.error_at(field.offset, "{} is not a type of elements", type);
        out.element = static_cast<OnnxType>(type);
      }
      if (field.number != 2) return {};
      if (out.has_shape) return in.error_at(field.offset, "two shapes");
      REDLINE_ASSIGN(const OnnxMessage shape, in.message(field, "TensorShapeProto"));
      return read_shape(shape, out);
    });
  }

  Status read_type(const OnnxMessage& in, OnnxValueType& out) {
    using Kind = OnnxValueType::Kind;
    return in.for_each([&](const ProtoField& field) -> Status {
      Kind kind = Kind::kNone;
      switch (field.number) {
        case 1: kind = Kind::kTensor; break;
        case 4: kind = Kind::kSequence; break;
        case 5: kind = Kind::kMap; break;
        case 7: kind = Kind::kOpaque; break;
        case 8: kind = Kind::kSparseTensor; break;
        case 9: kind = Kind::kOptional; break;
        default: return {};
      }
      if (out.kind != Kind::kNone) return in.error_at(field.offset, "a value has two types");
      out.kind = kind;
      REDLINE_ASSIGN(const OnnxMessage type, in.message(field, "TypeProto"));
      return kind == Kind::kTensor || kind == Kind::kSparseTensor ? read_tensor_type(type, out) : Status();
    });
  }

  Status read_value_info(const OnnxMessage& in, OnnxValueInfo& out) {
    return in.for_each([&](const ProtoField& field) -> Status {
      if (field.number == 1) return in.text(field, out.name);
      if (field.number != 2) return {};
      REDLINE_ASSIGN(const OnnxMessage type, in.message(field, "TypeProto"));
      return read_type(type, out.type);
    });
  }

  Status read_sparse(const OnnxMessage& in, OnnxSparseTensor& out) {
    int parts[2] = {0, 0};
    REDLINE_TRY(in.for_each([&](const ProtoField& field) -> Status {
      if (field.number == 1 || field.number == 2) {
        if (++parts[field.number - 1] > 1) return in.error_at(field.offset, "two tensors of values or indices");
        REDLINE_ASSIGN(const OnnxMessage tensor, in.message(field, "TensorProto"));
        return read_onnx_tensor(tensor, field.bytes, field.number == 1 ? out.values : out.indices);
      }
      if (field.number != 3) return {};
      return in.numbers(field, ProtoWire::kVarint, [&](uint64_t size) -> Status {
        if (out.shape.size() == OnnxFile::kMaxRank)
          return in.error_at(field.offset, "more than {} axes", OnnxFile::kMaxRank);
        REDLINE_TRY(in.spend(1, sizeof(int64_t)));
        out.shape.push_back(static_cast<int64_t>(size));
        return {};
      });
    }));
    if (parts[0] != 1 || parts[1] != 1) return in.error_at(in.offset(), "no values or no indices");
    if (out.values.shape.size() != 1)
      return in.error_at(in.offset(), "its values have {} axes, expected one", out.values.shape.size());
    const bool is_linear = out.indices.shape.size() == 1;
    if (out.indices.type != OnnxType::kInt64 || out.indices.shape.empty() || out.indices.shape.size() > 2 ||
        out.indices.shape[0] != out.values.shape[0] || (!is_linear && out.indices.shape[1] != std::ssize(out.shape)))
      return in.error_at(in.offset(), "its indices are {} of shape [{}], expected int64 of [{}] or [{}, {}]",
                         onnx_type_name(out.indices.type), fmt::join(out.indices.shape, ", "), out.values.shape[0],
                         out.values.shape[0], out.shape.size());
    return {};
  }

  Status read_attribute(const OnnxMessage& in, int depth, OnnxAttribute& out) {
    using Kind = OnnxAttribute::Kind;
    REDLINE_ASSIGN(const Counts counts, count(in));
    if (counts[5] > 1 || counts[6] > 1) return in.error_at(in.offset(), "more than one value");
    uint64_t floats = 0, ints = 0;
    REDLINE_TRY(in.for_each([&](const ProtoField& field) -> Status {
      if (field.number == 7)
        return in.numbers(field, ProtoWire::kFixed32, [&](uint64_t) { return ++floats, Status(); });
      if (field.number == 8) return in.numbers(field, ProtoWire::kVarint, [&](uint64_t) { return ++ints, Status(); });
      return {};
    }));
    REDLINE_TRY(in.reserve(out.floats, floats));
    REDLINE_TRY(in.reserve(out.ints, ints));
    REDLINE_TRY(in.reserve(out.strings, counts[9]));
    REDLINE_TRY(in.reserve(out.tensors, counts[5] + counts[10]));
    REDLINE_TRY(in.reserve(out.graphs, counts[6] + counts[11]));
    int64_t kind = 0;
    Kind found = Kind::kUndefined;  // by the field that is set
    REDLINE_TRY(in.for_each([&](const ProtoField& field) -> Status {
      switch (field.number) {
        case 1: return in.text(field, out.name);
        case 2:
          found = Kind::kFloat;
          REDLINE_TRY(in.expect(field, ProtoWire::kFixed32, "a float"));
          out.f = field.as_float();
          return {};
        case 3: found = Kind::kInt; return in.number(field, out.i);
        case 4: found = Kind::kString; return in.text(field, out.s);
        case 5: found = Kind::kTensor; return add_tensor(in, field, out.tensors);
        case 6:
        case 11: {
          found = field.number == 6 ? Kind::kGraph : Kind::kGraphs;
          if (depth == OnnxFile::kMaxDepth)
            return in.error_at(field.offset, "graphs are nested more than {} deep", OnnxFile::kMaxDepth);
          REDLINE_ASSIGN(const OnnxMessage graph, in.message(field, "GraphProto"));
          return read_graph(graph, depth + 1, out.graphs.emplace_back());
        }
        case 7:
          found = Kind::kFloats;
          return in.numbers(field, ProtoWire::kFixed32, [&](uint64_t bits) {
            return out.floats.push_back(__builtin_bit_cast(float, static_cast<uint32_t>(bits))), Status();
          });
        case 8:
          found = Kind::kInts;
          return in.numbers(field, ProtoWire::kVarint,
                            [&](uint64_t value) { return out.ints.push_back(static_cast<int64_t>(value)), Status(); });
        case 9: found = Kind::kStrings; return add_text(in, field, out.strings);
        case 10: found = Kind::kTensors; return add_tensor(in, field, out.tensors);
        case 14: found = Kind::kType; return {};
        case 15: found = Kind::kTypes; return {};
        case 20: return in.number(field, kind);
        case 21: return in.text(field, out.ref_name);
        case 22: found = Kind::kSparseTensor; return {};
        case 23: found = Kind::kSparseTensors; return {};
        default: return {};
      }
    }));
    if (kind < 0 || kind >= std::ssize(kAttributeKinds))
      return in.error_at(in.offset(), "attribute {} has the unknown type {}", in_quotes(out.name), kind);
    // Files of IR version 1 state no type; an empty list has no field.
    out.kind = kind == 0 ? found : static_cast<Kind>(kind);
    // proto3 writers leave out a scalar that is zero or empty.
    const bool is_scalar = out.kind == Kind::kFloat || out.kind == Kind::kInt || out.kind == Kind::kString;
    const bool is_list = out.kind >= Kind::kFloats && out.kind <= Kind::kGraphs;
    if (out.ref_name.empty() && out.kind != found && !(found == Kind::kUndefined && (is_scalar || is_list)))
      return in.error_at(in.offset(), "attribute {} is declared as {} and has {}", in_quotes(out.name),
                         onnx_attribute_kind_name(out.kind), onnx_attribute_kind_name(found));
    return {};
  }

  Status read_node(const OnnxMessage& in, int depth, OnnxNode& out) {
    out.offset = in.offset();
    REDLINE_ASSIGN(const Counts counts, count(in));
    REDLINE_TRY(in.reserve(out.inputs, counts[1]));
    REDLINE_TRY(in.reserve(out.outputs, counts[2]));
    REDLINE_TRY(in.reserve(out.attributes, counts[5]));
    return in.for_each([&](const ProtoField& field) -> Status {
      switch (field.number) {
        case 1: return add_text(in, field, out.inputs);
        case 2: return add_text(in, field, out.outputs);
        case 3: return in.text(field, out.name);
        case 4: return in.text(field, out.op_type);
        case 5: {
          REDLINE_ASSIGN(const OnnxMessage attribute, in.message(field, "AttributeProto"));
          return read_attribute(attribute, depth, out.attributes.emplace_back());
        }
        case 7: return in.text(field, out.domain);
        case 8: return in.text(field, out.overload);
        default: return {};
      }
    });
  }

  Status read_graph(const OnnxMessage& in, int depth, OnnxGraph& out) {
    REDLINE_ASSIGN(const Counts counts, count(in));
    REDLINE_TRY(in.reserve(out.nodes, counts[1]));
    REDLINE_TRY(in.reserve(out.initializers, counts[5]));
    REDLINE_TRY(in.reserve(out.sparse_initializers, counts[15]));
    REDLINE_TRY(in.reserve(out.inputs, counts[11]));
    REDLINE_TRY(in.reserve(out.outputs, counts[12]));
    REDLINE_TRY(in.reserve(out.value_info, counts[13]));
    return in.for_each([&](const ProtoField& field) -> Status {
      switch (field.number) {
        case 1: {
          REDLINE_ASSIGN(const OnnxMessage node, in.message(field, "NodeProto"));
          return read_node(node, depth, out.nodes.emplace_back());
        }
        case 2: return in.text(field, out.name);
        case 5: return add_tensor(in, field, out.initializers);
        case 11: return add(in, field, "ValueInfoProto", out.inputs, &OnnxReader::read_value_info);
        case 12: return add(in, field, "ValueInfoProto", out.outputs, &OnnxReader::read_value_info);
        case 13: return add(in, field, "ValueInfoProto", out.value_info, &OnnxReader::read_value_info);
        case 15: return add(in, field, "SparseTensorProto", out.sparse_initializers, &OnnxReader::read_sparse);
        default: return {};
      }
    });
  }

  Status read_function(const OnnxMessage& in, OnnxFunction& out) {
    REDLINE_ASSIGN(const Counts counts, count(in));
    REDLINE_TRY(in.reserve(out.inputs, counts[4]));
    REDLINE_TRY(in.reserve(out.outputs, counts[5]));
    REDLINE_TRY(in.reserve(out.attributes, counts[6]));
    REDLINE_TRY(in.reserve(out.attributes_with_defaults, counts[11]));
    REDLINE_TRY(in.reserve(out.nodes, counts[7]));
    REDLINE_TRY(in.reserve(out.opsets, counts[9]));
    return in.for_each([&](const ProtoField& field) -> Status {
      switch (field.number) {
        case 1: return in.text(field, out.name);
        case 4: return add_text(in, field, out.inputs);
        case 5: return add_text(in, field, out.outputs);
        case 6: return add_text(in, field, out.attributes);
        case 7: {
          REDLINE_ASSIGN(const OnnxMessage node, in.message(field, "NodeProto"));
          return read_node(node, 0, out.nodes.emplace_back());
        }
        case 9: return add(in, field, "OperatorSetIdProto", out.opsets, &OnnxReader::read_opset);
        case 10: return in.text(field, out.domain);
        case 11: {
          REDLINE_ASSIGN(const OnnxMessage attribute, in.message(field, "AttributeProto"));
          return read_attribute(attribute, 0, out.attributes_with_defaults.emplace_back());
        }
        case 13: return in.text(field, out.overload);
        default: return {};
      }
    });
  }

  const MappedFile& file_;
  ListBudget budget_;
};

/// Returns true if `path` lies in `folder`; both are canonical.
bool is_within(const std::filesystem::path& path, const std::filesystem::path& folder) {
  const auto end = std::mismatch(folder.begin(), folder.end(), path.begin(), path.end());
  return end.first == folder.end();
}

/// Returns the path of a file of external data, after checking that it lies in the model's folder.
Result<std::string> external_path(const std::string& model, std::string_view location) {
  namespace fs = std::filesystem;
  const std::string shown = in_quotes(location);
  if (location.find('\0') != std::string_view::npos)
    return invalid_argument("external data {}: a path may not hold a zero byte", shown);
  const fs::path relative{std::string(location)};
  if (relative.is_absolute())
    return invalid_argument("external data {}: is an absolute path, expected one relative to the model's folder",
                            shown);
  for (const fs::path& part : relative)
    if (part == "..")
      return invalid_argument("external data {}: leaves the model's folder; put the file beside the model", shown);
  std::error_code error;
  const fs::path folder = fs::path(model).has_parent_path() ? fs::path(model).parent_path() : fs::path(".");
  const fs::path path = folder / relative;
  if (!fs::exists(path, error))
    return not_found("external data {}: there is no such file in {}", shown, folder.string());
  const fs::path target = fs::canonical(path, error), home = fs::canonical(folder, error),
                 real_home = fs::canonical(model, error).parent_path();
  if (error || !(is_within(target, home) || target.parent_path() == real_home))
    return invalid_argument("external data {}: is a link to {}, which is outside of the model's folder", shown,
                            error ? error.message() : target.string());
  return path.string();
}

}  // namespace

std::string_view onnx_attribute_kind_name(OnnxAttribute::Kind kind) {
  return kAttributeKinds[static_cast<size_t>(kind)];
}

const OnnxAttribute* OnnxNode::attribute(std::string_view attribute_name) const {
  for (const OnnxAttribute& attribute : attributes)
    if (attribute.name == attribute_name) return &attribute;
  return nullptr;
}

Result<OnnxFile> OnnxFile::from_file(std::shared_ptr<MappedFile> file) {
  OnnxFile out;
  REDLINE_TRY(OnnxReader(*file).read(out));
  out.files_.push_back(std::move(file));
  return out;
}

Result<OnnxFile> OnnxFile::open(const std::string& path) {
  REDLINE_ASSIGN(auto file, MappedFile::open(path));
  REDLINE_ASSIGN(OnnxFile out, from_file(std::move(file)));
  REDLINE_TRY(out.map_external(path).within(path));
  return out;
}

Status OnnxFile::map_external(const std::string& path) {
  std::map<std::string_view, const MappedFile*> by_location;
  const auto map = [&](OnnxTensor& tensor) -> Status {
    if (tensor.storage != OnnxTensor::Storage::kExternal) return {};
    const std::string place = fmt::format("tensor {}", in_quotes(tensor.name));
    const MappedFile*& mapped = by_location[tensor.location];
    if (mapped == nullptr) {
      if (files_.size() > kMaxFiles)
        return invalid_argument("{}: more than {} files of external data", place, kMaxFiles);
      REDLINE_ASSIGN(const std::string file, external_path(path, tensor.location).within(place));
      REDLINE_ASSIGN(auto opened, MappedFile::open(file).within(place));
      mapped = files_.emplace_back(std::move(opened)).get();
    }
    const int64_t bytes = tensor.bytes();
    if (tensor.external_offset > mapped->size() || bytes > mapped->size() - tensor.external_offset)
      return invalid_argument("{}: needs {} bytes from {} of {}, which has {}", place, bytes, tensor.external_offset,
                              in_quotes(tensor.location), mapped->size());
    tensor.dense = mapped->text().substr(static_cast<size_t>(tensor.external_offset), static_cast<size_t>(bytes));
    return {};
  };
  REDLINE_TRY(for_each_onnx_tensor(graph, map));
  for (OnnxFunction& function : functions) {
    REDLINE_TRY(for_each_onnx_tensor(function.nodes, map));
    for (OnnxAttribute& attribute : function.attributes_with_defaults) {
      for (OnnxTensor& tensor : attribute.tensors) REDLINE_TRY(map(tensor));
      for (OnnxGraph& inner : attribute.graphs) REDLINE_TRY(for_each_onnx_tensor(inner, map));
    }
  }
  return {};
}

bool OnnxFile::looks_like(std::string_view beginning) {
  // Fields of ModelProto by number: bytes, or a number. The file is taken for a model once its graph begins.
  constexpr uint32_t kBytesFields =
      1u << 2 | 1u << 3 | 1u << 4 | 1u << 6 | 1u << 8 | 1u << 14 | 1u << 20 | 1u << 25 | 1u << 26;
  constexpr uint32_t kNumberFields = 1u << 1 | 1u << 5;
  const std::string path;
  ProtoReader reader(path, beginning);
  while (!reader.at_end()) {
    const size_t at = static_cast<size_t>(reader.offset());
    if (beginning[at] == (7 << 3 | 2)) return true;
    ProtoField field;
    if (!reader.next(field).ok() || field.number >= 32) return false;
    const uint32_t bit = 1u << field.number;
    if ((field.wire == ProtoWire::kBytes    ? kBytesFields & bit
         : field.wire == ProtoWire::kVarint ? kNumberFields & bit
                                            : 0) == 0)
      return false;
    if (field.number == 1 && (field.value == 0 || field.value > 1000)) return false;
  }
  return false;
}

}  // namespace redline
