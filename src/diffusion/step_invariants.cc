#include "diffusion/step_invariants.h"

#include <algorithm>

#include "diffusion/denoiser.h"
#include "graph/passes/hoist_invariants.h"

namespace redline {
namespace {

// Rows of one run of the time network: one row panel of the tile kernels.
constexpr int64_t kTimeItems = 16;
// FLUX.1 has 4 MB of tables per step and row.
constexpr int64_t kMaxTimeBytes = int64_t{64} << 20;

}  // namespace

Result<StepInvariants> StepInvariants::make(DenoiserModel& model, const ExecutableOptions& options,
                                            RuntimeResources& runtime) {
  StepInvariants once;
  once.timestep_scale_ = model.timestep_scale;
  once.bounds_ = options.bounds;
  Graph* const graphs[] = {&model.front, &model.middle, &model.tail};
  const std::span<Graph* const> parts = std::span(graphs).first(model.middle.ops.empty() ? 1 : 3);
  const auto split = [&](const char* name, std::set<std::string> constants,
                         const ExecutableOptions& own) -> Result<Executable> {
    REDLINE_ASSIGN(HoistedGraphs result,
                   hoist_invariants(parts, {.name = name, .constants = std::move(constants), .sizes = own.bounds}));
    once.states_.merge(result.moved_outputs);
    if (result.once.ops.empty()) return Executable();
    result.once.name = model.family + " " + name;
    return Executable::make(std::move(result.once), own, runtime);
  };
  REDLINE_ASSIGN(once.text_, split("text", {"text", "key_lengths"}, options));
  ExecutableOptions of_time = options;
  once.max_items_ = of_time.bounds[Symbol::kBatch] = kTimeItems;
  REDLINE_ASSIGN(once.time_, split("time", {"timestep", "guidance", "pooled", "time_ids"}, of_time));
  return once;
}

int64_t StepInvariants::rows() const { return batch_->rows; }

void StepInvariants::add_outputs(const Executable& network, bool by_step) {
  for (const Executable::Port& port : network.outputs())
    kept_[port.name] = {num_elements(port.shape).eval(item_), by_step, {}};
}

void StepInvariants::begin(const DenoiserBatch& batch, const SymbolValues& item) {
  batch_ = &batch;
  item_ = item;
  kept_.clear();
  window_.clear();
  has_text_ = false;
  add_outputs(text_, false);
  add_outputs(time_, true);
}

Status StepInvariants::run_text(const NetworkAdapters& adapters) {
  if (text_.empty()) return {};
  for (const auto& [symbol, size] :
       {std::pair{Symbol::kBatch, rows()}, {Symbol::kTextTokens, item_[Symbol::kTextTokens]}})
    if (size > bounds_[symbol])
      return invalid_argument("{} is {}, the denoiser was compiled for at most {}", symbol_name(symbol), size,
                              bounds_[symbol]);
  for (const Executable::Port& port : text_.inputs()) {
    const int64_t n = num_elements(port.shape).eval(item_) * rows();
    if (port.dtype == DType::kI32)
      std::copy_n(batch_->integer_conditions.at(port.name).data(), n, text_.input_i32(port.name));
    else std::copy_n(batch_->conditions.at(port.name).data(), n, text_.input(port.name));
  }
  for (const Executable::Port& port : text_.outputs()) {
    Kept& kept = kept_[port.name];
    REDLINE_TRY(kept.values.resize(text_, rows(), kept.row_elements));
    kept.values.bind_output_from(text_, port.name, 0);
  }
  SymbolValues sizes = item_;
  sizes[Symbol::kBatch] = rows();
  return text_.run(sizes, adapters.segments());
}

// Items are the rows of the first step, then of the second, and so on.
Status StepInvariants::run_time(const NetworkAdapters& adapters) {
  const int64_t items = std::ssize(window_) * rows();
  for (const Executable::Port& port : time_.outputs()) {
    Kept& kept = kept_[port.name];
    REDLINE_TRY(kept.values.resize(time_, items, kept.row_elements));
  }
  for (int64_t first = 0; first < items; first += max_items_) {
    const int64_t count = std::min(max_items_, items - first);
    for (const Executable::Port& port : time_.inputs()) {
      const int64_t n = num_elements(port.shape).eval(item_);
      float* to = time_.input(port.name);
      for (int64_t i = first; i < first + count; ++i) {
        if (port.name == "timestep")
          *to++ = static_cast<float>(window_[static_cast<size_t>(i / rows())] * timestep_scale_);
        else to = std::copy_n(batch_->conditions.at(port.name).data() + i % rows() * n, n, to);
      }
    }
    for (const Executable::Port& port : time_.outputs()) {
      Kept& kept = kept_[port.name];
      kept.values.bind_output_from(time_, port.name, first);
    }
    SymbolValues sizes = item_;
    sizes[Symbol::kBatch] = count;
    REDLINE_TRY(time_.run(sizes, adapters.segments()));
  }
  return {};
}

Status StepInvariants::prepare(double timestep, const NetworkAdapters& adapters) {
  if (adapters.version() != version_) window_.clear(), has_text_ = false;
  version_ = adapters.version();
  if (!has_text_) REDLINE_TRY(run_text(adapters).within("text"));
  has_text_ = true;
  if (time_.empty()) return {};
  auto at = std::find(window_.begin(), window_.end(), timestep);
  if (at == window_.end()) {
    int64_t step_bytes = 0;
    for (const auto& [name, kept] : kept_)
      if (kept.by_step) step_bytes += kept.row_elements * rows() * static_cast<int64_t>(sizeof(float));
    const auto most = std::max<int64_t>(1, kMaxTimeBytes / std::max<int64_t>(1, step_bytes));
    const std::vector<double>& announced = batch_->timesteps;
    const auto from = std::find(announced.begin(), announced.end(), timestep);
    window_.assign(from, from + std::min<int64_t>(most, announced.end() - from));
    if (window_.empty()) window_ = {timestep};  // a timestep that the batch did not announce
    if (Status status = run_time(adapters); !status.ok()) {
      window_.clear();
      return std::move(status).within("time");
    }
    at = window_.begin();
  }
  at_ = at - window_.begin();
  return {};
}

void StepInvariants::bind(Executable& network, std::span<const int64_t> rows) {
  if (rows.empty()) return;
  for (const Executable::Port& port : network.inputs()) {
    const auto kept = kept_.find(port.name);
    if (kept == kept_.end()) continue;
    std::vector<int64_t> indices;
    for (const int64_t row : rows) indices.push_back(index_of(kept->second, row));
    kept->second.values.bind_input(network, port.name, indices);
  }
}

std::span<float> StepInvariants::state(const std::string& name, int64_t row) {
  const auto moved = states_.find(name);
  if (moved == states_.end()) return {};
  Kept& kept = kept_[moved->second];
  if (kept.values.empty()) return {};
  return {kept.values.row(index_of(kept, row)), static_cast<size_t>(kept.row_elements)};
}

}  // namespace redline
