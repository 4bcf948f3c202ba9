// Global operator new of a test program that counts, and fails when it is told to. Programs that
// use it list heap.cc among their sources; sanitizers bring their own, so they are not built with
// them.
#ifndef KURUMA_TESTS_SUPPORT_HEAP_H_
#define KURUMA_TESTS_SUPPORT_HEAP_H_

#include <cstdint>

namespace kuruma::testing {

// Calls of operator new so far, by all threads.
int64_t Allocations();

// While it lives, one allocation fails with std::bad_alloc: number `n` (from 1) of this thread, or
// of all others together. One at a time.
class FailingAllocation {
 public:
  enum class Threads { kThis, kOthers };

  FailingAllocation(int64_t n, Threads threads);
  ~FailingAllocation();
  FailingAllocation(const FailingAllocation&) = delete;
  FailingAllocation& operator=(const FailingAllocation&) = delete;

  // False: there were fewer than n.
  bool happened() const;
};

}  // namespace kuruma::testing

#endif  // KURUMA_TESTS_SUPPORT_HEAP_H_
