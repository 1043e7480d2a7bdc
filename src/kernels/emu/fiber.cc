#include "kernels/emu/fiber.h"

#include <sys/mman.h>

#include "base/error.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace redline::emu {

Fiber::Fiber() {
  void* memory =
      ::mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  REDLINE_CHECK(memory != MAP_FAILED);
  stack_ = static_cast<uint8_t*>(memory);
#if defined(__SANITIZE_THREAD__)
  own_thread_ = __tsan_create_fiber(0);
#endif
}

Fiber::~Fiber() {
#if defined(__SANITIZE_THREAD__)
  __tsan_destroy_fiber(own_thread_);
#endif
  ::munmap(stack_, kStackBytes);
}

void Fiber::start(std::function<void()> body) {
  body_ = std::move(body);
  ended_ = false;
#if defined(__SANITIZE_ADDRESS__)
  ASAN_UNPOISON_MEMORY_REGION(stack_, kStackBytes);  // a body that was abandoned has left marks
#endif
  ::getcontext(&own_);
  own_.uc_stack.ss_sp = stack_;
  own_.uc_stack.ss_size = kStackBytes;
  own_.uc_link = nullptr;
  own_fake_ = nullptr;
  const auto self = reinterpret_cast<uintptr_t>(this);
  // makecontext passes ints.
  ::makecontext(&own_, reinterpret_cast<void (*)()>(&Fiber::entry), 2, static_cast<unsigned>(self >> 32),
                static_cast<unsigned>(self));
}

bool Fiber::resume() {
  switch_in();
  return ended_;
}

void Fiber::pause() { switch_out(false); }

void Fiber::switch_in() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&caller_fake_, stack_, kStackBytes);
#elif defined(__SANITIZE_THREAD__)
  caller_thread_ = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(own_thread_, 0);
#endif
  ::swapcontext(&caller_, &own_);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(caller_fake_, nullptr, nullptr);
#endif
}

void Fiber::switch_out([[maybe_unused]] bool last) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(last ? nullptr : &own_fake_, caller_stack_, caller_bytes_);
#elif defined(__SANITIZE_THREAD__)
  __tsan_switch_to_fiber(caller_thread_, 0);
#endif
  ::swapcontext(&own_, &caller_);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(own_fake_, &caller_stack_, &caller_bytes_);
#endif
}

void Fiber::entry(unsigned high, unsigned low) {
  auto* self =
      reinterpret_cast<Fiber*>((static_cast<uintptr_t>(high) << 32) | low);  // NOLINT(performance-no-int-to-ptr)
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &self->caller_stack_, &self->caller_bytes_);
#endif
  self->body_();
  self->ended_ = true;
  self->switch_out(true);  // never returns: start() makes a new context
}

}  // namespace redline::emu
