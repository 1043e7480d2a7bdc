#include "models/onnx/onnx_inference.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace redline {
namespace {

/// Adds elements of type T.
template <class T, class To>
void append_elements(std::string_view bytes, std::vector<To>& to) {
  to.reserve(bytes.size() / sizeof(T));
  for (size_t at = 0; at + sizeof(T) <= bytes.size(); at += sizeof(T)) {
    T element;
    std::memcpy(&element, bytes.data() + at, sizeof(T));
    to.push_back(static_cast<std::conditional_t<std::is_same_v<To, double>, double, int64_t>>(element));
  }
}

const OnnxAttribute* attribute_in(const OnnxNode& node, const OnnxCall* call, std::string_view name) {
  const OnnxAttribute* found = node.attribute(name);
  if (found == nullptr || found->ref_name.empty()) return found;
  // The attribute refers to one of the function: to that of the call or, without it, to the function's default.
  if (call == nullptr) return nullptr;
  if (const OnnxAttribute* outer = attribute_in(*call->node, call->caller, found->ref_name)) return outer;
  for (const OnnxAttribute& attribute : call->function->attributes_with_defaults)
    if (attribute.name == found->ref_name) return &attribute;
  return nullptr;
}

}  // namespace

const OnnxAttribute* find_onnx_attribute(const OnnxStep& step, std::string_view name) {
  return attribute_in(*step.node, step.call, name);
}

std::shared_ptr<const OnnxElements> read_onnx_elements(const OnnxTensor& tensor, int64_t& budget) {
  const int64_t count = tensor.num_elements();
  const bool is_evaluated =
      tensor.type == OnnxType::kFloat || tensor.type == OnnxType::kDouble || tensor.type == OnnxType::kBool ||
      (is_onnx_integer(tensor.type) && onnx_type_bits(tensor.type) >= 8 && tensor.type != OnnxType::kUint64);
  if (count > OnnxElements::kMax || count > budget || !is_evaluated) return nullptr;
  std::string buffer;
  const Result<std::string_view> bytes = onnx_tensor_bytes(tensor, buffer);
  if (!bytes.ok()) return nullptr;
  auto out = std::make_shared<OnnxElements>();
  switch (tensor.type) {
    case OnnxType::kFloat: append_elements<float>(*bytes, out->floats); break;
    case OnnxType::kDouble: append_elements<double>(*bytes, out->floats); break;
    case OnnxType::kInt64: append_elements<int64_t>(*bytes, out->ints); break;
    case OnnxType::kInt32: append_elements<int32_t>(*bytes, out->ints); break;
    case OnnxType::kInt16: append_elements<int16_t>(*bytes, out->ints); break;
    case OnnxType::kInt8: append_elements<int8_t>(*bytes, out->ints); break;
    case OnnxType::kUint32: append_elements<uint32_t>(*bytes, out->ints); break;
    case OnnxType::kUint16: append_elements<uint16_t>(*bytes, out->ints); break;
    case OnnxType::kUint8:
    case OnnxType::kBool: append_elements<uint8_t>(*bytes, out->ints); break;
    default: return nullptr;  // uint64, and integers that share a byte
  }
  budget -= count;
  return out;
}

const OnnxElements* known_onnx_elements(OnnxValue& value, int64_t& budget) {
  if (value.elements == nullptr && value.tensor != nullptr) value.elements = read_onnx_elements(*value.tensor, budget);
  return value.elements.get();
}

const OnnxElements* OnnxInference::elements(size_t i) const {
  if (!has_input(i)) return nullptr;
  const OnnxElements* known = known_onnx_elements(values_[static_cast<size_t>(step_.inputs[i])], budget_);
  if (known == nullptr || !value(i).shape) return nullptr;
  const SymbolicSize count = sizes.product(*value(i).shape);
  const bool is_whole = !count.is_constant() || count.constant() == static_cast<int64_t>(known->size());
  return is_whole ? known : nullptr;
}

bool OnnxInference::may_have_elements(size_t i) const {
  if (!has_input(i)) return false;
  const OnnxTensor* tensor = value(i).tensor;
  return value(i).elements != nullptr || (tensor != nullptr && tensor->num_elements() <= OnnxElements::kMax);
}

std::optional<std::vector<int64_t>> OnnxInference::ints(size_t i) const {
  const OnnxElements* known = elements(i);
  if (known == nullptr || !known->floats.empty() || !known->are_constant()) return std::nullopt;
  std::vector<int64_t> out;
  for (const SymbolicSize& size : known->ints) out.push_back(size.constant());
  return out;
}

SymbolicShape OnnxInference::unknown_shape(size_t rank) {
  SymbolicShape shape(rank);
  for (SymbolicSize& size : shape) size = sizes.unknown();
  return shape;
}

std::optional<size_t> OnnxInference::length(size_t i) const {
  const SymbolicShape* of = shape(i);
  if (of == nullptr || of->size() != 1 || !(*of)[0].is_constant()) return std::nullopt;
  const int64_t n = (*of)[0].constant();
  return n >= 0 && n <= static_cast<int64_t>(OnnxFile::kMaxRank) ? std::optional(static_cast<size_t>(n)) : std::nullopt;
}

std::optional<SymbolicShape> OnnxInference::held_shape(size_t i) {
  const auto rank = length(i);
  if (const OnnxElements* known = elements(i); known != nullptr && known->floats.empty() && rank) return known->ints;
  return rank ? std::optional(unknown_shape(*rank)) : std::nullopt;
}

int64_t OnnxInference::int_attribute(std::string_view name, int64_t otherwise) const {
  const OnnxAttribute* found = attribute(name);
  return found != nullptr && found->kind == OnnxAttribute::Kind::kInt ? found->i : otherwise;
}
double OnnxInference::float_attribute(std::string_view name, double otherwise) const {
  const OnnxAttribute* found = attribute(name);
  return found != nullptr && found->kind == OnnxAttribute::Kind::kFloat ? static_cast<double>(found->f) : otherwise;
}
std::string_view OnnxInference::text_attribute(std::string_view name, std::string_view otherwise) const {
  const OnnxAttribute* found = attribute(name);
  return found != nullptr && found->kind == OnnxAttribute::Kind::kString ? found->s : otherwise;
}
std::optional<std::vector<int64_t>> OnnxInference::ints_attribute(std::string_view name) const {
  const OnnxAttribute* found = attribute(name);
  if (found == nullptr || found->kind != OnnxAttribute::Kind::kInts) return std::nullopt;
  return found->ints;
}

void OnnxInference::set(size_t i, OnnxType type, std::optional<SymbolicShape> shape) {
  OnnxValue* out = output(i);
  if (out == nullptr) return;
  out->type = type;
  out->shape = std::move(shape);
}
void OnnxInference::set_elements(size_t i, OnnxElements elements) {
  OnnxValue* out = output(i);
  const int64_t cost = elements.cost();
  if (out == nullptr || static_cast<int64_t>(elements.size()) > OnnxElements::kMax || cost > budget_) return;
  budget_ -= cost;
  out->elements = std::make_shared<const OnnxElements>(std::move(elements));
}
void OnnxInference::set_alias(size_t i, size_t input, std::optional<SymbolicShape> shape) {
  OnnxValue* out = output(i);
  if (out == nullptr || !has_input(input)) return;
  const OnnxValue& from = value(input);
  out->kind = from.kind;
  out->type = from.type;
  out->shape = std::move(shape);
  if (elements(input) != nullptr) out->elements = from.elements;
}
void OnnxInference::set_kind(size_t i, OnnxValueType::Kind kind) {
  if (OnnxValue* out = output(i)) out->kind = kind;
}

Result<size_t> OnnxInference::axis(int64_t axis, size_t rank) const {
  const auto axes = static_cast<int64_t>(rank);
  if (axis < -axes || axis >= axes) return wrong("axis {} of a tensor of {} axes", axis, rank);
  return static_cast<size_t>(axis < 0 ? axis + axes : axis);
}

Result<std::optional<std::vector<size_t>>> OnnxInference::axes(size_t input, size_t rank, bool all_by_default) const {
  std::vector<size_t> out;
  std::optional<std::vector<int64_t>> given = ints_attribute("axes");
  if (has_input(input)) {
    given = ints(input);
    if (!given) return std::optional<std::vector<size_t>>();
  }
  if (!given || (given->empty() && all_by_default)) {
    out.resize(all_by_default ? rank : 0);
    std::iota(out.begin(), out.end(), size_t{0});
    return std::optional(std::move(out));
  }
  for (const int64_t n : *given) {
    REDLINE_ASSIGN(const size_t at, axis(n, rank));
    if (std::find(out.begin(), out.end(), at) != out.end()) return wrong("axis {} is given twice", n);
    out.push_back(at);
  }
  std::sort(out.begin(), out.end());
  return std::optional(std::move(out));
}

Result<SymbolicShape> OnnxInference::broadcast(const SymbolicShape& a, const SymbolicShape& b) {
  SymbolicShape out(std::max(a.size(), b.size()));
  for (size_t i = 0; i < out.size(); ++i) {  // from the last axis
    const SymbolicSize x = i < a.size() ? a[a.size() - 1 - i] : SymbolicSize(1),
                       y = i < b.size() ? b[b.size() - 1 - i] : SymbolicSize(1);
    SymbolicSize& size = out[out.size() - 1 - i];
    if (x == y || y == SymbolicSize(1)) size = x;
    else if (x == SymbolicSize(1)) size = y;
    else if (x.is_constant() && y.is_constant())
      return wrong("shapes {} and {} do not broadcast", sizes.text(a), sizes.text(b));
    else size = x.is_constant() ? x : y.is_constant() ? y : sizes.unknown();
  }
  return out;
}

Result<std::optional<SymbolicShape>> OnnxInference::broadcast(std::span<const size_t> inputs) {
  std::optional<SymbolicShape> out;
  for (const size_t i : inputs) {
    if (!has_input(i)) continue;
    const SymbolicShape* other = shape(i);
    if (other == nullptr) return std::optional<SymbolicShape>();
    if (!out) {
      out = *other;
      continue;
    }
    REDLINE_ASSIGN(out, broadcast(*out, *other));
  }
  return out;
}

}  // namespace redline
