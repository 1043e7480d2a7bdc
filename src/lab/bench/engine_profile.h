// Forwards llm/engine_profile.h for the commands, which do not include llm.
#pragma once

#include "llm/engine_profile.h"

namespace redline::lab {

using redline::EngineProfile;
using redline::profile_of;

}  // namespace redline::lab
