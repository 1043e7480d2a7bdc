#include "models/onnx/onnx_network.h"

#include <algorithm>
#include <map>
#include <queue>
#include <set>

#include "formats/byte_reader.h"
#include "models/onnx/onnx_inference.h"

namespace redline {
namespace {

std::string_view plain_domain(std::string_view domain) { return domain == "ai.onnx" ? std::string_view() : domain; }

constexpr int32_t kLeftOut = -2;  // an input of a function that its call leaves out

/// The names that are visible in a graph: its own, then those of the graphs around it.
struct OnnxScope {
  const OnnxScope* outer = nullptr;
  std::map<std::string_view, int32_t> names;

  int32_t find(std::string_view name) const {
    for (const OnnxScope* scope = this; scope != nullptr; scope = scope->outer)
      if (const auto at = scope->names.find(name); at != scope->names.end()) return at->second;
    return -1;
  }
};

/// Adds the names that a node reads, those of its graphs that they do not define themselves included.
/// `walked` grows by the names and nodes that were visited.
void add_reads(const OnnxNode& node, std::vector<std::string_view>& reads, size_t& walked) {
  walked += 1 + node.inputs.size() + node.outputs.size() + node.attributes.size();
  for (const std::string_view input : node.inputs)
    if (!input.empty()) reads.push_back(input);
  for (const OnnxAttribute& attribute : node.attributes)
    for (const OnnxGraph& graph : attribute.graphs) {
      walked +=
          graph.inputs.size() + graph.outputs.size() + graph.initializers.size() + graph.sparse_initializers.size();
      std::set<std::string_view> own;
      for (const OnnxValueInfo& input : graph.inputs) own.insert(input.name);
      for (const OnnxTensor& tensor : graph.initializers) own.insert(tensor.name);
      for (const OnnxSparseTensor& tensor : graph.sparse_initializers) own.insert(tensor.values.name);
      std::vector<std::string_view> inner;
      for (const OnnxNode& inside : graph.nodes) {
        add_reads(inside, inner, walked);
        own.insert(inside.outputs.begin(), inside.outputs.end());
      }
      for (const OnnxValueInfo& output : graph.outputs) inner.push_back(output.name);
      for (const std::string_view name : inner)
        if (!own.contains(name)) reads.push_back(name);
    }
}

}  // namespace

bool OnnxElements::are_constant() const {
  return std::all_of(ints.begin(), ints.end(), [](const SymbolicSize& n) { return n.is_constant(); });
}

int64_t OnnxElements::cost() const {
  size_t cost = size();
  for (const SymbolicSize& size : ints) cost += size.num_terms();
  return static_cast<int64_t>(cost);
}

OnnxElements OnnxElements::picked(const std::vector<size_t>& at) const {
  OnnxElements out;
  for (const size_t i : at) {
    if (floats.empty()) out.ints.push_back(ints[i]);
    else out.floats.push_back(floats[i]);
  }
  return out;
}

class OnnxNetworkBuilder {
 public:
  explicit OnnxNetworkBuilder(OnnxNetwork& network) : net_(network), file_(network.file_) {}

  Status build() {
    if (file_.ir_version < OnnxNetwork::kMinIrVersion || file_.ir_version > OnnxFile::kMaxVersion)
      return unsupported("its IR version is {}, versions {} to {} are read", file_.ir_version,
                         OnnxNetwork::kMinIrVersion, OnnxFile::kMaxVersion);
    REDLINE_TRY(read_opsets(file_.opsets, opsets_));
    if (opsets_.empty()) return invalid_argument("it imports no opset");
    // A model may have operators of other domains only.
    if (const auto standard = opsets_.find(""); standard != opsets_.end()) {
      net_.opset_ = standard->second;
      if (net_.opset_ < OnnxNetwork::kMinOpset || net_.opset_ > OnnxNetwork::kMaxOpset)
        return unsupported("it imports opset {}, opsets {} to {} are read; convert it with onnx.version_converter",
                           net_.opset_, OnnxNetwork::kMinOpset, OnnxNetwork::kMaxOpset);
    }
    for (const OnnxFunction& function : file_.functions) {
      if (!functions_.emplace(Key{plain_domain(function.domain), function.name, function.overload}, &function).second)
        return invalid_argument("function {} is defined twice", in_quotes(function.name));
    }
    OnnxScope scope;
    REDLINE_TRY(build_graph(file_.graph, nullptr, scope, "", nullptr, {}, net_.steps_));
    REDLINE_TRY(check_outputs());
    return {};
  }

 private:
  struct Key {
    std::string_view domain, name, overload;
    auto operator<=>(const Key&) const = default;
  };
  using Opsets = std::map<std::string_view, int64_t>;

  static Status read_opsets(const std::vector<OnnxOpset>& list, Opsets& out) {
    for (const OnnxOpset& opset : list)
      if (const auto [at, is_new] = out.emplace(plain_domain(opset.domain), opset.version);
          !is_new && at->second != opset.version)
        return invalid_argument("it imports versions {} and {} of domain {}", at->second, opset.version,
                                in_quotes(opset.domain));
    return {};
  }

  int32_t add_value(OnnxValue value) {
    net_.values_.push_back(std::move(value));
    return static_cast<int32_t>(net_.values_.size() - 1);
  }
  /// Takes memory from the bound of the network. Every call of a function reads its nodes again, so that without it a
  /// small file could make a network of any size.
  bool spend(uint64_t bytes) {
    if (bytes > bytes_left_) return false;
    bytes_left_ -= bytes;
    return true;
  }
  static Status too_large(std::string_view path) {
    return unsupported("node {}: the network takes more than {} MiB, with its functions", in_quotes(path),
                       OnnxNetwork::kMaxBytes >> 20);
  }
  OnnxValue& value(int32_t id) { return net_.values_[static_cast<size_t>(id)]; }

  /// Returns the shape that a file declares. Symbols of the same name are the same size.
  std::optional<SymbolicShape> declared_shape(const OnnxValueType& type) {
    if (!type.has_shape) return std::nullopt;
    constexpr size_t kMaxSymbolName = 256;  // sizes that are computed from it spell it
    SymbolicShape shape;
    for (const OnnxDim& dim : type.shape)
      shape.push_back(dim.value >= 0                                           ? SymbolicSize(dim.value)
                      : dim.param.empty() || dim.param.size() > kMaxSymbolName ? net_.sizes_.unknown()
                                                                               : net_.sizes_.named(dim.param));
    return shape;
  }

  static SymbolicShape constant_shape(const std::vector<int64_t>& shape) { return {shape.begin(), shape.end()}; }

  OnnxValue constant_of(const OnnxTensor& tensor) {
    OnnxValue out;
    out.name = tensor.name;
    out.type = tensor.type;
    out.shape = constant_shape(tensor.shape);
    out.tensor = &tensor;
    out.is_constant = true;
    return out;
  }

  Status define(OnnxScope& scope, std::string_view name, int32_t id, std::string_view what, const std::string& where) {
    if (name.empty()) return invalid_argument("{}{} has no name", where, what);
    if (scope.names.emplace(name, id).second) return {};
    return invalid_argument("{}{} {}: the name is defined twice", where, what, in_quotes(name));
  }

  std::string path_of(const OnnxNode& node, size_t index, const std::string& prefix) const {
    const std::string own = node.name.empty() ? fmt::format("node {}", index) : std::string(node.name);
    return prefix.empty() ? own : prefix + "/" + own;
  }

  /// Returns the nodes in an order in which every one comes after what it reads: the file's, where it is one.
  Result<std::vector<size_t>> order(const std::vector<OnnxNode>& nodes, const std::string& prefix) {
    std::map<std::string_view, size_t> producers;
    for (size_t i = 0; i < nodes.size(); ++i)
      for (const std::string_view output : nodes[i].outputs)
        if (!output.empty())
          if (const auto [at, is_new] = producers.emplace(output, i); !is_new)
            return invalid_argument("node {} ({}): its output {} is also one of node {}", path_of(nodes[i], i, prefix),
                                    nodes[i].op_type, in_quotes(output),
                                    path_of(nodes[at->second], at->second, prefix));
    std::vector<std::vector<size_t>> readers(nodes.size());
    std::vector<size_t> waits(nodes.size(), 0);
    std::vector<std::string_view> reads;
    for (size_t i = 0; i < nodes.size(); ++i) {
      reads.clear();
      size_t walked = 0;
      add_reads(nodes[i], reads, walked);
      if (!spend(16 * walked)) return too_large(path_of(nodes[i], i, prefix));
      for (const std::string_view name : reads)
        if (const auto at = producers.find(name); at != producers.end()) {
          readers[at->second].push_back(i);
          ++waits[i];
        }
    }
    std::priority_queue<size_t, std::vector<size_t>, std::greater<>> ready;
    for (size_t i = 0; i < nodes.size(); ++i)
      if (waits[i] == 0) ready.push(i);
    std::vector<size_t> sorted;
    sorted.reserve(nodes.size());
    while (!ready.empty()) {
      const size_t i = ready.top();
      ready.pop();
      sorted.push_back(i);
      for (const size_t reader : readers[i])
        if (--waits[reader] == 0) ready.push(reader);
    }
    if (sorted.size() == nodes.size()) return sorted;
    return cycle(nodes, producers, waits, prefix);
  }

  /// Returns the error that names the nodes of a cycle.
  Status cycle(const std::vector<OnnxNode>& nodes, const std::map<std::string_view, size_t>& producers,
               const std::vector<size_t>& waits, const std::string& prefix) const {
    constexpr size_t kMaxShown = 8;
    size_t at =
        static_cast<size_t>(std::find_if(waits.begin(), waits.end(), [](size_t n) { return n > 0; }) - waits.begin());
    std::vector<size_t> way;
    std::vector<bool> is_on_way(nodes.size(), false);
    size_t walked = 0;
    std::vector<std::string_view> reads;
    while (!is_on_way[at]) {
      is_on_way[at] = true;
      way.push_back(at);
      reads.clear();
      add_reads(nodes[at], reads, walked);
      for (const std::string_view name : reads)
        if (const auto producer = producers.find(name); producer != producers.end() && waits[producer->second] > 0) {
          at = producer->second;
          break;
        }
    }
    way.erase(way.begin(), std::find(way.begin(), way.end(), at));
    std::string shown = path_of(nodes[at], at, prefix);
    for (size_t i = 1; i < std::min(way.size(), kMaxShown); ++i)
      shown += " <- " + path_of(nodes[way[i]], way[i], prefix);
    if (way.size() > kMaxShown) shown += fmt::format(" <- ... ({} nodes)", way.size());
    return invalid_argument("the graph has a cycle: {} <- {}", shown, path_of(nodes[at], at, prefix));
  }

  /// Builds a graph. `given`: values for its inputs whose types it may leave out; empty for none.
  Status build_graph(const OnnxGraph& graph, const OnnxScope* outer, OnnxScope& scope, const std::string& prefix,
                     const OnnxCall* call, const std::vector<int32_t>& given, OnnxSteps& out) {
    const std::string where = prefix.empty() ? "" : fmt::format("graph {}: ", prefix);
    scope.outer = outer;
    const size_t num_values = graph.initializers.size() + graph.sparse_initializers.size() + graph.inputs.size() +
                              graph.outputs.size() + graph.value_info.size();
    if (!spend(sizeof(OnnxValue) * num_values)) return too_large(prefix);
    for (const OnnxTensor& tensor : graph.initializers)
      REDLINE_TRY(define(scope, tensor.name, add_value(constant_of(tensor)), "initializer", where));
    for (const OnnxSparseTensor& sparse : graph.sparse_initializers) {
      OnnxValue constant;
      constant.name = sparse.values.name;
      constant.type = sparse.values.type;
      constant.shape = constant_shape(sparse.shape);
      constant.sparse_tensor = &sparse;
      constant.is_constant = true;
      REDLINE_TRY(define(scope, constant.name, add_value(constant), "initializer", where));
    }
    const bool is_outermost = outer == nullptr && call == nullptr;
    size_t number = 0;
    for (const OnnxValueInfo& input : graph.inputs) {
      const size_t i = number++;
      // The value of an initializer of the same name is the input's default, which is taken.
      if (const auto at = scope.names.find(input.name); is_outermost && at != scope.names.end()) {
        if (value(at->second).is_constant) continue;
      }
      OnnxValue item;
      item.name = input.name;
      item.kind = input.type.kind == OnnxValueType::Kind::kNone ? OnnxValueType::Kind::kTensor : input.type.kind;
      item.type = input.type.element;
      item.shape = declared_shape(input.type);
      if (input.type.shape.size() > OnnxNetwork::kMaxRank)
        return unsupported("{}input {} has {} axes, at most {} are read", where, in_quotes(input.name),
                           input.type.shape.size(), OnnxNetwork::kMaxRank);
      if (i < given.size() && given[i] >= 0) {
        const OnnxValue& from = value(given[i]);
        if (item.type == OnnxType::kUndefined) item.type = from.type;
        if (item.type != from.type && from.type != OnnxType::kUndefined)
          return invalid_argument("{}input {} is of {}, it gets {}", where, in_quotes(input.name),
                                  onnx_type_name(item.type), onnx_type_name(from.type));
      }
      if (is_outermost && item.kind == OnnxValueType::Kind::kTensor && item.type == OnnxType::kUndefined)
        return invalid_argument("{}input {} has no type of elements", where, in_quotes(input.name));
      const int32_t id = add_value(std::move(item));
      REDLINE_TRY(define(scope, input.name, id, "input", where));
      out.inputs.push_back(id);
    }
    Declared declared;
    for (const auto* list : {&graph.value_info, &graph.outputs})
      for (const OnnxValueInfo& info : *list) declared.emplace(info.name, &info.type);
    REDLINE_TRY(build_nodes(graph.nodes, scope, prefix, call, opsets_of(call), declared, out));
    for (const OnnxValueInfo& output : graph.outputs) {
      const int32_t id = scope.find(output.name);
      if (id < 0)
        return invalid_argument("{}output {} is not the output of a node, an input or an initializer", where,
                                in_quotes(output.name));
      out.outputs.push_back(id);
    }
    return {};
  }

  using Declared = std::map<std::string_view, const OnnxValueType*>;

  Status build_nodes(const std::vector<OnnxNode>& nodes, OnnxScope& scope, const std::string& prefix,
                     const OnnxCall* call, const Opsets& opsets, const Declared& declared, OnnxSteps& out) {
    if (++nesting_ > OnnxNetwork::kMaxNesting)
      return unsupported("node {}: graphs and functions are nested more than {} deep", in_quotes(prefix),
                         OnnxNetwork::kMaxNesting);
    REDLINE_ASSIGN(const std::vector<size_t> sorted, order(nodes, prefix));
    for (const size_t i : sorted)
      REDLINE_TRY(add_node(nodes[i], path_of(nodes[i], i, prefix), scope, call, opsets, declared, out));
    --nesting_;
    return {};
  }

  const Opsets& opsets_of(const OnnxCall* call) const {
    return call == nullptr ? opsets_ : function_opsets_.at(call->function);
  }

  Status add_node(const OnnxNode& node, std::string path, OnnxScope& scope, const OnnxCall* call, const Opsets& opsets,
                  const Declared& declared, OnnxSteps& out) {
    OnnxStep step;
    step.node = &node;
    step.path = std::move(path);
    step.domain = plain_domain(node.domain);
    step.call = call;
    const auto place = [&] { return fmt::format("node {} ({})", step.path, node.op_type); };
    if (step.path.size() > OnnxNetwork::kMaxPath)
      return unsupported("node {}: its name and those around it have {} bytes, at most {} are read",
                         in_quotes(step.path), step.path.size(), OnnxNetwork::kMaxPath);
    uint64_t bytes =
        sizeof(OnnxStep) + step.path.size() + 16 * node.inputs.size() + (sizeof(OnnxValue) + 64) * node.outputs.size();
    for (const OnnxAttribute& attribute : node.attributes)
      bytes += 64 + 8 * attribute.ints.size() + 8 * attribute.floats.size() + attribute.s.size();
    if (!spend(bytes)) return too_large(step.path);
    if (node.op_type.empty()) return invalid_argument("{}: it has no operator", place());
    std::set<std::string_view> names;
    for (const OnnxAttribute& attribute : node.attributes)
      if (!names.insert(attribute.name).second)
        return invalid_argument("{}: attribute {} is given twice", place(), in_quotes(attribute.name));
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const std::string_view name = node.inputs[i];
      const int32_t id = name.empty() ? -1 : scope.find(name);
      if (id == -1 && !name.empty())
        return invalid_argument("{}: input {} {} is not the output of a node, an input or an initializer", place(), i,
                                in_quotes(name));
      step.inputs.push_back(std::max(id, -1));
    }
    if (++num_steps_ > OnnxNetwork::kMaxSteps)
      return unsupported("the network has more than {} nodes, with those of its functions", OnnxNetwork::kMaxSteps);
    const auto function = functions_.find(Key{step.domain, node.op_type, node.overload});
    if (function != functions_.end()) return call_function(*function->second, step, scope, declared, out);
    // A function takes the versions of domains that it does not import itself from the model.
    auto opset = opsets.find(step.domain);
    const bool is_own = opset != opsets.end();
    if (!is_own) opset = opsets_.find(step.domain);
    const bool has_opset = is_own || opset != opsets_.end();
    if (!has_opset && step.domain.empty())
      return invalid_argument("{}: the model imports no opset of the standard operators (domain \"\")", place());
    step.version = has_opset ? opset->second : 1;
    step.op = find_onnx_op(step.domain, node.op_type);
    if (const OnnxOp* op = step.op) REDLINE_TRY(check_arity(*op, step));
    if (node.op_type == "If" && step.domain.empty() && step.inputs[0] >= 0) {
      const OnnxElements* condition = known_onnx_elements(value(step.inputs[0]), element_budget_);
      if (condition != nullptr && condition->ints.size() == 1 && condition->ints[0].is_constant())
        return take_branch(step, condition->ints[0].constant() != 0, scope, declared, out);
    }
    for (const OnnxAttribute& attribute : node.attributes)
      for (const OnnxGraph& graph : attribute.graphs) {
        OnnxScope inner;
        REDLINE_TRY(build_graph(graph, &scope, inner, fmt::format("{}/{}", step.path, attribute.name), call,
                                given_inputs(step, graph), step.graphs.emplace_back()));
      }
    for (const std::string_view name : node.outputs) {
      if (name.empty()) {
        step.outputs.push_back(-1);
        continue;
      }
      OnnxValue output;
      output.name = name;
      const int32_t id = add_value(std::move(output));
      step.outputs.push_back(id);
      REDLINE_TRY(define(scope, name, id, "output", place() + ": "));
    }
    return finish_step(std::move(step), declared, out);
  }

  static Status check_arity(const OnnxOp& op, const OnnxStep& step) {
    const auto place = [&] { return fmt::format("node {} ({})", step.path, op.name); };
    if (step.version < op.since)
      return invalid_argument("{}: is an operator of opset {}, the model imports {}", place(), op.since, step.version);
    if (op.removed != 0 && step.version >= op.removed)
      return invalid_argument("{}: is not an operator any more since opset {}, the model imports {}", place(),
                              op.removed, step.version);
    const auto count = [&](std::string_view what, int has, int least, int most) -> Status {
      if (has >= least && has <= most) return {};
      return invalid_argument("{}: has {} {}, expected {}", place(), has, what,
                              least == most           ? fmt::format("{}", least)
                              : most == OnnxOp::kMany ? fmt::format("at least {}", least)
                                                      : fmt::format("{} to {}", least, most));
    };
    REDLINE_TRY(count("inputs", static_cast<int>(step.node->inputs.size()), op.min_inputs, op.max_inputs));
    REDLINE_TRY(count("outputs", static_cast<int>(step.node->outputs.size()), op.min_outputs, op.max_outputs));
    for (int i = 0; i < op.min_inputs; ++i)
      if (step.inputs[static_cast<size_t>(i)] < 0 && op.max_inputs != OnnxOp::kMany)
        return invalid_argument("{}: input {} is left out, the operator needs it", place(), i);
    return {};
  }

  /// Returns the values whose types the inputs of a loop's graph have; -1 for a counter or condition.
  std::vector<int32_t> given_inputs(const OnnxStep& step, const OnnxGraph& graph) const {
    std::vector<int32_t> given;
    if (step.node->op_type == "Loop" && step.inputs.size() >= 2) {
      given = {-1, -1};
      given.insert(given.end(), step.inputs.begin() + 2, step.inputs.end());
    }
    if (step.node->op_type == "Scan" && graph.inputs.size() == step.inputs.size()) given = step.inputs;
    return given;
  }

  /// Adds the steps of the branch that a constant condition chooses, in place of the If.
  Status take_branch(const OnnxStep& step, bool condition, OnnxScope& scope, const Declared& declared, OnnxSteps& out) {
    const char* name = condition ? "then_branch" : "else_branch";
    const OnnxAttribute* branch = find_onnx_attribute(step, name);
    if (branch == nullptr || branch->graphs.size() != 1)
      return invalid_argument("node {} (If): has no {}", step.path, name);
    OnnxScope inner;
    OnnxSteps steps;
    REDLINE_TRY(
        build_graph(branch->graphs[0], &scope, inner, fmt::format("{}/{}", step.path, name), step.call, {}, steps));
    return splice(step, std::move(steps), scope, declared, out);
  }

  /// Adds the steps of a function's nodes in place of a node that calls it.
  Status call_function(const OnnxFunction& function, const OnnxStep& step, OnnxScope& scope, const Declared& declared,
                       OnnxSteps& out) {
    const auto place = fmt::format("node {} ({})", step.path, function.name);
    auto call =
        std::make_unique<OnnxCall>(OnnxCall{&function, step.node, step.call, step.call ? step.call->depth + 1 : 1});
    for (const OnnxCall* around = step.call; around != nullptr; around = around->caller)
      if (around->function == &function) return invalid_argument("{}: the function calls itself", place);
    if (call->depth > OnnxNetwork::kMaxCalls)
      return unsupported("{}: functions call each other more than {} deep", place, OnnxNetwork::kMaxCalls);
    if (step.inputs.size() > function.inputs.size())
      return invalid_argument("{}: has {} inputs, the function has {}", place, step.inputs.size(),
                              function.inputs.size());
    if (step.node->outputs.size() > function.outputs.size())
      return invalid_argument("{}: has {} outputs, the function has {}", place, step.node->outputs.size(),
                              function.outputs.size());
    if (!function_opsets_.contains(&function))
      REDLINE_TRY(read_opsets(function.opsets, function_opsets_[&function]).within(place));
    if (!spend(64 * (function.inputs.size() + function.outputs.size()))) return too_large(step.path);
    OnnxScope inner;  // sees nothing of the graph around it
    for (size_t i = 0; i < function.inputs.size(); ++i) {
      const int32_t id = i < step.inputs.size() && step.inputs[i] >= 0 ? step.inputs[i] : kLeftOut;
      REDLINE_TRY(define(inner, function.inputs[i], id, "input", place + ": "));
    }
    net_.calls_.push_back(std::move(call));
    OnnxSteps steps;
    REDLINE_TRY(build_nodes(function.nodes, inner, step.path, net_.calls_.back().get(), function_opsets_[&function], {},
                            steps));
    for (const std::string_view output : function.outputs) {
      const int32_t id = inner.find(output);
      if (id < 0) return invalid_argument("{}: output {} of the function is not defined", place, in_quotes(output));
      steps.outputs.push_back(id);
    }
    return splice(step, std::move(steps), scope, declared, out);
  }

  /// Adds steps that take the place of a node; its outputs become names of theirs.
  Status splice(const OnnxStep& step, OnnxSteps steps, OnnxScope& scope, const Declared& declared, OnnxSteps& out) {
    if (steps.outputs.size() < step.node->outputs.size())
      return invalid_argument("node {} ({}): has {} outputs, its graph has {}", step.path, step.node->op_type,
                              step.node->outputs.size(), steps.outputs.size());
    for (OnnxStep& inside : steps.steps) out.steps.push_back(std::move(inside));
    for (size_t i = 0; i < step.node->outputs.size(); ++i) {
      const std::string_view name = step.node->outputs[i];
      if (name.empty()) continue;
      REDLINE_TRY(define(scope, name, steps.outputs[i], "output", fmt::format("node {}: ", step.path)));
      merge_declared(steps.outputs[i], name, declared);
      if (const OnnxValue& output = value(steps.outputs[i]); output.shape) REDLINE_TRY(check_size(step, output));
    }
    return {};
  }

  Status finish_step(OnnxStep step, const Declared& declared, OnnxSteps& out) {
    if (step.op != nullptr && step.op->infer != nullptr) {
      OnnxInference inference(step, net_.values_, net_.sizes_, element_budget_);
      REDLINE_TRY(step.op->infer(inference));
    }
    const bool is_random = step.node->op_type.starts_with("Random") || step.node->op_type == "Bernoulli" ||
                           step.node->op_type == "Multinomial";
    const bool is_constant = step.op != nullptr && !is_random && step.graphs.empty() &&
                             std::all_of(step.inputs.begin(), step.inputs.end(),
                                         [&](int32_t id) { return id < 0 || value(id).is_constant; });
    bool is_known = !step.outputs.empty();
    for (size_t i = 0; i < step.outputs.size(); ++i) {
      const int32_t id = step.outputs[i];
      if (id < 0) continue;
      OnnxValue& output = value(id);
      if (is_constant) output.is_constant = true;
      if (output.elements && output.elements->are_constant()) output.is_constant = true;
      is_known = is_known && (output.elements != nullptr || output.tensor != nullptr);
      merge_declared(id, step.node->outputs[i], declared);
      if (output.shape) REDLINE_TRY(check_size(step, output));
    }
    step.is_folded = is_known;
    out.steps.push_back(std::move(step));
    return {};
  }

  /// Checks that the constant sizes of a shape are not negative and that their product is a number of bytes.
  Status check_size(const OnnxStep& step, const OnnxValue& output) const {
    constexpr int64_t kMaxElements = int64_t{1} << 56;
    int64_t product = 1;
    if (output.shape->size() > OnnxNetwork::kMaxRank)
      return unsupported("node {} ({}): its output {} has {} axes, at most {} are read", step.path, step.node->op_type,
                         in_quotes(output.name), output.shape->size(), OnnxNetwork::kMaxRank);
    for (const SymbolicSize& size : *output.shape) {
      if (!size.is_constant() || size.constant() == 0) continue;
      if (size.constant() < 0 || product > kMaxElements / size.constant())
        return invalid_argument("node {} ({}): the sizes {} of its output {} are negative or their product overflows",
                                step.path, step.node->op_type, net_.sizes_.text(*output.shape), in_quotes(output.name));
      product *= size.constant();
    }
    return {};
  }

  /// Takes what the file declares of a value where nothing better is known, and warns where the two contradict.
  void merge_declared(int32_t id, std::string_view name, const Declared& declared) {
    const auto at = declared.find(name);
    if (at == declared.end()) return;
    const OnnxValueType& type = *at->second;
    OnnxValue& known = value(id);
    if (type.kind != OnnxValueType::Kind::kTensor) {
      if (type.kind != OnnxValueType::Kind::kNone && known.type == OnnxType::kUndefined) known.kind = type.kind;
      return;
    }
    if (known.type == OnnxType::kUndefined) known.type = type.element;
    else if (type.element != OnnxType::kUndefined && type.element != known.type)
      return warn("{} is of {}, the file declares {}", in_quotes(name), onnx_type_name(known.type),
                  onnx_type_name(type.element));
    std::optional<SymbolicShape> shape = declared_shape(type);
    if (!shape) return;
    if (!known.shape) {
      known.shape = std::move(shape);
      return;
    }
    if (shape->size() != known.shape->size())
      return warn("{} has the shape {}, the file declares {}", in_quotes(name), net_.sizes_.text(*known.shape),
                  net_.sizes_.text(*shape));
    for (size_t i = 0; i < shape->size(); ++i) {
      SymbolicSize& size = (*known.shape)[i];
      const SymbolicSize& stated = (*shape)[i];
      if (net_.sizes_.is_unknown(size) && !net_.sizes_.is_unknown(stated)) size = stated;
      else if (size.is_constant() && stated.is_constant() && size != stated)
        return warn("{} has the shape {}, the file declares {}", in_quotes(name), net_.sizes_.text(*known.shape),
                    net_.sizes_.text(*shape));
    }
  }

  template <class... A>
  void warn(fmt::format_string<A...> text, A&&... args) {
    constexpr size_t kMaxWarnings = 100;
    if (net_.warnings_.size() < kMaxWarnings) net_.warnings_.push_back(fmt::format(text, std::forward<A>(args)...));
  }

  Status check_outputs() {
    if (net_.steps_.outputs.empty()) return invalid_argument("the graph has no outputs");
    return {};
  }

  OnnxNetwork& net_;
  const OnnxFile& file_;
  Opsets opsets_;
  std::map<Key, const OnnxFunction*> functions_;
  std::map<const OnnxFunction*, Opsets> function_opsets_;
  size_t num_steps_ = 0;
  int nesting_ = 0;
  uint64_t bytes_left_ = OnnxNetwork::kMaxBytes;
  int64_t element_budget_ = OnnxNetwork::kMaxElements;
};

Result<std::unique_ptr<OnnxNetwork>> OnnxNetwork::make(OnnxFile file) {
  std::unique_ptr<OnnxNetwork> network(new OnnxNetwork(std::move(file)));
  REDLINE_TRY(OnnxNetworkBuilder(*network).build().within(network->file_.files()[0]->path()));
  return network;
}

Result<std::unique_ptr<OnnxNetwork>> OnnxNetwork::open(const std::string& path) {
  REDLINE_ASSIGN(OnnxFile file, OnnxFile::open(path));
  return make(std::move(file));
}

}  // namespace redline
