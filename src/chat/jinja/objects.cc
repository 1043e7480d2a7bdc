#include "chat/jinja/objects.h"

#include "chat/jinja/operations.h"
#include "chat/jinja/python_text.h"

namespace redline::jinja {
namespace {

Value loop_cycle(Evaluation& e, const Function& called, const Args& args) {
  if (!args.keywords.empty()) return e.fail("loop.cycle() takes no keyword arguments");
  if (args.positional.empty()) return e.fail("no items for cycling given");
  return args.positional[static_cast<size_t>(called.self.as_loop()->index0) % args.positional.size()];
}

Value loop_changed(Evaluation& e, const Function& called, const Args& args) {
  if (!args.keywords.empty()) return e.fail("loop.changed() takes no keyword arguments");
  const Value now = e.tuple(args.positional);
  Loop& loop = *called.self.as_loop();
  const bool is_same = !loop.last_changed.is_missing() && equal(e, loop.last_changed, now);
  if (!is_same) loop.last_changed = now;
  return Value::boolean(!is_same);
}

/// The items of an iterable without a length, read ahead to count them.
struct StoredIterator final : Iterator {
  explicit StoredIterator(List* l) : list(l) {}
  bool next(Evaluation& e, Value& item) override {
    if (at >= list->size || !e.charge()) return false;
    item = list->items[at++];
    return true;
  }
  List* list;
  size_t at = 0;
};

}  // namespace

bool Loop::next(Evaluation& e) {
  Value item = after;
  if (item.is_missing()) {
    if (!items->next(e, item)) return false;
  } else {
    after = Value::missing();
  }
  ++index0;
  before = current;
  current = item;
  return true;
}

bool Loop::peek(Evaluation& e) {
  Value item;
  if (after.is_missing() && items->next(e, item)) after = item;
  return !after.is_missing();
}

int64_t loop_length(Evaluation& e, Loop& loop) {
  if (loop.length >= 0) return loop.length;
  if (has_length(loop.iterable)) return loop.length = length(e, loop.iterable);
  std::vector<Value> rest;
  Value item;
  while (loop.items->next(e, item)) rest.push_back(item);
  loop.items = e.arena.make(StoredIterator(e.make_list(rest)));
  const int64_t ahead = loop.after.is_missing() ? 0 : 1;
  return loop.length = static_cast<int64_t>(rest.size()) + loop.index0 + 1 + ahead;
}

Value loop_attribute(Evaluation& e, Loop& loop, std::string_view name) {
  const Value self = Value::loop(&loop);
  if (name == "index") return Value::integer(loop.index0 + 1);
  if (name == "index0") return Value::integer(loop.index0);
  if (name == "first") return Value::boolean(loop.index0 == 0);
  if (name == "last") return Value::boolean(!loop.peek(e));
  if (name == "length") return Value::integer(loop_length(e, loop));
  if (name == "revindex") return Value::integer(loop_length(e, loop) - loop.index0);
  if (name == "revindex0") return Value::integer(loop_length(e, loop) - loop.index0 - 1);
  if (name == "previtem") return loop.index0 == 0 ? e.undefined("there is no previous item") : loop.before;
  if (name == "nextitem") return loop.peek(e) ? loop.after : e.undefined("there is no next item");
  if (name == "depth") return Value::integer(loop.depth0 + 1);
  if (name == "depth0") return Value::integer(loop.depth0);
  if (name == "cycle") return e.function("cycle", loop_cycle, self);
  if (name == "changed") return e.function("changed", loop_changed, self);
  return Value::missing();
}

Value macro_attribute(Evaluation& e, const Macro& macro, std::string_view name) {
  const MacroNode& node = *macro.node;
  if (name == "name") return node.kind == NodeKind::kMacro ? e.string(node.name) : Value::none();
  if (name == "arguments") {
    std::vector<Value> names;
    for (const auto& parameter : node.parameters) names.push_back(e.string(parameter->name));
    return e.tuple(names);
  }
  if (name == "catch_kwargs") return Value::boolean(node.takes_keywords);
  if (name == "catch_varargs") return Value::boolean(node.takes_varargs);
  if (name == "caller") return Value::boolean(node.takes_caller);
  return Value::missing();
}

std::string macro_repr(const Macro& macro) {
  if (macro.node->kind != NodeKind::kMacro) return "<Macro anonymous>";
  std::string out = "<Macro ";
  append_repr(out, macro.node->name);
  return out + ">";
}

}  // namespace redline::jinja
