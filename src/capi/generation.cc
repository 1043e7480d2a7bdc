// The functions that generate text: prompts that run together, their pieces as callbacks or as a queue, and their
// results.
#include <chrono>
#include <condition_variable>
#include <deque>
#include <optional>

#include "capi/generate_options.h"

namespace redline::capi {
namespace {

struct Piece {
  size_t index = 0;
  std::string text;
  int32_t token = -1;
  float logprob = 0;
  std::vector<redline_token_logprob> top;
  bool is_last = false;

  redline_piece view() const {
    return {sizeof(redline_piece), index, text.c_str(), text.size(), token, logprob, top.data(), top.size(),
            is_last ? 1 : 0};
  }
};

/// The pieces and ends of a generation's prompts, which the engine's threads write and the caller reads. It outlives
/// the handle while a callback runs.
class Inbox {
 public:
  Inbox(const void* engine, size_t prompts, redline_on_piece on_piece, void* user_data, bool keeps_pieces)
      : engine_(engine), on_piece_(on_piece), user_data_(user_data), keeps_pieces_(keeps_pieces), has_ended_(prompts) {}

  /// Hands a piece to the callback or puts it in the queue. Returns false if the caller wants no more pieces of its
  /// prompt.
  bool push(Piece piece) {
    if (on_piece_ != nullptr) return call(piece);
    if (!keeps_pieces_) return true;
    {
      const std::lock_guard lock(mutex_);
      pieces_.push_back(std::move(piece));
    }
    changed_.notify_all();
    return true;
  }
  void end(size_t index) noexcept {
    Piece last;
    last.index = index;
    last.is_last = true;
    // The engine ends requests on its own threads. An end on the submitting thread means that it has refused the
    // request.
    const bool is_refused = submitter_.load() == std::this_thread::get_id();
    if (on_piece_ != nullptr && !is_refused) call(last);
    const std::lock_guard lock(mutex_);
    has_ended_[index] = true;
    ++num_ended_;
    changed_.notify_all();
  }
  /// Sets the thread that is submitting a request; no thread when it is done.
  void set_submitter(std::thread::id thread) { submitter_.store(thread); }
  /// Closes the inbox. No callback begins after that; one that is running completes.
  void close() { is_closed_.store(true, std::memory_order_relaxed); }

  bool has_callback() const { return on_piece_ != nullptr; }
  /// Waits until all prompts have ended. A negative timeout is no limit. Returns false if they have not ended within
  /// it.
  bool wait(double timeout_ms) {
    return wait_for(timeout_ms, [&] { return num_ended_ == has_ended_.size(); });
  }
  void wait_for_prompt(size_t index) {
    wait_for(-1, [&] { return has_ended_[index]; });
  }
  int32_t next(double timeout_ms, Piece& piece) {
    const auto has_news = [&] {
      return !pieces_.empty() || num_reported_ < num_ended_ || num_reported_ == has_ended_.size();
    };
    std::unique_lock lock(mutex_);
    if (!wait_locked(lock, timeout_ms, has_news)) return REDLINE_NEXT_TIMEOUT;
    if (!pieces_.empty()) {
      piece = std::move(pieces_.front());
      pieces_.pop_front();
    } else if (num_reported_ < num_ended_) {
      // All pieces have been read, which includes all pieces of the prompts that have ended.
      is_reported_.resize(has_ended_.size());
      size_t index = 0;
      while (!has_ended_[index] || is_reported_[index]) ++index;
      is_reported_[index] = true;
      ++num_reported_;
      piece = Piece();
      piece.index = index;
      piece.is_last = true;
    } else {
      return REDLINE_NEXT_END;
    }
    return REDLINE_NEXT_PIECE;
  }

 private:
  bool call(const Piece& piece) noexcept {
    const std::lock_guard one_at_a_time(calls_);
    if (is_closed_.load(std::memory_order_relaxed)) return false;
    const CallbackScope scope(engine_);
    const redline_piece view = piece.view();
    return on_piece_(&view, user_data_) == 0;
  }
  template <class P>
  bool wait_for(double timeout_ms, P is_met) {
    std::unique_lock lock(mutex_);
    return wait_locked(lock, timeout_ms, is_met);
  }
  template <class P>
  bool wait_locked(std::unique_lock<std::mutex>& lock, double timeout_ms, P is_met) {
    if (timeout_ms >= 0)
      return changed_.wait_for(lock, std::chrono::duration<double, std::milli>(std::min(timeout_ms, 1e12)), is_met);
    changed_.wait(lock, is_met);
    return true;
  }

  const void* engine_;
  const redline_on_piece on_piece_;
  void* const user_data_;
  const bool keeps_pieces_;
  std::atomic<bool> is_closed_{false};
  std::atomic<std::thread::id> submitter_{};
  std::recursive_mutex calls_;  ///< serializes callbacks; recursive because a callback may end another prompt

  std::mutex mutex_;  ///< guards the members below
  std::condition_variable changed_;
  std::deque<Piece> pieces_;
  std::vector<bool> has_ended_, is_reported_;
  size_t num_ended_ = 0, num_reported_ = 0;
};

/// Reports the end of a prompt when it is destroyed. It is held by the callback, which the engine drops when a request
/// ends, just before the result is there.
class EndSignal {
 public:
  EndSignal(std::shared_ptr<Inbox> inbox, size_t index) : inbox_(std::move(inbox)), index_(index) {}
  ~EndSignal() { inbox_->end(index_); }
  EndSignal(const EndSignal&) = delete;
  EndSignal& operator=(const EndSignal&) = delete;

 private:
  const std::shared_ptr<Inbox> inbox_;
  const size_t index_;
};

/// The log probabilities of the tokens of one prompt. The engine writes them until the prompt has ended.
struct Logprobs {
  std::vector<float> chosen;
  std::vector<redline_token_logprob> top;
  std::vector<size_t> top_offsets = {0};
};

struct RunningPrompt {
  std::shared_ptr<Generation> generation;
  std::shared_ptr<Logprobs> logprobs;
  uint64_t seed = 0;
  std::optional<Result<GenerateResult>> result;  ///< result, once it has been taken from `generation`
};

}  // namespace
}  // namespace redline::capi

using namespace redline;
using namespace redline::capi;

struct redline_generation {
  ~redline_generation() {
    if (!process.is_current()) {
      new (std::nothrow)
          std::vector<RunningPrompt>(std::move(prompts));  // never deleted: their engine has no threads here
      drop(std::move(model), process);
      return;
    }
    for (const RunningPrompt& prompt : prompts) prompt.generation->cancel();
    if (engine_of_callback() == model->engine.get()) {
      inbox->close();  // wait() would never return
    } else {
      for (const RunningPrompt& prompt : prompts)
        if (!prompt.result) (void)prompt.generation->wait();
    }
    prompts.clear();
    drop(std::move(model), process);
  }

  Status check_index(size_t index) const {
    if (index < prompts.size()) return {};
    return invalid_argument("index {}: the generation has {} prompts", index, prompts.size());
  }
  /// Returns an error inside a callback of the same engine, where a wait would never return.
  Status check_can_wait() const {
    if (engine_of_callback() != model->engine.get()) return {};
    return invalid_argument("a callback of the same model must not wait for a generation");
  }

  const Process process = {};
  std::shared_ptr<TextContents> model;
  std::shared_ptr<Inbox> inbox;
  std::vector<RunningPrompt> prompts;
  std::mutex results;  ///< guards RunningPrompt::result
  Piece current;       ///< piece that redline_generation_next returned last
};

namespace {

/// Returns the error with the index of its prompt, if there are several prompts.
Status placed(Status status, size_t index, size_t num_prompts) {
  return num_prompts == 1 ? status : std::move(status).within(fmt::format("prompts[{}]", index));
}

/// Reads all requests, so that an error is found before the first one runs. `Given`: redline_prompt or a pointer to
/// redline_prompt_spans.
template <class Given>
Result<std::vector<GenerateRequest>> read_requests(const TextContents& model, const Given* prompts, size_t num_prompts,
                                                   const redline_generate_options* const* options, size_t num_options) {
  if (num_prompts > 0) REDLINE_TRY(required(static_cast<const void*>(prompts), "prompts"));
  if (num_options > 0) REDLINE_TRY(required(static_cast<const void*>(options), "options"));
  if (num_options > 1 && num_options != num_prompts)
    return invalid_argument("{} options for {} prompts; give none, one for all, or one for each", num_options,
                            num_prompts);
  std::vector<GenerateRequest> requests;
  requests.reserve(num_prompts);
  for (size_t i = 0; i < num_prompts; ++i) {
    const redline_generate_options* given = num_options == 0 ? nullptr : options[num_options == 1 ? 0 : i];
    Result<GenerateRequest> request = request_of(prompts[i], given, model);
    if (!request.ok()) return placed(std::move(request).status(), i, num_prompts);
    requests.push_back(std::move(request).value());
  }
  return requests;
}

std::function<bool(const TextPiece&)> piece_writer(const std::shared_ptr<Inbox>& inbox, size_t index,
                                                   std::shared_ptr<Logprobs> logprobs) {
  auto end = std::make_shared<EndSignal>(inbox, index);
  return [inbox, index, logprobs = std::move(logprobs), end = std::move(end)](const TextPiece& piece) {
    if (piece.text.empty() && piece.token < 0) return true;  // an empty piece comes between the steps of a long prompt
    Piece out;
    out.index = index;
    out.text = piece.text;
    out.token = piece.token;
    out.logprob = piece.logprob;
    out.top.reserve(piece.top.size());
    for (const TokenLogprob& t : piece.top) out.top.push_back({t.id, t.logprob});
    if (logprobs && piece.token >= 0) {
      logprobs->chosen.push_back(piece.logprob);
      logprobs->top.insert(logprobs->top.end(), out.top.begin(), out.top.end());
      logprobs->top_offsets.push_back(logprobs->top.size());
    }
    return inbox->push(std::move(out));
  };
}

template <class Given>
Result<std::unique_ptr<redline_generation>> submit(redline_model* model, const Given* prompts, size_t num_prompts,
                                                   const redline_generate_options* const* options, size_t num_options,
                                                   redline_on_piece on_piece, void* user_data, bool keeps_pieces) {
  REDLINE_TRY(usable(model, "model"));
  TextEngine& engine = *model->shared->engine;
  REDLINE_ASSIGN(const std::vector<GenerateRequest> requests,
                 read_requests(*model->shared, prompts, num_prompts, options, num_options));
  auto generation = std::make_unique<redline_generation>();
  generation->model = model->shared;
  generation->inbox = std::make_shared<Inbox>(&engine, num_prompts, on_piece, user_data, keeps_pieces);
  generation->prompts.reserve(num_prompts);
  for (size_t i = 0; i < num_prompts; ++i) {
    RunningPrompt prompt;
    prompt.seed = requests[i].sampling.seed;
    if (requests[i].num_logprobs >= 0) prompt.logprobs = std::make_shared<Logprobs>();
    generation->inbox->set_submitter(std::this_thread::get_id());
    auto submitted = engine.submit(requests[i], piece_writer(generation->inbox, i, prompt.logprobs));
    generation->inbox->set_submitter({});
    if (!submitted.ok()) {
      generation->inbox->close();
      return placed(std::move(submitted).status(), i, num_prompts);
    }
    prompt.generation = std::move(submitted).value();
    generation->prompts.push_back(std::move(prompt));
  }
  return generation;
}

/// Waits for the result of a prompt and keeps it, because the engine gives it only once.
const Result<GenerateResult>& result_of(redline_generation& generation, size_t index) {
  generation.inbox->wait_for_prompt(index);
  const std::lock_guard lock(generation.results);
  RunningPrompt& prompt = generation.prompts[index];
  if (!prompt.result) prompt.result.emplace(prompt.generation->wait());
  return *prompt.result;
}

/// Does what redline_submit does, or redline_generate if `waits`.
template <class Given>
redline_code begin(redline_model* model, const Given* prompts, size_t num_prompts,
                   const redline_generate_options* const* options, size_t num_options, redline_on_piece on_piece,
                   void* user_data, bool waits, redline_generation** generation, redline_error** error) {
  return guarded(error, [&]() -> Status {
    REDLINE_TRY(required(static_cast<void*>(generation), "generation"));
    *generation = nullptr;
    REDLINE_ASSIGN(std::unique_ptr<redline_generation> submitted,
                   submit(model, prompts, num_prompts, options, num_options, on_piece, user_data, !waits));
    if (waits) {
      REDLINE_TRY(submitted->check_can_wait());
      submitted->inbox->wait(-1);
    }
    *generation = submitted.release();
    return {};
  });
}

}  // namespace

void redline_generate_options_init(redline_generate_options* options, size_t struct_size, redline_model* model) {
  try {
    init_struct(options, struct_size, default_generate_options(model != nullptr ? model->shared.get() : nullptr));
  } catch (...) {  // there is no memory for the model's lists, so the options have none
    init_struct(options, struct_size, redline_generate_options());
  }
}

const char* redline_finish_reason_name(redline_finish_reason reason) {
  if (reason < 0 || reason >= static_cast<int32_t>(kNumFinishReasons)) return "none";
  // The name ends with a zero byte, because it is a literal.
  return finish_reason_name(static_cast<FinishReason>(reason)).data();
}

redline_code redline_submit(redline_model* model, const redline_prompt* prompts, size_t num_prompts,
                            const redline_generate_options* const* options, size_t num_options,
                            redline_on_piece on_piece, void* user_data, redline_generation** generation,
                            redline_error** error) {
  return begin(model, prompts, num_prompts, options, num_options, on_piece, user_data, false, generation, error);
}

redline_code redline_generate(redline_model* model, const redline_prompt* prompts, size_t num_prompts,
                              const redline_generate_options* const* options, size_t num_options,
                              redline_on_piece on_piece, void* user_data, redline_generation** generation,
                              redline_error** error) {
  return begin(model, prompts, num_prompts, options, num_options, on_piece, user_data, true, generation, error);
}

redline_code redline_submit_spans(redline_model* model, const redline_prompt_spans* const* prompts, size_t num_prompts,
                                  const redline_generate_options* const* options, size_t num_options,
                                  redline_on_piece on_piece, void* user_data, redline_generation** generation,
                                  redline_error** error) {
  return begin(model, prompts, num_prompts, options, num_options, on_piece, user_data, false, generation, error);
}

redline_code redline_generate_spans(redline_model* model, const redline_prompt_spans* const* prompts,
                                    size_t num_prompts, const redline_generate_options* const* options,
                                    size_t num_options, redline_on_piece on_piece, void* user_data,
                                    redline_generation** generation, redline_error** error) {
  return begin(model, prompts, num_prompts, options, num_options, on_piece, user_data, true, generation, error);
}

redline_code redline_generation_next(redline_generation* generation, double timeout_ms, int32_t* what,
                                     redline_piece* piece, redline_error** error) {
  return guarded(error, [&]() -> Status {
    REDLINE_TRY(required(what, "what"));
    *what = 0;
    REDLINE_TRY(usable(generation, "generation"));
    REDLINE_TRY(write_struct(piece, redline_piece(), "redline_piece"));
    if (generation->inbox->has_callback())
      return invalid_argument("the generation has a callback, which gets its pieces; submit without one to read them");
    if (timeout_ms != 0) REDLINE_TRY(generation->check_can_wait());
    *what = generation->inbox->next(timeout_ms, generation->current);
    return *what == REDLINE_NEXT_PIECE ? write_struct(piece, generation->current.view(), "redline_piece") : Status();
  });
}

redline_code redline_generation_wait(redline_generation* generation, double timeout_ms, int32_t* is_done,
                                     redline_error** error) {
  return guarded(error, [&]() -> Status {
    if (is_done != nullptr) *is_done = 0;
    REDLINE_TRY(usable(generation, "generation"));
    if (timeout_ms != 0) REDLINE_TRY(generation->check_can_wait());
    const bool has_ended = generation->inbox->wait(timeout_ms);
    if (is_done != nullptr) *is_done = has_ended ? 1 : 0;
    return {};
  });
}

void redline_generation_cancel(redline_generation* generation) {
  if (!usable(generation, "generation").ok()) return;
  for (const RunningPrompt& prompt : generation->prompts) prompt.generation->cancel();
}
void redline_generation_cancel_prompt(redline_generation* generation, size_t index) {
  if (usable(generation, "generation").ok() && index < generation->prompts.size())
    generation->prompts[index].generation->cancel();
}
size_t redline_generation_count(const redline_generation* generation) {
  return generation != nullptr ? generation->prompts.size() : 0;
}
void redline_generation_release(redline_generation* generation) { delete generation; }

redline_code redline_generation_completion(redline_generation* generation, size_t index, redline_completion* completion,
                                           redline_error** error) {
  return guarded(error, [&]() -> Status {
    REDLINE_TRY(usable(generation, "generation"));
    redline_completion out = {};
    out.finish_reason = REDLINE_FINISH_NONE;
    REDLINE_TRY(write_struct(completion, out, "redline_completion"));
    REDLINE_TRY(generation->check_index(index));
    REDLINE_TRY(generation->check_can_wait());
    const Result<GenerateResult>& result = result_of(*generation, index);
    if (!result.ok()) return placed(result.status(), index, generation->prompts.size());
    const GenerateResult& r = result.value();
    const RunningPrompt& prompt = generation->prompts[index];
    out.text = r.text.c_str();
    out.length = r.text.size();
    out.tokens = r.tokens.data();
    out.num_tokens = r.tokens.size();
    out.finish_reason = static_cast<redline_finish_reason>(r.reason);
    out.seed = prompt.seed;
    out.prompt_tokens = r.prompt_tokens;
    out.cached_tokens = r.cached_tokens;
    out.first_token_ms = r.first_token_ms;
    out.prefill_ms = r.prefill_ms;
    out.decode_ms = r.decode_ms;
    out.decode_tokens = r.decode_tokens;
    out.drafted_tokens = r.drafted_tokens;
    out.accepted_tokens = r.accepted_tokens;
    if (prompt.logprobs) {
      out.logprobs = prompt.logprobs->chosen.data();
      out.top = prompt.logprobs->top.data();
      out.top_offsets = prompt.logprobs->top_offsets.data();
    }
    return write_struct(completion, out, "redline_completion");
  });
}
