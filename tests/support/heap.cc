#include "tests/support/heap.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace kuruma::testing {
namespace {

std::atomic<int64_t> allocations{0};
std::atomic<int64_t> until_failure{0};  // counts down; fails as it becomes 0, never at or below 0
std::atomic<bool> others_fail{false};
thread_local bool holds_failure = false;  // this thread made the FailingAllocation

bool Fails() {
  if (until_failure.load(std::memory_order_relaxed) <= 0) return false;
  if (holds_failure == others_fail.load(std::memory_order_relaxed)) return false;
  return until_failure.fetch_sub(1) == 1;
}

}  // namespace

int64_t Allocations() { return allocations; }

FailingAllocation::FailingAllocation(int64_t n, Threads threads) {
  holds_failure = true;
  others_fail = threads == Threads::kOthers;
  until_failure = n;
}

FailingAllocation::~FailingAllocation() {
  until_failure = 0;
  holds_failure = false;
}

bool FailingAllocation::happened() const { return until_failure <= 0; }

}  // namespace kuruma::testing

// The other forms of new and delete call these.
void* operator new(size_t size) {
  kuruma::testing::allocations.fetch_add(1, std::memory_order_relaxed);
  if (!kuruma::testing::Fails()) {
    if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  }
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
