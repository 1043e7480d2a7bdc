#include "diffusion/denoiser.h"

#include <algorithm>
#include <set>

#include "graph/adapter_sites.h"
#include "graph/external_values.h"

namespace redline {

namespace {

// Prefixes of external values: inputs that are kept in memory of the denoiser, and outputs that later parts read
// (graph/external_values.h). A part may read and write values of one name, which are different ports.
const std::string kIn = std::string(kExternalPrefix) + "in.", kOut = std::string(kExternalPrefix) + "out.";
constexpr const char* kMiddlePrefix = "middle.";

// Returns true if each step writes the input: latents and timestep differ in each step, and integers cannot be bound
// (Executable::bind).
bool is_written_by_step(const ValueInfo& input) {
  return input.name == "latents" || input.name == "timestep" || input.dtype != DType::kF32;
}

/// Makes these values external: the inputs that are constant over a run, and the outputs of the first two parts with
/// the inputs of later parts that read them.
void make_external(DenoiserModel& model) {
  std::set<std::string> handed;
  Graph* const parts[] = {&model.front, &model.middle, &model.tail};
  const bool has_parts = !model.middle.ops.empty();
  for (Graph* part : std::span(parts).first(has_parts ? 3 : 1)) {
    for (const ValueId id : part->inputs) {
      ValueInfo& input = part->values[static_cast<size_t>(id)];
      if (is_external_name(input.name)) continue;  // a step invariant
      if (handed.contains(input.name) || !is_written_by_step(input)) input.name.insert(0, kIn);
    }
    if (part == &model.tail || !has_parts) break;
    for (const ValueId id : part->outputs) {
      ValueInfo& value = part->values[static_cast<size_t>(id)];
      if (is_external_name(value.name)) continue;  // a step invariant
      REDLINE_CHECK(value.kind == ValueKind::kComputed);
      handed.insert(value.name);
      value.name = kOut + value.name;
    }
  }
}

}  // namespace

void Denoiser::resolve(Part& part, const std::string& prefix, const std::string& earlier) {
  part.invariants = invariants_.readers(part.network);
  for (const Executable::Port& port : part.network.inputs()) {
    if (port.name.starts_with(kIn)) {
      const std::string name = port.name.substr(kIn.size());
      auto from = states_.find(earlier + name);
      if (from == states_.end()) from = states_.find(name);
      if (from == states_.end()) {
        from = kept_inputs_.try_emplace(name).first;
        kept_shapes_[name] = port.shape;
      }
      part.inputs.push_back({port.name, Part::Source::kBuffer, port.shape, &from->second});
    } else if (port.name == "timestep") {
      part.inputs.push_back({port.name, Part::Source::kTimestep, port.shape});
    } else if (port.dtype == DType::kI32) {
      part.inputs.push_back({port.name, Part::Source::kIntegers, port.shape});
    }
  }
  for (const Executable::Port& port : part.network.outputs())
    if (port.name.starts_with(kOut))
      part.outputs.push_back({port.name, port.shape, &states_[prefix + port.name.substr(kOut.size())]});
}

Result<std::unique_ptr<Denoiser>> Denoiser::make(DenoiserModel model, const ExecutableOptions& options,
                                                 int64_t max_adapter_rank, RuntimeResources& runtime) {
  std::unique_ptr<Denoiser> d(new Denoiser());
  const int64_t latents = model.latent_channels * model.patch * model.patch;
  if (model.in_channels != latents && !model.is_inpainting())
    return unsupported(
        "the network has {} input channels and its latents {}; supported are networks with as many, and inpainting "
        "networks "
        "with a mask and the latents of the masked image ({})",
        model.in_channels, latents, 2 * latents + 1);
  if (model.out_channels < latents)
    return unsupported("the network has {} output channels and its latents {}; it has to predict all of them",
                       model.out_channels, latents);
  if (max_adapter_rank > 0) {
    AdapterSites sites;
    for (Graph* graph : {&model.front, &model.middle, &model.tail}) {
      const AdapterSites more = add_adapter_sites(
          *graph, max_adapter_rank, [](const std::string&) { return true; }, sites.size());
      sites.insert(sites.end(), more.begin(), more.end());
    }
    d->adapters_ = NetworkAdapters(std::move(sites), model.idle_modules);
  }
  for (const ValueId id : model.front.inputs) {
    const ValueInfo& value = model.front.value(id);
    const bool own =
        value.name == "latents" || value.name == "timestep" || value.name == "rope" || value.name == "positions";
    if (!own) d->conditions_.push_back({value.name, value.dtype, value.shape});
  }
  REDLINE_ASSIGN(d->invariants_, StepInvariants::make(model, options, runtime));
  make_external(model);
  REDLINE_ASSIGN(d->front_.network, Executable::make(std::move(model.front), options, runtime));
  d->resolve(d->front_, "", "");
  if (!model.middle.ops.empty()) {
    REDLINE_ASSIGN(d->middle_.network, Executable::make(std::move(model.middle), options, runtime));
    d->resolve(d->middle_, kMiddlePrefix, "");
    REDLINE_ASSIGN(d->tail_.network, Executable::make(std::move(model.tail), options, runtime));
    d->resolve(d->tail_, "", kMiddlePrefix);
  }
  const char* const names[] = {"embedded", "image", "text", "modulated", "middle.image", "middle.text"};
  static_assert(std::size(names) == std::tuple_size_v<decltype(cache_states_)>);
  for (size_t i = 0; i < d->cache_states_.size(); ++i) {
    const auto at = d->states_.find(names[i]);
    if (at != d->states_.end()) d->cache_states_[i].buffer = &at->second;
    else d->cache_states_[i].invariant = d->invariants_.moved_output(names[i]);
  }
  State& middle_text = d->cache_states_[static_cast<size_t>(DenoiserState::kMiddleText)];
  if (std::none_of(d->tail_.inputs.begin(), d->tail_.inputs.end(),
                   [&](const Part::Input& input) { return input.buffer && input.buffer == middle_text.buffer; }))
    middle_text = {};
  d->model_ = std::move(model);
  return d;
}

SymbolValues Denoiser::sizes(int64_t rows) const {
  SymbolValues s;
  s[Symbol::kBatch] = rows;
  s[Symbol::kTextTokens] = batch_.text_tokens;
  s[Symbol::kImageTokens] = batch_.latents.tokens();
  set_extents(model_.grid, batch_.latents, s);
  return s;
}

Status Denoiser::begin(DenoiserBatch batch) {
  batch_ = std::move(batch);
  for (auto& [name, buffer] : states_) buffer = {};
  const LatentShape& l = batch_.latents;
  const SymbolValues one = sizes(1);
  for (const Executable::Port& port : conditions_) {
    const int64_t expected = num_elements(port.shape).eval(one) * batch_.rows;
    auto check = [&](const auto& conditions) -> Status {
      const auto at = conditions.find(port.name);
      if (at == conditions.end()) return invalid_argument("the input \"{}\" is missing", port.name);
      if (static_cast<int64_t>(at->second.size()) != expected)
        return invalid_argument("\"{}\" has {} elements, the network takes {} for {} rows", port.name,
                                at->second.size(), expected, batch_.rows);
      return {};
    };
    REDLINE_TRY(port.dtype == DType::kI32 ? check(batch_.integer_conditions) : check(batch_.conditions));
  }
  REDLINE_TRY(begin_conditions());
  const size_t mask_elements = is_inpainting() ? static_cast<size_t>((l.channels + 1) * l.pixels()) : 0;
  if (batch_.mask_latents.size() != mask_elements &&
      batch_.mask_latents.size() != mask_elements * static_cast<size_t>(batch_.images))
    return invalid_argument("the mask latents have {} elements, the network takes {}", batch_.mask_latents.size(),
                            mask_elements);
  invariants_.begin(batch_, one);
  return batch_.timesteps.empty() ? Status() : invariants_.prepare(batch_.timesteps[0], adapters_);
}

// Writes the inputs that are constant over the run: one table for all rows, or the batch's value of each row.
Status Denoiser::begin_conditions() {
  const LatentShape& l = batch_.latents;
  const SymbolValues one = sizes(1);
  const auto values_of = [&](const auto& conditions, const std::string& name,
                             int64_t row_elements) -> Result<decltype(&conditions.begin()->second)> {
    const auto at = conditions.find(name);
    if (at != conditions.end() && std::ssize(at->second) == batch_.rows * row_elements) return &at->second;
    return invalid_argument("the input \"{}\" is missing", name);
  };
  for (auto& [name, buffer] : kept_inputs_) {
    const int64_t n = num_elements(kept_shapes_[name]).eval(one);
    REDLINE_TRY(buffer.resize(front_.network, batch_.rows, n));
    std::vector<float> table;
    const TokenGrid tokens = {l.frames, l.height / l.patch, l.width / l.patch};
    if (name == "rope") {
      table = model_.rope_table(batch_.text_tokens, tokens);
    } else if (name == "positions") {
      REDLINE_ASSIGN(table, model_.position_table(tokens));
    } else {
      REDLINE_ASSIGN(const std::vector<float>* values, values_of(batch_.conditions, name, n));
      std::copy(values->begin(), values->end(), buffer.row(0));
      continue;
    }
    REDLINE_CHECK(std::ssize(table) == n);
    for (int64_t row = 0; row < batch_.rows; ++row) std::copy(table.begin(), table.end(), buffer.row(row));
  }
  for (Part* part : {&front_, &middle_, &tail_})
    for (Part::Input& input : part->inputs) {
      if (input.source != Part::Source::kIntegers) continue;
      input.row_elements = num_elements(input.shape).eval(one);
      REDLINE_ASSIGN(input.values, values_of(batch_.integer_conditions, input.port, input.row_elements));
    }
  return {};
}

Status Denoiser::run(Part& part, std::span<const int64_t> rows) {
  Executable& network = part.network;
  invariants_.bind(network, part.invariants, rows);
  for (const Part::Input& input : part.inputs) {
    switch (input.source) {
      case Part::Source::kBuffer: input.buffer->bind_input(network, input.port, rows); break;
      case Part::Source::kTimestep:
        std::fill_n(network.input(input.port), rows.size(), static_cast<float>(timestep_ * model_.timestep_scale));
        break;
      case Part::Source::kIntegers: {
        int32_t* to = network.input_i32(input.port);
        for (const int64_t row : rows)
          to = std::copy_n(input.values->data() + row * input.row_elements, input.row_elements, to);
        break;
      }
    }
  }
  return network.run(sizes(static_cast<int64_t>(rows.size())), adapters_.segments());
}

Status Denoiser::run_and_keep(Part& part, std::span<const int64_t> rows) {
  if (rows.empty()) return {};
  for (const Part::Output& output : part.outputs) {
    if (output.buffer->empty())
      REDLINE_TRY(output.buffer->resize(part.network, batch_.rows, num_elements(output.shape).eval(sizes(1))));
    output.buffer->bind_output(part.network, output.port, rows);
  }
  REDLINE_TRY(run(part, rows));
  for (const Part::Output& output : part.outputs) output.buffer->take_output(rows);
  return {};
}

Status Denoiser::run_front(std::span<const int64_t> rows, std::span<const float> x, double timestep) {
  timestep_ = timestep;
  REDLINE_TRY(invariants_.prepare(timestep, adapters_));
  const LatentShape& latents = batch_.latents;
  float* to = front_.network.input("latents");
  for (const int64_t row : rows) {
    const int64_t image = row % batch_.images;
    const float* from = x.data() + image * latents.elements();
    if (!is_inpainting()) {
      to = std::copy_n(from, latents.elements(), to);
      continue;
    }
    // A row of an inpainting network has the latents, then the mask and the latents of the masked image.
    const int64_t mask_columns = latents.columns() + 1, mask_elements = latents.tokens() * mask_columns;
    const bool is_shared = std::ssize(batch_.mask_latents) == mask_elements;
    const float* mask = batch_.mask_latents.data() + (is_shared ? 0 : image * mask_elements);
    for (int64_t token = 0; token < latents.tokens(); ++token) {
      to = std::copy_n(from + token * latents.columns(), latents.columns(), to);
      to = std::copy_n(mask + token * mask_columns, mask_columns, to);
    }
  }
  return run_and_keep(front_, rows);
}

Status Denoiser::run_middle(std::span<const int64_t> rows) { return run_and_keep(middle_, rows); }

void Denoiser::take_output(const float* network_rows, std::span<const int64_t> rows, std::span<float> out) const {
  const LatentShape& latents = batch_.latents;
  for (const int64_t row : rows) {
    take_output_rows(latents, network_rows, model_.out_channels / (latents.patch * latents.patch),
                     model_.channels_last_patch, out.data() + row * latents.elements());
    network_rows += latents.tokens() * model_.out_channels;
  }
}

Status Denoiser::run_tail(std::span<const int64_t> rows, std::span<float> out) {
  REDLINE_TRY(run(tail_, rows));
  take_output(tail_.network.output("model_output"), rows, out);
  return {};
}

StateView Denoiser::state(DenoiserState which, int64_t row) {
  const State& state = cache_states_[static_cast<size_t>(which)];
  if (state.invariant) return invariants_.value(*state.invariant, row);
  if (state.buffer == nullptr || state.buffer->empty()) return {};
  return state.buffer->view(row);
}

Status Denoiser::evaluate(std::span<const int64_t> rows, std::span<const float> x, double timestep,
                          std::span<float> out) {
  REDLINE_TRY(run_front(rows, x, timestep));
  if (!has_parts()) {
    take_output(front_.network.output("model_output"), rows, out);
    return {};
  }
  REDLINE_TRY(run_middle(rows));
  return run_tail(rows, out);
}

}  // namespace redline
