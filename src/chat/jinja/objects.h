// Objects made by statements: loops and macros, and the frames of their variables.
#pragma once

#include <string>

#include "chat/jinja/evaluation.h"
#include "chat/jinja/syntax_tree.h"

namespace redline::jinja {

/// Variables of a function: the template, a macro, the body of a call block, a recursive loop.
struct Frame {
  Value* slots = nullptr;
  Frame* parent = nullptr;
};

struct Macro {
  const MacroNode* node;
  Frame* frame;  ///< the frame in which the macro was defined
};

/// The variable `loop`.
struct Loop {
  Iterator* items;
  Value iterable;
  Value current, before, after;  ///< missing: none; `after` is read ahead
  int64_t index0 = -1;
  int64_t length = -1;  ///< -1: not computed yet
  int64_t depth0 = 0;
  Value last_changed;
  const For* node = nullptr;  ///< node of a recursive loop
  Frame* frame = nullptr;     ///< frame of the recursive loop

  /// Advances to the next item, which becomes `current`. Returns false at the end.
  bool next(Evaluation& e);
  bool peek(Evaluation& e);  ///< false: the current item is the last
};

int64_t loop_length(Evaluation& e, Loop& loop);
/// Returns an attribute of the variable `loop`; missing() if there is no such attribute.
Value loop_attribute(Evaluation& e, Loop& loop, std::string_view name);
Value macro_attribute(Evaluation& e, const Macro& macro, std::string_view name);
std::string macro_repr(const Macro& macro);

}  // namespace redline::jinja
