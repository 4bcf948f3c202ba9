#include <gtest/gtest.h>

#include <atomic>
#include <numeric>
#include <vector>

#include "base/philox.h"
#include "base/status.h"
#include "base/thread_pool.h"
#include "base/view.h"

namespace kuruma {
namespace {

TEST(Philox, MatchesPublishedAnswers) {
  const std::array<uint32_t, 4> zeros{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
  EXPECT_EQ(Philox4x32({0, 0, 0, 0}, {0, 0}), zeros);
  const std::array<uint32_t, 4> pi{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1};
  EXPECT_EQ(Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            pi);
}

Result<int> Half(int x) {
  if (x % 2 != 0) return InvalidArgument("odd");
  return x / 2;
}

Status HalveTwice(int x, int* out) {
  KURUMA_ASSIGN_OR_RETURN(const int once, Half(x));
  KURUMA_ASSIGN_OR_RETURN(*out, Half(once));
  return Status();
}

TEST(Result, PropagatesTheFirstFailure) {
  int out = 0;
  EXPECT_TRUE(HalveTwice(12, &out).ok());
  EXPECT_EQ(out, 3);
  EXPECT_EQ(HalveTwice(6, &out).code(), StatusCode::kInvalidArgument);
}

TEST(ThreadPool, CoversEveryIndexOnce) {
  for (int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    for (int64_t n : {0, 1, 2, 3, 7, 1000}) {
      std::vector<std::atomic<int>> hits(n);
      pool.ParallelFor(n, 1, [&](int64_t begin, int64_t end, int worker) {
        ASSERT_LT(worker, threads);
        for (int64_t i = begin; i < end; ++i) hits[i].fetch_add(1);
      });
      for (const auto& hit : hits) EXPECT_EQ(hit.load(), 1);
    }
  }
}

TEST(ThreadPool, ManyShortLoopsSeeEachOthersWrites) {
  ThreadPool pool(2);
  std::vector<int64_t> values(64, 0);
  for (int round = 0; round < 20000; ++round) {
    pool.ParallelFor(64, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) values[i] += i;
    });
  }
  const int64_t sum = std::accumulate(values.begin(), values.end(), int64_t{0});
  EXPECT_EQ(sum, int64_t{20000} * 63 * 64 / 2);
}

TEST(ThreadPool, ShortRangesStayOnTheCaller) {
  ThreadPool pool(2);
  int calls = 0;
  pool.ParallelFor(10, 8, [&](int64_t begin, int64_t end, int worker) {
    ++calls;
    EXPECT_EQ(begin, 0);
    EXPECT_EQ(end, 10);
    EXPECT_EQ(worker, 0);
  });
  EXPECT_EQ(calls, 1);
}

TEST(MatrixView, SlicesRowsAndColumns) {
  std::vector<float> data(12);
  std::iota(data.begin(), data.end(), 0.0f);
  const Rows all(data.data(), 3, 4);
  const ConstRows part = all.Slice(1, 2).Columns(2, 2);
  EXPECT_EQ(part.row(0)[0], 6);
  EXPECT_EQ(part.row(1)[1], 11);
}

}  // namespace
}  // namespace kuruma
