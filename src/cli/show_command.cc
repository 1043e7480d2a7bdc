// redline show: what a model is, in short.
#include <filesystem>

#include "cli/command.h"
#include "cli/file_report.h"
#include "cli/hub_pull.h"
#include "cli/json.h"
#include "cli/model_name.h"
#include "cli/table.h"
#include "models/checkpoint/checkpoint.h"

namespace redline::cli {
namespace {

struct ShowArgs {
  std::string model;
  bool json = false;
  void visit(OptionList& v) {
    v.argument(model, "MODEL", "GGUF file, Hugging Face folder, diffusers folder or hf:owner/name",
               {.names_file = true, .aliases = {"-m", "--model"}});
    v(json, "json", "", "print JSON");
  }
};

/// Returns the first of `keys` that is an integer in the model's configuration; 0: none.
int64_t number_in_config(const nlohmann::json& config, std::initializer_list<const char*> keys) {
  for (const char* key : keys)
    if (const auto found = config.find(key); found != config.end() && found->is_number_integer())
      return found->get<int64_t>();
  return 0;
}

std::string license_of(const FileReport& report) {
  for (const FileReport::Entry& entry : report.metadata)
    if (entry.key == "general.license" || entry.key == "license") return entry.shown;
  return "";
}

std::string join(const std::string& a, const std::string& b) { return a.empty() ? b : a + ", " + b; }

/// Properties from the model's files, in display order.
struct Facts {
  std::string architecture, types, quantization, license, command;
  int64_t parameters = 0, tensor_bytes = 0, context = 0, layers = 0, hidden_size = 0, vocab_size = 0;
  bool has_chat_template = false;
};

Facts facts_of(const std::string& path, const std::string& name, const FileReport& report) {
  Facts facts{.architecture = report.pipeline_class,
              .types = "",
              .quantization = "",
              .license = license_of(report),
              .command = ""};
  for (const FileReport::Tensor& t : report.tensors) {
    facts.parameters += t.elements();
    facts.tensor_bytes += t.bytes;
  }
  for (const FileReport::TypeTotal& t : report.totals())
    facts.types = join(facts.types, fmt::format("{} x{}", t.type, t.tensors));
  if (report.kind == FileKind::kPipeline || report.kind == FileKind::kPipelineFile)
    facts.command = fmt::format("redline image {} PROMPT", name);
  if (report.kind != FileKind::kGguf && report.kind != FileKind::kModelFolder) return facts;
  const Result<Checkpoint> checkpoint = Checkpoint::open(path);
  if (!checkpoint.ok()) return facts;
  const nlohmann::json& config = checkpoint->config;
  if (const auto type = config.find("model_type"); type != config.end() && type->is_string())
    facts.architecture = type->get<std::string>();
  if (!checkpoint->quantization.empty()) {
    // Tensors of a quantized folder have several codes in each word, so the parameters are those of the unpacked
    // tensors.
    facts.quantization = checkpoint->quantization;
    facts.parameters = 0;
    for (const auto& [name, source] : checkpoint->tensors) facts.parameters += source.view.num_elements();
  }
  facts.context = number_in_config(config, {"max_position_embeddings", "n_positions", "n_ctx"});
  facts.layers = number_in_config(config, {"num_hidden_layers", "n_layer"});
  facts.hidden_size = number_in_config(config, {"hidden_size", "n_embd"});
  if (const Tokenizer* tokenizer = checkpoint->tokenizer.get()) facts.vocab_size = tokenizer->vocab_size();
  facts.has_chat_template = !checkpoint->chat_template.text.empty();
  facts.command =
      facts.has_chat_template ? fmt::format("redline chat {}", name) : fmt::format("redline run {} PROMPT", name);
  return facts;
}

Json to_json(const LocalModel& model, const std::string& name, const FileReport& report, const Facts& facts) {
  Json json = {{"model", name}, {"path", model.path}, {"kind", file_kind_name(report.kind)}, {"commit", model.commit}};
  json["files"] = Json::array();
  for (const auto& [file, bytes] : report.files) json["files"].push_back({{"path", file}, {"bytes", bytes}});
  json["architecture"] = facts.architecture;
  json["parameters"] = facts.parameters;
  json["tensor_bytes"] = facts.tensor_bytes;
  json["types"] = facts.types;
  json["quantization"] = facts.quantization;
  json["license"] = facts.license;
  json["context"] = facts.context;
  json["layers"] = facts.layers;
  json["hidden_size"] = facts.hidden_size;
  json["vocab_size"] = facts.vocab_size;
  json["has_chat_template"] = facts.has_chat_template;
  return json;
}

/// Finds a path, or a model of the Hub in the cache. This command downloads nothing.
Result<LocalModel> find_here(const std::string& text) {
  LocalModel model;
  if (!is_hub_name(text)) {
    REDLINE_ASSIGN(model.path, find_model(text));
    return model;
  }
  REDLINE_ASSIGN(const HubName name, parse_hub_name(text));
  REDLINE_ASSIGN(const HubSettings settings, read_hub_settings());
  Result<LocalModel> found = HubCache(settings.cache_folder).find(name);
  if (!found.ok()) return not_found("model {}; redline pull {} fetches it", found.status().message(), name.text());
  return found;
}

Status run_show(const ShowArgs& args, Terminal& terminal) {
  REDLINE_ASSIGN(const LocalModel model, find_here(args.model));
  REDLINE_ASSIGN(const FileKind kind, detect_file_kind(model.path));
  REDLINE_ASSIGN(const FileReport report, read_file_report(model.path, kind));
  const Facts facts = facts_of(model.path, args.model, report);
  if (args.json) return print_json(to_json(model, args.model, report, facts), terminal);
  Table table({""});
  const auto add = [&](const char* what, const std::string& text) {
    if (!text.empty()) table.add({what, text});
  };
  const auto add_number = [&](const char* what, int64_t number, const char* unit) {
    if (number > 0) table.add({what, fmt::format("{}{}", number, unit)});
  };
  add("model", args.model);
  if (model.path != args.model) add("path", model.path);
  add("commit", model.commit);
  add("format", report.format);
  add("architecture", facts.architecture);
  add_number("parameters", facts.parameters, "");
  add("weights", fmt::format("{}: {}", human_bytes(static_cast<double>(facts.tensor_bytes)), facts.types));
  add("quantization", facts.quantization);
  add_number("context", facts.context, " tokens");
  add_number("layers", facts.layers, "");
  add_number("hidden size", facts.hidden_size, "");
  add_number("vocabulary", facts.vocab_size, " tokens");
  if (facts.vocab_size > 0) add("chat template", facts.has_chat_template ? "yes" : "none");
  add("base model", report.base_model);
  add("license", facts.license);
  add("start", facts.command);
  terminal.write(table.text());
  return {};
}

}  // namespace

Command show_command() {
  return make_command<ShowArgs, run_show>(
             "show", "describe a model in short",
             "`redline inspect` lists metadata and tensors, and checks whether a model runs.",
             {"redline show redline-tales", "redline show hf:Qwen/Qwen3-0.6B"})
      .in("models", /*after_name=*/"list");
}

}  // namespace redline::cli
