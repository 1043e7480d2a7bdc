// Forwards the profile of an engine to the commands, which include neither llm nor diffusion.
#pragma once

#include "diffusion/image_engine.h"
#include "redline/engine_profile.h"

namespace redline::lab {

using redline::describe_program;
using redline::EngineProfile;
using redline::profile_of;

}  // namespace redline::lab
