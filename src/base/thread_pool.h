// The compute pool: a fixed set of workers that split index ranges the same way every time.
#ifndef KURUMA_BASE_THREAD_POOL_H_
#define KURUMA_BASE_THREAD_POOL_H_

#include <cstdint>
#include <memory>
#include <type_traits>

namespace kuruma {

// Runs loops over [0, n) on `threads` threads, the caller being worker 0. The range is cut into a
// few contiguous parts per thread, by n and the thread count alone; threads claim parts as they
// become free, so that a core taken by another process slows a loop but does not stop it. Callers
// must not let boundaries or the claiming thread influence results (batch invariance, DESIGN.md
// "Numeric conventions"). Workers spin for about 30 us after a loop, then sleep on a futex: a
// decode step keeps them awake, an idle or oversubscribed machine is left alone. Not re-entrant:
// one loop at a time, from one thread. Work must not throw.
class ThreadPool {
 public:
  // `threads` >= 1. With 1 no thread is started and loops run inline.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return threads_; }

  // Calls body(begin, end, worker) for disjoint ranges covering [0, n); returns when all are done.
  // A worker may be called several times. `min_part`: ranges shorter than this many indices are not
  // worth a second thread.
  template <typename Body>
  void ParallelFor(int64_t n, int64_t min_part, Body&& body) {
    using Fn = std::remove_reference_t<Body>;
    Run(
        n, min_part,
        [](void* context, int64_t begin, int64_t end, int worker) {
          (*static_cast<Fn*>(context))(begin, end, worker);
        },
        const_cast<std::remove_const_t<Fn>*>(&body));
  }

 private:
  using Task = void (*)(void* context, int64_t begin, int64_t end, int worker);
  void Run(int64_t n, int64_t min_part, Task task, void* context);

  struct Shared;
  int threads_;
  std::unique_ptr<Shared> shared_;
};

}  // namespace kuruma

#endif  // KURUMA_BASE_THREAD_POOL_H_
