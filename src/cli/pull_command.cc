// redline pull: fetches a model from the Hugging Face Hub.
#include "cli/command.h"
#include "cli/hub_pull.h"
#include "cli/json.h"
#include "cli/table.h"

namespace redline::cli {
namespace {

struct PullArgs {
  std::string model;
  int jobs = 4;
  bool dry_run = false, quiet = false, json = false;
  void visit(OptionList& v) {
    v.argument(model, "MODEL", "hf:owner/name, optionally with @REVISION and with :FILE or :QUANTIZATION");
    v(jobs, "jobs", "N", "files that are fetched at the same time", {.min = 1, .max = 32});
    v(dry_run, "dry-run", "", "only list the files and the number of bytes that are missing");
    v(quiet, "quiet", "", "no summary at the end", {.letter = 'q'});
    v(json, "json", "", "print JSON");
  }
};

Json pull_result_json(const PullResult& result) {
  Json json = {{"model", result.model.name.text()},
               {"kind", hub_kind_name(result.model.kind)},
               {"path", result.model.path},
               {"commit", result.model.commit},
               {"files", Json::array()},
               {"bytes", result.model.bytes},
               {"missing_bytes", result.missing_bytes},
               {"fetched_bytes", result.fetched_bytes}};
  for (const HubFile& file : result.files)
    json["files"].push_back({{"path", file.path}, {"bytes", file.bytes}, {"etag", file.etag}});
  return json;
}

Status run_pull(const PullArgs& args, Terminal& terminal) {
  const std::string text = is_hub_name(args.model) ? args.model : "hf:" + args.model;
  REDLINE_ASSIGN(const HubName name, parse_hub_name(text));
  REDLINE_ASSIGN(const HubSettings settings, read_hub_settings());
  PullOptions options;
  options.jobs = args.jobs;
  options.is_dry_run = args.dry_run;
  REDLINE_ASSIGN(const PullResult result, pull_for_command(name, settings, options));
  if (args.json) return print_json(pull_result_json(result), terminal);
  if (args.dry_run) {
    Table table({"file", "size"}, {1});
    for (const HubFile& file : result.files) table.add({file.path, human_bytes(static_cast<double>(file.bytes))});
    terminal.write(table.text());
    terminal.print("{} files, {}; {} are missing\n", result.model.files,
                   human_bytes(static_cast<double>(result.model.bytes)),
                   human_bytes(static_cast<double>(result.missing_bytes)));
    return {};
  }
  terminal.print("{}\n", result.model.path);
  if (args.quiet) return {};
  const std::string size = human_bytes(static_cast<double>(result.model.bytes));
  if (result.missing_bytes == 0)
    terminal.note("redline: {} is up to date: {} files, {}", name.text(), result.model.files, size);
  else terminal.note("redline: {}: {} files, {}", name.text(), result.model.files, size);
  return {};
}

}  // namespace

Command pull_command() {
  return make_command<PullArgs, run_pull>(
             "pull", "fetch a model from Hugging Face",
             "Only the files that Redline needs are fetched: one GGUF file (:Q4_K_M selects it; by default Q4_K_M, "
             "else Q8_0, "
             "else the most common one), or configuration, tokenizer and safetensors of a folder. They go to the cache "
             "folder "
             "of huggingface_hub (HF_HUB_CACHE, HF_HOME) and are checked by size and checksum. Complete files are not "
             "fetched "
             "again, and an interrupted pull is resumed. HF_ENDPOINT is another Hub, HF_TOKEN the token for models "
             "with "
             "limited access, HF_HUB_OFFLINE=1 forbids the network. Every command takes hf:owner/name as MODEL and "
             "pulls it "
             "if it is missing.",
             {"redline pull hf:Qwen/Qwen3-0.6B", "redline pull hf:ggml-org/gemma-3-270m-it-GGUF:Q8_0",
              "redline run hf:Qwen/Qwen3-0.6B \"Once upon a time\""})
      .in("models");
}

}  // namespace redline::cli
