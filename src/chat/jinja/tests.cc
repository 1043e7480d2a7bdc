// The tests of jinja2: x is name(...).
#include <algorithm>
#include <cmath>

#include "chat/jinja/builtins.h"
#include "chat/jinja/operations.h"

namespace redline::jinja {
namespace {

using Values = std::span<const Value>;

bool divides(Evaluation& e, Value object, Value by, int64_t wanted) {
  const Value remainder = arithmetic(e, Arithmetic::kMod, object, by);
  return !e.failed() && equal(e, remainder, Value::integer(wanted));
}

/// Returns what str(value).islower() or isupper() returns.
bool has_case(Evaluation& e, Value object, const char* method) {
  const Value test = own_attribute(e, to_string(e, object), method);
  if (e.failed()) return false;
  return test.as_function()->call(e, *test.as_function(), {}).as_bool();
}

const TestRow kTests[] = {
    {"odd", {}, [](Evaluation& e, Value x, Values) { return divides(e, x, Value::integer(2), 1); }},
    {"even", {}, [](Evaluation& e, Value x, Values) { return divides(e, x, Value::integer(2), 0); }},
    {"divisibleby", {1, {"num"}}, [](Evaluation& e, Value x, Values v) { return divides(e, x, v[0], 0); }},
    {"defined", {}, [](Evaluation&, Value x, Values) { return !x.is_undefined(); }},
    {"undefined", {}, [](Evaluation&, Value x, Values) { return x.is_undefined(); }},
    {"filter",
     {},
     [](Evaluation& e, Value x, Values) {
       hash(e, x);
       return x.is_string() && find_filter(x.text());
     }},
    {"test",
     {},
     [](Evaluation& e, Value x, Values) {
       hash(e, x);
       return x.is_string() && find_test(x.text());
     }},
    {"none", {}, [](Evaluation&, Value x, Values) { return x.is_none(); }},
    {"boolean", {}, [](Evaluation&, Value x, Values) { return x.is(Kind::kBool); }},
    {"false", {}, [](Evaluation&, Value x, Values) { return x.is(Kind::kBool) && !x.as_bool(); }},
    {"true", {}, [](Evaluation&, Value x, Values) { return x.is(Kind::kBool) && x.as_bool(); }},
    {"integer", {}, [](Evaluation&, Value x, Values) { return x.is(Kind::kInt) || x.is(Kind::kBigInt); }},
    {"float", {}, [](Evaluation&, Value x, Values) { return x.is(Kind::kFloat); }},
    {"lower", {}, [](Evaluation& e, Value x, Values) { return has_case(e, x, "islower"); }},
    {"upper", {}, [](Evaluation& e, Value x, Values) { return has_case(e, x, "isupper"); }},
    {"string", {}, [](Evaluation&, Value x, Values) { return x.is_string(); }},
    {"mapping", {}, [](Evaluation&, Value x, Values) { return x.is_dict(); }},
    {"number", {}, [](Evaluation&, Value x, Values) { return x.is_number() || x.is(Kind::kBigInt); }},
    {"sequence",
     {},
     [](Evaluation&, Value x, Values) {  // has a length and __getitem__, which raises for undefined values
       return x.is_sequence() || x.is_string() || x.is_dict() || x.is(Kind::kRange) || x.is_undefined();
     }},
    {"iterable", {}, [](Evaluation&, Value x, Values) { return is_iterable(x); }},
    {"callable", {}, [](Evaluation&, Value x, Values) { return is_callable(x); }},
    {"sameas", {1, {"other"}}, [](Evaluation&, Value x, Values v) { return identical(x, v[0]); }},
    {"escaped", {}, [](Evaluation&, Value x, Values) { return x.is_markup(); }},
    {"in", {1, {"seq"}}, [](Evaluation& e, Value x, Values v) { return contains(e, v[0], x); }},
    {"==", {1, {"_b"}}, [](Evaluation& e, Value x, Values v) { return equal(e, x, v[0]); }},
    {"eq", {1, {"_b"}}, [](Evaluation& e, Value x, Values v) { return equal(e, x, v[0]); }},
    {"equalto", {1, {"_b"}}, [](Evaluation& e, Value x, Values v) { return equal(e, x, v[0]); }},
    {"!=", {1, {"_b"}}, [](Evaluation& e, Value x, Values v) { return !equal(e, x, v[0]); }},
    {"ne", {1, {"_b"}}, [](Evaluation& e, Value x, Values v) { return !equal(e, x, v[0]); }},
    {">", {1, {"_b"}}, [](Evaluation& e, Value x, Values v) { return ordered(e, x, v[0], ">"); }},
    {"gt", {1, {"_b"}}, [](Evaluation& e, Value x, Values v) { return ordered(e, x, v[0], ">"); }},
    {"greaterthan", {1, {"_b"}}, [](Evaluation& e, Value x, Values v) { return ordered(e, x, v[0], ">"); }},
    {">=", {1, {"_b"}}, [](Evaluation& e, Value x, Values v) { return ordered(e, x, v[0], ">="); }},
    {"ge", {1, {"_b"}}, [](Evaluation& e, Value x, Values v) { return ordered(e, x, v[0], ">="); }},
    {"<", {1, {"_b"}}, [](Evaluation& e, Value x, Values v) { return ordered(e, x, v[0], "<"); }},
    {"lt", {1, {"_b"}}, [](Evaluation& e, Value x, Values v) { return ordered(e, x, v[0], "<"); }},
    {"lessthan", {1, {"_b"}}, [](Evaluation& e, Value x, Values v) { return ordered(e, x, v[0], "<"); }},
    {"<=", {1, {"_b"}}, [](Evaluation& e, Value x, Values v) { return ordered(e, x, v[0], "<="); }},
    {"le", {1, {"_b"}}, [](Evaluation& e, Value x, Values v) { return ordered(e, x, v[0], "<="); }},
};

}  // namespace

const TestRow* find_test(std::string_view name) {
  const auto* row =
      std::find_if(std::begin(kTests), std::end(kTests), [&](const TestRow& t) { return t.name == name; });
  return row == std::end(kTests) ? nullptr : row;
}

bool call_test(Evaluation& e, const TestRow& row, Value object, const Args& args) {
  Value values[kMaxParameters];
  return bind_arguments(e, row.name, args, row.parameters, values) && row.call(e, object, {values, kMaxParameters});
}

}  // namespace redline::jinja
