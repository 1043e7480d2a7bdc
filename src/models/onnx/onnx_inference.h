// Types, shapes and known elements of the outputs of one node: what the rules of operators read and write.
#pragma once

#include <fmt/ranges.h>

#include <span>

#include "models/onnx/onnx_network.h"

namespace redline {

/// Returns an attribute of a step: that of its node or, in a function, of the function's call, or its default.
/// nullptr: it is left out.
const OnnxAttribute* find_onnx_attribute(const OnnxStep& step, std::string_view name);

class OnnxInference {
 public:
  /// All are borrowed. The outputs of the step exist and have no type.
  /// `budget`: number of elements that may still be stored or computed (OnnxNetwork::kMaxElements).
  OnnxInference(const OnnxStep& step, std::vector<OnnxValue>& values, SymbolicSizes& symbols, int64_t& budget)
      : step_(step), values_(values), budget_(budget), sizes(symbols) {}

  size_t num_inputs() const { return step_.inputs.size(); }
  size_t num_outputs() const { return step_.outputs.size(); }
  bool has_input(size_t i) const { return i < step_.inputs.size() && step_.inputs[i] >= 0; }
  bool has_output(size_t i) const { return i < step_.outputs.size() && step_.outputs[i] >= 0; }
  OnnxType type(size_t i) const { return has_input(i) ? value(i).type : OnnxType::kUndefined; }
  /// Returns the shape of an input; nullptr: it is left out or its number of axes is unknown.
  const SymbolicShape* shape(size_t i) const { return has_input(i) && value(i).shape ? &*value(i).shape : nullptr; }
  /// Returns the elements of an input, as many as its shape has where that is known; nullptr: unknown.
  const OnnxElements* elements(size_t i) const;
  /// Returns false if elements() is known to return nullptr, without decoding a tensor.
  bool may_have_elements(size_t i) const;
  /// Returns the elements of an input that are integers and do not depend on sizes; nullopt: unknown.
  std::optional<std::vector<int64_t>> ints(size_t i) const;
  /// Returns the number of elements of an input of one axis, such as the shape of a Reshape; nullopt: not known.
  std::optional<size_t> length(size_t i) const;
  /// Returns a shape that an input holds. Sizes that are not known are new symbols; nullopt: not even their number is.
  std::optional<SymbolicShape> held_shape(size_t i);
  /// Takes the work of computing elements from the budget; false: it is exceeded.
  bool spend(size_t num_elements) const {
    const auto cost = static_cast<int64_t>(num_elements);
    if (cost > budget_) return false;
    budget_ -= cost;
    return true;
  }
  /// Returns new symbols.
  SymbolicShape unknown_shape(size_t rank);
  const OnnxValue& value(size_t i) const { return values_[static_cast<size_t>(step_.inputs[i])]; }

  bool has_attribute(std::string_view name) const { return find_onnx_attribute(step_, name) != nullptr; }
  const OnnxAttribute* attribute(std::string_view name) const { return find_onnx_attribute(step_, name); }
  int64_t int_attribute(std::string_view name, int64_t otherwise) const;
  /// Returns the type of elements that an attribute states by its number; kUndefined: none, or an unknown number.
  OnnxType type_attribute(std::string_view name) const {
    const int64_t number = int_attribute(name, 0);
    return number > 0 && number < kNumOnnxTypes ? static_cast<OnnxType>(number) : OnnxType::kUndefined;
  }
  double float_attribute(std::string_view name, double otherwise) const;
  std::string_view text_attribute(std::string_view name, std::string_view otherwise) const;
  /// Returns the integers of an attribute; nullopt: it is left out.
  std::optional<std::vector<int64_t>> ints_attribute(std::string_view name) const;
  int64_t opset() const { return step_.version; }
  std::string_view op_type() const { return step_.node->op_type; }

  /// Set an output; outputs that the node leaves out are ignored. A shape of nullopt is unknown.
  void set(size_t output, OnnxType type, std::optional<SymbolicShape> shape = std::nullopt);
  void set_elements(size_t output, OnnxElements elements);
  /// Makes an output of the same contents as an input in another shape.
  void set_alias(size_t output, size_t input, std::optional<SymbolicShape> shape);
  void set_kind(size_t output, OnnxValueType::Kind kind);
  std::vector<OnnxValue>& values() const { return values_; }
  const OnnxStep& step() const { return step_; }

  /// Returns the error "node PATH (Op): reason".
  template <class... A>
  Status wrong(fmt::format_string<A...> text, A&&... args) const {
    return invalid_argument("{}: {}", place(), fmt::format(text, std::forward<A>(args)...));
  }
  std::string place() const { return fmt::format("node {} ({})", step_.path, step_.node->op_type); }

  /// Returns `axis` counted from the front, for a tensor of `rank` axes. invalid_argument: it is outside of them.
  Result<size_t> axis(int64_t axis, size_t rank) const;
  /// Returns the axes that an attribute or, in later opsets, an input gives; where neither is given, none, or all axes
  /// if `all_by_default`. nullopt: they are not known before the network runs.
  Result<std::optional<std::vector<size_t>>> axes(size_t input, size_t rank, bool all_by_default) const;
  /// Returns the shape of an element-wise operator of several inputs. invalid_argument: they do not broadcast.
  Result<std::optional<SymbolicShape>> broadcast(std::span<const size_t> inputs);
  Result<SymbolicShape> broadcast(const SymbolicShape& a, const SymbolicShape& b);

 private:
  OnnxValue* output(size_t i) { return has_output(i) ? &values_[static_cast<size_t>(step_.outputs[i])] : nullptr; }

  const OnnxStep& step_;
  std::vector<OnnxValue>& values_;
  int64_t& budget_;

 public:
  SymbolicSizes& sizes;
};

/// An operator that is known: a row of the table.
struct OnnxOp {
  static constexpr int kMany = 1 << 20;
  std::string_view name;
  int since;    ///< opset that added it
  int removed;  ///< opset that removed it; 0: none
  int min_inputs, max_inputs, min_outputs, max_outputs;
  /// Sets types and shapes of the outputs as far as they are known; nullptr: never known.
  Status (*infer)(OnnxInference&);
};
/// Returns nullptr for an operator that is not known. `domain`: "" or "com.microsoft".
const OnnxOp* find_onnx_op(std::string_view domain, std::string_view name);

/// Decodes the elements of a tensor; nullptr: it has more than OnnxElements::kMax or than the budget, or a type that is
/// not evaluated.
std::shared_ptr<const OnnxElements> read_onnx_elements(const OnnxTensor& tensor, int64_t& budget);
/// Returns the known elements of a value, whose tensor is decoded at the first call.
const OnnxElements* known_onnx_elements(OnnxValue& value, int64_t& budget);

/// Evaluates an element-wise operator on known elements; does nothing where some are unknown or the operator is not one
/// of those that shapes and constants are computed with. The type and shape of output 0 are set.
void fold_onnx_elementwise(OnnxInference& in);

// Rules of groups of operators, by the file that has them.
namespace onnx_rules {
#define REDLINE_RULE(name) Status name(OnnxInference& in)
// infer_elementwise.cc
REDLINE_RULE(same_as_input);  ///< type and shape of input 0
REDLINE_RULE(elementwise);    ///< broadcast, type of input 0
REDLINE_RULE(comparison);     ///< broadcast to bool
REDLINE_RULE(predicate);      ///< one input to bool
REDLINE_RULE(where);
REDLINE_RULE(cast);
REDLINE_RULE(dropout);
REDLINE_RULE(quantize);
REDLINE_RULE(dequantize);
REDLINE_RULE(dynamic_quantize);
// infer_tensor.cc
REDLINE_RULE(constant);
REDLINE_RULE(constant_of_shape);
REDLINE_RULE(identity);
REDLINE_RULE(shape);
REDLINE_RULE(size);
REDLINE_RULE(reshape);
REDLINE_RULE(flatten);
REDLINE_RULE(squeeze);
REDLINE_RULE(unsqueeze);
REDLINE_RULE(transpose);
REDLINE_RULE(concat);
REDLINE_RULE(split);
REDLINE_RULE(slice);
REDLINE_RULE(gather);
REDLINE_RULE(gather_elements);
REDLINE_RULE(gather_nd);
// infer_resize.cc
REDLINE_RULE(expand);
REDLINE_RULE(tile);
REDLINE_RULE(pad);
REDLINE_RULE(range);
REDLINE_RULE(one_hot);
REDLINE_RULE(non_zero);
REDLINE_RULE(depth_to_space);
REDLINE_RULE(space_to_depth);
REDLINE_RULE(resize);
// infer_compute.cc
REDLINE_RULE(convolution);
REDLINE_RULE(convolution_transposed);
REDLINE_RULE(pool);
REDLINE_RULE(global_pool);
REDLINE_RULE(normalization);
REDLINE_RULE(batch_normalization);
REDLINE_RULE(matmul);
REDLINE_RULE(matmul_integer);
REDLINE_RULE(qlinear_matmul);
REDLINE_RULE(gemm);
REDLINE_RULE(reduce);
REDLINE_RULE(arg_reduce);
REDLINE_RULE(top_k);
REDLINE_RULE(recurrent);
REDLINE_RULE(stft);
REDLINE_RULE(if_else);
REDLINE_RULE(attention);
REDLINE_RULE(matmul_n_bits);
REDLINE_RULE(skip_normalization);
// infer_other.cc
REDLINE_RULE(loop);
REDLINE_RULE(scan);
REDLINE_RULE(einsum);
REDLINE_RULE(eye_like);
REDLINE_RULE(random);
REDLINE_RULE(window);
REDLINE_RULE(non_max_suppression);
REDLINE_RULE(roi_align);
REDLINE_RULE(grid_sample);
REDLINE_RULE(compress);
REDLINE_RULE(multi_head_attention);
#undef REDLINE_RULE
}  // namespace onnx_rules

}  // namespace redline
