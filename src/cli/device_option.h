// The option --device, which all commands that open a model share.
#pragma once

#include <string>

#include "base/error.h"
#include "cli/options.h"

namespace redline::cli {

inline void add_device(OptionList& v, std::string& device) {
  v(device, "device", "NAME",
    "cpu; emu: the kernels of GPUs on an emulated device, slowly; cuda, cuda:N; auto: REDLINE_DEVICE, else a GPU, else "
    "cpu");
}

/// Checks that --interpreter is not combined with a device. invalid_argument: it is.
inline Status check_reference(bool interpreter, const std::string& device) {
  if (interpreter && device != "auto")
    return invalid_argument("--interpreter is a reference of its own: it has no --device {}", device);
  return {};
}

}  // namespace redline::cli
