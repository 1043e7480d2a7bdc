// redline run: streams text from a model.
#include <algorithm>
#include <chrono>

#include "base/conversion_json.h"
#include "base/elapsed.h"
#include "base/mapped_file.h"
#include "cli/chat_template.h"
#include "cli/command.h"
#include "cli/constraint_args.h"
#include "cli/engine_options.h"
#include "cli/json.h"
#include "cli/lora_option.h"
#include "cli/sampling_args.h"
#include "cli/table.h"
#include "machine/generation_speed.h"
#include "machine/peaks_cache.h"
#include "models/checkpoint/model_tokenizer.h"

namespace redline::cli {
namespace {

struct RunArgs {
  std::string model, prompt_file;
  std::optional<std::string> prompt;
  int64_t max_tokens = 256;
  SamplingArgs sampling;
  std::optional<int64_t> beams;
  std::optional<float> length_penalty;
  std::vector<std::string> stop, lora;
  ConstraintArgs constraint;
  std::optional<int64_t> logprobs;
  bool ignore_eos = false, special = false, echo = false, quiet = false, verbose = false, json = false;
  DraftingEngineArgs engine;

  void visit(OptionList& v) {
    v.argument(model, "MODEL", "GGUF file or Hugging Face folder", {.names_file = true, .aliases = {"-m", "--model"}});
    v.argument(
        prompt, "PROMPT",
        "text to continue; - reads all of standard input, as does a pipe without PROMPT; otherwise generation starts "
        "from an empty prompt",
        {.optional = true, .aliases = {"-p", "--prompt"}});
    v(prompt_file, "prompt-file", "FILE", "read PROMPT from a file",
      {.letter = 'f', .names_file = true, .aliases = {"--file"}});
    v(max_tokens, "max-tokens", "N", "stop after N new tokens; -1: at the end of the text or of the context",
      {.letter = 'n',
       .min = -1,
       .aliases = {"--n-predict", "--predict", "--num-predict", "--max-new-tokens", "--max-completion-tokens"}});
    v(stop, "stop", "TEXT", "stop when TEXT appears; TEXT is not printed");
    constraint.visit(v);
    v(lora, "lora", "FILE[:WEIGHT]", "LoRA adapter to apply (PEFT folder or GGUF), with an optional weight",
      {.names_file = true});
    v(ignore_eos, "ignore-eos", "", "continue after the end-of-sequence token");
    v(special, "special", "", "parse names of special tokens in the prompt as those tokens");
    v(echo, "echo", "", "print the prompt before the text");
    v(logprobs, "logprobs", "K", "with --json: log-probability of each token and of the K most likely ones",
      {.min = 0, .max = 1000, .needs = {"json"}});
    v(quiet, "quiet", "", "no summary at the end", {.letter = 'q'});
    v(verbose, "verbose", "", "begin the summary with the model, the loading time and the sampling values",
      {.letter = 'v', .not_with = {"json"}});
    v(json, "json", "", "print one JSON object at the end instead of streaming the text");
    engine.visit(v);
    sampling.visit(v);
    v.group("beam search");
    v(beams, "beams", "N", "search for the most likely text with N beams, instead of sampling one",
      {.min = 1,
       .max = 256,
       .aliases = {"--num-beams"},
       .not_with = {"stop", "grammar", "json-schema", "regex", "choice", "logprobs", "temperature", "seed", "samplers",
                    "speculate"}});
    v(length_penalty, "length-penalty", "X", "rank texts by log-probability / (tokens, prompt included)^X",
      {.shown_default = "1", .needs = {"beams"}});
    v.group("");
    add_run_peers(v);
  }
};

/// Returns the machine's peaks for this model's steps. They are measured after the first run on a machine, and stored.
std::optional<MachinePeaks> peaks_for(const TextEngine& engine) {
  const int64_t read_bytes = decode_step_bytes(engine);
  if (auto kept = load_peaks(engine.info().threads, read_bytes)) return kept;
  const Result<const CpuKernels*> kernels = cpu_kernels();
  if (!kernels.ok()) return std::nullopt;
  const Progress measuring("measuring the machine, once", 0);
  return peaks_of_machine(**kernels, engine.info().threads, read_bytes);
}

/// Returns speed_of(). If the run was faster than the stored peaks allow, they are measured again.
GenerationSpeed judged_speed(const TextEngine& engine, const GenerateResult& result, bool exact_f32) {
  constexpr double kMaxShare = 1.02;
  std::optional<MachinePeaks> peaks = peaks_for(engine);
  GenerationSpeed speed = speed_of(engine, result, peaks ? &*peaks : nullptr, exact_f32);
  if (!peaks || std::max(speed.prefill.share(), speed.decode.share()) <= kMaxShare) return speed;
  if (const Result<const CpuKernels*> kernels = cpu_kernels(); kernels.ok())
    raise_peaks(**kernels, engine.info().threads, decode_step_bytes(engine), *peaks);
  return speed_of(engine, result, &*peaks, exact_f32);
}

/// Prints the model and the values that shaped the text, for --verbose.
void print_settings(const TextEngine& engine, const SamplingOptions& s, double load_ms, Terminal& terminal) {
  const ModelInfo& info = engine.info();
  terminal.note("");
  terminal.note("model     {}: {}, {} parameters, {}, context {}; loaded in {:.0f} ms", printable(info.path),
                info.architecture, info.parameters, info.weight_types, info.context, load_ms);
  const auto off = [](bool is_off) { return is_off ? " (off)" : ""; };
  terminal.note(
      "sampling  temperature {:g}{}, top-k {}{}, top-p {:g}{}, min-p {:g}{}, repetition penalty {:g}{}, seed {}",
      s.temperature, s.temperature == 0 ? " (greedy)" : "", s.top_k, off(s.top_k == 0), s.top_p, off(s.top_p == 1),
      s.min_p, off(s.min_p == 0), s.repetition_penalty, off(s.repetition_penalty == 1), s.seed);
  terminal.note("samplers  {}", samplers_text(s));
}

std::string speed_line(const char* phase, const PhaseSpeed& speed) {
  std::string text = fmt::format("{} {:>6} token{} in {:.1f} ms: {:.1f} tokens/s", phase, speed.tokens,
                                 speed.tokens == 1 ? "" : "s", speed.seconds * 1e3, speed.tokens_per_s());
  if (speed.bound) text += fmt::format(", {:.0f}% of the ceiling ({})", 100 * speed.share(), speed.bound->by);
  return text;
}

std::string ending_text(const GenerateResult& r, const ModelInfo& info) {
  std::string text = fmt::format("ended by {}", finish_reason_name(r.reason));
  if (r.reason != FinishReason::kContext) return text;
  text += fmt::format(": its {} tokens are full", info.context);
  return info.model_context <= info.context ? text
                                            : text + fmt::format("; this model takes --context {}", info.model_context);
}

void print_run_summary(const TextEngine& engine, const GenerateResult& r, const TextEngineOptions& options,
                       uint64_t seed, Terminal& terminal) {
  const ModelInfo& info = engine.info();
  const GenerationSpeed speed = judged_speed(engine, r, options.dtype == Precision::kF32);
  terminal.note("");
  if (speed.prefill.seconds > 0) terminal.note("{}", speed_line("prefill", speed.prefill));
  else terminal.note("prefill {:>6} tokens, not processed to the end", r.prompt_tokens);
  if (speed.decode.seconds > 0) terminal.note("{}", speed_line("decode ", speed.decode));
  if (r.drafted_tokens > 0)
    terminal.note("drafts  {:>6} tokens, {} of them accepted", r.drafted_tokens, r.accepted_tokens);
  const std::string first = r.first_token_ms > 0 ? fmt::format(", the first after {:.1f} ms", r.first_token_ms) : "";
  terminal.note("{} new token{}{}; {}; seed {}; {} thread{}, {}", r.tokens.size(), r.tokens.size() == 1 ? "" : "s",
                first, ending_text(r, info), seed, info.threads, info.threads == 1 ? "" : "s", info.isa);
}

/// Prints why there is no text, and how to prompt a model that has a chat template.
void print_advice(const RunArgs& args, const TextEngine& engine, const std::string& prompt,
                  const GenerateResult& result, Terminal& terminal) {
  const bool is_empty = result.tokens.empty() && result.reason == FinishReason::kStop;
  if (is_empty) terminal.note("redline: no text: the model ended the text at once; --ignore-eos continues");
  if (args.special || !(is_empty || args.verbose)) return;
  const Result<std::string> chat_template = load_chat_template(engine.info().path);
  if (!chat_template.ok() || chat_template->empty()) return;
  terminal.note("redline: this model has a chat template, and PROMPT was given as plain text; {}",
                chat_advice(*chat_template, args.model, prompt));
}

Json logprob_json(const TextEngine& engine, int32_t id, float logprob) {
  const auto text = engine.decode(std::span(&id, 1), true);
  return {{"id", id}, {"token", text.ok() ? *text : ""}, {"logprob", logprob}};
}

Json run_result_json(const TextEngine& engine, const GenerateResult& r, bool exact_f32, const SamplingOptions& sampling,
                     Json logprobs) {
  // With --json the machine is not measured; only stored peaks are used.
  const auto peaks = load_peaks(engine.info().threads, decode_step_bytes(engine));
  const GenerationSpeed speed = speed_of(engine, r, peaks ? &*peaks : nullptr, exact_f32);
  const auto share = [](const PhaseSpeed& s) { return s.bound ? Json(s.share()) : Json(nullptr); };
  Json json = {{"model", engine.info().path},
               {"text", r.text},
               {"tokens", r.tokens},
               {"finish_reason", finish_reason_name(r.reason)},
               {"prompt_tokens", r.prompt_tokens},
               {"completion_tokens", r.tokens.size()},
               {"drafted_tokens", r.drafted_tokens},
               {"accepted_tokens", r.accepted_tokens},
               {"seed", sampling.seed},
               {"samplers", active_samplers(sampling).value()},
               {"timings",
                {{"first_token_ms", r.first_token_ms},
                 {"prefill_ms", r.prefill_ms},
                 {"decode_ms", r.decode_ms},
                 {"decode_tokens", r.decode_tokens},
                 {"prefill_tokens_per_s", speed.prefill.tokens_per_s()},
                 {"decode_tokens_per_s", speed.decode.tokens_per_s()},
                 {"prefill_ceiling_share", share(speed.prefill)},
                 {"decode_ceiling_share", share(speed.decode)}}}};
  add_conversion(engine.info().conversion, json);
  if (!logprobs.is_null()) json["logprobs"] = std::move(logprobs);
  return json;
}

/// Returns PROMPT, the contents of --prompt-file, or standard input without its last line break.
Result<std::string> prompt_of(const RunArgs& args, Terminal& terminal) {
  std::string prompt;
  if (!args.prompt_file.empty()) {
    if (args.prompt) return invalid_argument("give either PROMPT or --prompt-file, not both");
    REDLINE_ASSIGN(prompt, read_text_file(args.prompt_file));
  } else if (args.prompt ? *args.prompt == "-" : terminal.has_piped_input()) {
    REDLINE_ASSIGN(prompt, terminal.read_input());
  } else {
    return args.prompt.value_or("");
  }
  if (prompt.ends_with('\n')) prompt.pop_back();
  if (prompt.ends_with('\r')) prompt.pop_back();
  return prompt;
}

/// Lists the given sampling flags that have no effect, because greedy generation does not sample.
void note_unused_sampling(const RunArgs& args, const SamplingOptions& sampling, Terminal& terminal) {
  if (sampling.temperature != 0 || sampling.dynatemp_range > 0) return;
  const std::vector<std::string> unused = args.sampling.unused_by_greedy();
  if (!unused.empty()) terminal.note("redline: no effect at temperature 0: {}", fmt::join(unused, ", "));
}

Result<GenerateRequest> generate_request_of(const RunArgs& args, const std::string& prompt, const TextEngine& engine) {
  GenerateRequest request;
  if (!prompt.empty()) {
    REDLINE_ASSIGN(request.prompt, engine.encode(prompt, args.special));
  } else if (!engine.info().has_tokenizer && !args.json) {
    return not_found("{}: has no tokenizer, so there is no text to print; --json gives the ids of the tokens",
                     engine.info().path);
  }
  REDLINE_ASSIGN(request.sampling, args.sampling.options(engine.default_sampling()));
  // With --special the prompt may be a rendered chat that ends within the reasoning.
  if (args.special) request.chat_prompt = prompt;
  request.max_tokens = args.max_tokens < 0 ? engine.info().context : args.max_tokens;
  request.stop = args.stop;
  request.ignore_stop_tokens = args.ignore_eos;
  REDLINE_ASSIGN(request.constraint, args.constraint.constraint());
  if (args.logprobs) request.num_logprobs = static_cast<int>(*args.logprobs);
  return request;
}

/// Prints the texts of a beam search, the best first; without --json only the best one.
Status run_beams(const RunArgs& args, const std::string& prompt, TextEngine& engine, const GenerateRequest& request,
                 Terminal& terminal) {
  BeamSearchRequest search;
  search.prompt = request.prompt;
  if (search.prompt.empty()) {
    REDLINE_ASSIGN(search.prompt, engine.encode(""));
  }
  search.beam_width = *args.beams;
  search.max_tokens = request.max_tokens;
  search.ignore_stop_tokens = request.ignore_stop_tokens;
  search.adapters = request.adapters;
  if (args.length_penalty) search.length_penalty = double{*args.length_penalty};
  std::optional<Progress> progress(std::in_place, "searching", request.max_tokens, ProgressOptions{.unit = "token"});
  const auto start = std::chrono::steady_clock::now();
  REDLINE_ASSIGN(const std::vector<Beam> beams, beam_search(engine, search, [&](int64_t) {
                   progress->advance(1);
                   return !InterruptGuard::interrupted();
                 }));
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  progress.reset();
  if (args.json) {
    Json json = {{"model", engine.info().path}, {"prompt_tokens", search.prompt.size()}, {"beams", Json::array()}};
    for (const Beam& beam : beams)
      json["beams"].push_back({{"text", beam.text},
                               {"tokens", beam.tokens},
                               {"logprob", beam.logprob},
                               {"score", beam.score},
                               {"finish_reason", finish_reason_name(beam.reason)}});
    if (args.echo) json["prompt"] = prompt;
    REDLINE_TRY(print_json(json, terminal, -1));
  } else {
    terminal.write((args.echo ? prompt : "") + beams[0].text + "\n");
    terminal.flush();
    if (!args.quiet)
      terminal.note("\n{} beams in {:.1f} s; {} tokens, log-probability {:.3f}, score {:.4f}; ended by {}",
                    beams.size(), seconds.count(), beams[0].tokens.size(), beams[0].logprob, beams[0].score,
                    finish_reason_name(beams[0].reason));
  }
  if (beams[0].reason == FinishReason::kCancelled) return Status(Code::cancelled, "");
  return {};
}

/// Prints the text as it is generated, or collects what --json prints.
class Stream {
 public:
  Stream(const RunArgs& args, const TextEngine& engine, const std::string& prompt, const GenerateRequest& request,
         Terminal& terminal)
      : args_(args), engine_(engine), prompt_(prompt), terminal_(terminal) {
    constexpr int64_t kLongPrompt = 2048;
    if (std::ssize(request.prompt) > kLongPrompt && !args.quiet)
      reading_.emplace("reading the prompt", std::ssize(request.prompt), ProgressOptions{.unit = "token"});
    if (args.logprobs) logprobs_ = Json::array();
  }

  /// Takes a piece of text. Returns false if the generation should end.
  bool take(const TextPiece& piece) {
    if (piece.token < 0 && reading_) {  // a call between two steps of the prompt
      constexpr int64_t kChunk = 512;   // default of TextEngineOptions::max_batch_tokens
      reading_->advance(kChunk);
      return !InterruptGuard::interrupted();
    }
    begin();
    if (args_.logprobs && piece.token >= 0) {
      Json entry = logprob_json(engine_, piece.token, piece.logprob);
      entry["top"] = Json::array();
      for (const TokenLogprob& t : piece.top) entry["top"].push_back(logprob_json(engine_, t.id, t.logprob));
      logprobs_.push_back(std::move(entry));
    }
    show(piece.text);
    return !InterruptGuard::interrupted() && !terminal_.reader_is_gone();
  }

  /// Ends the text with a line break.
  void finish() {
    begin();  // no piece has come, for example with --max-tokens 0
    if (args_.json || ends_with_newline_) return;
    terminal_.write("\n");
    terminal_.flush();
  }

  Json take_logprobs() { return std::move(logprobs_); }

 private:
  /// The prompt is printed with the first piece, so that a failing run leaves standard output empty.
  void begin() {
    reading_.reset();
    if (!has_begun_ && args_.echo) show(prompt_);
    has_begun_ = true;
  }
  void show(std::string_view text) {
    if (args_.json || text.empty()) return;
    terminal_.write(text);
    terminal_.flush();
    ends_with_newline_ = text.back() == '\n';
  }

  const RunArgs& args_;
  const TextEngine& engine_;
  const std::string& prompt_;
  Terminal& terminal_;
  std::optional<Progress> reading_;
  Json logprobs_;
  bool has_begun_ = false, ends_with_newline_ = false;
};

Status run(const RunArgs& args, Terminal& terminal) {
  REDLINE_ASSIGN(const std::string prompt, prompt_of(args, terminal));
  REDLINE_ASSIGN(TextEngineOptions options, args.engine.options());
  REDLINE_ASSIGN(AdapterWeights adapters, read_text_adapters(args.lora, options.max_adapter_rank));
  const auto opening = std::chrono::steady_clock::now();
  REDLINE_ASSIGN(const auto engine, open_engine(args.model, options, terminal));
  for (const auto& [file, weight] : adapters) REDLINE_TRY(engine->load_adapter(file, file));
  const double load_ms = ms_since(opening);
  REDLINE_ASSIGN(GenerateRequest request, generate_request_of(args, prompt, *engine));
  request.adapters = std::move(adapters);
  REDLINE_TRY(note_unenforced(*engine, request.constraint, terminal));

  const InterruptGuard guard;
  if (args.beams) return run_beams(args, prompt, *engine, request, terminal);
  note_unused_sampling(args, request.sampling, terminal);
  Stream stream(args, *engine, prompt, request, terminal);
  REDLINE_ASSIGN(const GenerateResult result,
                 engine->generate(request, [&](const TextPiece& piece) { return stream.take(piece); }));
  stream.finish();
  if (args.json) {
    Json json =
        run_result_json(*engine, result, options.dtype == Precision::kF32, request.sampling, stream.take_logprobs());
    if (args.echo) json["prompt"] = prompt;
    REDLINE_TRY(print_json(json, terminal, -1));
  } else if (!terminal.reader_is_gone()) {
    if (args.verbose) print_settings(*engine, request.sampling, load_ms, terminal);
    if (!args.quiet) print_run_summary(*engine, result, options, request.sampling.seed, terminal);
    print_advice(args, *engine, prompt, result, terminal);
  }
  // The summary was printed, so only the exit code is left to return.
  if (result.reason == FinishReason::kCancelled && InterruptGuard::interrupted()) return Status(Code::cancelled, "");
  return {};
}

}  // namespace

Command run_command() {
  return make_command<RunArgs, run>(
             "run", "stream text from a language model",
             "The text is streamed to standard output, followed by a newline; a summary goes to standard error. Ctrl-C "
             "stops "
             "generation and still prints the summary; a second Ctrl-C ends the program.",
             {"redline run assets/redline-tales \"Once upon a time\" --echo",
              "redline run model.gguf \"The sea\" --max-tokens 50 --temperature 0.7 --seed 1",
              "redline run assets/redline-tales \"One day\" --lora assets/redline-tales/adapters/shout:0.8",
              "redline run model.gguf - --json < prompt.txt"})
      .in("generate");
}

}  // namespace redline::cli
