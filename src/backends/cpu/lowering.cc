#include "backends/cpu/lowering.h"

#include <sys/mman.h>

#include <algorithm>
#include <numeric>

#include "graph/pass.h"
#include "graph/planning.h"
#include "tensor/packed_weight.h"

namespace redline {

namespace {

constexpr int64_t kArenaAlignment = 64;  // a cache line
// Maximum number of chunks of rows into which a wavefront cuts a stage.
constexpr int64_t kMaxWaveChunks = 16;

// Aligns packed weights to pages, so that workers that pack adjacent weights share no cache line.
int64_t round_up_packed(int64_t bytes) { return (bytes + 4095) / 4096 * 4096; }

}  // namespace

class CpuCompiler {
 public:
  CpuCompiler(Graph graph, const CpuCompileOptions& options, WorkerTeam& team)
      : graph_(std::move(graph)), options_(options), team_(team) {}

  Result<Program> run();
  Result<const void*> packed_weight(ValueId id);
  Result<const float*> dense_weight(ValueId id);
  Result<void*> allocate(int64_t bytes);
  ValueId add_temporary(std::string name, Shape shape) {
    ValueInfo info;
    info.name = std::move(name);
    info.shape = std::move(shape);
    temporaries_.push_back(std::move(info));
    return static_cast<ValueId>(graph_.values.size() + temporaries_.size()) - 1;
  }
  std::shared_ptr<AttentionScratch> attention_scratch(size_t group) {
    attention_.resize(std::max(attention_.size(), group + 1));
    if (!attention_[group]) attention_[group] = std::make_shared<AttentionScratch>();
    return attention_[group];
  }
  void add_stage(LoweredStage stage) {
    code_.push_back(static_cast<CpuStage&&>(stage));
    plans_.push_back(static_cast<StagePlan&&>(stage));
  }
  void before_steps(std::function<void(const StepContext&)> prepare) { before_steps_.push_back(std::move(prepare)); }

 private:
  Status reserve_packed();
  void pack_all(CpuProgram& code);
  void resolve(Program& program, CpuProgram& code);
  int64_t wave_tokens(const std::vector<StagePlan>& stages) const;

  Graph graph_;
  const CpuCompileOptions& options_;
  WorkerTeam& team_;
  std::vector<StagePlan> plans_;
  std::vector<CpuStage> code_;
  std::vector<std::function<void(const StepContext&)>> before_steps_;  // CpuProgram::before_steps
  std::vector<std::shared_ptr<AttentionScratch>> attention_;           // CpuProgram::attention
  std::vector<ValueInfo> temporaries_;                                 // appended to the graph's values after lowering
  std::map<ValueId, const void*> packed_;
  std::map<ValueId, const float*> dense_;
  struct PackJob {
    ValueId id;
    int64_t offset, bytes;
  };
  std::vector<PackJob> jobs_;
  AlignedBuffer region_;  // all packed weights, so that one mapping can hold them
  int64_t region_used_ = 0;
  std::vector<AlignedBuffer> buffers_;
  uint8_t* shared_ = nullptr;  // current buffer of small weights, in buffers_
  int64_t shared_used_ = 0;
  int64_t weight_bytes_ = 0;
};

Result<void*> CpuCompiler::allocate(int64_t bytes) {
  // Norms and biases share a buffer: a mapping for each would take a whole memory page.
  constexpr int64_t kOwnBuffer = 64 << 10, kSharedBuffer = 1 << 20, kLine = 64;
  weight_bytes_ += bytes;
  if (bytes >= kOwnBuffer) {
    REDLINE_ASSIGN(AlignedBuffer buffer, AlignedBuffer::make(bytes));
    buffers_.push_back(std::move(buffer));
    return buffers_.back().data();
  }
  if (!shared_ || shared_used_ + bytes > kSharedBuffer) {
    REDLINE_ASSIGN(AlignedBuffer buffer, AlignedBuffer::make(kSharedBuffer));
    buffers_.push_back(std::move(buffer));
    shared_ = static_cast<uint8_t*>(buffers_.back().data());
    shared_used_ = 0;
  }
  void* place = shared_ + shared_used_;
  shared_used_ += (bytes + kLine - 1) / kLine * kLine;
  return place;
}

Result<const void*> CpuCompiler::packed_weight(ValueId id) {
  if (auto at = packed_.find(id); at != packed_.end()) return at->second;
  const TensorView& view = graph_.value(id).weight.view;
  const int64_t bytes = packed_bytes(view);
  jobs_.push_back({id, region_used_, bytes});
  weight_bytes_ += bytes;
  region_used_ += round_up_packed(bytes);
  REDLINE_CHECK(region_used_ <= region_.size());
  return packed_[id] = static_cast<uint8_t*>(region_.data()) + jobs_.back().offset;
}

// Reserves address space for every weight that may be packed.
Status CpuCompiler::reserve_packed() {
  int64_t bytes = 0;
  for (const ValueInfo& value : graph_.values) {
    if (value.kind != ValueKind::kWeight) continue;
    const TensorView& view = value.weight.view;
    if (view.shape.size() >= 2) bytes += round_up_packed(packed_bytes(view));
  }
  REDLINE_ASSIGN(region_, AlignedBuffer::make(bytes));
  return {};
}

Result<const float*> CpuCompiler::dense_weight(ValueId id) {
  if (auto at = dense_.find(id); at != dense_.end()) return at->second;
  const WeightSource& source = graph_.value(id).weight;
  const int64_t n = source.view.num_elements();
  source.need_all();
  REDLINE_ASSIGN(void* target, allocate(n * 4));
  auto* out = static_cast<float*>(target);
  unpack_row(source.view.dtype, source.view.data, out, n);
  if (source.source_row) {
    const std::vector<float> plain(out, out + n);
    for (int64_t i = 0; i < n; ++i) out[i] = plain[static_cast<size_t>(source.source_row(i))];
  }
  return dense_[id] = out;
}

// Loads the weights from the cache file; otherwise packs them in parallel and releases the pages of the mapped file as
// soon as they have been read.
void CpuCompiler::pack_all(CpuProgram& code) {
  std::vector<PackedWeight> weights;
  for (const PackJob& job : jobs_) weights.push_back({&graph_.value(job.id), job.offset, job.bytes});
  const WeightCache cache(options_.weight_cache, weights);
  if (!cache.load(region_.data(), team_)) {
    for (const PackedWeight& job : weights) {
      const WeightSource& source = job.value->weight;
      void* target = static_cast<uint8_t*>(region_.data()) + job.offset;
      const int64_t row_panels = (source.view.shape[0] + kRowPanelRows - 1) / kRowPanelRows;
      const int64_t row_panel_bytes = std::max<int64_t>(1, source.view.bytes() / std::max<int64_t>(row_panels, 1));
      team_.parallel_for(
          row_panels, std::max<int64_t>(1, (1 << 20) / row_panel_bytes), [&](int64_t begin, int64_t end) {
            const int64_t first = begin * kRowPanelRows, last = std::min(end * kRowPanelRows, source.view.shape[0]);
            source.need_rows(first, last - first);
            pack_row_panels(source.view, begin, end, target, source.source_row);
          });
      if (source.file && !source.is_shared) {
        const auto* data = static_cast<const uint8_t*>(source.view.data);
        source.file->release(data - source.file->data(), source.view.bytes());
      }
    }
    code.weight_writer = cache.store(region_.data());
  }
  buffers_.push_back(std::move(region_));
}

void CpuCompiler::resolve(Program& program, CpuProgram& code) {
  std::map<ValueId, void*> address;
  for (const ArenaBlock& block : program.arena_plan.blocks)
    address[block.value] = static_cast<uint8_t*>(code.arena.data()) + block.offset;
  for (size_t s = 0; s < code.stages.size(); ++s) code.stages[s].plan = &program.stages[s];
  for (const CpuStage& stage : code.stages)
    for (const CpuStage::Use& use : stage.operands) use.operand->data = address[use.value];
  const auto port = [&](ValueId id) {
    const ValueInfo& v = graph_.value(id);
    return Program::Port{v.name, v.dtype, v.shape, id};
  };
  for (ValueId id : graph_.inputs) program.inputs.push_back(port(id)), code.inputs.push_back(address[id]);
  for (ValueId id : graph_.outputs) program.outputs.push_back(port(id)), code.outputs.push_back(address[id]);
}

// Returns the number of tokens of a chunk of the wavefront; 0: no wavefront. A wavefront keeps workers busy for which a
// recurrence has no tasks. Otherwise it would cost a tenth of the time, because products unpack their weights once per
// chunk.
int64_t CpuCompiler::wave_tokens(const std::vector<StagePlan>& stages) const {
  constexpr int64_t kUsual = 128;
  if (options_.wave_tokens) return *options_.wave_tokens;
  const bool has_idle = std::any_of(stages.begin(), stages.end(), [&](const StagePlan& stage) {
    return stage.rows_in_order && stage.grid.num_tasks() < team_.size();
  });
  return has_idle ? kUsual : 0;
}

Result<Program> CpuCompiler::run() {
  REDLINE_TRY(graph_.check());
  REDLINE_TRY(run_target_passes(
      graph_, CpuTarget(*options_.kernels, options_.exact_f32, team_.size(), options_.batch_invariance)));
  REDLINE_TRY(reserve_packed());
  StatePlan states = plan_states(graph_, StateStorage::kDevice);
  for (size_t i = 0; i < graph_.ops.size(); ++i) {
    const Op op = graph_.ops[i];
    LowerContext context(op, graph_, options_, states, team_.size(), *this);
    const CpuLowering* lowering = find_cpu_lowering(op.def);
    if (!lowering) return unsupported("{}: the CPU back end has no lowering of {}", op.name, op.def->name);
    REDLINE_TRY(lowering->lower(context).within(op.name));
  }
  graph_.values.insert(graph_.values.end(), temporaries_.begin(), temporaries_.end());
  Program program;
  program.name = graph_.name;
  program.workers = team_.size();
  program.attention.partitions = team_.size();
  if (options_.kernels->has_tile_unit) program.attention.row_threshold = kAttentionTileRows;
  program.bounds = options_.bounds;
  program.states = std::move(states);
  auto payload = std::make_unique<CpuProgram>();
  CpuProgram& code = *payload;
  program.payload = std::move(payload);
  program.stages = std::move(plans_);
  code.stages = std::move(code_);
  code.attention = std::move(attention_);
  code.before_steps = std::move(before_steps_);
  for (const CpuStage& stage : code.stages) code.buffer_bytes = std::max(code.buffer_bytes, stage.buffer_bytes);
  for (StagePlan& stage : program.stages) {
    auto at = std::find(program.row_dims.begin(), program.row_dims.end(), stage.grid.rows);
    stage.row_dim = static_cast<int>(at - program.row_dims.begin());
    if (at == program.row_dims.end()) program.row_dims.push_back(stage.grid.rows);
  }
  const int64_t tokens = options_.bounds[Symbol::kTokens], wave = wave_tokens(program.stages);
  const int64_t chunks = wave > 0 ? std::min(tokens / wave, kMaxWaveChunks) : 0;
  const std::vector<int> waves = chunks > 1 ? plan_waves(program.stages) : std::vector<int>();
  program.arena_plan =
      plan_arena(graph_, program.stages, options_.bounds, options_.reuse_memory, kArenaAlignment, waves);
  REDLINE_TRY(check_arena(program.arena_plan, program.stages));
  REDLINE_TRY(plan_events(program));
  if (!waves.empty()) REDLINE_TRY(plan_wavefront(program, waves, static_cast<int>(chunks)));
  REDLINE_ASSIGN(code.arena, AlignedBuffer::make(program.arena_plan.bytes));
  resolve(program, code);
  pack_all(code);
  code.weights = std::move(buffers_);
  program.weight_bytes = weight_bytes_;
  return program;
}

Result<const void*> LowerContext::packed_weight(size_t i) { return compiler_->packed_weight(op_->inputs[i]); }
Result<const float*> LowerContext::dense_weight(size_t i) { return compiler_->dense_weight(op_->inputs[i]); }
Result<void*> LowerContext::allocate_weight(int64_t bytes) { return compiler_->allocate(bytes); }
ValueId LowerContext::add_temporary(std::string name, Shape shape) {
  return compiler_->add_temporary(std::move(name), std::move(shape));
}
std::shared_ptr<AttentionScratch> LowerContext::attention_scratch(size_t group) {
  return compiler_->attention_scratch(group);
}
void LowerContext::before_steps(std::function<void(const StepContext&)> prepare) {
  compiler_->before_steps(std::move(prepare));
}
void LowerContext::add_stage(LoweredStage stage) {
  if (stage.name.empty()) stage.name = op_->name;
  if (stage.op.empty()) stage.op = op_->def->name;
  compiler_->add_stage(std::move(stage));
}

std::vector<int64_t> LowerContext::cut_columns(int64_t cols, int64_t grain, int tiles) {
  const int64_t grains = (cols + grain - 1) / grain;
  const int64_t parts = std::clamp<int64_t>(tiles, 1, std::max<int64_t>(grains, 1));
  std::vector<int64_t> begin;
  for (int64_t i = 0; i <= parts; ++i) begin.push_back(std::min(cols, grains * i / parts * grain));
  return begin;
}

Result<Program> compile_cpu(Graph graph, const CpuCompileOptions& options, WorkerTeam& team) {
  const std::string name = graph.name;
  return CpuCompiler(std::move(graph), options, team).run().within(name);
}

}  // namespace redline
