#include "backends/tiles/tile_runner.h"

#include <algorithm>
#include <cstring>

#include "backends/tiles/library_choice.h"
#include "graph/external_values.h"
#include "tensor/packed_weight.h"

namespace redline {
namespace {

class DeviceStates final : public StateMemory {
 public:
  struct Group {
    DeviceMemory memory;
    int64_t page_bytes;
    uint8_t* at(int64_t page) const { return memory.data() + page * page_bytes; }
  };
  DeviceStates(std::shared_ptr<OpenDevice> device, std::vector<Group> groups)
      : device_(std::move(device)), groups_(std::move(groups)) {}
  uint8_t* pages(size_t group) override { return groups_[group].at(0); }
  // An error of a copy is an error of the device, which the next step reports.
  void copy_page(size_t group, int64_t from, int64_t to) override {
    (void)device_->copy(groups_[group].at(to), groups_[group].at(from), groups_[group].page_bytes);
  }
  void clear_page(size_t group, int64_t page) override {
    (void)device_->clear(groups_[group].at(page), groups_[group].page_bytes);
  }
  bool is_host_memory(size_t) const override { return false; }
  Status download_page(size_t group, int64_t page, uint8_t* to) override {
    return device_->download(to, groups_[group].at(page), groups_[group].page_bytes);
  }
  Status upload_page(size_t group, int64_t page, const uint8_t* from) override {
    return device_->upload(groups_[group].at(page), from, groups_[group].page_bytes);
  }

 private:
  std::shared_ptr<OpenDevice> device_;
  std::vector<Group> groups_;
};

/// A buffer in device memory with a copy on the host. It records which of the two is newer, for the buffer as a whole.
class DeviceBuffer final : public BackendBuffer {
 public:
  DeviceBuffer(std::shared_ptr<OpenDevice> device, std::shared_ptr<DeviceBufferMath> math, DeviceMemory memory)
      : device_(std::move(device)), math_(std::move(math)), memory_(std::move(memory)) {}
  static Result<std::unique_ptr<BackendBuffer>> make(std::shared_ptr<OpenDevice> device,
                                                     std::shared_ptr<DeviceBufferMath> math, int64_t bytes) {
    REDLINE_ASSIGN(DeviceMemory memory, DeviceMemory::make(device, bytes));
    return std::unique_ptr<BackendBuffer>(new DeviceBuffer(std::move(device), std::move(math), std::move(memory)));
  }
  // An error of a copy is an error of the device, which the next step reports.
  uint8_t* address(bool step_writes) override {
    if (newer_ == Newer::kHost) (void)device_->upload(memory_.data(), host_.data(), memory_.size());
    newer_ = step_writes || newer_ == Newer::kDevice ? Newer::kDevice : Newer::kNone;
    return memory_.data();
  }
  uint8_t* host() override {
    host_.resize(static_cast<size_t>(memory_.size()));
    if (newer_ == Newer::kDevice) (void)device_->download(host_.data(), memory_.data(), memory_.size());
    newer_ = Newer::kHost;
    return host_.data();
  }
  void copy(int64_t to, BackendBuffer& from, int64_t begin, int64_t bytes) override {
    (void)device_->copy(address(true) + to, from.address(false) + begin, bytes);
  }
  Result<std::unique_ptr<BackendBuffer>> make_like(int64_t bytes) override {
    // Keeps the reserve free for allocations of a step. A step cache without room here keeps its tensors on the host.
    REDLINE_TRY(check_device_memory(*device_, bytes, "tensors of a step cache"));
    // Arithmetic with the new buffer must not fail for want of memory: its callers drop errors.
    REDLINE_TRY(math_->prepare());
    return make(device_, math_, bytes);
  }
  BufferMath* math() override { return math_.get(); }

 private:
  enum class Newer : uint8_t { kNone, kHost, kDevice };
  std::shared_ptr<OpenDevice> device_;
  std::shared_ptr<DeviceBufferMath> math_;
  DeviceMemory memory_;
  std::vector<uint8_t> host_;
  Newer newer_ = Newer::kNone;  // both are zeros
};

/// Numbers of rows for which a graph of a text step is captured.
constexpr int64_t kGraphRows[] = {0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256};
constexpr size_t kMaxGraphs = 24;

int32_t clamp_position(int64_t position) { return static_cast<int32_t>(std::min<int64_t>(position, INT32_MAX)); }

}  // namespace

TileRunner::TileRunner(Program program, TileRunnerOptions options)
    : program_(std::move(program)), code_(TileProgram::of(program_)), options_(std::move(options)) {
  own_rows_ = code_.device->own_rows();
  if (options_.timeline != nullptr)
    trace_ = std::make_unique<TileTrace>(*options_.timeline, options_.device_name, code_.device, program_);
  inputs_ = host_ports(program_.inputs, code_.inputs);
  outputs_ = host_ports(program_.outputs, code_.outputs);
}

TileRunner::~TileRunner() { drop_graphs(); }

std::vector<TileRunner::HostPort> TileRunner::host_ports(const std::vector<Program::Port>& ports,
                                                         const std::vector<void*>& addresses) const {
  std::vector<HostPort> host;
  for (size_t i = 0; i < ports.size(); ++i) {
    if (is_external_name(ports[i].name)) continue;
    host.push_back({&ports[i], addresses[i], {}});
    // A port without elements has an address too.
    host.back().data.resize(static_cast<size_t>(std::max<int64_t>(1, host.back().bytes(program_.bounds))));
  }
  return host;
}

Result<std::unique_ptr<StateMemory>> TileRunner::make_state_memory(std::span<const int64_t> num_pages) const {
  int64_t bytes = 0;
  for (size_t g = 0; g < program_.states.groups.size(); ++g)
    bytes += program_.states.groups[g].page_bytes * num_pages[g];
  REDLINE_TRY(check_device_memory(*code_.device, bytes, "the caches of all sequences"));
  std::vector<DeviceStates::Group> groups;
  for (size_t g = 0; g < program_.states.groups.size(); ++g) {
    const int64_t page_bytes = program_.states.groups[g].page_bytes;
    auto memory = DeviceMemory::make(code_.device, page_bytes * num_pages[g]);
    if (!memory.ok()) return std::move(memory).status().within("key-value cache");
    groups.push_back({std::move(memory).value(), page_bytes});
  }
  return std::unique_ptr<StateMemory>(new DeviceStates(code_.device, std::move(groups)));
}

Result<std::unique_ptr<BackendBuffer>> TileRunner::make_buffer(int64_t bytes) const {
  if (!math_) math_ = std::make_shared<DeviceBufferMath>(code_.device);
  return DeviceBuffer::make(code_.device, math_, bytes);
}

bool TileRunner::bind(std::string_view name, void* data) {
  const auto at = code_.bound.find(name);
  if (at == code_.bound.end()) return false;
  for (const size_t place : at->second) std::memcpy(code_.host_constants.data() + place, &data, sizeof(data));
  has_new_addresses_ = true;
  return true;
}

void* TileRunner::host_input(std::string_view name) {
  for (HostPort& input : inputs_)
    if (input.port->name == name) return input.data.data();
  return nullptr;
}
const void* TileRunner::host_output(std::string_view name) const {
  for (const HostPort& output : outputs_)
    if (output.port->name == name) return output.data.data();
  return nullptr;
}

Status TileRunner::check_sizes(const StepContext& context) const {
  for (int s = 0; s < kNumSymbols; ++s)
    if (context.sizes.value[s] < 0 || context.sizes.value[s] > program_.bounds.value[s])
      return invalid_argument("{}: {} {} is outside [0, {}]", program_.name, symbol_name(static_cast<Symbol>(s)),
                              context.sizes.value[s], program_.bounds.value[s]);
  if (!context.samples.empty() && std::ssize(context.samples) != context.sizes[Symbol::kLogitRows])
    return internal("{}: samples for {} rows of logits, the step has {} rows", program_.name, context.samples.size(),
                    context.sizes[Symbol::kLogitRows]);
  return {};
}

// Appends items to the step's tables. The returned pointer is an offset until the memory of the step has an address.
template <class T>
const T* TileRunner::append(std::span<const T> items) {
  const size_t at = (step_bytes_.size() + 15) / 16 * 16;
  step_bytes_.resize(at + items.size_bytes());
  if (!items.empty()) std::memcpy(step_bytes_.data() + at, items.data(), items.size_bytes());
  return reinterpret_cast<const T*>(at);  // NOLINT(performance-no-int-to-ptr)
}

tiles::StateTables TileRunner::group_tables(const StepContext& context, size_t group, int64_t& needed_partials) {
  const StateStep& state = context.states[group];
  tiles::StateTables t = {};
  t.memory = state.memory;
  t.page_bytes = state.page_bytes;
  std::vector<int32_t> pages, page_begin;
  const bool is_recurrent = program_.states.groups[group].kind == StateKind::kRecurrent;
  for (size_t s = 0; s < context.sequences.size(); ++s) {
    const SequenceRows& rows = context.sequences[s];
    page_begin.push_back(static_cast<int32_t>(pages.size()));
    const int64_t count = is_recurrent ? 2 : kv_pages_for(rows.first_position + rows.rows);
    pages.insert(pages.end(), state.pages[s], state.pages[s] + count);
  }
  t.pages = append(std::span<const int32_t>(pages));
  t.page_begin = append(std::span<const int32_t>(page_begin));
  if (is_recurrent) return t;
  const AttentionWork& work = state.attention;
  const auto partitions = static_cast<size_t>(program_.attention.partitions);
  std::vector<tiles::AttentionTask> tasks;
  std::vector<tiles::AttentionPart> parts;
  int32_t group_rows = 0;
  for (int32_t i = 0; i < work.partition_begin[partitions]; ++i) {
    const AttentionItem& item = work.items[i];
    tasks.push_back({item.sequence, item.kv_head, item.row_begin, item.row_end, clamp_position(item.first_position),
                     clamp_position(item.kv_begin), clamp_position(item.kv_end), item.split, item.is_group ? 1 : 0,
                     item.merges_chunks ? 1 : 0, item.partials});
    if (item.is_group) group_rows = std::max(group_rows, item.row_end);
    for (int32_t k = 0; item.split >= 0 && k < item.num_splits; ++k) {
      const AttentionSplit& split = work.splits[item.split + k];
      const size_t at = static_cast<size_t>(item.split) + static_cast<size_t>(k);
      parts.resize(std::max(parts.size(), at + 1));
      parts[at] = {item.kv_head,
                   split.row_begin,
                   split.row_end,
                   static_cast<int32_t>(split.chunks),
                   static_cast<int32_t>(split.num_shared),
                   split.partials,
                   split.shared,
                   split.shared_stride};
    }
    if (item.split < 0) continue;
    const int64_t chunks = item.merges_chunks ? 1 : (item.kv_end - item.kv_begin + kKvChunk - 1) / kKvChunk;
    needed_partials = std::max(needed_partials,
                               item.partials + chunks * (item.row_end - item.row_begin) * code_.partial_floats_per_row);
  }
  t.slots = append(std::span(state.slots, static_cast<size_t>(context.sizes[Symbol::kTokens])));
  t.tasks = append(std::span<const tiles::AttentionTask>(tasks));
  t.task_begin = append(std::span(work.partition_begin, partitions + 1));
  t.parts = append(std::span<const tiles::AttentionPart>(parts));
  t.group_rows = append(std::span(work.group_rows, static_cast<size_t>(group_rows)));
  t.num_parts = static_cast<int32_t>(parts.size());
  t.num_partitions = program_.attention.partitions;
  return t;
}

Result<const float*> TileRunner::upload_factor(const Adapter& adapter, const void* factor, int64_t rows, int64_t cols) {
  DeviceMemory& memory = adapters_[&adapter].factors[factor];
  if (!memory.data()) {
    const int64_t bytes = packed_bytes(DType::kF32, rows, cols);
    REDLINE_ASSIGN(memory, DeviceMemory::make(code_.device, bytes, true));
    REDLINE_TRY(code_.device->upload(memory.data(), factor, bytes));
  }
  return reinterpret_cast<const float*>(memory.data());
}

Status TileRunner::append_adapters(const StepContext& context, tiles::StepTables& tables) {
  constexpr int64_t kIdleSteps = 256;
  ++steps_;
  std::erase_if(adapters_, [&](const auto& entry) { return entry.second.last_step + kIdleSteps < steps_; });
  tables.num_partitions = program_.attention.partitions;
  if (context.adapters.empty()) return {};
  std::vector<tiles::AdapterPart> parts;
  std::vector<int32_t> begin = {0};
  Status status;
  for (const std::shared_ptr<AdapterSite>& site : code_.sites) {
    const int64_t rows = site->rows.eval(context.sizes);
    for_adapted_rows(context.adapters, *site, context.sizes, 0, rows, [&](const AdaptedRows& adapted) {
      int64_t rank = 0;
      for (const WeightedAdapter& each : adapted.adapters) {
        const AdapterFactors* factors = factors_at(each, *site);
        if (factors == nullptr) continue;
        DeviceAdapter& kept = adapters_[each.adapter.get()];
        kept.adapter = each.adapter;
        kept.last_step = steps_;
        const auto down = upload_factor(*each.adapter, factors->down, factors->rank, site->in_features);
        const auto up = upload_factor(*each.adapter, factors->up, site->out_features, factors->rank);
        if (!down.ok() || !up.ok()) {
          status = (down.ok() ? up : down).status().within(site->op);
          return;
        }
        const float* bias = nullptr;
        if (factors->bias) {
          // A vector is packed as a matrix of one column.
          const auto uploaded = upload_factor(*each.adapter, factors->bias, site->out_features, 1);
          if (!uploaded.ok()) {
            status = uploaded.status().within(site->op);
            return;
          }
          bias = *uploaded;
        }
        parts.push_back({*down, *up, static_cast<int32_t>(adapted.begin), static_cast<int32_t>(adapted.end),
                         static_cast<int32_t>(factors->rank), static_cast<int32_t>(rank), factors->scale * each.weight,
                         bias});
        rank += factors->rank;
      }
    });
    begin.push_back(static_cast<int32_t>(parts.size()));
  }
  tables.adapter_parts = append(std::span<const tiles::AdapterPart>(parts));
  tables.adapter_begin = append(std::span<const int32_t>(begin));
  return status;
}

void TileRunner::append_samples(const StepContext& context, tiles::StepTables& tables) {
  if (context.samples.empty()) return;
  std::vector<tiles::SampleTable> samples;
  std::vector<tiles::LogitEdit> edits;
  for (const SampleRow& row : context.samples) {
    const auto begin = static_cast<int32_t>(edits.size());
    if (row.kind != SampleRow::Kind::kHost)
      for (const LogitEdit& edit : row.edits) edits.push_back({edit.token, edit.bias, edit.repetition, edit.penalty});
    samples.push_back({static_cast<int32_t>(row.kind), begin, static_cast<int32_t>(edits.size()),
                       static_cast<int32_t>(std::min<int64_t>(row.top_k, INT32_MAX)), row.top_p, row.min_p, row.scale,
                       row.u});
  }
  tables.samples = append(std::span<const tiles::SampleTable>(samples));
  tables.edits = append(std::span<const tiles::LogitEdit>(edits));
}

Status TileRunner::upload_step(const StepContext& context) {
  tiles::StepTables tables = {};
  for (size_t d = 0; d < program_.row_dims.size(); ++d)
    tables.rows[d] = static_cast<int32_t>(program_.row_dims[d].eval(context.sizes));
  step_bytes_.assign(sizeof(tables), 0);
  std::vector<tiles::SequenceTable> sequences;
  for (const SequenceRows& rows : context.sequences)
    sequences.push_back({rows.row_begin, rows.rows, clamp_position(rows.first_position)});
  tables.num_sequences = static_cast<int32_t>(sequences.size());
  tables.sequences = append(std::span<const tiles::SequenceTable>(sequences));
  REDLINE_TRY(append_adapters(context, tables));
  append_samples(context, tables);
  int64_t partials = 0;
  for (size_t g = 0; g < program_.states.groups.size(); ++g) tables.groups[g] = group_tables(context, g, partials);
  if (partials * 4 > partials_.size()) {
    REDLINE_ASSIGN(partials_, DeviceMemory::make(code_.device, partials * 4));
  }
  const auto bytes = static_cast<int64_t>(step_bytes_.size());
  if (bytes > step_memory_.size()) {
    drop_graphs();  // they hold the address
    REDLINE_ASSIGN(step_memory_, DeviceMemory::make(code_.device, 2 * bytes));
  }
  const auto place = [&](auto& pointer) {
    using T = std::remove_reference_t<decltype(pointer)>;
    pointer = reinterpret_cast<T>(step_memory_.data() + reinterpret_cast<uintptr_t>(pointer));
  };
  place(tables.sequences);
  if (tables.adapter_begin) {
    place(tables.adapter_parts);
    place(tables.adapter_begin);
  }
  if (tables.samples) {
    place(tables.samples);
    place(tables.edits);
  }
  for (size_t g = 0; g < program_.states.groups.size(); ++g) {
    tiles::StateTables& t = tables.groups[g];
    place(t.slots);
    place(t.pages);
    place(t.page_begin);
    place(t.tasks);
    place(t.task_begin);
    place(t.parts);
    place(t.group_rows);
    t.partials = reinterpret_cast<float*>(partials_.data());
  }
  tables.library.w = reinterpret_cast<uint16_t*>(code_.library_memory.data());
  tables.library.x = reinterpret_cast<uint16_t*>(code_.library_memory.data() + code_.library_x);
  tables.library.y = reinterpret_cast<float*>(code_.library_memory.data() + code_.library_y);
  std::memcpy(step_bytes_.data(), &tables, sizeof(tables));
  REDLINE_TRY(code_.device->upload(step_memory_.data(), step_bytes_.data(), bytes));
  if (has_new_addresses_)
    REDLINE_TRY(code_.device->upload(code_.constants.data(), code_.host_constants.data(), code_.constants.size()));
  has_new_addresses_ = false;
  for (const HostPort& input : inputs_)
    REDLINE_TRY(code_.device->upload(input.device, input.data.data(), input.bytes(context.sizes)));
  return {};
}

Result<tiles::ProgramTables> TileRunner::program_tables() {
  tiles::ProgramTables tables = {};
  tables.stages = reinterpret_cast<const tiles::StageTable*>(code_.stage_tables.data());
  tables.constants = code_.constants.data();
  tables.step = reinterpret_cast<const tiles::StepTables*>(step_memory_.data());
  tables.tasks = reinterpret_cast<const tiles::ProgramTables::TaskEntry*>(code_.tasks.data());
  tables.list_begin = reinterpret_cast<const uint32_t*>(code_.list_begin.data());
  tables.waits = reinterpret_cast<const tiles::ProgramTables::WaitEntry*>(code_.waits.data());
  tables.notifies = reinterpret_cast<const uint32_t*>(code_.notifies.data());
  tables.counters = reinterpret_cast<uint64_t*>(code_.counters.data());
  tables.num_lists = static_cast<uint32_t>(program_.workers);
  tables.hang = reinterpret_cast<tiles::HangReport*>(code_.hang.data());
  constexpr double kNever = 1e9;  // seconds
  tables.deadline_ns = static_cast<uint64_t>((options_.hang_seconds > 0 ? options_.hang_seconds : kNever) * 1e9);
  if (trace_) REDLINE_TRY(trace_->attach(tables));
  return tables;
}

Result<std::string> TileRunner::run_persistent() {
  REDLINE_ASSIGN(tiles::ProgramTables tables, program_tables());
  if (trace_) REDLINE_TRY(trace_->begin());
  tables.epoch = ++epoch_;
  const auto begin = Clock::now();
  const Status launched = code_.device->run_program(tables, program_.workers);
  if (launched.code() == Code::unsupported) return launched.message();
  REDLINE_TRY(launched);
  return await(true, begin);
}

Status TileRunner::run(const StepContext& context) {
  REDLINE_TRY(upload_step(context));
  last_sizes_ = context.sizes;
  if (options_.steps.persistent_rows > 0 && context.sizes[Symbol::kTokens] <= options_.steps.persistent_rows) {
    REDLINE_ASSIGN(const std::string failure, run_persistent());
    if (failure.empty()) {
      if (trace_) REDLINE_TRY(trace_->add_tasks(program_, steps_));
      return download_outputs(context);
    }
    if (!options_.on_notice) return internal("{}", failure);
    // Events have counted this step in part, so no other can be persistent. A step can be repeated: it reads states and
    // writes others, or the same rows of pages. What it has read of the arena is uploaded again.
    options_.steps = {0, failure.substr(0, failure.find('\n'))};
    options_.on_notice(fmt::format("{}: {}: {}\nall further steps are graphs of launches", code_.device->name(),
                                   program_.name, failure));
    REDLINE_TRY(upload_step(context));
  }
  REDLINE_ASSIGN(const tiles::ProgramTables tables, program_tables());
  const auto begin = Clock::now();
  keep_weights(tables, context.sizes);
  if (trace_) REDLINE_TRY(trace_->begin());
  if (const auto sizes = graph_sizes(context.sizes)) {
    REDLINE_TRY(run_graph(tables, *sizes));
  } else {
    REDLINE_TRY(launch_stages(tables, context.sizes));
  }
  REDLINE_ASSIGN(const std::string hang, await(false, begin));
  if (!hang.empty()) return internal("{}", hang);
  if (trace_)
    REDLINE_TRY(trace_->add_stages(steps_, [&](size_t s) {
      const int16_t dim = code_.stages[s].row_dim;
      return dim >= 0 && is_by_library(s, program_.row_dims[static_cast<size_t>(dim)].eval(context.sizes)) &&
             !code_.library_stages[s].has_epilogue;
    }));
  return download_outputs(context);
}

Status TileRunner::download_outputs(const StepContext& context) {
  // Tokens come first: only logits of rows without a token are copied.
  std::span<int32_t> tokens;
  for (HostPort& output : outputs_) {
    if (code_.sampled_tokens.empty() || output.port->name != code_.sampled_tokens) continue;
    const int64_t bytes = output.bytes(context.sizes);
    tokens = {reinterpret_cast<int32_t*>(output.data.data()), static_cast<size_t>(bytes / 4)};
    if (context.samples.empty()) std::fill(tokens.begin(), tokens.end(), -1);  // the kernel has written nothing
    else REDLINE_TRY(code_.device->download(output.data.data(), output.device, bytes));
  }
  for (HostPort& output : outputs_) {
    if (!tokens.empty() && output.port->name == code_.sampled_tokens) continue;
    const int64_t bytes = output.bytes(context.sizes);
    const bool is_sampled = std::any_of(tokens.begin(), tokens.end(), [](int32_t token) { return token >= 0; });
    if (!is_sampled || output.port->name != code_.sampled_logits) {
      REDLINE_TRY(code_.device->download(output.data.data(), output.device, bytes));
      continue;
    }
    const int64_t row_bytes = bytes / std::ssize(tokens);
    for (int64_t row = 0; row < std::ssize(tokens); ++row)
      if (tokens[static_cast<size_t>(row)] < 0)
        REDLINE_TRY(code_.device->download(output.data.data() + row * row_bytes,
                                           static_cast<uint8_t*>(output.device) + row * row_bytes, row_bytes));
  }
  return {};
}

Status TileRunner::launch_stages(const tiles::ProgramTables& tables, const SymbolValues& sizes) {
  for (size_t s = 0; s < code_.stages.size(); ++s) REDLINE_TRY(launch_stage(tables, s, sizes));
  return {};
}

Status TileRunner::launch_stage(const tiles::ProgramTables& tables, size_t s, const SymbolValues& sizes) {
  const tiles::StageTable& stage = code_.stages[s];
  int64_t parts = stage.tickets > 0 ? stage.tickets : stage.row_parts;
  tiles::KernelId kernel = stage.kernel;
  if (stage.row_dim >= 0) {
    const int64_t rows = program_.row_dims[static_cast<size_t>(stage.row_dim)].eval(sizes);
    parts = (rows + stage.row_tile - 1) / stage.row_tile;
    if (is_by_library(s, rows)) {
      const TileProgram::LibraryStage& by_library = code_.library_stages[s];
      const Status status = multiply_by_library(tables, s, static_cast<int32_t>(rows));
      if (status.ok()) return {};
      // An error of the library is not one of the device, whose own kernel computes the same. If the device has
      // failed, its launch says so.
      failed_products_.insert({rows, by_library.cols, by_library.k});
      if (options_.on_notice)
        options_.on_notice(fmt::format("{}; a kernel of Redline's own takes its place", status.message()));
    }
    if (rows > tiles::kFewRows && code_.device->table().has_warp_groups != 0) kernel = tiles::wide_kernel(kernel);
  }
  const auto blocks = static_cast<int32_t>(parts * stage.col_tiles);
  if (blocks == 0) return {};
  return code_.device->launch(tables, static_cast<int32_t>(s), kernel, blocks).within(program_.stages[s].name);
}

bool TileRunner::is_by_library(size_t s, int64_t rows) {
  if (s >= code_.library_stages.size() || rows <= own_rows_) return false;
  const TileProgram::LibraryStage& by_library = code_.library_stages[s];
  return by_library.cols > 0 && !failed_products_.contains({rows, by_library.cols, by_library.k}) &&
         code_.device->can_multiply(static_cast<int32_t>(rows), by_library.cols, by_library.k);
}

void TileRunner::keep_weights(const tiles::ProgramTables& tables, const SymbolValues& sizes) {
  if (code_.library_stages.empty() || !kept_weights_.empty()) return;
  bool is_any_multiplied = false;
  for (size_t s = 0; s < code_.stages.size(); ++s)
    is_any_multiplied |= code_.library_stages[s].cols > 0 && program_.stages[s].grid.rows.eval(sizes) > own_rows_;
  if (!is_any_multiplied) return;
  kept_weights_.resize(code_.stages.size());
  const auto memory = code_.device->memory();
  int64_t left = memory.ok() ? memory->usable() / kKeptShare : 0;
  for (size_t s = 0; s < code_.stages.size(); ++s) {
    const TileProgram::LibraryStage& by_library = code_.library_stages[s];
    const int64_t bytes = int64_t{by_library.cols} * by_library.k * 2;
    if (bytes == 0 || bytes > left) continue;
    auto copy = DeviceMemory::make(code_.device, bytes);
    if (!copy.ok()) return;
    const Status unpacked = code_.device->launch(tables, static_cast<int32_t>(s), tiles::KernelId::kUnpackWeight,
                                                 code_.stages[s].col_tiles);
    // An error of the device, which the step reports.
    if (!unpacked.ok() || !code_.device->copy(copy->data(), code_.library_memory.data(), bytes).ok()) return;
    kept_weights_[s] = std::move(copy).value();
    left -= bytes;
  }
}

Status TileRunner::multiply_by_library(const tiles::ProgramTables& tables, size_t stage, int32_t rows) {
  const TileProgram::LibraryStage& by_library = code_.library_stages[stage];
  const tiles::StageTable& table = code_.stages[stage];
  const auto number = static_cast<int32_t>(stage);
  const int32_t blocks = (rows + table.row_tile - 1) / table.row_tile * table.col_tiles;
  uint8_t* const memory = code_.library_memory.data();
  tiles::MatrixProduct product = {};
  product.w = reinterpret_cast<const uint16_t*>(memory);
  product.x = reinterpret_cast<const uint16_t*>(memory + code_.library_x);
  product.y = reinterpret_cast<float*>(memory + code_.library_y);
  if (!by_library.has_epilogue) std::memcpy(&product.y, code_.host_constants.data() + by_library.y, sizeof(product.y));
  product.rows = rows;
  product.cols = by_library.cols;
  product.k = by_library.k;
  OpenDevice& device = *code_.device;
  const uint8_t* const kept = kept_weight(stage);
  if (kept == nullptr) REDLINE_TRY(device.launch(tables, number, tiles::KernelId::kUnpackWeight, table.col_tiles));
  else product.w = reinterpret_cast<const uint16_t*>(kept);
  REDLINE_TRY(device.launch(tables, number, tiles::KernelId::kRoundRows, blocks));
  REDLINE_TRY(device.multiply(product));
  return by_library.has_epilogue ? device.launch(tables, number, tiles::KernelId::kFinishRows, blocks) : Status();
}

std::optional<SymbolValues> TileRunner::graph_sizes(const SymbolValues& sizes) const {
  if (!options_.graphs) return std::nullopt;
  SymbolValues bucket = sizes;
  if (sizes[Symbol::kTokens] == 0) return bucket;  // images: of these sizes only
  for (const Symbol symbol :
       {Symbol::kTokens, Symbol::kSequences, Symbol::kLogitRows, Symbol::kHiddenRows, Symbol::kEmbeddingRows}) {
    const auto* at = std::lower_bound(std::begin(kGraphRows), std::end(kGraphRows), sizes[symbol]);
    if (at == std::end(kGraphRows)) return std::nullopt;
    if (sizes[symbol] > 0) bucket[symbol] = std::min(*at, program_.bounds[symbol]);
  }
  return bucket;
}

Status TileRunner::run_graph(const tiles::ProgramTables& tables, const SymbolValues& sizes) {
  const std::vector<int64_t> key(std::begin(sizes.value), std::end(sizes.value));
  const auto [at, is_new] = graphs_.try_emplace(key);
  StepGraph& kept = at->second;
  kept.last_step = steps_;
  if (!is_new && kept.graph == nullptr) {
    const auto lock = code_.device->hold();
    const size_t failed_products = failed_products_.size();
    REDLINE_TRY(code_.device->begin_capture());
    const Status launched = launch_stages(tables, sizes);
    const Status captured = code_.device->end_capture(&kept.graph);
    // An error of the library may end the capture, and what follows then fails too. The next is without that product.
    if (failed_products_.size() > failed_products && (!launched.ok() || !captured.ok())) {
      if (captured.ok() && kept.graph != nullptr) code_.device->release_graph(kept.graph);
      kept.graph = nullptr;
      return launch_stages(tables, sizes);
    }
    REDLINE_TRY(launched);
    REDLINE_TRY(captured);
  }
  while (graphs_.size() > kMaxGraphs) {
    const auto oldest = std::min_element(graphs_.begin(), graphs_.end(), [](const auto& a, const auto& b) {
      return a.second.last_step < b.second.last_step;
    });
    if (oldest->second.graph != nullptr) code_.device->release_graph(oldest->second.graph);
    graphs_.erase(oldest);
  }
  return kept.graph != nullptr ? code_.device->launch_graph(kept.graph) : launch_stages(tables, sizes);
}

void TileRunner::drop_graphs() {
  for (const auto& [sizes, kept] : graphs_)
    if (kept.graph != nullptr) code_.device->release_graph(kept.graph);
  graphs_.clear();
}

Status TileRunner::step(const StepContext& context) {
  REDLINE_TRY(failed_);
  REDLINE_TRY(check_sizes(context));
  Status status = run(context);
  // Memory is allocated before anything is launched: a step that finds none has changed nothing.
  if (status.ok() || is_out_of_memory(status.code())) return status;
  failed_ = Status(status.code(), fmt::format("{}: {}; {} runs nothing further: open the model again", program_.name,
                                              status.message(), code_.device->name()));
  return failed_;
}

}  // namespace redline
