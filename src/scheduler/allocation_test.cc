// The scheduler allocates nothing while sequences decode: a step that has to ask the system for
// memory is late now and then.
#include <gtest/gtest.h>

#include "scheduler/decode_load_test_util.h"
#include "tests/support/heap.h"

namespace kuruma::scheduler {
namespace {

TEST(SchedulerAllocations, OnlyVectorsThatDouble) {
  for (const bool has_slot : {false, true}) {
    DecodeLoad load({.sequences = 32, .spread = 1, .waiting = 20, .has_slot = has_slot});
    const int64_t before = testing::Allocations();
    for (int i = 0; i < 3000; ++i) load.Step();
    // Lengths grow about sixfold: tokens, keys and blocks of a sequence double three times each.
    EXPECT_LE(testing::Allocations() - before, 32 * 3 * 3 + 8);
    EXPECT_EQ(load.scheduler().counts().waiting, 20);
  }
}

}  // namespace
}  // namespace kuruma::scheduler
