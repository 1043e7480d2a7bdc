// State groups that several executables of one runtime name: an encoder leaves keys and values for a decoder.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "runtime/executable.h"

namespace redline {

/// Returns the index of state group `name` (StateAttrs::group) in the StatePlan of each executable, after checking that
/// all of them lay out the pages of the group equally.
///
/// One executable allocates the memory of the group (make_state_memory) and fills it; the others allocate 0 pages for
/// it. In a step of any executable, StateStep::memory of the group is that memory, `pages` are the pages of the
/// sequences of the step, and `lengths` their numbers of positions. Executables of one runtime run one after the other,
/// so a step sees everything that earlier steps have written.
///
/// not_found: an executable has no such group. invalid_argument: the states of the group differ in number, name, heads,
/// format or window, or the executables run on different devices or in different modes; the message names the state.
Result<std::vector<size_t>> find_shared_group(std::span<const Executable* const> executables, std::string_view name);

}  // namespace redline
