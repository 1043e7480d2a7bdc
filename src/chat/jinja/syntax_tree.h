// The tree of a template. Names are resolved to slots of frames before it runs (scopes.h).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "chat/jinja/evaluation.h"

namespace redline::jinja {

enum class NodeKind : uint8_t {
  // Expressions.
  kConstant,
  kName,
  kTuple,
  kList,
  kDict,
  kAttribute,
  kItem,
  kSlice,
  kCall,
  kFilter,
  kTest,
  kConditional,
  kAnd,
  kOr,
  kNot,
  kNegate,
  kPlus,
  kBinary,
  kConcat,
  kCompare,
  // Statements.
  kText,
  kOutput,
  kIf,
  kFor,
  kSet,
  kSetBlock,
  kMacro,
  kCallBlock,
  kFilterBlock,
  kWith,
  kBreak,
  kContinue,
};

struct Node {
  explicit Node(NodeKind k, Position p) : kind(k), position(p) {}
  virtual ~Node() = default;
  NodeKind kind;
  Position position;
  int depth = 1;  ///< depth of the expression below the node
};
using NodePtr = std::unique_ptr<Node>;
using Nodes = std::vector<NodePtr>;

/// The place of a variable: `slot` of the function frame that is `hops` frames up.
struct SlotRef {
  uint32_t hops = 0;
  uint32_t slot = 0;
};

/// The initialization of one slot when a scope is entered.
struct SlotLoad {
  enum class From : uint8_t { kNothing, kContext, kSlot };
  uint32_t slot = 0;
  From from = From::kNothing;
  SlotRef source;    ///< kSlot
  std::string name;  ///< kContext
};

/// The variables of a scope. A scope that is a function has its own frame.
struct Scope {
  std::vector<SlotLoad> loads;
  uint32_t frame_slots = 0;  ///< size of the frame, for functions
};

struct Constant final : Node {
  Constant(Position p, Value v) : Node(NodeKind::kConstant, p), value(v) {}
  Value value;  ///< value in the arena of the template
};
struct Name final : Node {
  Name(Position p, std::string n) : Node(NodeKind::kName, p), name(std::move(n)) {}
  std::string name;
  SlotRef slot;
  bool is_exported = false;  ///< a store at the top level: visible to macros by name
};
struct Sequence final : Node {  // kTuple, kList, kConcat
  using Node::Node;
  Nodes items;
};
struct DictLiteral final : Node {
  explicit DictLiteral(Position p) : Node(NodeKind::kDict, p) {}
  std::vector<std::pair<NodePtr, NodePtr>> items;
};
struct Attribute final : Node {
  Attribute(Position p, NodePtr o, std::string n)
      : Node(NodeKind::kAttribute, p), object(std::move(o)), name(std::move(n)) {}
  NodePtr object;
  std::string name;
};
struct Item final : Node {
  Item(Position p, NodePtr o, NodePtr i) : Node(NodeKind::kItem, p), object(std::move(o)), index(std::move(i)) {}
  NodePtr object, index;
};
struct Slice final : Node {
  explicit Slice(Position p) : Node(NodeKind::kSlice, p) {}
  NodePtr start, stop, step;  ///< null: not given
};
struct CallArguments {
  Nodes positional;
  std::vector<std::pair<std::string, NodePtr>> keywords;
  NodePtr more_positional, more_keywords;  ///< *x, **x
};
struct Call final : Node {
  explicit Call(Position p) : Node(NodeKind::kCall, p) {}
  NodePtr callee;
  CallArguments arguments;
};
struct FilterRow;
struct TestRow;
/// A filter or a test: `object` is null for the contents of a block.
struct Apply final : Node {
  using Node::Node;
  NodePtr object;
  std::string name;
  CallArguments arguments;
  const FilterRow* filter = nullptr;
  const TestRow* test = nullptr;
};
struct Conditional final : Node {
  explicit Conditional(Position p) : Node(NodeKind::kConditional, p) {}
  NodePtr condition, then, otherwise;
};
struct Unary final : Node {  // kNot, kNegate, kPlus
  Unary(NodeKind k, Position p, NodePtr o) : Node(k, p), operand(std::move(o)) {}
  NodePtr operand;
};
enum class BinaryOp : uint8_t { kAdd, kSub, kMul, kDiv, kFloorDiv, kMod, kPow };
struct Binary final : Node {  // kBinary, kAnd, kOr
  Binary(NodeKind k, Position p, NodePtr l, NodePtr r) : Node(k, p), left(std::move(l)), right(std::move(r)) {}
  NodePtr left, right;
  BinaryOp op = BinaryOp::kAdd;
};
enum class CompareOp : uint8_t { kEq, kNe, kLt, kLe, kGt, kGe, kIn, kNotIn };
struct Compare final : Node {
  explicit Compare(Position p) : Node(NodeKind::kCompare, p) {}
  NodePtr first;
  std::vector<std::pair<CompareOp, NodePtr>> rest;
};

struct Text final : Node {
  Text(Position p, std::string t) : Node(NodeKind::kText, p), text(std::move(t)) {}
  std::string text;
};
struct Output final : Node {
  explicit Output(Position p) : Node(NodeKind::kOutput, p) {}
  Nodes values;
};
struct If final : Node {
  explicit If(Position p) : Node(NodeKind::kIf, p) {}
  std::vector<std::pair<NodePtr, Nodes>> branches;
  Nodes otherwise;
};
/// Target of an assignment: a name, an attribute of a namespace, or a tuple of targets.
struct Target {
  enum class Form : uint8_t { kName, kAttribute, kTuple };
  Form form = Form::kName;
  Position position;
  std::unique_ptr<Name> name;  ///< kAttribute: the namespace
  std::string attribute;
  std::vector<Target> items;
};
struct For final : Node {
  explicit For(Position p) : Node(NodeKind::kFor, p) {}
  Target target;
  Target filter_target;  ///< the names of `target` in the scope of the condition
  NodePtr iterable, condition;
  Nodes body, otherwise;
  bool is_recursive = false;
  bool uses_loop = false;
  SlotRef loop_slot;
  SlotRef self_slot;  ///< the frame in which a recursive loop runs
  Scope scope, else_scope, condition_scope;
};
struct Set final : Node {
  explicit Set(Position p) : Node(NodeKind::kSet, p) {}
  Target target;
  NodePtr value;
};
struct SetBlock final : Node {
  explicit SetBlock(Position p) : Node(NodeKind::kSetBlock, p) {}
  Target target;
  NodePtr filter;  ///< null, or a filter whose innermost object is null
  Nodes body;
  Scope scope;
};
struct MacroNode final : Node {  // kMacro, kCallBlock
  using Node::Node;
  std::string name;
  std::vector<std::unique_ptr<Name>> parameters;
  Nodes defaults;  ///< default values of the last parameters
  Nodes body;
  Scope scope;
  SlotRef stored_in;  ///< kMacro
  bool is_exported = false;
  bool takes_caller = false, takes_keywords = false, takes_varargs = false;
  uint32_t caller_slot = 0, keywords_slot = 0, varargs_slot = 0;
  NodePtr call;  ///< kCallBlock
};
struct FilterBlock final : Node {
  explicit FilterBlock(Position p) : Node(NodeKind::kFilterBlock, p) {}
  NodePtr filter;
  Nodes body;
  Scope scope;
};
struct With final : Node {
  explicit With(Position p) : Node(NodeKind::kWith, p) {}
  std::vector<Target> targets;
  Nodes values;
  Nodes body;
  Scope scope;
};
struct Jump final : Node {  // kBreak, kContinue
  using Node::Node;
};

}  // namespace redline::jinja
