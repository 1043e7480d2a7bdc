// redline run: streams text from a model.
#include <chrono>
#include <random>

#include "cli/command.h"
#include "cli/engine_options.h"
#include "cli/json.h"
#include "cli/lora_option.h"
#include "lab/bench/engine_profile.h"
#include "lab/machine/peaks.h"

namespace redline::cli {
namespace {

struct RunArgs {
  std::string model;
  std::string prompt;
  int64_t max_tokens = 256;
  std::optional<float> temperature, top_p, min_p, repetition_penalty;
  std::optional<int64_t> top_k;
  std::optional<uint64_t> seed;
  std::vector<std::string> stop, lora;
  std::optional<int64_t> logprobs;
  bool ignore_eos = false, special = false, echo = false, quiet = false, json = false;
  EngineArgs engine;

  void visit(OptionList& v) {
    v.argument(model, "MODEL", "GGUF file or Hugging Face folder", {.names_file = true});
    v.argument(prompt, "PROMPT",
               "text to continue; - reads all of standard input; without it, generation starts from an empty prompt",
               {.optional = true});
    v(max_tokens, "max-tokens", "N", "stop after N new tokens", {.letter = 'n', .min = 0});
    v(temperature, "temperature", "T", "sampling temperature; 0 always takes the most likely token",
      {.min = 0, .max = 100, .shown_default = "the model's own"});
    v(top_k, "top-k", "K", "sample from the K most likely tokens; 0 is off",
      {.min = 0, .shown_default = "the model's own"});
    v(top_p, "top-p", "P", "sample from the most likely tokens with a cumulative probability of P; 1 is off",
      {.min = 0, .max = 1, .shown_default = "the model's own"});
    v(min_p, "min-p", "P", "drop tokens less likely than P times the most likely one; 0 is off",
      {.min = 0, .max = 1, .shown_default = "the model's own"});
    v(repetition_penalty, "repetition-penalty", "R", "penalize tokens that are already in the text; 1 is off",
      {.min = 0, .max = 100, .shown_default = "the model's own"});
    v(seed, "seed", "S", "same seed, same text", {.shown_default = "random, printed at the end"});
    v(stop, "stop", "TEXT", "stop when TEXT appears; TEXT is not printed");
    v(lora, "lora", "FILE[:WEIGHT]", "LoRA adapter to apply (PEFT folder or GGUF), with an optional weight",
      {.names_file = true});
    v(ignore_eos, "ignore-eos", "", "continue after the end-of-sequence token");
    v(special, "special", "", "parse names of special tokens in the prompt as those tokens");
    v(echo, "echo", "", "print the prompt before the text");
    v(logprobs, "logprobs", "K", "with --json: log-probability of each token and of the K most likely ones",
      {.min = 0, .max = 1000});
    v(quiet, "quiet", "", "no summary at the end", {.letter = 'q'});
    v(json, "json", "", "print one JSON object at the end instead of streaming the text");
    engine.visit(v);
  }
};

SamplingOptions sampling_of(const RunArgs& args, const SamplingOptions& defaults) {
  SamplingOptions s = defaults;
  if (args.temperature) s.temperature = *args.temperature;
  if (args.top_k) s.top_k = *args.top_k;
  if (args.top_p) s.top_p = *args.top_p;
  if (args.min_p) s.min_p = *args.min_p;
  if (args.repetition_penalty) s.repetition_penalty = *args.repetition_penalty;
  s.seed = args.seed ? *args.seed : std::random_device()();
  return s;
}

double per_second(double count, double ms) { return ms > 0 ? count * 1000 / ms : 0; }

/// The speed reached, and the fraction of the machine's roofline.
struct Rates {
  double prefill_tokens_per_s = 0, decode_tokens_per_s = 0;
  double prefill_flops_per_s = 0, decode_bytes_per_s = 0;
};

Rates rates_of(const TextEngine& engine, const GenerateResult& r) {
  Rates rates;
  rates.prefill_tokens_per_s = per_second(static_cast<double>(r.prompt_tokens), r.prefill_ms);
  rates.prefill_flops_per_s = per_second(lab::profile_of(engine).step_cost(r.prompt_tokens, 0).flops, r.prefill_ms);
  rates.decode_tokens_per_s = per_second(static_cast<double>(r.decode_tokens), r.decode_ms);
  // The cache grows by one token per step, so the middle step is the average one.
  const lab::EngineProfile::StepCost step = lab::profile_of(engine).step_cost(1, r.prompt_tokens + r.decode_tokens / 2);
  rates.decode_bytes_per_s = rates.decode_tokens_per_s * step.bytes;
  return rates;
}

Result<lab::MachinePeaks> quick_peaks(const TextEngine& engine) {
  REDLINE_ASSIGN(const CpuKernels* kernels, cpu_kernels());
  return lab::measure_peaks(*kernels,
                            {.quick = true,
                             .threads = engine.info().threads,
                             .read_bytes = static_cast<int64_t>(lab::profile_of(engine).step_cost(1, 0).bytes)});
}

void print_summary(const TextEngine& engine, const GenerateResult& r, uint64_t seed, Terminal& terminal) {
  const Rates rates = rates_of(engine, r);
  const ModelInfo& info = engine.info();
  std::string prefill, decode;
  if (const auto peaks = quick_peaks(engine); peaks.ok()) {
    if (const lab::Peak* peak = peaks->find("f32"); peak && peak->all > 0)
      prefill = fmt::format(", {:.1f}% of this machine's {:.0f} GFLOP/s", rates.prefill_flops_per_s / 1e7 / peak->all,
                            peak->all);
    if (const lab::Peak* read = peaks->find("read"); read && read->all > 0)
      decode = fmt::format(", {:.2f} GB/s, {:.1f}% of this machine's {:.1f} GB/s", rates.decode_bytes_per_s / 1e9,
                           rates.decode_bytes_per_s / 1e7 / read->all, read->all);
  }
  const auto tokens = [](auto count) { return fmt::format("{:>5} token{}", count, count == 1 ? "" : "s"); };
  terminal.note("");
  if (r.prefill_ms > 0)
    terminal.note("prompt  {} in {:.1f} ms: {:.1f} tokens/s{}", tokens(r.prompt_tokens), r.prefill_ms,
                  rates.prefill_tokens_per_s, prefill);
  else terminal.note("prompt  {}, not read to its end", tokens(r.prompt_tokens));
  // A single token belongs to the prompt: there is no decode rate.
  if (r.decode_tokens > 0)
    terminal.note("output  {} in {:.1f} ms: {:.1f} tokens/s{}", tokens(r.tokens.size()), r.first_token_ms + r.decode_ms,
                  rates.decode_tokens_per_s, decode);
  else terminal.note("output  {}", tokens(r.tokens.size()));
  const std::string first = r.first_token_ms > 0 ? fmt::format("first token after {:.1f} ms; ", r.first_token_ms) : "";
  terminal.note("{}ended by {}; seed {}; {} thread{}, {}", first, finish_reason_name(r.reason), seed, info.threads,
                info.threads == 1 ? "" : "s", info.isa);
}

Json logprob_json(const TextEngine& engine, int32_t id, float logprob) {
  const auto text = engine.decode(std::span(&id, 1), true);
  return {{"id", id}, {"token", text.ok() ? *text : ""}, {"logprob", logprob}};
}

Json result_json(const TextEngine& engine, const GenerateResult& r, uint64_t seed, Json logprobs) {
  const Rates rates = rates_of(engine, r);
  Json json = {{"model", engine.info().path},
               {"text", r.text},
               {"tokens", r.tokens},
               {"finish_reason", finish_reason_name(r.reason)},
               {"prompt_tokens", r.prompt_tokens},
               {"completion_tokens", r.tokens.size()},
               {"seed", seed},
               {"timings",
                {{"first_token_ms", r.first_token_ms},
                 {"prefill_ms", r.prefill_ms},
                 {"decode_ms", r.decode_ms},
                 {"decode_tokens", r.decode_tokens},
                 {"prefill_tokens_per_s", rates.prefill_tokens_per_s},
                 {"decode_tokens_per_s", rates.decode_tokens_per_s}}}};
  if (!logprobs.is_null()) json["logprobs"] = std::move(logprobs);
  return json;
}

Status run(const RunArgs& args, Terminal& terminal) {
  if (args.logprobs && !args.json) return invalid_argument("flag --logprobs needs --json, which shows them");
  std::string prompt = args.prompt;
  if (prompt == "-") {
    REDLINE_ASSIGN(prompt, terminal.read_input());
  }
  REDLINE_ASSIGN(TextEngineOptions options, args.engine.options());
  GenerateRequest request;
  for (const std::string& text : args.lora) {
    request.adapters.push_back(parse_lora(text));
    REDLINE_ASSIGN(const int64_t rank, text_adapter_rank(request.adapters.back().first));
    options.max_adapter_rank += rank;
  }
  REDLINE_ASSIGN(const auto engine, open_engine(args.model, options));
  for (const auto& [file, weight] : request.adapters) REDLINE_TRY(engine->load_adapter(file, file));

  if (!prompt.empty()) {
    REDLINE_ASSIGN(request.prompt, engine->encode(prompt, args.special));
  } else if (!engine->info().has_tokenizer && !args.json) {
    return not_found("{}: has no tokenizer, so there is no text to print; --json gives the ids of the tokens",
                     engine->info().path);
  }
  request.sampling = sampling_of(args, engine->default_sampling());
  request.max_tokens = args.max_tokens;
  request.stop = args.stop;
  request.ignore_stop_tokens = args.ignore_eos;
  if (args.logprobs) request.num_logprobs = static_cast<int>(*args.logprobs);

  const InterruptGuard guard;
  Json logprobs = args.logprobs ? Json::array() : Json();
  bool ends_with_newline = false;
  const auto show = [&](std::string_view text) {
    if (args.json || text.empty()) return;
    terminal.write(text);
    terminal.flush();
    ends_with_newline = text.back() == '\n';
  };
  bool has_begun = false;
  const auto on_piece = [&](const TextPiece& piece) {
    // The prompt is printed with the first piece, so that a failing run leaves standard output empty.
    if (!has_begun && args.echo) show(prompt);
    has_begun = true;
    if (args.logprobs && piece.token >= 0) {
      Json entry = logprob_json(*engine, piece.token, piece.logprob);
      entry["top"] = Json::array();
      for (const TokenLogprob& t : piece.top) entry["top"].push_back(logprob_json(*engine, t.id, t.logprob));
      logprobs.push_back(std::move(entry));
    }
    show(piece.text);
    return !InterruptGuard::interrupted() && !terminal.reader_is_gone();
  };
  REDLINE_ASSIGN(const GenerateResult result, engine->generate(request, on_piece));
  if (!has_begun && args.echo) show(prompt);  // --max-tokens 0

  if (args.json) {
    Json json = result_json(*engine, result, request.sampling.seed, std::move(logprobs));
    if (args.echo) json["prompt"] = prompt;
    REDLINE_TRY(print_json(json, terminal, -1));
  } else if (!ends_with_newline) {
    terminal.write("\n");
    terminal.flush();
  }
  if (!args.quiet && !args.json && !terminal.reader_is_gone())
    print_summary(*engine, result, request.sampling.seed, terminal);
  // The summary was printed; only the exit code is left to return.
  if (result.reason == FinishReason::kCancelled && InterruptGuard::interrupted()) return Status(Code::cancelled, "");
  return {};
}

}  // namespace

Command run_command() {
  return make_command<RunArgs, run>(
      "run", "stream text from a language model",
      "The text is streamed to standard output, followed by a newline; a summary goes to standard error. Ctrl-C stops "
      "generation and still prints the summary; a second Ctrl-C ends the program.",
      {"redline run assets/redline-tales \"Once upon a time\" --echo",
       "redline run model.gguf \"The sea\" --max-tokens 50 --temperature 0.7 --seed 1",
       "redline run assets/redline-tales \"One day\" --lora assets/redline-tales/adapters/shout:0.8",
       "redline run model.gguf - --json < prompt.txt"});
}

}  // namespace redline::cli
