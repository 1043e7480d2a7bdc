// redline inspect: contents of a model file and how Redline runs it.
#include <algorithm>
#include <optional>

#include "base/text_distance.h"
#include "cli/command.h"
#include "cli/engine_options.h"
#include "cli/file_kind.h"
#include "cli/file_report.h"
#include "cli/json.h"
#include "cli/onnx_report.h"
#include "cli/table.h"
#include "lab/bench/engine_profile.h"
#include "models/blocks/moe.h"
#include "models/checkpoint/model_tokenizer.h"
#include "models/image/image_registry.h"
#include "models/registry.h"
#include "redline/embedding.h"
#include "redline/image.h"
#include "redline/text.h"

namespace redline::cli {
namespace {

struct InspectArgs {
  std::string file;
  bool metadata = false, tensors = false, program = false, chat_template = false, json = false;
  void visit(OptionList& v) {
    v.argument(
        file, "FILE",
        "GGUF file, safetensors file, LoRA adapter, Hugging Face folder, diffusers folder or one of its components, "
        "llama2.c checkpoint, ONNX file",
        {.names_file = true, .aliases = {"-m", "--model"}});
    v(metadata, "metadata", "", "list the metadata");
    v(tensors, "tensors", "", "list the tensors");
    v(program, "program", "", "load the model and print the compiled program and the memory it takes");
    v(chat_template, "chat-template", "", "print the model's chat template and nothing else",
      {.not_with = {"metadata", "tensors", "program", "json"}});
    v(json, "json", "", "print JSON");
  }
};

/// The result of checking how Redline uses the file, without loading weights.
struct Verdict {
  Status runs;               ///< ok, or why the model cannot run
  std::string by;            ///< the command that runs it
  int64_t adapter_rank = 0;  ///< largest rank of a LoRA file
  Status tokenizer;          ///< ok, or why there is no tokenizer
  std::string tokenizer_kind, pre_tokenizer;
  int64_t tokenizer_size = 0;
  std::string model_type, quantization;
  /// kv_row_elements: keys and values that one token adds per layer
  int64_t context = 0, layers = 0, kv_row_elements = 0;
  ExpertCounts experts;
  std::optional<OnnxReport> network;  ///< set for an ONNX file
};

/// Checks that Redline supports the pipeline class of a diffusers folder and the classes of its components.
Status judge_pipeline(const FileReport& report) {
  REDLINE_TRY(find_pipeline(report.pipeline_class));
  const std::vector<std::string_view> known = image_component_classes();
  for (const FileReport::Component& c : report.components) {
    const bool has_network =
        c.name == "vae" || c.name == "unet" || c.name == "transformer" || c.name.starts_with("text_encoder");
    if (has_network && std::find(known.begin(), known.end(), c.class_name) == known.end())
      return unsupported("{} is a {}{}; Redline has {}", c.name, c.class_name, the_nearest(c.class_name, known),
                         fmt::join(known, ", "));
    if (has_network && c.tensors == 0) return not_found("{} has no weights", c.name);
  }
  return {};
}

/// Checks a file that is not a language model; nullopt: it is one.
std::optional<Verdict> judge_other(const std::string& path, const FileReport& report) {
  Verdict verdict;
  verdict.tokenizer = not_found("none in the file");
  switch (report.kind) {
    case FileKind::kPipeline:
      verdict.runs = judge_pipeline(report);
      verdict.by = fmt::format("redline image {} PROMPT", path);
      verdict.tokenizer = not_found("those of its text encoders");
      return verdict;
    case FileKind::kPipelineFile:
      verdict.by = fmt::format("redline image {} PROMPT", path);
      verdict.tokenizer = not_found("none in the file; those of its text encoders lie beside it");
      return verdict;
    case FileKind::kComponent: {
      const std::string around = pipeline_around(path);
      verdict.runs = unsupported("it is one component of a pipeline; redline image {} PROMPT runs the whole",
                                 around.empty() ? "FOLDER" : around);
      return verdict;
    }
    case FileKind::kTextAdapter:
    case FileKind::kImageAdapter: {
      const bool is_text = report.kind == FileKind::kTextAdapter;
      const Result<int64_t> rank = is_text ? text_adapter_rank(path) : adapter_rank(image_adapter_file(path));
      verdict.runs = rank.status();
      verdict.adapter_rank = rank.ok() ? *rank : 0;
      verdict.by = fmt::format("redline {} MODEL PROMPT --lora {}", is_text ? "run" : "image", path);
      return verdict;
    }
    case FileKind::kTransformer: {
      verdict.runs = open_single_file(path).status();
      verdict.by = fmt::format("redline image FOLDER PROMPT --transformer {}", path);
      return verdict;
    }
    case FileKind::kOnnx: {
      Result<OnnxReport> network = read_onnx_report(path);
      verdict.runs = network.ok() ? network->runs : network.status();
      if (network.ok()) verdict.network = *std::move(network);
      return verdict;
    }
    default: return std::nullopt;
  }
}

Verdict judge(const std::string& path, const FileReport& report) {
  if (std::optional<Verdict> other = judge_other(path, report)) return *std::move(other);
  const FileKind kind = report.kind;
  Verdict verdict;
  verdict.by = fmt::format("redline run {} PROMPT", path);
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
    if (const auto tokenizer = load_tokenizer(path); tokenizer.ok()) {
      describe(**tokenizer);
      verdict.runs = Status(verdict.runs.code(), fmt::format("{}; redline tokenize {} TEXT uses its tokenizer",
                                                             verdict.runs.message(), path));
    } else {
      verdict.tokenizer = tokenizer.status();
    }
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
  verdict.quantization = checkpoint->quantization;
  if (is_embedding_model(path)) verdict.by = fmt::format("redline embed {} TEXT", path);
  if (const EncoderFamily* family = find_encoder_family(*checkpoint)) {
    verdict.runs = family->build(*checkpoint).status();
    return verdict;
  }
  const auto model = build_language_model(*checkpoint);
  verdict.runs = model.status();
  if (model.ok()) {
    verdict.context = model->config.max_positions;
    verdict.layers = model->config.num_layers;
    verdict.kv_row_elements = 2 * model->config.num_kv_heads * model->config.head_dim;
    verdict.experts = count_experts(model->graph);
  }
  return verdict;
}

Json status_json(const Status& status) {
  if (status.ok()) return nullptr;
  return {{"code", code_name(status.code())}, {"message", status.message()}};
}

std::string listed_shape(const std::vector<int64_t>& shape) {
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

/// Returns true if Redline reads tensors of this type. Integers of a quantized folder are codes, zero points, orders or
/// shapes.
bool is_read(std::string_view type, bool is_readable, const Verdict& verdict) {
  return is_readable || (!verdict.quantization.empty() && (type.starts_with("I") || type.starts_with("U")));
}

Json report_json(const InspectArgs& args, const std::string& path, const FileReport& report, const Verdict& verdict) {
  const Sums sums = sum(report);
  Json json = {{"path", path},
               {"kind", file_kind_name(report.kind)},
               {"format", report.format},
               {"files", Json::array()},
               {"model_type", verdict.model_type},
               {"quantization", verdict.quantization},
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
                             {"readable", is_read(t.type, t.is_readable, verdict)}});
  if (verdict.tokenizer.ok()) {
    json["tokenizer"] = {{"kind", verdict.tokenizer_kind},
                         {"pre_tokenizer", verdict.pre_tokenizer},
                         {"vocab_size", verdict.tokenizer_size}};
  } else {
    json["tokenizer"] = nullptr;
    json["tokenizer_error"] = status_json(verdict.tokenizer);
  }
  if (report.kind == FileKind::kPipeline) {
    json["pipeline_class"] = report.pipeline_class;
    json["components"] = Json::array();
    for (const FileReport::Component& c : report.components)
      json["components"].push_back({{"name", c.name},
                                    {"library", c.library},
                                    {"class", c.class_name},
                                    {"tensors", c.tensors},
                                    {"parameters", c.elements},
                                    {"bytes", c.bytes},
                                    {"types", c.types}});
  }
  if (verdict.network) json["network"] = onnx_report_json(*verdict.network);
  if (!report.adapter_names.empty())
    json["adapter"] = {{"for", report.kind == FileKind::kTextAdapter ? "text" : "images"},
                       {"names", report.adapter_names},
                       {"base_model", report.base_model},
                       {"rank", verdict.adapter_rank}};
  json["runs"] = verdict.runs.ok();
  if (verdict.runs.ok()) json["command"] = verdict.by;
  if (verdict.runs.ok() && verdict.layers > 0) {
    json["model_context"] = verdict.context;
    json["kv_elements_per_token"] = verdict.layers * verdict.kv_row_elements;
    if (const ExpertCounts& experts = verdict.experts; experts.num_experts > 0)
      json["experts"] = {{"count", experts.num_experts},
                         {"per_token", experts.experts_per_token},
                         {"active_parameters", experts.active_parameters}};
  }
  if (!verdict.runs.ok()) {
    json["runs_error"] = status_json(verdict.runs);
  }
  if (args.metadata) {
    json["metadata"] = Json::object();
    for (const FileReport::Entry& entry : report.metadata) json["metadata"][entry.key] = entry.value;
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
                                 {"readable", is_read(t.type, t.is_readable, verdict)}});
  }
  return json;
}

void print_report(const InspectArgs& args, const std::string& path, const FileReport& report, const Verdict& verdict,
                  Terminal& terminal) {
  const Sums sums = sum(report);
  Table facts({""});
  facts.add({"file", path});
  facts.add({"format", report.format});
  if (verdict.network) {
    const OnnxReport& network = *verdict.network;
    if (!network.producer.empty()) facts.add({"producer", network.producer});
    std::string opsets = fmt::format("{}", network.opset);
    for (const auto& [domain, version] : network.domains) opsets += fmt::format(", {} {}", domain, version);
    facts.add({"opset", opsets});
    if (network.valid.ok()) facts.add({"nodes", fmt::format("{}, {} of them folded", network.nodes, network.folded)});
  }
  if (!verdict.model_type.empty()) facts.add({"model type", verdict.model_type});
  if (!verdict.quantization.empty()) facts.add({"quantization", verdict.quantization});
  facts.add({"tensors", fmt::format("{}, {} parameters, {}", report.tensors.size(), sums.elements,
                                    human_bytes(static_cast<double>(sums.bytes)))});
  if (verdict.tokenizer.ok()) {
    facts.add(
        {"tokenizer", fmt::format("{}{}{}, {} tokens", verdict.tokenizer_kind, verdict.pre_tokenizer.empty() ? "" : " ",
                                  verdict.pre_tokenizer, verdict.tokenizer_size)});
  } else if (report.kind == FileKind::kGguf || report.kind == FileKind::kModelFolder) {
    facts.add({"tokenizer", fmt::format("none: {}", verdict.tokenizer.message())});
  }
  if (!report.base_model.empty()) facts.add({"base model", report.base_model});
  if (verdict.adapter_rank > 0) facts.add({"rank", fmt::format("{} at most", verdict.adapter_rank)});
  if (verdict.runs.ok() && verdict.layers == 0) {
    facts.add({"Redline", fmt::format("{}: {}", report.adapter_names.empty() ? "runs it" : "applies it", verdict.by)});
  } else if (verdict.runs.ok()) {
    const double kv = static_cast<double>(verdict.layers * verdict.kv_row_elements) * sizeof(float);
    if (const ExpertCounts& experts = verdict.experts; experts.num_experts > 0)
      facts.add({"experts", fmt::format("{} of {} for each token, {} parameters with all other weights",
                                        experts.experts_per_token, experts.num_experts, experts.active_parameters)});
    facts.add({"context", fmt::format("{} tokens", verdict.context)});
    facts.add({"memory", fmt::format("about {} for weights and at most {} of cache per 1000 tokens",
                                     human_bytes(static_cast<double>(sums.bytes)), human_bytes(1000 * kv))});
    facts.add({"Redline", "runs it: " + verdict.by});
  } else {
    facts.add({"Redline", fmt::format("cannot run it: {}", verdict.runs.message())});
  }
  terminal.write(facts.text());

  if (!report.components.empty()) {
    Table components({"component", "class", "tensors", "parameters", "bytes", "types"}, {2, 3, 4});
    for (const FileReport::Component& c : report.components)
      components.add({c.name, c.class_name, fmt::format("{}", c.tensors), fmt::format("{}", c.elements),
                      fmt::format("{}", c.bytes), c.types});
    terminal.print("\n{}", components.text());
  }

  if (verdict.network) print_onnx_report(*verdict.network, terminal);
  Table types({"type", "tensors", "parameters", "bytes", ""}, {1, 2, 3});
  for (const auto& t : report.totals())
    types.add({t.type, fmt::format("{}", t.tensors), fmt::format("{}", t.elements), fmt::format("{}", t.bytes),
               is_read(t.type, t.is_readable, verdict) ? "" : "not readable by Redline"});
  if (!report.tensors.empty()) terminal.print("\n{}", types.text());

  if (args.metadata) {
    Table metadata({"key", "value"});
    for (const FileReport::Entry& entry : report.metadata) metadata.add({entry.key, entry.shown});
    terminal.print("\n{}", metadata.text());
  }
  if (args.tensors) {
    Table tensors({"tensor", "type", "shape", "bytes", "offset", report.files.size() > 1 ? "file" : ""}, {3, 4, 5});
    for (const auto& t : report.tensors)
      tensors.add({t.name, t.type, listed_shape(t.shape), fmt::format("{}", t.bytes), fmt::format("{}", t.offset),
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

/// The output of --program.
struct CompiledModel {
  std::vector<std::pair<std::string, int64_t>> memory;  ///< bytes by use
  std::string program;
};

Result<CompiledModel> compile_model(const std::string& path, const FileReport& report, const Verdict& verdict) {
  if (!report.pipeline_class.empty()) {
    REDLINE_ASSIGN(const auto engine, ImageEngine::open(path));
    const ImageEngine::MemoryReport memory = engine->memory();
    return CompiledModel{{{"packed_weights", memory.packed_weights},
                          {"arena", memory.arena},
                          {"arena_without_reuse", memory.arena_without_reuse}},
                         lab::describe_program(*engine)};
  }
  if (verdict.layers == 0)
    return invalid_argument("flag --program: is for language models and image pipelines; {} is neither", path);
  REDLINE_ASSIGN(const auto engine, TextEngine::open(path));
  const TextEngine::MemoryReport memory = engine->memory();
  return CompiledModel{{{"packed_weights", memory.packed_weights},
                        {"arena", memory.arena},
                        {"arena_without_reuse", memory.arena_without_reuse},
                        {"kv_cache", memory.kv_cache}},
                       lab::profile_of(*engine).describe_program()};
}

Status run_inspect(const InspectArgs& args, Terminal& terminal) {
  REDLINE_ASSIGN(const std::string path, find_model(args.file));
  if (args.chat_template) return print_chat_template(path, terminal);
  REDLINE_ASSIGN(const FileKind kind, detect_file_kind(path));
  REDLINE_ASSIGN(const FileReport report, read_file_report(path, kind));
  const Verdict verdict = judge(path, report);
  std::optional<CompiledModel> compiled;
  if (args.program) {
    REDLINE_TRY(verdict.runs);
    REDLINE_ASSIGN(compiled, compile_model(path, report, verdict));
  }
  if (args.json) {
    Json json = report_json(args, path, report, verdict);
    if (compiled) {
      for (const auto& [name, bytes] : compiled->memory) json["memory"][name] = bytes;
      json["program"] = compiled->program;
    }
    return print_json(json, terminal);
  }
  print_report(args, path, report, verdict, terminal);
  if (compiled) {
    Table table({"memory", "bytes"}, {1});
    for (auto [name, bytes] : compiled->memory) {
      std::replace(name.begin(), name.end(), '_', ' ');
      table.add({name, fmt::format("{}", bytes)});
    }
    terminal.print("\n{}\n{}", table.text(), compiled->program);
  }
  return {};
}

}  // namespace

Command inspect_command() {
  return make_command<InspectArgs, run_inspect>(
             "inspect", "show what a model file holds and whether it runs", "",
             {"redline inspect assets/redline-tales", "redline inspect model.gguf --metadata --tensors",
              "redline inspect model.gguf --program"})
      .in("look inside");
}

}  // namespace redline::cli
