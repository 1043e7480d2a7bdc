#include "llm/llm_engine.h"

#include <algorithm>
#include <cmath>
#include <new>

#include "base/available_memory.h"
#include "base/hash.h"
#include "llm/text_sequence.h"
#include "machine/roofline.h"
#include "models/checkpoint/convert_graph.h"
#include "models/checkpoint/precision.h"

namespace redline {
namespace {

/// Pages that the prefix cache may hold in addition to those of requests. The pool is address space for max_sequences
/// contexts, which may be more than the machine has; without a limit of the user, a quarter of the memory that is
/// available.
int64_t unused_pages(const TextEngineOptions& options, const StatePlan& states) {
  if (options.cache_tokens > 0 || options.cache_memory > 0) return INT64_MAX;
  int64_t page_bytes = states.bytes_per_token() * kKvPageTokens;
  if (page_bytes == 0)  // the model has recurrent states only
    for (const StateGroup& group : states.groups) page_bytes += group.page_bytes;
  page_bytes = std::max<int64_t>(1, page_bytes);
  return available_memory() / 4 / page_bytes;
}

/// Incremented when the contents of cached pages change: graphs, rope, the layout of pages, roundings of
/// kernels.
constexpr int kStateVersion = 1;

/// Returns a hash of everything that cached keys and values depend on, except tokens, adapters, salt and the kernels
/// that compute them (ModelInfo::isa). 0: unknown.
uint64_t state_identity(const Checkpoint& checkpoint, const Graph& graph, const TextEngineOptions& options) {
  const std::string settings =
      fmt::format("{} {} {} {} {}", kStateVersion, checkpoint.config.dump(), options.dtype == Precision::kF32 ? 1 : 0,
                  options.batch_invariant, options.use_interpreter);
  uint64_t hash = hash_bytes(1, settings.data(), settings.size());
  for (const ValueInfo& value : graph.values) {
    if (value.kind != ValueKind::kWeight || !value.weight.file) continue;
    const MappedFile& file = *value.weight.file;
    if (file.identity() == 0) return 0;
    hash = hash_bytes(hash, value.name.data(), value.name.size());
    hash = hash_word(hash, file.identity());
    hash = hash_word(hash, static_cast<uint64_t>(static_cast<const uint8_t*>(value.weight.view.data) - file.data()));
  }
  return hash;
}

Result<std::unique_ptr<PageStore>> open_page_store(const TextEngineOptions& options, uint64_t identity,
                                                   const StatePlan& states) {
  if (options.cache_folder_bytes < 0)
    return invalid_argument("cache_folder_bytes {} must not be negative", options.cache_folder_bytes);
  PageStoreOptions store{
      options.cache_folder + "/prefix-pages", options.cache_folder_bytes, identity, {}, options.on_notice};
  for (const StateGroup& group : states.groups) store.page_bytes.push_back(group.page_bytes);
  return PageStore::open(std::move(store));
}

/// The tokens that a GGUF file names; its reader puts them into Checkpoint::generation.
FillInTokens fill_in_tokens_of(const Checkpoint& checkpoint) {
  if (checkpoint.format != "gguf") return {};  // generation_config.json of a folder may have anything under that name
  const nlohmann::json ids = checkpoint.generation.value("fill_in_tokens", nlohmann::json::object());
  const auto id = [&](const char* name) { return ids.value(name, int32_t{-1}); };
  return {id("prefix"), id("suffix"), id("middle"), id("pad"), id("repository"), id("file")};
}

}  // namespace

Result<std::unique_ptr<LlmEngine>> LlmEngine::make(Checkpoint checkpoint, const TextEngineOptions& options) {
  REDLINE_ASSIGN(LanguageModel model,
                 build_language_model(checkpoint, {.takes_embeddings = options.prompt_embeddings}));
  REDLINE_ASSIGN(const DeviceChoice device, choose_engine_device(options.device, options.use_interpreter));
  REDLINE_ASSIGN(const CpuKernels* kernels,
                 options.runtime ? &resources_of(*options.runtime).kernels() : cpu_kernels());
  const Precision precision = resolve_precision(options.dtype, *kernels, device);
  REDLINE_ASSIGN(WeightConversion conversion,
                 convert_graph_matrices(model.graph, precision, options.dtype).within(checkpoint.path));
  std::unique_ptr<LlmEngine> engine(new LlmEngine());
  LlmEngine& e = *engine;
  REDLINE_ASSIGN(e.model_, TextModel::make(checkpoint, model, options.context));
  e.model_.info.conversion = std::move(conversion);
  e.fill_in_tokens_ = fill_in_tokens_of(checkpoint);
  REDLINE_TRY(e.model_.set_chat_template(std::move(checkpoint.chat_template), options.chat_template));
  if (options.use_interpreter && !options.trace_file.empty())
    return invalid_argument("{}: the interpreter has no workers to draw a timeline of", options.trace_file);
  if (options.gpu_layers < -1)
    return invalid_argument("gpu_layers {} must be -1 (what fits and is fastest) or a number of layers",
                            options.gpu_layers);
  if (options.gpu_layers >= 0 && device.kind == DeviceKind::kCpu)
    return invalid_argument("gpu_layers {}: no layer runs on a GPU with the device cpu; give a device (cuda, emu)",
                            options.gpu_layers);
  REDLINE_ASSIGN(e.runtime_,
                 choose_runtime(options.runtime, {options.use_interpreter && !options.runtime ? 1 : options.threads,
                                                  options.trace_file}));
  e.model_.info.threads = options.use_interpreter ? 1 : e.runtime_->threads();
  e.model_.info.isa = options.use_interpreter           ? "interpreter"
                      : device.kind != DeviceKind::kCpu ? device_name(device)
                                                        : e.runtime_->isa();
  REDLINE_ASSIGN(const ModelFamily* family, find_model_family(checkpoint));
  REDLINE_ASSIGN(e.model_.adapters,
                 TextAdapters::make(model, *family, options.max_adapter_rank, options.use_interpreter));
  uint64_t identity = options.cache_folder.empty() ? 0 : state_identity(checkpoint, model.graph, options);
  REDLINE_ASSIGN(e.stepper_,
                 Stepper::make(e.model_.step_model(std::move(model.graph), resources_of(*e.runtime_).kernels()),
                               options, device, resources_of(*e.runtime_)));
  e.model_.info.context = e.stepper_->context();
  e.model_.info.device_steps = e.stepper_->executable().steps_text();
  if (const auto layers = e.stepper_->device_layers())
    e.model_.info.isa += fmt::format(", {} layers{}; {}", *layers,
                                     e.stepper_->device_experts().value_or(*layers) < *layers
                                         ? fmt::format(", experts of {}", *e.stepper_->device_experts())
                                         : "",
                                     e.runtime_->isa());
  // The number of layers on a device may depend on its free memory, so the identity is known only now.
  if (identity != 0) {
    identity = hash_bytes(identity, e.model_.info.isa.data(), e.model_.info.isa.size());
    identity = hash_word(identity, static_cast<uint64_t>(e.stepper_->kv_format()));
    if (e.stepper_->cpu_kv_format() != e.stepper_->kv_format())
      identity = hash_word(identity, static_cast<uint64_t>(e.stepper_->cpu_kv_format()));
    if (device.kind != DeviceKind::kCpu && e.stepper_->device_layers() != 0) {
      REDLINE_ASSIGN(const std::shared_ptr<OpenDevice> opened, resources_of(*e.runtime_).device(device));
      const tiles::TileDevice& table = opened->table();
      const std::string what = fmt::format("{} {} {} {}", table.name, table.model,
                                           table.library != nullptr ? table.library : "", opened->own_rows());
      identity = hash_bytes(identity, what.data(), what.size());
    }
  }
  if (options.max_prefill_tokens < 0)
    return invalid_argument("max_prefill_tokens {} must not be negative", options.max_prefill_tokens);
  if (!std::isfinite(options.max_slowdown) || (options.max_slowdown != 0 && options.max_slowdown < 1))
    return invalid_argument("max_slowdown {} must be 0 or at least 1", options.max_slowdown);
  // If rope depends on the length of the prompt, prompts cannot share keys, so there is no prefix cache.
  std::unique_ptr<PrefixCache> prefixes;
  if (options.prefix_cache && !e.stepper_->executable().has_input(PortRole::kLengths)) {
    const StatePlan& states = e.stepper_->executable().states();
    std::unique_ptr<PageStore> disk;
    if (!options.cache_folder.empty()) {
      if (identity != 0) {
        REDLINE_ASSIGN(disk, open_page_store(options, identity, states));
      } else if (options.on_notice) {
        options.on_notice(fmt::format("{}: pages are not kept in {}: the model is not a file on disk",
                                      e.model_.info.path, options.cache_folder));
      }
    }
    prefixes = std::make_unique<PrefixCache>(e.stepper_->pool(), unused_pages(options, states), std::move(disk));
  }
  e.is_exact_f32_ = options.dtype == Precision::kF32;
  if (options.num_speculative_tokens < 0 || options.num_speculative_tokens > TextEngineOptions::kMaxSpeculativeTokens)
    return invalid_argument("num_speculative_tokens {} is outside [0, {}]", options.num_speculative_tokens,
                            TextEngineOptions::kMaxSpeculativeTokens);
  Drafting drafting{{}, options.num_speculative_tokens};
  REDLINE_ASSIGN(drafting.make, drafter_from_name(options.speculate, {.vocab_size = e.model_.info.vocab_size}));
  if (drafting.make && e.stepper_->pool().has_recurrent() && options.on_notice)
    options.on_notice(
        fmt::format("{}: speculate {}: nothing is drafted, because the recurrent states of {} cannot be "
                    "rolled back to a token within a step",
                    e.model_.info.path, options.speculate, e.model_.info.architecture));
  e.loop_ = std::make_unique<GenerationLoop>(*e.stepper_, e.model_, options.max_prefill_tokens, options.max_slowdown,
                                             std::move(prefixes), std::move(drafting));
  return engine;
}

void LlmEngine::count_bounds(const MachineLimitsOf& limits_of) {
  if (counts_bounds_) return;
  const std::lock_guard asks(bounds_mutex_);
  if (counts_bounds_) return;
  MachineQuestion question{model_.info.threads, static_cast<int64_t>(step_cost(1, 0, 1).bytes), is_exact_f32_, {}};
  for (const OpCost& op : op_costs(1, 0, 1)) question.types.push_back(op.type);
  question.may_measure = !loop_->is_busy();
  std::unique_lock steps(stepper_->mutex(), std::defer_lock);
  if (question.may_measure) steps.lock();  // a concurrent step would be measured too
  MachineLimits limits = limits_of(question);
  if (limits.read_bytes_per_s <= 0 && limits.operations_per_s.empty() && !question.may_measure) return;
  if (!steps.owns_lock()) steps.lock();
  stepper_->set_bound(
      [this, limits = std::move(limits)](const StepWork& work) { return min_seconds(costs(work), limits); });
  counts_bounds_ = true;
}

Result<std::unique_ptr<Sequence>> LlmEngine::new_sequence(const AdapterWeights& adapters) {
  REDLINE_ASSIGN(std::vector<WeightedAdapter> selected, model_.adapters->select(adapters));
  return std::unique_ptr<Sequence>(new TextSequence(*stepper_, model_.info, std::move(selected)));
}

Status LlmEngine::run_batch(std::span<BatchEntry> batch) { return redline::run_batch(*stepper_, model_.info, batch); }

int64_t LlmEngine::free_cache_tokens() const {
  std::lock_guard lock(stepper_->mutex());
  return stepper_->pool().free_tokens();
}

EngineStats LlmEngine::stats() const {
  EngineStats stats = loop_->stats();
  stats.steps = stepper_->steps();
  stats.step_seconds = stepper_->step_seconds();
  stats.bound_seconds = stepper_->bound_seconds();
  stats.is_stalled = resources_of(*runtime_).watchdog().is_stalled();
  stats.cache_pages_used = stepper_->pool().used_pages();
  stats.cache_pages_stored = stepper_->pool().stored_pages();
  stats.page_tokens = kKvPageTokens;
  stats.cache_pages = stepper_->pool().capacity(stepper_->pool().counted_group());
  return stats;
}

TextEngine::MemoryReport LlmEngine::memory() const {
  MemoryReport report;
  const std::vector<const Program*> programs = stepper_->executable().programs();
  if (programs.empty()) return report;
  for (const Program* program : programs) {
    report.packed_weights += program->weight_bytes;
    report.arena += program->arena_plan.bytes;
    report.arena_without_reuse += program->arena_plan.bytes_without_reuse;
  }
  report.kv_cache = stepper_->executable().states().bytes_per_token() * model_.info.context;
  report.cache_limit = stepper_->cache_bytes();
  report.cache_touched = stepper_->pool().touched_bytes();
  return report;
}

EngineProfile::StepCost LlmEngine::step_cost(int64_t tokens, int64_t depth, int64_t sequences) const {
  StepCost cost;
  for (const OpCost& op : op_costs(tokens, depth, sequences)) {
    cost.bytes += op.bytes;
    cost.flops += op.flops;
  }
  return cost;
}

std::vector<EngineProfile::OpCost> LlmEngine::op_costs(int64_t tokens, int64_t depth, int64_t sequences) const {
  StepWork one;
  one.add_attention(stepper_->executable().states().groups, static_cast<double>(tokens), static_cast<double>(depth));
  const auto s = static_cast<double>(sequences);
  return costs({s * static_cast<double>(tokens), s, s * one.kv_bytes, s * one.pairs});
}

std::vector<EngineProfile::OpCost> LlmEngine::costs(const StepWork& work) const {
  constexpr const char* kNames[kNumKvFormats] = {"f32", "f16", "bf16"};
  return redline::op_costs(model_, work, kNames[static_cast<size_t>(stepper_->kv_format())]);
}

const EngineProfile& profile_of(const TextEngine& engine) {
  const auto* profile = dynamic_cast<const EngineProfile*>(&engine);
  REDLINE_CHECK(profile != nullptr);
  return *profile;
}
EngineProfile& profile_of(TextEngine& engine) {
  return const_cast<EngineProfile&>(
      profile_of(std::as_const(engine)));  // NOLINT(cppcoreguidelines-pro-type-const-cast)
}

std::string_view finish_reason_name(FinishReason reason) {
  static constexpr std::string_view kNames[] = {"stop", "length", "cancelled", "context", "timeout"};
  static_assert(std::size(kNames) == kNumFinishReasons);
  return kNames[static_cast<size_t>(reason)];
}

std::string_view cache_miss_name(CacheMiss miss) {
  static constexpr std::string_view kNames[] = {"none",    "disabled", "not_stored", "other_adapter",
                                                "evicted", "window",   "snapshot"};
  return kNames[static_cast<size_t>(miss)];
}

Result<std::unique_ptr<TextEngine>> TextEngine::open(const std::string& path, const TextEngineOptions& options) {
  try {
    const auto open = [&](const std::string& device) -> Result<std::unique_ptr<TextEngine>> {
      TextEngineOptions on_device = options;
      on_device.device = device;
      REDLINE_ASSIGN(Checkpoint checkpoint, Checkpoint::open(path));
      REDLINE_ASSIGN(std::unique_ptr<LlmEngine> engine, LlmEngine::make(std::move(checkpoint), on_device));
      return std::unique_ptr<TextEngine>(std::move(engine));
    };
    // gpu_layers asks for a GPU: the CPU would refuse it, and its error would hide the GPU's.
    return options.gpu_layers >= 0 ? open(options.device) : open_on_device(options.device, open);
  } catch (const std::bad_alloc&) {  // a vocabulary or an interpreter's tables that do not fit
    return out_of_memory("{}: no room to open the model", path);
  }
}

}  // namespace redline
