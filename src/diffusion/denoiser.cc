#include "diffusion/denoiser.h"

#include <algorithm>

namespace redline {

Result<std::unique_ptr<Denoiser>> Denoiser::make(DenoiserModel model, const NetworkOptions& options,
                                                 int64_t max_adapter_rank, WorkerTeam& team) {
  std::unique_ptr<Denoiser> d(new Denoiser());
  const int64_t latents = model.latent_channels * model.patch * model.patch;
  if (model.in_channels != latents && !model.is_inpainting())
    return unsupported(
        "the network has {} input channels and its latents {}; supported are networks with as many, and inpainting "
        "networks "
        "with a mask and the latents of the masked image ({})",
        model.in_channels, latents, 2 * latents + 1);
  if (max_adapter_rank > 0) {
    AdapterSites sites;
    for (Graph* graph : {&model.front, &model.middle, &model.tail}) {
      const AdapterSites more = add_adapter_sites(
          *graph, max_adapter_rank, [](const std::string&) { return true; }, sites.size());
      sites.insert(sites.end(), more.begin(), more.end());
    }
    d->adapters_ = NetworkAdapters(std::move(sites));
  }
  for (const ValueId id : model.front.inputs) {
    const ValueInfo& value = model.front.value(id);
    const bool own =
        value.name == "latents" || value.name == "timestep" || value.name == "rope" || value.name == "positions";
    if (!own) d->conditions_.push_back({value.name, value.dtype, value.shape});
  }
  REDLINE_ASSIGN(d->invariants_, StepInvariants::make(model, options, team));
  REDLINE_ASSIGN(d->front_, Network::make(std::move(model.front), options, team));
  if (!model.middle.ops.empty()) {
    REDLINE_ASSIGN(d->middle_, Network::make(std::move(model.middle), options, team));
    REDLINE_ASSIGN(d->tail_, Network::make(std::move(model.tail), options, team));
  }
  d->model_ = std::move(model);
  return d;
}

SymbolValues Denoiser::sizes(int64_t rows) const {
  const LatentLayout& l = batch_.layout;
  SymbolValues s;
  s[Symbol::kBatch] = rows;
  s[Symbol::kTextTokens] = batch_.text_tokens;
  s[Symbol::kImageTokens] = l.height / l.patch * (l.width / l.patch);
  set_latent_size(s, l.height, l.width);
  return s;
}

Status Denoiser::begin(DenoiserBatch batch) {
  batch_ = std::move(batch);
  state_.clear();
  const LatentLayout& l = batch_.layout;
  const SymbolValues one = sizes(1);
  for (const Network::Port& port : conditions_) {
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
  rope_.clear();
  if (model_.rope_table) rope_ = model_.rope_table(batch_.text_tokens, l.height / l.patch, l.width / l.patch);
  positions_.clear();
  if (model_.position_table) {
    REDLINE_ASSIGN(positions_, model_.position_table(l.height / l.patch, l.width / l.patch));
  }
  const size_t told = is_inpainting() ? static_cast<size_t>((l.channels + 1) * l.height * l.width) : 0;
  if (batch_.mask_latents.size() != told)
    return invalid_argument("the mask latents have {} elements, the network takes {}", batch_.mask_latents.size(),
                            told);
  invariants_.begin(batch_, one);
  return batch_.timesteps.empty() ? Status() : invariants_.prepare(batch_.timesteps[0], adapters_);
}

// Fills the network's inputs for these rows from the batch and from the outputs of earlier parts, and runs it.
Status Denoiser::run(Network& network, std::span<const int64_t> rows, const std::string& prefix) {
  const SymbolValues one = sizes(1);
  invariants_.bind(network, rows);
  for (const Network::Port& port : network.inputs()) {
    if (port.name == "latents" || port.is_bound()) continue;  // written by run_front; kept for all steps
    const int64_t n = num_elements(port.shape).eval(one);
    if (port.dtype == DType::kI32) {
      const std::vector<int32_t>& from = batch_.integer_conditions[port.name];
      int32_t* to = network.input_i32(port.name);
      for (const int64_t row : rows) to = std::copy_n(from.data() + row * n, n, to);
      continue;
    }
    float* to = network.input(port.name);
    if (port.name == "timestep") {
      std::fill_n(to, rows.size(), static_cast<float>(timestep_ * model_.timestep_scale));
    } else if (port.name == "rope") {
      for (size_t i = 0; i < rows.size(); ++i) to = std::copy(rope_.begin(), rope_.end(), to);
    } else if (port.name == "positions") {
      for (size_t i = 0; i < rows.size(); ++i) to = std::copy(positions_.begin(), positions_.end(), to);
    } else if (const auto left = state_.find(prefix + port.name); &network != &front_ && left != state_.end()) {
      for (const int64_t row : rows) to = std::copy_n(left->second.data.data() + row * n, n, to);
    } else if (const auto carry = state_.find(port.name); &network != &front_ && carry != state_.end()) {
      for (const int64_t row : rows) to = std::copy_n(carry->second.data.data() + row * n, n, to);
    } else {
      const std::vector<float>& from = batch_.conditions[port.name];
      for (const int64_t row : rows) to = std::copy_n(from.data() + row * n, n, to);
    }
  }
  return network.run(sizes(static_cast<int64_t>(rows.size())), adapters_.segments());
}

void Denoiser::keep_outputs(const Network& network, std::span<const int64_t> rows, const std::string& prefix) {
  const SymbolValues one = sizes(1);
  for (const Network::Port& port : network.outputs()) {
    State& state = state_[prefix + port.name];
    state.row_elements = num_elements(port.shape).eval(one);
    state.data.resize(static_cast<size_t>(state.row_elements * batch_.rows));
    const float* from = network.output(port.name);
    for (const int64_t row : rows) {
      std::copy_n(from, state.row_elements, state.data.data() + row * state.row_elements);
      from += state.row_elements;
    }
  }
}

Status Denoiser::run_front(std::span<const int64_t> rows, std::span<const float> x, double timestep) {
  timestep_ = timestep;
  REDLINE_TRY(invariants_.prepare(timestep, adapters_));
  const int64_t n = batch_.layout.elements();
  LatentLayout taken = batch_.layout;
  if (is_inpainting()) taken.channels = model_.in_channels;
  float* to = front_.input("latents");
  for (const int64_t row : rows) {
    const float* planes = x.data() + row % batch_.pictures * n;
    if (is_inpainting()) {
      planes_.assign(planes, planes + n);
      planes_.insert(planes_.end(), batch_.mask_latents.begin(), batch_.mask_latents.end());
      planes = planes_.data();
    }
    pack_latents(taken, planes, to);
    to += taken.elements();
  }
  REDLINE_TRY(run(front_, rows, ""));
  if (has_parts()) keep_outputs(front_, rows, "");
  return {};
}

Status Denoiser::run_middle(std::span<const int64_t> rows) {
  REDLINE_TRY(run(middle_, rows, ""));
  keep_outputs(middle_, rows, "middle.");
  return {};
}

void Denoiser::unpack(const float* network_rows, std::span<const int64_t> rows, std::span<float> out) const {
  LatentLayout layout = batch_.layout;
  layout.channels_last = model_.channels_last_patch;
  const int64_t tokens = layout.height / layout.patch * (layout.width / layout.patch);
  const int64_t row_channels = model_.out_channels / (layout.patch * layout.patch);
  for (const int64_t row : rows) {
    unpack_latents(layout, network_rows, row_channels, out.data() + row * layout.elements());
    network_rows += tokens * model_.out_channels;
  }
}

Status Denoiser::run_tail(std::span<const int64_t> rows, std::span<float> out) {
  REDLINE_TRY(run(tail_, rows, "middle."));
  unpack(tail_.output("model_output"), rows, out);
  return {};
}

std::span<float> Denoiser::state(const std::string& name, int64_t row) {
  const auto at = state_.find(name);
  if (at == state_.end()) return invariants_.state(name, row);
  return std::span(at->second.data)
      .subspan(static_cast<size_t>(row * at->second.row_elements), static_cast<size_t>(at->second.row_elements));
}

Status Denoiser::evaluate(std::span<const int64_t> rows, std::span<const float> x, double timestep,
                          std::span<float> out) {
  REDLINE_TRY(run_front(rows, x, timestep));
  if (!has_parts()) {
    unpack(front_.output("model_output"), rows, out);
    return {};
  }
  REDLINE_TRY(run_middle(rows));
  return run_tail(rows, out);
}

}  // namespace redline
