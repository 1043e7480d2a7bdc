// A model as plain ops on typed values with symbolic sizes. Passes rewrite it; a back end compiles it into a Program.
#pragma once

#include <any>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "tensor/activation_layout.h"
#include "tensor/dim.h"
#include "tensor/tensor_view.h"

namespace redline {

class ReferenceContext;
struct Graph;
struct Op;

using ValueId = int32_t;

/// A handle on one value of a graph under construction.
struct Value {
  ValueId id = -1;
  bool valid() const { return id >= 0; }
};

/// What an op page gives the engine beside its builder function. One constant per op; its address is its identity.
struct OpDef {
  std::string_view name;
  /// Plain loops in float64: the meaning of the op. How a device computes it is registered with its back end
  /// (backends/cpu/lowerings.cc).
  Status (*reference)(ReferenceContext& context);
  /// One line of attributes for people, or nullptr.
  std::string (*describe)(const std::any& attrs) = nullptr;
  /// Inputs 1 .. num_matrices are matrices that multiply the rows of input 0.
  int num_matrices = 0;
  /// Can write its output in the layouts that products read (ValueInfo::layouts).
  bool prepares_output = false;
  /// Floating-point operations of the op's products (a multiply-add is two), or nullptr: none, or a number that depends
  /// on more than the sizes of its values (attention over a cache).
  Dim (*flops)(const Graph& graph, const Op& op) = nullptr;
};

/// A weight as the checkpoint holds it. `source_row`, when given, names the row of `view` that is row n of the value
/// (checkpoints that store another rope order).
struct WeightSource {
  TensorView view;
  std::function<int64_t(int64_t)> source_row;
  std::shared_ptr<const MappedFile> file;  ///< keeps view.data; its pages are let go once the weight is packed
};

enum class ValueKind : uint8_t { kInput, kWeight, kComputed };

struct ValueInfo {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
  ValueKind kind = ValueKind::kComputed;
  WeightSource weight;  ///< of kWeight
  ActivationLayouts
      layouts;  ///< how an activation that only products read is stored; set by passes/prepare_activations
};

struct Op {
  const OpDef* def = nullptr;
  std::string name;  ///< "layers.3.attn_norm"
  std::vector<ValueId> inputs;
  std::vector<ValueId> outputs;
  std::any attrs;
};

struct Graph {
  std::string name;
  std::vector<ValueInfo> values;
  std::vector<Op> ops;  ///< in an order in which every input comes before its use
  std::vector<ValueId> inputs;
  std::vector<ValueId> outputs;

  const ValueInfo& value(ValueId id) const { return values[static_cast<size_t>(id)]; }
  /// -1 when there is none of that name.
  ValueId find_input(std::string_view input_name) const;
  /// For each value, the indices of the ops that read it, in order.
  std::vector<std::vector<int>> readers() const;
  /// Every input defined before use, one producer per value, no dangling id. internal otherwise: a pass went wrong.
  Status check() const;
  std::string to_string() const;
  /// Of all ops that count theirs.
  Dim flops() const;
};

/// Builds a Graph. The first error is kept and returned by finish(); ops given an invalid value do nothing, so a model
/// reads as a plain sequence of calls.
class GraphBuilder {
 public:
  explicit GraphBuilder(std::string name) { graph_.name = std::move(name); }

  Value input(std::string name, DType dtype, Shape shape);
  Value weight(std::string name, WeightSource source);
  void output(std::string name, Value value);

  /// For op pages: adds an op with one output.
  Value add(const OpDef& def, const std::vector<Value>& inputs, DType dtype, Shape shape, std::any attrs = {});
  /// For op pages: remembers the first failure and returns an invalid value.
  Value fail(Status status);
  const ValueInfo& info(Value value) const { return graph_.value(value.id); }

  /// Names given from here on start with `scope`.
  void set_scope(std::string scope) { scope_ = std::move(scope); }

  Result<Graph> finish();

 private:
  Graph graph_;
  std::string scope_;
  Status status_;
};

}  // namespace redline
