#include "base/late_failure.h"

#include <atomic>

namespace redline {
namespace {
std::atomic<bool> g_failed = false;
}  // namespace

void note_late_failure() { g_failed = true; }
bool has_late_failure() { return g_failed; }

}  // namespace redline
