// Generates load for a server with OpenAI's completions API: many concurrent streams. Measures the times of each.
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
/// Parses "http://127.0.0.1:8080[/v1]". invalid_argument: another scheme, or no URL.
Result<ServeTarget> parse_serve_url(const std::string& url);

struct LoadOptions {
  int64_t streams = 1;  ///< closed loop: each stream sends its next request when it has received the answer
  /// open loop: requests per second with Poisson arrivals, for any number of open requests; 0: closed loop
  double rate = 0;
  std::vector<std::string> prompts;
  /// model names that requests use in turn, such as adapters; empty: that of the target
  std::vector<std::string> models;
  /// number of adapters that requests use in turn, as `lora` in llama.cpp's format; numbered from 0
  int64_t adapters = 0;
  /// Each prompt begins a conversation of `turns` requests. Each sends the whole conversation so far, and about
  /// turn_tokens more.
  int64_t turns = 1, turn_tokens = 32;
  int64_t max_tokens = 64;
  uint64_t seed = 1;  ///< seed of the arrivals
};

/// One request. Times are in seconds since the load began.
struct LoadRequest {
  double sent = 0, first = 0, last = 0;
  std::vector<double> gaps;  ///< times between the events with text
  int64_t prompt_tokens = 0, tokens = 0, cached_tokens = 0;
  std::string text;
  std::string error;  ///< "": the request was answered
};

struct LoadResult {
  double seconds = 0;                 ///< time from the first request to the last answer
  std::vector<LoadRequest> requests;  ///< ordered by prompt, then by turn
};

/// Sends every prompt once, and the further turns of its conversation. Calls `on_done` after each answer; returning
/// false ends the load as `cancelled`. io: no connection can be made.
Result<LoadResult> run_load(const ServeTarget& target, const LoadOptions& options,
                            const std::function<bool()>& on_done = {});

/// run_load() without a server: one thread per stream submits requests to the engine and waits for them. Does not use
/// `rate`, `models` and `adapters`.
Result<LoadResult> run_engine_load(TextEngine& engine, const LoadOptions& options,
                                   const std::function<bool()>& on_done = {});

/// Summary of a load for tables. Percentiles are those of all requests, or of all gaps.
struct LoadSummary {
  int64_t requests = 0, failed = 0, prompt_tokens = 0, tokens = 0, cached_tokens = 0;
  double seconds = 0, tokens_per_s = 0, requests_per_s = 0;
  double first_p50 = 0, first_p99 = 0, first_max = 0, gap_p50 = 0, gap_p99 = 0, gap_max = 0;
  std::string error;  ///< error of the first failed request
};
LoadSummary summarize(const LoadResult& result);

/// Returns the value below which a share `p` of the values lies (nearest rank); 0 if there are no values.
double percentile(std::vector<double> values, double p);

/// A bar of tokens per second for one server and load. load_svg() draws them as a chart in SVG.
struct LoadBar {
  std::string load, server;
  LoadSummary summary;
};
std::string load_svg(const std::string& title, const std::vector<LoadBar>& bars);

/// Returns English-like text of about `tokens` tokens, the same for the same seed.
std::string load_text(int64_t tokens, uint64_t seed);

}  // namespace redline::lab
