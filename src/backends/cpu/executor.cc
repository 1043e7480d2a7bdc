#include "backends/cpu/executor.h"

#include <sched.h>
#include <time.h>

#include <cstdio>

#include <algorithm>

#include "backends/host_memory.h"
#include "graph/external_values.h"
#include "kernels/cpu/cpu_kernels.h"

namespace redline {
namespace {

constexpr int kSpinsPerLook = 32;
// Number of times that a waiting worker yields before it sleeps, if workers share cores.
constexpr int kYields = 20000;
// Polls between two clock reads while yielding.
constexpr int kYieldsPerLook = 256;
constexpr int64_t kMaxBetweenLooksNs = 1'000'000'000;
// Maximum bytes of weights that are prefetched from one range: about as many as memory delivers in a typical wait of a
// few microseconds, and few enough to stay in the L2 cache.
constexpr int64_t kMaxFetched = 64 << 10;

// Maximum time that a step keeps the workers between two pauses while other steps wait. A step keeps them for as long
// as the others had them before, but not longer than this.
constexpr int64_t kMaxSliceNs = 100'000'000;

// Number of tasks past another worker's current one that an idle worker searches for work to steal: a stage or two.
constexpr uint32_t kLooksAhead = 32;

// Prefetches a task's first weights until `counter` reaches `target`. Weights depend on no event, so this uses the wait
// (Event Tensor, arXiv 2604.13327).
void fetch_until(const FirstBytes& first, const std::atomic<uint64_t>& counter, uint64_t target) {
  constexpr int64_t kLine = 64, kLinesPerLook = 8;
  for (int64_t at = 0; at < kMaxFetched; at += kLine * kLinesPerLook) {
    for (size_t run = 0; run < 2; ++run)
      for (int64_t line = at; line < std::min(at + kLine * kLinesPerLook, first.bytes[run]); line += kLine)
        __builtin_prefetch(static_cast<const char*>(first.data[run]) + line, 0, 2);
    if (counter.load(std::memory_order_acquire) >= target) return;
  }
}

}  // namespace

Executor::Executor(Program program, WorkerTeam& team, ExecutorOptions options)
    : program_(std::move(program)), code_(CpuProgram::of(program_)), team_(team), options_(options),
      workers_(static_cast<size_t>(program_.workers)), rows_(program_.row_dims.size()) {
  REDLINE_CHECK(team.size() == program_.workers);
  runs_[0].schedule = &program_;
  if (program_.wavefront) runs_[1].schedule = &*program_.wavefront;
  for (size_t i = 0; i < std::size(runs_) && runs_[i].schedule; ++i) {
    runs_[i].counters = std::vector<Counter>(runs_[i].schedule->num_events);
    for (size_t w = 0; w < workers_.size(); ++w)
      workers_[w].taken[i] = std::make_unique<std::atomic<uint32_t>[]>(runs_[i].schedule->tasks[w].size());
  }
  for (const std::vector<Program::Port>* ports : {&program_.inputs, &program_.outputs})
    for (const Program::Port& port : *ports) {
      if (!is_external_name(port.name)) continue;
      std::vector<OperandAddress*>& uses = uses_[port.name];
      for (const CpuStage& stage : code_.stages)
        for (const CpuStage::Use& use : stage.operands)
          if (use.value == port.value) uses.push_back(use.operand);
    }
  if (options_.timeline) timeline_program_ = options_.timeline->add_program(program_);
  body_ = [this](int worker) { run_worker(worker); };
}

Result<std::unique_ptr<StateMemory>> Executor::make_state_memory(std::span<const int64_t> num_pages) const {
  return make_host_state_memory(program_.states, num_pages);
}

Result<std::unique_ptr<BackendBuffer>> Executor::make_buffer(int64_t bytes) const { return make_host_buffer(bytes); }

void* Executor::host_input(std::string_view name) {
  const Program::Port* port = program_.find_input(name);
  return port ? code_.inputs[static_cast<size_t>(port - program_.inputs.data())] : nullptr;
}
const void* Executor::host_output(std::string_view name) const {
  const Program::Port* port = program_.find_output(name);
  return port ? code_.outputs[static_cast<size_t>(port - program_.outputs.data())] : nullptr;
}
bool Executor::bind(std::string_view name, void* data) {
  const auto at = uses_.find(name);
  if (at == uses_.end()) return false;
  for (OperandAddress* operand : at->second) operand->data = data;
  return true;
}

int64_t Executor::scratch_bytes_per_worker() const {
  constexpr int64_t kPage = 4096;
  return kScratchBytes + (code_.buffer_bytes + kPage - 1) / kPage * kPage;
}

Status Executor::step(const StepContext& context) {
  if (aborted_.load()) return internal("the program stopped making progress in an earlier step; open the model again");
  for (int s = 0; s < kNumSymbols; ++s)
    if (context.sizes.value[s] < 0 || context.sizes.value[s] > program_.bounds.value[s])
      return invalid_argument("{} is {} in this step, the program was compiled for at most {}",
                              symbol_name(static_cast<Symbol>(s)), context.sizes.value[s], program_.bounds.value[s]);
  for (size_t group = 0; group < code_.attention.size(); ++group)
    if (code_.attention[group]) REDLINE_TRY(code_.attention[group]->reserve(context.states[group].attention));
  for (Worker& worker : workers_) worker.task.store(0, std::memory_order_relaxed);
  context_ = context;
  for (size_t i = 0; i < rows_.size(); ++i) rows_[i] = program_.row_dims[i].eval(context.sizes);
  if (!context.adapters.empty())
    for (const auto& prepare : code_.before_steps) prepare(context);
  ++step_;
  current_ = &program_.schedule_of(context) == runs_[1].schedule ? 1 : 0;
  ++runs_[current_].steps;
  const int64_t min_ns = std::min(static_cast<int64_t>(options_.slice_ms * 1e6), kMaxSliceNs);
  slice_ns_ = min_ns;
  for (;;) {
    REDLINE_TRY(run_slice());
    if (!pauses_.exchange(false)) return {};
    const int64_t begin_ns = Timeline::now_ns();
    options_.turns->unlock();
    options_.turns->lock();
    slice_ns_ = std::clamp(Timeline::now_ns() - begin_ns, min_ns, kMaxSliceNs);
  }
}

Status Executor::run_slice() {
  const int64_t worker_bytes = scratch_bytes_per_worker();
  REDLINE_ASSIGN(uint8_t* const scratch, team_.scratch(worker_bytes));  // another's, during a pause
  for (size_t w = 0; w < workers_.size(); ++w) {
    uint8_t* own = scratch + worker_bytes * static_cast<int64_t>(w);
    workers_[w].context = {.worker = static_cast<int>(w),
                           .step = static_cast<uint64_t>(step_),
                           .shares_core = team_.oversubscribed(),
                           .scratch = own,
                           .buffer = own + kScratchBytes};
  }
  if (options_.turns) slice_end_ns_ = Timeline::now_ns() + slice_ns_;
  const bool is_watched = options_.watchdog != nullptr && options_.hang_seconds > 0;
  if (is_watched) options_.watchdog->begin(*this, options_.hang_seconds);
  team_.run(body_);
  if (is_watched) options_.watchdog->end();
  if (aborted_.load()) return internal("no progress for {} s\n{}", options_.hang_seconds, dump());
  return {};
}

bool Executor::pauses(int worker) {
  if (!options_.turns) return false;
  if (worker == 0 && options_.turns->has_waiters() && Timeline::now_ns() > slice_end_ns_)
    pauses_.store(true, std::memory_order_relaxed);
  return pauses_.load(std::memory_order_relaxed);
}

int64_t Executor::now_ns() const { return options_.timeline ? Timeline::now_ns() : 0; }

Tile Executor::tile_of(const Task& task) const {
  const int64_t rows = rows_[static_cast<size_t>(program_.stages[task.stage].row_dim)];
  return schedule().grids[task.stage].tile(static_cast<int32_t>(task.index), rows, context_.sizes);
}

const Wait* Executor::missing(const Task& task) const {
  for (uint32_t w = task.wait_begin; w < task.wait_end; ++w) {
    const Wait& need = schedule().waits[w];
    if (count_of(need.event) < target_of(need)) return &need;
  }
  return nullptr;
}

bool Executor::is_taken(const Worker& owner, uint32_t task) const {
  return owner.taken[current_][task].load(std::memory_order_relaxed) == static_cast<uint32_t>(step_);
}

bool Executor::take(Worker& owner, uint32_t task) {
  const auto step = static_cast<uint32_t>(step_);
  return owner.taken[current_][task].exchange(step, std::memory_order_relaxed) != step;
}

void Executor::run_task(Worker& self, const Task& task, int64_t since_ns) {
  const CpuStage& stage = code_.stages[task.stage];
  const Tile tile = tile_of(task);
  const int64_t begin_ns = now_ns();
  // A tile without work still notifies: event counts do not depend on sizes.
  if (tile.row_begin < tile.row_end && tile.col_begin < tile.col_end) stage.run(stage, tile, context_, self.context);
  if (options_.timeline)
    options_.timeline->add(self.context.worker,
                           {timeline_program_, task.stage, task.index, step_, since_ns, begin_ns, Timeline::now_ns()});
  for (uint32_t n = task.notify_begin; n < task.notify_end; ++n)
    runs_[current_].counters[schedule().notifies[n]].value.fetch_add(1, std::memory_order_release);
}

void Executor::run_worker(int worker) {
  Worker& self = workers_[static_cast<size_t>(worker)];
  const std::vector<Task>& tasks = tasks_of(static_cast<size_t>(worker));
  for (uint32_t i = self.task.load(std::memory_order_relaxed); i < tasks.size(); ++i) {
    self.task.store(i, std::memory_order_relaxed);
    if (is_taken(self, i)) continue;
    if (pauses(worker)) return;
    int64_t since_ns = now_ns();
    if (missing(tasks[i]) && !wait(self, i, since_ns)) return;
    if (take(self, i)) run_task(self, tasks[i], since_ns);
  }
  self.task.store(static_cast<uint32_t>(tasks.size()), std::memory_order_relaxed);
  int64_t since_ns = now_ns();
  for (size_t in_vain = 0; in_vain + 1 < workers_.size() && !pauses(worker); ++in_vain)
    while (help(self, since_ns)) in_vain = 0;
}

bool Executor::help(Worker& self, int64_t& since_ns) {
  if (workers_.size() < 2) return false;
  self.victim = (self.victim + 1) % workers_.size();
  if (self.victim == static_cast<size_t>(self.context.worker)) self.victim = (self.victim + 1) % workers_.size();
  Worker& other = workers_[self.victim];
  const std::vector<Task>& tasks = tasks_of(self.victim);
  // Search from the far end of the window: the victim is about to start its next tasks itself, unless it has not woken
  // up for this step yet.
  const uint32_t at = other.task.load(std::memory_order_relaxed);
  for (uint32_t i = std::min<uint32_t>(at + kLooksAhead, static_cast<uint32_t>(tasks.size())); i-- > at;) {
    if (is_taken(other, i) || missing(tasks[i]) || !take(other, i)) continue;
    self.stolen.store(&tasks[i], std::memory_order_relaxed);
    run_task(self, tasks[i], since_ns);
    self.stolen.store(nullptr, std::memory_order_relaxed);
    self.num_stolen.fetch_add(1, std::memory_order_relaxed);
    since_ns = now_ns();
    return true;
  }
  return false;
}

bool Executor::wait(Worker& self, uint32_t own, int64_t& since_ns) {
  const Task& task = tasks_of(static_cast<size_t>(self.context.worker))[own];
  const auto waits_for = [&] { return is_taken(self, own) ? nullptr : missing(task); };
  const CpuStage& stage = code_.stages[task.stage];
  if (const Wait* need = stage.first_weights ? waits_for() : nullptr)
    fetch_until(stage.first_weights(stage, tile_of(task)), counter_of(need->event).value, target_of(*need));
  const bool shares_core = team_.oversubscribed();
  Watch watch;
  int spin = 0, look = 0;
  while (const Wait* need = waits_for()) {
    if (pauses_.load(std::memory_order_relaxed)) {
      self.event.store(-1, std::memory_order_relaxed);
      return false;
    }
    self.event.store(need->event, std::memory_order_relaxed);
    if (help(self, since_ns)) {
      watch = {};
      spin = look = 0;
      continue;
    }
    if (!shares_core && spin < kWaitSpins) {
      for (const int end = spin + kSpinsPerLook; spin < end && waits_for(); ++spin) spin_pause();
      continue;
    }
    const bool yields = shares_core && look < kYields;
    if (aborted_.load(std::memory_order_relaxed)) return false;
    if (options_.hang_seconds > 0 && (!yields || look % kYieldsPerLook == 0) && hangs(watch)) {
      give_up(self);
      return false;
    }
    if (yields) sched_yield();
    else nanosleep(&kWaitNap, nullptr);
    ++look;
  }
  self.event.store(-1, std::memory_order_relaxed);
  return true;
}

// Ends the step for all waiting workers. A worker stuck inside a kernel never returns, so step() could not return the
// dump: it is written here.
void Executor::give_up(const Worker& self) {
  bool somebody_runs = false;
  for (size_t w = 0; w < workers_.size(); ++w)
    somebody_runs |=
        &workers_[w] != &self && (workers_[w].stolen.load() != nullptr ||
                                  (workers_[w].event.load() < 0 && workers_[w].task.load() < tasks_of(w).size()));
  const std::string text = fmt::format("redline: no progress for {} s\n{}", options_.hang_seconds, dump());
  if (!aborted_.exchange(true) && somebody_runs) std::fputs(text.c_str(), stderr);
}

int64_t Executor::progress() const {
  int64_t progress = 0;
  for (const Worker& w : workers_)
    progress += w.task.load(std::memory_order_relaxed) + w.num_stolen.load(std::memory_order_relaxed);
  return progress;
}

bool Executor::hangs(Watch& watch) const {
  const int64_t progress = this->progress(), now = Timeline::now_ns();
  // A long gap between two polls means that the whole process was stopped (Ctrl-Z, a debugger), not that a worker
  // hangs.
  watch.quiet_ns += std::min(now - watch.looked_ns, kMaxBetweenLooksNs);
  watch.looked_ns = now;
  if (progress != watch.progress) {
    watch.progress = progress;
    watch.quiet_ns = 0;
  }
  return static_cast<double>(watch.quiet_ns) * 1e-9 > options_.hang_seconds;
}

std::string Executor::name_of(const Task& task) const {
  return fmt::format("{} tile {}", program_.stages[task.stage].name, task.index);
}

std::string Executor::dump() const {
  std::string text = fmt::format("program {} stopped in step {}:\n", program_.name, step_);
  for (size_t w = 0; w < workers_.size(); ++w) {
    const auto& tasks = tasks_of(w);
    const uint32_t at = workers_[w].task.load();
    if (const Task* stolen = workers_[w].stolen.load()) {
      text +=
          fmt::format("  worker {}: task {} of {}; running stolen task {}\n", w, at, tasks.size(), name_of(*stolen));
      continue;
    }
    if (at >= tasks.size()) {
      text += fmt::format("  worker {}: done\n", w);
      continue;
    }
    const Task& task = tasks[at];
    const int64_t event = workers_[w].event.load();
    text += fmt::format("  worker {}: task {} of {}, {}: ", w, at, tasks.size(), name_of(task));
    if (event < 0) {
      text += "running\n";
      continue;
    }
    uint64_t need = 0;
    for (uint32_t i = task.wait_begin; i < task.wait_end; ++i)
      if (schedule().waits[i].event == static_cast<uint32_t>(event)) need = target_of(schedule().waits[i]);
    text += fmt::format("waits for {}: {} of {}\n", schedule().event_names[static_cast<size_t>(event)],
                        count_of(static_cast<uint32_t>(event)), need);
  }
  return text;
}

}  // namespace redline
