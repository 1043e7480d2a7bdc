// Cooperative threads on stacks of their own: the warps of the emulated device.
#pragma once

#include <ucontext.h>

#include <cstdint>
#include <functional>
#include <memory>

namespace redline::emu {

/// Runs a function that can pause. Resumed and paused on one thread at a time.
class Fiber {
 public:
  Fiber();
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// Prepares `body` to run from its beginning; the fiber must not be in the middle of another.
  void start(std::function<void()> body);
  /// Runs until pause() or the end. True: it has ended.
  bool resume();
  /// Called by the body: returns to resume().
  void pause();
  bool has_ended() const { return ended_; }

 private:
  static void entry(unsigned high, unsigned low);
  void switch_in();
  void switch_out(bool last);

  static constexpr size_t kStackBytes = size_t{256} << 10;
  uint8_t* stack_ = nullptr;
  ucontext_t own_ = {}, caller_ = {};
  std::function<void()> body_;
  bool ended_ = true;
  // State of the sanitizers, which track stacks.
  void *own_fake_ = nullptr, *caller_fake_ = nullptr, *own_thread_ = nullptr, *caller_thread_ = nullptr;
  const void* caller_stack_ = nullptr;
  size_t caller_bytes_ = 0;
};

}  // namespace redline::emu
