// The rendering of statements and expressions. It has over 600 lines because it is one walk, whose functions call each
// other.
#include "chat/jinja/renderer.h"

#include "chat/jinja/builtins.h"
#include "chat/jinja/operations.h"

namespace redline::jinja {

/// The arguments of a call. A few arguments need no allocation.
struct Renderer::Arguments {
  using Keyword = std::pair<std::string_view, Value>;

  void add(Value value) {
    if (count < kFew) {
      few[count++] = value;
      return;
    }
    if (many.empty()) many.assign(few, few + kFew);
    many.push_back(value);
    ++count;
  }
  Args args() const {
    return {count <= kFew ? std::span<const Value>(few, count) : std::span<const Value>(many), keywords};
  }

  static constexpr size_t kFew = 4;
  Value few[kFew];
  size_t count = 0;
  std::vector<Value> many;
  std::vector<Keyword> keywords;
};

/// The iterator of {% for x in items if condition %}. It evaluates the condition item by item, between iterations.
struct Renderer::ConditionIterator final : Iterator {
  bool next(Evaluation& e, Value& item) override {
    Frame* frame = renderer->new_frame(node->condition_scope.frame_slots, outer);
    renderer->enter(node->condition_scope, *frame);
    while (items->next(e, item)) {
      renderer->assign(node->filter_target, *frame, item);
      if (e.failed()) return false;
      const bool holds = renderer->is_true(*node->condition, *frame);
      if (e.failed()) return false;
      if (holds) return true;
    }
    return false;
  }
  Renderer* renderer = nullptr;
  const For* node = nullptr;
  Frame* outer = nullptr;
  Iterator* items = nullptr;
};

// Variables
// ------------------------------------------------------------------------------------------------------------

Frame* Renderer::new_frame(uint32_t slots, Frame* parent) {
  e_.charge(1 + slots);
  Value* values = e_.arena.array<Value>(slots);
  std::fill_n(values, slots, Value::missing());
  return e_.arena.make(Frame{values, parent});
}

Value& Renderer::at(const SlotRef& ref, Frame& frame) {
  Frame* owner = &frame;
  for (uint32_t i = 0; i < ref.hops; ++i) owner = owner->parent;
  return owner->slots[ref.slot];
}

Value Renderer::variable(std::string_view name) {
  if (const Value* value = find(exported_, name)) return *value;
  if (const Value* value = find(variables_, name)) return *value;
  return find_global(e_, name);
}

void Renderer::enter(const Scope& scope, Frame& frame) {
  for (const SlotLoad& load : scope.loads) {
    Value& slot = frame.slots[load.slot];
    switch (load.from) {
      case SlotLoad::From::kNothing: slot = Value::missing(); break;
      case SlotLoad::From::kContext: slot = variable(load.name); break;
      case SlotLoad::From::kSlot: slot = at(load.source, frame); break;
    }
  }
}

void Renderer::assign(const Target& target, Frame& frame, Value value) {
  switch (target.form) {
    case Target::Form::kName:
      at(target.name->slot, frame) = value;
      if (target.name->is_exported) set(e_, exported_, e_.string_in_place(target.name->name), value);
      break;
    case Target::Form::kAttribute: {
      const Value names = at(target.name->slot, frame);
      set(e_, *names.as_names()->attributes, e_.string_in_place(target.attribute), value);
      break;
    }
    case Target::Form::kTuple: {
      std::vector<Value> items;
      e_.position = target.position;
      std::span<const Value> parts;
      if (value.is_sequence()) {
        parts = value.as_list()->span();
      } else {
        Iterator* iterator = iterate(e_, value);
        Value item;
        while (iterator && items.size() <= target.items.size() && iterator->next(e_, item)) items.push_back(item);
        parts = items;
      }
      if (e_.failed()) return;
      if (parts.size() != target.items.size()) {
        e_.fail("cannot unpack {} values into {} names", parts.size(), target.items.size());
        return;
      }
      for (size_t i = 0; i < parts.size(); ++i) assign(target.items[i], frame, parts[i]);
      break;
    }
  }
}

// Statements
// -----------------------------------------------------------------------------------------------------------

std::string Renderer::run(const Nodes& body, const Scope& root) {
  std::string text;
  out_ = &text;
  Frame* frame = new_frame(root.frame_slots, nullptr);
  enter(root, *frame);
  run(body, *frame);
  return text;
}

void Renderer::write(std::string_view text) {
  out_->append(text);
  e_.charge(static_cast<int64_t>(text.size() / 32));
  if (static_cast<int64_t>(out_->size()) > e_.limits().output_bytes)
    e_.fail("the text has more than {} bytes", e_.limits().output_bytes);
}

void Renderer::write_string(const Node& node, Value value) {
  if (e_.failed()) return;
  e_.position = node.position;
  if (value.is_string()) write(value.text());
  else e_.fail("the block gives '{}', expected a string", type_name(value));
}

Renderer::Flow Renderer::captured(const Nodes& nodes, Frame& frame, std::string& text) {
  std::string* const outer = std::exchange(out_, &text);
  const Flow flow = run(nodes, frame);
  out_ = outer;
  return flow;
}

Renderer::Flow Renderer::run(const Nodes& nodes, Frame& frame) {
  for (const NodePtr& node : nodes) {
    if (!e_.charge()) break;
    const Nested nested(e_);
    if (!nested) break;
    if (const Flow flow = run(*node, frame); flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Renderer::Flow Renderer::run(const Node& node, Frame& frame) {
  switch (node.kind) {
    case NodeKind::kText: write(static_cast<const Text&>(node).text); break;
    case NodeKind::kOutput:
      for (const NodePtr& part : static_cast<const Output&>(node).values) {
        const Value value = eval(*part, frame);
        if (e_.failed()) break;
        if (value.is_string()) {
          write(value.text());
        } else {
          e_.position = part->position;
          std::string text;
          append_text(e_, text, value);
          write(text);
        }
      }
      break;
    case NodeKind::kIf: {
      const auto& choice = static_cast<const If&>(node);
      for (const auto& [test, body] : choice.branches) {
        const bool holds = is_true(*test, frame);
        if (e_.failed()) return Flow::kNext;
        if (holds) return run(body, frame);
      }
      return run(choice.otherwise, frame);
    }
    case NodeKind::kFor: {
      const auto& loop = static_cast<const For&>(node);
      const Value iterable = eval(*loop.iterable, frame);
      if (e_.failed()) break;
      if (!loop.is_recursive) return run_loop(loop, iterable, frame, 0);
      write_string(node, run_recursive(loop, iterable, frame, 0));
      break;
    }
    case NodeKind::kSet: run_set(static_cast<const Set&>(node), frame); break;
    case NodeKind::kSetBlock: {
      const auto& block = static_cast<const SetBlock&>(node);
      std::string text;
      enter(block.scope, frame);
      if (const Flow flow = captured(block.body, frame, text); flow != Flow::kNext) return flow;
      if (e_.failed()) break;
      Value value = e_.string(text);
      if (block.filter) {
        const Value outer = std::exchange(block_text_, value);
        value = eval(*block.filter, frame);
        block_text_ = outer;
      }
      check_namespaces(block.target, frame);
      if (!e_.failed()) assign(block.target, frame, value);
      break;
    }
    case NodeKind::kMacro: {
      const auto& macro = static_cast<const MacroNode&>(node);
      const Value value = Value::macro(e_.arena.make(Macro{&macro, &frame}));
      at(macro.stored_in, frame) = value;
      if (macro.is_exported) set(e_, exported_, e_.string_in_place(macro.name), value);
      break;
    }
    case NodeKind::kCallBlock: run_call_block(static_cast<const MacroNode&>(node), frame); break;
    case NodeKind::kFilterBlock: {
      const auto& block = static_cast<const FilterBlock&>(node);
      std::string text;
      enter(block.scope, frame);
      if (const Flow flow = captured(block.body, frame, text); flow != Flow::kNext) return flow;
      if (e_.failed()) break;
      const Value outer = std::exchange(block_text_, e_.string(text));
      const Value value = eval(*block.filter, frame);
      block_text_ = outer;
      write_string(node, value);
      break;
    }
    case NodeKind::kWith: {
      const auto& with = static_cast<const With&>(node);
      enter(with.scope, frame);
      for (size_t i = 0; i < with.targets.size() && !e_.failed(); ++i) {
        const Value value = eval(*with.values[i], frame);
        if (!e_.failed()) assign(with.targets[i], frame, value);
      }
      return run(with.body, frame);
    }
    case NodeKind::kBreak: return Flow::kBreak;
    case NodeKind::kContinue: return Flow::kContinue;
    default: eval(node, frame);
  }
  return Flow::kNext;
}

void Renderer::check_namespaces(const Target& target, Frame& frame) {
  if (target.form == Target::Form::kAttribute && !at(target.name->slot, frame).is(Kind::kNamespace)) {
    e_.position = target.position;
    e_.fail("cannot assign to an attribute of '{}', which is not a namespace", target.name->name);
  }
  for (const Target& item : target.items) check_namespaces(item, frame);
}

void Renderer::run_set(const Set& node, Frame& frame) {
  check_namespaces(node.target, frame);
  if (e_.failed()) return;
  const Value value = eval(*node.value, frame);
  if (!e_.failed()) assign(node.target, frame, value);
}

void Renderer::run_call_block(const MacroNode& node, Frame& frame) {
  Macro* caller = e_.arena.make(Macro{&node, &frame});
  if (node.call) {
    write_string(node, eval_call(static_cast<const Call&>(*node.call), frame, Value::macro(caller)));
  } else {
    write_string(node, call_macro(*caller, {}));
  }
}

Value Renderer::run_recursive(const For& node, Value iterable, Frame& frame, int64_t depth) {
  const Nested nested(e_);
  if (!nested) return Value::none();
  std::string text;
  std::string* const outer = std::exchange(out_, &text);
  run_loop(node, iterable, *new_frame(node.scope.frame_slots, &frame), depth);
  out_ = outer;
  return e_.string(text);
}

Renderer::Flow Renderer::run_loop(const For& node, Value iterable, Frame& frame, int64_t depth) {
  e_.position = node.iterable->position;
  Iterator* items = iterate(e_, iterable);
  if (!items) return Flow::kNext;
  Frame* const outer = node.is_recursive ? frame.parent : &frame;
  if (node.condition) {
    ConditionIterator filtered;
    filtered.renderer = this;
    filtered.node = &node;
    filtered.outer = outer;
    filtered.items = items;
    items = e_.arena.make(filtered);
    iterable = Value::iterator(items);
  }
  Loop* loop = nullptr;
  if (node.uses_loop) {
    loop = e_.arena.make(Loop{});
    loop->items = items;
    loop->iterable = iterable;
    loop->depth0 = depth;
    loop->frame = outer;
    if (node.is_recursive) loop->node = &node;
  }
  // As in jinja2, `else` runs when no iteration reached its end. That includes loops in which every iteration ended
  // with break or continue.
  bool none_ended = true;
  Value item;
  while (loop ? loop->next(e_) : items->next(e_, item)) {
    if (loop) {
      item = loop->current;
      frame.slots[node.loop_slot.slot] = Value::loop(loop);
    }
    assign(node.target, frame, item);
    enter(node.scope, frame);
    if (e_.failed()) return Flow::kNext;
    const Flow flow = run(node.body, frame);
    if (e_.failed()) return Flow::kNext;
    if (flow == Flow::kBreak) break;
    if (flow == Flow::kNext) none_ended = false;
  }
  if (e_.failed() || !none_ended) return Flow::kNext;
  enter(node.else_scope, frame);
  return run(node.otherwise, frame);
}

// Expressions
// ----------------------------------------------------------------------------------------------------------

bool Renderer::is_true(const Node& node, Frame& frame) {
  const Value value = eval(node, frame);
  return !e_.failed() && truthy(e_, value);
}

Value Renderer::eval(const Node& node, Frame& frame) {
  // Constants come first, because they are frequent and cost no step.
  if (node.kind == NodeKind::kConstant) return static_cast<const Constant&>(node).value;
  if (!e_.charge()) return Value::none();
  if (node.kind == NodeKind::kName) {
    const auto& name = static_cast<const Name&>(node);
    const Value value = at(name.slot, frame);
    return value.is_missing() ? e_.undefined_name(name.name) : value;
  }
  const Nested nested(e_);
  return nested ? eval_node(node, frame) : Value::none();
}

Value Renderer::eval_node(const Node& node, Frame& frame) {
  switch (node.kind) {
    case NodeKind::kTuple:
    case NodeKind::kList: return eval_sequence(static_cast<const Sequence&>(node), frame);
    case NodeKind::kConcat: return eval_concat(static_cast<const Sequence&>(node), frame);
    case NodeKind::kDict: return eval_dict(static_cast<const DictLiteral&>(node), frame);
    case NodeKind::kAttribute: {
      const auto& a = static_cast<const Attribute&>(node);
      const Value object = eval(*a.object, frame);
      if (e_.failed()) return object;
      e_.position = node.position;
      return attribute(e_, object, a.name);
    }
    case NodeKind::kItem: return eval_item(static_cast<const Item&>(node), frame);
    case NodeKind::kCall: return eval_call(static_cast<const Call&>(node), frame, Value::missing());
    case NodeKind::kFilter:
    case NodeKind::kTest: return eval_apply(static_cast<const Apply&>(node), frame);
    case NodeKind::kConditional: {
      const auto& c = static_cast<const Conditional&>(node);
      if (is_true(*c.condition, frame)) return eval(*c.then, frame);
      if (e_.failed()) return Value::none();
      if (c.otherwise) return eval(*c.otherwise, frame);
      return e_.undefined("the inline if-expression evaluated to false and no else section was defined");
    }
    case NodeKind::kAnd:
    case NodeKind::kOr: {
      const auto& b = static_cast<const Binary&>(node);
      const Value left = eval(*b.left, frame);
      if (e_.failed() || truthy(e_, left) == (node.kind == NodeKind::kOr)) return left;
      return eval(*b.right, frame);
    }
    case NodeKind::kNot: return Value::boolean(!is_true(*static_cast<const Unary&>(node).operand, frame));
    case NodeKind::kNegate:
    case NodeKind::kPlus: {
      const Value operand = eval(*static_cast<const Unary&>(node).operand, frame);
      if (e_.failed()) return operand;
      e_.position = node.position;
      return node.kind == NodeKind::kNegate ? negate(e_, operand) : plus(e_, operand);
    }
    case NodeKind::kBinary: return eval_binary(static_cast<const Binary&>(node), frame);
    case NodeKind::kCompare: return eval_compare(static_cast<const Compare&>(node), frame);
    default: return e_.fail("internal error: a statement in the place of an expression");
  }
}

Value Renderer::eval_sequence(const Sequence& node, Frame& frame) {
  std::vector<Value> items;
  items.reserve(node.items.size());
  for (const NodePtr& item : node.items) {
    items.push_back(eval(*item, frame));
    if (e_.failed()) return Value::none();
  }
  return node.kind == NodeKind::kList ? e_.list(items) : e_.tuple(items);
}

Value Renderer::eval_concat(const Sequence& node, Frame& frame) {
  std::string text;
  for (const NodePtr& item : node.items) {
    const Value value = eval(*item, frame);
    if (e_.failed()) return value;
    append_text(e_, text, value);
  }
  return e_.string(text);
}

Value Renderer::eval_dict(const DictLiteral& node, Frame& frame) {
  Dict* dict = e_.make_dict();
  for (const auto& [key_node, value_node] : node.items) {
    const Value key = eval(*key_node, frame);
    const Value value = eval(*value_node, frame);
    if (e_.failed()) break;
    e_.position = key_node->position;
    set(e_, *dict, key, value);
  }
  return Value::dict(dict);
}

Value Renderer::eval_item(const Item& node, Frame& frame) {
  const Value object = eval(*node.object, frame);
  if (e_.failed()) return object;
  if (node.index->kind != NodeKind::kSlice) {
    const Value index = eval(*node.index, frame);
    if (e_.failed()) return index;
    e_.position = node.position;
    return item(e_, object, index);
  }
  const auto& s = static_cast<const Slice&>(*node.index);
  const auto part = [&](const NodePtr& bound) { return bound ? eval(*bound, frame) : Value::none(); };
  const Value start = part(s.start), stop = part(s.stop), step = part(s.step);
  if (e_.failed()) return object;
  e_.position = node.position;
  return slice(e_, object, start, stop, step);
}

Value Renderer::eval_binary(const Binary& node, Frame& frame) {
  static constexpr Arithmetic kOps[] = {Arithmetic::kAdd,      Arithmetic::kSub, Arithmetic::kMul, Arithmetic::kDiv,
                                        Arithmetic::kFloorDiv, Arithmetic::kMod, Arithmetic::kPow};
  const Value left = eval(*node.left, frame);
  const Value right = eval(*node.right, frame);
  if (e_.failed()) return left;
  e_.position = node.position;
  return arithmetic(e_, kOps[static_cast<size_t>(node.op)], left, right);
}

Value Renderer::eval_compare(const Compare& node, Frame& frame) {
  Value left = eval(*node.first, frame);
  for (const auto& [op, operand] : node.rest) {
    const Value right = eval(*operand, frame);
    if (e_.failed()) return right;
    e_.position = node.position;
    bool holds = false;
    switch (op) {
      case CompareOp::kEq: holds = equal(e_, left, right); break;
      case CompareOp::kNe: holds = !equal(e_, left, right); break;
      case CompareOp::kLt: holds = ordered(e_, left, right, "<"); break;
      case CompareOp::kLe: holds = ordered(e_, left, right, "<="); break;
      case CompareOp::kGt: holds = ordered(e_, left, right, ">"); break;
      case CompareOp::kGe: holds = ordered(e_, left, right, ">="); break;
      case CompareOp::kIn: holds = contains(e_, right, left); break;
      case CompareOp::kNotIn: holds = !contains(e_, right, left); break;
    }
    if (!holds || e_.failed()) return Value::boolean(false);
    left = right;
  }
  return Value::boolean(true);
}

bool Renderer::eval_arguments(const CallArguments& node, Frame& frame, Arguments& arguments) {
  for (const NodePtr& argument : node.positional) {
    arguments.add(eval(*argument, frame));
    if (e_.failed()) return false;
  }
  if (node.more_positional) {
    std::vector<Value> more;
    const Value items = eval(*node.more_positional, frame);
    if (e_.failed() || !collect(e_, items, more)) return false;
    for (const Value item : more) arguments.add(item);
  }
  for (const auto& [name, argument] : node.keywords) {
    arguments.keywords.emplace_back(name, eval(*argument, frame));
    if (e_.failed()) return false;
  }
  if (node.more_keywords) {
    const Value items = eval(*node.more_keywords, frame);
    if (e_.failed()) return false;
    if (!items.is_dict()) {
      e_.fail("the argument after ** must be a mapping, not '{}'", type_name(items));
      return false;
    }
    for (const Entry& entry : items.as_dict()->span()) {
      if (!entry.key.is_string()) {
        e_.fail("keywords must be strings");
        return false;
      }
      for (const auto& [name, value] : arguments.keywords)
        if (name == entry.key.text()) e_.fail("got multiple values for keyword argument '{}'", name);
      arguments.keywords.emplace_back(entry.key.text(), entry.value);
    }
  }
  return !e_.failed();
}

Value Renderer::eval_call(const Call& node, Frame& frame, Value caller) {
  const Value callee = eval(*node.callee, frame);
  if (e_.failed()) return callee;
  Arguments arguments;
  if (!eval_arguments(node.arguments, frame, arguments)) return Value::none();
  if (!caller.is_missing()) arguments.keywords.emplace_back("caller", caller);
  e_.position = node.position;
  return call(node, callee, arguments.args());
}

Value Renderer::eval_apply(const Apply& node, Frame& frame) {
  const Value object = node.object ? eval(*node.object, frame) : block_text_;
  if (e_.failed()) return object;
  Arguments arguments;
  if (!eval_arguments(node.arguments, frame, arguments)) return Value::none();
  e_.position = node.position;
  if (node.kind == NodeKind::kFilter) {
    if (!node.filter) return e_.fail("no filter named '{}'", node.name);
    return call_filter(e_, *node.filter, object, arguments.args());
  }
  if (!node.test) return e_.fail("no test named '{}'", node.name);
  return Value::boolean(call_test(e_, *node.test, object, arguments.args()));
}

Value Renderer::call(const Node& node, Value callee, const Args& args) {
  switch (callee.kind()) {
    case Kind::kUndefined: return fail_undefined(e_, callee);
    case Kind::kFunction: return callee.as_function()->call(e_, *callee.as_function(), args);
    case Kind::kMacro: return call_macro(*callee.as_macro(), args);
    case Kind::kLoop: {
      const Loop& loop = *callee.as_loop();
      Value values[kMaxParameters];
      if (!bind_arguments(e_, "loop", args, {1, {"iterable"}}, values)) return Value::none();
      if (!loop.node) return e_.fail("the loop must have the 'recursive' marker to be called recursively");
      const Value text = run_recursive(*loop.node, values[0], *loop.frame, loop.depth0 + 1);
      if (!e_.failed()) e_.position = node.position;
      return text;
    }
    case Kind::kJoiner: {
      Joiner& joiner = *callee.as_joiner();
      if (!args.positional.empty() || !args.keywords.empty()) return e_.fail("a joiner takes no arguments");
      return std::exchange(joiner.used, true) ? joiner.separator : e_.string("");
    }
    default: return e_.fail("'{}' object is not callable", type_name(callee));
  }
}

Value Renderer::call_macro(const Macro& macro, const Args& args) {
  const Nested nested(e_);
  if (!nested) return Value::none();
  const MacroNode& node = *macro.node;
  const size_t count = node.parameters.size();
  Frame* frame = new_frame(node.scope.frame_slots, macro.frame);
  std::vector<Arguments::Keyword> keywords(args.keywords.begin(), args.keywords.end());
  const auto take = [&](std::string_view name) {
    for (auto it = keywords.begin(); it != keywords.end(); ++it)
      if (it->first == name) {
        const Value value = it->second;
        keywords.erase(it);
        return value;
      }
    return Value::missing();
  };
  bool found_caller = false;
  for (size_t i = 0; i < count; ++i) {
    const Name& parameter = *node.parameters[i];
    frame->slots[parameter.slot.slot] = i < args.positional.size() ? args.positional[i] : take(parameter.name);
    found_caller = found_caller || parameter.name == "caller";
  }
  if (node.takes_caller && !found_caller) {
    const Value caller = take("caller");
    frame->slots[node.caller_slot] =
        caller.is_missing() || caller.is_none() ? e_.undefined("No caller defined") : caller;
  }
  const std::string_view name = node.kind == NodeKind::kMacro ? std::string_view(node.name) : "caller";
  if (node.takes_keywords) {
    Dict* dict = e_.make_dict();
    for (const auto& [key, value] : keywords) set(e_, *dict, e_.string_in_place(key), value);
    frame->slots[node.keywords_slot] = Value::dict(dict);
  } else if (!keywords.empty()) {
    return e_.fail("macro '{}' takes no keyword argument '{}'", name, keywords[0].first);
  }
  if (node.takes_varargs) {
    frame->slots[node.varargs_slot] = e_.tuple(args.positional.subspan(std::min(count, args.positional.size())));
  } else if (args.positional.size() > count) {
    return e_.fail("macro '{}' takes not more than {} argument{}", name, count, count == 1 ? "" : "s");
  }
  enter(node.scope, *frame);
  for (size_t i = 0; i < count; ++i) {
    const Name& parameter = *node.parameters[i];
    Value& slot = frame->slots[parameter.slot.slot];
    if (!slot.is_missing()) continue;
    const size_t first_default = count - node.defaults.size();
    if (i >= first_default) {
      const Value value = eval(*node.defaults[i - first_default], *frame);
      slot = value;
    } else {
      slot = e_.undefined(e_.text(fmt::format("parameter '{}' was not provided", parameter.name))->text);
    }
    if (e_.failed()) return Value::none();
  }
  std::string text;
  captured(node.body, *frame, text);
  return e_.failed() ? Value::none() : e_.string(text);
}

}  // namespace redline::jinja
