// The table of environment variables that Redline reads.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace redline {

/// Each member is one variable, initialized to its default. To add one: a member here and its row in settings.cc.
struct Settings {
  std::string cpu_isa;                      ///< REDLINE_CPU_ISA
  std::string device;                       ///< REDLINE_DEVICE
  std::string device_steps;                 ///< REDLINE_DEVICE_STEPS
  int64_t device_check = 1;                 ///< REDLINE_DEVICE_CHECK
  std::string cuda_libs;                    ///< REDLINE_CUDA_LIBS
  std::string cuda_module;                  ///< REDLINE_CUDA_MODULE
  int64_t threads = 0;                      ///< REDLINE_THREADS
  int64_t spin_count = 20000;               ///< REDLINE_SPIN_COUNT
  double hang_seconds = 30;                 ///< REDLINE_HANG_SECONDS
  int64_t trace_events = int64_t{1} << 20;  ///< REDLINE_TRACE_EVENTS
  std::string cache_dir;                    ///< REDLINE_CACHE_DIR
  double cache_gb = 16;                     ///< REDLINE_CACHE_GB
};

/// Returns the current settings from the environment; an empty variable counts as unset. invalid_argument states the
/// variable, its value and the allowed values.
Result<Settings> read_settings();

/// Description of one variable, for `redline devices` and the documentation.
struct SettingInfo {
  std::string_view name;      ///< "REDLINE_THREADS"
  std::string_view type;      ///< "text", "integer", "number"
  std::string default_value;  ///< "" for an empty text
  std::string_view help;
};
std::vector<SettingInfo> list_settings();

/// Returns one warning for each environment variable that starts with REDLINE_ but is unknown, with the nearest known
/// name: a misspelled variable would silently have no effect.
std::vector<std::string> warn_unknown_settings();

}  // namespace redline
