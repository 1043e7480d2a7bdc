// redline compare: measures step caches on a model's images.

#include "base/output_file.h"
#include "base/progress.h"
#include "cli/command.h"
#include "cli/file_kind.h"
#include "cli/image_options.h"
#include "cli/json.h"
#include "cli/model_name.h"
#include "cli/prompt_list.h"
#include "cli/table.h"
#include "lab/images/compare.h"

namespace redline::cli {
namespace {

struct CompareArgs {
  std::string model, output, json_file, lpips;
  std::vector<std::string> rules, speedups;
  int64_t tune = 8, images = 6;
  bool json = false;
  DrawnPromptsArgs drawn;
  ImageEngineArgs engine;
  std::set<std::string> given;

  void visit(OptionList& v) {
    v.argument(model, "MODEL", "diffusers folder", {.names_file = true, .aliases = {"-m", "--model"}});
    drawn.visit(v);
    v(rules, "cache", "RULE", "step-cache rule with its parameters", {.shown_default = "redline"});
    v(speedups, "speedup", "X", "tune rules without a given threshold to X times fewer operations");
    v(output, "output", "FILE", "write the report as HTML", {.letter = 'o', .names_file = true});
    v(json_file, "json-file", "FILE", "write the report as JSON", {.names_file = true});
    v(json, "json", "", "print the report as JSON");
    v(tune, "tune-prompts", "N", "number of prompts used for tuning", {.min = 1, .needs = {"speedup"}});
    v(images, "images", "N", "number of prompts whose images the HTML report shows", {.min = 0, .needs = {"output"}});
    add_renamed(v, "--pictures", "--images");
    v(lpips, "lpips", "FILE", "file of LPIPS weights (safetensors); the report then has LPIPS too",
      {.names_file = true});
    engine.visit(v);
  }
};

std::string compare_table(const lab::CompareReport& report) {
  Table table({"setting", "operations", "loop", "PSNR", "5th pct", "SSIM", "fewer steps"});
  for (const lab::ComparedSetting& s : report.settings)
    table.add({s.name, fmt::format("{:.1f} % ({:.2f}x)", 100 * s.executed_share, 1 / s.executed_share),
               fmt::format("{:.0f} ms ({:.2f}x)", s.loop_ms, report.reference_loop_ms / s.loop_ms),
               fmt::format("{:.2f} dB", lab::mean_of(s.psnr)), fmt::format("{:.2f}", lab::percentile_of(s.psnr, 5)),
               fmt::format("{:.4f}", lab::mean_of(s.ssim)),
               s.fewer_by_operations < 0
                   ? std::string()
                   : fmt::format("{:.2f} dB ({})", lab::mean_of(report.settings[s.fewer_by_operations].psnr),
                                 report.settings[s.fewer_by_operations].name)});
  return table.text();
}

Result<lab::CompareReport> compare_with_progress(lab::CompareOptions& options) {
  const InterruptGuard guard;
  ShareProgress progress("comparing");
  options.on_progress = [&](const std::string&, double share) {
    progress.reach(share);
    return !InterruptGuard::interrupted();
  };
  return lab::compare_images(options);
}

Status run_compare(const CompareArgs& args, Terminal& terminal) {
  for (const char* name : {"front-blocks", "tail-blocks"})
    if (args.given.contains(name)) return invalid_argument("flag --{} has no effect: each rule sets its own", name);
  lab::CompareOptions options;
  REDLINE_ASSIGN(options.model, find_model(args.model));
  REDLINE_ASSIGN(options.engine, args.engine.options());
  REDLINE_ASSIGN(options.prompts, args.drawn.list());
  REDLINE_ASSIGN(options.request, args.drawn.request());
  options.rules = args.rules.empty() ? std::vector<std::string>{"redline"} : args.rules;
  for (const std::string& text : args.speedups) {
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    if (text.empty() || *end != '\0') return invalid_argument("flag --speedup: '{}' is not a number", text);
    options.speedups.push_back(value);
  }
  options.tune_prompts = args.tune;
  options.shown_images = args.images;
  options.lpips_weights = args.lpips;
  for (const std::string& file : {args.output, args.json_file})
    if (!file.empty()) REDLINE_TRY(prepare_output(file));
  Result<lab::CompareReport> made = compare_with_progress(options);
  if (!made.ok()) return explain_kind(made.status(), options.model, ModelUse::kImage);
  const lab::CompareReport report = std::move(made).value();
  // Print the result before the files are written, because writing may fail on a full disk.
  terminal.write(args.json ? report.to_json() : compare_table(report));
  terminal.flush();
  Status written;
  if (!args.output.empty()) written = write_file(args.output, report.to_html());
  if (!args.json_file.empty()) {
    Status json_written = write_file(args.json_file, report.to_json());
    if (written.ok()) written = std::move(json_written);
  }
  if (report.failure.ok()) return written;
  if (report.failure.code() == Code::cancelled) return cancelled("{}", report.stopped);
  return report.failure.within(report.stopped);
}

}  // namespace

Command compare_command() {
  return make_command<CompareArgs, run_compare>("compare", "measure step caches on a model's images",
                                                "Generates an image for every prompt without a cache, then with each "
                                                "rule from the same noise, and prints the "
                                                "operations and time of each and the similarity of its images to the "
                                                "uncached ones. Every rule is compared with "
                                                "running fewer steps at the same number of operations.",
                                                {"redline compare assets/redline-shapes --prompts "
                                                 "assets/redline-shapes/held_out_captions.json -n 8 --speedup "
                                                 "2.7 "
                                                 "--cache redline --cache fbcache -o report.html"})
      .in("measure", /*after_name=*/"eval");
}

}  // namespace redline::cli
