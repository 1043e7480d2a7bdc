#include "backends/tiles/buffer_math.h"

#include <algorithm>

#include "kernels/tiles/kernels.h"

namespace redline {
namespace {

float* address_of(const BufferMath::Part& part, bool writes) {
  if (part.buffer == nullptr) return nullptr;
  return reinterpret_cast<float*>(part.buffer->address(writes)) + part.begin;
}

int32_t blocks_of(int64_t elements) {
  return static_cast<int32_t>((elements + tiles::StateSum::kBlock - 1) / tiles::StateSum::kBlock);
}

}  // namespace

// A program of two stages, of which each launch runs one.
Status DeviceBufferMath::prepare() {
  if (args_.data()) return {};
  tiles::StageTable stages[2] = {};
  stages[0].kernel = tiles::KernelId::kStateSum;
  stages[1].kernel = tiles::KernelId::kStateMeasure;
  for (tiles::StageTable& stage : stages) {
    stage.row_dim = -1;
    stage.col_tiles = stage.cols = stage.col_tile = 1;
  }
  REDLINE_ASSIGN(stages_, DeviceMemory::make(device_, sizeof(stages)));
  REDLINE_TRY(device_->upload(stages_.data(), stages, sizeof(stages)));
  REDLINE_ASSIGN(step_, DeviceMemory::make(device_, sizeof(tiles::StepTables)));
  constexpr auto kArgsBytes = std::max(sizeof(tiles::StateSum::Args), sizeof(tiles::StateMeasure::Args));
  REDLINE_ASSIGN(args_, DeviceMemory::make(device_, static_cast<int64_t>(kArgsBytes)));
  return {};
}

template <class Kernel>
Status DeviceBufferMath::launch(const typename Kernel::Args& args, int32_t stage, tiles::KernelId kernel,
                                int32_t blocks) {
  REDLINE_TRY(device_->upload(args_.data(), &args, sizeof(args)));
  tiles::ProgramTables tables = {};
  tables.stages = reinterpret_cast<const tiles::StageTable*>(stages_.data());
  tables.constants = args_.data();
  tables.step = reinterpret_cast<const tiles::StepTables*>(step_.data());
  return device_->launch(tables, stage, kernel, blocks);
}

Status DeviceBufferMath::weighted_sum(Part to, Part base, std::span<const float> weights, std::span<const Part> tensors,
                                      int64_t elements) {
  if (elements == 0) return {};
  REDLINE_TRY(prepare());
  for (size_t first = 0; first == 0 || first < tensors.size(); first += tiles::StateSum::kMaxTensors) {
    tiles::StateSum::Args args = {};
    args.base = address_of(first == 0 ? base : to, false);
    const size_t count = std::min<size_t>(tensors.size() - first, tiles::StateSum::kMaxTensors);
    for (size_t k = 0; k < count; ++k) {
      args.tensors[k] = address_of(tensors[first + k], false);
      args.weights[k] = weights[first + k];
    }
    args.to = address_of(to, true);
    args.elements = elements;
    args.num_tensors = static_cast<int32_t>(count);
    REDLINE_TRY(launch<tiles::StateSum>(args, 0, tiles::KernelId::kStateSum, blocks_of(elements)));
  }
  return {};
}

Result<double> DeviceBufferMath::distance(Part a, Part b, int64_t elements) {
  return measure(a, b, {}, {}, false, elements);
}

Result<double> DeviceBufferMath::product(Part a, Part b, Part c, Part d, int64_t elements) {
  return measure(a, b, c, d, true, elements);
}

Result<double> DeviceBufferMath::compare(const void* a, const void* b, int64_t elements) {
  return measure(static_cast<const float*>(a), static_cast<const float*>(b), nullptr, nullptr, elements);
}

Result<double> DeviceBufferMath::measure(Part a, Part b, Part c, Part d, bool is_product, int64_t elements) {
  if (elements == 0) return 0.0;
  REDLINE_TRY(prepare());
  return measure(address_of(a, false), address_of(b, false), is_product ? address_of(c, false) : nullptr,
                 address_of(d, false), elements);
}

Result<double> DeviceBufferMath::measure(const float* a, const float* b, const float* c, const float* d,
                                         int64_t elements) {
  REDLINE_TRY(prepare());
  const int32_t blocks = blocks_of(elements);
  std::vector<double> sums(static_cast<size_t>(blocks) * tiles::kConsumerWarps);
  const auto bytes = static_cast<int64_t>(sums.size() * sizeof(double));
  if (sums_.size() < bytes) {
    REDLINE_ASSIGN(sums_, DeviceMemory::make(device_, bytes));
  }
  tiles::StateMeasure::Args args = {};
  args.a = a;
  args.b = b;
  args.c = c;
  args.d = d;
  args.sums = reinterpret_cast<double*>(sums_.data());
  args.elements = elements;
  REDLINE_TRY(launch<tiles::StateMeasure>(args, 1, tiles::KernelId::kStateMeasure, blocks));
  REDLINE_TRY(device_->download(sums.data(), sums_.data(), bytes));
  double sum = 0;
  for (const double part : sums) sum += part;
  return sum;
}

}  // namespace redline
