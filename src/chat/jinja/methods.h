// Methods of str, list, tuple and dict, and Python's two ways of formatting.
#pragma once

#include "chat/jinja/evaluation.h"

namespace redline::jinja {

/// Returns a method bound to `object`; missing() if there is none. Methods that would change the object are undefined,
/// as in jinja2's immutable sandbox.
Value find_method(Evaluation& e, Value object, std::string_view name);

/// Returns format % arguments.
Value percent_format(Evaluation& e, Value format, Value arguments);
/// Returns format.format(...).
Value brace_format(Evaluation& e, Value format, const Args& args);

}  // namespace redline::jinja
