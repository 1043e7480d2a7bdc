// Element-wise operators: types and shapes, and their values where shapes and constants are computed with them.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "models/onnx/onnx_inference.h"

namespace redline {
namespace {

/// A number of an integer tensor during folding; nullopt: not known.
using MaybeSize = std::optional<SymbolicSize>;

std::optional<int64_t> wrapped(int64_t a, int64_t b, std::string_view op) {
  int64_t out = 0;
  if (op == "Add") return __builtin_add_overflow(a, b, &out) ? std::nullopt : std::optional(out);
  if (op == "Sub") return __builtin_sub_overflow(a, b, &out) ? std::nullopt : std::optional(out);
  if (op == "Mul") return __builtin_mul_overflow(a, b, &out) ? std::nullopt : std::optional(out);
  const bool divides = b != 0 && !(a == INT64_MIN && b == -1);
  if (op == "Div") return divides ? std::optional(a / b) : std::nullopt;
  if (op == "Mod" && divides) return a % b + ((a % b != 0 && (a % b < 0) != (b < 0)) ? b : 0);
  if (op == "Min") return std::min(a, b);
  if (op == "Max") return std::max(a, b);
  if (op == "Equal") return a == b;
  if (op == "Less") return a < b;
  if (op == "LessOrEqual") return a <= b;
  if (op == "Greater") return a > b;
  if (op == "GreaterOrEqual") return a >= b;
  if (op == "And") return a != 0 && b != 0;
  if (op == "Or") return a != 0 || b != 0;
  if (op == "Xor") return (a != 0) != (b != 0);
  return std::nullopt;
}

MaybeSize fold_sizes(SymbolicSizes& sizes, const SymbolicSize& a, const SymbolicSize& b, std::string_view op) {
  if (a.is_constant() && b.is_constant()) {
    const std::optional<int64_t> n = wrapped(a.constant(), b.constant(), op);
    return n ? MaybeSize(*n) : std::nullopt;
  }
  if (op == "Add") return sizes.add(a, b);
  if (op == "Sub") return sizes.subtract(a, b);
  if (op == "Mul") return sizes.multiply(a, b);
  if (op == "Div") {
    if (auto exact = sizes.divide_exactly(a, b)) return exact;
    // Division of integers truncates, which is rounding down where nothing is negative.
    if (b.is_constant() && b.constant() > 0 && a.is_nonnegative()) return sizes.floor_divide(a, b.constant());
    return std::nullopt;
  }
  if (op == "Equal") {
    if (a == b) return SymbolicSize(1);
    // A size is never equal to a negative number, such as the -1 of Expand.
    const bool differs = (a.is_constant() && a.constant() < 0 && b.is_nonnegative()) ||
                         (b.is_constant() && b.constant() < 0 && a.is_nonnegative());
    return differs ? MaybeSize(0) : std::nullopt;
  }
  if ((op == "Min" || op == "Max") && a == b) return a;
  return std::nullopt;
}

std::optional<double> fold_numbers(double a, double b, std::string_view op) {
  if (op == "Add") return a + b;
  if (op == "Sub") return a - b;
  if (op == "Mul") return a * b;
  if (op == "Div") return a / b;
  if (op == "Pow") return std::pow(a, b);
  if (op == "Min") return std::min(a, b);
  if (op == "Max") return std::max(a, b);
  return std::nullopt;
}

std::optional<double> fold_number(double a, std::string_view op) {
  if (op == "Neg") return -a;
  if (op == "Abs") return std::fabs(a);
  if (op == "Sqrt") return std::sqrt(a);
  if (op == "Floor") return std::floor(a);
  if (op == "Ceil") return std::ceil(a);
  if (op == "Round") return std::nearbyint(a);  // to nearest, ties to even
  if (op == "Exp") return std::exp(a);
  if (op == "Log") return std::log(a);
  if (op == "Reciprocal") return 1 / a;
  return std::nullopt;
}

double rounded(double value, OnnxType type) {
  return type == OnnxType::kFloat ? static_cast<double>(static_cast<float>(value)) : value;
}

/// Returns for every element of a shape the index of the element of a tensor of `from` that is broadcast to it.
std::optional<std::vector<size_t>> sources(const SymbolicShape& to, const SymbolicShape& from) {
  size_t count = 1;
  for (const SymbolicSize& size : to) {
    if (!size.is_constant() || size.constant() < 0 || size.constant() > OnnxElements::kMax) return std::nullopt;
    count *= static_cast<size_t>(size.constant());
    if (count > static_cast<size_t>(OnnxElements::kMax)) return std::nullopt;
  }
  std::vector<size_t> out(count, 0);
  size_t inner = 1, stride = 1;
  for (size_t i = 0; i < from.size(); ++i) {  // from the last axis
    const SymbolicSize& size = from[from.size() - 1 - i];
    if (!size.is_constant()) return std::nullopt;
    const auto to_size = static_cast<size_t>(to[to.size() - 1 - i].constant()),
               own = static_cast<size_t>(size.constant());
    if (own != 1)
      for (size_t n = 0; n < count; ++n) out[n] += n / inner % to_size * stride;
    inner *= to_size;
    stride *= own;
  }
  return out;
}

bool fits_onnx_type(int64_t n, OnnxType type) {
  switch (type) {
    case OnnxType::kInt32: return n == static_cast<int32_t>(n);
    case OnnxType::kInt16: return n == static_cast<int16_t>(n);
    case OnnxType::kInt8: return n == static_cast<int8_t>(n);
    case OnnxType::kUint32: return n == static_cast<uint32_t>(n);
    case OnnxType::kUint16: return n == static_cast<uint16_t>(n);
    case OnnxType::kUint8: return n == static_cast<uint8_t>(n);
    default: return true;
  }
}

const OnnxValue& output_of(const OnnxInference& in) { return in.values()[static_cast<size_t>(in.step().outputs[0])]; }

}  // namespace

void fold_onnx_elementwise(OnnxInference& in) {
  if (!in.has_output(0)) return;
  const OnnxValue& out = output_of(in);
  if (!out.shape) return;
  const std::string_view op = in.op_type();
  std::vector<const OnnxElements*> elements;
  std::vector<std::vector<size_t>> at;
  for (size_t i = 0; i < in.num_inputs(); ++i)
    if (!in.may_have_elements(i)) return;
  for (size_t i = 0; i < in.num_inputs(); ++i) {
    if (in.elements(i) == nullptr || in.shape(i) == nullptr || in.elements(i)->size() == 0) return;
    auto from = sources(*out.shape, *in.shape(i));
    if (!from || !in.spend(from->size())) return;
    elements.push_back(in.elements(i));
    at.push_back(*std::move(from));
  }
  if (elements.empty()) return;
  OnnxElements folded;
  const bool is_float = elements.back()->floats.size() > 0;
  for (size_t i = 0; i < elements.size(); ++i)
    if ((elements[i]->floats.size() > 0) != (is_float && !(op == "Where" && i == 0))) return;
  if (op == "Where" && elements.size() != 3) return;
  for (size_t n = 0; n < at[0].size(); ++n) {
    if (op == "Where") {
      const SymbolicSize& condition = elements[0]->ints[at[0][n]];
      if (!condition.is_constant()) return;
      const size_t chosen = condition.constant() != 0 ? 1 : 2;
      if (is_float) folded.floats.push_back(elements[chosen]->floats[at[chosen][n]]);
      else folded.ints.push_back(elements[chosen]->ints[at[chosen][n]]);
      continue;
    }
    if (op == "Not") {
      if (is_float) return;
      const SymbolicSize& a = elements[0]->ints[at[0][n]];
      if (!a.is_constant()) return;
      folded.ints.push_back(a.constant() == 0 ? 1 : 0);
      continue;
    }
    if (!is_float) {
      SymbolicSize sum = elements[0]->ints[at[0][n]];
      if (elements.size() == 1) {
        if (op == "Neg") sum = in.sizes.subtract(0, sum);
        else if (op != "Abs" || !sum.is_nonnegative()) return;
      }
      for (size_t i = 1; i < elements.size(); ++i) {
        const MaybeSize next = fold_sizes(in.sizes, sum, elements[i]->ints[at[i][n]], op);
        if (!next) return;
        sum = *next;
      }
      if (sum.is_constant() && !fits_onnx_type(sum.constant(), out.type)) return;  // it wraps around
      folded.ints.push_back(std::move(sum));
      continue;
    }
    const double first = elements[0]->floats.empty() ? NAN : elements[0]->floats[at[0][n]];
    std::optional<double> number = elements.size() == 1 ? fold_number(first, op) : first;
    for (size_t i = 1; i < elements.size() && number; ++i) {
      const double next = elements[i]->floats[at[i][n]];
      if (out.type == OnnxType::kBool) {
        const bool is_less = *number < next, is_equal = *number == next;
        if (op != "Equal" && op != "Less" && op != "Greater" && op != "LessOrEqual" && op != "GreaterOrEqual") return;
        folded.ints.push_back(op == "Equal"         ? is_equal
                              : op == "Less"        ? is_less
                              : op == "LessOrEqual" ? is_less || is_equal
                              : op == "Greater"     ? *number > next
                                                    : *number >= next);
      } else if ((number = fold_numbers(*number, next, op))) {
        number = rounded(*number, out.type);
      }
    }
    if (!number) return;
    if (out.type != OnnxType::kBool) folded.floats.push_back(rounded(*number, out.type));
  }
  in.set_elements(0, std::move(folded));
}

namespace onnx_rules {
namespace {

/// Checks that the inputs of an operator have one type, as far as they are known.
Status check_types(const OnnxInference& in, size_t first, size_t end) {
  for (size_t i = first + 1; i < end; ++i)
    if (in.type(i) != in.type(first) && in.type(i) != OnnxType::kUndefined && in.type(first) != OnnxType::kUndefined)
      return in.wrong("input {} is of {}, input {} of {}", first, onnx_type_name(in.type(first)), i,
                      onnx_type_name(in.type(i)));
  return {};
}

Result<std::optional<SymbolicShape>> broadcast_all(OnnxInference& in) {
  std::vector<size_t> all(in.num_inputs());
  std::iota(all.begin(), all.end(), size_t{0});
  return in.broadcast(all);
}

std::optional<SymbolicShape> shape_of(const OnnxInference& in, size_t i) {
  const SymbolicShape* shape = in.shape(i);
  return shape == nullptr ? std::nullopt : std::optional(*shape);
}

}  // namespace

Status same_as_input(OnnxInference& in) {
  in.set(0, in.type(0), shape_of(in, 0));
  if (in.num_inputs() == 1) fold_onnx_elementwise(in);
  return {};
}

Status elementwise(OnnxInference& in) {
  const bool has_one_type = in.op_type() != "Pow" && in.op_type() != "BitShift";
  if (has_one_type) REDLINE_TRY(check_types(in, 0, in.num_inputs()));
  REDLINE_ASSIGN(auto shape, broadcast_all(in));
  OnnxType type = OnnxType::kUndefined;
  for (size_t i = 0; i < in.num_inputs() && type == OnnxType::kUndefined; ++i) type = in.type(i);
  if (!has_one_type) type = in.type(0);
  in.set(0, type, std::move(shape));
  const bool is_mixed = in.type(0) != in.type(in.num_inputs() - 1);  // Pow: float to the power of int64
  if (!is_mixed && in.int_attribute("fmod", 0) == 0) fold_onnx_elementwise(in);
  return {};
}

Status comparison(OnnxInference& in) {
  REDLINE_TRY(check_types(in, 0, in.num_inputs()));
  REDLINE_ASSIGN(auto shape, broadcast_all(in));
  in.set(0, OnnxType::kBool, std::move(shape));
  fold_onnx_elementwise(in);
  return {};
}

Status predicate(OnnxInference& in) {
  in.set(0, OnnxType::kBool, shape_of(in, 0));
  if (in.op_type() == "Not") fold_onnx_elementwise(in);
  return {};
}

Status where(OnnxInference& in) {
  if (in.type(0) != OnnxType::kBool && in.type(0) != OnnxType::kUndefined)
    return in.wrong("the condition is of {}, expected bool", onnx_type_name(in.type(0)));
  REDLINE_TRY(check_types(in, 1, 3));
  REDLINE_ASSIGN(auto shape, broadcast_all(in));
  in.set(0, in.type(1) != OnnxType::kUndefined ? in.type(1) : in.type(2), std::move(shape));
  fold_onnx_elementwise(in);
  return {};
}

Status cast(OnnxInference& in) {
  const int64_t to = in.op_type() == "CastLike" ? static_cast<int64_t>(in.type(1)) : in.int_attribute("to", 0);
  if (to < 0 || to >= kNumOnnxTypes || (to == 0 && in.op_type() == "Cast"))
    return in.wrong("attribute \"to\" is {}, which is not a type", to);
  const auto type = static_cast<OnnxType>(to);
  in.set(0, type, shape_of(in, 0));
  const OnnxElements* from = in.elements(0);
  if (from == nullptr) return {};
  OnnxElements out;
  if (type == OnnxType::kFloat || type == OnnxType::kDouble) {
    if (!from->are_constant()) return {};
    for (const SymbolicSize& size : from->ints)
      out.floats.push_back(rounded(static_cast<double>(size.constant()), type));
    for (const double number : from->floats) out.floats.push_back(rounded(number, type));
  } else if (type == OnnxType::kInt64 || type == OnnxType::kInt32) {
    const double limit = type == OnnxType::kInt64 ? 0x1p63 : 0x1p31;
    out.ints = from->ints;
    for (const double number : from->floats) {
      if (!(number > -limit && number < limit)) return {};
      out.ints.emplace_back(static_cast<int64_t>(number));
    }
    for (const SymbolicSize& size : out.ints)
      if (type == OnnxType::kInt32 && size.is_constant() && size.constant() != static_cast<int32_t>(size.constant()))
        return {};
  } else if (type == OnnxType::kBool) {
    if (!from->are_constant()) return {};
    for (const SymbolicSize& size : from->ints) out.ints.emplace_back(size.constant() != 0);
    for (const double number : from->floats) out.ints.emplace_back(number != 0);
  } else {
    return {};
  }
  in.set_elements(0, std::move(out));
  return {};
}

Status dropout(OnnxInference& in) {
  in.set(0, in.type(0), shape_of(in, 0));
  in.set(1, OnnxType::kBool, shape_of(in, 0));
  return {};
}

Status quantize(OnnxInference& in) {
  OnnxType type = in.has_input(2) ? in.type(2) : in.type_attribute("output_dtype");
  if (!in.has_input(2) && type == OnnxType::kUndefined) type = OnnxType::kUint8;
  in.set(0, type, shape_of(in, 0));
  return {};
}

Status dequantize(OnnxInference& in) {
  const OnnxType stated = in.type_attribute("output_dtype");
  in.set(0, stated != OnnxType::kUndefined ? stated : in.type(1), shape_of(in, 0));
  return {};
}

Status dynamic_quantize(OnnxInference& in) {
  in.set(0, OnnxType::kUint8, shape_of(in, 0));
  in.set(1, OnnxType::kFloat, SymbolicShape());
  in.set(2, OnnxType::kUint8, SymbolicShape());
  return {};
}

}  // namespace onnx_rules
}  // namespace redline
