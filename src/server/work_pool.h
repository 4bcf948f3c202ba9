// Threads for work that must block neither the network nor the engine: JSON, tokenising, writing
// answers.
#ifndef KURUMA_SERVER_WORK_POOL_H_
#define KURUMA_SERVER_WORK_POOL_H_

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace kuruma::server {

// Runs tasks in the order they are posted, several at a time. The queue has no bound: what enters
// it is bounded by connections and by the engine's queue.
class WorkPool {
 public:
  explicit WorkPool(int threads);
  // Runs what was posted, then joins. Nothing may be posted any more.
  ~WorkPool();
  WorkPool(const WorkPool&) = delete;
  WorkPool& operator=(const WorkPool&) = delete;

  // Any thread. A task must not throw.
  void Post(std::function<void()> task);

 private:
  void Main();

  std::mutex mutex_;
  std::condition_variable posted_;
  std::deque<std::function<void()>> tasks_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace kuruma::server

#endif  // KURUMA_SERVER_WORK_POOL_H_
