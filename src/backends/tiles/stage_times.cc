// The time of each kind of stage, for benchmarks.
#include <algorithm>
#include <tuple>

#include "backends/tiles/tile_runner.h"

namespace redline {
namespace {

/// Returns true if a kernel accepts any values of its inputs in the arena, because it makes no choice that depends on
/// them.
bool reads_any_numbers(tiles::KernelId kernel) {
  using tiles::KernelId;
  switch (kernel) {
    case KernelId::kLinear:
    case KernelId::kLinearF32:
    case KernelId::kConv2d:
    case KernelId::kConv2dF32:
    case KernelId::kNorm:
    case KernelId::kElementwise:
    case KernelId::kModulate:
    case KernelId::kKvAppend:
    case KernelId::kAttention:
    case KernelId::kAttentionF16:
    case KernelId::kAttentionMerge: return true;
    default: return false;
  }
}

}  // namespace

Result<std::vector<StageTime>> TileRunner::time_stages(double seconds) {
  REDLINE_TRY(failed_);
  // Stages of one kind together: their weights are more than the caches hold, where a model's are.
  std::map<std::tuple<std::string, tiles::KernelId, int32_t, int64_t, bool>, std::vector<size_t>> kinds;
  const auto rows_of = [&](size_t s) {
    const int16_t dim = code_.stages[s].row_dim;
    return dim < 0 ? int64_t{0} : program_.row_dims[static_cast<size_t>(dim)].eval(last_sizes_);
  };
  for (size_t s = 0; s < code_.stages.size(); ++s) {
    const tiles::StageTable& stage = code_.stages[s];
    if (stage.row_dim >= 0 && rows_of(s) == 0) continue;
    const bool by_library = stage.row_dim >= 0 && is_by_library(s, rows_of(s));
    kinds[std::tuple(std::string(program_.stages[s].op), stage.kernel, stage.cols, code_.costs[s].weight_bytes,
                     by_library)]
        .push_back(s);
  }
  REDLINE_ASSIGN(const tiles::ProgramTables tables, program_tables());
  std::vector<StageTime> times;
  const auto time = [&](const auto& kind, std::span<const size_t> stages) -> Status {
    const auto run = [&](int64_t rounds) -> Result<double> {
      const auto begin = Clock::now();
      for (int64_t round = 0; round < rounds; ++round)
        for (const size_t s : stages) REDLINE_TRY(launch_stage(tables, s, last_sizes_));
      REDLINE_ASSIGN(const std::string hang, await(false, begin));
      if (!hang.empty()) return internal("{}", hang);
      return std::chrono::duration<double>(Clock::now() - begin).count();
    };
    REDLINE_ASSIGN(const double first, run(1));
    const auto rounds = static_cast<int64_t>(std::clamp(seconds / std::max(first, 1e-9), 1.0, 1e4));
    REDLINE_ASSIGN(const double spent, run(rounds));
    const size_t s = stages[0];
    const tiles::StageTable& stage = code_.stages[s];
    const TileProgram::StageCost& cost = code_.costs[s];
    StageTime t;
    t.op = program_.stages[s].op;
    t.rows = rows_of(s);
    t.cols = stage.cols;
    t.count = std::ssize(kinds[kind]);
    t.is_by_library = std::get<bool>(kind);
    t.seconds = spent / static_cast<double>(rounds * std::ssize(stages));
    // The bytes that these kernels read depend on the data.
    const bool chooses = stage.kernel == tiles::KernelId::kExpertLinear ||
                         stage.kernel == tiles::KernelId::kExpertLinearF32 ||
                         stage.kernel == tiles::KernelId::kEmbedding;
    const bool has_state = stage.kernel == tiles::KernelId::kAttention ||
                           stage.kernel == tiles::KernelId::kAttentionF16 ||
                           stage.kernel == tiles::KernelId::kGatedScan;
    if (!chooses && !has_state)
      t.bytes = static_cast<double>(cost.weight_bytes + 4 * cost.value_elements.eval(last_sizes_));
    if (!chooses) t.flops = 2.0 * static_cast<double>(cost.weight_elements * t.rows);
    times.push_back(std::move(t));
    return {};
  };
  // The values of the arena share its memory. Stages that read numbers of rows from it are timed where a step has just
  // written them.
  for (const HostPort& input : inputs_)
    REDLINE_TRY(code_.device->upload(input.device, input.data.data(), input.bytes(last_sizes_)));
  for (size_t s = 0; s < code_.stages.size(); ++s) {
    REDLINE_TRY(launch_stage(tables, s, last_sizes_));
    for (const auto& [kind, stages] : kinds)
      if (stages[0] == s && !reads_any_numbers(code_.stages[s].kernel)) REDLINE_TRY(time(kind, {&stages[0], 1}));
  }
  for (const auto& [kind, stages] : kinds)
    if (reads_any_numbers(code_.stages[stages[0]].kernel)) REDLINE_TRY(time(kind, stages));
  return times;
}

}  // namespace redline
