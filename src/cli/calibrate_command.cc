// redline calibrate: finds which steps a step cache should compute for a budget, for one model.
#include <fmt/ranges.h>

#include "base/progress.h"
#include "cli/command.h"
#include "cli/file_kind.h"
#include "cli/image_options.h"
#include "cli/json.h"
#include "cli/model_name.h"
#include "cli/prompt_list.h"
#include "cli/table.h"
#include "lab/images/calibrate.h"

namespace redline::cli {
namespace {

struct CalibrateArgs {
  std::string model, output;
  std::vector<int64_t> budgets;
  int64_t evaluations = 120;
  bool json = false;
  DrawnPromptsArgs drawn;
  ImageEngineArgs engine;
  std::set<std::string> given;

  void visit(OptionList& v) {
    v.argument(model, "MODEL", "diffusers folder", {.names_file = true, .aliases = {"-m", "--model"}});
    drawn.visit(v);
    v(budgets, "budgets", "LIST", "numbers of computed steps; one mask for each",
      {.min = 2, .max = 999, .shown_default = "1/4, 3/8 and 1/2 of the steps"});
    v(evaluations, "evaluations", "N", "maximum number of masks tried per budget", {.min = 1, .max = 1000000});
    v(output, "output", "FILE", "write the masks here",
      {.letter = 'o', .names_file = true, .shown_default = "MODEL/step_cache.json"});
    v(json, "json", "", "print the result as JSON");
    engine.visit(v);
  }
};

Result<lab::CalibrateReport> calibrate_with_progress(lab::CalibrateOptions& options) {
  const InterruptGuard guard;
  ShareProgress progress("calibrating");
  options.on_progress = [&](const std::string&, double share) {
    progress.reach(share);
    return !InterruptGuard::interrupted();
  };
  return lab::calibrate_images(options);
}

void print_calibration(const CalibrateArgs& args, const std::string& model, const lab::CalibrateReport& report,
                       const std::string& output, Terminal& terminal) {
  if (args.json) {
    Json json = {{"model", model},
                 {"steps", report.request.num_inference_steps},
                 {"prompts", report.prompts},
                 {"output", output},
                 {"budgets", Json::array()}};
    for (const lab::CalibratedBudget& b : report.budgets)
      json["budgets"].push_back({{"computed", b.computed},
                                 {"power_db", b.power_db},
                                 {"planned_db", b.planned_db},
                                 {"found_db", b.found_db},
                                 {"evaluations", b.evaluations}});
    (void)print_json(json, terminal).ok();
    return;
  }
  Table table({"computed", "uncalibrated", "planned", "found", "tried", "steps"});
  for (const lab::CalibratedBudget& b : report.budgets)
    table.add({fmt::format("{} of {}", b.computed.size(), report.request.num_inference_steps),
               fmt::format("{:.2f} dB", b.power_db), fmt::format("{:.2f} dB", b.planned_db),
               fmt::format("{:.2f} dB", b.found_db), fmt::format("{}", b.evaluations),
               fmt::format("{}", fmt::join(b.computed, " "))});
  if (!report.budgets.empty()) terminal.write(table.text());
}

Status run_calibrate(const CalibrateArgs& args, Terminal& terminal) {
  if (args.given.contains("masks"))
    return invalid_argument("flag --masks has no effect: masks are searched here, and written to --output");
  lab::CalibrateOptions options;
  REDLINE_ASSIGN(options.model, find_model(args.model));
  REDLINE_ASSIGN(options.engine, args.engine.options());
  REDLINE_ASSIGN(options.prompts, args.drawn.list());
  REDLINE_ASSIGN(options.request, args.drawn.request());
  options.evaluations = args.evaluations;
  options.budgets = args.budgets;
  const std::string output = args.output.empty() ? lab::calibration_path(options.model) : args.output;
  REDLINE_TRY(lab::check_calibration(output));  // checked before minutes of work, not after them
  Result<lab::CalibrateReport> made = calibrate_with_progress(options);
  if (!made.ok()) return explain_kind(made.status(), options.model, ModelUse::kImage);
  const lab::CalibrateReport report = std::move(made).value();
  // Print the result before the file is written, because writing may fail on a full disk.
  print_calibration(args, options.model, report, output, terminal);
  terminal.flush();
  Status written;
  if (!report.budgets.empty()) written = lab::write_calibration(output, report);
  if (!report.failure.ok()) return report.failure;
  REDLINE_TRY(written);
  if (!args.json)
    terminal.note("written to {}; `redline image{} --steps-budget N` uses it", output,
                  args.output.empty() ? "" : " --masks " + output);
  return {};
}

}  // namespace

Command calibrate_command() {
  return make_command<CalibrateArgs, run_calibrate>(
             "calibrate", "find which steps a step cache should compute",
             "Generates an image for every prompt without a cache and stores the model output of each step. Dynamic "
             "programming over these runs proposes which steps to compute for each budget; then single steps are moved "
             "while "
             "that brings the images closer to the uncached ones. The masks are written beside the model, where "
             "--steps-budget "
             "and --cache mask:budget=N find them. Use eight to sixteen prompts that are not in your evaluation.",
             {"redline calibrate assets/redline-shapes --prompts prompts.json --budgets 7,10,15"})
      .in("prepare", /*after_name=*/"imatrix");
}

}  // namespace redline::cli
