#include "device/host.h"

#include <gtest/gtest.h>

#include <thread>

namespace kuruma::device {
namespace {

TEST(Host, SaysWhatThereIs) {
  EXPECT_GE(AvailableProcessors(), 1);
  EXPECT_LE(AvailableProcessors(), static_cast<int>(std::thread::hardware_concurrency()));
  const AvailableMemory memory = FindAvailableMemory();
  EXPECT_GT(memory.bytes, 0);
  EXPECT_FALSE(memory.limited_by.empty());
  EXPECT_GT(PeakResidentBytes(), 0);
}

}  // namespace
}  // namespace kuruma::device
