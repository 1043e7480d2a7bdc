// The network of an ONNX file, checked: names resolved, nodes in order, functions and constant branches inlined, and
// what is known before it runs: types, shapes in the file's own sizes, and the elements of constants and of shapes.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/onnx.h"
#include "models/onnx/symbolic_size.h"

namespace redline {

struct OnnxOp;

/// Elements that are known, row-major: of a constant, or of a tensor that holds sizes. Integers and bool are `ints`.
struct OnnxElements {
  static constexpr int64_t kMax = 1024;  ///< larger tensors are not evaluated
  std::vector<SymbolicSize> ints;
  std::vector<double> floats;
  size_t size() const { return ints.size() + floats.size(); }
  /// Returns the memory that they take, in elements and terms of sizes.
  int64_t cost() const;
  /// True if no integer has a symbol.
  bool are_constant() const;
  /// Returns the elements with these indices.
  OnnxElements picked(const std::vector<size_t>& at) const;
};

/// A value: an input, an initializer or an output of a node.
struct OnnxValue {
  std::string_view name;
  OnnxValueType::Kind kind = OnnxValueType::Kind::kTensor;
  OnnxType type = OnnxType::kUndefined;             ///< kUndefined: unknown
  std::optional<SymbolicShape> shape;               ///< nullopt: even the number of axes is unknown
  std::shared_ptr<const OnnxElements> elements;     ///< nullptr: unknown, too many, or not decoded yet
  const OnnxTensor* tensor = nullptr;               ///< for an initializer or a Constant: its elements in the file
  const OnnxSparseTensor* sparse_tensor = nullptr;  ///< for a sparse initializer: its elements in the file
  bool is_constant = false;                         ///< true: every run has this value
};

struct OnnxStep;

/// The steps of a network, or of a graph that an If, a Loop or a Scan runs.
struct OnnxSteps {
  std::vector<int32_t> inputs, outputs;  ///< indices into OnnxNetwork::values
  std::vector<OnnxStep> steps;           ///< every step comes after those whose outputs it reads
};

/// The attributes of a node that calls a function, for the nodes in the function.
struct OnnxCall {
  const OnnxFunction* function = nullptr;
  const OnnxNode* node = nullptr;
  const OnnxCall* caller = nullptr;  ///< the call whose function has `node`; nullptr: it is in no function
  int depth = 0;
};

/// A node that runs, or that has been evaluated.
struct OnnxStep {
  const OnnxNode* node = nullptr;
  std::string path;            ///< "/model/conv1", "choose/then_branch/node 3": names of the file, outermost first
  std::string_view domain;     ///< "" for the standard operators
  int64_t version = 0;         ///< opset version of the domain
  const OnnxOp* op = nullptr;  ///< nullptr: not an operator that Redline knows
  const OnnxCall* call = nullptr;
  std::vector<int32_t> inputs, outputs;  ///< indices into OnnxNetwork::values; -1: left out
  std::vector<OnnxSteps> graphs;         ///< graphs among the attributes of the node, in their order
  bool is_folded = false;                ///< its outputs are known, or it only renames a value
};

/// A network that refers to the bytes of its file, which it owns.
class OnnxNetwork {
 public:
  /// Opens and checks a file. invalid_argument: the file or its graph is malformed: a cycle, a name that is defined
  /// twice or not at all, a wrong number of inputs, shapes that contradict each other; the message has the path of the
  /// node. unsupported: an opset or an IR version that is not read.
  static Result<std::unique_ptr<OnnxNetwork>> open(const std::string& path);
  static Result<std::unique_ptr<OnnxNetwork>> make(OnnxFile file);

  static constexpr int64_t kMinOpset = 7, kMaxOpset = 28;
  static constexpr int64_t kMinIrVersion = 3;
  static constexpr size_t kMaxSteps = 100'000;      ///< number of steps, inlined functions included
  static constexpr int kMaxCalls = 32;              ///< functions in functions
  static constexpr int kMaxNesting = 64;            ///< graphs and functions in each other
  static constexpr size_t kMaxRank = 16;            ///< axes of a value
  static constexpr uint64_t kMaxBytes = 1 << 28;    ///< memory of steps and values, inlined functions included
  static constexpr size_t kMaxPath = 1 << 14;       ///< bytes of the path of a step
  static constexpr int64_t kMaxElements = 1 << 20;  ///< OnnxElements::cost() of all values together

  const OnnxFile& file() const { return file_; }
  const std::vector<OnnxValue>& values() const { return values_; }
  /// Returns the steps of the graph. Its inputs are the file's inputs without an initializer; its outputs have the
  /// names and the order of file().graph.
  const OnnxSteps& steps() const { return steps_; }
  const SymbolicSizes& sizes() const { return sizes_; }
  /// Returns the version of the standard operators; 0: the file has operators of other domains only.
  int64_t opset() const { return opset_; }
  /// Returns texts about values whose inferred type or shape differs from the declared one. Each names a value.
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  friend class OnnxNetworkBuilder;
  explicit OnnxNetwork(OnnxFile file) : file_(std::move(file)) {}

  OnnxFile file_;
  std::vector<OnnxValue> values_;
  OnnxSteps steps_;
  SymbolicSizes sizes_;
  int64_t opset_ = 0;
  std::vector<std::string> warnings_;
  std::vector<std::unique_ptr<OnnxCall>> calls_;
};

}  // namespace redline
