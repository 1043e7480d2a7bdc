// The two kinds of session: on the compiled program and on the interpreter.
#pragma once

#include "llm/kv_cache.h"
#include "llm/llm_engine.h"

namespace redline {

/// Shared by both: the sequence length and the loop over steps. The engine outlives the session and modifies it only
/// while holding its mutex.
class SequenceSession : public Session {
 public:
  Result<std::span<const float>> forward(std::span<const int32_t> tokens, bool all, int64_t total_length) final;
  int64_t length() const final { return length_; }
  void truncate(int64_t length) final;

 protected:
  friend class LlmEngine;
  explicit SequenceSession(LlmEngine& engine) : engine_(engine) {}
  /// Reserves space for `length` tokens.
  virtual Status grow(int64_t length) = 0;
  /// Drops everything beyond length_.
  virtual void forget() = 0;

  LlmEngine& engine_;
  int64_t length_ = 0;

 private:
  std::vector<float> logits_;  // results of forward
};

class CompiledSession final : public SequenceSession {
 public:
  explicit CompiledSession(LlmEngine& engine) : SequenceSession(engine), pages_(*engine.cache_) {}
  ~CompiledSession() override { truncate(0); }
  const PageTable& pages() const { return pages_; }

 private:
  Status grow(int64_t length) override { return pages_.grow(length); }
  void forget() override { pages_.shrink(length_); }
  PageTable pages_;
};

class InterpretedSession final : public SequenceSession {
 public:
  explicit InterpretedSession(LlmEngine& engine) : SequenceSession(engine) {}
  ReferenceCache& cache() { return cache_; }

 private:
  Status grow(int64_t) override { return {}; }
  void forget() override { cache_.truncate(length_); }
  ReferenceCache cache_;
};

}  // namespace redline
