#include "server/logprobs.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/utf8.h"

namespace redline::server {

const std::vector<Field>& token_fields() {
  static const std::vector<Field> fields = {
      {"return_token_ids", kBoolean, "add the ids of the prompt and of the text, in vLLM's shape"},
      {"return_tokens_as_token_ids", kBoolean, "log probabilities name tokens as \"token_id:N\""},
      {"prompt_logprobs",
       kInteger,
       "log probabilities of each token of the prompt and of this many of the most likely ones, in vLLM's shape",
       {.min = 0, .max = 100}}};
  return fields;
}

TokenFields::TokenFields(const Json& body)
    : returns_ids(body.value("return_token_ids", false)), names_ids(body.value("return_tokens_as_token_ids", false)),
      prompt_logprobs(body.value("prompt_logprobs", -1)) {}

std::string token_name(const TextEngine& engine, int32_t token, bool as_id) {
  if (as_id) return fmt::format("token_id:{}", token);
  std::string bytes = engine.token_bytes(token);
  if (is_utf8(bytes)) return bytes;
  std::string name = "bytes:";
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= ' ' && byte < 0x7F) name += c;
    else name += fmt::format("\\x{:02x}", byte);
  }
  return name;
}

Json token_json(const TextEngine& engine, int32_t token, float logprob, bool as_id) {
  Json bytes = Json::array();
  for (const char c : engine.token_bytes(token)) bytes.push_back(static_cast<unsigned char>(c));
  return {{"token", token_name(engine, token, as_id)}, {"logprob", logprob}, {"bytes", std::move(bytes)}};
}

Json token_json(const TextEngine& engine, int32_t token, float logprob, const std::vector<TokenLogprob>& top,
                bool as_id) {
  Json json = token_json(engine, token, logprob, as_id);
  json["top_logprobs"] = Json::array();
  for (const TokenLogprob& t : top) json["top_logprobs"].push_back(token_json(engine, t.id, t.logprob, as_id));
  return json;
}

void CharCounter::add(std::string_view bytes) {
  held_ += bytes;
  const std::string_view whole = std::string_view(held_).substr(0, held_.size() - incomplete_utf8_tail(held_));
  for (size_t pos = 0; pos < whole.size(); pos += utf8_at(whole, pos).bytes) ++count_;
  held_.erase(0, whole.size());
}

void CharCounter::finish() {
  count_ += held_.empty() ? 0 : 1;
  held_.clear();
}

std::vector<size_t> token_places(const TextEngine& engine, const std::vector<int32_t>& tokens, std::string_view text,
                                 CharCounter& count) {
  std::vector<size_t> places;
  // If normalization has changed the text, the bytes of the tokens count instead, from the first difference on.
  bool is_text = true;
  for (const int32_t token : tokens) {
    places.push_back(count.count());
    const std::string bytes = engine.token_bytes(token), shown = engine.token_bytes(token, false);
    const std::string_view without_space = std::string_view(bytes).substr(bytes.starts_with(' ') ? 1 : 0);
    if (is_text && text.starts_with(bytes)) {
      count.add(bytes);
      text.remove_prefix(bytes.size());
    } else if (!shown.empty() && is_text && text.starts_with(without_space)) {
      count.add(without_space);
      text.remove_prefix(without_space.size());
    } else if (!shown.empty()) {
      is_text = false;
      count.add(shown);
    }
  }
  if (is_text) count.add(text);
  count.finish();
  return places;
}

void CompletionLogprobs::add(const TextEngine& engine, int32_t token, float logprob,
                             const std::vector<TokenLogprob>& top, size_t place, bool names_ids, bool is_first) {
  const std::string name = token_name(engine, token, names_ids);
  tokens_.push_back(name);
  places_.push_back(place);
  logprobs_.push_back(is_first ? Json(nullptr) : Json(logprob));
  if (is_first) return top_.push_back(nullptr);
  // Several tokens may have the same text: the name belongs to the chosen token, else to the most likely one.
  Json map = Json::object();
  for (const TokenLogprob& t : top) {
    std::string other = token_name(engine, t.id, names_ids);
    if (t.id != token && (other == name || map.contains(other))) other = token_name(engine, t.id, true);
    map[other] = t.logprob;
  }
  if (!map.contains(name)) map[name] = logprob;
  top_.push_back(std::move(map));
}

Json CompletionLogprobs::take() {
  return {{"tokens", std::exchange(tokens_, Json::array())},
          {"token_logprobs", std::exchange(logprobs_, Json::array())},
          {"top_logprobs", std::exchange(top_, Json::array())},
          {"text_offset", std::exchange(places_, Json::array())}};
}

Json prompt_logprobs_json(const TextEngine& engine, const Prompt& prompt, const std::vector<TokenScore>& scores,
                          size_t num_top) {
  Json list = Json::array();
  if (!prompt.empty()) list.push_back(nullptr);
  for (size_t i = 0; i < scores.size(); ++i) {
    const auto entry = [&](int32_t token, float logprob, int64_t rank) -> Json {
      return {{"logprob", logprob}, {"rank", rank}, {"decoded_token", token_name(engine, token, false)}};
    };
    if (!is_token_key(prompt.keys()[i + 1])) {
      list.push_back(nullptr);
      continue;
    }
    const int32_t token = prompt.tokens()[i + 1];
    Json& map = list.emplace_back(Json::object());
    const TokenScore& score = scores[i];
    const size_t shown = std::min(num_top, score.top.size());
    for (size_t k = 0; k < shown; ++k)
      map[std::to_string(score.top[k].id)] = entry(score.top[k].id, score.top[k].logprob, static_cast<int64_t>(k) + 1);
    map[std::to_string(token)] = entry(token, score.logprob, score.rank);
  }
  return list;
}

}  // namespace redline::server
