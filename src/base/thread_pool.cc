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

struct ThreadPool::Shared {
  std::vector<std::thread> workers;
  std::atomic<uint32_t> generation{0};  // bumped to publish a loop, and to stop
  std::atomic<uint32_t> pending{0};     // workers that have not finished the loop
  bool stop = false;
  // The current loop; written before `generation` is bumped.
  Task task = nullptr;
  void* context = nullptr;
  int64_t n = 0;
  int parts = 0;

  void RunPart(int part) const {
    const int64_t begin = n * part / parts;
    const int64_t end = n * (part + 1) / parts;
    if (begin < end) task(context, begin, end, part);
  }

  void Work(int worker) {
    uint32_t seen = 0;
    while (true) {
      seen = AwaitChange(generation, seen);
      if (stop) return;
      if (worker < parts) RunPart(worker);
      if (pending.fetch_sub(1, std::memory_order_acq_rel) == 1) pending.notify_one();
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
  shared_->stop = true;
  shared_->generation.fetch_add(1, std::memory_order_release);
  shared_->generation.notify_all();
  for (std::thread& worker : shared_->workers) worker.join();
}

void ThreadPool::Run(int64_t n, int64_t min_part, Task task, void* context) {
  if (n <= 0) return;
  const int64_t useful = std::max<int64_t>(1, n / std::max<int64_t>(1, min_part));
  const int parts = static_cast<int>(std::min<int64_t>(threads_, useful));
  if (parts == 1) {
    task(context, 0, n, 0);
    return;
  }
  Shared& s = *shared_;
  s.task = task;
  s.context = context;
  s.n = n;
  s.parts = parts;
  s.pending.store(static_cast<uint32_t>(threads_ - 1), std::memory_order_relaxed);
  s.generation.fetch_add(1, std::memory_order_release);
  s.generation.notify_all();
  s.RunPart(0);
  uint32_t left = s.pending.load(std::memory_order_acquire);
  while (left != 0) left = AwaitChange(s.pending, left);
}

}  // namespace kuruma
