// The vector instruction sets of this machine, for tests that compare their bits.
#pragma once

#include <gtest/gtest.h>

#include "kernels/cpu/cpu_kernels.h"

namespace redline {

/// Calls body(name, table) for every set but the generic one that this machine supports.
template <class Body>
void for_each_vector_set(const Body& body) {
  int count = 0;
  const CpuIsa* isas = cpu_isas(&count);
  for (int i = 1; i < count; ++i) {
    if (!isas[i].supported()) continue;
    const auto table = cpu_kernels_for(isas[i].name);
    ASSERT_TRUE(table.ok());
    body(isas[i].name, *table);
  }
}

}  // namespace redline
