// The thread that runs steps while the engine plans the next one.
#ifndef KURUMA_ENGINE_DEVICE_THREAD_H_
#define KURUMA_ENGINE_DEVICE_THREAD_H_

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/status.h"
#include "engine/runner.h"

namespace kuruma::engine {

// A step on its way to the runner and back.
struct StepJob {
  std::vector<SlotStep> steps;
  bool after_pause = false;  // nothing was to be done before: the time since is not idle time
  // What came of it:
  Status status;
  std::vector<SlotResult> results;  // one per step
  double ms = 0;                    // the step took
  double idle_ms = 0;               // between the step before and this one; 0 after a pause
};

// Steps run in the order they are posted. Post and Wait: one thread.
class DeviceThread {
 public:
  // `synchronous`: there is no thread, Wait runs the step.
  DeviceThread(std::unique_ptr<Runner> runner, bool synchronous);
  // Steps that were posted are run first.
  ~DeviceThread();

  // `job` must stay until Wait has returned it, and is not to be touched before.
  void Post(StepJob* job);

  // The oldest job that was posted and not waited for, done; there is one. `slow` is called once if
  // that takes longer than `patience_ms`, while it still runs if that is possible.
  StepJob* Wait(double patience_ms, const std::function<void(double ms)>& slow);

 private:
  using Clock = std::chrono::steady_clock;

  void Main();
  void Run(StepJob* job);

  std::unique_ptr<Runner> runner_;
  Clock::time_point last_end_;  // of whoever calls Run
  std::mutex mutex_;            // of what follows
  std::condition_variable posted_, done_;
  std::vector<StepJob*> queue_;  // oldest first; few
  std::vector<StepJob*> finished_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace kuruma::engine

#endif  // KURUMA_ENGINE_DEVICE_THREAD_H_
