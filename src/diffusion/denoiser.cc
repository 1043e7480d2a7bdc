#include "diffusion/denoiser.h"

#include <algorithm>
#include <set>

#include "graph/external_values.h"

namespace redline {

namespace {

// Ports through which a part hands values to later ones are external (graph/external_values.h). A part may read and
// write values of one name, which are different ports.
const std::string kIn = std::string(kExternalPrefix) + "in.", kOut = std::string(kExternalPrefix) + "out.";

/// Makes the outputs of the first two parts, and the inputs of later parts that read them, external.
void hand_over(DenoiserModel& model) {
  std::set<std::string> handed;
  Graph* const parts[] = {&model.front, &model.middle, &model.tail};
  for (Graph* part : parts) {
    for (const ValueId id : part->inputs) {
      std::string& name = part->values[static_cast<size_t>(id)].name;
      if (handed.contains(name)) name.insert(0, kIn);
    }
    if (part == &model.tail) break;
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
  if (!model.middle.ops.empty()) hand_over(model);
  REDLINE_ASSIGN(d->front_, Executable::make(std::move(model.front), options, runtime));
  if (!model.middle.ops.empty()) {
    REDLINE_ASSIGN(d->middle_, Executable::make(std::move(model.middle), options, runtime));
    REDLINE_ASSIGN(d->tail_, Executable::make(std::move(model.tail), options, runtime));
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
  states_.clear();
  const LatentLayout& l = batch_.layout;
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
  rope_.clear();
  if (model_.rope_table) rope_ = model_.rope_table(batch_.text_tokens, l.height / l.patch, l.width / l.patch);
  positions_.clear();
  if (model_.position_table) {
    REDLINE_ASSIGN(positions_, model_.position_table(l.height / l.patch, l.width / l.patch));
  }
  const size_t mask_elements = is_inpainting() ? static_cast<size_t>((l.channels + 1) * l.height * l.width) : 0;
  if (batch_.mask_latents.size() != mask_elements &&
      batch_.mask_latents.size() != mask_elements * static_cast<size_t>(batch_.images))
    return invalid_argument("the mask latents have {} elements, the network takes {}", batch_.mask_latents.size(),
                            mask_elements);
  invariants_.begin(batch_, one);
  return batch_.timesteps.empty() ? Status() : invariants_.prepare(batch_.timesteps[0], adapters_);
}

// Fills the network's inputs for these rows from the batch and from the outputs of earlier parts, and runs it.
Status Denoiser::run(Executable& network, std::span<const int64_t> rows, const std::string& earlier) {
  const SymbolValues one = sizes(1);
  invariants_.bind(network, rows);
  for (const Executable::Port& port : network.inputs()) {
    if (port.name.starts_with(kIn)) {
      const std::string name = port.name.substr(kIn.size());
      const auto left = states_.find(earlier + name);
      (left != states_.end() ? left : states_.find(name))->second.bind_input(network, port.name, rows);
    }
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
    } else {
      const std::vector<float>& from = batch_.conditions[port.name];
      for (const int64_t row : rows) to = std::copy_n(from.data() + row * n, n, to);
    }
  }
  return network.run(sizes(static_cast<int64_t>(rows.size())), adapters_.segments());
}

Status Denoiser::run_and_keep(Executable& network, std::span<const int64_t> rows, const std::string& earlier,
                              const std::string& prefix) {
  if (rows.empty()) return {};
  const SymbolValues one = sizes(1);
  const auto buffer_of = [&](const Executable::Port& port) -> RowBuffer& {
    return states_[prefix + port.name.substr(kOut.size())];
  };
  for (const Executable::Port& port : network.outputs()) {
    if (!port.name.starts_with(kOut)) continue;
    RowBuffer& buffer = buffer_of(port);
    if (buffer.empty()) REDLINE_TRY(buffer.resize(network, batch_.rows, num_elements(port.shape).eval(one)));
    buffer.bind_output(network, port.name, rows);
  }
  REDLINE_TRY(run(network, rows, earlier));
  for (const Executable::Port& port : network.outputs())
    if (port.name.starts_with(kOut)) buffer_of(port).take_output(rows);
  return {};
}

Status Denoiser::run_front(std::span<const int64_t> rows, std::span<const float> x, double timestep) {
  timestep_ = timestep;
  REDLINE_TRY(invariants_.prepare(timestep, adapters_));
  const int64_t n = batch_.layout.elements();
  LatentLayout taken = batch_.layout;
  if (is_inpainting()) taken.channels = model_.in_channels;
  float* to = front_.input("latents");
  for (const int64_t row : rows) {
    const float* planes = x.data() + row % batch_.images * n;
    if (is_inpainting()) {
      planes_.assign(planes, planes + n);
      const size_t mask_elements =
          static_cast<size_t>((batch_.layout.channels + 1) * batch_.layout.height * batch_.layout.width);
      const bool is_shared = batch_.mask_latents.size() == mask_elements;
      const float* mask =
          batch_.mask_latents.data() + (is_shared ? 0 : static_cast<size_t>(row % batch_.images) * mask_elements);
      planes_.insert(planes_.end(), mask, mask + mask_elements);
      planes = planes_.data();
    }
    pack_latents(taken, planes, to);
    to += taken.elements();
  }
  return run_and_keep(front_, rows, "", "");
}

Status Denoiser::run_middle(std::span<const int64_t> rows) { return run_and_keep(middle_, rows, "", "middle."); }

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
  const auto at = states_.find(name);
  if (at == states_.end()) return invariants_.state(name, row);
  return {at->second.row(row), static_cast<size_t>(at->second.row_elements())};
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
