// Cooperative threads with stacks of their own: the warps of the emulated device.
#pragma once

#include <ucontext.h>

#include <cstdint>
#include <functional>
#include <memory>

namespace redline::emu {

/// Runs a function that can pause. One thread at a time resumes and pauses it.
class Fiber {
 public:
  Fiber();
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// Prepares `body` to run from its beginning; the fiber must not be inside another body.
  void start(std::function<void()> body);
  /// Runs until pause() or the end of the body. Returns true if the body has ended.
  bool resume();
  /// Returns control to resume(). Called by the body.
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
  // State for the sanitizers, which track stacks.
  void *own_fake_ = nullptr, *caller_fake_ = nullptr, *own_thread_ = nullptr, *caller_thread_ = nullptr;
  const void* caller_stack_ = nullptr;
  size_t caller_bytes_ = 0;
};

}  // namespace redline::emu
