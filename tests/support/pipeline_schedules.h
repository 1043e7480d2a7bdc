// The static check of every network of an image pipeline, as engines compile them, on a GPU of 132 multiprocessors.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "diffusion/pipeline_loader.h"
#include "graph/check_program.h"
#include "kernels/emu/emulated_device.h"
#include "redline/image.h"
#include "runtime/runtime_resources.h"

namespace redline::testing {

/// Expects that the schedules of the pipeline's networks are ordered, and that there are `min_networks` of them.
/// `options`: all but the runtime and the device.
inline void expect_ordered_schedules(const std::string& path, ImageOptions options, int min_networks) {
  constexpr int kMultiprocessors = 132;
  const auto runtime = Runtime::open({.threads = 1});
  ASSERT_TRUE(runtime.ok()) << runtime.status().message();
  RuntimeResources& resources = resources_of(**runtime);
  // Runtimes hold devices weakly.
  const auto device = std::make_shared<OpenDevice>(
      emu::open_emulated_device({.multiprocessors = kMultiprocessors, .team = &resources.team()}));
  resources.set_device({DeviceKind::kEmulated}, device);
  options.runtime = *runtime;
  options.device = "emu";
  const auto pipeline = load_pipeline(path, options);
  ASSERT_TRUE(pipeline.ok()) << pipeline.status().message();
  int checked = 0;
  for (const Executable* network : (*pipeline)->networks()) {
    if (network->program() == nullptr) continue;
    EXPECT_EQ(network->program()->tasks.size(), static_cast<size_t>(kMultiprocessors)) << network->program()->name;
    const Status status = check_program(*network->program(), network->program()->bounds);
    EXPECT_TRUE(status.ok()) << network->program()->name << ": " << status.message();
    ++checked;
  }
  EXPECT_GE(checked, min_networks);
}

}  // namespace redline::testing
