#include "machine/roofline.h"

#include <algorithm>
#include <map>

#include "tensor/dtype.h"

namespace redline {
namespace {

double operations_per_s(const Peak* peak) { return peak != nullptr ? peak->all * 1e9 : 0; }

}  // namespace

Roofline::Roofline(const MachinePeaks& peaks, bool exact_f32) : exact_f32_(exact_f32) {
  if (const Peak* read = peaks.find("read")) read_bytes_per_s_ = read->all * 1e9;
  for (const Peak& row : peaks.rows)
    if (!row.instruction.empty()) peaks_.push_back(row);
}

const Peak* Roofline::peak_of(std::string_view type) const {
  const Result<DType> dtype = dtype_from_name(type);
  const bool is_f32 = exact_f32_ || !dtype.ok() || *dtype == DType::kF32;
  const bool is_block = !is_f32 && dtype_info(*dtype).is_block;
  const bool takes_int8_tiles = is_block && dtype_info(*dtype).row_bytes > 0;  // scales of blocks end sums too early
  const Peak* best = nullptr;
  for (const Peak& peak : peaks_) {
    const bool is_tile = peak.isa.starts_with("amx");
    const bool fits = peak.name == "f32" || (!is_f32 && (peak.name == "f16" || peak.name == "bf16")) ||
                      (is_block && peak.name == "int8" && (!is_tile || takes_int8_tiles));
    if (fits && (best == nullptr || peak.all > best->all)) best = &peak;
  }
  return best;
}

MachineLimits Roofline::limits(std::span<const std::string> types) const {
  MachineLimits limits{read_bytes_per_s_, {}};
  for (const std::string& type : types) limits.operations_per_s[type] = operations_per_s(peak_of(type));
  return limits;
}

Bound Roofline::bound_of(std::span<const EngineProfile::OpCost> costs) const {
  Bound bound;
  std::map<std::string, double> seconds_by;
  double memory_seconds = 0;
  for (const EngineProfile::OpCost& op : costs) {
    const Peak* peak = peak_of(op.type);
    const double seconds = min_seconds(op, read_bytes_per_s_, operations_per_s(peak));
    const bool is_memory = seconds == min_seconds(op, read_bytes_per_s_, 0);
    bound.seconds += seconds;
    if (is_memory) memory_seconds += seconds;
    seconds_by[is_memory ? "read" : fmt::format("{} {}", peak->name, peak->instruction)] += seconds;
  }
  bound.is_memory = memory_seconds >= bound.seconds / 2;
  double most = -1;
  for (const auto& [name, seconds] : seconds_by) {
    if (seconds <= most) continue;
    most = seconds;
    bound.by = name;
  }
  return bound;
}

void raise_to(MachinePeaks& peaks, const MachinePeaks& other) {
  for (Peak& row : peaks.rows) {
    for (const Peak& again : other.rows) {
      if (again.name != row.name || again.isa != row.isa) continue;
      row.per_thread = std::max(row.per_thread, again.per_thread);
      row.all = std::max(row.all, again.all);
    }
  }
}

double min_seconds(const EngineProfile::OpCost& op, double read_bytes_per_s, double operations_per_s) {
  const double reading = read_bytes_per_s > 0 ? op.bytes / read_bytes_per_s : 0;
  const double arithmetic = operations_per_s > 0 ? op.flops / operations_per_s : 0;
  return std::max(reading, arithmetic);
}

double min_seconds(std::span<const EngineProfile::OpCost> costs, const MachineLimits& limits) {
  double seconds = 0;
  for (const EngineProfile::OpCost& op : costs) {
    const auto peak = limits.operations_per_s.find(op.type);
    seconds += min_seconds(op, limits.read_bytes_per_s, peak == limits.operations_per_s.end() ? 0 : peak->second);
  }
  return seconds;
}

}  // namespace redline
