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
#include "tensor/kv_page.h"
#include "tensor/tensor_view.h"

namespace redline {

class ReferenceContext;
struct Graph;
struct Op;

using ValueId = int32_t;

/// Handle of a value in a graph under construction.
struct Value {
  ValueId id = -1;
  bool valid() const { return id >= 0; }
};

/// The definition of an op, which an op file provides besides its builder function. There is one constant per op; its
/// address is its identity.
struct OpDef {
  std::string_view name;
  /// Computes the op by plain loops in float64, which define it. Device implementations are registered with their back
  /// end (backends/cpu/lower/).
  Status (*reference)(ReferenceContext& context);
  /// Returns one line that describes the attributes. nullptr: there is nothing to describe.
  std::string (*describe)(const std::any& attrs) = nullptr;
  /// Inputs 1 .. num_matrices are the matrices that input 0 is multiplied with.
  int num_matrices = 0;
  /// True if the op can write its output in the activation layouts of linear ops (ValueInfo::layouts).
  bool prepares_output = false;
  /// Returns the floating-point operations of the op's matrix products (a multiply-add counts two). nullptr: none, or
  /// the number depends on more than the sizes of its values (attention over a cache).
  Dim (*flops)(const Graph& graph, const Op& op) = nullptr;
  /// True if the op's builder function reorders x to the order of a matrix's columns (WeightSource::columns).
  bool takes_columns = false;
  /// True if the op writes the state that it reads. It then runs even if no op reads its outputs, provided that other
  /// graphs read the state (StateAttrs::group).
  bool writes_state = false;
};

/// A weight as the checkpoint stores it. `source_row`, if given, maps row n of the value to a row of `view`
/// (checkpoints with another rope order).
struct WeightSource {
  TensorView view;
  std::function<int64_t(int64_t)> source_row;
  std::shared_ptr<const MappedFile> file;  ///< keeps view.data alive; its pages are released once the weight is packed
  bool is_shared = false;                  ///< other weights read the same bytes, so they are not released
  /// Column order for products of matrices whose columns are grouped in another order than x has (ops/linear.h):
  /// element k of a row multiplies element columns[k] of x. nullptr: element k of x.
  std::shared_ptr<const std::vector<int32_t>> columns;

  /// Must be called before rows [begin, begin + count) of the value are read from `view` (for a vector: elements),
  /// because some files compute their bytes on demand.
  void need_rows(int64_t begin, int64_t count) const;
  void need_all() const;
};

/// kState: kept per sequence between steps (graph/state.h); not part of the arena.
enum class ValueKind : uint8_t { kInput, kWeight, kState, kComputed };

enum class StateKind : uint8_t {
  kKeyValue,   ///< keys and values of every position, appended by each step
  kRecurrent,  ///< a fixed number of float32 elements, replaced by each step
};

/// Attributes of the storage of a state.
struct StateAttrs {
  StateKind kind = StateKind::kKeyValue;
  int64_t num_heads = 0, head_dim = 0;  ///< key-value heads of a kKeyValue state
  int64_t window = 0;                   ///< number of positions that a token may read from a kKeyValue state; 0: all
  KvFormat format = KvFormat::kF32;     ///< storage format of a kKeyValue state
  int64_t elements = 0;                 ///< number of float32 elements of a kRecurrent state
  /// Name of a state group that several graphs declare, with the same states in the same order: one of them writes the
  /// states, others read them (runtime/shared_states.h). "": the states of this graph alone, whose positions are those
  /// of the step's sequences.
  std::string group = {};
};

/// The purpose of an input or output of a network of steps, by which callers find it without its name.
enum class PortRole : uint8_t {
  kNone,           ///< known by its name only
  kTokens,         ///< token ids, [tokens]
  kPositions,      ///< positions of the tokens in their sequences, [tokens], or by axis, [tokens, axes]
  kLengths,        ///< lengths of the tokens' sequences, [tokens], where rope depends on them
  kLogitRows,      ///< the tokens whose logits are outputs, [logit_rows]
  kHiddenRows,     ///< the tokens whose hidden states are outputs, [hidden_rows]
  kLogits,         ///< [logit_rows, vocab_size]
  kSampled,        ///< tokens sampled after the rows of logits, [logit_rows, 1] (ops/sample.h)
  kHidden,         ///< [hidden_rows, hidden_size]; a network may have several
  kEmbeddingRows,  ///< the tokens whose embeddings are inputs, ascending, [embedding_rows]
  kEmbeddings,     ///< the embeddings of these tokens, [embedding_rows, hidden_size]
  /// rows that are added to the hidden states of these tokens after a layer, [embedding_rows, hidden_size]; a network
  /// may have several, in the order of their layers (DeepStack, arXiv:2406.04334)
  kLayerRows,
};

/// A value of a graph. Its id is its index in Graph::values.
struct ValueInfo {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
  ValueKind kind = ValueKind::kComputed;
  WeightSource weight;  ///< set if kind is kWeight
  StateAttrs state;     ///< set if kind is kState
  PortRole role = PortRole::kNone;
  ActivationLayouts layouts;  ///< storage of an activation that only linear ops read; set by passes/prepare_activations
};

/// An operation on values, with the attributes that its op file defines.
struct Op {
  const OpDef* def = nullptr;
  std::string name;  ///< "layers.3.attn_norm"
  std::vector<ValueId> inputs;
  std::vector<ValueId> outputs;
  std::any attrs;
};

/// A computation as a list of ops.
struct Graph {
  std::string name;
  std::vector<ValueInfo> values;
  std::vector<Op> ops;  ///< topologically sorted
  std::vector<ValueId> inputs;
  std::vector<ValueId> outputs;

  const ValueInfo& value(ValueId id) const { return values[static_cast<size_t>(id)]; }
  /// Returns -1 if no input has this name.
  ValueId find_input(std::string_view input_name) const;
  /// Returns the first output with this role, or -1.
  ValueId find_output(PortRole role) const;
  /// For each value, the indices of the ops that read it, in order.
  std::vector<std::vector<int>> readers() const;
  /// Checks that every input is defined before use, each value has one producer and all ids are valid. internal: a pass
  /// broke the graph.
  Status check() const;
  std::string to_string() const;
  /// Returns the sum over all ops that define `flops`.
  Dim flops() const;
};

/// Builds a Graph. The first error is kept and returned by finish(); ops on an invalid value do nothing, so model code
/// needs no error checks between calls.
class GraphBuilder {
 public:
  explicit GraphBuilder(std::string name) { graph_.name = std::move(name); }

  Value input(std::string name, DType dtype, Shape shape, PortRole role = PortRole::kNone);
  Value weight(std::string name, WeightSource source);
  Value state(std::string name, const StateAttrs& attrs);
  void output(std::string name, Value value, PortRole role = PortRole::kNone);

  /// For op files: adds an op with one output.
  Value add(const OpDef& def, const std::vector<Value>& inputs, DType dtype, Shape shape, std::any attrs = {});
  /// For op files: adds one more output to the op that computes `first`, which must be the newest op.
  Value add_output(Value first, std::string_view part, DType dtype, Shape shape);
  /// For op files: returns the first output of an existing op of kind `def` whose only input is x and whose attributes
  /// `is_same` accepts. Returns an invalid value if there is no such op.
  Value find(const OpDef& def, Value x, const std::function<bool(const std::any& attrs)>& is_same) const;
  /// For op files: returns the op that computes `value`, valid until the next op is added. nullptr: an input, a weight
  /// or a state.
  const Op* producer(Value value) const;
  /// For op files: records the first error and returns an invalid value.
  Value fail(Status status);
  const ValueInfo& info(Value value) const { return graph_.value(value.id); }

  /// Sets the prefix of the names of all ops added from here on.
  void set_scope(std::string scope) { scope_ = std::move(scope); }

  Result<Graph> finish();

 private:
  Graph graph_;
  std::string scope_;
  Status status_;
};

}  // namespace redline
