// The thread that runs steps while the engine plans the next one.
#ifndef KURUMA_ENGINE_DEVICE_THREAD_H_
#define KURUMA_ENGINE_DEVICE_THREAD_H_

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/status.h"
#include "engine/runner.h"

namespace kuruma::engine {

// Steps run in the order they are posted. Post and Wait: one thread.
class DeviceThread {
 public:
  struct Done {
    Status status;
    std::vector<SlotResult> results;  // one per step
    double ms = 0;                    // the step took
    double idle_ms = 0;               // between the step before and this one; 0 after a pause
  };

  // `synchronous`: there is no thread, Wait runs the step.
  DeviceThread(std::unique_ptr<Runner> runner, bool synchronous);
  // Steps that were posted are run first.
  ~DeviceThread();

  // `after_pause`: nothing was to be done before, so the time since the last step is not idle time.
  void Post(std::vector<SlotStep> steps, bool after_pause);

  // Of the oldest step that was posted and not waited for; there is one. `slow` is called once if
  // that takes longer than `patience_ms`, while it still runs if that is possible.
  Done Wait(double patience_ms, const std::function<void(double ms)>& slow);

 private:
  using Clock = std::chrono::steady_clock;

  struct Job {
    std::vector<SlotStep> steps;
    bool after_pause;
  };

  void Main();
  Done Run(const Job& job);

  std::unique_ptr<Runner> runner_;
  Clock::time_point last_end_;  // of whoever calls Run
  std::mutex mutex_;            // of what follows
  std::condition_variable posted_, done_;
  std::deque<Job> queue_;
  std::deque<Done> finished_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace kuruma::engine

#endif  // KURUMA_ENGINE_DEVICE_THREAD_H_
