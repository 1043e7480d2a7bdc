// The tables of filters, tests and global functions. Each row has its name and parameters, which may be given by name.
#pragma once

#include <span>
#include <string_view>

#include "chat/jinja/evaluation.h"

namespace redline::jinja {

constexpr size_t kMaxParameters = 7;
/// The parameters of a function: names in order, of which the first `required` must be given.
struct Parameters {
  size_t required = 0;
  const char* names[kMaxParameters] = {};
};
/// Puts the arguments in the order of the parameters, with missing() for those not given. Returns false after an error.
bool bind_arguments(Evaluation& e, std::string_view function, const Args& args, const Parameters& parameters,
                    std::span<Value> values);

/// A filter, x|name(...). `values` are in the order of `parameters`; `call_all`, if set, takes the arguments as they
/// are.
struct FilterRow {
  std::string_view name;
  Parameters parameters;
  Value (*call)(Evaluation& e, Value object, std::span<const Value> values) = nullptr;
  Value (*call_all)(Evaluation& e, Value object, const Args& args) = nullptr;
};
struct TestRow {
  std::string_view name;
  Parameters parameters;
  bool (*call)(Evaluation& e, Value object, std::span<const Value> values);
};
/// Each returns nullptr if there is no such filter or test.
const FilterRow* find_filter(std::string_view name);
const TestRow* find_test(std::string_view name);
Value call_filter(Evaluation& e, const FilterRow& row, Value object, const Args& args);
bool call_test(Evaluation& e, const TestRow& row, Value object, const Args& args);

/// Returns a global: range, dict, namespace, raise_exception, ...; missing() if there is no such global.
Value find_global(Evaluation& e, std::string_view name);

}  // namespace redline::jinja
