// Notices about the devices that `auto` chooses.
#pragma once

#include <functional>
#include <string>

namespace redline {

/// Sets a function that receives notices about devices, each a sentence that gives the reason:
/// - the device "auto" takes the CPU although there is an NVIDIA driver, or a model is only partly on the GPU;
/// - a part of a device (its persistent step, its library) has failed and another implementation replaces it.
/// Each sentence is passed once per process. Any thread may call `notice`. Without this call notices are dropped.
void on_device_notice(std::function<void(const std::string&)> notice);

}  // namespace redline
