#include "cli/bench_tables.h"

#include <algorithm>

namespace redline::cli {
namespace {

std::string short_count(double value, const char* unit) {
  const char* const prefixes[] = {"", "k", "M", "G", "T"};
  int i = 0;
  for (; value >= 999.5 && i < 4; ++i) value /= 1000;
  return fmt::format("{:.{}f} {}{}", value, value < 9.995 ? 2 : value < 99.95 ? 1 : 0, prefixes[i], unit);
}

std::string short_time(double seconds) {
  if (seconds >= 1) return fmt::format("{:.2f} s", seconds);
  return fmt::format("{:.{}f} ms", seconds * 1e3, seconds < 0.01 ? 3 : seconds < 0.1 ? 2 : 1);
}

std::string kernel_time(double seconds) {
  return seconds >= 0.1    ? fmt::format("{:.2f} s", seconds)
         : seconds >= 1e-4 ? fmt::format("{:.3f} ms", seconds * 1e3)
                           : fmt::format("{:.3f} us", seconds * 1e6);
}

const RowTable kTextRows({{"phase", 7, false},
                          {"tokens", 6},
                          {"depth", 5},
                          {"streams", 7},
                          {"tokens/s", 9},
                          {"spread", 6},
                          {"a step", 9},
                          {"reads", 7},
                          {"computes", 8},
                          {"rate", 10},
                          {"of ceiling", 10},
                          {"bound by", 18, false},
                          {"", 0, false}});
const RowTable kImageRows({{"size", 9, false},
                           {"step", 10},
                           {"spread", 6},
                           {"first", 10},
                           {"second", 10},
                           {"decode", 9},
                           {"computes", 11},
                           {"rate", 10},
                           {"of ceiling", 10},
                           {"", 0, false}});

std::string machine_line(const MachinePeaks& peaks) {
  std::string machine;
  for (const char* name : {"read", "f32", "f16", "bf16", "int8"}) {
    const Peak* c = peaks.find(name);
    if (c == nullptr) continue;
    if (!machine.empty()) machine += ", ";
    if (!c->instruction.empty()) {
      machine += fmt::format("{} {} ({})", name, short_count(c->all * 1e9, "OP/s"), c->instruction);
      continue;
    }
    machine += fmt::format("reads {:.1f} GB/s", c->all);
    // The buffer fits into a cache, so this is not the bandwidth of the memory.
    if (peaks.read_bytes > 0)
      machine += fmt::format(" (of {} again and again, as much as a step reads)",
                             human_bytes(static_cast<double>(peaks.read_bytes)));
  }
  return machine;
}

std::vector<std::string> text_cells(const lab::BenchRow& row, std::vector<std::string>& notes) {
  std::vector<std::string> cells = {std::string(lab::phase_name(row.phase)), fmt::format("{}", row.tokens),
                                    fmt::format("{}", row.depth), fmt::format("{}", row.streams)};
  if (!row.is_measured()) {
    cells.insert(cells.end(), {"-", "", "", "", "", "", "", "", "skipped: " + row.skipped});
    return cells;
  }
  const double median = row.median();
  std::string mark;
  if (row.is_cold) mark += "one run";
  if (row.state_changed()) {
    if (!mark.empty()) mark += ", ";
    mark += fmt::format("moved [{}]", notes.size() + 1);
    notes.push_back(fmt::format(
        "[{}] the machine changed during the row: reads {:.1f} -> {:.1f} GB/s, f32 {:.0f} -> {:.0f} GOP/s, {:.0f} -> "
        "{:.0f} ns between cores",
        notes.size() + 1, row.before.read_gb_s, row.after.read_gb_s, row.before.f32_gop_s, row.after.f32_gop_s,
        row.before.ping_pong_ns, row.after.ping_pong_ns));
  }
  if (!row.error.empty()) mark += (mark.empty() ? "ERROR: " : "; ERROR: ") + row.error;
  const bool is_start = row.phase == lab::BenchPhase::kStart;
  cells.insert(cells.end(), {is_start ? "" : fmt::format("{:.1f}", row.tokens_per_s(median)),
                             fmt::format("{:.0f}%", 100 * row.spread()), short_time(median / row.steps()),
                             human_bytes(row.bytes() / row.steps()), short_count(row.operations() / row.steps(), "OP"),
                             row.bound.is_memory ? short_count(row.bytes() / median, "B/s")
                                                 : short_count(row.operations() / median, "OP/s"),
                             fmt::format("{:.1f}%", 100 * row.share()), row.bound.by, mark});
  return cells;
}

RowTable kernel_table(const std::string& baseline) {
  std::vector<RowTable::Column> columns = {
      {"kernel", 20, false}, {"isa", 11, false},      {"rows", 5}, {"shape", 12, false},
      {"median", 10},        {"spread", 6},           {"GB/s", 7}, {"GOP/s", 8},
      {"of ceiling", 10},    {"bound by", 18, false}, {"error", 5}};
  if (!baseline.empty()) {
    columns.push_back({"times as fast as " + baseline, 0});
    columns.push_back({"score", 6});
  }
  columns.push_back({"", 0, false});
  return RowTable(std::move(columns));
}

std::vector<std::string> kernel_cells(const lab::KernelBenchRow& m) {
  std::vector<std::string> cells = {lab::kernel_entry_name(m.workload), m.isa, fmt::format("{}", m.workload.rows),
                                    fmt::format("{}", fmt::join(m.workload.shape, "x"))};
  const double median = m.timing.median();
  if (median > 0)
    cells.insert(cells.end(), {kernel_time(median), fmt::format("{:.0f}%", 100 * m.timing.spread()),
                               fmt::format("{:.2f}", m.cost.bytes / median / 1e9),
                               fmt::format("{:.1f}", m.cost.operations / median / 1e9),
                               m.bound.by.empty() ? "" : fmt::format("{:.1f}%", 100 * m.share()), m.bound.by});
  else cells.insert(cells.end(), {"-", "", "", "", "", ""});
  cells.push_back(fmt::format("{:.2f}", m.timing.check.of_bound));
  if (!m.baseline.empty()) {
    const bool is_scored = m.baseline_seconds > 0 && median > 0;
    cells.push_back(is_scored ? fmt::format("{:.2f}", m.baseline_seconds / median) : "");
    cells.push_back(is_scored ? fmt::format("{:.3f}", m.score()) : "");
  }
  cells.push_back(m.verdict.status == lab::KernelStatus::kPassed
                      ? ""
                      : fmt::format("{}: {}", lab::kernel_status_name(m.verdict.status), m.verdict.why));
  return cells;
}

constexpr const char* kJudgedAgain =
    "\nThe rows were faster than the ceilings, which were measured again; with these:\n";

}  // namespace

void TextBenchTable::add(const lab::BenchReport& report, const lab::BenchRow& row) {
  if (!has_begun_) {
    const ModelInfo& info = report.model;
    terminal_.print("{}: {}, {} parameters, {}; {} thread{}, {}\n", printable(report.label), info.architecture,
                    info.parameters, info.weight_types, info.threads, info.threads == 1 ? "" : "s", info.isa);
    if (const std::string conversion = info.conversion.text(); !conversion.empty()) terminal_.print("{}\n", conversion);
    if (!info.device_steps.empty()) terminal_.print("steps of the device: {}\n", info.device_steps);
    terminal_.print("this machine: {}\n\n{}", machine_line(report.peaks), kTextRows.header());
  }
  has_begun_ = true;
  terminal_.write(kTextRows.row(text_cells(row, notes_)));
  terminal_.flush();
}

void TextBenchTable::finish(const lab::BenchReport& report) {
  if (report.is_judged_again) {
    notes_.clear();
    has_begun_ = false;
    terminal_.write(kJudgedAgain);
    for (const lab::BenchRow& row : report.rows) add(report, row);
  }
  const ModelInfo& info = report.model;
  if (const lab::BenchRow* start = report.start())
    terminal_.print(
        "\nstart: a fresh process to the first token after {} tokens, {}; its peak memory {}, {:.2f} of the "
        "weights' {}\n",
        start->tokens, short_time(start->median()), human_bytes(static_cast<double>(start->peak_memory)),
        static_cast<double>(start->peak_memory) / static_cast<double>(std::max<int64_t>(1, info.weight_bytes)),
        human_bytes(static_cast<double>(info.weight_bytes)));
  for (const std::string& note : notes_) terminal_.print("{}{}\n", &note == notes_.data() ? "\n" : "", note);
  if (!report.check.against.empty())
    terminal_.print("\nchecked against {}: {:.1e} of the largest logit after {} tokens (bound {:.0e}){}\n",
                    report.check.against, report.check.relative_error, report.check.tokens, report.check.bound,
                    report.check.note.empty() ? "" : "; " + report.check.note);
}

void ImageBenchTable::add(const lab::ImageBenchReport& report, const lab::ImageSizeRow& row) {
  if (!has_begun_) {
    terminal_.print("{}: {}, {}; opened in {:.0f} ms\n", printable(report.folder), report.family, report.dtype,
                    report.load_ms);
    if (report.best)
      terminal_.print("ceiling: {:.0f} GOP/s, the fastest multiply-add for these weights ({})\n", report.best->all,
                      report.best->instruction);
    terminal_.print("\n{}", kImageRows.header());
  }
  has_begun_ = true;
  terminal_.write(
      kImageRows.row({fmt::format("{}x{}", row.side, row.side), fmt::format("{:.1f} ms", row.median_ms()),
                      fmt::format("{:.0f}%", 100 * (row.step_ms.back() - row.step_ms.front()) / row.median_ms()),
                      fmt::format("{:.1f} ms", row.first_ms), fmt::format("{:.1f} ms", row.second_ms),
                      fmt::format("{:.0f} ms", row.decode_ms), fmt::format("{:.2f} GOP", row.operations / 1e9),
                      fmt::format("{:.0f} GOP/s", row.gop_per_s()), fmt::format("{:.0f}%", 100 * report.share(row)),
                      differs(row.before, row.after) ? "the speed of the machine changed" : ""}));
  terminal_.flush();
}

void ImageBenchTable::finish(const lab::ImageBenchReport& report, bool was_asked_to_check) {
  terminal_.write("\n");
  for (const lab::ImageAdapterRow& row : report.adapters)
    terminal_.print("adapter  {}: read and packed in {:.1f} ms, swapped in {:.3f} ms\n", printable(row.file),
                    row.load_ms, row.swap_ms);
  if (report.adapted_ms > 0)
    terminal_.print("         a step with it {:.1f} ms, without {:.1f} ms\n", report.adapted_ms,
                    report.rows[0].median_ms());
  const ImageEngine::MemoryReport& memory = report.memory;
  if (report.peak_bytes > 0)
    terminal_.print(
        "memory   packed weights {}, arena {} ({} without overlap) of which images needed {}; peak {}: {:.2f} of "
        "weights and that\n",
        human_bytes(static_cast<double>(memory.packed_weights)), human_bytes(static_cast<double>(memory.arena)),
        human_bytes(static_cast<double>(memory.arena_without_reuse)),
        human_bytes(static_cast<double>(memory.arena_touched)), human_bytes(static_cast<double>(report.peak_bytes)),
        report.peak_ratio());
  if (report.error) terminal_.print("answer   one step within {:.2g} of the float64 interpreter's\n", *report.error);
  else if (report.failure.ok())
    terminal_.print("answer   not checked{}\n", was_asked_to_check ? ": too large for the interpreter" : "");
}

void KernelBenchTable::add(const lab::KernelBenchRow& row) {
  if (!table_) {
    table_ = kernel_table(row.baseline);
    terminal_.write(table_->header());
  }
  terminal_.write(table_->row(kernel_cells(row)));
  terminal_.flush();
}

void KernelBenchTable::finish(const lab::KernelBenchReport& report) {
  if (!report.is_judged_again) return;
  terminal_.write(kJudgedAgain);
  for (const lab::KernelBenchRow& row : report.rows) add(row);
}

void print_network_bench(const lab::NetworkBenchReport& report, Terminal& terminal) {
  const std::optional<Peak>& best = report.best;
  terminal.print("{}: {}, weights {}, {} threads{}\n", report.name, report.about, dtype_info(report.weights).name,
                 report.threads, report.device == "cpu" ? "" : ", on " + report.device);
  terminal.print("time     {:.1f} ms ({:.1f} .. {:.1f}, {} runs){}\n", report.median() * 1e3,
                 report.seconds.front() * 1e3, report.seconds.back() * 1e3, report.seconds.size(),
                 report.state_changed ? "; the speed of the machine changed" : "");
  terminal.print(
      "rate     {:.0f} GOP/s of {:.1f} GOP by count{}\n", report.gop_per_s(), report.operations / 1e9,
      best ? fmt::format(": {:.0f}% of {:.0f} GOP/s ({})", report.share() * 100, best->all, best->instruction) : "");
  if (report.once_operations > 0)
    terminal.print("once     {:.2f} GOP, not in these times\n", report.once_operations / 1e9);
  terminal.print(
      "memory   weights {:.1f} MB, arena {:.1f} MB ({:.1f} without overlap), peak {:.1f} MB: {:.2f} of both\n",
      static_cast<double>(report.weight_bytes) / 1e6, static_cast<double>(report.arena_bytes) / 1e6,
      static_cast<double>(report.arena_bytes_without_reuse) / 1e6, static_cast<double>(report.peak_bytes) / 1e6,
      report.peak_ratio());
  if (report.error)
    terminal.print("answer   within {:.2g} of the float64 interpreter's at {}\n", *report.error, report.check_about);
  else terminal.print("answer   not checked\n");
}

void print_kernel_kinds(Terminal& terminal) {
  Table table({"kernel", "--shape", "--type", ""});
  for (const lab::KernelKind& k : lab::kernel_kinds())
    table.add({std::string(k.name), std::string(k.shape), std::string(k.type), std::string(k.summary)});
  terminal.write(table.text());
}

}  // namespace redline::cli
