// Load for a server of OpenAI's completions API: many concurrent streams, and the times of each.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "redline/text.h"

namespace redline::lab {

struct ServeTarget {
  std::string host, port;
  std::string path = "/v1/completions";
  std::string model, api_key;  ///< "": not sent
};
/// "http://127.0.0.1:8080[/v1]". invalid_argument: another scheme, or no URL.
Result<ServeTarget> parse_serve_url(const std::string& url);

struct LoadOptions {
  int64_t streams = 1;  ///< closed loop: each stream sends its next request when it has its answer
  double rate = 0;      ///< open loop: requests per second, Poisson arrivals, however many are open; 0: closed loop
  std::vector<std::string> prompts;
  std::vector<std::string> models;  ///< names that the requests give in turn, such as adapters; empty: the target's
  int64_t adapters = 0;             ///< numbers from 0 that the requests give in turn as `lora`, in llama.cpp's shape
  /// Each prompt begins a conversation of `turns` requests. Each sends the whole conversation so far, and about
  /// turn_tokens more.
  int64_t turns = 1, turn_tokens = 32;
  int64_t max_tokens = 64;
  uint64_t seed = 1;  ///< of the arrivals
};

/// Times in seconds since the load began.
struct LoadRequest {
  double sent = 0, first = 0, last = 0;
  std::vector<double> gaps;  ///< between the events with text
  int64_t prompt_tokens = 0, tokens = 0, cached_tokens = 0;
  std::string text;
  std::string error;  ///< "": answered
};

struct LoadResult {
  double seconds = 0;                 ///< from the first request to the last answer
  std::vector<LoadRequest> requests;  ///< by prompt, then by turn
};

/// Sends every prompt once, and the turns that follow it. `on_done` is called after each answer; false ends the load
/// (cancelled). io: no connection can be made.
Result<LoadResult> run_load(const ServeTarget& target, const LoadOptions& options,
                            const std::function<bool()>& on_done = {});

/// The same load without a server: requests of the engine, submitted and waited for by a thread per stream. Without
/// `rate`, `models` and `adapters`.
Result<LoadResult> run_engine_load(TextEngine& engine, const LoadOptions& options,
                                   const std::function<bool()>& on_done = {});

/// What a table shows of a load. Percentiles are those of all requests, or of all gaps.
struct LoadSummary {
  int64_t requests = 0, failed = 0, prompt_tokens = 0, tokens = 0, cached_tokens = 0;
  double seconds = 0, tokens_per_s = 0, requests_per_s = 0;
  double first_p50 = 0, first_p99 = 0, first_max = 0, gap_p50 = 0, gap_p99 = 0, gap_max = 0;
  std::string error;  ///< of the first failed request
};
LoadSummary summarize(const LoadResult& result);

/// The value below which the share `p` of the values lies; 0 of none. (The nearest rank.)
double percentile(std::vector<double> values, double p);

/// Bars of tokens per second, one per server and load: a chart in SVG.
struct LoadBar {
  std::string load, server;
  LoadSummary summary;
};
std::string load_svg(const std::string& title, const std::vector<LoadBar>& bars);

/// English-like text of about `tokens` tokens, the same for the same seed.
std::string load_text(int64_t tokens, uint64_t seed);

}  // namespace redline::lab
