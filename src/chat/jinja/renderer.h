// Renders a template by traversing its tree.
#pragma once

#include <string>
#include <vector>

#include "chat/jinja/objects.h"
#include "chat/jinja/syntax_tree.h"

namespace redline::jinja {

class Renderer {
 public:
  Renderer(Evaluation& e, const Dict& variables) : e_(e), variables_(variables) {}

  /// Returns the text; on failure, the Evaluation has the error.
  std::string run(const Nodes& body, const Scope& root);

 private:
  enum class Flow : uint8_t { kNext, kBreak, kContinue };
  struct Arguments;
  struct ConditionIterator;

  // Variables.
  Frame* new_frame(uint32_t slots, Frame* parent);
  static Value& at(const SlotRef& ref, Frame& frame);
  Value variable(std::string_view name);  ///< missing: there is none
  void enter(const Scope& scope, Frame& frame);
  void assign(const Target& target, Frame& frame, Value value);

  // Statements.
  Flow run(const Nodes& nodes, Frame& frame);
  Flow run(const Node& node, Frame& frame);
  Flow run_loop(const For& node, Value iterable, Frame& frame, int64_t depth);
  Value run_recursive(const For& node, Value iterable, Frame& frame, int64_t depth);
  void run_set(const Set& node, Frame& frame);
  void run_call_block(const MacroNode& node, Frame& frame);
  void check_namespaces(const Target& target, Frame& frame);
  void write(std::string_view text);
  /// Writes the result of a call or a filter block, which must be a string: nothing else can be joined to the output.
  void write_string(const Node& node, Value value);
  /// Runs `nodes` and captures their output in `text`. Returns how they ended: normally, or by a break or continue.
  Flow captured(const Nodes& nodes, Frame& frame, std::string& text);

  // Expressions.
  Value eval(const Node& node, Frame& frame);
  Value eval_node(const Node& node, Frame& frame);
  Value eval_dict(const DictLiteral& node, Frame& frame);
  Value eval_sequence(const Sequence& node, Frame& frame);
  Value eval_concat(const Sequence& node, Frame& frame);
  Value eval_item(const Item& node, Frame& frame);
  Value eval_call(const Call& node, Frame& frame, Value caller);
  Value eval_apply(const Apply& node, Frame& frame);
  Value eval_binary(const Binary& node, Frame& frame);
  Value eval_compare(const Compare& node, Frame& frame);
  bool eval_arguments(const CallArguments& node, Frame& frame, Arguments& arguments);
  bool is_true(const Node& node, Frame& frame);

  Value call(const Node& node, Value callee, const Args& args);
  Value call_macro(const Macro& macro, const Args& args);

  Evaluation& e_;
  const Dict& variables_;
  Dict exported_;  ///< variables that the top level of the template has assigned
  std::string* out_ = nullptr;
  Value block_text_;  ///< the value to which the innermost filter of a block is applied
};

}  // namespace redline::jinja
