// The two kinds of session: over the compiled program, and over the plain graph.
#pragma once

#include "llm/kv_cache.h"
#include "llm/llm_engine.h"

namespace redline {

/// What both share: the length of the sequence and the checks of what is to be appended. Holds the engine's mutex while
/// it works; the engine outlives it.
class SequenceSession : public Session {
 public:
  Result<std::span<const float>> forward(std::span<const int32_t> tokens, bool all, int64_t total_length) final;
  int64_t length() const final { return length_; }
  void truncate(int64_t length) final;

 protected:
  explicit SequenceSession(LlmEngine& engine) : engine_(engine) {}
  /// Appends tokens that are known to be good; length_ grows as they are done. Fills logits_.
  virtual Status append(std::span<const int32_t> tokens, bool all, int64_t total_length) = 0;
  /// Forgets what lies beyond length_.
  virtual void forget() = 0;

  LlmEngine& engine_;
  int64_t length_ = 0;
  std::vector<float> logits_;
};

class CompiledSession final : public SequenceSession {
 public:
  explicit CompiledSession(LlmEngine& engine) : SequenceSession(engine), pages_(*engine.cache_) {}
  ~CompiledSession() override { truncate(0); }

 private:
  Status append(std::span<const int32_t> tokens, bool all, int64_t total_length) override;
  void forget() override { pages_.shrink(length_); }
  PageTable pages_;
};

class InterpretedSession final : public SequenceSession {
 public:
  explicit InterpretedSession(LlmEngine& engine) : SequenceSession(engine) {}

 private:
  Status append(std::span<const int32_t> tokens, bool all, int64_t total_length) override;
  void forget() override { cache_.truncate(length_); }
  ReferenceCache cache_;
};

}  // namespace redline
