#include "diffusion/step_invariants.h"

#include <algorithm>

#include "diffusion/denoiser.h"
#include "graph/hoist_invariants.h"

namespace redline {
namespace {

// Rows of one run of the time network: one row panel of the tile kernels.
constexpr int64_t kTimeItems = 16;
// Maximum bytes of the values that are kept for timesteps. FLUX.1 has 4 MB of tables per step and row.
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
    once.moved_.merge(result.moved_outputs);
    if (result.once.ops.empty()) return Executable();
    result.once.name = model.family + " " + name;
    return Executable::make(std::move(result.once), own, runtime);
  };
  REDLINE_ASSIGN(once.text_, split("text", {"text", "key_lengths"}, options));
  ExecutableOptions of_time = options;
  once.max_items_ = of_time.bounds[Symbol::kBatch] = kTimeItems;
  REDLINE_ASSIGN(once.time_, split("time", {"timestep", "guidance", "pooled", "time_ids"}, of_time));
  once.add_outputs(once.text_, false);
  once.add_outputs(once.time_, true);
  return once;
}

int64_t StepInvariants::rows() const { return batch_->rows; }

void StepInvariants::add_outputs(const Executable& network, bool by_step) {
  for (const Executable::Port& port : network.outputs()) kept_.push_back({port.name, port.shape, by_step, 0, {}});
}

std::optional<size_t> StepInvariants::find(std::string_view name) const {
  for (size_t i = 0; i < kept_.size(); ++i)
    if (kept_[i].name == name) return i;
  return std::nullopt;
}

std::span<StepInvariants::Kept> StepInvariants::outputs(bool by_step) {
  const size_t of_text = text_.outputs().size();
  return by_step ? std::span(kept_).subspan(of_text) : std::span(kept_).first(of_text);
}

void StepInvariants::begin(const DenoiserBatch& batch, const SymbolValues& item) {
  batch_ = &batch;
  item_ = item;
  for (Kept& kept : kept_) {
    kept.row_elements = num_elements(kept.shape).eval(item_);
    kept.values = {};
  }
  window_.clear();
  has_text_ = false;
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
  for (Kept& kept : outputs(false)) {
    REDLINE_TRY(kept.values.resize(text_, rows(), kept.row_elements));
    kept.values.bind_output_from(text_, kept.name, 0);
  }
  SymbolValues sizes = item_;
  sizes[Symbol::kBatch] = rows();
  return text_.run(sizes, adapters.segments());
}

// Items are the rows of the first step, then of the second, and so on.
Status StepInvariants::run_time(const NetworkAdapters& adapters) {
  const int64_t items = std::ssize(window_) * rows();
  for (Kept& kept : outputs(true)) REDLINE_TRY(kept.values.resize(time_, items, kept.row_elements));
  for (int64_t first = 0; first < items; first += max_items_) {
    const int64_t count = std::min(max_items_, items - first);
    for (const Executable::Port& port : time_.inputs()) {
      const int64_t n = num_elements(port.shape).eval(item_);
      float* to = time_.input(port.name);
      if (port.name == "timestep") {
        for (int64_t i = first; i < first + count; ++i)
          *to++ = static_cast<float>(window_[static_cast<size_t>(i / rows())] * timestep_scale_);
        continue;
      }
      const std::vector<float>& from = batch_->conditions.at(port.name);
      for (int64_t i = first; i < first + count; ++i) to = std::copy_n(from.data() + i % rows() * n, n, to);
    }
    for (Kept& kept : outputs(true)) kept.values.bind_output_from(time_, kept.name, first);
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
    for (const Kept& kept : outputs(true))
      step_bytes += kept.row_elements * rows() * static_cast<int64_t>(sizeof(float));
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

std::vector<StepInvariants::Reader> StepInvariants::readers(const Executable& network) const {
  std::vector<Reader> found;
  for (const Executable::Port& port : network.inputs())
    if (const std::optional<size_t> value = find(port.name)) found.push_back({port.name, *value});
  return found;
}

void StepInvariants::bind(Executable& network, std::span<const Reader> readers, std::span<const int64_t> rows) {
  if (rows.empty()) return;
  std::vector<int64_t> indices(rows.size());
  for (const Reader& reader : readers) {
    Kept& kept = kept_[reader.value];
    for (size_t i = 0; i < rows.size(); ++i) indices[i] = index_of(kept, rows[i]);
    kept.values.bind_input(network, reader.port, indices);
  }
}

std::optional<size_t> StepInvariants::moved_output(const std::string& name) const {
  const auto moved = moved_.find(name);
  return moved == moved_.end() ? std::nullopt : find(moved->second);
}

StateView StepInvariants::value(size_t index, int64_t row) {
  Kept& kept = kept_[index];
  if (kept.values.empty()) return {};
  return kept.values.view(index_of(kept, row));
}

}  // namespace redline
