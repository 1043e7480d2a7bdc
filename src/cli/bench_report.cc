#include "cli/bench_report.h"

#include "cli/ceilings_json.h"
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

Json row_json(const BenchRow& row) {
  Json json = {
      {"phase", phase_name(row.phase)}, {"tokens", row.tokens}, {"depth", row.depth}, {"streams", row.streams}};
  if (!row.is_measured()) {
    json["skipped"] = row.skipped;
    return json;
  }
  const double median = row.median(), tokens = static_cast<double>(row.tokens * row.streams);
  json["seconds"] = median;
  json["seconds_min"] = row.seconds.front();
  json["seconds_max"] = row.seconds.back();
  json["spread"] = row.spread();
  json["repeats"] = row.seconds.size();
  json["cold"] = row.is_cold;
  json["tokens_per_s"] = row.tokens_per_s(median);
  json["tokens_per_s_min"] = row.tokens_per_s(row.seconds.back());
  json["tokens_per_s_max"] = row.tokens_per_s(row.seconds.front());
  json["step_seconds"] = median / row.steps();
  json["bytes"] = row.bytes();
  json["operations"] = row.operations();
  json["bytes_per_token"] = row.bytes() / tokens;
  json["flops_per_token"] = row.operations() / tokens;
  json["gb_per_s"] = row.bytes() / median / 1e9;
  json["gflop_per_s"] = row.operations() / median / 1e9;
  json["ceiling_share"] = row.share();
  json["bound"] = row.bound.is_memory ? "memory" : "compute";
  json["bound_by"] = row.bound.by;
  json["bound_seconds"] = row.bound.seconds;
  if (row.phase == BenchPhase::kStart) json["peak_memory_bytes"] = row.peak_memory;
  json["state_before"] = state_json(row.before);
  json["state_after"] = state_json(row.after);
  json["state_changed"] = row.state_changed();
  if (!row.error.empty()) json["error"] = row.error;
  return json;
}

Json model_json(const ModelInfo& info) {
  return {{"path", info.path},          {"architecture", info.architecture}, {"format", info.file_format},
          {"types", info.weight_types}, {"parameters", info.parameters},     {"weight_bytes", info.weight_bytes},
          {"context", info.context}};
}

}  // namespace

const BenchRow* BenchReport::start() const {
  for (const BenchRow& row : rows)
    if (row.phase == BenchPhase::kStart && row.is_measured()) return &row;
  return nullptr;
}

Json bench_json(const BenchReport& report) {
  Json json = {{"model", model_json(report.model)},
               {"machine", ceilings_json(report.ceilings)},
               {"threads", report.model.threads},
               {"isa", report.model.isa},
               {"dtype", report.dtype},
               {"check", check_json(report.check)},
               {"rows", Json::array()}};
  for (const BenchRow& row : report.rows) json["rows"].push_back(row_json(row));
  return json;
}

void print_bench(const BenchReport& report, Terminal& terminal) {
  const ModelInfo& info = report.model;
  terminal.print("{}: {}, {} parameters, {}; {} thread{}, {}\n", printable(report.label), info.architecture,
                 info.parameters, info.weight_types, info.threads, info.threads == 1 ? "" : "s", info.isa);
  std::string machine;
  for (const char* name : {"read", "f32", "f16", "bf16", "int8"}) {
    const Ceiling* c = report.ceilings.find(name);
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
  for (const BenchRow& row : report.rows) {
    const bool is_start = row.phase == BenchPhase::kStart;
    std::vector<std::string> cells = {std::string(phase_name(row.phase)), fmt::format("{}", row.tokens),
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
  if (const BenchRow* start = report.start())
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

}  // namespace redline::cli
