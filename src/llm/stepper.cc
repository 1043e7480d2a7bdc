#include "llm/stepper.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <new>

#include "base/available_memory.h"
#include "base/topology.h"
#include "graph/ops/attention.h"
#include "graph/split_graph.h"
#include "runtime/placement_speeds.h"

namespace redline {
namespace {

constexpr int64_t kMaxSequences = 4096, kMaxBatchTokens = int64_t{1} << 20;
// Logits of a whole prompt are computed in steps of this many rows: with a large vocabulary a row is half a megabyte.
constexpr int64_t kUsualLogitRows = 64;
// Page numbers and slots of tokens are int32.
constexpr int64_t kMaxPages = (int64_t{1} << 31) / kKvPageTokens - 1;
// Pages of recurrent states per sequence: its state, the next one, the one before the last step, and as many snapshots
// as fit in a quarter of the available memory.
constexpr int64_t kMinRecurrentPages = 4, kMaxRecurrentPages = 16;
// Numbers that for_each() reads on one thread in about the time that it takes to wake another, tens of microseconds.
constexpr int64_t kSmallWork = 1 << 15;
// A context that the user has not set has at least this many tokens, if the model has as many. It is a multiple of the
// unit, so that small differences of memory do not change it.
constexpr int64_t kMinContext = 4096, kContextUnit = 1024;

KvFormats choose_kv_formats(const StepModel& model, const ExecutableOptions& options, const RuntimeResources& runtime) {
  if (runtime.kv_formats) return *runtime.kv_formats;
  if (options.exact_f32 || options.interpret) return {KvFormat::kF32, KvFormat::kF32};
  return {KvFormat::kF16, model.cpu_kv_format};
}

int64_t num_layers(const Graph& graph) {
  int64_t layers = 0;
  while (first_op_of_layer(graph, layers) < graph.ops.size()) ++layers;
  return layers;
}

/// The heads of the first attention of a graph that reads states with a window.
struct AttentionHeads {
  int64_t window, queries, keys, size;
};

std::vector<AttentionHeads> heads_by_window(const Graph& graph) {
  std::vector<AttentionHeads> heads;
  for (const Op& op : graph.ops)
    for (size_t i = 0; op.def == &kAttention && i < op.inputs.size(); ++i) {
      const ValueInfo& value = graph.value(op.inputs[i]);
      const StateAttrs& state = value.state;
      const auto has_window = [&](const AttentionHeads& known) { return known.window == state.window; };
      if (value.kind == ValueKind::kState && std::none_of(heads.begin(), heads.end(), has_window))
        heads.push_back(
            {state.window, std::any_cast<const AttentionAttrs&>(op.attrs).num_heads, state.num_heads, state.head_dim});
    }
  return heads;
}

int64_t num_tokens(const StepEntry& entry) { return static_cast<int64_t>(entry.tokens.size()); }

}  // namespace

Result<std::unique_ptr<Stepper>> Stepper::make(StepModel model, const TextEngineOptions& options,
                                               const DeviceChoice& device, RuntimeResources& runtime) {
  std::unique_ptr<Stepper> stepper(new Stepper());
  Stepper& s = *stepper;
  s.runtime_ = &runtime;
  s.context_ = model.context;
  s.is_context_set_ = options.context > 0;
  s.weight_bytes_ = model.weight_bytes;
  s.vocab_size_ = model.vocab_size;
  REDLINE_TRY(s.set_limits(options));
  ExecutableOptions e;
  e.interpret = options.use_interpreter;
  e.device = device;
  e.bounds[Symbol::kTokens] = s.max_batch_tokens_;
  e.bounds[Symbol::kSequences] = s.max_sequences_;
  e.bounds[Symbol::kLogitRows] = s.max_logit_rows_;
  e.bounds[Symbol::kHiddenRows] = s.max_batch_tokens_;
  e.exact_f32 = options.dtype == Precision::kF32;
  e.batch_invariance = options.batch_invariant ? BatchInvariance::kAlways : BatchInvariance::kWhereFree;
  s.kv_formats_ = choose_kv_formats(model, e, runtime);
  Graph& graph = model.graph;
  const std::vector<AttentionHeads> heads = heads_by_window(graph);
  if (const ValueId logits = graph.find_output(PortRole::kLogits); logits >= 0)
    e.sample_from = graph.value(logits).name;
  if (options.gpu_layers >= 0 && options.gpu_layers < num_layers(graph)) e.device_layers = options.gpu_layers;
  // A model that does not fit is compiled again in parts, so its weights must not be released before, or must be made
  // again.
  if (device.kind != DeviceKind::kCpu && options.gpu_layers < 0)
    for (ValueInfo& value : graph.values) {
      const auto& file = value.weight.file;
      if (!file || !file->is_made_lazily()) value.weight.is_shared = true;
    }
  if (device.kind == DeviceKind::kCpu || e.interpret) {
    REDLINE_TRY(s.open(std::move(graph), e, options));
  } else if (Status status = s.open(graph, e, options); is_out_of_memory(status.code())) {
    if (options.gpu_layers >= 0)
      return Status(status.code(),
                    status.message() + "; fewer gpu_layers leave more layers to the CPU (--gpu-layers N)");
    REDLINE_TRY(s.open_in_parts(graph, e, options, status));
  } else {
    REDLINE_TRY(status);
  }
  for (const StateGroup& group : s.executable_.states().groups) {
    GroupStep& step = s.groups_.emplace_back();
    step.pages.reserve(static_cast<size_t>(s.max_sequences_));
    if (group.kind != StateKind::kKeyValue) continue;
    step.slots.resize(static_cast<size_t>(s.max_batch_tokens_));
    const auto of_group = std::find_if(heads.begin(), heads.end(),
                                       [&](const AttentionHeads& known) { return known.window == group.window; });
    const AttentionLimits limits = s.executable_.attention_limits(s.groups_.size() - 1);
    if (limits.partitions > 0 && of_group != heads.end())
      step.plan = std::make_unique<AttentionPlan>(
          AttentionPlanShape{limits, of_group->queries, of_group->keys, of_group->size, s.max_batch_tokens_,
                             s.max_sequences_, kv_element_bytes(s.kv_format()), cache_sizes().l2});
  }
  s.states_.resize(s.groups_.size());
  s.rows_.reserve(static_cast<size_t>(s.max_sequences_));
  s.adapters_.reserve(static_cast<size_t>(3 * s.max_sequences_));
  return stepper;
}

Status Stepper::open(Graph graph, const ExecutableOptions& executable, const TextEngineOptions& options) {
  device_layers_ = executable.device_layers;
  device_experts_ = executable.device_experts;
  is_on_cpu_ = executable.device.kind == DeviceKind::kCpu;
  device_ = executable.device;
  const size_t first_cpu_op = is_on_cpu_       ? 0
                              : device_layers_ ? first_op_of_layer(graph, *device_layers_)
                                               : graph.ops.size();
  set_kv_formats(graph, kv_formats_, first_cpu_op);
  executable_ = {};
  REDLINE_ASSIGN(executable_, Executable::make(std::move(graph), executable, *runtime_));
  return make_pool(options);
}

// The estimate counts weights and states only; the other memory of a step is small. If a step does not fit, fewer
// layers are put on the device.
Status Stepper::open_in_parts(const Graph& graph, ExecutableOptions executable, const TextEngineOptions& options,
                              const Status& why) {
  executable_ = {};
  const int64_t layers = num_layers(graph);
  if (layers == 0) return why;
  // Layers on the device are preferred to a longer context.
  if (!is_context_set_) context_ = min_context();
  int64_t states = 0;
  Graph all_on_device = graph;
  set_kv_format(all_on_device, kv_formats_.device);
  for (const StateGroup& group : redline::plan_states(all_on_device, StateStorage::kDevice).groups)
    states += group.page_bytes *
              (group.kind == StateKind::kRecurrent ? kMinRecurrentPages * max_sequences_ : kv_pages_for(context_));
  REDLINE_ASSIGN(const std::shared_ptr<OpenDevice> device, runtime_->device(executable.device));
  const ModelCost model = model_cost(graph, layers, states);
  PlacementSpeeds speeds;
  LayerPlacement placement;  // no layer if the device has no memory for the measurement
  if (runtime_->placement_speeds) {
    speeds = *runtime_->placement_speeds;
  } else if (auto measured = measure_placement_speeds(graph, executable.device, *runtime_); measured.ok()) {
    speeds = *measured;
  } else if (!is_out_of_memory(measured.status().code())) {
    return measured.status();
  }
  REDLINE_ASSIGN(const OpenDevice::Memory memory, device->memory());
  if (speeds.device.bytes_per_second > 0) placement = place_layers(model, speeds, memory.usable());
  // An attempt uploads and packs as much as it can, so each further attempt has at least one layer less.
  int64_t layer_bytes = 1;
  for (const LayerCost& layer : model.layers) layer_bytes = std::max(layer_bytes, layer.bytes);
  for (;; placement = place_layers(model, speeds, placement.device_bytes - layer_bytes)) {
    executable.device_layers = placement.layers;
    executable.device_experts = placement.expert_layers;
    if (placement.layers == 0) executable.device = {};
    Status status = open(graph, executable, options);
    if (status.ok()) break;
    if (!is_out_of_memory(status.code()) || placement.layers == 0) return status;
  }
  if (placement.layers == 0) {
    note_device(fmt::format("the CPU runs all layers, since none on {} would make a step faster ({})", device->name(),
                            why.message()));
    return {};
  }
  std::string experts;
  if (placement.expert_layers < placement.layers)
    experts = fmt::format(", without the experts of {} of them", placement.layers - placement.expert_layers);
  note_device(
      fmt::format("{} runs {} of {} layers{}, and the CPU the rest: a token reads weights at {:.1f} GB/s on {} and at "
                  "{:.1f} GB/s on the CPU ({})",
                  device->name(), placement.layers, layers, experts, speeds.device.bytes_per_second / 1e9,
                  device->name(), speeds.cpu.bytes_per_second / 1e9, why.message()));
  return {};
}

Status Stepper::set_limits(const TextEngineOptions& options) {
  if (options.max_batch_tokens < 1 || options.max_batch_tokens > kMaxBatchTokens)
    return invalid_argument("max_batch_tokens {} is outside [1, {}]", options.max_batch_tokens, kMaxBatchTokens);
  if (options.max_sequences < 1 || options.max_sequences > kMaxSequences)
    return invalid_argument("max_sequences {} is outside [1, {}]", options.max_sequences, kMaxSequences);
  if (options.cache_tokens < 0)
    return invalid_argument("cache_tokens {} must not be negative; 0 is as many as max_sequences contexts hold",
                            options.cache_tokens);
  if (options.cache_memory < 0)
    return invalid_argument("cache_memory {} must not be negative; 0 is as much as cache_tokens need",
                            options.cache_memory);
  max_batch_tokens_ = std::min(options.max_batch_tokens, context_ * options.max_sequences);
  max_sequences_ = std::min(options.max_sequences, max_batch_tokens_);
  max_logit_rows_ = std::min(std::max(kUsualLogitRows, max_sequences_), max_batch_tokens_);
  return {};
}

// A window needs pages for its positions, the slack, and the tokens of a step; the first and the last page may be
// partly filled.
std::vector<int64_t> Stepper::pages_of_groups(int64_t cache_pages) const {
  std::vector<int64_t> pages;
  for (const StateGroup& group : executable_.states().groups) {
    int64_t n = cache_pages;
    if (group.kind == StateKind::kRecurrent) n = recurrent_pages_;
    else if (group.window > 0)
      n = std::min(n, max_sequences_ * (kv_pages_for(group.window + kWindowSlack + max_batch_tokens_) + 2));
    pages.push_back(n);
  }
  return pages;
}

int64_t Stepper::cache_bytes(int64_t cache_pages) const {
  const std::vector<int64_t> pages = pages_of_groups(cache_pages);
  int64_t bytes = 0;
  for (size_t g = 0; g < pages.size(); ++g) bytes += pages[g] * executable_.states().groups[g].page_bytes;
  return bytes;
}

Result<int64_t> Stepper::default_cache_bytes() const {
  if (!is_on_cpu_) {
    REDLINE_ASSIGN(const std::shared_ptr<OpenDevice> device, runtime_->device(device_));
    REDLINE_ASSIGN(const OpenDevice::Memory memory, device->memory());
    return memory.usable() / 2;
  }
  // Weights that steps read from their file take memory when they are read; packed weights have taken it already.
  int64_t packed = 0;
  for (const Program* program : executable_.programs()) packed += program->weight_bytes;
  return std::max<int64_t>(0, available_memory() - std::max<int64_t>(0, weight_bytes_ - packed)) / 2;
}

int64_t Stepper::pages_within(int64_t bytes, int64_t most) const {
  int64_t fits = 1, too_many = most + 1;
  while (too_many - fits > 1) {
    const int64_t pages = fits + (too_many - fits) / 2;
    (cache_bytes(pages) <= bytes ? fits : too_many) = pages;
  }
  return fits;
}

int64_t Stepper::min_context() const { return std::min(context_, kMinContext); }

void Stepper::fit_context() {
  const int64_t held = cache_pages_ * kKvPageTokens / kContextUnit * kContextUnit;
  context_ = std::min(context_, std::max(min_context(), held));
}

Status Stepper::make_pool(const TextEngineOptions& options) {
  int64_t recurrent_bytes = 0;
  for (const StateGroup& group : executable_.states().groups)
    if (group.kind == StateKind::kRecurrent) recurrent_bytes += group.page_bytes;
  if (recurrent_bytes > 0)
    recurrent_pages_ = std::clamp(available_memory() / 4 / recurrent_bytes, kMinRecurrentPages * max_sequences_,
                                  kMaxRecurrentPages * max_sequences_);
  const int64_t asked =
      options.cache_tokens > 0 ? kv_pages_for(options.cache_tokens) : kv_pages_for(context_) * options.max_sequences;
  cache_pages_ = std::min(asked, kMaxPages);
  // The pool is address space, which a system may limit. One full context is required; more is optional unless the user
  // set it.
  const bool is_set = options.cache_tokens > 0 || options.cache_memory > 0;
  int64_t least = kv_pages_for(is_context_set_ ? context_ : min_context());
  if (options.cache_memory > 0) {
    if (cache_bytes(1) > options.cache_memory)
      return invalid_argument("cache_memory {}: one page of {} tokens and its states take {} bytes",
                              options.cache_memory, kKvPageTokens, cache_bytes(1));
    cache_pages_ = pages_within(options.cache_memory, cache_pages_);
  } else if (!is_set) {
    REDLINE_ASSIGN(const int64_t bytes, default_cache_bytes());
    cache_pages_ = std::max(std::min(least, kMaxPages), pages_within(bytes, cache_pages_));
  }
  if (is_set) least = cache_pages_;
  Result<std::unique_ptr<StateMemory>> memory = executable_.make_state_memory(pages_of_groups(cache_pages_));
  while (!memory.ok() && cache_pages_ > least) {
    cache_pages_ = std::max(least, cache_pages_ / 2);
    memory = executable_.make_state_memory(pages_of_groups(cache_pages_));
  }
  REDLINE_TRY(memory);
  if (!is_context_set_) fit_context();
  pool_ = std::make_unique<StatePool>(executable_.states(), pages_of_groups(cache_pages_), std::move(memory).value());
  return {};
}

Status Stepper::check(const StepEntry& entry) const {
  const int64_t count = num_tokens(entry);
  if (count == 0) return invalid_argument("no tokens to run");
  for (const int32_t id : entry.tokens)
    if (id < 0 || id >= vocab_size_)
      return invalid_argument("token {} is outside the vocabulary of {}", id, vocab_size_);
  if (entry.state->length() + count > context_)
    return invalid_argument("{} tokens do not fit: the context holds {}, {} are taken", count, context_,
                            entry.state->length());
  if (std::max(entry.logit_rows, entry.hidden_rows) > count)
    return invalid_argument("logits of {} rows are requested, there are {} tokens",
                            std::max(entry.logit_rows, entry.hidden_rows), count);
  return {};
}

Status Stepper::check_limits(std::span<const StepEntry> batch) const {
  int64_t tokens = 0, rows = 0, hidden = 0;
  for (const StepEntry& entry : batch) {
    tokens += num_tokens(entry);
    rows += entry.logit_rows;
    hidden += entry.hidden_rows;
  }
  if ((rows > 0 && !executable_.has_output(PortRole::kLogits)) ||
      (hidden > 0 && !executable_.has_output(PortRole::kHidden)))
    return internal("a step asks for {} rows of logits and {} of hidden states, which the network does not compute",
                    rows, hidden);
  if (batch.empty() || std::ssize(batch) > max_sequences_ || tokens > max_batch_tokens_ || rows > max_logit_rows_)
    return internal("a step of {} sequences, {} tokens and {} rows of logits", batch.size(), tokens, rows);
  return {};
}

Status Stepper::run(std::span<const StepEntry> batch) {
  for (const StepEntry& entry : batch) REDLINE_TRY(entry.state->reserve(num_tokens(entry)));
  write_inputs(batch);
  plan_states();
  plan_adapters(batch);
  StepContext context;
  context.sizes[Symbol::kTokens] = rows_.back().row_begin + rows_.back().rows;
  context.sizes[Symbol::kSequences] = static_cast<int64_t>(batch.size());
  for (const StepEntry& entry : batch) {
    context.sizes[Symbol::kLogitRows] += entry.logit_rows;
    context.sizes[Symbol::kHiddenRows] += entry.hidden_rows;
  }
  context.sequences = rows_;
  context.states = states_;
  context.adapters = adapters_;
  samples_.clear();
  if (std::any_of(batch.begin(), batch.end(), [](const StepEntry& entry) { return entry.sample != nullptr; }))
    for (const StepEntry& entry : batch)
      for (int64_t row = 0; row < entry.logit_rows; ++row)
        samples_.push_back(entry.sample != nullptr ? *entry.sample : SampleRow{});
  context.samples = samples_;
  return executable_.run(context);
}

Status Stepper::step(std::span<const StepEntry> batch, const std::function<Status()>& check_logits) {
  REDLINE_TRY(check_limits(batch));
  const auto start = std::chrono::steady_clock::now();
  Status status;
  try {
    status = run(batch);
  } catch (const std::bad_alloc&) {  // page tables; the tensors of the interpreter
    status = out_of_memory("no room for a step of {} sequences", batch.size());
  }
  if (status.ok() && check_logits) status = check_logits();
  if (status.ok() && bound_)
    bound_seconds_.store(bound_seconds() + bound_(work(batch)), std::memory_order_relaxed);  // under the mutex
  for (const StepEntry& entry : batch) {
    if (status.ok()) entry.state->commit(num_tokens(entry));
    else entry.state->rollback();
  }
  if (status.ok()) {
    steps_.fetch_add(1, std::memory_order_relaxed);
    step_ns_.fetch_add(std::chrono::nanoseconds(std::chrono::steady_clock::now() - start).count(),
                       std::memory_order_relaxed);
  }
  return status;
}

void Stepper::set_cached_bytes(int64_t bytes) {
  for (GroupStep& group : groups_)
    if (group.plan) group.plan->set_cached_bytes(bytes);
}

StepWork Stepper::work(std::span<const StepEntry> batch) const {
  StepWork work;
  for (const StepEntry& entry : batch) {
    const auto n = static_cast<double>(num_tokens(entry)), depth = static_cast<double>(entry.state->length());
    work.tokens += n;
    work.logit_rows += static_cast<double>(entry.logit_rows);
    work.add_attention(executable_.states().groups, n, depth);
  }
  for (size_t g = 0; g < groups_.size(); ++g)
    if (groups_[g].plan)
      work.kv_bytes -= static_cast<double>(groups_[g].plan->shared_positions()) * position_bytes(pool_->group(g));
  return work;
}

void Stepper::for_each(int64_t count, int64_t work, const std::function<void(int64_t)>& fn) {
  if (count > 1 && count * work > kSmallWork && runtime_->team().size() > 1) {
    const std::unique_lock workers(runtime_->mutex(), std::try_to_lock);
    if (workers.owns_lock()) return runtime_->team().parallel_for(count, 1, [&](int64_t i, int64_t) { fn(i); });
  }
  for (int64_t i = 0; i < count; ++i) fn(i);
}

void Stepper::write_inputs(std::span<const StepEntry> batch) {
  int32_t *tokens = executable_.input_i32(PortRole::kTokens), *positions = executable_.input_i32(PortRole::kPositions),
          *lengths = executable_.input_i32(PortRole::kLengths),
          *logit_rows = executable_.input_i32(PortRole::kLogitRows),
          *hidden_rows = executable_.input_i32(PortRole::kHiddenRows);
  rows_.clear();
  for (GroupStep& group : groups_) group.pages.clear();
  int32_t row = 0;
  for (const StepEntry& entry : batch) {
    const int64_t first = entry.state->length(), n = num_tokens(entry);
    std::memcpy(tokens + row, entry.tokens.data(), entry.tokens.size_bytes());
    for (int64_t i = 0; i < n; ++i) {
      positions[row + i] = static_cast<int32_t>(first + i);
      if (lengths)
        lengths[row + i] = static_cast<int32_t>(std::min(std::max(entry.expected_length, first + i + 1), context_));
    }
    for (size_t g = 0; g < groups_.size(); ++g) {
      groups_[g].pages.push_back(entry.state->pages(g));
      if (groups_[g].slots.empty()) continue;
      for (int64_t i = 0; i < n; ++i) groups_[g].slots[static_cast<size_t>(row + i)] = entry.state->slot(g, first + i);
    }
    rows_.push_back({row, static_cast<int32_t>(n), first});
    row += static_cast<int32_t>(n);
    for (int64_t i = entry.logit_rows; i > 0; --i) *logit_rows++ = row - static_cast<int32_t>(i);
    for (int64_t i = entry.hidden_rows; i > 0; --i) *hidden_rows++ = row - static_cast<int32_t>(i);
  }
}

void Stepper::plan_states() {
  for (size_t g = 0; g < groups_.size(); ++g) {
    const StateGroup& group = pool_->group(g);
    StateStep& state = states_[g];
    state.memory = pool_->memory().pages(g);
    state.page_bytes = group.page_bytes;
    state.pages = groups_[g].pages.data();
    state.slots = groups_[g].slots.data();
    if (!groups_[g].plan) continue;
    groups_[g].plan->make(rows_, group.window, groups_[g].pages);
    state.attention = groups_[g].plan->work();
  }
}

// Neighbours with the same adapters share a segment, and so its products.
void Stepper::plan_adapters(std::span<const StepEntry> batch) {
  const auto same = [](const WeightedAdapter& a, const WeightedAdapter& b) {
    return a.adapter == b.adapter && a.weight == b.weight;
  };
  adapters_.clear();
  for (const Symbol unit : {Symbol::kTokens, Symbol::kLogitRows, Symbol::kHiddenRows}) {
    const size_t first = adapters_.size();
    int64_t row = 0;
    for (const StepEntry& entry : batch) {
      const int64_t begin = row, n = unit == Symbol::kTokens      ? num_tokens(entry)
                                     : unit == Symbol::kLogitRows ? entry.logit_rows
                                                                  : entry.hidden_rows;
      row += n;
      if (n == 0 || entry.adapters.empty()) continue;
      if (adapters_.size() > first && adapters_.back().row_end == begin &&
          std::equal(entry.adapters.begin(), entry.adapters.end(), adapters_.back().adapters.begin(),
                     adapters_.back().adapters.end(), same))
        adapters_.back().row_end = row;
      else adapters_.push_back({unit, begin, row, entry.adapters});
    }
  }
}

BatchLimits Stepper::limits() const {
  return {max_batch_tokens_, max_sequences_, max_logit_rows_, pool_->capacity_tokens(), kKvPageTokens};
}

}  // namespace redline
