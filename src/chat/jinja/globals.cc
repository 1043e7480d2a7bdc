// Global functions: those of jinja2's sandbox, and raise_exception and strftime_now of transformers.
#include <ctime>

#include "chat/jinja/builtins.h"
#include "chat/jinja/operations.h"

namespace redline::jinja {
namespace {

Value range(Evaluation& e, const Function&, const Args& args) {
  constexpr int64_t kMaxRange = 100'000;  // limit of jinja2's sandbox
  Value values[kMaxParameters];
  if (!bind_arguments(e, "range", args, {1, {"_start", "_stop", "_step"}}, values)) return Value::none();
  for (const Value v : {values[0], values[1], values[2]}) {
    if (v.is_missing() || v.is_int()) continue;
    return e.fail("'{}' object cannot be interpreted as an integer", type_name(v));
  }
  Range r{0, values[0].as_int(), 1};
  if (!values[1].is_missing()) r = {values[0].as_int(), values[1].as_int(), 1};
  if (!values[2].is_missing()) r.step = values[2].as_int();
  if (r.step == 0) return e.fail("range() arg 3 must not be zero");
  const double size = (static_cast<double>(r.stop) - static_cast<double>(r.start)) / static_cast<double>(r.step);
  if (size > static_cast<double>(kMaxRange)) return e.fail("range() has more than {} items", kMaxRange);
  // With a step of more than 32 bits, stop - start may exceed int64, so only empty ranges are supported.
  if (r.step > INT32_MAX || r.step < INT32_MIN) {
    if (size <= 0) return Value::range(e.arena.make(Range{0, 0, 1}));
    return e.fail_unsupported("range() with a step of {} is not supported", r.step);
  }
  return Value::range(e.arena.make(r));
}

/// dict(pairs or dict, name=value, ...)
Dict* make_dict(Evaluation& e, const char* function, const Args& args) {
  Dict* dict = e.make_dict();
  if (args.positional.size() > 1) {
    e.fail("{} expected at most 1 argument, got {}", function, args.positional.size());
    return dict;
  }
  if (!args.positional.empty()) {
    const Value from = args.positional[0];
    if (from.is_dict()) {
      for (const Entry& entry : from.as_dict()->span()) set(e, *dict, entry.key, entry.value);
    } else {
      Iterator* items = iterate(e, from);
      Value pair;
      while (items && items->next(e, pair)) {
        std::vector<Value> parts;
        if (!collect(e, pair, parts)) break;
        if (parts.size() != 2) {
          e.fail("dictionary update sequence element has length {}; 2 is required", parts.size());
          break;
        }
        set(e, *dict, parts[0], parts[1]);
      }
    }
  }
  for (const auto& [name, value] : args.keywords) set(e, *dict, e.string(name), value);
  return dict;
}

Value dict(Evaluation& e, const Function&, const Args& args) { return Value::dict(make_dict(e, "dict", args)); }

Value make_namespace(Evaluation& e, const Function&, const Args& args) {
  return Value::names(e.arena.make(Namespace{make_dict(e, "namespace", args)}));
}

Value cycler(Evaluation& e, const Function&, const Args& args) {
  if (!args.keywords.empty()) return e.fail("cycler() takes no keyword arguments");
  if (args.positional.empty()) return e.fail("at least one item has to be provided");
  return Value::cycler(e.arena.make(Cycler{e.make_list(args.positional)}));
}

Value joiner(Evaluation& e, const Function&, const Args& args) {
  Value values[kMaxParameters];
  if (!bind_arguments(e, "joiner", args, {0, {"sep"}}, values)) return Value::none();
  return Value::joiner(e.arena.make(Joiner{values[0].is_missing() ? e.string(", ") : values[0]}));
}

Value lipsum(Evaluation& e, const Function&, const Args&) {
  return e.fail_unsupported("lipsum() makes random text and is not supported");
}

Value raise_exception(Evaluation& e, const Function&, const Args& args) {
  Value values[kMaxParameters];
  if (!bind_arguments(e, "raise_exception", args, {1, {"message"}}, values)) return Value::none();
  const std::string message(to_text(e, values[0]));
  return e.fail("{}", message);
}

Value strftime_now(Evaluation& e, const Function&, const Args& args) {
  constexpr size_t kLongest = 1024;
  Value values[kMaxParameters];
  if (!bind_arguments(e, "strftime_now", args, {1, {"format"}}, values)) return Value::none();
  if (!values[0].is_string()) return e.fail("strftime_now() needs a string, not '{}'", type_name(values[0]));
  if (values[0].text().size() > kLongest) return e.fail("the format of strftime_now() is too long");
  std::tm now{};
  if (e.now) {
    now = *e.now;
  } else {
    const std::time_t seconds = std::time(nullptr);
    localtime_r(&seconds, &now);
  }
  // strftime returns 0 for an empty text and for one that does not fit; a space in front tells them apart.
  const std::string format = " " + std::string(values[0].text());
  std::string text(64 * kLongest, 0);
  const size_t bytes = std::strftime(text.data(), text.size(), format.c_str(), &now);
  if (bytes == 0) return e.fail("strftime_now(): the format gives too long a text");
  return e.string(std::string_view(text).substr(1, bytes - 1));
}

struct Global {
  const char* name;
  NativeFunction call;
};
constexpr Global kGlobals[] = {
    {"range", range},   {"dict", dict},     {"namespace", make_namespace},        {"cycler", cycler},
    {"joiner", joiner}, {"lipsum", lipsum}, {"raise_exception", raise_exception}, {"strftime_now", strftime_now},
};

}  // namespace

Value find_global(Evaluation& e, std::string_view name) {
  for (const Global& global : kGlobals)
    if (global.name == name) return e.function(global.name, global.call);
  return Value::missing();
}

bool bind_arguments(Evaluation& e, std::string_view function, const Args& args, const Parameters& parameters,
                    std::span<Value> values) {
  size_t count = 0;
  while (count < kMaxParameters && parameters.names[count]) ++count;
  if (args.positional.size() > count) {
    e.fail("{}() takes at most {} argument{}, got {}", function, count, count == 1 ? "" : "s", args.positional.size());
    return false;
  }
  std::copy(args.positional.begin(), args.positional.end(), values.begin());
  for (const auto& [name, value] : args.keywords) {
    size_t at = 0;
    while (at < count && (parameters.names[at][0] == '_' || parameters.names[at] != name)) ++at;
    if (at == count) {
      e.fail("{}() got an unexpected keyword argument '{}'", function, name);
      return false;
    }
    if (!values[at].is_missing()) {
      e.fail("{}() got two values for '{}'", function, name);
      return false;
    }
    values[at] = value;
  }
  for (size_t i = 0; i < parameters.required; ++i)
    if (values[i].is_missing()) {
      e.fail("{}() needs {} argument{}", function, parameters.required, parameters.required == 1 ? "" : "s");
      return false;
    }
  return true;
}

}  // namespace redline::jinja
