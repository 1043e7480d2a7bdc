// The one table of environment variables that Redline reads.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace redline {

/// Each member is one variable; its initial value is the default. To add one: a member here and its row in settings.cc.
struct Settings {
  std::string cpu_isa;                      ///< REDLINE_CPU_ISA
  int64_t threads = 0;                      ///< REDLINE_THREADS
  double hang_seconds = 30;                 ///< REDLINE_HANG_SECONDS
  int64_t trace_events = int64_t{1} << 20;  ///< REDLINE_TRACE_EVENTS
  std::string cache_dir;                    ///< REDLINE_CACHE_DIR
  double cache_gb = 16;                     ///< REDLINE_CACHE_GB
};

/// The settings as the environment has them now; an empty variable counts as unset. invalid_argument names the
/// variable, its value and what is allowed.
Result<Settings> read_settings();

/// One variable in words, for `redline devices` and the documentation.
struct SettingInfo {
  std::string_view name;      ///< "REDLINE_THREADS"
  std::string_view type;      ///< "text", "integer", "number"
  std::string default_value;  ///< "" for an empty text
  std::string_view help;
};
std::vector<SettingInfo> list_settings();

/// One sentence for each variable of the environment that starts with REDLINE_ and is none of ours, with the nearest
/// name that is: a misspelt variable would be silently without effect.
std::vector<std::string> warn_unknown_settings();

}  // namespace redline
