// Operators that compute over axes: convolutions, pools, products, reductions, recurrent layers, attention.
#include <algorithm>
#include <cmath>

#include "models/onnx/onnx_inference.h"

namespace redline {
namespace onnx_rules {
namespace {

std::optional<SymbolicShape> shape_at(const OnnxInference& in, size_t i) {
  const SymbolicShape* shape = in.shape(i);
  return shape == nullptr ? std::nullopt : std::optional(*shape);
}

constexpr int64_t kMaxWindow = int64_t{1} << 31;  // of kernels, strides, dilations and pads

/// Attributes of a window that moves over the axes after batch and channels.
struct Window {
  std::vector<int64_t> kernel, strides, dilations, pads;
  std::string_view auto_pad;
};

Result<Window> window_of(const OnnxInference& in, size_t axes, const SymbolicShape* weight) {
  Window out;
  out.auto_pad = in.text_attribute("auto_pad", "NOTSET");
  const auto list = [&](std::string_view name, size_t count, int64_t otherwise, int64_t least,
                        std::vector<int64_t>& to) -> Status {
    to = in.ints_attribute(name).value_or(std::vector<int64_t>(count, otherwise));
    if (to.size() != count) return in.wrong("{} has {} numbers, expected {}", name, to.size(), count);
    for (const int64_t n : to)
      if (n < least || n > kMaxWindow) return in.wrong("{} has the number {}", name, n);
    return {};
  };
  REDLINE_TRY(list("strides", axes, 1, 1, out.strides));
  REDLINE_TRY(list("dilations", axes, 1, 1, out.dilations));
  REDLINE_TRY(list("pads", 2 * axes, 0, in.op_type() == "ConvTranspose" ? -kMaxWindow : 0, out.pads));
  if (in.has_attribute("kernel_shape")) {
    REDLINE_TRY(list("kernel_shape", axes, 0, 1, out.kernel));
  } else if (weight != nullptr) {
    for (size_t i = 2; i < weight->size(); ++i) {
      if (!(*weight)[i].is_constant()) return out;
      const int64_t size = (*weight)[i].constant();
      if (size < 0 || size > kMaxWindow)
        return in.wrong("its weight {} has a kernel of {}", in.sizes.text(*weight), size);
      out.kernel.push_back(size);
    }
  } else {
    return in.wrong("it has no kernel_shape");
  }
  if (weight != nullptr)
    for (size_t i = 0; i < axes && i < out.kernel.size(); ++i)
      if ((*weight)[i + 2].is_constant() && (*weight)[i + 2].constant() != out.kernel[i])
        return in.wrong("kernel_shape has {} on axis {}, its weight {}", out.kernel[i], i, (*weight)[i + 2].constant());
  return out;
}

/// Returns the size of an axis after a window has moved over it.
Result<SymbolicSize> windowed(OnnxInference& in, const SymbolicSize& size, const Window& w, size_t i, bool rounds_up) {
  if (w.auto_pad == "SAME_UPPER" || w.auto_pad == "SAME_LOWER") return in.sizes.ceil_divide(size, w.strides[i]);
  const int64_t extent = w.dilations[i] * (w.kernel[i] - 1) + 1;
  const bool has_pads = w.auto_pad != "VALID";
  const int64_t pads = has_pads ? w.pads[i] + w.pads[i + w.strides.size()] : 0;
  const SymbolicSize span = in.sizes.add(size, pads - extent);
  if (span.is_constant() && span.constant() < 0)
    return in.wrong("axis {} has the size {} with {} of padding, the kernel covers {}", i + 2, in.sizes.text(size),
                    pads, extent);
  SymbolicSize out =
      in.sizes.add(rounds_up ? in.sizes.ceil_divide(span, w.strides[i]) : in.sizes.floor_divide(span, w.strides[i]), 1);
  // A window that would start in the padding after the end is left out.
  if (rounds_up && out.is_constant() && size.is_constant() && has_pads &&
      (out.constant() - 1) * w.strides[i] - w.pads[i] >= size.constant())
    out = out.constant() - 1;
  return out;
}

/// Returns the type of the output of a convolution or a product of integers.
OnnxType integer_result(const OnnxInference& in) {
  if (in.op_type().starts_with("QLinear")) return in.type(7);
  return in.op_type().ends_with("Integer") ? OnnxType::kInt32 : in.type(0);
}

Result<std::optional<SymbolicShape>> product_shape(OnnxInference& in, size_t first, size_t second,
                                                   bool transposes_first, bool transposes_second) {
  const SymbolicShape *left = in.shape(first), *right = in.shape(second);
  if (left == nullptr || right == nullptr) return std::optional<SymbolicShape>();
  SymbolicShape a = *left, b = *right;
  if (a.empty() || b.empty()) return in.wrong("an input is a scalar");
  const bool is_row = a.size() == 1, is_column = b.size() == 1;
  if (is_row) a.insert(a.begin(), 1);
  if (is_column) b.emplace_back(1);
  if (transposes_first && !is_row) std::swap(a[a.size() - 1], a[a.size() - 2]);
  if (transposes_second && !is_column) std::swap(b[b.size() - 1], b[b.size() - 2]);
  const SymbolicSize &inner_a = a.back(), &inner_b = b[b.size() - 2];
  if (inner_a.is_constant() && inner_b.is_constant() && inner_a != inner_b)
    return in.wrong("{} times {}: {} columns, {} rows", in.sizes.text(*left), in.sizes.text(*right), inner_a.constant(),
                    inner_b.constant());
  REDLINE_ASSIGN(SymbolicShape out,
                 in.broadcast(SymbolicShape(a.begin(), a.end() - 2), SymbolicShape(b.begin(), b.end() - 2)));
  if (!is_row) out.push_back(a[a.size() - 2]);
  if (!is_column) out.push_back(b.back());
  return std::optional(std::move(out));
}

}  // namespace

Status convolution(OnnxInference& in) {
  const size_t weight_at = in.op_type() == "QLinearConv" ? 3 : 1;
  const SymbolicShape *x = in.shape(0), *weight = in.shape(weight_at);
  in.set(0, integer_result(in));
  if (x == nullptr || weight == nullptr) return {};
  if (x->size() < 3 || weight->size() != x->size())
    return in.wrong("its input has {} axes and its weight {}, expected the same number, 3 or more", x->size(),
                    weight->size());
  const int64_t groups = in.int_attribute("group", 1);
  if (groups < 1 || groups > kMaxWindow) return in.wrong("group is {}", groups);
  if ((*x)[1].is_constant() && (*weight)[1].is_constant() && (*weight)[1].constant() <= kMaxWindow &&
      (*x)[1].constant() != (*weight)[1].constant() * groups)
    return in.wrong("its input {} has {} channels, its weight {} in {} groups takes {}", in.sizes.text(*x),
                    (*x)[1].constant(), in.sizes.text(*weight), groups, (*weight)[1].constant() * groups);
  REDLINE_ASSIGN(const Window w, window_of(in, x->size() - 2, weight));
  SymbolicShape out = {(*x)[0], (*weight)[0]};
  for (size_t i = 0; i + 2 < x->size(); ++i) {
    SymbolicSize size = in.sizes.unknown();
    if (i < w.kernel.size()) {
      REDLINE_ASSIGN(size, windowed(in, (*x)[i + 2], w, i, false));
    }
    out.push_back(size);
  }
  in.set(0, integer_result(in), std::move(out));
  return {};
}

Status convolution_transposed(OnnxInference& in) {
  const SymbolicShape *x = in.shape(0), *weight = in.shape(1);
  in.set(0, in.type(0));
  if (x == nullptr || weight == nullptr) return {};
  if (x->size() < 3 || weight->size() != x->size())
    return in.wrong("its input has {} axes and its weight {}, expected the same number, 3 or more", x->size(),
                    weight->size());
  if ((*x)[1].is_constant() && (*weight)[0].is_constant() && (*x)[1] != (*weight)[0])
    return in.wrong("its input {} has {} channels, its weight {} takes {}", in.sizes.text(*x), (*x)[1].constant(),
                    in.sizes.text(*weight), (*weight)[0].constant());
  const size_t axes = x->size() - 2;
  REDLINE_ASSIGN(const Window w, window_of(in, axes, weight));
  SymbolicShape out = {(*x)[0], in.sizes.multiply((*weight)[1], in.int_attribute("group", 1))};
  const auto stated = in.ints_attribute("output_shape");
  const auto added = in.ints_attribute("output_padding").value_or(std::vector<int64_t>(axes, 0));
  if (added.size() != axes) return in.wrong("output_padding has {} numbers, expected {}", added.size(), axes);
  for (size_t i = 0; i < axes; ++i) {
    const bool is_same = w.auto_pad == "SAME_UPPER" || w.auto_pad == "SAME_LOWER";
    if (stated && stated->size() == axes) out.emplace_back((*stated)[i]);
    else if (i >= w.kernel.size() || added[i] > kMaxWindow || added[i] < 0) out.push_back(in.sizes.unknown());
    else if (is_same) out.push_back(in.sizes.multiply((*x)[i + 2], w.strides[i]));
    else
      out.push_back(in.sizes.add(in.sizes.multiply(in.sizes.add((*x)[i + 2], -1), w.strides[i]),
                                 added[i] + w.dilations[i] * (w.kernel[i] - 1) + 1 -
                                     (w.auto_pad == "VALID" ? 0 : w.pads[i] + w.pads[i + axes])));
  }
  in.set(0, in.type(0), std::move(out));
  return {};
}

Status pool(OnnxInference& in) {
  const SymbolicShape* x = in.shape(0);
  in.set(0, in.type(0));
  in.set(1, OnnxType::kInt64);
  if (x == nullptr) return {};
  if (x->size() < 3) return in.wrong("its input has {} axes, expected 3 or more", x->size());
  REDLINE_ASSIGN(const Window w, window_of(in, x->size() - 2, nullptr));
  SymbolicShape out = {(*x)[0], (*x)[1]};
  for (size_t i = 0; i + 2 < x->size(); ++i) {
    REDLINE_ASSIGN(const SymbolicSize size, windowed(in, (*x)[i + 2], w, i, in.int_attribute("ceil_mode", 0) != 0));
    out.push_back(size);
  }
  in.set(0, in.type(0), out);
  in.set(1, OnnxType::kInt64, std::move(out));
  return {};
}

Status global_pool(OnnxInference& in) {
  std::optional<SymbolicShape> out = shape_at(in, 0);
  if (out)
    for (size_t i = 2; i < out->size(); ++i) (*out)[i] = 1;
  in.set(0, in.type(0), std::move(out));
  return {};
}

Status normalization(OnnxInference& in) {
  in.set(0, in.type(0), shape_at(in, 0));
  const SymbolicShape* x = in.shape(0);
  for (size_t i = 1; i < in.num_outputs(); ++i) in.set(i, OnnxType::kFloat);
  if (x == nullptr || (in.op_type() != "LayerNormalization" && in.op_type() != "RMSNormalization")) return {};
  REDLINE_ASSIGN(const size_t axis, in.axis(in.int_attribute("axis", -1), x->size()));
  SymbolicShape statistics = *x;
  for (size_t i = axis; i < statistics.size(); ++i) statistics[i] = 1;
  for (size_t i = 1; i < in.num_outputs(); ++i) in.set(i, OnnxType::kFloat, statistics);
  return {};
}

Status batch_normalization(OnnxInference& in) {
  in.set(0, in.type(0), shape_at(in, 0));
  for (size_t i = 1; i < in.num_outputs(); ++i) in.set(i, in.type(3), shape_at(in, 3));
  const SymbolicShape *x = in.shape(0), *scale = in.shape(1);
  if (x != nullptr && scale != nullptr && x->size() > 1 && scale->size() == 1 && (*x)[1].is_constant() &&
      (*scale)[0].is_constant() && (*x)[1] != (*scale)[0])
    return in.wrong("its input {} has {} channels, its scale {}", in.sizes.text(*x), (*x)[1].constant(),
                    (*scale)[0].constant());
  return {};
}

Status matmul(OnnxInference& in) {
  const bool first = in.int_attribute("transA", 0) != 0, second = in.int_attribute("transB", 0) != 0;
  REDLINE_ASSIGN(auto out, product_shape(in, 0, 1, first, second));  // FusedMatMul has the attributes, MatMul not
  in.set(0, in.type(0), std::move(out));
  return {};
}

Status matmul_integer(OnnxInference& in) {
  REDLINE_ASSIGN(auto out, product_shape(in, 0, 1, false, false));
  in.set(0, OnnxType::kInt32, std::move(out));
  return {};
}

Status qlinear_matmul(OnnxInference& in) {
  REDLINE_ASSIGN(auto out, product_shape(in, 0, 3, false, false));
  in.set(0, in.type(7), std::move(out));
  return {};
}

Status gemm(OnnxInference& in) {
  for (const size_t i : {size_t{0}, size_t{1}})
    if (in.shape(i) != nullptr && in.shape(i)->size() != 2)
      return in.wrong("input {} has {} axes, expected 2", i, in.shape(i)->size());
  REDLINE_ASSIGN(auto out,
                 product_shape(in, 0, 1, in.int_attribute("transA", 0) != 0, in.int_attribute("transB", 0) != 0));
  if (out && in.shape(2) != nullptr) REDLINE_TRY(in.broadcast(*out, *in.shape(2)));
  in.set(0, in.type(0), std::move(out));
  return {};
}

Status reduce(OnnxInference& in) {
  const SymbolicShape* x = in.shape(0);
  in.set(0, in.type(0));
  if (x == nullptr) return {};
  const bool keeps = in.int_attribute("keepdims", 1) != 0,
             does_nothing = in.int_attribute("noop_with_empty_axes", 0) != 0;
  REDLINE_ASSIGN(const auto axes, in.axes(1, x->size(), !does_nothing));
  if (!axes) {
    if (!keeps) return {};
    SymbolicShape out = *x;
    for (SymbolicSize& size : out) size = in.sizes.unknown();
    in.set(0, in.type(0), std::move(out));
    return {};
  }
  SymbolicShape out;
  for (size_t i = 0; i < x->size(); ++i) {
    const bool is_reduced = std::find(axes->begin(), axes->end(), i) != axes->end();
    if (!is_reduced) out.push_back((*x)[i]);
    else if (keeps) out.emplace_back(1);
  }
  in.set(0, in.type(0), std::move(out));
  // The number of elements of a shape, computed from it.
  const OnnxElements* elements = in.elements(0);
  if (elements == nullptr || elements->ints.empty() || x->size() != 1 || axes->size() != 1 ||
      !in.spend(elements->size()))
    return {};
  SymbolicSize total = in.op_type() == "ReduceProd" ? 1 : 0;
  if (in.op_type() == "ReduceProd")
    for (const SymbolicSize& size : elements->ints) total = in.sizes.multiply(total, size);
  else if (in.op_type() == "ReduceSum")
    for (const SymbolicSize& size : elements->ints) total = in.sizes.add(total, size);
  else return {};
  in.set_elements(0, {{total}, {}});
  return {};
}

Status arg_reduce(OnnxInference& in) {
  const SymbolicShape* x = in.shape(0);
  in.set(0, OnnxType::kInt64);
  if (x == nullptr) return {};
  REDLINE_ASSIGN(const size_t axis, in.axis(in.int_attribute("axis", 0), x->size()));
  SymbolicShape out = *x;
  if (in.int_attribute("keepdims", 1) != 0) out[axis] = 1;
  else out.erase(out.begin() + static_cast<std::ptrdiff_t>(axis));
  in.set(0, OnnxType::kInt64, std::move(out));
  return {};
}

Status top_k(OnnxInference& in) {
  const SymbolicShape* x = in.shape(0);
  in.set(0, in.type(0));
  in.set(1, OnnxType::kInt64);
  if (x == nullptr) return {};
  REDLINE_ASSIGN(const size_t axis, in.axis(in.int_attribute("axis", -1), x->size()));
  SymbolicShape out = *x;
  const OnnxElements* k = in.elements(1);
  if (k != nullptr && k->ints.size() == 1) out[axis] = k->ints[0];
  else out[axis] = in.has_input(1) ? in.sizes.unknown() : SymbolicSize(in.int_attribute("k", 0));
  in.set(0, in.type(0), out);
  in.set(1, OnnxType::kInt64, std::move(out));
  return {};
}

Status recurrent(OnnxInference& in) {
  const SymbolicShape* x = in.shape(0);  // [time, batch, features], or with layout 1 [batch, time, features]
  for (size_t i = 0; i < in.num_outputs(); ++i) in.set(i, in.type(0));
  const int64_t hidden = in.int_attribute("hidden_size", 0);
  if (x == nullptr || hidden <= 0) return {};
  if (x->size() != 3) return in.wrong("its input has {} axes, expected 3", x->size());
  const SymbolicSize directions = in.text_attribute("direction", "forward") == "bidirectional" ? 2 : 1;
  const bool is_batch_first = in.int_attribute("layout", 0) != 0;
  const SymbolicSize time = (*x)[is_batch_first ? 1 : 0], batch = (*x)[is_batch_first ? 0 : 1];
  in.set(
      0, in.type(0),
      is_batch_first ? SymbolicShape{batch, time, directions, hidden} : SymbolicShape{time, directions, batch, hidden});
  for (size_t i = 1; i < in.num_outputs(); ++i)
    in.set(i, in.type(0),
           is_batch_first ? SymbolicShape{batch, directions, hidden} : SymbolicShape{directions, batch, hidden});
  return {};
}

Status stft(OnnxInference& in) {
  const SymbolicShape* signal = in.shape(0);  // [batch, samples, 1 or 2]
  in.set(0, in.type(0));
  if (signal == nullptr) return {};
  const auto step = in.ints(1);
  auto frame = in.ints(3);
  if (!frame && in.shape(2) != nullptr && in.shape(2)->size() == 1 && (*in.shape(2))[0].is_constant())
    frame = std::vector<int64_t>{(*in.shape(2))[0].constant()};
  SymbolicSize frames = in.sizes.unknown(), bins = in.sizes.unknown();
  if (frame && frame->size() == 1 && (*frame)[0] > 0) {
    bins = in.int_attribute("onesided", 1) != 0 ? (*frame)[0] / 2 + 1 : (*frame)[0];
    if (step && step->size() == 1 && (*step)[0] > 0 && signal->size() >= 2)
      frames = in.sizes.add(in.sizes.floor_divide(in.sizes.add((*signal)[1], -(*frame)[0]), (*step)[0]), 1);
  }
  in.set(0, in.type(0), SymbolicShape{signal->empty() ? in.sizes.unknown() : (*signal)[0], frames, bins, 2});
  return {};
}

Status if_else(OnnxInference& in) {
  const std::vector<OnnxSteps>& graphs = in.step().graphs;
  if (graphs.size() != 2) return in.wrong("has {} branches, expected then_branch and else_branch", graphs.size());
  for (size_t i = 0; i < in.num_outputs(); ++i) {
    for (const OnnxSteps& graph : graphs)
      if (i >= graph.outputs.size())
        return in.wrong("has {} outputs, a branch has {}", in.num_outputs(), graph.outputs.size());
    const OnnxValue &a = in.values()[static_cast<size_t>(graphs[0].outputs[i])],
                    &b = in.values()[static_cast<size_t>(graphs[1].outputs[i])];
    std::optional<SymbolicShape> shape;
    if (a.shape && b.shape && a.shape->size() == b.shape->size()) {
      shape = a.shape;
      for (size_t k = 0; k < shape->size(); ++k)
        if ((*a.shape)[k] != (*b.shape)[k]) (*shape)[k] = in.sizes.unknown();
    }
    if (a.type != b.type && a.type != OnnxType::kUndefined && b.type != OnnxType::kUndefined)
      return in.wrong("output {} is of {} in one branch and of {} in the other", i, onnx_type_name(a.type),
                      onnx_type_name(b.type));
    in.set(i, a.type != OnnxType::kUndefined ? a.type : b.type, std::move(shape));
    in.set_kind(i, a.kind);
  }
  return {};
}

Status attention(OnnxInference& in) {
  // The standard operator: [batch, heads, length, head size] or [batch, length, width]; com.microsoft's have the width.
  for (size_t i = 0; i < in.num_outputs(); ++i) in.set(i, in.type(0));
  const SymbolicShape *query = in.shape(0), *value = in.shape(2);
  if (query == nullptr) return {};
  SymbolicShape out = *query;
  if (out.size() == 4 && value != nullptr && value->size() == 4) out[3] = (*value)[3];
  if (out.size() == 3 && in.op_type() != "GroupQueryAttention") {
    const int64_t heads = in.int_attribute("q_num_heads", 0), kv_heads = in.int_attribute("kv_num_heads", 0);
    out[2] = in.sizes.unknown();
    if (value != nullptr && value->size() == 3 && heads > 0 && kv_heads > 0)
      if (const auto head_size = in.sizes.divide_exactly((*value)[2], kv_heads))
        out[2] = in.sizes.multiply(*head_size, heads);
  }
  if (in.op_type() == "GroupQueryAttention" && !in.has_input(1) && out.size() == 3) {
    // Query, key and value in one tensor: (heads + 2 kv heads) * head size.
    const int64_t heads = in.int_attribute("num_heads", 0), kv_heads = in.int_attribute("kv_num_heads", 0);
    std::optional<SymbolicSize> head_size;
    if (heads > 0 && kv_heads > 0 && heads < kMaxWindow && kv_heads < kMaxWindow)
      head_size = in.sizes.divide_exactly(out[2], heads + 2 * kv_heads);
    out[2] = head_size ? in.sizes.multiply(*head_size, heads) : in.sizes.unknown();
  }
  in.set(0, in.type(0), std::move(out));
  return {};
}

Status matmul_n_bits(OnnxInference& in) {
  const SymbolicShape* x = in.shape(0);
  in.set(0, in.type(0));
  const int64_t columns = in.int_attribute("N", 0), rows = in.int_attribute("K", 0);
  if (columns <= 0 || rows <= 0) return in.wrong("N is {}, K is {}", columns, rows);
  if (x == nullptr || x->empty()) return {};
  if (x->back().is_constant() && x->back().constant() != rows)
    return in.wrong("its input {} has {} columns, K is {}", in.sizes.text(*x), x->back().constant(), rows);
  SymbolicShape out = *x;
  out.back() = columns;
  in.set(0, in.type(0), std::move(out));
  return {};
}

Status skip_normalization(OnnxInference& in) {
  in.set(0, in.type(0), shape_at(in, 0));
  in.set(1, OnnxType::kFloat);
  in.set(2, OnnxType::kFloat);
  in.set(3, in.type(0), shape_at(in, 0));  // the sum before the norm
  return {};
}

}  // namespace onnx_rules
}  // namespace redline
