#include "llm/llm_engine.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <new>

#include "backends/cpu/lowering.h"
#include "base/settings.h"
#include "base/topology.h"
#include "graph/ops/linear.h"
#include "graph/passes/passes.h"
#include "llm/session.h"

namespace redline {
namespace {

constexpr int64_t kDefaultContext = 4096;
constexpr int64_t kMaxSequences = 4096, kMaxChunk = int64_t{1} << 20;
// Logits of a whole prompt are computed in steps of this many rows: with a large vocabulary a row is half a megabyte.
constexpr int64_t kUsualLogitRows = 64;
// Page numbers and slots of tokens are int32.
constexpr int64_t kMaxPages = (int64_t{1} << 31) / kPageTokens - 1;

std::string spell_types(const std::map<DType, int64_t>& counts) {
  std::string text;
  for (auto [dtype, count] : counts)
    text += fmt::format("{}{} x{}", text.empty() ? "" : ", ", dtype_info(dtype).name, count);
  return text;
}

Result<SamplingOptions> read_sampling(const nlohmann::json& generation) {
  SamplingOptions s;
  s.temperature = 0.8f;
  s.top_p = 0.95f;
  ConfigReader r(generation);
  const bool does_sample = r.boolean("do_sample", true);
  if (r.has("do_sample")) {  // transformers' GenerationConfig defaults for missing keys
    s.temperature = 1.0f;
    s.top_p = 1.0f;
    s.top_k = 50;
  }
  s.temperature = static_cast<float>(r.number("temperature", 0, 100, s.temperature));
  // 0 keeps only the most likely token
  s.top_p = std::max(1e-6f, static_cast<float>(r.number("top_p", 0, 1, s.top_p)));
  s.top_k = std::max<int64_t>(0, r.integer("top_k", -1, int64_t{1} << 31, s.top_k));  // llama.cpp: -1 is off too
  s.min_p = static_cast<float>(r.number("min_p", 0, 1, 0.0));
  s.repetition_penalty = static_cast<float>(r.number("repetition_penalty", 1e-3, 100, 1.0));
  if (!does_sample) s.temperature = 0;
  REDLINE_TRY(r.status().within("generation_config.json"));
  return s;
}

}  // namespace

Result<std::unique_ptr<LlmEngine>> LlmEngine::make(Checkpoint checkpoint, const TextEngineOptions& options) {
  REDLINE_ASSIGN(Settings settings, read_settings());
  REDLINE_ASSIGN(LanguageModel model, build_language_model(checkpoint));
  std::unique_ptr<LlmEngine> engine(new LlmEngine());
  LlmEngine& e = *engine;
  e.config_ = model.config;
  REDLINE_ASSIGN(e.sampling_, read_sampling(checkpoint.generation).within(checkpoint.path));
  e.tokenizer_ = std::move(checkpoint.tokenizer);
  e.tokenizer_status_ = checkpoint.tokenizer_status;
  e.stop_tokens_ = checkpoint.stop_tokens;
  if (e.tokenizer_) e.bos_ = e.tokenizer_->bos();
  else if (std::vector<int32_t> ids = read_token_ids(checkpoint.config, "bos_token_id"); !ids.empty()) e.bos_ = ids[0];

  const DecoderConfig& c = e.config_;
  ModelInfo& info = e.info_;
  info.path = checkpoint.path;
  info.architecture = model.graph.name;
  info.file_format = checkpoint.format;
  std::map<DType, int64_t> types;
  for (const ValueInfo& value : model.graph.values)
    if (value.kind == ValueKind::kWeight) {
      ++types[value.dtype];
      info.parameters += value.weight.view.num_elements();
      info.weight_bytes += value.weight.view.bytes();
    }
  info.weight_types = spell_types(types);
  info.num_layers = c.num_layers;
  info.hidden_size = c.hidden_size;
  info.num_heads = c.num_heads;
  info.num_kv_heads = c.num_kv_heads;
  info.head_dim = c.head_dim;
  info.intermediate_size = c.intermediate_size;
  info.vocab_size = c.vocab_size;
  info.model_context = c.max_positions;
  constexpr int64_t kMaxContext = int64_t{1} << 24;
  if (options.context < 0 || options.context > kMaxContext)
    return invalid_argument("context {} is outside [1, {}]", options.context, kMaxContext);
  info.context = options.context > 0 ? options.context : std::min(c.max_positions, kDefaultContext);
  info.has_tokenizer = e.tokenizer_ != nullptr;
  REDLINE_ASSIGN(const int threads, choose_threads(options.threads, settings.threads));
  info.threads = options.use_interpreter ? 1 : threads;
  info.isa = options.use_interpreter ? "interpreter" : std::string(cpu_isa_in_use());
  REDLINE_TRY(e.set_limits(options));

  for (const Op& op : model.graph.ops) {
    if (op.def != &kLinear) continue;
    const TensorView& weight = model.graph.value(op.inputs[1]).weight.view;
    const bool is_output = op.outputs[0] == model.graph.outputs[0];
    auto cost = std::find_if(e.linear_costs_.begin(), e.linear_costs_.end(), [&](const LinearCost& known) {
      return known.dtype == weight.dtype && known.is_output == is_output;
    });
    if (cost == e.linear_costs_.end()) cost = e.linear_costs_.insert(cost, LinearCost{weight.dtype, is_output, 0, 0});
    cost->bytes += static_cast<double>(weight.bytes());
    cost->flops += 2 * static_cast<double>(weight.num_elements());
  }
  if (options.use_interpreter) {
    if (!options.trace_file.empty())
      return invalid_argument("{}: the interpreter has no workers to draw a timeline of", options.trace_file);
    REDLINE_ASSIGN(Interpreter interpreter, Interpreter::make(std::move(model.graph)));
    e.interpreter_ = std::make_unique<Interpreter>(std::move(interpreter));
    return engine;
  }
  if (!options.trace_file.empty()) {
    REDLINE_ASSIGN(e.timeline_, TimelineFile::open(options.trace_file, info.threads, settings.trace_events));
  }
  REDLINE_TRY(e.compile_graph(std::move(model.graph), options, settings.hang_seconds));
  return engine;
}

Status LlmEngine::set_limits(const TextEngineOptions& options) {
  if (options.max_batch_tokens < 1 || options.max_batch_tokens > kMaxChunk)
    return invalid_argument("max_batch_tokens {} is outside [1, {}]", options.max_batch_tokens, kMaxChunk);
  if (options.max_sequences < 1 || options.max_sequences > kMaxSequences)
    return invalid_argument("max_sequences {} is outside [1, {}]", options.max_sequences, kMaxSequences);
  if (options.cache_tokens < 0)
    return invalid_argument("cache_tokens {} must not be negative; 0 is as many as max_sequences contexts hold",
                            options.cache_tokens);
  max_batch_tokens_ = std::min(options.max_batch_tokens, info_.context * options.max_sequences);
  max_sequences_ = std::min(options.max_sequences, max_batch_tokens_);
  max_logit_rows_ = std::min(std::max(kUsualLogitRows, max_sequences_), max_batch_tokens_);
  const int64_t context_pages = (info_.context + kPageTokens - 1) / kPageTokens;
  const int64_t pages = options.cache_tokens > 0 ? (options.cache_tokens + kPageTokens - 1) / kPageTokens
                                                 : context_pages * options.max_sequences;
  cache_pages_ = std::min(pages, kMaxPages);
  // If windows differ, the plan of a step, which all layers share, is balanced for layers with full attention.
  const std::vector<int64_t>& windows = config_.window;
  const bool same = std::all_of(windows.begin(), windows.end(), [&](int64_t w) { return w == windows[0]; });
  plan_window_ = same && !windows.empty() ? windows[0] : 0;
  step_rows_.reserve(static_cast<size_t>(max_sequences_));
  step_pages_.reserve(static_cast<size_t>(max_sequences_));
  return {};
}

Status LlmEngine::compile_graph(Graph graph, const TextEngineOptions& options, double hang_seconds) {
  REDLINE_ASSIGN(const CpuKernels* kernels, cpu_kernels());
  team_ = std::make_unique<WorkerTeam>(info_.threads, std::pair{kernels->worker_begin, kernels->worker_end});
  info_.threads = team_->size();
  REDLINE_TRY(run_passes(graph));
  CompileOptions compile_options;
  compile_options.bounds[Symbol::kTokens] = max_batch_tokens_;
  compile_options.bounds[Symbol::kSequences] = max_sequences_;
  compile_options.bounds[Symbol::kLogitRows] = max_logit_rows_;
  compile_options.kernels = kernels;
  compile_options.exact_f32 = options.dtype == ComputeType::kF32;
  compile_options.kv_format = compile_options.exact_f32 ? KvFormat::kF32 : KvFormat::kF16;
  REDLINE_ASSIGN(compile_options.weight_cache.cache, read_cache_settings());
  compile_options.weight_cache.kernels = cpu_isa_in_use();
  REDLINE_ASSIGN(Program program, compile(std::move(graph), compile_options, *team_));
  plan_ = std::make_unique<AttentionPlan>(AttentionPlanShape{program.attention_slots, config_.num_heads,
                                                             config_.num_kv_heads, config_.head_dim, max_batch_tokens_,
                                                             max_sequences_});
  ExecutorOptions executor_options;
  executor_options.hang_seconds = hang_seconds;
  executor_options.timeline = timeline_.timeline();
  runner_ = std::make_unique<Executor>(std::move(program), *team_, executor_options);

  KvCacheShape shape;
  shape.num_layers = config_.num_layers;
  shape.num_kv_heads = config_.num_kv_heads;
  shape.head_dim = config_.head_dim;
  shape.num_pages = cache_pages_;
  shape.format = compile_options.kv_format;
  Result<KvCache> cache = KvCache::make(shape);
  // The pool is address space, which a system may limit. One full context is required; more is optional unless the user
  // set it.
  const int64_t least = options.cache_tokens > 0 ? cache_pages_ : (info_.context + kPageTokens - 1) / kPageTokens;
  while (!cache.ok() && shape.num_pages > least) {
    shape.num_pages = std::max(least, shape.num_pages / 2);
    cache = KvCache::make(shape);
  }
  REDLINE_TRY(cache);
  cache_pages_ = shape.num_pages;
  cache_ = std::make_unique<KvCache>(std::move(cache).value());
  return {};
}

LlmEngine::~LlmEngine() { timeline_.write(); }

Result<std::unique_ptr<Session>> LlmEngine::new_session() {
  if (interpreter_) return std::unique_ptr<Session>(new InterpretedSession(*this));
  return std::unique_ptr<Session>(new CompiledSession(*this));
}

Result<std::vector<int32_t>> LlmEngine::encode(std::string_view text, bool special, bool add_bos) const {
  if (!tokenizer_) return tokenizer_status_.ok() ? not_found("{} has no tokenizer", info_.path) : tokenizer_status_;
  std::vector<int32_t> ids = tokenizer_->encode(text, {add_bos, special});
  // A chat template writes the BOS token itself.
  if (special && add_bos && tokenizer_->adds_bos() && ids.size() > 1 && ids[0] == bos_ && ids[1] == bos_)
    ids.erase(ids.begin());
  return ids;
}
Result<std::string> LlmEngine::decode(std::span<const int32_t> tokens, bool special) const {
  if (!tokenizer_) return tokenizer_status_.ok() ? not_found("{} has no tokenizer", info_.path) : tokenizer_status_;
  return tokenizer_->decode({tokens.begin(), tokens.end()}, special);
}

std::string LlmEngine::describe_program() const {
  return runner_ ? runner_->program().to_string() : interpreter_->graph().to_string();
}

TextEngine::MemoryReport LlmEngine::memory() const {
  MemoryReport report;
  if (!runner_) return report;
  const Program& program = runner_->program();
  report.packed_weights = program.weight_bytes;
  report.arena = program.arena_plan.bytes;
  report.arena_without_reuse = program.arena_plan.bytes_without_reuse;
  report.kv_cache = cache_->bytes_per_token() * info_.context;
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
  const double n = static_cast<double>(tokens), d = static_cast<double>(depth), s = static_cast<double>(sequences);
  std::vector<OpCost> costs;
  for (const LinearCost& linear : linear_costs_)
    costs.push_back({linear.is_output ? "output" : "layers", std::string(dtype_info(linear.dtype).name), linear.bytes,
                     linear.flops * (linear.is_output ? s : s * n)});
  const double kv_bytes = cache_ ? static_cast<double>(cache_->bytes_per_token()) : 0;
  // Q K^T and P V of every query head over the positions that its token attends to.
  const double seen = n * d + n * (n + 1) / 2;
  costs.push_back({"attention", cache_ && cache_->view().format != KvFormat::kF32 ? "f16" : "f32",
                   s * kv_bytes * (d + n),
                   s * 4 * seen * static_cast<double>(config_.num_heads * config_.head_dim * config_.num_layers)});
  return costs;
}

const EngineProfile& profile_of(const TextEngine& engine) {
  const auto* profile = dynamic_cast<const EngineProfile*>(&engine);
  REDLINE_CHECK(profile != nullptr);
  return *profile;
}

Result<ComputeType> compute_type_from_name(std::string_view name) {
  if (name == "auto") return ComputeType::kAuto;
  if (name == "f32") return ComputeType::kF32;
  return invalid_argument("dtype \"{}\" is neither auto nor f32", name);
}

std::string_view finish_reason_name(FinishReason reason) {
  static constexpr std::string_view kNames[] = {"stop", "length", "cancelled", "context"};
  return kNames[static_cast<size_t>(reason)];
}

Result<std::unique_ptr<TextEngine>> TextEngine::open(const std::string& path, const TextEngineOptions& options) {
  try {
    REDLINE_ASSIGN(Checkpoint checkpoint, Checkpoint::open(path));
    REDLINE_ASSIGN(std::unique_ptr<LlmEngine> engine, LlmEngine::make(std::move(checkpoint), options));
    return std::unique_ptr<TextEngine>(std::move(engine));
  } catch (const std::bad_alloc&) {  // a vocabulary or an interpreter's tables that do not fit
    return out_of_memory("{}: no room to open the model", path);
  }
}

}  // namespace redline
