#include <algorithm>

#include "chat/jinja/filter_parts.h"
#include "chat/jinja/python_text.h"

namespace redline::jinja {
namespace {

Value unsupported_filter(Evaluation& e, Value, const Args&) {
  return e.fail_unsupported("this filter is not supported");
}

/// Filters of jinja2 that chat templates have no use for.
const FilterRow kUnsupported[] = {
    {"pprint", {}, nullptr, unsupported_filter},    {"random", {}, nullptr, unsupported_filter},
    {"striptags", {}, nullptr, unsupported_filter}, {"urlize", {}, nullptr, unsupported_filter},
    {"wordwrap", {}, nullptr, unsupported_filter},
};

}  // namespace

int64_t int_or(Evaluation& e, Value value, int64_t otherwise) {
  if (!is_given(value)) return otherwise;
  if (value.is_int()) return value.as_int();
  if (value.is_undefined()) fail_undefined(e, value);
  e.fail("'{}' object cannot be interpreted as an integer", type_name(value));
  return otherwise;
}

Value call_method(Evaluation& e, Value object, const char* name, std::initializer_list<Value> values) {
  const Value bound = own_attribute(e, object, name);
  if (e.failed()) return object;
  return bound.as_function()->call(e, *bound.as_function(), {{values.begin(), values.size()}, {}});
}

Value Path::get(Evaluation& e, Value object) const {
  for (const Value step : steps->span()) {
    object = item(e, object, step);
    if (e.failed()) return object;
    if (object.is_undefined() && !otherwise.is_none()) object = otherwise;
  }
  return ignores_case && object.is_string() ? call_method(e, object, "lower") : object;
}

Path path_of(Evaluation& e, Value attribute, bool ignores_case, Value otherwise) {
  std::vector<Value> steps;
  if (attribute.is_string()) {
    for (const std::string_view step : split_at(attribute.text(), ".", -1)) {
      const bool is_index =
          !step.empty() && step.size() < 18 && step.find_first_not_of("0123456789") == std::string::npos;
      steps.push_back(is_index ? Value::integer(std::stoll(std::string(step))) : e.string_in_place(step));
    }
  } else if (is_given(attribute) && !attribute.is_none()) {
    steps.push_back(attribute);
  }
  return {e.make_list(steps), otherwise, ignores_case};
}

const FilterRow* find_filter(std::string_view name) {
  for (const std::span<const FilterRow> rows :
       {text_filters(), collection_filters(), std::span<const FilterRow>(kUnsupported)})
    for (const FilterRow& row : rows)
      if (row.name == name) return &row;
  return nullptr;
}

Value call_filter(Evaluation& e, const FilterRow& row, Value object, const Args& args) {
  if (row.call_all) return row.call_all(e, object, args);
  Value values[kMaxParameters];
  if (!bind_arguments(e, row.name, args, row.parameters, values)) return object;
  return row.call(e, object, {values, kMaxParameters});
}

}  // namespace redline::jinja
