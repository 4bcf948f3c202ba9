#include "base/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "base/check.h"

namespace kuruma {
namespace {

constexpr auto kSpinTime = std::chrono::microseconds(30);
// More parts than threads: a thread that another process keeps from its core delays the loop by the
// part it holds, not by its whole share.
constexpr int64_t kPartsPerThread = 4;

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Waits until `word` differs from `seen`: a short spin, then a futex (std::atomic::wait).
uint32_t AwaitChange(const std::atomic<uint32_t>& word, uint32_t seen) {
  const auto deadline = std::chrono::steady_clock::now() + kSpinTime;
  do {
    for (int i = 0; i < 64; ++i) {
      const uint32_t now = word.load(std::memory_order_acquire);
      if (now != seen) return now;
      Pause();
    }
  } while (std::chrono::steady_clock::now() < deadline);
  word.wait(seen, std::memory_order_acquire);
  return word.load(std::memory_order_acquire);
}

}  // namespace

// A loop is cut into parts that threads claim one by one. `claims` holds the loop's generation, its
// number of parts and the next unclaimed one in a single word, so that a worker that wakes late can
// never take a part of another loop; the fields of a loop are read only after a part was claimed,
// which keeps the loop from ending meanwhile.
struct ThreadPool::Shared {
  std::vector<std::thread> workers;
  std::atomic<uint32_t> generation{0};  // bumped to publish a loop, and to stop
  std::atomic<uint64_t> claims{0};      // generation << 32 | parts << 16 | next part
  std::atomic<uint32_t> finished{0};    // parts done of the current loop
  std::atomic<bool> stop{false};
  Task task = nullptr;
  void* context = nullptr;
  int64_t n = 0;
  uint32_t parts = 0;

  // Claims parts of loop `loop` until none is left.
  void RunParts(uint32_t loop, int worker) {
    uint64_t seen = claims.load(std::memory_order_acquire);
    while (true) {
      const uint64_t part = seen & 0xFFFF;
      if (static_cast<uint32_t>(seen >> 32) != loop || part >= ((seen >> 16) & 0xFFFF)) return;
      if (!claims.compare_exchange_weak(seen, seen + 1, std::memory_order_acq_rel,
                                        std::memory_order_acquire)) {
        continue;
      }
      const uint32_t all = parts;
      task(context, n * static_cast<int64_t>(part) / all, n * static_cast<int64_t>(part + 1) / all,
           worker);
      if (finished.fetch_add(1, std::memory_order_acq_rel) + 1 == all) finished.notify_one();
      seen = claims.load(std::memory_order_acquire);
    }
  }

  void Work(int worker) {
    uint32_t seen = 0;
    while (true) {
      seen = AwaitChange(generation, seen);
      if (stop.load(std::memory_order_acquire)) return;
      RunParts(seen, worker);
    }
  }
};

ThreadPool::ThreadPool(int threads) : threads_(threads), shared_(std::make_unique<Shared>()) {
  KURUMA_CHECK(threads >= 1);
  for (int worker = 1; worker < threads; ++worker) {
    shared_->workers.emplace_back([this, worker] { shared_->Work(worker); });
  }
}

ThreadPool::~ThreadPool() {
  shared_->stop.store(true, std::memory_order_release);
  shared_->generation.fetch_add(1, std::memory_order_release);
  shared_->generation.notify_all();
  for (std::thread& worker : shared_->workers) worker.join();
}

void ThreadPool::Run(int64_t n, int64_t min_part, Task task, void* context) {
  if (n <= 0) return;
  const int64_t useful = n / std::max<int64_t>(1, min_part);
  const int64_t wanted = std::min<int64_t>(useful, int64_t{threads_} * kPartsPerThread);
  if (threads_ == 1 || wanted <= 1) {
    task(context, 0, n, 0);
    return;
  }
  Shared& s = *shared_;
  s.task = task;
  s.context = context;
  s.n = n;
  s.parts = static_cast<uint32_t>(std::min<int64_t>(wanted, 0xFFFF));
  s.finished.store(0, std::memory_order_relaxed);
  const uint32_t loop = s.generation.load(std::memory_order_relaxed) + 1;
  s.claims.store(uint64_t{loop} << 32 | uint64_t{s.parts} << 16, std::memory_order_release);
  s.generation.store(loop, std::memory_order_release);
  s.generation.notify_all();
  s.RunParts(loop, 0);
  uint32_t done = s.finished.load(std::memory_order_acquire);
  while (done != s.parts) done = AwaitChange(s.finished, done);
}

}  // namespace kuruma
