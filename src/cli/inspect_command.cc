// redline inspect: contents of a model file and how Redline runs it.
#include "cli/command.h"
#include "cli/engine_options.h"
#include "cli/file_report.h"
#include "cli/json.h"
#include "cli/table.h"
#include "lab/bench/engine_profile.h"
#include "models/model_tokenizer.h"
#include "models/registry.h"

namespace redline::cli {
namespace {

struct InspectArgs {
  std::string file;
  bool metadata = false, tensors = false, program = false, chat_template = false, json = false;
  void visit(OptionList& v) {
    v.argument(file, "FILE", "GGUF file, safetensors file, Hugging Face folder or llama2.c checkpoint",
               {.names_file = true});
    v(metadata, "metadata", "", "list the metadata");
    v(tensors, "tensors", "", "list the tensors");
    v(program, "program", "", "load the model and print the compiled program and the memory it takes");
    v(chat_template, "chat-template", "", "print the model's chat template and nothing else",
      {.not_with = {"metadata", "tensors", "program", "json"}});
    v(json, "json", "", "print JSON");
  }
};

/// How Redline interprets the file; loads no weights.
struct Verdict {
  Status runs;       ///< why the model cannot run
  Status tokenizer;  ///< why there is no tokenizer
  std::string tokenizer_kind, pre_tokenizer;
  int64_t tokenizer_size = 0;
  std::string model_type;
  /// kv_row_elements: keys and values that one token adds per layer
  int64_t context = 0, layers = 0, kv_row_elements = 0;
};

Verdict judge(const std::string& path, FileKind kind) {
  Verdict verdict;
  if (kind == FileKind::kLlama2c) {
    verdict.runs = unsupported("run redline convert first: it makes a GGUF file of a llama2.c checkpoint");
    verdict.tokenizer = not_found("a llama2.c checkpoint does not hold its vocabulary");
    return verdict;
  }
  if (kind == FileKind::kSafetensors) {
    verdict.runs = unsupported("a safetensors file alone has no configuration; give the folder that holds it");
    verdict.tokenizer = not_found("a safetensors file holds no vocabulary");
    return verdict;
  }
  const auto describe = [&](const Tokenizer& t) {
    verdict.tokenizer_kind = t.kind();
    verdict.pre_tokenizer = t.pre_tokenizer();
    verdict.tokenizer_size = t.vocab_size();
  };
  auto checkpoint = Checkpoint::open(path);
  if (!checkpoint.ok()) {
    verdict.runs = checkpoint.status();
    // `tokenize` can use the vocabulary even if the model cannot run.
    if (const auto tokenizer = load_tokenizer(path); tokenizer.ok()) describe(**tokenizer);
    else verdict.tokenizer = tokenizer.status();
    return verdict;
  }
  if (const Tokenizer* t = checkpoint->tokenizer.get()) {
    describe(*t);
  } else {
    verdict.tokenizer = checkpoint->tokenizer_status;
    if (verdict.tokenizer.ok()) verdict.tokenizer = not_found("the model has none");
  }
  if (const auto type = checkpoint->config.find("model_type"); type != checkpoint->config.end() && type->is_string())
    verdict.model_type = type->get<std::string>();
  const auto model = build_language_model(*checkpoint);
  verdict.runs = model.status();
  if (model.ok()) {
    verdict.context = model->config.max_positions;
    verdict.layers = model->config.num_layers;
    verdict.kv_row_elements = 2 * model->config.num_kv_heads * model->config.head_dim;
  }
  return verdict;
}

Json status_json(const Status& status) {
  if (status.ok()) return nullptr;
  return {{"code", code_name(status.code())}, {"message", status.message()}};
}

std::string shape_text(const std::vector<int64_t>& shape) {
  return shape.empty() ? "scalar" : fmt::format("{}", fmt::join(shape, " x "));
}

struct Sums {
  int64_t elements = 0, bytes = 0;
};
Sums sum(const FileReport& report) {
  Sums s;
  for (const auto& t : report.tensors) {
    s.elements += t.elements();
    s.bytes += t.bytes;
  }
  return s;
}

Json report_json(const InspectArgs& args, const std::string& path, const FileReport& report, const Verdict& verdict) {
  const Sums sums = sum(report);
  Json json = {{"path", path},
               {"kind", file_kind_name(report.kind)},
               {"format", report.format},
               {"files", Json::array()},
               {"model_type", verdict.model_type},
               {"parameters", sums.elements},
               {"tensor_count", report.tensors.size()},
               {"tensor_bytes", sums.bytes},
               {"types", Json::array()}};
  for (const auto& [file, bytes] : report.files) json["files"].push_back({{"path", file}, {"bytes", bytes}});
  for (const auto& t : report.totals())
    json["types"].push_back({{"type", t.type},
                             {"tensors", t.tensors},
                             {"parameters", t.elements},
                             {"bytes", t.bytes},
                             {"readable", t.is_readable}});
  if (verdict.tokenizer.ok()) {
    json["tokenizer"] = {{"kind", verdict.tokenizer_kind},
                         {"pre_tokenizer", verdict.pre_tokenizer},
                         {"vocab_size", verdict.tokenizer_size}};
  } else {
    json["tokenizer"] = nullptr;
    json["tokenizer_error"] = status_json(verdict.tokenizer);
  }
  json["runs"] = verdict.runs.ok();
  if (verdict.runs.ok()) {
    json["model_context"] = verdict.context;
    json["kv_elements_per_token"] = verdict.layers * verdict.kv_row_elements;
  } else {
    json["runs_error"] = status_json(verdict.runs);
  }
  if (args.metadata) {
    json["metadata"] = Json::object();
    for (const auto& [key, value] : report.metadata) json["metadata"][key] = value;
  }
  if (args.tensors) {
    json["tensors"] = Json::array();
    for (const auto& t : report.tensors)
      json["tensors"].push_back({{"name", t.name},
                                 {"type", t.type},
                                 {"shape", t.shape},
                                 {"bytes", t.bytes},
                                 {"offset", t.offset},
                                 {"file", t.file},
                                 {"readable", t.is_readable}});
  }
  return json;
}

void print_report(const InspectArgs& args, const std::string& path, const FileReport& report, const Verdict& verdict,
                  Terminal& terminal) {
  const Sums sums = sum(report);
  Table facts({""});
  facts.add({"file", path});
  facts.add({"format", report.format});
  if (!verdict.model_type.empty()) facts.add({"model type", verdict.model_type});
  facts.add({"tensors", fmt::format("{}, {} parameters, {}", report.tensors.size(), sums.elements,
                                    human_bytes(static_cast<double>(sums.bytes)))});
  if (verdict.tokenizer.ok()) {
    facts.add(
        {"tokenizer", fmt::format("{}{}{}, {} tokens", verdict.tokenizer_kind, verdict.pre_tokenizer.empty() ? "" : " ",
                                  verdict.pre_tokenizer, verdict.tokenizer_size)});
  } else {
    facts.add({"tokenizer", fmt::format("none: {}", verdict.tokenizer.message())});
  }
  if (verdict.runs.ok()) {
    const double kv = static_cast<double>(verdict.layers * verdict.kv_row_elements) * sizeof(float);
    facts.add({"Redline",
               fmt::format("runs it: about {} for weights and at most {} of cache per 1000 tokens; context {}",
                           human_bytes(static_cast<double>(sums.bytes)), human_bytes(1000 * kv), verdict.context)});
  } else {
    facts.add({"Redline", fmt::format("cannot run it: {}", verdict.runs.message())});
  }
  terminal.write(facts.text());

  Table types({"type", "tensors", "parameters", "bytes", ""}, {1, 2, 3});
  for (const auto& t : report.totals())
    types.add({t.type, fmt::format("{}", t.tensors), fmt::format("{}", t.elements), fmt::format("{}", t.bytes),
               t.is_readable ? "" : "not readable by Redline"});
  if (!report.tensors.empty()) terminal.print("\n{}", types.text());

  if (args.metadata) {
    Table metadata({"key", "value"});
    for (const auto& [key, value] : report.metadata) metadata.add({key, value});
    terminal.print("\n{}", metadata.text());
  }
  if (args.tensors) {
    Table tensors({"tensor", "type", "shape", "bytes", "offset", report.files.size() > 1 ? "file" : ""}, {3, 4, 5});
    for (const auto& t : report.tensors)
      tensors.add({t.name, t.type, shape_text(t.shape), fmt::format("{}", t.bytes), fmt::format("{}", t.offset),
                   report.files.size() > 1 ? fmt::format("{}", t.file) : ""});
    terminal.print("\n{}", tensors.text());
  }
}

Status print_chat_template(const std::string& path, Terminal& terminal) {
  REDLINE_ASSIGN(const std::string text, load_chat_template(path));
  if (text.empty()) return not_found("{}: has no chat template", path);
  terminal.write(text.ends_with('\n') ? text : text + "\n");
  return {};
}

Status run_inspect(const InspectArgs& args, Terminal& terminal) {
  REDLINE_ASSIGN(const std::string path, find_model(args.file));
  if (args.chat_template) return print_chat_template(path, terminal);
  REDLINE_ASSIGN(const FileKind kind, detect_file_kind(path));
  REDLINE_ASSIGN(const FileReport report, read_file_report(path, kind));
  const Verdict verdict = judge(path, kind);
  TextEngine::MemoryReport memory;
  std::string program;
  if (args.program) {
    REDLINE_TRY(verdict.runs);
    REDLINE_ASSIGN(const auto engine, TextEngine::open(path));
    memory = engine->memory();
    program = lab::profile_of(*engine).describe_program();
  }
  if (args.json) {
    Json json = report_json(args, path, report, verdict);
    if (args.program) {
      json["memory"] = {{"packed_weights", memory.packed_weights},
                        {"arena", memory.arena},
                        {"arena_without_reuse", memory.arena_without_reuse},
                        {"kv_cache", memory.kv_cache}};
      json["program"] = program;
    }
    return print_json(json, terminal);
  }
  print_report(args, path, report, verdict, terminal);
  if (args.program) {
    Table bytes({"memory", "bytes"}, {1});
    bytes.add({"packed weights", fmt::format("{}", memory.packed_weights)});
    bytes.add({"arena", fmt::format("{}", memory.arena)});
    bytes.add({"arena without reuse", fmt::format("{}", memory.arena_without_reuse)});
    bytes.add({"key and value cache", fmt::format("{}", memory.kv_cache)});
    terminal.print("\n{}\n{}", bytes.text(), program);
  }
  return {};
}

}  // namespace

Command inspect_command() {
  return make_command<InspectArgs, run_inspect>(
      "inspect", "show what a model file holds and whether it runs", "",
      {"redline inspect assets/redline-tales", "redline inspect model.gguf --metadata --tensors",
       "redline inspect model.gguf --program"});
}

}  // namespace redline::cli
