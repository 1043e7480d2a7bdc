#include "cli/bench_tables.h"

#include <algorithm>

#include "cli/table.h"

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

}  // namespace

void print_text_bench(const lab::BenchReport& report, Terminal& terminal) {
  const ModelInfo& info = report.model;
  terminal.print("{}: {}, {} parameters, {}; {} thread{}, {}\n", printable(report.label), info.architecture,
                 info.parameters, info.weight_types, info.threads, info.threads == 1 ? "" : "s", info.isa);
  std::string machine;
  for (const char* name : {"read", "f32", "f16", "bf16", "int8"}) {
    const lab::Peak* c = report.peaks.find(name);
    if (c == nullptr) continue;
    if (!machine.empty()) machine += ", ";
    machine += c->instruction.empty()
                   ? fmt::format("reads {:.1f} GB/s", c->all)
                   : fmt::format("{} {} ({})", name, short_count(c->all * 1e9, "OP/s"), c->instruction);
  }
  terminal.print("this machine: {}\n\n", machine);

  Table table({"phase", "tokens", "depth", "streams", "tokens/s", "spread", "a step", "reads", "computes", "rate",
               "of ceiling", "bound by", ""},
              {1, 2, 3, 4, 5, 6, 7, 8, 9, 10});
  std::vector<std::string> notes;
  for (const lab::BenchRow& row : report.rows) {
    const bool is_start = row.phase == lab::BenchPhase::kStart;
    std::vector<std::string> cells = {std::string(lab::phase_name(row.phase)), fmt::format("{}", row.tokens),
                                      fmt::format("{}", row.depth), fmt::format("{}", row.streams)};
    if (!row.is_measured()) {
      cells.insert(cells.end(), {"-", "", "", "", "", "", "", "", "skipped: " + row.skipped});
      table.add(std::move(cells));
      continue;
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
    cells.insert(cells.end(),
                 {is_start ? "" : fmt::format("{:.1f}", row.tokens_per_s(median)),
                  fmt::format("{:.0f}%", 100 * row.spread()), short_time(median / row.steps()),
                  human_bytes(row.bytes() / row.steps()), short_count(row.operations() / row.steps(), "OP"),
                  row.bound.is_memory ? short_count(row.bytes() / median, "B/s")
                                      : short_count(row.operations() / median, "OP/s"),
                  fmt::format("{:.1f}%", 100 * row.share()), row.bound.by, mark});
    table.add(std::move(cells));
  }
  terminal.write(table.text());
  if (const lab::BenchRow* start = report.start())
    terminal.print(
        "\nstart: a fresh process to the first token after {} tokens, {}; its peak memory {}, {:.2f} of the "
        "weights' {}\n",
        start->tokens, short_time(start->median()), human_bytes(static_cast<double>(start->peak_memory)),
        static_cast<double>(start->peak_memory) / static_cast<double>(std::max<int64_t>(1, info.weight_bytes)),
        human_bytes(static_cast<double>(info.weight_bytes)));
  for (const std::string& note : notes) terminal.print("{}{}\n", &note == notes.data() ? "\n" : "", note);
  if (!report.check.against.empty())
    terminal.print("\nchecked against {}: {:.1e} of the largest logit after {} tokens (bound {:.0e}){}\n",
                   report.check.against, report.check.relative_error, report.check.tokens, report.check.bound,
                   report.check.note.empty() ? "" : "; " + report.check.note);
}

void print_image_bench(const lab::ImageBenchReport& report, bool was_asked_to_check, Terminal& terminal) {
  const ImageEngine::MemoryReport& memory = report.memory;
  terminal.print("{}: {}, {}; opened in {:.0f} ms\n\n", printable(report.folder), report.family, report.dtype,
                 report.load_ms);
  Table table({"size", "step", "spread", "first", "second", "picture", "computes", "rate", "of ceiling", ""},
              {1, 2, 3, 4, 5, 6, 7, 8});
  for (const lab::ImageSizeRow& row : report.rows)
    table.add({fmt::format("{}x{}", row.side, row.side), fmt::format("{:.1f} ms", row.median_ms()),
               fmt::format("{:.0f}%", 100 * (row.step_ms.back() - row.step_ms.front()) / row.median_ms()),
               fmt::format("{:.1f} ms", row.first_ms), fmt::format("{:.1f} ms", row.second_ms),
               fmt::format("{:.0f} ms", row.decode_ms), fmt::format("{:.2f} GOP", row.operations / 1e9),
               fmt::format("{:.0f} GOP/s", row.gop_per_s()), fmt::format("{:.0f}%", 100 * report.share(row)),
               lab::differs(row.before, row.after) ? "the machine's state moved" : ""});
  terminal.write(table.text());
  if (report.best) terminal.print("\nceiling  {:.0f} GOP/s ({})\n", report.best->all, report.best->instruction);
  for (const lab::ImageAdapterRow& row : report.adapters)
    terminal.print("adapter  {}: read and packed in {:.1f} ms, swapped in {:.3f} ms\n", printable(row.file),
                   row.load_ms, row.swap_ms);
  if (!report.adapters.empty())
    terminal.print("         a step with it {:.1f} ms, without {:.1f} ms\n", report.adapted_ms,
                   report.rows[0].median_ms());
  terminal.print(
      "memory   packed weights {}, arena {} ({} without overlap) of which images needed {}; peak {}: {:.2f} of "
      "weights "
      "and that\n",
      human_bytes(static_cast<double>(memory.packed_weights)), human_bytes(static_cast<double>(memory.arena)),
      human_bytes(static_cast<double>(memory.arena_without_reuse)),
      human_bytes(static_cast<double>(memory.arena_touched)), human_bytes(static_cast<double>(report.peak_bytes)),
      report.peak_ratio());
  if (report.error) terminal.print("answer   one step within {:.2g} of the float64 interpreter's\n", *report.error);
  else terminal.print("answer   not checked{}\n", was_asked_to_check ? ": too large for the interpreter" : "");
}

void print_network_bench(const lab::NetworkBenchReport& report, Terminal& terminal) {
  const std::optional<lab::Peak>& best = report.best;
  terminal.print("{}: {}, weights {}, {} threads\n", report.name, report.about, dtype_info(report.weights).name,
                 report.threads);
  terminal.print("time     {:.1f} ms ({:.1f} .. {:.1f}, {} runs){}\n", report.median() * 1e3,
                 report.seconds.front() * 1e3, report.seconds.back() * 1e3, report.seconds.size(),
                 report.state_changed ? "; the machine's state moved" : "");
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
    terminal.print("answer   within {:.2g} of the float64 interpreter's at {}x{}\n", *report.error, report.check_width,
                   report.check_height);
  else terminal.print("answer   not checked\n");
}

void print_kernel_bench(const lab::KernelBenchReport& report, Terminal& terminal) {
  const std::vector<lab::KernelBenchRow>& all = report.rows;
  bool scored = false;
  for (const lab::KernelBenchRow& m : all) scored |= m.baseline_seconds > 0;
  std::vector<std::string> header = {"kernel", "isa",   "rows",       "shape",    "median", "spread",
                                     "GB/s",   "GOP/s", "of ceiling", "bound by", "error"};
  if (scored) {
    header.push_back(fmt::format("times as fast as {}", all.front().baseline));
    header.emplace_back("score");
  }
  header.emplace_back("");
  Table table(header, {2, 4, 5, 6, 7, 8, 10, 11, 12});
  for (const lab::KernelBenchRow& m : all) {
    std::vector<std::string> cells = {lab::kernel_entry_name(m.asked), m.isa, fmt::format("{}", m.asked.rows),
                                      fmt::format("{}", fmt::join(m.asked.shape, "x"))};
    const double median = m.timing.median();
    if (median > 0)
      cells.insert(cells.end(), {kernel_time(median), fmt::format("{:.0f}%", 100 * m.timing.spread()),
                                 fmt::format("{:.2f}", m.cost.bytes / median / 1e9),
                                 fmt::format("{:.1f}", m.cost.operations / median / 1e9),
                                 m.bound.by.empty() ? "" : fmt::format("{:.1f}%", 100 * m.share()), m.bound.by});
    else cells.insert(cells.end(), {"-", "", "", "", "", ""});
    cells.push_back(fmt::format("{:.2f}", m.timing.check.of_bound));
    if (scored && m.baseline_seconds > 0 && median > 0) {
      cells.push_back(fmt::format("{:.2f}", m.baseline_seconds / median));
      cells.push_back(fmt::format("{:.3f}", m.score()));
    } else if (scored) {
      cells.insert(cells.end(), {"", ""});
    }
    cells.push_back(m.verdict.status == lab::KernelStatus::kPassed
                        ? ""
                        : fmt::format("{}: {}", lab::kernel_status_name(m.verdict.status), m.verdict.why));
    table.add(std::move(cells));
  }
  terminal.write(table.text());
}

void print_kernel_kinds(Terminal& terminal) {
  Table table({"kernel", "--shape", "--type", ""});
  for (const lab::KernelKind& k : lab::kernel_kinds())
    table.add({std::string(k.name), std::string(k.shape), std::string(k.type), std::string(k.summary)});
  terminal.write(table.text());
}

}  // namespace redline::cli
