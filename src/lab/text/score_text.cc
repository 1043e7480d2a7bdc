#include "lab/text/score_text.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <system_error>
#include <thread>

#include "base/error.h"
#include "base/json_text.h"
#include "models/checkpoint/weight_examiner.h"

namespace redline::lab {
namespace {

using nlohmann::json;

/// Returns the error for a score that is not finite.
Status broken_score(const TextEngine& model, std::string_view place) {
  return WeightExaminer(model.info().path).explain(internal("{}: the logits are not finite", place));
}

/// A row of logits and its normalizer, in float64.
struct Row {
  std::span<const float> logits;
  double log_total = 0;  ///< ln of the sum of exp(logit)
  size_t top = 0;

  explicit Row(std::span<const float> row) : logits(row) {
    top = static_cast<size_t>(std::max_element(row.begin(), row.end()) - row.begin());
    double sum = 0;
    for (const float logit : row) sum += std::exp(double{logit} - double{row[top]});
    log_total = std::log(sum) + double{row[top]};
  }
  double log_probability(size_t id) const { return double{logits[id]} - log_total; }
};

struct Position {
  double nats, base_nats = 0, divergence = 0, change = 0;
  bool same_top = false;
};

Position score(std::span<const float> logits, std::span<const float> base_logits, int32_t id) {
  const Row row(logits);
  Position p{-row.log_probability(static_cast<size_t>(id))};
  if (base_logits.empty()) return p;
  const Row base(base_logits);
  p.base_nats = -base.log_probability(static_cast<size_t>(id));
  for (size_t i = 0; i < logits.size(); ++i) {
    const double log_base = base.log_probability(i);
    p.divergence += std::exp(log_base) * (log_base - row.log_probability(i));
  }
  p.divergence = std::max(p.divergence, 0.0);  // rounding can make it negative for equal distributions
  p.same_top = row.top == base.top;
  p.change = std::exp(-p.nats) - std::exp(-p.base_nats);
  return p;
}

/// Calls fn(0) .. fn(count - 1) on `threads` threads.
void for_each(int64_t count, int threads, const std::function<void(int64_t)>& fn) {
  const auto part = [&](int64_t t) {
    for (int64_t i = count * t / threads; i < count * (t + 1) / threads; ++i) fn(i);
  };
  std::vector<std::thread> helpers;
  helpers.reserve(static_cast<size_t>(threads));
  int64_t started = 1;
  try {
    for (; started < threads; ++started) helpers.emplace_back(part, started);
  } catch (const std::system_error&) {  // no more threads: this one does their parts
  }
  part(0);
  for (int64_t t = started; t < threads; ++t) part(t);
  for (std::thread& helper : helpers) helper.join();
}

/// A model with one sequence, to which texts are appended.
struct Reader {
  TextEngine* engine;
  std::unique_ptr<Sequence> sequence;
  std::vector<float> logits;

  static Result<Reader> make(TextEngine& engine) {
    Reader reader{&engine, nullptr, {}};
    REDLINE_ASSIGN(reader.sequence, engine.new_sequence());
    return reader;
  }
  size_t vocab() const { return static_cast<size_t>(engine->info().vocab_size); }
  /// Appends tokens. `logits` then has one row for each of them.
  Status read(std::span<const int32_t> tokens) {
    logits.resize(tokens.size() * vocab());
    return sequence->append(tokens, logits);
  }
  std::span<const float> row(int64_t i) const {
    return std::span(logits).subspan(static_cast<size_t>(i) * vocab(), vocab());
  }
};

}  // namespace

double TextScores::divergence_quantile(double q) const {
  if (divergences.empty()) return 0;
  const auto last = static_cast<double>(divergences.size() - 1);
  return divergences[static_cast<size_t>(std::clamp(q, 0.0, 1.0) * last)];
}

Result<TextScores> score_windows(TextEngine& model, TextEngine* base, std::span<const int32_t> tokens,
                                 const WindowOptions& options, const std::function<bool()>& on_window) {
  const auto size = static_cast<size_t>(options.window);
  const auto all = static_cast<int64_t>(tokens.size() / size);
  const int64_t windows = options.windows > 0 ? std::min(options.windows, all) : all;
  if (base && base->info().vocab_size != model.info().vocab_size)
    return invalid_argument("the models have {} and {} tokens, and only one vocabulary can be compared",
                            model.info().vocab_size, base->info().vocab_size);
  std::vector<Reader> readers;
  for (TextEngine* engine : {&model, base}) {
    if (!engine) continue;
    REDLINE_ASSIGN(Reader reader, Reader::make(*engine));
    readers.push_back(std::move(reader));
  }
  // The text is read in pieces, because a row of logits may have a megabyte.
  const auto piece = static_cast<size_t>(std::max<int64_t>(1, model.batch_limits().logit_rows));
  const int threads = std::max(1, model.info().threads);
  TextScores scores;
  std::vector<Position> positions;
  for (int64_t w = 0; w < windows; ++w) {
    const std::span<const int32_t> text = tokens.subspan(static_cast<size_t>(w) * size, size);
    std::vector<int32_t> ids(text.begin(), text.end());
    if (options.first_token >= 0) ids[0] = options.first_token;
    const size_t half = size / 2;
    for (Reader& reader : readers) {
      reader.sequence->truncate(0);
      REDLINE_TRY(reader.sequence->append(std::span(ids).first(half), {}));
    }
    for (size_t begin = half; begin + 1 < size; begin += piece) {
      const size_t count = std::min(piece, size - 1 - begin);
      for (Reader& reader : readers) REDLINE_TRY(reader.read(std::span(ids).subspan(begin, count)));
      positions.resize(count);
      for_each(static_cast<int64_t>(count), threads, [&](int64_t i) {
        positions[static_cast<size_t>(i)] =
            score(readers[0].row(i), base ? readers[1].row(i) : std::span<const float>(),
                  ids[begin + static_cast<size_t>(i) + 1]);
      });
      for (const Position& p : positions) {  // in order: the same digits for any number of threads
        if (std::isnan(p.nats)) return broken_score(model, fmt::format("window {}", w + 1));
        if (base && std::isnan(p.base_nats)) return broken_score(*base, fmt::format("window {}", w + 1));
        scores.nats.add(p.nats);
        if (!base) continue;
        scores.base_nats.add(p.base_nats);
        scores.divergence.add(p.divergence);
        scores.same_top.add(p.same_top ? 1 : 0);
        scores.probability_change.add(p.change);
        scores.divergences.push_back(p.divergence);
      }
    }
    if (!on_window()) return cancelled("interrupted after {} of {} windows", w + 1, windows);
  }
  std::sort(scores.divergences.begin(), scores.divergences.end());
  return scores;
}

namespace {

const json* find_any(const json& object, std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (const auto at = object.find(name); at != object.end()) return &*at;
  return nullptr;
}

Result<std::vector<std::string>> read_texts(const json* list, const char* what) {
  std::vector<std::string> texts;
  if (list && list->is_array())
    for (const json& text : *list) {
      if (!text.is_string()) return invalid_argument("{} holds {}, expected texts", what, text.dump());
      texts.push_back(text.get<std::string>());
    }
  return texts;
}

Result<Question> read_question(const json& object) {
  Question q;
  if (!object.is_object()) return invalid_argument("is not an object");
  const json* prompt = find_any(object, {"question", "prompt", "ctx", "query"});
  if (!prompt || !prompt->is_string()) return invalid_argument("has no text \"question\" (or prompt, ctx, query)");
  q.prompt = prompt->get<std::string>();
  const json* choices = find_any(object, {"choices", "endings"});
  std::vector<std::string> labels;
  if (choices && choices->is_object()) {
    REDLINE_ASSIGN(labels, read_texts(find_any(*choices, {"label"}), "label"));
    choices = find_any(*choices, {"text"});
  }
  REDLINE_ASSIGN(q.choices, read_texts(choices, "choices"));
  if (q.choices.size() < 2) return invalid_argument("has {} choices, at least 2 are needed", q.choices.size());
  const json* answer = find_any(object, {"answer", "label", "gold", "answerKey"});
  if (!answer) return invalid_argument("has no \"answer\" (or label, gold, answerKey)");
  int64_t index = -1;
  if (answer->is_number_integer()) {
    index = answer->get<int64_t>();
  } else if (answer->is_string()) {
    const auto text = answer->get<std::string>();
    const auto label = std::find(labels.begin(), labels.end(), text);
    const auto choice = std::find(q.choices.begin(), q.choices.end(), text);
    if (label != labels.end()) index = label - labels.begin();
    else if (choice != q.choices.end()) index = choice - q.choices.begin();
    else if (text.size() == 1 && text[0] >= 'A' && text[0] <= 'Z') index = text[0] - 'A';
    else if (text.size() == 1 && text[0] >= '0' && text[0] <= '9') index = text[0] - '0';
  }
  if (index < 0 || index >= std::ssize(q.choices))
    return invalid_argument("the answer {} is not the index of one of its {} choices", answer->dump(),
                            q.choices.size());
  q.answer = static_cast<size_t>(index);
  return q;
}

}  // namespace

Result<std::vector<Question>> read_questions(std::string_view text) {
  std::vector<json> objects;
  json whole = parse_json_or_discard<json>(text);
  if (whole.is_array()) {
    objects.assign(whole.begin(), whole.end());
  } else if (whole.is_object()) {
    objects.push_back(std::move(whole));
  } else {
    for (size_t begin = 0, line = 1; begin < text.size(); ++line) {
      const size_t end = std::min(text.find('\n', begin), text.size());
      const std::string_view row = text.substr(begin, end - begin);
      begin = end + 1;
      if (row.find_first_not_of(" \t\r") == std::string_view::npos) continue;
      json object = parse_json_or_discard<json>(row);
      if (object.is_discarded())
        return invalid_argument("line {} is not JSON: expected a list of questions, or one question per line", line);
      objects.push_back(std::move(object));
    }
  }
  if (objects.empty()) return invalid_argument("no questions");
  std::vector<Question> questions;
  questions.reserve(objects.size());
  for (const json& object : objects) {
    REDLINE_ASSIGN(Question question, read_question(object).within(fmt::format("question {}", questions.size() + 1)));
    questions.push_back(std::move(question));
  }
  return questions;
}

Result<ChoiceScores> score_choices(TextEngine& model, const std::vector<Question>& questions,
                                   const std::function<bool()>& on_question) {
  REDLINE_ASSIGN(Reader reader, Reader::make(model));
  ChoiceScores scores;
  for (const Question& q : questions) {
    const bool has_space = !q.prompt.empty() && (q.prompt.back() == ' ' || q.prompt.back() == '\n');
    REDLINE_ASSIGN(const std::vector<int32_t> prompt, model.encode(q.prompt));
    size_t best = 0, best_normalized = 0;
    double most = 0, max_normalized = 0;
    for (size_t c = 0; c < q.choices.size(); ++c) {
      const std::string answer = (has_space || q.prompt.empty() ? "" : " ") + q.choices[c];
      REDLINE_ASSIGN(std::vector<int32_t> ids, model.encode(q.prompt + answer));
      // The token before the answer is read again, for its logits.
      const size_t begin = std::max<size_t>(1, std::min(prompt.size(), ids.size() - 1));
      if (ids.size() < 2 || std::ssize(ids) > model.info().context)
        return invalid_argument("question {} with its choice {} has {} tokens, expected 2 to {} (--context)",
                                scores.chosen.size() + 1, c + 1, ids.size(), model.info().context);
      reader.sequence->truncate(0);
      if (begin > 1) REDLINE_TRY(reader.sequence->append(std::span(ids).first(begin - 1), {}));
      REDLINE_TRY(reader.read(std::span(ids).subspan(begin - 1, ids.size() - begin)));
      double total = 0;
      for (size_t i = begin; i < ids.size(); ++i)
        total += Row(reader.row(static_cast<int64_t>(i - begin))).log_probability(static_cast<size_t>(ids[i]));
      if (std::isnan(total)) return broken_score(model, fmt::format("question {}", scores.chosen.size() + 1));
      const double normalized = total / static_cast<double>(std::max<size_t>(1, q.choices[c].size()));
      if (c == 0 || total > most) best = c, most = total;
      if (c == 0 || normalized > max_normalized) best_normalized = c, max_normalized = normalized;
    }
    scores.chosen.push_back(best);
    scores.right.add(best == q.answer ? 1 : 0);
    scores.right_normalized.add(best_normalized == q.answer ? 1 : 0);
    if (!on_question())
      return cancelled("interrupted after {} of {} questions", scores.chosen.size(), questions.size());
  }
  return scores;
}

}  // namespace redline::lab
