#include "backends/tiles/tile_lowering.h"

#include <algorithm>

#include "backends/tiles/library_choice.h"
#include "base/aligned_buffer.h"
#include "graph/external_values.h"
#include "graph/ops/sample.h"
#include "graph/planning.h"
#include "tensor/packed_weight.h"

namespace redline {
namespace {

/// Alignment of arguments, weights and values of the arena: sufficient for bulk copies, vector loads and cache lines of
/// 128 bytes.
constexpr int64_t kDeviceAlignment = 256;
int64_t round_up_device(int64_t bytes) { return (bytes + kDeviceAlignment - 1) / kDeviceAlignment * kDeviceAlignment; }

template <class T>
Result<DeviceMemory> upload_all(const std::shared_ptr<OpenDevice>& device, const std::vector<T>& items) {
  const auto bytes = static_cast<int64_t>(items.size() * sizeof(T));
  REDLINE_ASSIGN(DeviceMemory memory, DeviceMemory::make(device, std::max<int64_t>(bytes, 1)));
  REDLINE_TRY(device->upload(memory.data(), items.data(), bytes));
  return memory;
}

}  // namespace

void TileStage::set_grid(const Dim& rows, int64_t cols, int64_t col_tile, int row_tile, int row_parts) {
  plan.grid = TaskGrid::of(rows, cols);
  plan.grid.row_parts = row_parts;
  plan.grid.col_begin.clear();
  for (int64_t at = 0; at < cols; at += col_tile) plan.grid.col_begin.push_back(at);
  plan.grid.col_begin.push_back(cols);
  table.row_parts = row_parts;
  table.row_tile = row_tile;
  table.cols = static_cast<int32_t>(cols);
  table.col_tile = static_cast<int32_t>(col_tile);
  table.col_tiles = plan.grid.col_tiles();
}

void TileStage::set_work_partitions(int count, int64_t cols) {
  plan.grid = TaskGrid::work_partitions(count, cols);
  table.row_dim = -1;
  table.row_parts = count;
  table.row_tile = 1;
  table.cols = table.col_tile = static_cast<int32_t>(cols);
  table.col_tiles = 1;
}

void TileStage::set_shared_partitions(int count, int lists, int64_t cols) {
  set_work_partitions(lists, cols);
  table.tickets = count;
}

class TileCompiler {
 public:
  TileCompiler(Graph graph, const TileCompileOptions& options, std::shared_ptr<OpenDevice> device, WorkerTeam& team)
      : graph_(std::move(graph)), options_(options), device_(std::move(device)), team_(team) {
    if (options_.multiprocessors == 0) options_.multiprocessors = device_->multiprocessors();
  }
  Result<Program> run();

  Result<int64_t> packed_weight(ValueId id);
  Result<int64_t> dense_weight(ValueId id);
  int64_t constant(std::span<const float> numbers);
  Result<int64_t> packed_weights(std::span<const ValueId> ids, int64_t& stride);
  ValueId add_temporary(std::string name, Shape shape) {
    ValueInfo info;
    info.name = std::move(name);
    info.shape = std::move(shape);
    temporaries_.push_back(std::move(info));
    return static_cast<ValueId>(graph_.values.size() + temporaries_.size()) - 1;
  }
  void add_stage(TileStage stage) { stages_.push_back(std::move(stage)); }
  int32_t adapter_site(std::shared_ptr<AdapterSite> site) {
    site->down_type = site->up_type = DType::kF32;
    sites_.push_back(std::move(site));
    return static_cast<int32_t>(sites_.size()) - 1;
  }
  void need_partials(int64_t floats) { partial_floats_ = std::max(partial_floats_, floats); }

 private:
  Status lower_all(const StatePlan& states);
  Status plan(Program& program);
  Status pack(DeviceMemory& weights);
  Status pack_weight(const WeightSource& source, uint8_t* to, StagedUpload& staged);
  Status resolve(Program& program, TileProgram& code);
  Status upload_schedule(const Program& program, TileProgram& code);
  /// Finds the products that the device's library can compute. Returns the bytes that their operands take.
  int64_t plan_library(TileProgram& code) const;
  Dim elements_of(ValueId id) const { return num_elements(graph_.value(id).shape); }
  int64_t take(int64_t bytes) {
    const int64_t at = weights_used_;
    weights_used_ += round_up_device(bytes);
    return at;
  }

  Graph graph_;
  TileCompileOptions options_;
  std::shared_ptr<OpenDevice> device_;
  WorkerTeam& team_;
  std::vector<TileStage> stages_;
  std::vector<std::shared_ptr<AdapterSite>> sites_;
  std::vector<ValueInfo> temporaries_;  // appended to the graph's values after lowering
  std::map<ValueId, int64_t> packed_, dense_;
  struct Numbers {
    int64_t at;
    std::vector<float> numbers;
  };
  std::vector<Numbers> numbers_;
  int64_t weights_used_ = 0, weight_bytes_ = 0, partial_floats_ = 0;
  int64_t num_tickets_ = 0;  ///< number of stages whose tasks take tiles from a shared counter
};

Result<int64_t> TileCompiler::packed_weight(ValueId id) {
  if (const auto at = packed_.find(id); at != packed_.end()) return at->second;
  const int64_t bytes = packed_bytes(graph_.value(id).weight.view);
  weight_bytes_ += bytes;
  return packed_[id] = take(bytes);
}

Result<int64_t> TileCompiler::packed_weights(std::span<const ValueId> ids, int64_t& stride) {
  stride = round_up_device(packed_bytes(graph_.value(ids[0]).weight.view));
  for (size_t i = 0; i < ids.size(); ++i) {
    REDLINE_ASSIGN(const int64_t at, packed_weight(ids[i]));
    if (at != packed_[ids[0]] + static_cast<int64_t>(i) * stride)
      return unsupported("{} is read by another op too, and is not contiguous with the adjacent values",
                         graph_.value(ids[i]).name);
  }
  return packed_[ids[0]];
}

int64_t TileCompiler::constant(std::span<const float> numbers) {
  const auto bytes = static_cast<int64_t>(numbers.size_bytes());
  weight_bytes_ += bytes;
  numbers_.push_back({take(bytes), {numbers.begin(), numbers.end()}});
  return numbers_.back().at;
}

Result<int64_t> TileCompiler::dense_weight(ValueId id) {
  if (const auto at = dense_.find(id); at != dense_.end()) return at->second;
  const WeightSource& source = graph_.value(id).weight;
  const int64_t n = source.view.num_elements();
  std::vector<float> stored(static_cast<size_t>(n)), numbers(static_cast<size_t>(n));
  source.need_all();
  unpack_row(source.view.dtype, source.view.data, stored.data(), n);
  for (int64_t i = 0; i < n; ++i)
    numbers[static_cast<size_t>(i)] = stored[static_cast<size_t>(source.source_row ? source.source_row(i) : i)];
  return dense_[id] = constant(numbers);
}

Status TileCompiler::lower_all(const StatePlan& states) {
  if (states.groups.size() > tiles::kMaxStateGroups)
    return unsupported("{} groups of states; {} has room for {}", states.groups.size(), device_->name(),
                       tiles::kMaxStateGroups);
  // The op is copied, because a lowering may add values to the graph.
  for (size_t i = 0; i < graph_.ops.size(); ++i) {
    const Op op = graph_.ops[i];
    TileLowerContext context(op, graph_, options_, states, *this);
    const TileLowering* lowering = find_tile_lowering(op.def);
    if (!lowering)
      return unsupported("{}: the op {} does not run on {} yet; --device cpu runs it", op.name, op.def->name,
                         device_->name());
    REDLINE_TRY(lowering->lower(context).within(op.name));
  }
  graph_.values.insert(graph_.values.end(), temporaries_.begin(), temporaries_.end());
  return {};
}

Status TileCompiler::plan(Program& program) {
  const auto number_of = [&](const Dim& dim) {
    const auto at = std::find(program.row_dims.begin(), program.row_dims.end(), dim);
    const auto number = static_cast<int16_t>(at - program.row_dims.begin());
    if (at == program.row_dims.end()) program.row_dims.push_back(dim);
    return number;
  };
  for (TileStage& stage : stages_) {
    if (stage.table.row_dim >= 0) stage.plan.row_dim = stage.table.row_dim = number_of(stage.plan.grid.rows);
    for (const TileStage::RowDim& row : stage.row_dims) {
      const int32_t number = number_of(row.dim);
      std::memcpy(stage.args.data() + row.at, &number, sizeof(number));
    }
    program.stages.push_back(stage.plan);
  }
  if (program.row_dims.empty()) program.row_dims.emplace_back(1);
  if (program.row_dims.size() > tiles::kMaxRowDims)
    return unsupported("{} different numbers of rows; {} has room for {}", program.row_dims.size(), device_->name(),
                       tiles::kMaxRowDims);
  program.arena_plan = plan_arena(graph_, program.stages, options_.bounds, options_.reuse_memory, kDeviceAlignment);
  REDLINE_TRY(check_arena(program.arena_plan, program.stages));
  return plan_events(program);
}

// Packs a weight on all workers, a piece at a time, into the memory from which the device copies, so that the host
// never holds a second copy of the model.
Status TileCompiler::pack_weight(const WeightSource& source, uint8_t* to, StagedUpload& staged) {
  const int64_t panels = (packed_matrix(source.view).out_features + kRowPanelRows - 1) / kRowPanelRows;
  if (panels == 0) return {};
  const int64_t panel_bytes = packed_bytes(source.view) / panels;
  for (int64_t first = 0, count = 0; first < panels; first += count) {
    REDLINE_ASSIGN(const std::span<uint8_t> place, staged.place(panel_bytes, (panels - first) * panel_bytes));
    AlignedBuffer large;  // a panel that is larger than a buffer
    if (place.empty()) {
      REDLINE_ASSIGN(large, AlignedBuffer::make(panel_bytes));
    }
    uint8_t* const packed = place.empty() ? static_cast<uint8_t*>(large.data()) : place.data();
    count = place.empty() ? 1 : std::ssize(place) / panel_bytes;
    const int64_t first_row = first * kRowPanelRows;
    TensorView part = source.view;
    part.shape[0] = std::min(count * kRowPanelRows, source.view.shape[0] - first_row);
    const auto row = [&](int64_t n) { return source.source_row ? source.source_row(first_row + n) : first_row + n; };
    team_.parallel_for(count, std::max<int64_t>(1, (1 << 20) / std::max<int64_t>(panel_bytes, 1)),
                       [&](int64_t begin, int64_t end) {
                         const int64_t from = begin * kRowPanelRows, to = std::min(end * kRowPanelRows, part.shape[0]);
                         source.need_rows(first_row + from, to - from);
                         pack_row_panels(part, begin, end, packed, row);
                       });
    uint8_t* const target = to + first * panel_bytes;
    REDLINE_TRY(place.empty() ? device_->upload(target, packed, panel_bytes)
                              : staged.upload(target, count * panel_bytes));
  }
  if (source.file && !source.is_shared) {
    const auto* data = static_cast<const uint8_t*>(source.view.data);
    source.file->release(data - source.file->data(), source.view.bytes());
  }
  return {};
}

Status TileCompiler::pack(DeviceMemory& weights) {
  REDLINE_ASSIGN(weights, DeviceMemory::make(device_, std::max<int64_t>(weights_used_, 1), true));
  StagedUpload staged(*device_, weights_used_);
  for (const auto& [id, at] : packed_) REDLINE_TRY(pack_weight(graph_.value(id).weight, weights.data() + at, staged));
  REDLINE_TRY(staged.finish());
  for (const Numbers& n : numbers_)
    REDLINE_TRY(device_->upload(weights.data() + n.at, n.numbers.data(), static_cast<int64_t>(n.numbers.size() * 4)));
  return {};
}

Status TileCompiler::resolve(Program& program, TileProgram& code) {
  std::map<ValueId, uint8_t*> address;
  for (const ArenaBlock& block : program.arena_plan.blocks) address[block.value] = code.arena.data() + block.offset;
  std::vector<uint8_t>& constants = code.host_constants;
  std::map<ValueId, std::vector<size_t>*> bound;
  for (const std::vector<ValueId>* ids : {&graph_.inputs, &graph_.outputs})
    for (const ValueId id : *ids)
      if (is_external_name(graph_.value(id).name)) bound[id] = &code.bound[graph_.value(id).name];
  for (TileStage& stage : stages_) {
    for (const TileStage::Address& a : stage.addresses) {
      if (const auto at = bound.find(a.value); a.weight < 0 && at != bound.end())
        at->second->push_back(constants.size() + static_cast<size_t>(a.at));
      const uint8_t* const target = a.weight >= 0 ? code.weights.data() + a.weight : address[a.value];
      std::memcpy(stage.args.data() + a.at, &target, sizeof(target));
    }
    stage.table.args = static_cast<int32_t>(constants.size());
    if (const size_t s = code.stages.size(); s < code.library_stages.size())
      code.library_stages[s].y = constants.size() + offsetof(tiles::LinearArgs, y);
    if (stage.table.tickets > 0) stage.table.ticket_counter = static_cast<int32_t>(program.num_events + num_tickets_++);
    constants.insert(constants.end(), stage.args.begin(), stage.args.end());
    constants.resize((constants.size() + 63) / 64 * 64);
    code.stages.push_back(stage.table);
  }
  REDLINE_ASSIGN(code.constants, upload_all(device_, constants));
  REDLINE_ASSIGN(code.stage_tables, upload_all(device_, code.stages));
  const auto port = [&](ValueId id) {
    const ValueInfo& v = graph_.value(id);
    return Program::Port{v.name, v.dtype, v.shape, id};
  };
  for (ValueId id : graph_.inputs) program.inputs.push_back(port(id)), code.inputs.push_back(address[id]);
  for (ValueId id : graph_.outputs) program.outputs.push_back(port(id)), code.outputs.push_back(address[id]);
  return {};
}

int64_t TileCompiler::plan_library(TileProgram& code) const {
  if (device_->table().library == nullptr || !options_.may_use_library) return 0;
  int64_t w = 0, x = 0, y = 0;
  std::vector<TileProgram::LibraryStage> stages(stages_.size());
  for (size_t s = 0; s < stages_.size(); ++s) {
    const TileStage& stage = stages_[s];
    if (stage.table.kernel != tiles::KernelId::kLinear) continue;
    tiles::LinearArgs args;
    std::memcpy(&args, stage.args.data(), sizeof(args));
    const int64_t rows = stage.plan.grid.rows.eval(options_.bounds), cols = args.out_features, k = args.in_features;
    // One matrix, whose panels hold bfloat16, and rows that begin at multiples of 16 bytes.
    if (rows <= device_->own_rows() || args.format.planes != tiles::Planes::kBF16 || args.head_features != cols ||
        k % 8 != 0 || cols % 4 != 0)
      continue;
    const auto address_of = [&](auto member) -> const TileStage::Address* {
      const auto offset = static_cast<int32_t>(reinterpret_cast<const uint8_t*>(&(args.*member)) -
                                               reinterpret_cast<const uint8_t*>(&args));
      const auto found = std::find_if(stage.addresses.begin(), stage.addresses.end(),
                                      [&](const TileStage::Address& a) { return a.at == offset; });
      return found == stage.addresses.end() ? nullptr : &*found;
    };
    // A captured graph holds the library's addresses, so it must not write what a caller binds again.
    const TileStage::Address* const out = address_of(&tiles::LinearArgs::y);
    const bool is_bound = out && out->weight < 0 && is_external_name(graph_.value(out->value).name);
    TileProgram::LibraryStage& found = stages[s];
    found.cols = static_cast<int32_t>(cols);
    found.k = static_cast<int32_t>(k);
    found.has_epilogue = is_bound || address_of(&tiles::LinearArgs::bias) || address_of(&tiles::LinearArgs::table) ||
                         address_of(&tiles::LinearArgs::residual);
    w = std::max(w, cols * k * 2);
    x = std::max(x, rows * k * 2);
    if (found.has_epilogue) y = std::max(y, rows * cols * 4);
  }
  if (w == 0) return 0;
  code.library_stages = std::move(stages);
  code.library_x = round_up_device(w);
  code.library_y = code.library_x + round_up_device(x);
  return code.library_y + y;
}

Status TileCompiler::upload_schedule(const Program& program, TileProgram& code) {
  std::vector<tiles::ProgramTables::TaskEntry> tasks;
  std::vector<uint32_t> list_begin = {0};
  for (const std::vector<Task>& list : program.tasks) {
    for (const Task& t : list)
      tasks.push_back({t.stage, t.index, t.wait_begin, t.wait_end, t.notify_begin, t.notify_end});
    list_begin.push_back(static_cast<uint32_t>(tasks.size()));
  }
  std::vector<tiles::ProgramTables::WaitEntry> waits;
  for (const Wait& wait : program.waits) waits.push_back({wait.event, wait.count});
  REDLINE_ASSIGN(code.tasks, upload_all(device_, tasks));
  REDLINE_ASSIGN(code.list_begin, upload_all(device_, list_begin));
  REDLINE_ASSIGN(code.waits, upload_all(device_, waits));
  REDLINE_ASSIGN(code.notifies, upload_all(device_, program.notifies));
  REDLINE_ASSIGN(code.counters,
                 DeviceMemory::make(device_, std::max<int64_t>(1, (int64_t{program.num_events} + num_tickets_) *
                                                                      tiles::kCounterStride * 8)));
  REDLINE_ASSIGN(code.hang, DeviceMemory::make(device_, sizeof(tiles::HangReport)));
  return {};
}

Result<Program> TileCompiler::run() {
  REDLINE_TRY(graph_.check());
  Program program;
  program.name = graph_.name;
  program.workers = options_.multiprocessors;
  program.attention.partitions = options_.multiprocessors;
  program.bounds = options_.bounds;
  program.states = plan_states(graph_, StateStorage::kDevice);
  REDLINE_TRY(lower_all(program.states));
  REDLINE_TRY(plan(program));
  auto payload = std::make_unique<TileProgram>();
  TileProgram& code = *payload;
  program.payload = std::move(payload);
  code.device = device_;
  for (const Op& op : graph_.ops)
    if (op.def == &kSample)
      code.sampled_logits = graph_.value(op.inputs[0]).name, code.sampled_tokens = graph_.value(op.outputs[0]).name;
  code.partial_floats_per_row = partial_floats_;
  code.sites = std::move(sites_);
  for (const TileStage& stage : stages_) {
    TileProgram::StageCost& cost = code.costs.emplace_back();
    cost.weight_bytes = stage.weight_bytes;
    cost.weight_elements = stage.weight_elements;
    for (const auto& read : stage.plan.reads) cost.value_elements = cost.value_elements + elements_of(read.value);
    for (const ValueId written : stage.plan.writes) cost.value_elements = cost.value_elements + elements_of(written);
  }
  const int64_t library_bytes = plan_library(code);
  REDLINE_TRY(check_device_memory(*device_, weights_used_ + program.arena_plan.bytes + library_bytes,
                                  "weights and activations"));
  REDLINE_TRY(pack(code.weights));
  REDLINE_ASSIGN(code.arena, DeviceMemory::make(device_, std::max<int64_t>(program.arena_plan.bytes, 1)));
  if (library_bytes > 0) {
    REDLINE_ASSIGN(code.library_memory, DeviceMemory::make(device_, library_bytes));
  }
  REDLINE_TRY(resolve(program, code));
  REDLINE_TRY(upload_schedule(program, code));
  program.weight_bytes = weight_bytes_;
  return program;
}

Result<int64_t> TileLowerContext::packed_weight(size_t i) { return compiler_->packed_weight(op_->inputs[i]); }
Result<int64_t> TileLowerContext::dense_weight(size_t i) { return compiler_->dense_weight(op_->inputs[i]); }
Result<int64_t> TileLowerContext::constant(std::span<const float> numbers) { return compiler_->constant(numbers); }
Result<int64_t> TileLowerContext::packed_weights(size_t first, size_t count, int64_t& stride) {
  return compiler_->packed_weights(std::span(op_->inputs).subspan(first, count), stride);
}
ValueId TileLowerContext::add_temporary(std::string name, Shape shape) {
  return compiler_->add_temporary(std::move(name), std::move(shape));
}
int32_t TileLowerContext::adapter_site(std::shared_ptr<AdapterSite> site) {
  return compiler_->adapter_site(std::move(site));
}
void TileLowerContext::need_partials(int64_t floats_per_row) { compiler_->need_partials(floats_per_row); }
void TileLowerContext::add_stage(TileStage stage) {
  if (op_ != nullptr) {
    if (stage.plan.name.empty()) stage.plan.name = op_->name;
    stage.plan.op = op_->def->name;
  }
  compiler_->add_stage(std::move(stage));
}

Result<Program> compile_tiles(Graph graph, const TileCompileOptions& options, std::shared_ptr<OpenDevice> device,
                              WorkerTeam& team) {
  const std::string name = graph.name;
  return TileCompiler(std::move(graph), options, std::move(device), team).run().within(name);
}

}  // namespace redline
