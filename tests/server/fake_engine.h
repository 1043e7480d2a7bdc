// An engine whose text is given: for what the bundled model does not say, and for failures.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "base/error.h"
#include "chat/chat_output.h"
#include "llm/output_constraints.h"
#include "redline/fill_in.h"
#include "redline/text.h"

namespace redline::testing {

/// Every request gives `script`, in pieces of `piece_bytes`, before submit() returns. A token is a byte; kControl has
/// no text.
class FakeEngine final : public TextEngine, public FillInVocabulary {
 public:
  explicit FakeEngine(std::string script, std::string chat_template = "") : script_(std::move(script)) {
    info_.path = "fake";
    info_.architecture = "fake";
    info_.context = 1000;
    info_.vocab_size = 256;
    info_.max_token_bytes = 1;
    info_.has_chat_template = !chat_template.empty();
    info_.has_chat_markers = info_.has_chat_template;
    info_.has_tool_template = chat_template.find("tools") != std::string::npos;
    info_.chat_template = std::move(chat_template);
  }
  static constexpr int32_t kControl = 1;
  size_t piece_bytes = 3;
  int64_t weight_bytes = 0;
  Status failure;  ///< of wait()
  FinishReason reason = FinishReason::kStop;
  EngineStats now;
  void set_context(int64_t tokens) { info_.context = tokens; }
  GenerateRequest last;
  std::function<Status(const std::string&)> on_load, on_replace, on_unload;  ///< of adapters
  /// Not null: requests give `script` again and again until they are cancelled. The number of those that exist.
  std::shared_ptr<std::atomic<int>> num_endless;

  const ModelInfo& info() const override { return info_; }
  const SamplingOptions& default_sampling() const override { return sampling_; }
  using TextEngine::encode;
  std::map<std::string, int32_t, std::less<>> markers;  ///< texts that are one token
  FillInTokens fill_in;                                 ///< as a file names them
  const FillInTokens& fill_in_tokens() const override { return fill_in; }
  Result<std::vector<int32_t>> encode(std::string_view text, bool, bool, const EncodeLimits& limits) const override {
    if (const auto marker = markers.find(text); marker != markers.end()) return std::vector<int32_t>{marker->second};
    if (std::ssize(text) > limits.max_tokens) return invalid_argument("more than {} tokens", limits.max_tokens);
    return std::vector<int32_t>(text.begin(), text.end());
  }
  std::string token_bytes(int32_t token, bool special) const override {
    return token == kControl && !special ? "" : std::string(1, static_cast<char>(token));
  }
  Result<std::string> decode(std::span<const int32_t> tokens, bool special) const override {
    std::string text(tokens.begin(), tokens.end());
    if (!special) std::erase(text, static_cast<char>(kControl));
    return text;
  }
  Result<std::string> render_chat(const ChatInput& input) const override {
    return std::string(input.messages_json) + std::string(info_.has_tool_template ? input.tools_json : "") +
           std::string(input.variables_json) + std::string(input.thinking);
  }
  std::unique_ptr<ChatReader> chat_reader(std::string_view prompt, std::string_view tools_json,
                                          OutputConstraint::Kind constraint) const override {
    return std::make_unique<ChatOutputParser>(
        ChatOutputOptions{info_.chat_template, prompt, tools_json, content_kind(constraint)});
  }
  std::vector<std::string> unenforced;  ///< of every constraint
  Result<std::vector<std::string>> unenforced_keywords(const OutputConstraint&, std::string_view) override {
    return unenforced;
  }
  Result<std::unique_ptr<Sequence>> new_sequence(const AdapterWeights&) override { return unsupported("fake"); }
  Status load_adapter(const std::string& name, const std::string&) override {
    return on_load ? on_load(name) : Status();
  }
  Status replace_adapter(const std::string& name, const std::string&) override {
    return on_replace ? on_replace(name) : unsupported("fake");
  }
  Status unload_adapter(const std::string& name) override { return on_unload ? on_unload(name) : unsupported("fake"); }
  Status run_batch(std::span<BatchEntry>) override { return unsupported("fake"); }
  BatchLimits batch_limits() const override { return {.sequences = 4}; }
  int64_t free_cache_tokens() const override { return 0; }
  EngineStats stats() const override {
    EngineStats stats = now;
    stats.generated_tokens = num_requests_.load();
    return stats;
  }
  Result<GenerateResult> generate(const GenerateRequest&, const std::function<bool(const TextPiece&)>&) override {
    return unsupported("fake");
  }
  MemoryReport memory() const override { return {.packed_weights = weight_bytes}; }

  Result<std::shared_ptr<Generation>> submit(const GenerateRequest& request,
                                             std::function<bool(const TextPiece&)> on_piece) override {
    last = request;
    ++num_requests_;
    if (num_endless) return std::shared_ptr<Generation>(std::make_shared<Endless>(script_, on_piece, num_endless));
    GenerateResult result;
    result.reason = reason;
    result.prompt_tokens = std::ssize(request.prompt);
    for (size_t begin = 0; begin < script_.size(); begin += piece_bytes) {
      const std::string text = script_.substr(begin, piece_bytes);
      result.text += text;
      result.tokens.insert(result.tokens.end(), text.begin(), text.end());
      if (!on_piece(TextPiece{text, text[0], 0, {}})) {
        result.reason = FinishReason::kCancelled;
        break;
      }
    }
    on_piece = nullptr;
    if (!failure.ok()) return std::shared_ptr<Generation>(std::make_shared<Ended>(failure));
    return std::shared_ptr<Generation>(std::make_shared<Ended>(std::move(result)));
  }

 private:
  class Ended final : public Generation {
   public:
    explicit Ended(Result<GenerateResult> result) : result_(std::move(result)) {}
    void cancel() override {}
    bool is_done() const override { return true; }
    Result<GenerateResult> wait() override { return result_; }

   private:
    Result<GenerateResult> result_;
  };
  class Endless final : public Generation {
   public:
    Endless(const std::string& script, std::function<bool(const TextPiece&)> on_piece,
            std::shared_ptr<std::atomic<int>> count)
        : count_(std::move(count)), thread_([this, script, on_piece = std::move(on_piece)] {
            while (!is_cancelled_ && on_piece(TextPiece{script, script[0], 0, {}}))
              std::this_thread::sleep_for(std::chrono::milliseconds(1));
            is_done_ = true;
          }) {
      ++*count_;
    }
    ~Endless() override {
      is_cancelled_ = true;
      thread_.join();
      --*count_;
    }
    void cancel() override { is_cancelled_ = true; }
    bool is_done() const override { return is_done_; }
    Result<GenerateResult> wait() override {
      while (!is_done_) std::this_thread::yield();
      GenerateResult result;
      result.reason = FinishReason::kCancelled;
      return result;
    }

   private:
    const std::shared_ptr<std::atomic<int>> count_;
    std::atomic<bool> is_cancelled_ = false, is_done_ = false;
    std::thread thread_;
  };
  std::string script_;
  std::atomic<int64_t> num_requests_ = 0;
  ModelInfo info_;
  SamplingOptions sampling_;
};

}  // namespace redline::testing
