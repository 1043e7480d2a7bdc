#include "backends/tiles/tile_runner.h"

#include <algorithm>
#include <cstring>

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

 private:
  std::shared_ptr<OpenDevice> device_;
  std::vector<Group> groups_;
};

class DeviceBuffer final : public BackendBuffer {
 public:
  explicit DeviceBuffer(DeviceMemory memory) : memory_(std::move(memory)) {}
  void* data() override { return memory_.data(); }

 private:
  DeviceMemory memory_;
};

int32_t clamp_position(int64_t position) { return static_cast<int32_t>(std::min<int64_t>(position, INT32_MAX)); }

}  // namespace

TileRunner::TileRunner(Program program, TileRunnerOptions options)
    : program_(std::move(program)), code_(TileProgram::of(program_)), options_(options) {
  inputs_ = host_ports(program_.inputs, code_.inputs);
  outputs_ = host_ports(program_.outputs, code_.outputs);
}

std::vector<TileRunner::HostPort> TileRunner::host_ports(const std::vector<Program::Port>& ports,
                                                         const std::vector<void*>& addresses) const {
  std::vector<HostPort> host;
  for (size_t i = 0; i < ports.size(); ++i) {
    host.push_back({&ports[i], addresses[i], {}});
    host.back().data.resize(static_cast<size_t>(host.back().bytes(program_.bounds)));
  }
  return host;
}

Result<std::unique_ptr<StateMemory>> TileRunner::make_state_memory(std::span<const int64_t> num_pages) const {
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
  REDLINE_ASSIGN(DeviceMemory memory, DeviceMemory::make(code_.device, bytes));
  return std::unique_ptr<BackendBuffer>(new DeviceBuffer(std::move(memory)));
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
  return {};
}

// Until the memory of the step is known, pointers are offsets in it.
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
  const auto partitions = static_cast<size_t>(program_.attention_partitions);
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
  t.num_partitions = program_.attention_partitions;
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
  tables.num_partitions = program_.attention_partitions;
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
        parts.push_back({*down, *up, static_cast<int32_t>(adapted.begin), static_cast<int32_t>(adapted.end),
                         static_cast<int32_t>(factors->rank), static_cast<int32_t>(rank),
                         factors->scale * each.weight});
        rank += factors->rank;
      }
    });
    begin.push_back(static_cast<int32_t>(parts.size()));
  }
  tables.adapter_parts = append(std::span<const tiles::AdapterPart>(parts));
  tables.adapter_begin = append(std::span<const int32_t>(begin));
  return status;
}

Status TileRunner::upload_step(const StepContext& context) {
  tiles::StepTables tables = {};
  for (size_t d = 0; d < program_.row_dims.size(); ++d)
    tables.rows[d] = static_cast<int32_t>(program_.row_dims[d].eval(context.sizes));
  step_bytes_.assign(sizeof(tables), 0);
  std::vector<tiles::SequenceTable> sequences;
  for (const SequenceRows& rows : context.sequences) sequences.push_back({rows.row_begin, rows.rows});
  tables.num_sequences = static_cast<int32_t>(sequences.size());
  tables.sequences = append(std::span<const tiles::SequenceTable>(sequences));
  REDLINE_TRY(append_adapters(context, tables));
  int64_t partials = 0;
  for (size_t g = 0; g < program_.states.groups.size(); ++g) tables.groups[g] = group_tables(context, g, partials);
  if (partials * 4 > partials_.size()) {
    REDLINE_ASSIGN(partials_, DeviceMemory::make(code_.device, partials * 4));
  }
  const auto bytes = static_cast<int64_t>(step_bytes_.size());
  if (bytes > step_memory_.size()) {
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
  std::memcpy(step_bytes_.data(), &tables, sizeof(tables));
  REDLINE_TRY(code_.device->upload(step_memory_.data(), step_bytes_.data(), bytes));
  for (const HostPort& input : inputs_)
    REDLINE_TRY(code_.device->upload(input.device, input.data.data(), input.bytes(context.sizes)));
  return {};
}

Status TileRunner::run(const StepContext& context) {
  REDLINE_TRY(upload_step(context));
  tiles::ProgramTables tables = {};
  tables.stages = reinterpret_cast<const tiles::StageTable*>(code_.stage_tables.data());
  tables.constants = code_.constants.data();
  tables.step = reinterpret_cast<const tiles::StepTables*>(step_memory_.data());
  tables.tasks = reinterpret_cast<const tiles::ProgramTables::TaskEntry*>(code_.tasks.data());
  tables.list_begin = reinterpret_cast<const uint32_t*>(code_.list_begin.data());
  tables.waits = reinterpret_cast<const tiles::ProgramTables::WaitEntry*>(code_.waits.data());
  tables.notifies = reinterpret_cast<const uint32_t*>(code_.notifies.data());
  tables.counters = reinterpret_cast<uint64_t*>(code_.counters.data());
  if (context.sizes[Symbol::kTokens] <= options_.persistent_rows) {
    tables.epoch = ++epoch_;
    REDLINE_TRY(code_.device->run_program(tables, program_.workers));
  } else {
    for (size_t s = 0; s < code_.stages.size(); ++s) {
      const tiles::StageTable& stage = code_.stages[s];
      int64_t parts = stage.row_parts;
      if (stage.row_dim >= 0)
        parts = (program_.row_dims[static_cast<size_t>(stage.row_dim)].eval(context.sizes) + stage.row_tile - 1) /
                stage.row_tile;
      const auto blocks = static_cast<int32_t>(parts * stage.col_tiles);
      if (blocks == 0) continue;
      REDLINE_TRY(
          code_.device->launch(tables, static_cast<int32_t>(s), stage.kernel, blocks).within(program_.stages[s].name));
    }
  }
  REDLINE_TRY(code_.device->synchronize());
  for (HostPort& output : outputs_)
    REDLINE_TRY(code_.device->download(output.data.data(), output.device, output.bytes(context.sizes)));
  return {};
}

Status TileRunner::step(const StepContext& context) {
  REDLINE_TRY(failed_);
  REDLINE_TRY(check_sizes(context));
  Status status = run(context);
  if (!status.ok()) failed_ = status.within(program_.name);
  return status;
}

}  // namespace redline
