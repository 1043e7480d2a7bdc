// Parts of the reader of ONNX files: its cursor with the checks of fields, and tensors.
#pragma once

#include "formats/onnx.h"
#include "formats/proto_reader.h"

namespace redline {

/// A message that is being read: its fields with checks of their wire types, and the memory that is left for lists.
class OnnxMessage {
 public:
  /// `name`: name of the message in the specification, for errors. `budget` must outlive the object.
  OnnxMessage(ProtoReader reader, const char* name, ListBudget& budget)
      : reader_(reader), name_(name), budget_(&budget) {}

  /// Calls on_field(field) for every field.
  template <class F>
  Status for_each(F&& on_field) const {
    ProtoReader reader = reader_;
    ProtoField field;
    while (!reader.at_end()) {
      REDLINE_TRY(reader.next(field));
      REDLINE_TRY(on_field(field));
    }
    return {};
  }
  Status text(const ProtoField& field, std::string_view& out) const {
    REDLINE_TRY(expect(field, ProtoWire::kBytes, "bytes"));
    out = field.bytes;
    return {};
  }
  template <class T>
  Status number(const ProtoField& field, T& out) const {
    REDLINE_TRY(expect(field, ProtoWire::kVarint, "a number"));
    out = static_cast<T>(field.value);
    if (static_cast<int64_t>(out) != field.as_int64() && static_cast<uint64_t>(out) != field.value)
      return error_at(field.offset, "field {} is {}, which is out of range", field.number, field.as_int64());
    return {};
  }
  Status expect(const ProtoField& field, ProtoWire wire, std::string_view what) const {
    if (field.wire == wire) return {};
    return error_at(field.offset, "field {} has wire type {}, expected {}", field.number, static_cast<int>(field.wire),
                    what);
  }
  Result<OnnxMessage> message(const ProtoField& field, const char* name) const {
    REDLINE_TRY(expect(field, ProtoWire::kBytes, "a message"));
    return OnnxMessage(reader_.inside(field), name, *budget_);
  }
  /// Calls on_number(field.value) for each element of a repeated number, packed or not. `wire`: wire type of one
  /// number.
  template <class F>
  Status numbers(const ProtoField& field, ProtoWire wire, F&& on_number) const {
    if (field.wire != ProtoWire::kBytes) {
      REDLINE_TRY(expect(field, wire, "numbers"));
      return on_number(field.value);
    }
    if (wire == ProtoWire::kVarint) {
      ProtoReader packed = reader_.inside(field);
      while (!packed.at_end()) {
        uint64_t value = 0;
        REDLINE_TRY(packed.varint(value));
        REDLINE_TRY(on_number(value));
      }
      return {};
    }
    const size_t bytes = wire == ProtoWire::kFixed32 ? sizeof(uint32_t) : sizeof(uint64_t);
    if (field.bytes.size() % bytes != 0)
      return error_at(field.offset, "field {} has {} bytes, not a multiple of {}", field.number, field.bytes.size(),
                      bytes);
    for (size_t at = 0; at < field.bytes.size(); at += bytes) {
      uint64_t value = 0;
      std::memcpy(&value, field.bytes.data() + at, bytes);
      REDLINE_TRY(on_number(value));
    }
    return {};
  }
  /// Makes room for `count` further elements of a list.
  template <class T>
  Status reserve(std::vector<T>& list, uint64_t count) const {
    REDLINE_TRY(spend(count, sizeof(T)));
    list.reserve(list.size() + static_cast<size_t>(count));
    return {};
  }
  Status spend(uint64_t count, uint64_t bytes_each) const {
    if (budget_->spend(count, bytes_each)) return {};
    return error_at(reader_.offset(), "its lists are too long for the size of the file");
  }
  template <class... A>
  Status error_at(uint64_t offset, fmt::format_string<A...> text, A&&... args) const {
    return reader_.error_at(offset, "{}: {}", name_, fmt::format(text, std::forward<A>(args)...));
  }
  uint64_t offset() const { return reader_.offset(); }

 private:
  ProtoReader reader_;
  const char* name_;
  ListBudget* budget_;
};

/// Reads a TensorProto and checks type, shape and number of elements. `bytes`: the whole message.
Status read_onnx_tensor(const OnnxMessage& in, std::string_view bytes, OnnxTensor& tensor);

/// Calls visit(tensor) for every tensor of a graph, in attributes and their graphs too. Stops at the first error.
template <class F>
Status for_each_onnx_tensor(OnnxGraph& graph, F&& visit);

template <class F>
Status for_each_onnx_tensor(std::vector<OnnxNode>& nodes, F&& visit) {
  for (OnnxNode& node : nodes)
    for (OnnxAttribute& attribute : node.attributes) {
      for (OnnxTensor& tensor : attribute.tensors) REDLINE_TRY(visit(tensor));
      for (OnnxGraph& graph : attribute.graphs) REDLINE_TRY(for_each_onnx_tensor(graph, visit));
    }
  return {};
}

template <class F>
Status for_each_onnx_tensor(OnnxGraph& graph, F&& visit) {
  for (OnnxTensor& tensor : graph.initializers) REDLINE_TRY(visit(tensor));
  for (OnnxSparseTensor& sparse : graph.sparse_initializers) {
    REDLINE_TRY(visit(sparse.values));
    REDLINE_TRY(visit(sparse.indices));
  }
  return for_each_onnx_tensor(graph.nodes, visit);
}

}  // namespace redline
