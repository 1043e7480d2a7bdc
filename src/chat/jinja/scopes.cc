#include "chat/jinja/scopes.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

namespace redline::jinja {
namespace {

struct ScopeFailure {};  ///< thrown within this file only

/// A part of a template with its own frame: the template, a macro, a recursive loop, or the condition of a loop.
struct Function {
  const Function* parent = nullptr;
  uint32_t depth = 0;
  uint32_t slots = 0;
};

struct Place {
  const Function* function = nullptr;
  uint32_t slot = 0;
  bool operator<(const Place& o) const { return std::tie(function, slot) < std::tie(o.function, o.slot); }
};

struct Load {
  enum class From : uint8_t { kParameter, kContext, kAlias, kNothing };
  From from = From::kNothing;
  Place source;      ///< slot that is read, for kAlias
  std::string name;  ///< name in the context, for kContext
};

/// The names of one scope. Branches of an if work on copies, which share the slots.
class Symbols {
 public:
  Symbols(Symbols* parent, Function* function)
      : parent_(parent), function_(function), slots_(std::make_shared<std::map<std::string, uint32_t>>()) {}

  Function* function() const { return function_; }

  std::optional<Place> find(const std::string& name) const {
    for (const Symbols* s = this; s; s = s->parent_)
      if (const auto it = s->refs_.find(name); it != s->refs_.end()) return it->second;
    return std::nullopt;
  }

  void load(const std::string& name) {
    if (!find(name)) define(name, {Load::From::kContext, {}, name});
  }
  void store(const std::string& name) {
    stores_.insert(name);
    if (refs_.count(name)) return;
    const auto outer = parent_ ? parent_->find(name) : std::nullopt;
    define(name, outer ? Load{Load::From::kAlias, *outer, {}} : Load{});
  }
  Place declare_parameter(const std::string& name) {
    stores_.insert(name);
    return define(name, {Load::From::kParameter, {}, {}});
  }

  /// Merges the names that some branches assign. Where another branch runs, a name keeps its earlier value.
  void merge(const std::vector<Symbols>& branches) {
    std::set<std::string> assigned;
    for (const Symbols& branch : branches) assigned.insert(branch.stores_.begin(), branch.stores_.end());
    for (const std::string& name : stores_) assigned.erase(name);
    for (const Symbols& branch : branches) {
      for (const auto& [name, place] : branch.refs_) refs_[name] = place;
      for (const auto& [place, load] : branch.loads_) loads_[place] = load;
      stores_.insert(branch.stores_.begin(), branch.stores_.end());
    }
    for (const std::string& name : assigned) {
      const auto outer = parent_ ? parent_->find(name) : std::nullopt;
      loads_[refs_.at(name)] = outer ? Load{Load::From::kAlias, *outer, {}} : Load{Load::From::kContext, {}, name};
    }
  }

  SlotRef ref(const Place& place) const { return {function_->depth - place.function->depth, place.slot}; }

  void write(Scope& scope) const {
    for (const auto& [place, load] : loads_) {
      SlotLoad out;
      out.slot = place.slot;
      switch (load.from) {
        case Load::From::kParameter: continue;
        case Load::From::kNothing: out.from = SlotLoad::From::kNothing; break;
        case Load::From::kContext:
          out.from = SlotLoad::From::kContext;
          out.name = load.name;
          break;
        case Load::From::kAlias:
          out.from = SlotLoad::From::kSlot;
          out.source = ref(load.source);
          break;
      }
      scope.loads.push_back(std::move(out));
    }
  }

 private:
  Place define(const std::string& name, Load load) {
    const auto [it, is_new] = slots_->try_emplace(name, 0);
    if (is_new) it->second = function_->slots++;
    const Place place{function_, it->second};
    refs_[name] = place;
    loads_[place] = std::move(load);
    return place;
  }

  Symbols* parent_;
  Function* function_;
  std::shared_ptr<std::map<std::string, uint32_t>> slots_;
  std::map<std::string, Place> refs_;
  std::map<Place, Load> loads_;
  std::set<std::string> stores_;
};

enum class Use : uint8_t { kLoad, kStore, kParameter };

/// Calls visit(name, use, position) for every name below a node, in the order of jinja2's fields.
template <class Visit>
class NameWalk {
 public:
  explicit NameWalk(Visit& visit) : visit_(visit) {}

  void walk(const Nodes& nodes) {
    for (const NodePtr& node : nodes) walk(node.get());
  }
  void walk(const CallArguments& arguments) {
    walk(arguments.positional);
    for (const auto& [name, value] : arguments.keywords) walk(value.get());
    walk(arguments.more_positional.get());
    walk(arguments.more_keywords.get());
  }
  void walk(const Target& target, Use use) {
    if (target.form == Target::Form::kName) visit_(target.name->name, use, target.name->position);
    for (const Target& item : target.items) walk(item, use);
  }
  void walk(const Node* node) {
    if (!node) return;
    switch (node->kind) {
      case NodeKind::kName: {
        const auto& name = static_cast<const Name&>(*node);
        visit_(name.name, Use::kLoad, name.position);
        break;
      }
      case NodeKind::kTuple:
      case NodeKind::kList:
      case NodeKind::kConcat: walk(static_cast<const Sequence&>(*node).items); break;
      case NodeKind::kDict:
        for (const auto& [key, value] : static_cast<const DictLiteral&>(*node).items) {
          walk(key.get());
          walk(value.get());
        }
        break;
      case NodeKind::kAttribute: walk(static_cast<const Attribute&>(*node).object.get()); break;
      case NodeKind::kItem:
        walk(static_cast<const Item&>(*node).object.get());
        walk(static_cast<const Item&>(*node).index.get());
        break;
      case NodeKind::kSlice: {
        const auto& slice = static_cast<const Slice&>(*node);
        for (const Node* part : {slice.start.get(), slice.stop.get(), slice.step.get()}) walk(part);
        break;
      }
      case NodeKind::kCall:
        walk(static_cast<const Call&>(*node).callee.get());
        walk(static_cast<const Call&>(*node).arguments);
        break;
      case NodeKind::kFilter:
      case NodeKind::kTest:
        walk(static_cast<const Apply&>(*node).object.get());
        walk(static_cast<const Apply&>(*node).arguments);
        break;
      case NodeKind::kConditional: {
        const auto& c = static_cast<const Conditional&>(*node);
        for (const Node* part : {c.condition.get(), c.then.get(), c.otherwise.get()}) walk(part);
        break;
      }
      case NodeKind::kNot:
      case NodeKind::kNegate:
      case NodeKind::kPlus: walk(static_cast<const Unary&>(*node).operand.get()); break;
      case NodeKind::kAnd:
      case NodeKind::kOr:
      case NodeKind::kBinary:
        walk(static_cast<const Binary&>(*node).left.get());
        walk(static_cast<const Binary&>(*node).right.get());
        break;
      case NodeKind::kCompare:
        walk(static_cast<const Compare&>(*node).first.get());
        for (const auto& [op, operand] : static_cast<const Compare&>(*node).rest) walk(operand.get());
        break;
      case NodeKind::kOutput: walk(static_cast<const Output&>(*node).values); break;
      case NodeKind::kIf: {
        const auto& choice = static_cast<const If&>(*node);
        for (const auto& [test, body] : choice.branches) {
          walk(test.get());
          walk(body);
        }
        walk(choice.otherwise);
        break;
      }
      case NodeKind::kFor: {
        const auto& loop = static_cast<const For&>(*node);
        walk(loop.target, Use::kStore);
        walk(loop.iterable.get());
        walk(loop.body);
        walk(loop.otherwise);
        walk(loop.condition.get());
        break;
      }
      case NodeKind::kSet:
        walk(static_cast<const Set&>(*node).target, Use::kStore);
        walk(static_cast<const Set&>(*node).value.get());
        break;
      case NodeKind::kSetBlock:
        walk(static_cast<const SetBlock&>(*node).target, Use::kStore);
        walk(static_cast<const SetBlock&>(*node).filter.get());
        walk(static_cast<const SetBlock&>(*node).body);
        break;
      case NodeKind::kMacro:
      case NodeKind::kCallBlock: {
        const auto& macro = static_cast<const MacroNode&>(*node);
        walk(macro.call.get());
        for (const auto& parameter : macro.parameters) visit_(parameter->name, Use::kParameter, parameter->position);
        walk(macro.defaults);
        walk(macro.body);
        break;
      }
      case NodeKind::kFilterBlock:
        walk(static_cast<const FilterBlock&>(*node).body);
        walk(static_cast<const FilterBlock&>(*node).filter.get());
        break;
      case NodeKind::kWith: {
        const auto& with = static_cast<const With&>(*node);
        for (const Target& target : with.targets) walk(target, Use::kParameter);
        walk(with.values);
        walk(with.body);
        break;
      }
      default: break;
    }
  }

 private:
  Visit& visit_;
};

/// Returns the names of `names` that are read before they are assigned.
std::set<std::string> undeclared(const Nodes& body, std::set<std::string> names) {
  std::set<std::string> found;
  const auto visit = [&](const std::string& name, Use use, Position) {
    if (use != Use::kLoad) names.erase(name);
    else if (names.count(name)) found.insert(name);
  };
  NameWalk<decltype(visit)>(visit).walk(body);
  return found;
}

class Resolver {
 public:
  explicit Resolver(SyntaxError& error) : error_(error) {}

  void run(Nodes& body, Scope& root) {
    Function* function = new_function(nullptr);
    Symbols symbols(nullptr, function);
    collect(body, symbols);
    resolve(body, symbols, {.is_top = true});
    symbols.write(root);
    root.frame_slots = function->slots;
  }

 private:
  struct Where {
    bool is_top = false;   ///< at the top level, where macros see assignments by name
    bool is_soft = false;  ///< within an if, where an unknown filter is an error only when it is used
  };

  [[noreturn]] void fail(Position position, std::string message) {
    error_ = {Code::invalid_argument, std::move(message), position};
    throw ScopeFailure();
  }

  Function* new_function(const Function* parent) {
    functions_.push_back(std::make_unique<Function>());
    functions_.back()->parent = parent;
    functions_.back()->depth = parent ? parent->depth + 1 : 0;
    return functions_.back().get();
  }

  // First pass over a scope: which names it reads and assigns, without the scopes within it
  // ----------------------------

  void collect(const Nodes& nodes, Symbols& symbols) {
    for (const NodePtr& node : nodes) collect(node.get(), symbols);
  }
  void collect(const Target& target, Symbols& symbols, Use use) {
    if (target.form == Target::Form::kAttribute) symbols.load(target.name->name);
    if (target.form == Target::Form::kName) {
      if (use == Use::kStore) symbols.store(target.name->name);
      else symbols.declare_parameter(target.name->name);
    }
    for (const Target& item : target.items) collect(item, symbols, use);
  }
  void collect_expression(const Node* node, Symbols& symbols) {
    const auto visit = [&](const std::string& name, Use, Position) { symbols.load(name); };
    NameWalk<decltype(visit)>(visit).walk(node);
  }
  void collect(const Node* node, Symbols& symbols) {
    switch (node->kind) {
      case NodeKind::kText:
      case NodeKind::kBreak:
      case NodeKind::kContinue: break;
      case NodeKind::kOutput:
        for (const NodePtr& value : static_cast<const Output&>(*node).values) collect_expression(value.get(), symbols);
        break;
      case NodeKind::kIf: collect_if(static_cast<const If&>(*node), symbols); break;
      case NodeKind::kFor: collect_expression(static_cast<const For&>(*node).iterable.get(), symbols); break;
      case NodeKind::kSet:
        collect_expression(static_cast<const Set&>(*node).value.get(), symbols);
        collect(static_cast<const Set&>(*node).target, symbols, Use::kStore);
        break;
      case NodeKind::kSetBlock: collect(static_cast<const SetBlock&>(*node).target, symbols, Use::kStore); break;
      case NodeKind::kMacro: symbols.store(static_cast<const MacroNode&>(*node).name); break;
      case NodeKind::kCallBlock: collect_expression(static_cast<const MacroNode&>(*node).call.get(), symbols); break;
      case NodeKind::kFilterBlock:
        collect_expression(static_cast<const FilterBlock&>(*node).filter.get(), symbols);
        break;
      case NodeKind::kWith:
        for (const NodePtr& value : static_cast<const With&>(*node).values) collect_expression(value.get(), symbols);
        break;
      default: collect_expression(node, symbols);
    }
  }
  void collect_if(const If& node, Symbols& symbols) {
    collect_expression(node.branches[0].first.get(), symbols);
    std::vector<Symbols> branches(3, symbols);
    collect(node.branches[0].second, branches[0]);
    // Each elif is an if of its own, one after the other in the same branch.
    for (size_t i = 1; i < node.branches.size(); ++i) {
      collect_expression(node.branches[i].first.get(), branches[1]);
      std::vector<Symbols> inner(1, branches[1]);
      collect(node.branches[i].second, inner[0]);
      branches[1].merge(inner);
    }
    collect(node.otherwise, branches[2]);
    symbols.merge(branches);
  }

  // Second pass: slots
  // -------------------------------------------------------------------------------------------------

  SlotRef slot_of(const Name& name, const Symbols& symbols) {
    const auto place = symbols.find(name.name);
    if (!place) fail(name.position, fmt::format("the name '{}' cannot be used here", name.name));
    return symbols.ref(*place);
  }

  void resolve(Target& target, const Symbols& symbols, bool is_exported) {
    if (target.name) {
      target.name->slot = slot_of(*target.name, symbols);
      target.name->is_exported = is_exported && target.form == Target::Form::kName;
    }
    for (Target& item : target.items) resolve(item, symbols, is_exported);
  }

  void resolve(Nodes& nodes, Symbols& symbols, Where where) {
    for (NodePtr& node : nodes) resolve(node.get(), symbols, where);
  }
  void resolve(CallArguments& arguments, Symbols& symbols, Where where) {
    resolve(arguments.positional, symbols, where);
    for (auto& [name, value] : arguments.keywords) resolve(value.get(), symbols, where);
    resolve(arguments.more_positional.get(), symbols, where);
    resolve(arguments.more_keywords.get(), symbols, where);
  }

  void resolve(Node* node, Symbols& symbols, Where where) {
    if (!node) return;
    const Where soft{where.is_top, true};
    switch (node->kind) {
      case NodeKind::kConstant:
      case NodeKind::kText:
      case NodeKind::kBreak:
      case NodeKind::kContinue: break;
      case NodeKind::kName: {
        auto& name = static_cast<Name&>(*node);
        name.slot = slot_of(name, symbols);
        break;
      }
      case NodeKind::kTuple:
      case NodeKind::kList:
      case NodeKind::kConcat: resolve(static_cast<Sequence&>(*node).items, symbols, where); break;
      case NodeKind::kDict:
        for (auto& [key, value] : static_cast<DictLiteral&>(*node).items) {
          resolve(key.get(), symbols, where);
          resolve(value.get(), symbols, where);
        }
        break;
      case NodeKind::kAttribute: resolve(static_cast<Attribute&>(*node).object.get(), symbols, where); break;
      case NodeKind::kItem:
        resolve(static_cast<Item&>(*node).object.get(), symbols, where);
        resolve(static_cast<Item&>(*node).index.get(), symbols, where);
        break;
      case NodeKind::kSlice: {
        auto& slice = static_cast<Slice&>(*node);
        for (Node* part : {slice.start.get(), slice.stop.get(), slice.step.get()}) resolve(part, symbols, where);
        break;
      }
      case NodeKind::kCall:
        resolve(static_cast<Call&>(*node).callee.get(), symbols, where);
        resolve(static_cast<Call&>(*node).arguments, symbols, where);
        break;
      case NodeKind::kFilter:
      case NodeKind::kTest: {
        auto& apply = static_cast<Apply&>(*node);
        if (!apply.filter && !apply.test && !where.is_soft)
          fail(node->position,
               fmt::format("no {} named '{}'", node->kind == NodeKind::kTest ? "test" : "filter", apply.name));
        resolve(apply.object.get(), symbols, where);
        resolve(apply.arguments, symbols, where);
        break;
      }
      case NodeKind::kConditional: {
        auto& c = static_cast<Conditional&>(*node);
        for (Node* part : {c.then.get(), c.condition.get(), c.otherwise.get()}) resolve(part, symbols, soft);
        break;
      }
      case NodeKind::kNot:
      case NodeKind::kNegate:
      case NodeKind::kPlus: resolve(static_cast<Unary&>(*node).operand.get(), symbols, where); break;
      case NodeKind::kAnd:
      case NodeKind::kOr:
      case NodeKind::kBinary:
        resolve(static_cast<Binary&>(*node).left.get(), symbols, where);
        resolve(static_cast<Binary&>(*node).right.get(), symbols, where);
        break;
      case NodeKind::kCompare:
        resolve(static_cast<Compare&>(*node).first.get(), symbols, where);
        for (auto& [op, operand] : static_cast<Compare&>(*node).rest) resolve(operand.get(), symbols, where);
        break;
      case NodeKind::kOutput: resolve(static_cast<Output&>(*node).values, symbols, where); break;
      case NodeKind::kIf: {
        auto& choice = static_cast<If&>(*node);
        for (auto& [test, body] : choice.branches) {
          resolve(test.get(), symbols, soft);
          resolve(body, symbols, soft);
        }
        resolve(choice.otherwise, symbols, soft);
        break;
      }
      case NodeKind::kFor: resolve_for(static_cast<For&>(*node), symbols, where); break;
      case NodeKind::kSet: {
        auto& set = static_cast<Set&>(*node);
        resolve(set.target, symbols, where.is_top);
        resolve(set.value.get(), symbols, where);
        break;
      }
      case NodeKind::kSetBlock: {
        auto& block = static_cast<SetBlock&>(*node);
        Symbols inner(&symbols, symbols.function());
        collect(block.body, inner);
        resolve(block.body, inner, {});
        resolve(block.target, symbols, where.is_top);
        resolve(block.filter.get(), inner, {});
        inner.write(block.scope);
        break;
      }
      case NodeKind::kMacro: {
        auto& macro = static_cast<MacroNode&>(*node);
        resolve_macro(macro, symbols);
        macro.stored_in = symbols.ref(*symbols.find(macro.name));
        macro.is_exported = where.is_top;
        break;
      }
      case NodeKind::kCallBlock: {
        auto& block = static_cast<MacroNode&>(*node);
        resolve_macro(block, symbols);
        resolve(block.call.get(), symbols, where);
        break;
      }
      case NodeKind::kFilterBlock: {
        auto& block = static_cast<FilterBlock&>(*node);
        Symbols inner(&symbols, symbols.function());
        collect(block.body, inner);
        collect_expression(block.filter.get(), inner);
        resolve(block.body, inner, {});
        resolve(block.filter.get(), inner, {});
        inner.write(block.scope);
        break;
      }
      case NodeKind::kWith: {
        auto& with = static_cast<With&>(*node);
        Symbols inner(&symbols, symbols.function());
        for (const Target& target : with.targets) collect(target, inner, Use::kParameter);
        collect(with.body, inner);
        for (Target& target : with.targets) resolve(target, inner, false);
        resolve(with.values, symbols, where);
        resolve(with.body, inner, {});
        inner.write(with.scope);
        break;
      }
    }
  }

  void resolve_for(For& loop, Symbols& symbols, Where where) {
    const auto visit = [&](const std::string& name, Use use, Position position) {
      if (use == Use::kStore && name == "loop")
        fail(position, "cannot assign to the special variable 'loop' in a loop");
    };
    NameWalk<decltype(visit)>(visit).walk(&loop);
    resolve(loop.iterable.get(), symbols, where);

    Function* function = loop.is_recursive ? new_function(symbols.function()) : symbols.function();
    Symbols inner(&symbols, function), other(&symbols, function);
    loop.uses_loop = loop.is_recursive || !undeclared(loop.body, {"loop"}).empty();
    if (loop.uses_loop) inner.declare_parameter("loop");
    collect(loop.target, inner, Use::kParameter);
    collect(loop.body, inner);
    collect(loop.otherwise, other);
    if (loop.uses_loop) loop.loop_slot = inner.ref(*inner.find("loop"));
    resolve(loop.target, inner, false);
    resolve(loop.body, inner, {});
    resolve(loop.otherwise, other, {});
    inner.write(loop.scope);
    other.write(loop.else_scope);
    if (loop.is_recursive) loop.scope.frame_slots = function->slots;

    if (!loop.condition) return;
    Function* test = new_function(symbols.function());
    Symbols tested(&symbols, test);
    collect(loop.filter_target, tested, Use::kParameter);
    collect_expression(loop.condition.get(), tested);
    resolve(loop.filter_target, tested, false);
    resolve(loop.condition.get(), tested, {});
    tested.write(loop.condition_scope);
    loop.condition_scope.frame_slots = test->slots;
  }

  void resolve_macro(MacroNode& macro, Symbols& outer) {
    Function* function = new_function(outer.function());
    Symbols inner(&outer, function);
    const auto collect_all = [&] {
      for (const auto& parameter : macro.parameters) inner.declare_parameter(parameter->name);
      for (const NodePtr& value : macro.defaults) collect_expression(value.get(), inner);
      collect(macro.body, inner);
    };
    collect_all();
    const auto has_parameter = [&](std::string_view name) {
      return std::any_of(macro.parameters.begin(), macro.parameters.end(),
                         [&](const auto& p) { return p->name == name; });
    };
    const std::set<std::string> special = undeclared(macro.body, {"caller", "kwargs", "varargs"});
    if (special.count("caller")) {
      if (has_parameter("caller")) {
        const size_t without_default = macro.parameters.size() - macro.defaults.size();
        for (size_t i = 0; i < without_default; ++i)
          if (macro.parameters[i]->name == "caller")
            fail(macro.parameters[i]->position, "the parameter 'caller' must be omitted or have a default");
      } else {
        macro.caller_slot = inner.declare_parameter("caller").slot;
      }
      macro.takes_caller = true;
    }
    if (special.count("kwargs") && !has_parameter("kwargs")) {
      macro.keywords_slot = inner.declare_parameter("kwargs").slot;
      macro.takes_keywords = true;
    }
    if (special.count("varargs") && !has_parameter("varargs")) {
      macro.varargs_slot = inner.declare_parameter("varargs").slot;
      macro.takes_varargs = true;
    }
    collect_all();
    for (const auto& parameter : macro.parameters) parameter->slot = slot_of(*parameter, inner);
    resolve(macro.defaults, inner, {});
    resolve(macro.body, inner, {});
    inner.write(macro.scope);
    macro.scope.frame_slots = function->slots;
  }

  SyntaxError& error_;
  std::vector<std::unique_ptr<Function>> functions_;
};

}  // namespace

bool resolve_names(Nodes& body, Scope& root, SyntaxError& error) {
  try {
    Resolver(error).run(body, root);
    return true;
  } catch (const ScopeFailure&) {
    return false;
  }
}

}  // namespace redline::jinja
