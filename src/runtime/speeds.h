// Measured speeds of a device and of the CPU, by which the layers of a model are placed.
#pragma once

namespace redline {

/// Measured speed of one side: bytes of weights per second in products of one row, and the fixed time of a program.
struct PlacementSpeed {
  double bytes_per_second = 0, step_seconds = 0;
};
struct PlacementSpeeds {
  PlacementSpeed device, cpu;
};

}  // namespace redline
