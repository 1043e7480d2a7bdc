// Notices about the devices that `auto` chooses.
#pragma once

#include <functional>
#include <string>

namespace redline {

/// From now on calls `notice` with a sentence when the device "auto" takes the CPU although there is an NVIDIA driver,
/// or when a model is only partly on the GPU, and why; and when a part of a device (its persistent step, its library)
/// fails and another takes its place. The same sentence comes once in a process; from any thread. Without a call there
/// are no notices.
void on_device_notice(std::function<void(const std::string&)> notice);

}  // namespace redline
